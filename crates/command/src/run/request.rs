//! A client's request: a key and its limits → a line, or why it is refused; how a key is sent.

use crate::duration::whole_seconds;
use protocol::lines::LINE_BYTES_MAX;
use protocol::{Mode, UNLIMITED, key_on_the_wire};
use std::fmt;
use std::time::Duration;

/// The longest time that every server reads; as for ever.
const WAIT_S_MAX: u64 = UNLIMITED as u64;

/// A request for a lock: its key, and the limits under which it is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockRequest {
    /// As it was given. A space in it is sent as `%20`, as MediaWiki's client does.
    pub(super) key: Vec<u8>,
    pub(super) mode: Mode,
    /// How many clients may hold the key at once.
    pub(super) workers: u32,
    /// How many clients may hold the key or wait for it, this one included.
    pub(super) max_queue: u32,
}

impl LockRequest {
    /// # Errors
    /// It fits no line.
    pub(super) fn check(&self, wait_s: Option<u64>) -> Result<(), Refusal> {
        if self.key.is_empty() {
            return Err(Refusal::EmptyKey);
        }
        if self.key.contains(&b'\n') {
            return Err(Refusal::KeyOfTwoLines);
        }
        let fits = self.line(wait_s).len() <= LINE_BYTES_MAX;
        if fits { Ok(()) } else { Err(Refusal::LongKey) }
    }

    /// The line to send; `None` is to wait for ever.
    pub(super) fn line(&self, wait_s: Option<u64>) -> Vec<u8> {
        let word: &[u8] = match self.mode {
            Mode::ForMe => b"ACQ4ME ",
            Mode::ForAnyone => b"ACQ4ANY ",
        };
        let [workers, max_queue] = [self.workers, self.max_queue].map(|n| n.min(UNLIMITED));
        let limits = format!(" {workers} {max_queue} {}\n", wait_s.unwrap_or(WAIT_S_MAX));
        [word, &key_on_the_wire(&self.key), limits.as_bytes()].concat()
    }
}

/// How long the server lets a request wait: a time in whole seconds, rounded up.
pub(super) fn wait_s(time: Duration) -> u64 {
    whole_seconds(time).min(WAIT_S_MAX)
}

/// Why a request is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no key.
    EmptyKey,
    /// The line would be too long.
    LongKey,
    /// The key has a line feed.
    KeyOfTwoLines,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::EmptyKey => "the key is empty",
            Refusal::LongKey => "the key is too long",
            Refusal::KeyOfTwoLines => "the key has a line end",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::lines::{Line, Lines};
    use protocol::{Acquire, Command};

    fn request(key: impl AsRef<[u8]>) -> LockRequest {
        let key = key.as_ref().to_vec();
        LockRequest { key, mode: Mode::ForMe, workers: 1, max_queue: UNLIMITED }
    }

    fn line(request: &LockRequest, timeout: Option<Duration>) -> String {
        String::from_utf8(request.line(timeout.map(wait_s))).expect("text")
    }

    #[test]
    fn limits_are_written_as_every_server_reads_them() {
        let plain = request("a b");
        assert_eq!(line(&plain, None), "ACQ4ME a%20b 1 2147483647 2147483647\n");
        let limited =
            LockRequest { mode: Mode::ForAnyone, workers: 2, max_queue: 3, ..request("k") };
        let timeout = Some(Duration::from_millis(1500));
        assert_eq!(line(&limited, timeout), "ACQ4ANY k 2 3 2\n");
        let huge = LockRequest { workers: u32::MAX, max_queue: u32::MAX, ..plain };
        let line_of_huge = line(&huge, Some(Duration::MAX));
        assert_eq!(line_of_huge, "ACQ4ME a%20b 2147483647 2147483647 2147483647\n");
        assert_eq!(line(&request("k"), Some(Duration::ZERO)), "ACQ4ME k 1 2147483647 0\n");
    }

    #[test]
    fn requests_that_fit_no_line_are_refused() {
        let long = "x".repeat(LINE_BYTES_MAX);
        for (key, refusal) in [
            ("", Refusal::EmptyKey),
            ("a\nRELEASE", Refusal::KeyOfTwoLines),
            (&long, Refusal::LongKey),
        ] {
            assert_eq!(request(key).check(None), Err(refusal));
        }
    }

    /// No byte of a key injects another command, nor is the key cut.
    #[test]
    fn a_server_reads_what_was_written() {
        for byte in (0..=u8::MAX).filter(|&byte| byte != b'\n') {
            for key in [&[byte][..], &[byte, byte], &[b'a', byte, b'b'], &[byte, b'a', byte]] {
                let request = LockRequest { workers: 2, max_queue: 3, ..request(key) };
                request.check(None).expect("a line");
                let line = request.line(None);
                let mut stream = &line[..];
                let mut lines = Lines::default();
                let Some(Line::Complete(line)) = lines.next_line(&mut stream) else { panic!() };
                let (mode, timeout_s) = (Mode::ForMe, UNLIMITED.into());
                let key = &key_on_the_wire(key);
                let expected = Acquire { mode, key, workers: 2, max_queue: 3, timeout_s };
                assert_eq!(Command::parse(line), Command::Acquire(expected));
                assert!(stream.is_empty());
            }
        }
    }
}
