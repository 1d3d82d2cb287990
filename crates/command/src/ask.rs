//! Asks a server for its reports; how a key and a pattern are written in a question; the whole text
//! of a key that a list has cut.

use super::shown_key::{is_utf8_output, make_readable};
use super::stats_full::StatsFull;
use super::status;
use connect::{NoAnswer, StatsConnection};
use protocol::{key_from_text, key_on_the_wire, key_text};
use schema::reports::{KeyReport, KeysReport, Report};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::ErrorKind;

/// The daemon reads no longer pattern.
pub(super) const PATTERN_CHARS_MAX: usize = 256;

/// The most rows that a server lists.
pub(super) const ROWS_MAX: u32 = 200;

/// What a server has answered.
pub(super) struct Answer<R> {
    /// All of it, with readable keys: a later version may have more members.
    pub(super) json: Value,
    /// Keys are readable if the output may have them so.
    pub(super) report: R,
}

/// Asks for a report in JSON, by the words behind `STATS `.
///
/// # Errors
/// There is no answer, or another one: without its first members, it would look like that of an
/// idle server.
pub(super) fn ask<R: DeserializeOwned>(
    connection: &mut StatsConnection,
    question: &str,
) -> Result<Answer<R>, NoAnswer> {
    let text = connection.query(question)?;
    read_answer(&text).map_err(|e| NoAnswer::Refused(format!("invalid STATS {question}: {e}")))
}

/// Reads an answer in JSON, and makes its keys readable: here alone, for all that shows them.
///
/// # Errors
/// It is another report, or no JSON.
pub(super) fn read_answer<R: DeserializeOwned>(text: &str) -> serde_json::Result<Answer<R>> {
    let sent: Value = serde_json::from_str(text)?;
    let mut json = sent.clone();
    make_readable(&mut json);
    let report = R::deserialize(if is_utf8_output() { &json } else { &sent })?;
    Ok(Answer { json, report })
}

/// All that a server tells of itself.
pub(super) struct Everything {
    /// `STATS JSON`, or the part of it that an older server has.
    pub(super) answer: Answer<Report>,
    /// What an older server has answered.
    pub(super) full: Option<StatsFull>,
}

/// Asks for everything.
///
/// # Errors
/// It does not answer, or not with statistics.
pub(super) fn everything(connection: &mut StatsConnection) -> Result<Everything, NoAnswer> {
    match ask(connection, "JSON") {
        Err(NoAnswer::Unknown) => {
            let text = connection.query("FULL")?;
            let full = StatsFull::read(&text);
            let json = full.as_json();
            let report = Report::deserialize(&json).map_err(|_| NoAnswer::Refused(text))?;
            Ok(Everything { answer: Answer { json, report }, full: Some(full) })
        }
        answer => Ok(Everything { answer: answer?, full: None }),
    }
}

/// The key that a user has typed; its bytes can be written as `\xNN`.
pub(super) fn key_from_user(key: &[u8]) -> Vec<u8> {
    let key = key_on_the_wire(key);
    key_from_text(&key).unwrap_or(key)
}

/// Asks about a key: as it is if it can be, which is shorter, or as text. A carriage return would be
/// taken for a part of the line's end.
///
/// # Errors
/// As [`ask`].
pub(super) fn ask_about_key(
    connection: &mut StatsConnection,
    key: &[u8],
) -> Result<Answer<KeyReport>, NoAnswer> {
    let is_plain = |c: char| c != '\\' && !c.is_whitespace() && !c.is_control();
    let question = match std::str::from_utf8(key) {
        Ok(text) if text.chars().all(is_plain) => format!("JSON KEY {text}"),
        _ => format!("JSON KEY {}", key_text(key)),
    };
    ask(connection, &question)
}

/// What a user has typed of a key, to stand for itself in a pattern.
pub(super) fn literally(typed: &[u8]) -> String {
    literal(&key_from_user(typed))
}

fn literal(key: &[u8]) -> String {
    key_text(key).replace('*', "\\x2a")
}

/// A pattern as the daemon reads it; `None` if it is too long.
pub(super) fn pattern_of(mut pattern: String) -> Option<String> {
    // As keys may have them there; in a rule they would be a slip.
    for at in [pattern.len().saturating_sub(1), 0] {
        if let Some(&quote @ (b'"' | b'\'')) = pattern.as_bytes().get(at) {
            pattern.replace_range(at..=at, &format!("\\x{quote:02x}"));
        }
    }
    (pattern.len() <= PATTERN_CHARS_MAX).then_some(pattern)
}

/// The end of a key that a list has cut.
pub(super) const CUT: &str = "\\...";

/// The keys that begin alike, each whole.
pub(super) enum Alike {
    None,
    One(String),
    /// Perhaps: of those that are left out, none may begin so.
    Several {
        keys: Vec<String>,
        left_out: u64,
    },
}

/// The keys that begin like `text`, which a list has cut.
pub(super) fn keys_that_begin(
    connection: &mut StatsConnection,
    text: &[u8],
) -> Result<Alike, NoAnswer> {
    let beginning = key_from_user(text);
    // A pattern has no room for many stars that stand for themselves: more keys may match one of
    // fewer bytes.
    let lens = (0..=beginning.len()).rev();
    let mut patterns = lens.filter_map(|len| pattern_of(literal(&beginning[..len]) + "*"));
    let pattern = patterns.next().unwrap_or_default();
    let question = format!("JSON KEYS {ROWS_MAX} {pattern}");
    let KeysReport { keys, left_out, .. } = ask(connection, &question)?.report;
    let keys = keys.into_iter().map(|row| row.key);
    let keys = keys.filter(|key| key_from_user(key.as_bytes()).starts_with(&beginning));
    let (mut keys, left_out): (Vec<_>, _) = (keys.collect(), left_out.unwrap_or(0));
    Ok(match (keys.len(), left_out) {
        (0 | 1, 0) => keys.pop().map_or(Alike::None, Alike::One),
        _ => Alike::Several { keys, left_out },
    })
}

/// The exit status for a server that does not answer, or not as it should.
pub(super) fn failure_status(why: &NoAnswer) -> u8 {
    match why {
        NoAnswer::Io(e) if e.kind() != ErrorKind::InvalidData => status::NO_SERVER,
        _ => status::PROTOCOL,
    }
}
