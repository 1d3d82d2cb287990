//! `stats`, `keys`, `key`, `clients`, `slow`: asks; prints tables, with the lists of several
//! servers as one, or the servers' JSON; the exit status of a failure.

use super::ask::{
    Alike, Answer, CUT, ask_about_key, everything, failure_status, key_from_user, keys_that_begin,
};
use super::every_server::{ask_each, distinct};
use super::lists::{List, ListKind, lines_of_key, locks_of_key};
use super::output::{print, print_error, print_json};
use super::shown_key::readable;
use super::status;
use connect::{NoAnswer, ServerName, StatsConnection};
use schema::reports;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Prints the list of the servers: for several, one with the rows of all.
pub(super) fn list(servers: &[ServerName], kind: ListKind, rows: u32, as_json: bool) -> ExitCode {
    print_lists(servers, kind, rows, as_json, |server| {
        kind.ask(&mut StatsConnection::connect(server)?, rows, "")
    })
}

/// Prints the answers to `ask`, which are lists.
pub(super) fn print_lists(
    servers: &[ServerName],
    kind: ListKind,
    rows: u32,
    as_json: bool,
    ask: impl Fn(&ServerName) -> Result<Answer<List>, NoAnswer> + Sync,
) -> ExitCode {
    if as_json {
        return print_each(servers, |server| {
            let answer = ask(server)?;
            Ok((Report::Json(answer.json), note_on(&answer.report, rows)))
        });
    }
    let servers = distinct(servers);
    let answers = ask_each(&servers, ask);
    let mut code = ExitCode::SUCCESS;
    let mut lists = Vec::new();
    for (server, answer) in servers.iter().zip(answers) {
        match answer {
            Ok(answer) => lists.push((server.as_str(), answer.report)),
            Err(e) => code = print_failure(server, &e),
        }
    }
    let named: Vec<_> = lists.iter().map(|(server, list)| (*server, list)).collect();
    let list = match &named[..] {
        [(_, alone)] if servers.len() == 1 => Some((*alone).clone()),
        several => List::merged(several, kind.order(), rows as usize),
    };
    let Some(list) = list else { return code };
    let is_said = print(&list.text());
    for (server, list) in &lists {
        print_note(server, note_on(list, rows));
    }
    if is_said { code } else { ExitCode::FAILURE }
}

/// A note if a server records nothing, has left out keys that match, or lists fewer rows than were
/// asked for and has more.
fn note_on(list: &List, rows: u32) -> Option<String> {
    let (n, all) = list.listed();
    let is_cut = n < all.min(rows.into());
    let note = is_cut.then(|| format!("{n} of {all}: no list of this server has more"));
    list.note.clone().or(note)
}

/// Prints the holders and waiters of a key, as text only those of the servers that have it if any
/// does. A space in it is sent as `%20`, and a backslash that does not begin `\xNN` stands for
/// itself.
pub(super) fn show_key(servers: &[ServerName], key: &[u8], as_json: bool) -> ExitCode {
    if key.is_empty() || key.contains(&b'\n') {
        print_error("a key is not empty and has no line end");
        return ExitCode::from(status::USAGE);
    }
    let answers = ask_each(servers, |server| ask_for_key(server, key, as_json));
    let is_there = |answer: &Result<OfKey, _>| answer.as_ref().is_ok_and(|it| it.is_there);
    let is_anywhere = answers.iter().any(is_there);
    let is_answered = answers.iter().any(Result::is_ok);
    let shown = servers.iter().zip(answers);
    let shown = shown.filter(|(_, it)| as_json || !is_anywhere || it.is_err() || is_there(it));
    let shown = shown.map(|(server, it)| (server, it.map(|answer| (answer.report, None))));
    let code = print_answers(shown.collect(), servers.len() > 1);
    if is_answered && !is_anywhere && key.contains(&b'*') {
        let typed = String::from_utf8_lossy(key);
        print_error(&format!(
            "'{typed}' is a pattern: poolcounter keys '{typed}' lists the keys that match"
        ));
    }
    code
}

/// What a server says of a key.
struct OfKey {
    report: Report,
    /// Clients hold it or wait for it there.
    is_there: bool,
}

fn ask_for_key(server: &ServerName, key: &[u8], as_json: bool) -> Result<OfKey, NoAnswer> {
    let mut connection = StatsConnection::connect(server)?;
    let alike = match key.strip_suffix(CUT.as_bytes()) {
        Some(beginning) => keys_that_begin(&mut connection, beginning)?,
        None => Alike::None,
    };
    let key = match &alike {
        Alike::None => key,
        Alike::One(whole) => whole.as_bytes(),
        Alike::Several { keys, left_out } if keys.is_empty() => {
            let why = format!("can't tell: {left_out} more keys begin nearly so");
            return Err(NoAnswer::Refused(why));
        }
        Alike::Several { keys, left_out } => {
            return Ok(OfKey { report: several_keys(keys, *left_out, as_json), is_there: true });
        }
    };
    let Answer { json, report } = ask_about_key(&mut connection, &key_from_user(key))?;
    let is_there = !report.locks.is_empty();
    let report = if as_json { Report::Json(json) } else { Report::Text(key_text(&report)) };
    Ok(OfKey { report, is_there })
}

/// What there is to say about a key.
fn key_text(report: &reports::KeyReport) -> String {
    let mut lines = lines_of_key(report);
    lines.push(locks_of_key(report).text());
    lines.join("\n")
}

/// A list has cut the key, and several begin like it.
fn several_keys(keys: &[String], left_out: u64, as_json: bool) -> Report {
    if as_json {
        let keys: Vec<_> = keys.iter().map(|key| readable(key)).collect();
        return Report::Json(json!({ "keys_that_begin": keys, "left_out": left_out }));
    }
    let all = left_out.saturating_add(keys.len() as u64);
    let mut text = format!("keys that begin so: {all}\n{}", keys.join("\n"));
    if left_out > 0 {
        text += &format!("\nand {left_out} more");
    }
    Report::Text(text)
}

/// Prints the statistics of each server. As JSON: everything, or from an older server what
/// `STATS FULL` has, under the same names.
pub(super) fn stats(servers: &[ServerName], as_json: bool) -> ExitCode {
    print_each(servers, |server| {
        let mut connection = StatsConnection::connect(server)?;
        let shown = if as_json {
            Report::Json(everything(&mut connection)?.answer.json)
        } else {
            Report::Text(connection.query("FULL")?)
        };
        Ok((shown, None))
    })
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
    ask: impl Fn(&ServerName) -> Result<ReportAndNote, NoAnswer> + Sync,
) -> ExitCode {
    let answers = ask_each(servers, ask);
    print_answers(servers.iter().zip(answers).collect(), servers.len() > 1)
}

/// As [`print_each`], answers that are there; texts with the server's name if `are_named`.
fn print_answers(
    answers: Vec<(&ServerName, Result<ReportAndNote, NoAnswer>)>,
    are_named: bool,
) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (server, answer) in answers {
        let (shown, note) = match answer {
            Ok(report) => report,
            Err(e) => {
                code = print_failure(server, &e);
                continue;
            }
        };
        let is_said = match shown {
            Report::Text(text) if are_named => print(&format!("{server}\n{text}\n")),
            Report::Text(text) => print(&text),
            Report::Json(value) => print_of_server(server, value),
        };
        print_note(server.as_str(), note);
        if !is_said {
            return ExitCode::FAILURE;
        }
    }
    code
}

/// Prints an answer in JSON, with the server's name. False if that fails.
fn print_of_server(server: &ServerName, mut answer: Value) -> bool {
    if let Value::Object(object) = &mut answer {
        object.insert("server".to_owned(), server.as_str().into());
    }
    print_json(&answer)
}

fn print_note(server: &str, note: Option<String>) {
    note.iter().for_each(|note| print_error(&format!("{server}: {note}")));
}

/// Names the server that does not answer; returns the exit status for it.
pub(super) fn print_failure(server: &ServerName, why: &NoAnswer) -> ExitCode {
    print_error(&format!("{server}: {why}"));
    ExitCode::from(failure_status(why))
}
