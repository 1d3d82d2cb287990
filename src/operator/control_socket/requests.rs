//! Parses a line of an operator, in bytes, since keys are bytes; why an order is refused.

use crate::logging::filter::FilterError;
use crate::operator::rule_book::{RuleOrder, RulesError};
use engine::rules::rule::{Rule, check_name};
use engine::rules::settings::{RuleError, seconds};
use protocol::{Command, Query, key_from_text};
use std::error::Error;
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

errors! {
    /// Why an order is refused. The words that it names are printable.
    pub enum RefusedOrder {
        /// It has more bytes than this.
        TooLong(bytes_max: usize) = "that is more than {bytes_max} bytes";
        /// No order begins with this word, or it takes no further words.
        Unknown = "no such order; HELP lists them";
        /// A space too many.
        EmptyWord = "an empty word; one space separates words";
        /// The arguments of `RESTART` are no list.
        NoList(why: serde_json::Error) = "not a JSON list of arguments: {why}";
        /// Words of `FREE` are missing.
        NoFree = "expected FREE [--json] [--dry-run] KEY key, FREE #client or FREE HOST address, \
                  and the most connections to close";
        /// `FREE` has this word where it can't have it.
        BadFree(word: String) = "{word}: {}", RefusedOrder::NoFree;
        /// This is not a key.
        NoKey(word: String) = "{word}: a byte of a key is a character or \\xNN; \
                               lists cut long keys: name the connection";
        /// This is not an address.
        NoHost(word: String) = "{word}: not an address without a port";
        /// Words of `RULE` are missing, or too many.
        BadRule = "expected RULE SET name [FOR 30m] pattern setting ..., RULE OFF name or RULE RESET name";
        /// It has bytes that are no text.
        NoText = "not UTF-8; write such bytes as \\xNN";
        /// This is not a time, and why.
        NoTime(word: String, why: &'static str) = "{word}: {why}";
        /// No rule is so.
        NoRule(why: RuleError) = "{}", printable(why.to_string().as_bytes());
        /// The rules can't be changed so.
        Rules(why: RulesError) = "{why}";
        /// The log has no such filter.
        Filter(why: FilterError) = "{why}";
        /// No list and no statistic is called so.
        NoStatistic = "no such statistic";
        /// No connection is meant by this.
        Nobody(target: FreeTarget) = "{}", match target {
            FreeTarget::Key(_) => "no client holds this key",
            FreeTarget::Connection(_) => "no such connection",
            FreeTarget::Host(_) => "no connection from this host",
        };
        /// It would close so many connections, and may close fewer.
        TooMany(count: usize, max: usize) =
            "{count} connections, more than {max}: nothing is closed; a MAX of {count} would do";
        /// The daemon can't listen again.
        StillDraining(why: Box<dyn Error>) = "{why}";
        /// Another hot restart has to end first.
        UnderWay = "a hot restart is already under way";
    }
}

/// A request as operators write it. `execute_orders` executes it.
struct RequestKind {
    form: &'static str,
    help: &'static str,
    /// Parses what follows the first word.
    parse: fn(&[u8]) -> Result<Request, RefusedOrder>,
}

macro_rules! kinds {
    ($($form:literal, $help:literal, $parse:expr;)*) => {
        const KINDS: &[RequestKind] =
            &[$(RequestKind { form: $form, help: $help, parse: $parse },)*];
    };
}

kinds! {
    "RESTART [JSON list of arguments]", "hot restart, with the same or another command line",
        parse_restart;
    "DRAIN", "no new clients; exit when the last has left", |rest| alone(Request::Drain, rest);
    "DRAINED", "answered when the drain is over", |rest| alone(Request::Drained, rest);
    "UNDRAIN", "new clients again", |rest| alone(Request::Undrain, rest);
    "LOG [FILTER]", "what to log, as --log; without FILTER, shows it", |rest| Ok(parse_log(rest));
    "RULES [--json]", "the rules, and what they do", parse_rules;
    "RULE SET name [FOR 30m] pattern ...",
        "a rule as in the file; or RULE OFF name, RULE RESET name", parse_rule;
    "FREE [--json] [--dry-run] KEY k|#n|HOST a [MAX]",
        "closes the holders of key k, client n, or host a; MAX is 20", parse_free;
    "STATS [FULL | JSON | KEYS | KEY | ...]", "statistics, as on the port", parse_stats;
    "HELP", "this", |rest| alone(Request::Help, rest);
}

/// The answer to `HELP`; the line end appended to it makes a blank line.
pub(crate) fn help() -> String {
    let width = 2 + KINDS.iter().map(|kind| kind.form.len()).max().unwrap_or_default();
    KINDS.iter().map(|kind| format!("{:width$}{}\n", kind.form, kind.help)).collect()
}

/// Parses one request: bytes, without the line feed. A carriage return at its end is ignored. An
/// empty word is refused: it may be a variable that is not set, and without it the request would
/// mean something else. (`RESTART` passes over one in its list, as a start does.)
///
/// # Errors
/// Why it is invalid.
pub fn parse(line: &[u8]) -> Result<Request, RefusedOrder> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (word, rest) = match line.iter().position(|&b| b == b' ') {
        Some(space) => (&line[..space], Some(&line[space + 1..])),
        None => (line, None),
    };
    let is_it = |kind: &&RequestKind| kind.form.split(' ').next().map(str::as_bytes) == Some(word);
    let kind = KINDS.iter().find(is_it).ok_or(RefusedOrder::Unknown)?;
    if rest.is_some_and(has_empty_word) {
        return Err(RefusedOrder::EmptyWord);
    }
    (kind.parse)(rest.unwrap_or_default())
}

fn has_empty_word(words: &[u8]) -> bool {
    // A JSON list may have any spaces inside.
    let is_list = words.starts_with(b"[") && words.ends_with(b"]");
    !is_list && words.split(|&b| b == b' ').any(<[u8]>::is_empty)
}

/// Parses a request that takes no arguments.
fn alone(request: Request, rest: &[u8]) -> Result<Request, RefusedOrder> {
    if rest.is_empty() { Ok(request) } else { Err(RefusedOrder::Unknown) }
}

fn parse_rules(rest: &[u8]) -> Result<Request, RefusedOrder> {
    match rest {
        b"" => Ok(Request::Rules { as_json: false }),
        b"--json" => Ok(Request::Rules { as_json: true }),
        _ => Err(RefusedOrder::Unknown),
    }
}

fn parse_restart(rest: &[u8]) -> Result<Request, RefusedOrder> {
    if rest.is_empty() {
        return Ok(Request::Restart(None));
    }
    let list: Vec<String> = serde_json::from_slice(rest).map_err(RefusedOrder::NoList)?;
    Ok(Request::Restart(Some(list.into_iter().map(Into::into).collect())))
}

fn parse_log(rest: &[u8]) -> Request {
    // Invalid UTF-8 becomes an invalid filter.
    let filter = || String::from_utf8_lossy(rest).into_owned();
    Request::Log((!rest.is_empty()).then(filter))
}

fn parse_stats(rest: &[u8]) -> Result<Request, RefusedOrder> {
    let words = if rest.is_empty() { b"FULL" } else { rest };
    match Command::parse(&[b"STATS ", words].concat()) {
        Command::Stats(query) => Ok(Request::Stats(query)),
        _ => Err(RefusedOrder::Unknown),
    }
}

/// How many connections `FREE` closes at most, unless the request has another bound.
const FREED_MAX: usize = 20;

fn parse_free(rest: &[u8]) -> Result<Request, RefusedOrder> {
    let bad = |word: &[u8]| RefusedOrder::BadFree(printable(word));
    let mut words = rest.split(|&b| b == b' ').peekable();
    let as_json = words.next_if_eq(&b"--json".as_slice()).is_some();
    let is_dry_run = words.next_if_eq(&b"--dry-run".as_slice()).is_some();
    let mut next = || words.next().ok_or(RefusedOrder::NoFree);
    let target = match next()? {
        b"KEY" => parse_key(next()?)?,
        b"HOST" => parse_host(next()?)?,
        word => {
            let serial = word.strip_prefix(b"#").and_then(parse_number);
            FreeTarget::Connection(serial.ok_or(RefusedOrder::NoFree)?)
        }
    };
    let connections_max =
        words.next().map_or(Ok(FREED_MAX), |word| parse_number(word).ok_or_else(|| bad(word)))?;
    match words.next() {
        None => Ok(Request::Free(Free { as_json, is_dry_run, target, connections_max })),
        Some(word) => Err(bad(word)),
    }
}

fn parse_number<T: FromStr>(word: &[u8]) -> Option<T> {
    // FromStr also accepts a sign.
    let digits = std::str::from_utf8(word).ok().filter(|word| !word.starts_with('+'));
    digits?.parse().ok()
}

fn parse_key(word: &[u8]) -> Result<FreeTarget, RefusedOrder> {
    let key = key_from_text(word).ok_or_else(|| RefusedOrder::NoKey(printable(word)))?;
    Ok(FreeTarget::Key(key))
}

/// As lists show it: an IPv4 address is never mapped into IPv6.
fn parse_host(word: &[u8]) -> Result<FreeTarget, RefusedOrder> {
    let ip = parse_number::<IpAddr>(word).ok_or_else(|| RefusedOrder::NoHost(printable(word)))?;
    Ok(FreeTarget::Host(ip.to_canonical().to_string()))
}

fn parse_rule(rest: &[u8]) -> Result<Request, RefusedOrder> {
    let text = std::str::from_utf8(rest).map_err(|_| RefusedOrder::NoText)?;
    let mut words = text.split(' ').peekable();
    let missing = || RefusedOrder::BadRule;
    let (verb, name) = (words.next().ok_or_else(missing)?, words.next().ok_or_else(missing)?);
    check_name(name).map_err(RefusedOrder::NoRule)?;
    let order = match verb {
        "SET" => {
            let for_s = match words.next_if_eq(&"FOR") {
                Some(_) => Some(parse_lasting(words.next().ok_or_else(missing)?)?),
                None => None,
            };
            let pattern = words.next().ok_or_else(missing)?;
            let rule = Rule::of(name, pattern, words.by_ref()).map_err(RefusedOrder::NoRule)?;
            RuleOrder::Set { rule, for_s }
        }
        "OFF" => RuleOrder::Off(name.to_owned()),
        "RESET" => RuleOrder::Reset(name.to_owned()),
        _ => return Err(missing()),
    };
    if words.next().is_some() { Err(missing()) } else { Ok(Request::Rule(order)) }
}

/// Reads how long a rule applies, in seconds.
fn parse_lasting(text: &str) -> Result<u64, RefusedOrder> {
    let no_time = |why| RefusedOrder::NoTime(printable(text.as_bytes()), why);
    seconds(text).map(|seconds| u32::from(seconds).into()).map_err(no_time)
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
    use protocol::List;

    fn parse(line: &[u8]) -> Option<Request> {
        super::parse(line).ok()
    }

    #[test]
    fn requests_are_read_exactly() {
        let restart =
            |list: &[&str]| Some(Request::Restart(Some(list.iter().map(Into::into).collect())));
        assert_eq!(parse(b"HELP"), Some(Request::Help));
        assert_eq!(parse(b"DRAIN"), Some(Request::Drain));
        assert_eq!(parse(b"DRAINED"), Some(Request::Drained));
        assert_eq!(parse(b"UNDRAIN"), Some(Request::Undrain));
        assert_eq!(parse(b"RESTART"), Some(Request::Restart(None)));
        assert_eq!(parse(br#"RESTART ["-l","::"]"#), restart(&["-l", "::"]));
        let rule = Rule::parse("a *:x* deny").unwrap();
        let set = |for_s| Some(Request::Rule(RuleOrder::Set { rule: rule.clone(), for_s }));
        assert_eq!(parse(b"RULES"), Some(Request::Rules { as_json: false }));
        assert_eq!(parse(b"RULES --json"), Some(Request::Rules { as_json: true }));
        assert_eq!(parse(b"RULE SET a *:x* deny"), set(None));
        assert_eq!(parse(b"RULE SET a FOR 30m *:x* deny"), set(Some(1800)));
        assert_eq!(parse(b"RULE SET a FOR 1h30m *:x* deny"), set(Some(5400)));
        assert_eq!(parse(b"RULE SET a FOR 90 *:x* deny"), set(Some(90)));
        assert_eq!(parse(b"RULE OFF a"), Some(Request::Rule(RuleOrder::Off("a".to_owned()))));
        assert_eq!(parse(b"RULE RESET a"), Some(Request::Rule(RuleOrder::Reset("a".to_owned()))));
        // As lists print keys, or their bytes.
        let key = || b"caf\xc3\xa9".to_vec();
        let free = Free {
            as_json: false,
            is_dry_run: false,
            target: FreeTarget::Key(key()),
            connections_max: FREED_MAX,
        };
        for text in [&br"caf\xc3\xa9"[..], "caf\u{e9}".as_bytes()] {
            let order = |words: &[u8]| parse(&[words, text].concat());
            assert_eq!(order(b"STATS KEY "), Some(Request::Stats(Query::List(List::Key(key())))));
            assert_eq!(order(b"FREE KEY "), Some(Request::Free(free.clone())));
        }
        assert_eq!(parse(b"LOG"), Some(Request::Log(None)));
        assert_eq!(parse(b"LOG debug"), Some(Request::Log(Some("debug".to_owned()))));
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
            assert!(parse(bad.as_bytes()).is_none(), "{bad:?}");
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
            assert!(parse(format!("RULE {bad}").as_bytes()).is_none(), "{bad}");
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
            assert!(parse(words.as_bytes()).is_some(), "{words}");
            let spaces = words.match_indices(' ').map(|(at, _)| at).chain([words.len()]);
            for at in spaces {
                let line = format!("{} {}", &words[..at], &words[at..]);
                let read = parse(line.as_bytes());
                assert!(read.is_none(), "{line:?}: {read:?}");
            }
        }
        assert!(parse(b" DRAIN").is_none());
        assert!(parse(br#"RESTART ["-l", ""]"#).is_some());
        assert!(parse(br#"RESTART [ "-l",  "::" ]"#).is_some());
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
            assert_eq!(parse(&line), request, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn requests_are_logged_as_one_line_of_text() {
        assert_eq!(printable(b"\xff\0\x1b[31m\n"), "???[31m?");
        assert_eq!(printable(&[b'x'; 1 << 20]).len(), PRINTED_CHARS);
    }
}
