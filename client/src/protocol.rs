//! Bytes ⇄ commands and replies, in both directions. No state, no I/O.
//!
//! `docs/protocol.md` says what a line means; this module only recognises it. The
//! engine decides whether a request is *allowed*: it also refuses a missing key and a
//! limit of 0, which are parsed as they stand, because other refusals come before
//! that one.
//!
//! The enums here follow the protocol: a minor version may add variants.

mod key_text;
pub mod lines;
mod numbers;
mod query;
mod reply;

pub use key_text::{key_from_text, key_text, key_text_cut};
pub use query::{Query, ROWS, Span, Subject};
pub use reply::Reply;

use lines::{Line, Lines};
use numbers::{parse_number, saturating_u32};
use std::fmt;

/// The largest number that every server understands, which stands for none; the C daemon
/// counts in 32 bits.
pub const UNLIMITED: u32 = i32::MAX as u32;

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

impl Acquire<'_> {
    fn write(&self, line: &mut Vec<u8>) {
        let word: &[u8] = match self.mode {
            Mode::ForMe => b"ACQ4ME ",
            Mode::ForAnyone => b"ACQ4ANY ",
        };
        line.extend_from_slice(word);
        line.extend_from_slice(self.key);
        // Without a key, the server would read the first number as the key.
        if !self.key.is_empty() {
            let limits = format!(" {} {} {}", self.workers, self.max_queue, self.timeout_s);
            line.extend_from_slice(limits.as_bytes());
        }
    }
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
    /// Anything else.
    Unknown,
}

/// No line can express this command: its key is missing or has a space or a line
/// feed, its name is invalid, or the line would be longer than
/// [`LINE_BYTES_MAX`](lines::LINE_BYTES_MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritable;

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no line of the protocol says this")
    }
}

impl std::error::Error for Unwritable {}

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
        } else {
            Command::Unknown
        }
    }

    /// Appends the line for this command, with its line feed. Parses the line before
    /// it accepts it, so that no key and no name can inject another command.
    ///
    /// # Errors
    /// When a server would read something else. `out` is then unchanged.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        let start = out.len();
        match self {
            Command::Acquire(request) => request.write(out),
            Command::Release => out.extend_from_slice(b"RELEASE"),
            Command::Stats(query) => {
                out.extend_from_slice(b"STATS ");
                out.extend_from_slice(query.words().as_bytes());
            }
            Command::Unknown => return Err(Unwritable),
        }
        out.push(b'\n');
        if !self.is_read_from(&out[start..]) {
            out.truncate(start);
            return Err(Unwritable);
        }
        Ok(())
    }

    /// Whether a server reads this command, and nothing else, from `stream`.
    fn is_read_from(&self, mut stream: &[u8]) -> bool {
        let mut lines = Lines::default();
        let is_it = match lines.next_line(&mut stream) {
            Some(Line::Complete(line)) => Command::parse(line) == *self,
            Some(Line::TooLong) | None => false,
        };
        is_it && stream.is_empty()
    }
}

/// Fields are separated by runs of spaces; those after the fourth are ignored.
fn parse_acquire(mode: Mode, fields: &[u8]) -> Acquire<'_> {
    let mut fields = fields.split(|&b| b == b' ').filter(|f| !f.is_empty());
    let mut next = || fields.next().unwrap_or_default();
    Acquire {
        mode,
        key: next(),
        workers: saturating_u32(parse_number(next())),
        max_queue: saturating_u32(parse_number(next())),
        timeout_s: parse_number(next()),
    }
}

#[cfg(test)]
mod tests {
    use super::lines::LINE_BYTES_MAX;
    use super::*;
    use proptest::prelude::*;

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
        ] {
            assert_eq!(Command::parse(line.as_bytes()), Command::Unknown, "{line:?}");
        }
        for line in ["RELEASE", "RELEASED", "RELEASE foo"] {
            assert_eq!(Command::parse(line.as_bytes()), Command::Release, "{line:?}");
        }
    }

    fn written(command: &Command) -> Option<String> {
        let mut out = b"before".to_vec();
        match command.write(&mut out) {
            Ok(()) => Some(String::from_utf8(out.split_off(6)).expect("text")),
            Err(Unwritable) => {
                assert_eq!(out, b"before");
                None
            }
        }
    }

    fn lock(key: &[u8]) -> Command<'_> {
        let mode = Mode::ForAnyone;
        Command::Acquire(Acquire { mode, key, workers: 1, max_queue: 2, timeout_s: 3 })
    }

    #[test]
    fn commands_are_written_as_clients_send_them() {
        for (command, line) in [
            (lock(b"k"), "ACQ4ANY k 1 2 3\n"),
            (Command::Release, "RELEASE\n"),
            (Command::Stats(Query::Full), "STATS FULL\n"),
            (Command::Stats(Query::Uptime), "STATS UPTIME\n"),
            (Command::Stats(Query::Keys(5)), "STATS KEYS 5\n"),
            (Command::Stats(Query::Key(b"K \xff".to_vec())), "STATS KEY K\\x20\\xff\n"),
            (Command::Stats(Query::Top(Span::Hour, Subject::Clients)), "STATS TOP hour clients\n"),
            (Command::Stats(Query::Counter("full_queues".into())), "STATS full_queues\n"),
        ] {
            assert_eq!(written(&command).as_deref(), Some(line));
        }
    }

    #[test]
    fn what_would_be_read_as_something_else_is_not_written() {
        for key in [&b""[..], b" ", b"a b", b"a\nRELEASE", b"\n", &[b'x'; LINE_BYTES_MAX]] {
            assert_eq!(written(&lock(key)), None, "{}", key.escape_ascii());
        }
        for name in ["full", "FULL_QUEUES", "a\nRELEASE", "a\r", "a\n"] {
            assert_eq!(written(&Command::Stats(Query::Counter(name.into()))), None, "{name:?}");
        }
        assert_eq!(written(&Command::Unknown), None);
    }

    fn any_command_line() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::sample::select(vec!["ACQ4ME", "ACQ4ANY", "RELEASE", "STATS", "x"]);
        let field = prop_oneof![
            prop::sample::select(vec![
                "",
                "k",
                "1",
                "07",
                "-1",
                "99999999999999999999",
                "full",
                "keys",
                "key",
                "top"
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..5),
        ];
        (word, prop::collection::vec(field, 0..6)).prop_map(|(word, fields)| {
            let words = std::iter::once(word.as_bytes().to_vec()).chain(fields);
            words.collect::<Vec<_>>().join(&b' ')
        })
    }

    proptest! {
        /// Every command that a server has read can be written and is read back the
        /// same.
        #[test]
        fn a_command_that_was_read_is_written_and_read_as_the_same(line in any_command_line()) {
            // A server reads one line, without its line end.
            let line: Vec<u8> = line.into_iter().filter(|b| !b"\r\n".contains(b)).collect();
            let command = Command::parse(&line);
            let mut out = Vec::new();
            prop_assert_eq!(command.write(&mut out).is_ok(), command != Command::Unknown);
            if let Some(line) = out.strip_suffix(b"\n") {
                prop_assert_eq!(Command::parse(line), command);
            }
        }

        /// Every request of a client becomes one line that is read back the same, or
        /// is refused.
        #[test]
        fn a_command_is_written_as_one_line_that_says_it(
            for_me in any::<bool>(),
            key in prop::collection::vec(any::<u8>(), 0..6),
            (workers, max_queue, timeout_s) in any::<(u32, u32, u64)>(),
            name in "[ -~\\r\\n]{0,6}",
        ) {
            let mode = if for_me { Mode::ForMe } else { Mode::ForAnyone };
            let acquire = Acquire { mode, key: &key, workers, max_queue, timeout_s };
            for command in [Command::Acquire(acquire), Command::Stats(Query::Counter(name))] {
                let mut out = Vec::new();
                if command.write(&mut out).is_ok() {
                    let line = out.strip_suffix(b"\n").expect("a line feed");
                    prop_assert!(!line.contains(&b'\n'));
                    prop_assert_eq!(Command::parse(line), command);
                }
            }
            let is_key = !key.is_empty() && !key.iter().any(|b| b" \n".contains(b));
            prop_assert_eq!(Command::Acquire(acquire).write(&mut Vec::new()).is_ok(), is_key);
        }
    }
}
