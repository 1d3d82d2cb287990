//! `stats`, `keys`, `key`, `clients`, `slow`: asks; prints tables, with the lists of several
//! servers as one, or the servers' JSON; the exit status of a failure.

use super::every_server::{ask_each, distinct};
use super::keys::{Alike, keys_that_begin};
use super::lists::{List, ListKind, locks_of_key, values_of_key};
use super::output::{one_line, print, print_error, print_json};
use super::shown_key::make_readable;
use super::stats_full::StatsFull;
use super::status;
use connect::{NoAnswer, ServerName, StatsConnection};
use protocol::key_on_the_wire;
use protocol::{key_from_text, key_text};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::process::ExitCode;

/// Prints the list of the servers: for several, one with the rows of all.
pub(super) fn list(servers: &[ServerName], kind: ListKind, rows: u32, as_json: bool) -> ExitCode {
    let ask = |server: &ServerName| {
        ask_json(&mut StatsConnection::connect(server)?, &kind.question(rows))
    };
    print_lists(servers, kind, rows, as_json, ask)
}

/// Prints the answers to `ask`, which are lists.
pub(super) fn print_lists(
    servers: &[ServerName],
    kind: ListKind,
    rows: u32,
    as_json: bool,
    ask: impl Fn(&ServerName) -> Result<Value, NoAnswer> + Sync,
) -> ExitCode {
    if as_json {
        return print_each(servers, |server| {
            let answer = ask(server)?;
            let note = note_on(kind, &answer, rows);
            Ok((Report::Json(answer), note))
        });
    }
    let servers = distinct(servers);
    let answers = ask_each(&servers, ask);
    let mut code = ExitCode::SUCCESS;
    let mut lists = Vec::new();
    for (server, answer) in servers.iter().zip(answers) {
        match answer {
            Ok(answer) => {
                let note = note_on(kind, &answer, rows);
                lists.push((server.as_str(), kind.read(&answer), note));
            }
            Err(e) => code = print_failure(server, &e),
        }
    }
    let named: Vec<_> = lists.iter().map(|(server, list, _)| (*server, list)).collect();
    let list = match &named[..] {
        [(_, alone)] if servers.len() == 1 => Some((*alone).clone()),
        several => List::merged(several, kind.order(), rows as usize),
    };
    let Some(list) = list else { return code };
    let is_said = print(&list.text());
    for (server, _, note) in lists {
        print_note(server, note);
    }
    if is_said { code } else { ExitCode::FAILURE }
}

/// A note if a server records nothing, lists fewer rows than requested and has more, or has left
/// out some of the keys that match.
fn note_on(kind: ListKind, answer: &Value, rows: u32) -> Option<String> {
    if kind == ListKind::Slow && answer["over_s"].is_null() {
        return Some("records nothing: it runs without --slow".to_owned());
    }
    let (n, all) = kind.read(answer).listed();
    if kind == ListKind::MatchingKeys {
        let left_out = answer["left_out"].as_u64().filter(|&left_out| left_out > 0)?;
        return Some(format!("{left_out} of {all} keys that match are left out"));
    }
    let is_cut = n < all.min(rows.into());
    is_cut.then(|| format!("{n} of {all}: no list of this server has more"))
}

/// A server's answer in JSON.
pub(super) fn ask_json(
    connection: &mut StatsConnection,
    question: &str,
) -> Result<Value, NoAnswer> {
    let text = connection.query(question)?;
    let answer: Value = serde_json::from_str(&text)
        .map_err(|e| NoAnswer::Refused(format!("invalid STATS {question}: {e}")))?;
    match missing_member(question, &answer) {
        None => Ok(answer),
        Some(name) => Err(NoAnswer::Refused(format!("STATS {question} without a valid {name:?}"))),
    }
}

/// What an answer must have: a number of this name, and a list of objects of this one. Without
/// them it would look like that of an idle server.
const MEMBERS: [(&str, &str, &str); 4] = [
    ("JSON KEYS ", "keys_total", "keys"),
    ("JSON CLIENTS ", "addresses", "clients"),
    ("JSON SLOW ", "slow_total", "slow"),
    ("JSON KEY ", "holders", "locks"),
];

fn missing_member<'a>(question: &str, answer: &Value) -> Option<&'a str> {
    if question == "JSON" {
        let has_uptime = answer["uptime_s"].is_number();
        return if !has_uptime {
            Some("uptime_s")
        } else {
            (!answer["counters"].is_object()).then_some("counters")
        };
    }
    let (_, number, list) = MEMBERS.iter().find(|(start, ..)| question.starts_with(start))?;
    if !answer[*number].is_u64() {
        return Some(number);
    }
    // Of `KEY`, locks have no key.
    let is_row = |row: &Value| {
        row.is_object() && (!matches!(*list, "keys" | "slow") || row["key"].is_string())
    };
    let rows = answer[*list].as_array();
    (!rows.is_some_and(|rows| rows.iter().all(is_row))).then_some(list)
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
    let is_there = |answer: &Result<KeyReport, _>| answer.as_ref().is_ok_and(|it| it.is_there);
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
struct KeyReport {
    report: Report,
    /// Clients hold it or wait for it there.
    is_there: bool,
}

fn ask_for_key(server: &ServerName, key: &[u8], as_json: bool) -> Result<KeyReport, NoAnswer> {
    let mut connection = StatsConnection::connect(server)?;
    let mut question = key_question(&key_from_user(key));
    if let Some(beginning) = String::from_utf8_lossy(key).strip_suffix(CUT) {
        let found = keys_that_begin(&mut connection, beginning)?;
        match &found.keys[..] {
            [] => {}
            [whole] if found.left_out == 0 => {
                question = key_question(&key_from_user(whole.as_bytes()));
            }
            _ => return Ok(KeyReport { report: several_keys(&found, as_json), is_there: true }),
        }
    }
    let answer = ask_json(&mut connection, &question)?;
    let is_there = answer["locks"].as_array().is_some_and(|locks| !locks.is_empty());
    let report = if as_json { Report::Json(answer) } else { Report::Text(key_lines(&answer)) };
    Ok(KeyReport { report, is_there })
}

/// What to ask about a key: as it is if it can be, which is shorter, or as text. A carriage return
/// would be taken for a part of the line's end.
pub(super) fn key_question(key: &[u8]) -> String {
    let is_plain = |c: char| c != '\\' && !c.is_whitespace() && !c.is_control();
    match std::str::from_utf8(key) {
        Ok(text) if text.chars().all(is_plain) => format!("JSON KEY {text}"),
        _ => format!("JSON KEY {}", key_text(key)),
    }
}

/// The end of a key that a list has cut.
pub(super) const CUT: &str = "\\...";

/// A list has cut the key, and several begin like it.
fn several_keys(found: &Alike, as_json: bool) -> Report {
    let Alike { keys, left_out } = found;
    if as_json {
        return Report::Json(json!({ "keys_that_begin": keys, "left_out": left_out }));
    }
    let all = keys.len() as u64 + left_out;
    let mut text = format!("keys that begin so: {all}\n{}", keys.join("\n"));
    if *left_out > 0 {
        text += &format!("\nand {left_out} more");
    }
    Report::Text(text)
}

/// What there is to say about a key.
fn key_lines(answer: &Value) -> String {
    let values = values_of_key(answer).into_iter();
    let values = values.map(|(name, value)| one_line(&format!("{name}: {value}")));
    let table = locks_of_key(answer);
    let rest = ["holder", "waiter"].into_iter().filter_map(|what| {
        let names: &[&str] =
            if what == "holder" { &["holders"] } else { &["for_me", "for_anyone"] };
        let all = names.iter().filter_map(|name| answer[*name].as_u64()).sum::<u64>();
        let listed = table.rows.iter().filter(|row| row.cells[0].text == what).count() as u64;
        (listed < all).then(|| format!("{what} and {} more", all - listed))
    });
    values.chain(table.lines()).chain(rest).collect::<Vec<_>>().join("\n")
}

/// The key that a user has typed; its bytes can be written as `\xNN`.
pub(super) fn key_from_user(key: &[u8]) -> Vec<u8> {
    let key = key_on_the_wire(key);
    key_from_text(&key).unwrap_or(key)
}

/// Prints the statistics of each server. As JSON: everything, or from an older server what
/// `STATS FULL` has, under the same names.
pub(super) fn stats(servers: &[ServerName], as_json: bool) -> ExitCode {
    print_each(servers, |server| {
        let mut connection = StatsConnection::connect(server)?;
        let shown = if as_json {
            Report::Json(everything(&mut connection)?)
        } else {
            Report::Text(connection.query("FULL")?)
        };
        Ok((shown, None))
    })
}

/// `STATS JSON`, or the part of it that an older server has.
///
/// # Errors
/// It does not answer, or not with statistics.
pub(super) fn everything(connection: &mut StatsConnection) -> Result<Value, NoAnswer> {
    match ask_json(connection, "JSON") {
        Err(NoAnswer::Unknown) => {
            let text = connection.query("FULL")?;
            let report = StatsFull::read(&text).as_json();
            if report["uptime_s"].is_null() { Err(NoAnswer::Refused(text)) } else { Ok(report) }
        }
        answer => answer,
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

/// Prints an answer in JSON, with the server's name and readable keys. False if that fails.
fn print_of_server(server: &ServerName, mut answer: Value) -> bool {
    make_readable(&mut answer);
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

/// The exit status for a server that does not answer, or not as it should.
pub(super) fn failure_status(why: &NoAnswer) -> u8 {
    match why {
        NoAnswer::Io(e) if e.kind() != ErrorKind::InvalidData => status::NO_SERVER,
        _ => status::PROTOCOL,
    }
}
