//! The words behind `STATS`: what it can be asked for.

use super::key_text::key_from_text;
use super::numbers::{next_number, saturating_u32};
use alloc::string::String;
use alloc::vec::Vec;

/// How many rows a list has by default.
pub const ROWS: u32 = 20;

/// What `STATS` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// `FULL`: the statistics that every server has, ended by a blank line.
    Full,
    /// `UPTIME`: how long the daemon has been running.
    Uptime,
    /// `JSON`: everything, for machines.
    Json,
    /// `JSON HISTORY`: the last hour, for machines.
    History,
    /// `KEYS [n]`: the `n` keys with the most waiters.
    Keys(u32),
    /// `KEY <key>`: the holders and waiters of this key.
    Key(Vec<u8>),
    /// `CLIENTS [n]`: the `n` addresses with the most connections.
    Clients(u32),
    /// `TOP [minute|hour] [keys|clients]`: the most frequent ones.
    Top(Span, Subject),
    /// `SLOW [n]`: the last `n` slow holds and waits.
    Slow(u32),
    /// One whole-number statistic, by its name as `STATS FULL` spells it. Any words
    /// that are not another query: only the daemon knows which names exist.
    Counter(String),
}

/// The time that `STATS TOP` looks back on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Span {
    /// The last full minute.
    #[default]
    Minute,
    /// The last full hour.
    Hour,
}

/// What `STATS TOP` lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Keys.
    #[default]
    Keys,
    /// Addresses of clients.
    Clients,
}

impl Span {
    /// As `STATS TOP` spells it.
    pub fn word(self) -> &'static str {
        match self {
            Span::Minute => "minute",
            Span::Hour => "hour",
        }
    }
}

impl Subject {
    /// As `STATS TOP` spells it.
    pub fn word(self) -> &'static str {
        match self {
            Subject::Keys => "keys",
            Subject::Clients => "clients",
        }
    }
}

impl Query {
    /// Reads what follows `STATS `, in any case, except that of a key.
    pub(super) fn parse(words: &[u8]) -> Self {
        let other = || Query::Counter(String::from_utf8_lossy(words).to_ascii_lowercase());
        Self::parse_known(words).unwrap_or_else(other)
    }

    /// `None` unless all words are valid: an extra word makes another query.
    fn parse_known(words: &[u8]) -> Option<Self> {
        let space = words.iter().position(|&b| b == b' ');
        let (word, rest) = match space {
            Some(space) => (&words[..space], Some(&words[space + 1..])),
            None => (words, None),
        };
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let alone = |query| rest.is_none().then_some(query);
        match word.len() {
            3 if is("KEY") => parse_key(rest?).map(Query::Key),
            3 if is("TOP") => parse_top(rest),
            4 if is("FULL") => alone(Query::Full),
            4 if is("JSON") => parse_json(rest),
            4 if is("KEYS") => parse_rows(rest).map(Query::Keys),
            4 if is("SLOW") => parse_rows(rest).map(Query::Slow),
            6 if is("UPTIME") => alone(Query::Uptime),
            7 if is("CLIENTS") => parse_rows(rest).map(Query::Clients),
            _ => None,
        }
    }
}

fn parse_json(word: Option<&[u8]>) -> Option<Query> {
    match word {
        None => Some(Query::Json),
        Some(word) => word.eq_ignore_ascii_case(b"HISTORY").then_some(Query::History),
    }
}

fn parse_key(text: &[u8]) -> Option<Vec<u8>> {
    // No key has a space, and no line a line feed.
    key_from_text(text).filter(|key| !key.is_empty() && !text.contains(&b' '))
}

/// A number, at least 1; if it is too large, the largest.
fn parse_rows(word: Option<&[u8]>) -> Option<u32> {
    let Some(word) = word else {
        return Some(ROWS);
    };
    let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let rows = is_number.then(|| saturating_u32(next_number(&mut word.iter())));
    rows.filter(|&rows| rows > 0)
}

/// Each word may be left out.
fn parse_top(words: Option<&[u8]>) -> Option<Query> {
    let mut words = words.into_iter().flat_map(|words| words.split(|&b| b == b' ')).peekable();
    let mut takes =
        |name: &str| words.next_if(|word| word.eq_ignore_ascii_case(name.as_bytes())).is_some();
    let mut span = Span::default();
    if !takes(span.word()) && takes(Span::Hour.word()) {
        span = Span::Hour;
    }
    let mut subject = Subject::default();
    if !takes(subject.word()) && takes(Subject::Clients.word()) {
        subject = Subject::Clients;
    }
    words.next().is_none().then_some(Query::Top(span, subject))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    #[test]
    fn words_are_read_in_any_case() {
        let counter = |name: &str| Query::Counter(name.to_owned());
        for (words, query) in [
            (&b"FULL"[..], Query::Full),
            (b"fulL", Query::Full),
            (b"Uptime", Query::Uptime),
            (b"json", Query::Json),
            (b"json History", Query::History),
            (b"keys", Query::Keys(ROWS)),
            (b"KEYS 7", Query::Keys(7)),
            (b"KEYS 99999999999999999999", Query::Keys(u32::MAX)),
            (b"Clients 1", Query::Clients(1)),
            (b"slow", Query::Slow(ROWS)),
            (b"top", Query::Top(Span::Minute, Subject::Keys)),
            (b"TOP Hour", Query::Top(Span::Hour, Subject::Keys)),
            (b"top minute", Query::Top(Span::Minute, Subject::Keys)),
            (b"TOP clients", Query::Top(Span::Minute, Subject::Clients)),
            (b"top hour Clients", Query::Top(Span::Hour, Subject::Clients)),
            (b"key Aa\\x20\xff", Query::Key(b"Aa \xff".to_vec())),
            (b"Full_Queues", counter("full_queues")),
            (b"", counter("")),
            (b" full ", counter(" full ")),
            (b"\xff", counter("\u{fffd}")),
        ] {
            assert_eq!(Query::parse(words), query, "{}", words.escape_ascii());
        }
    }

    #[test]
    fn a_word_too_many_or_none_is_another_query() {
        for words in [
            "FULL ",
            "FULL x",
            "JSON 1",
            "KEYS ",
            "KEYS 0",
            "KEYS -1",
            "KEYS 1 2",
            "KEYS x",
            "KEY",
            "KEY ",
            "KEY a b",
            "KEY \\q",
            "TOP ",
            "TOP keys hour",
            "TOP hour hour",
            "TOP minute ",
            "TOP day",
            "SLOW 0",
            "CLIENTS +1",
        ] {
            let expected = Query::Counter(words.to_ascii_lowercase());
            assert_eq!(Query::parse(words.as_bytes()), expected, "{words}");
        }
    }
}
