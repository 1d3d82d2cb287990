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
    /// `JSON KEYS <n> <pattern>`: the `n` keys that match and are held for longest, for machines.
    MatchingKeys(MatchingKeys),
    /// A list, for people.
    List(List),
    /// `JSON` and a list: the same for machines.
    JsonList(List),
    /// One whole-number statistic, by its name as `STATS FULL` spells it. Any words
    /// that are not another query: only the daemon knows which names exist.
    Counter(String),
}

/// A list, which `STATS` has as text and in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
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
}

/// Which keys are listed that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchingKeys {
    /// How many.
    pub rows: u32,
    /// As rules have it, not checked.
    pub pattern: Vec<u8>,
}

/// The time that `STATS TOP` looks back on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Span {
    /// The running minute once it is 10 s old, else the last full one.
    #[default]
    Minute,
    /// The running hour once it is ten minutes old, else the last full one.
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
        let (word, rest) = first_word(words);
        let alone = |query| rest.is_none().then_some(query);
        match word.len() {
            4 if is(word, "FULL") => alone(Query::Full),
            4 if is(word, "JSON") => rest.map_or(Some(Query::Json), parse_json),
            6 if is(word, "UPTIME") => alone(Query::Uptime),
            _ => List::parse(words).map(Query::List),
        }
    }
}

impl List {
    fn parse(words: &[u8]) -> Option<Self> {
        let (word, rest) = first_word(words);
        match word.len() {
            3 if is(word, "KEY") => parse_key(rest?).map(List::Key),
            3 if is(word, "TOP") => parse_top(rest),
            4 if is(word, "KEYS") => parse_rows(rest).map(List::Keys),
            4 if is(word, "SLOW") => parse_rows(rest).map(List::Slow),
            7 if is(word, "CLIENTS") => parse_rows(rest).map(List::Clients),
            _ => None,
        }
    }
}

/// The first word, and what follows the space behind it.
fn first_word(words: &[u8]) -> (&[u8], Option<&[u8]>) {
    match words.iter().position(|&b| b == b' ') {
        Some(space) => (&words[..space], Some(&words[space + 1..])),
        None => (words, None),
    }
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn parse_json(words: &[u8]) -> Option<Query> {
    let (word, rest) = first_word(words);
    match rest {
        None if is(word, "HISTORY") => Some(Query::History),
        Some(rest) if is(word, "KEYS") && rest.contains(&b' ') => {
            parse_matching(rest).map(Query::MatchingKeys)
        }
        _ => List::parse(words).map(Query::JsonList),
    }
}

fn parse_matching(words: &[u8]) -> Option<MatchingKeys> {
    let (rows, pattern) = first_word(words);
    let pattern = pattern.filter(|pattern| !pattern.is_empty() && !pattern.contains(&b' '))?;
    Some(MatchingKeys { rows: parse_rows(Some(rows))?, pattern: pattern.to_vec() })
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
fn parse_top(words: Option<&[u8]>) -> Option<List> {
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
    words.next().is_none().then_some(List::Top(span, subject))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    #[test]
    fn words_are_read_in_any_case() {
        let counter = |name: &str| Query::Counter(name.to_owned());
        let matching = |rows, pattern: &[u8]| {
            Query::MatchingKeys(MatchingKeys { rows, pattern: pattern.to_vec() })
        };
        for (words, query) in [
            (&b"FULL"[..], Query::Full),
            (b"fulL", Query::Full),
            (b"Uptime", Query::Uptime),
            (b"json", Query::Json),
            (b"json History", Query::History),
            (b"keys", Query::List(List::Keys(ROWS))),
            (b"KEYS 7", Query::List(List::Keys(7))),
            (b"KEYS 99999999999999999999", Query::List(List::Keys(u32::MAX))),
            (b"Clients 1", Query::List(List::Clients(1))),
            (b"slow", Query::List(List::Slow(ROWS))),
            (b"top", Query::List(List::Top(Span::Minute, Subject::Keys))),
            (b"TOP Hour", Query::List(List::Top(Span::Hour, Subject::Keys))),
            (b"top minute", Query::List(List::Top(Span::Minute, Subject::Keys))),
            (b"TOP clients", Query::List(List::Top(Span::Minute, Subject::Clients))),
            (b"top hour Clients", Query::List(List::Top(Span::Hour, Subject::Clients))),
            (b"key Aa\\x20\xff", Query::List(List::Key(b"Aa \xff".to_vec()))),
            (b"json Keys", Query::JsonList(List::Keys(ROWS))),
            (b"JSON KEYS 7", Query::JsonList(List::Keys(7))),
            (b"json KEY Aa\\x20", Query::JsonList(List::Key(b"Aa ".to_vec()))),
            (b"json clients", Query::JsonList(List::Clients(ROWS))),
            (b"json slow 3", Query::JsonList(List::Slow(3))),
            (b"json top hour", Query::JsonList(List::Top(Span::Hour, Subject::Keys))),
            (b"json keys 7 *", matching(7, b"*")),
            (b"JSON KEYS 99999999999 Aa*\xff", matching(u32::MAX, b"Aa*\xff")),
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
            "JSON ",
            "JSON FULL",
            "JSON JSON",
            "JSON HISTORY 1",
            "JSON KEYS 0",
            "JSON KEY a b",
            "JSON TOP day",
            "JSON KEYS a*",
            "JSON KEYS 0 a*",
            "JSON KEYS x a*",
            "JSON KEYS 1 ",
            "JSON KEYS 1 a b",
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
