//! Parses a line of an operator, in bytes, since keys are bytes.

use crate::operator::rule_book::RuleOrder;
use engine::rules::rule::{Rule, check_name};
use engine::rules::settings::seconds;
use protocol::{Command, Query, key_from_text};
use std::ffi::OsString;
use std::net::IpAddr;
use std::str::FromStr;

/// How much of a request a log line shows.
const PRINTED_CHARS: usize = 1_000;

/// A request from an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Hot restart, with a new command line or the same.
    Restart(Option<Vec<OsString>>),
    /// Take no new clients.
    Drain,
    /// Answer when the drain is over.
    Drained,
    /// Take new clients again.
    Undrain,
    /// Set the log filter, or show it.
    Log(Option<String>),
    /// List the rules.
    Rules {
        /// In JSON.
        as_json: bool,
    },
    /// Change the rules.
    Rule(RuleOrder),
    /// Close connections, so that their locks pass on.
    Free(Free),
    /// Answer with statistics, keys and addresses included.
    Stats(Query),
    /// List the requests.
    Help,
}

/// Which connections to close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Free {
    /// Answer in JSON.
    pub as_json: bool,
    /// Only report what would be closed.
    pub is_dry_run: bool,
    /// Which connections.
    pub target: FreeTarget,
    /// If there are more, none is closed.
    pub connections_max: usize,
}

/// What names the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FreeTarget {
    /// The connections that hold this key, not those that wait for it.
    Key(Vec<u8>),
    /// The connection with this serial number.
    Connection(u32),
    /// All connections of this address, as lists show it without the port.
    Host(String),
}

/// A request as operators write it. `execute_orders` executes it.
struct RequestKind {
    word: &'static str,
    arguments: &'static str,
    help: &'static str,
    /// Parses what follows the word.
    parse: fn(&[u8]) -> Result<Request, String>,
}

const KINDS: &[RequestKind] = &[
    RequestKind {
        word: "RESTART",
        arguments: "[JSON list of arguments]",
        help: "hot restart, with the same or another command line",
        parse: parse_restart,
    },
    RequestKind {
        word: "DRAIN",
        arguments: "",
        help: "no new clients; exit when the last has left",
        parse: |rest| alone(Request::Drain, rest),
    },
    RequestKind {
        word: "DRAINED",
        arguments: "",
        help: "answered when the drain is over",
        parse: |rest| alone(Request::Drained, rest),
    },
    RequestKind {
        word: "UNDRAIN",
        arguments: "",
        help: "new clients again",
        parse: |rest| alone(Request::Undrain, rest),
    },
    RequestKind {
        word: "LOG",
        arguments: "[FILTER]",
        help: "what to log, as --log; without FILTER, shows it",
        parse: parse_log,
    },
    RequestKind {
        word: "RULES",
        arguments: "[--json]",
        help: "the rules, and what they do",
        parse: parse_rules,
    },
    RequestKind {
        word: "RULE",
        arguments: "SET name [FOR 30m] pattern ...",
        help: "a rule as in the file; or RULE OFF name, RULE RESET name",
        parse: parse_rule,
    },
    RequestKind {
        word: "FREE",
        arguments: "[--json] [--dry-run] KEY k|#n|HOST a [MAX]",
        help: "closes the holders of key k, client n, or host a; MAX is 20",
        parse: parse_free,
    },
    RequestKind {
        word: "STATS",
        arguments: "[FULL | JSON | KEYS | KEY | ...]",
        help: "statistics, as on the port",
        parse: parse_stats,
    },
    RequestKind {
        word: "HELP",
        arguments: "",
        help: "this",
        parse: |rest| alone(Request::Help, rest),
    },
];

/// The answer to `HELP`; the line end appended to it makes a blank line.
pub(crate) fn help() -> String {
    let requests = KINDS.iter().map(|kind| format!("{} {}", kind.word, kind.arguments));
    let requests: Vec<String> = requests.collect();
    let width = 2 + requests.iter().map(String::len).max().unwrap_or_default();
    let lines = requests.iter().zip(KINDS);
    lines.map(|(request, kind)| format!("{request:width$}{}\n", kind.help)).collect()
}

/// Parses one request: bytes, without the line feed. A carriage return at its end is ignored. An
/// empty word is refused: it may be a variable that is not set, and without it the request would
/// mean something else. (`RESTART` passes over one in its list, as a start does.)
///
/// # Errors
/// Why it is invalid.
pub fn parse(line: &[u8]) -> Result<Request, String> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (word, rest) = match line.iter().position(|&b| b == b' ') {
        Some(space) => (&line[..space], Some(&line[space + 1..])),
        None => (line, None),
    };
    let kind = KINDS.iter().find(|kind| kind.word.as_bytes() == word).ok_or(NO_SUCH_ORDER)?;
    match rest {
        None => (kind.parse)(b""),
        Some(rest) if has_empty_word(rest) => {
            Err("an empty word; one space separates words".to_owned())
        }
        Some(rest) => (kind.parse)(rest),
    }
}

fn has_empty_word(words: &[u8]) -> bool {
    // A JSON list may have any spaces inside.
    let is_list = words.starts_with(b"[") && words.ends_with(b"]");
    !is_list && words.split(|&b| b == b' ').any(<[u8]>::is_empty)
}

const NO_SUCH_ORDER: &str = "no such order; HELP lists them";

/// Parses a request that takes no arguments.
fn alone(request: Request, rest: &[u8]) -> Result<Request, String> {
    if rest.is_empty() { Ok(request) } else { Err(NO_SUCH_ORDER.to_owned()) }
}

fn parse_rules(rest: &[u8]) -> Result<Request, String> {
    match rest {
        b"" => Ok(Request::Rules { as_json: false }),
        b"--json" => Ok(Request::Rules { as_json: true }),
        _ => Err(NO_SUCH_ORDER.to_owned()),
    }
}

fn parse_restart(rest: &[u8]) -> Result<Request, String> {
    if rest.is_empty() {
        return Ok(Request::Restart(None));
    }
    let list: Vec<String> =
        serde_json::from_slice(rest).map_err(|e| format!("not a JSON list of arguments: {e}"))?;
    Ok(Request::Restart(Some(list.into_iter().map(Into::into).collect())))
}

fn parse_log(rest: &[u8]) -> Result<Request, String> {
    if rest.is_empty() {
        return Ok(Request::Log(None));
    }
    // Invalid UTF-8 becomes an invalid filter.
    Ok(Request::Log(Some(String::from_utf8_lossy(rest).into_owned())))
}

fn parse_stats(rest: &[u8]) -> Result<Request, String> {
    let words = if rest.is_empty() { b"FULL" } else { rest };
    match Command::parse(&[b"STATS ", words].concat()) {
        Command::Stats(query) => Ok(Request::Stats(query)),
        _ => Err(NO_SUCH_ORDER.to_owned()),
    }
}

/// How many connections `FREE` closes at most, unless the request has another bound.
const FREED_MAX: usize = 20;

fn parse_free(rest: &[u8]) -> Result<Request, String> {
    const EXPECTED: &str = "expected FREE [--json] [--dry-run] KEY key, FREE #client or FREE HOST address, \
                            and the most connections to close";
    let mut words = rest.split(|&b| b == b' ').peekable();
    let as_json = words.next_if_eq(&b"--json".as_slice()).is_some();
    let is_dry_run = words.next_if_eq(&b"--dry-run".as_slice()).is_some();
    let target = match words.next().ok_or(EXPECTED)? {
        b"KEY" => parse_key(words.next().ok_or(EXPECTED)?).map(FreeTarget::Key)?,
        b"HOST" => parse_host(words.next().ok_or(EXPECTED)?).map(FreeTarget::Host)?,
        word => {
            let serial = word.strip_prefix(b"#").and_then(parse_number);
            FreeTarget::Connection(serial.ok_or(EXPECTED)?)
        }
    };
    let connections_max = match words.next() {
        None => FREED_MAX,
        Some(word) => {
            parse_number(word).ok_or_else(|| format!("{}: {EXPECTED}", printable(word)))?
        }
    };
    match words.next() {
        None => Ok(Request::Free(Free { as_json, is_dry_run, target, connections_max })),
        Some(word) => Err(format!("{}: {EXPECTED}", printable(word))),
    }
}

fn parse_number<T: FromStr>(word: &[u8]) -> Option<T> {
    // FromStr also accepts a sign.
    let digits = std::str::from_utf8(word).ok().filter(|word| !word.starts_with('+'));
    digits?.parse().ok()
}

fn parse_key(word: &[u8]) -> Result<Vec<u8>, String> {
    let key = key_from_text(word);
    key.ok_or_else(|| {
        format!(
            "{}: a byte of a key is a character or \\xNN; lists cut long keys: name the connection",
            printable(word)
        )
    })
}

/// As lists show it: an IPv4 address is never mapped into IPv6.
fn parse_host(word: &[u8]) -> Result<String, String> {
    match parse_number::<IpAddr>(word) {
        Some(ip) => Ok(ip.to_canonical().to_string()),
        None => Err(format!("{}: not an address without a port", printable(word))),
    }
}

fn parse_rule(rest: &[u8]) -> Result<Request, String> {
    const EXPECTED: &str =
        "expected RULE SET name [FOR 30m] pattern setting ..., RULE OFF name or RULE RESET name";
    let text = std::str::from_utf8(rest).map_err(|_| "not UTF-8; write such bytes as \\xNN")?;
    let mut words = text.split(' ').peekable();
    let (verb, name) = (words.next().ok_or(EXPECTED)?, words.next().ok_or(EXPECTED)?);
    check_name(name).map_err(|why| printable(why.to_string().as_bytes()))?;
    let order = match verb {
        "SET" => {
            let lasts = words.next_if_eq(&"FOR").is_some();
            let for_s =
                if lasts { Some(parse_lasting(words.next().ok_or(EXPECTED)?)?) } else { None };
            let pattern = words.next().ok_or(EXPECTED)?;
            let rule = Rule::of(name, pattern, words.by_ref());
            let rule = rule.map_err(|why| printable(why.to_string().as_bytes()))?;
            RuleOrder::Set { rule, for_s }
        }
        "OFF" => RuleOrder::Off(name.to_owned()),
        "RESET" => RuleOrder::Reset(name.to_owned()),
        _ => return Err(EXPECTED.to_owned()),
    };
    if words.next().is_some() { Err(EXPECTED.to_owned()) } else { Ok(Request::Rule(order)) }
}

/// Reads how long a rule applies, in seconds.
fn parse_lasting(text: &str) -> Result<u64, String> {
    let seconds = seconds(text).map_err(|why| format!("{}: {why}", printable(text.as_bytes())))?;
    Ok(u32::from(seconds).into())
}

/// The beginning of a request, or of a word of it, on one line of text.
pub(super) fn printable(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(4 * PRINTED_CHARS)];
    let text = String::from_utf8_lossy(start);
    let is_odd = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
    text.chars().take(PRINTED_CHARS).map(|c| if is_odd(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_exactly() {
        let restart =
            |list: &[&str]| Ok(Request::Restart(Some(list.iter().map(Into::into).collect())));
        assert_eq!(parse(b"HELP"), Ok(Request::Help));
        assert_eq!(parse(b"DRAIN"), Ok(Request::Drain));
        assert_eq!(parse(b"DRAINED"), Ok(Request::Drained));
        assert_eq!(parse(b"UNDRAIN"), Ok(Request::Undrain));
        assert_eq!(parse(b"RESTART"), Ok(Request::Restart(None)));
        assert_eq!(parse(br#"RESTART ["-l","::"]"#), restart(&["-l", "::"]));
        let rule = Rule::parse("a *:x* deny").unwrap();
        let set = |for_s| Ok(Request::Rule(RuleOrder::Set { rule: rule.clone(), for_s }));
        assert_eq!(parse(b"RULES"), Ok(Request::Rules { as_json: false }));
        assert_eq!(parse(b"RULES --json"), Ok(Request::Rules { as_json: true }));
        assert_eq!(parse(b"RULE SET a *:x* deny"), set(None));
        assert_eq!(parse(b"RULE SET a FOR 30m *:x* deny"), set(Some(1800)));
        assert_eq!(parse(b"RULE SET a FOR 1h30m *:x* deny"), set(Some(5400)));
        assert_eq!(parse(b"RULE SET a FOR 90 *:x* deny"), set(Some(90)));
        assert_eq!(parse(b"RULE OFF a"), Ok(Request::Rule(RuleOrder::Off("a".to_owned()))));
        assert_eq!(parse(b"RULE RESET a"), Ok(Request::Rule(RuleOrder::Reset("a".to_owned()))));
        assert_eq!(parse(b"LOG"), Ok(Request::Log(None)));
        assert_eq!(parse(b"LOG debug"), Ok(Request::Log(Some("debug".to_owned()))));
        for bad in [
            "",
            "restart",
            "RESTART now",
            "DRAIN now",
            "RESTART {}",
            "RESTARTED",
            "RULE",
            "RULES a",
            "RULES --json --json",
            "FREE --dry-run --json KEY k",
            "FREE --json",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn invalid_orders_about_rules_are_refused() {
        for bad in [
            "SET",
            "SET a",
            "SET A *",
            "SET other *",
            "SET a FOR * deny",
            "SET a FOR 0m *",
            "SET a FOR 0 *",
            "SET a FOR 0.5 *",
            "SET a FOR 5w *",
            "SET a FOR 99999999999s *",
            "SET a FOR 99999999999999999999 *",
            "SET a FOR 5m",
            "SET a * deny=1",
            "SET a total=3",
            "SET a FOR 5m deny",
            "SET deny x*",
            "SET total=3 x*",
            "SET a a\\x20b deny",
            "SET a \"x*\" deny",
            "SET a x*\tdeny",
            "OFF",
            "OFF a b",
            "RESET a b",
            "off a",
        ] {
            assert!(parse(format!("RULE {bad}").as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn empty_words_are_refused_in_every_request() {
        for words in [
            "FREE KEY k",
            "FREE KEY k 20",
            "FREE --dry-run KEY k 20",
            "FREE --json --dry-run KEY k 20",
            "FREE HOST 10.0.0.1 3",
            "FREE #1 3",
            "RULE SET a FOR 30m *:x* deny",
            "RULE SET a *:x* deny",
            "RULE OFF a",
            "RULE RESET a",
            "LOG debug",
            "STATS",
            "STATS KEY k",
            "STATS KEYS 3",
            "RESTART",
            r#"RESTART ["-l"]"#,
            "DRAIN",
            "DRAINED",
            "UNDRAIN",
            "RULES",
            "RULES --json",
            "HELP",
        ] {
            assert!(parse(words.as_bytes()).is_ok(), "{words}");
            let spaces = words.match_indices(' ').map(|(at, _)| at).chain([words.len()]);
            for at in spaces {
                let line = format!("{} {}", &words[..at], &words[at..]);
                let refused = parse(line.as_bytes());
                assert!(refused.is_err(), "{line:?}: {refused:?}");
            }
        }
        assert!(parse(b" DRAIN").is_err());
        assert!(parse(br#"RESTART ["-l", ""]"#).is_ok());
        assert!(parse(br#"RESTART [ "-l",  "::" ]"#).is_ok());
    }

    #[test]
    fn only_a_carriage_return_at_the_end_is_ignored() {
        for (end, request) in [
            (&b""[..], Some(Request::Drain)),
            (b"\r", Some(Request::Drain)),
            (b"  ", None),
            (b" \r", None),
            (b"\r\r", None),
            (b"\t", None),
            (b"\x0b", None),
            (b" \x0b", None),
            (b"\0", None),
            ("\u{a0}".as_bytes(), None),
        ] {
            let line = [b"DRAIN", end].concat();
            assert_eq!(parse(&line).ok(), request, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn requests_are_logged_as_one_line_of_text() {
        assert_eq!(printable(b"\xff\0\x1b[31m\n"), "???[31m?");
        assert_eq!(printable(&[b'x'; 1 << 20]).len(), PRINTED_CHARS);
    }
}
