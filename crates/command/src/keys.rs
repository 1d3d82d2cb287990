//! `keys`: how many, and by which pattern.

use super::ask::{PATTERN_CHARS_MAX, literally, pattern_of};
use super::lists::ListKind;
use super::output::print_error;
use super::stats::{list, print_lists};
use super::status;
use connect::{ServerName, StatsConnection};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Mutex;

/// Options of `keys`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KeysOptions {
    /// How many rows, of all servers together: 20 by default, and 200 at most of a server. And
    /// which keys: a pattern as rules have it, in which * stands for anything and \xNN for a
    /// byte; those held for longest come first then. A word of digits alone is a number of rows,
    /// unless another one precedes it.
    #[arg(value_name = "N|PATTERN", num_args = 0..=2)]
    words: Vec<OsString>,

    /// Print an object of JSON for each server.
    #[arg(long)]
    json: bool,
}

/// What is asked for.
struct Wanted {
    /// `None` without a number.
    rows: Option<u32>,
    pattern: Option<WantedPattern>,
}

struct WantedPattern {
    typed: String,
    /// As the daemon reads it.
    text: String,
}

/// Why the words are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BadWords {
    NoRows,
    TwoPatterns,
    TooMany,
    EmptyPattern,
    LineEnd,
    LongPattern,
}

impl fmt::Display for BadWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadWords::NoRows => "0 rows",
            BadWords::TwoPatterns => "two patterns",
            BadWords::TooMany => "more than a number and a pattern",
            BadWords::EmptyPattern => "an empty pattern matches no key; * matches all",
            BadWords::LineEnd => "no key has a line end",
            BadWords::LongPattern => {
                let max = PATTERN_CHARS_MAX;
                return write!(f, "a pattern has at most {max} characters, four for each \\xNN");
            }
        })
    }
}

/// # Errors
/// The words are not valid.
fn wanted(words: &[OsString]) -> Result<Wanted, BadWords> {
    let number = |word: &[u8]| -> Option<Result<u32, BadWords>> {
        let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
        is_number.then(|| match String::from_utf8_lossy(word).parse() {
            Ok(0) => Err(BadWords::NoRows),
            Ok(rows) => Ok(rows),
            Err(_) => Ok(u32::MAX),
        })
    };
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let (rows, pattern) = match words[..] {
        [] => (None, None),
        [word] => match number(word) {
            Some(rows) => (Some(rows?), None),
            None => (None, Some(word)),
        },
        [first, second] => match (number(first), number(second)) {
            (Some(rows), _) => (Some(rows?), Some(second)),
            (None, Some(rows)) => (Some(rows?), Some(first)),
            (None, None) => return Err(BadWords::TwoPatterns),
        },
        _ => return Err(BadWords::TooMany),
    };
    let pattern = pattern.map(|typed| -> Result<_, BadWords> {
        let text = pattern_text(typed)?;
        Ok(WantedPattern { typed: String::from_utf8_lossy(typed).into_owned(), text })
    });
    Ok(Wanted { rows, pattern: pattern.transpose()? })
}

/// The pattern as the daemon reads it.
fn pattern_text(pattern: &[u8]) -> Result<String, BadWords> {
    let pieces = pattern.split(|&byte| byte == b'*').map(literally).collect::<Vec<_>>();
    match pattern {
        b"" => Err(BadWords::EmptyPattern),
        _ if pattern.contains(&b'\n') => Err(BadWords::LineEnd),
        _ => pattern_of(pieces.join("*")).ok_or(BadWords::LongPattern),
    }
}

/// Prints the keys that the options ask for.
pub(super) fn print_keys(servers: &[ServerName], options: &KeysOptions) -> ExitCode {
    let Wanted { rows, pattern } = match wanted(&options.words) {
        Ok(wanted) => wanted,
        Err(why) => {
            print_error(&format!("keys: {why}"));
            return ExitCode::from(status::USAGE);
        }
    };
    let rows = rows.unwrap_or(protocol::ROWS);
    match pattern {
        None => list(servers, ListKind::Keys, rows, options.json),
        Some(pattern) => print_matching(servers, rows, &pattern, options.json),
    }
}

fn print_matching(
    servers: &[ServerName],
    rows: u32,
    pattern: &WantedPattern,
    as_json: bool,
) -> ExitCode {
    let counted = Mutex::new((0_u64, 0_u64));
    let kind = ListKind::MatchingKeys;
    let code = print_lists(servers, kind, rows, as_json, |server| {
        let answer = kind.ask(&mut StatsConnection::connect(server)?, rows, &pattern.text)?;
        let keys_total = answer.json["keys_total"].as_u64().unwrap_or(0);
        let mut counted = counted.lock().expect("no panic");
        counted.0 = counted.0.saturating_add(answer.report.total);
        counted.1 = counted.1.saturating_add(keys_total);
        Ok(answer)
    });
    let typed = &pattern.typed;
    match counted.into_inner().expect("no panic") {
        (0, all @ 1..) if !typed.contains('*') => {
            let keys = if all == 1 { "1 key matches" } else { &format!("{all} keys match") };
            print_error(&format!("0 of {keys}; a pattern is a whole key: '*{typed}*'"));
        }
        _ => {}
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_number_and_a_pattern() {
        let read = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(Into::into).collect();
            wanted(&words).map(|wanted| (wanted.rows, wanted.pattern.map(|pattern| pattern.text)))
        };
        let pattern = |text: &str| Some(text.to_owned());
        for (words, rows, expected) in [
            (&[][..], None, None),
            (&["7"], Some(7), None),
            (&["a*"], None, pattern("a*")),
            (&["7", "a*"], Some(7), pattern("a*")),
            (&["a*", "7"], Some(7), pattern("a*")),
            (&["7", "8"], Some(7), pattern("8")),
            (&["\\x37"], None, pattern("7")),
            (&["99999999999999999999"], Some(u32::MAX), None),
            (&["-"], None, pattern("-")),
            (&["1.5"], None, pattern("1.5")),
            (&["a b*"], None, pattern("a%20b*")),
            (&["café*"], None, pattern("caf\\xc3\\xa9*")),
            (&["\\xff\\x2a*"], None, pattern("\\xff\\x2a*")),
            (&["a\\b"], None, pattern("a\\x5cb")),
            (&["\"a\"b'"], None, pattern("\\x22a\"b\\x27")),
            (&["'"], None, pattern("\\x27")),
        ] {
            assert_eq!(read(words), Ok((rows, expected)), "{words:?}");
        }
        let long = "é".repeat(33);
        for bad in [&["0"][..], &["a", "b"], &[""], &["a\nb"], &[&long], &["1", "2", "3"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
