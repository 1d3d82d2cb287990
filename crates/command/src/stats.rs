//! `stats`, `keys`, `key`, `clients`, `slow`: asks; prints text, with the lists of several
//! servers as one, or JSON for each server; the exit status of a failure.

use super::every_server::{ask_each, distinct};
use super::output::{print, print_error, print_json};
use super::parsed_report::ParsedReport;
use super::status;
use super::table::ListOrder;
use connect::{NoAnswer, ServerName, StatsConnection};
use protocol::key_on_the_wire;
use protocol::{key_from_text, key_text};
use serde_json::Value;
use std::process::ExitCode;

/// A list of the daemon, as `STATS` names it, and how it is sorted.
type NamedList = (&'static str, ListOrder);

/// Prints the list of the servers: for several, one with the rows of all.
pub(super) fn list(servers: &[ServerName], list: NamedList, rows: u32, as_json: bool) -> ExitCode {
    let (name, order) = list;
    let question = format!("{name} {rows}");
    if as_json {
        return print_each(servers, |connection| {
            let answer = ParsedReport::read(&connection.query(&question)?);
            Ok((Report::Json(answer.json()), cut_note(&answer, rows)))
        });
    }
    let servers = distinct(servers);
    if servers.len() > 1 {
        return print_merged(&servers, &question, order, rows);
    }
    print_each(&servers, |connection| {
        let text = connection.query(&question)?;
        let note = cut_note(&ParsedReport::read(&text), rows);
        Ok((Report::Text(text), note))
    })
}

/// A note if a server lists fewer rows than requested, and has more.
fn cut_note(answer: &ParsedReport, rows: u32) -> Option<String> {
    let (n, all) = answer.listed().filter(|&(listed, all)| listed < all.min(rows.into()))?;
    Some(format!("{n} of {all}: no list of this server has more"))
}

/// Prints the rows of all servers in one list. The status is that of the last failure.
fn print_merged(servers: &[ServerName], question: &str, order: ListOrder, rows: u32) -> ExitCode {
    let answers = ask_each(servers, |server| StatsConnection::connect(server)?.query(question));
    let mut code = ExitCode::SUCCESS;
    let mut reports = Vec::new();
    for (server, answer) in servers.iter().zip(answers) {
        match answer {
            Ok(text) => reports.push((server.as_str(), ParsedReport::read(&text))),
            Err(e) => code = print_failure(server, &e),
        }
    }
    let reports: Vec<_> = reports.iter().map(|(server, report)| (*server, report)).collect();
    if reports.is_empty() {
        return code;
    }
    let is_said = print(&ParsedReport::merged(&reports, order, rows as usize).text());
    for (server, report) in reports {
        print_note(server, cut_note(report, rows));
    }
    if is_said { code } else { ExitCode::FAILURE }
}

/// Prints the holders and waiters of a key. A space in it is sent as `%20`, and a
/// backslash that does not begin `\xNN` stands for itself.
pub(super) fn show_key(servers: &[ServerName], key: &[u8], as_json: bool) -> ExitCode {
    if key.is_empty() || key.contains(&b'\n') {
        print_error("a key is not empty and has no line end");
        return ExitCode::from(status::USAGE);
    }
    // As text: a carriage return would be taken for a part of the line's end.
    let words = format!("KEY {}", key_text(&key_from_user(key)));
    print_each(servers, |connection| {
        let text = connection.query(&words)?;
        let json = as_json.then(|| ParsedReport::read(&text).json());
        Ok((json.map_or(Report::Text(text), Report::Json), None))
    })
}

/// The key that a user has typed; its bytes can be written as `\xNN`.
pub(super) fn key_from_user(key: &[u8]) -> Vec<u8> {
    let key = key_on_the_wire(key);
    key_from_text(&key).unwrap_or(key)
}

/// Prints the statistics of each server. As JSON: everything, or from an older server what
/// `STATS FULL` has, under the same names.
pub(super) fn stats(servers: &[ServerName], as_json: bool) -> ExitCode {
    print_each(servers, |connection| {
        let shown = if as_json {
            Report::Json(everything(connection)?)
        } else {
            Report::Text(connection.query("FULL")?)
        };
        Ok((shown, None))
    })
}

/// `STATS JSON`, or the part of it that an older server has.
fn everything(connection: &mut StatsConnection) -> Result<Value, NoAnswer> {
    match connection.query("JSON") {
        Ok(text) => serde_json::from_str(&text).map_err(|e| NoAnswer::Refused(e.to_string())),
        Err(NoAnswer::Unknown) => Ok(ParsedReport::read(&connection.query("FULL")?).full_as_json()),
        Err(e) => Err(e),
    }
}

enum Report {
    Text(String),
    Json(Value),
}

/// A server's answer, and a note about it.
type ReportAndNote = (Report, Option<String>);

/// Prints each server's answer, of several with its name, until a write fails.
/// The status is that of the last failure.
fn print_each(
    servers: &[ServerName],
    query: impl Fn(&mut StatsConnection) -> Result<ReportAndNote, NoAnswer> + Sync,
) -> ExitCode {
    let answers = ask_each(servers, |server| query(&mut StatsConnection::connect(server)?));
    let mut code = ExitCode::SUCCESS;
    for (server, answer) in servers.iter().zip(answers) {
        let (shown, note) = match answer {
            Ok(report) => report,
            Err(e) => {
                code = print_failure(server, &e);
                continue;
            }
        };
        let is_said = match shown {
            Report::Text(text) if servers.len() == 1 => print(&text),
            Report::Text(text) => print(&format!("{server}\n{text}\n")),
            Report::Json(mut value) => {
                if let Value::Object(object) = &mut value {
                    object.insert("server".to_owned(), server.as_str().into());
                }
                print_json(&value)
            }
        };
        print_note(server.as_str(), note);
        if !is_said {
            return ExitCode::FAILURE;
        }
    }
    code
}

fn print_note(server: &str, note: Option<String>) {
    note.iter().for_each(|note| print_error(&format!("{server}: {note}")));
}

/// Names the server that does not answer; returns the exit status for it.
fn print_failure(server: &ServerName, why: &NoAnswer) -> ExitCode {
    print_error(&format!("{server}: {why}"));
    let is_down = matches!(why, NoAnswer::Io(_));
    ExitCode::from(if is_down { status::NO_SERVER } else { status::PROTOCOL })
}
