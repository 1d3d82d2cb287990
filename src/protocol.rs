//! Bytes ⇄ commands and replies. No state, no I/O.
//!
//! What a line means is written in `docs/protocol.md`; this module only
//! recognises it. Whether a request is *allowed* is the engine's decision: a
//! missing key or a limit of 0 is parsed faithfully and refused there, because
//! other refusals come before that one.

pub mod lines;

/// Whose work a waiter is content with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `ACQ4ME`: only the lock itself will do.
    ForMe,
    /// `ACQ4ANY`: somebody else's finished work (`DONE`) will do as well.
    ForAnyone,
}

/// A request for a lock, its limits as the client wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// Whether `DONE` is an answer.
    pub mode: Mode,
    /// Any bytes but a space and a line feed. Empty when there was none.
    pub key: &'a [u8],
    /// How many may hold the key at once, for this request. 0 is no number.
    pub workers: u32,
    /// How many may hold or wait, for this request. 0 is no number.
    pub max_queue: u32,
    /// How long to wait, in whole seconds. 0 is not at all.
    pub timeout_s: u64,
}

/// One line from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `ACQ4ME` or `ACQ4ANY`.
    Acquire(Acquire<'a>),
    /// `RELEASE`, whatever follows it.
    Release,
    /// `STATS ` and the word after it, as sent.
    Stats(&'a [u8]),
    /// Anything else.
    Unknown,
}

impl<'a> Command<'a> {
    /// Reads one line, given without its line end. Never fails: what is no
    /// command is [`Command::Unknown`].
    pub fn parse(line: &'a [u8]) -> Self {
        if let Some(fields) = line.strip_prefix(b"ACQ4ME ") {
            Command::Acquire(parse_acquire(Mode::ForMe, fields))
        } else if let Some(fields) = line.strip_prefix(b"ACQ4ANY ") {
            Command::Acquire(parse_acquire(Mode::ForAnyone, fields))
        } else if line.starts_with(b"RELEASE") {
            Command::Release
        } else if let Some(word) = line.strip_prefix(b"STATS ") {
            Command::Stats(word)
        } else {
            Command::Unknown
        }
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

/// Decimal digits and nothing else; whatever is not that counts as 0. Numbers
/// too large to hold stay at the largest (the reference wraps at 32 bits).
fn parse_number(field: &[u8]) -> u64 {
    let mut number: u64 = 0;
    for byte in field {
        if !byte.is_ascii_digit() {
            return 0;
        }
        let digit = u64::from(byte - b'0');
        number = number.saturating_mul(10).saturating_add(digit);
    }
    number
}

fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// One line to a client. Clients compare these as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The lock is yours.
    Locked,
    /// Somebody else finished the work that you waited for.
    Done,
    /// The lock, or the wait, is given back.
    Released,
    /// The wait ran out, or there was none to be had.
    Timeout,
    /// As many hold or wait as the request allowed.
    QueueFull,
    /// The connection holds or waits for as many locks as it may.
    LockHeld,
    /// Nothing to give back.
    NotLocked,
    /// An ACQ while an earlier one still waits.
    WaitForResponse,
    /// No key, or no usable number.
    BadSyntax,
    /// No such command.
    BadCommand,
    /// No such statistic.
    WrongStat,
    /// A line over the limit; it was skipped.
    LineTooLong,
}

impl Reply {
    /// The line to send, with its line feed.
    pub fn as_bytes(self) -> &'static [u8] {
        match self {
            Reply::Locked => b"LOCKED\n",
            Reply::Done => b"DONE\n",
            Reply::Released => b"RELEASED\n",
            Reply::Timeout => b"TIMEOUT\n",
            Reply::QueueFull => b"QUEUE_FULL\n",
            Reply::LockHeld => b"LOCK_HELD\n",
            Reply::NotLocked => b"NOT_LOCKED\n",
            Reply::WaitForResponse => b"ERROR WAIT_FOR_RESPONSE\n",
            Reply::BadSyntax => b"ERROR BAD_SYNTAX\n",
            Reply::BadCommand => b"ERROR BAD_COMMAND\n",
            Reply::WrongStat => b"ERROR WRONG_STAT\n",
            Reply::LineTooLong => b"ERROR LINE_TOO_LONG\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Command::parse(b"STATS "), Command::Stats(b""));
        assert_eq!(Command::parse(b"STATS  full "), Command::Stats(b" full "));
    }
}
