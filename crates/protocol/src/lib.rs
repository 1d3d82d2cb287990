//! Bytes → lines → commands, and replies in both directions; queries; answers to orders;
//! keys and times as text. The engine, the reports, the daemon, the client and the command call it. It may know
//! nothing but bytes: it decides nothing and, without std, names no socket, file, clock or thread.
//!
//! `docs/reference/protocol.md` says what a line means; this crate only recognises it. The
//! engine decides whether a request is *allowed*: it also refuses a missing key and a
//! limit of 0, which are parsed as they stand, because other refusals come before
//! that one.
//!
//! The enums here follow the protocol: a minor version may add variants.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod answers;
mod key_text;
pub mod lines;
mod numbers;
mod query;
mod reply;
mod time_text;

pub use key_text::{key_from_text, key_on_the_wire, key_text, key_text_cut};
pub use query::{List, MatchingKeys, Query, ROWS, Span, Subject};
pub use reply::Reply;
pub use time_text::{seconds_from_text, time_from_text, time_text};

use lines::LINE_START_BYTES;
use memchr::memchr;
use numbers::{next_number, saturating_u32};

/// The largest number that every server accepts; it means no limit. The C daemon counts
/// in 32 bits.
pub const UNLIMITED: u32 = i32::MAX as u32;

/// A connection holds and waits for at most this many locks.
pub const LOCKS_PER_CONNECTION_MAX: usize = 4;

/// Whose work a waiter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `ACQ4ME`: the client needs the lock itself.
    ForMe,
    /// `ACQ4ANY`: another client's finished work (`DONE`) is enough.
    ForAnyone,
}

/// A request for a lock, with its limits as the client wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// Whether `DONE` is an answer.
    pub mode: Mode,
    /// Any bytes except spaces and line feeds. Empty if the request has none.
    pub key: &'a [u8],
    /// How many clients may hold the key at once, for this request to be granted. 0
    /// stands for anything that is not a number.
    pub workers: u32,
    /// How many clients may hold the key or wait for it, this one included. 0 stands
    /// for anything that is not a number.
    pub max_queue: u32,
    /// How long to wait, in whole seconds. 0 means not to wait.
    pub timeout_s: u64,
}

/// One line from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `ACQ4ME` or `ACQ4ANY`.
    Acquire(Acquire<'a>),
    /// `RELEASE`, whatever follows it.
    Release,
    /// `STATS` and what it asks for.
    Stats(Query),
    /// A line of a request of HTTP, as [`is_of_http`] knows it: whoever sends it does not mean this
    /// server, and what follows may be chosen by somebody else.
    Http,
    /// Anything else.
    Unknown,
}

impl<'a> Command<'a> {
    /// Reads one line, given without its line end. Never fails: anything that is not
    /// a command is [`Command::Unknown`].
    pub fn parse(line: &'a [u8]) -> Self {
        if let Some(fields) = line.strip_prefix(b"ACQ4ME ") {
            Command::Acquire(parse_acquire(Mode::ForMe, fields))
        } else if let Some(fields) = line.strip_prefix(b"ACQ4ANY ") {
            Command::Acquire(parse_acquire(Mode::ForAnyone, fields))
        } else if line.starts_with(b"RELEASE") {
            Command::Release
        } else if let Some(words) = line.strip_prefix(b"STATS ") {
            Command::Stats(Query::parse(words))
        } else if is_of_http(line) {
            Command::Http
        } else {
            Command::Unknown
        }
    }
}

/// Whether a line begins with `POST ` or `Host:`, in upper or lower case: names of headers have
/// either (RFC 9110, 5.1). Each request of HTTP/1.1 has a `Host` (RFC 9112, 3.2).
pub fn is_of_http(line: &[u8]) -> bool {
    let start = line.get(..LINE_START_BYTES).unwrap_or_default();
    [b"POST ", b"Host:"].iter().any(|it| start.eq_ignore_ascii_case(&it[..]))
}

/// Fields are separated by runs of spaces; those after the fourth are ignored.
fn parse_acquire(mode: Mode, fields: &[u8]) -> Acquire<'_> {
    let from_key = &fields[fields.iter().take_while(|&&b| b == b' ').count()..];
    let (key, numbers) = from_key.split_at(memchr(b' ', from_key).unwrap_or(from_key.len()));
    let mut numbers = numbers.iter();
    Acquire {
        mode,
        key,
        workers: saturating_u32(next_number(&mut numbers)),
        max_queue: saturating_u32(next_number(&mut numbers)),
        timeout_s: next_number(&mut numbers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::string::ToString;

    fn acquire(line: &str) -> (Mode, String, u32, u32, u64) {
        match Command::parse(line.as_bytes()) {
            Command::Acquire(a) => (
                a.mode,
                String::from_utf8_lossy(a.key).into_owned(),
                a.workers,
                a.max_queue,
                a.timeout_s,
            ),
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[test]
    fn fields_are_separated_by_runs_of_spaces_and_extra_ones_are_ignored() {
        let expected = (Mode::ForMe, "k".to_string(), 1, 2, 3);
        assert_eq!(acquire("ACQ4ME k 1 2 3"), expected);
        assert_eq!(acquire("ACQ4ME   k  1   2 3  "), expected);
        assert_eq!(acquire("ACQ4ME k 01 2 3 extra junk"), expected);
    }

    #[test]
    fn what_is_not_a_number_counts_as_zero() {
        for bad in ["-1", "+1", "1.5", "x", "1\t", "0x1", "1\r"] {
            let (_, _, workers, max_queue, timeout_s) =
                acquire(&format!("ACQ4ANY k {bad} {bad} {bad}"));
            assert_eq!((workers, max_queue, timeout_s), (0, 0, 0), "{bad:?}");
        }
        assert_eq!(acquire("ACQ4ANY k"), (Mode::ForAnyone, "k".to_string(), 0, 0, 0));
        assert_eq!(acquire("ACQ4ME "), (Mode::ForMe, String::new(), 0, 0, 0));
    }

    #[test]
    fn numbers_saturate() {
        let huge = "9".repeat(40);
        assert_eq!(
            acquire(&format!("ACQ4ME k 4294967296 4294967297 {huge}")),
            (Mode::ForMe, "k".to_string(), u32::MAX, u32::MAX, u64::MAX)
        );
    }

    #[test]
    fn a_key_is_bytes() {
        let Command::Acquire(a) = Command::parse(b"ACQ4ME \xff\0\t 1 1 1") else { panic!() };
        assert_eq!(a.key, b"\xff\0\t");
    }

    #[test]
    fn only_exact_command_words_count() {
        for line in [
            "",
            "QUIT",
            "acq4me k 1 1 1",
            " ACQ4ME k 1 1 1",
            "ACQ4ME",
            "ACQ4ME\tk 1 1 1",
            "ACQ4ANYX k 1 1 1",
            "STATS",
            "stats FULL",
            "STATSFULL",
            "RELEAS",
            // Only operators give orders.
            "RULES",
            "RULE SET a * deny",
            "DRAIN",
            "FREE KEY k",
        ] {
            assert_eq!(Command::parse(line.as_bytes()), Command::Unknown, "{line:?}");
        }
        for line in ["RELEASE", "RELEASED", "RELEASE foo"] {
            assert_eq!(Command::parse(line.as_bytes()), Command::Release, "{line:?}");
        }
    }

    #[test]
    fn lines_of_http_are_known_by_their_beginning() {
        for line in
            ["POST / HTTP/1.1", "post /", "POST ", "Host: a", "host:a", "HOST:", "Host:\u{e9}"]
        {
            assert_eq!(Command::parse(line.as_bytes()), Command::Http, "{line:?}");
        }
        for line in ["POST", "POSTS /", " POST /", "Host", "Host : a", "Hosts: a", "GET / HTTP/1.1"]
        {
            assert_eq!(Command::parse(line.as_bytes()), Command::Unknown, "{line:?}");
        }
    }
}
