//! A client's request: a key and its limits → a line, or why it is refused; how a key is sent.

use crate::duration::whole_seconds;
use protocol::lines::LINE_BYTES_MAX;
use protocol::{Mode, UNLIMITED, key_on_the_wire};
use std::fmt;
use std::time::Duration;

/// A request for a lock: its key, and the limits under which it is granted.
///
/// Without limits, one client at a time holds the key, any number may wait for it, and
/// they wait for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockRequest {
    key: Vec<u8>,
    mode: Mode,
    workers: u32,
    max_queue: u32,
    timeout: Option<Duration>,
}

impl LockRequest {
    /// A request for `key`. A space in it is sent as `%20`, as MediaWiki's client does.
    pub(crate) fn new(key: impl AsRef<[u8]>) -> Self {
        LockRequest {
            key: key.as_ref().to_vec(),
            mode: Mode::ForMe,
            workers: 1,
            max_queue: UNLIMITED,
            timeout: None,
        }
    }

    /// How many clients may hold the key at once, for this request to be granted.
    pub(crate) fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// How many clients may hold the key or wait for it, this one included. Beyond that
    /// the answer is `QueueFull`.
    pub(crate) fn max_queue(mut self, max_queue: u32) -> Self {
        self.max_queue = max_queue;
        self
    }

    /// How long to wait, rounded up to whole seconds. Zero means not to wait.
    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Another client's finished work is enough: a holder's release is then answered
    /// with `Done`. (`ACQ4ANY`.)
    pub(crate) fn any(mut self) -> Self {
        self.mode = Mode::ForAnyone;
        self
    }

    /// The key, as it was given.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// How long the server lets this request wait: a time in whole seconds. `None` is
    /// for ever.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.timeout.map(|_| Duration::from_secs(self.timeout_s()))
    }

    fn timeout_s(&self) -> u64 {
        self.timeout.map_or(UNLIMITED.into(), |time| whole_seconds(time).min(UNLIMITED.into()))
    }

    /// The line to send, or why it is refused.
    pub(super) fn line(&self) -> Result<Vec<u8>, Refusal> {
        if self.key.is_empty() {
            return Err(Refusal::EmptyKey);
        }
        if self.key.contains(&b'\n') {
            return Err(Refusal::KeyOfTwoLines);
        }
        let word: &[u8] = match self.mode {
            Mode::ForMe => b"ACQ4ME ",
            Mode::ForAnyone => b"ACQ4ANY ",
        };
        let [workers, max_queue] = [self.workers, self.max_queue].map(|n| n.min(UNLIMITED));
        let limits = format!(" {workers} {max_queue} {}\n", self.timeout_s());
        let line = [word, &key_on_the_wire(&self.key), limits.as_bytes()].concat();
        if line.len() > LINE_BYTES_MAX { Err(Refusal::LongKey) } else { Ok(line) }
    }
}

/// Why a request is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
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

    fn line(request: &LockRequest) -> String {
        String::from_utf8(request.line().expect("a line")).expect("text")
    }

    #[test]
    fn limits_are_written_as_every_server_reads_them() {
        let plain = LockRequest::new("a b");
        assert_eq!(line(&plain), "ACQ4ME a%20b 1 2147483647 2147483647\n");
        let limited = LockRequest::new("k").any().workers(2).max_queue(3);
        let limited = limited.timeout(Duration::from_millis(1500));
        assert_eq!(line(&limited), "ACQ4ANY k 2 3 2\n");
        assert_eq!(limited.wait(), Some(Duration::from_secs(2)));
        let huge = plain.workers(u32::MAX).max_queue(u32::MAX).timeout(Duration::MAX);
        assert_eq!(line(&huge), "ACQ4ME a%20b 2147483647 2147483647 2147483647\n");
        let at_once = LockRequest::new("k").timeout(Duration::ZERO);
        assert_eq!(line(&at_once), "ACQ4ME k 1 2147483647 0\n");
    }

    #[test]
    fn requests_that_fit_no_line_are_refused() {
        let long = "x".repeat(LINE_BYTES_MAX);
        for (key, refusal) in [
            ("", Refusal::EmptyKey),
            ("a\nRELEASE", Refusal::KeyOfTwoLines),
            (&long, Refusal::LongKey),
        ] {
            assert_eq!(LockRequest::new(key).line(), Err(refusal));
        }
    }

    /// No byte of a key injects another command, nor is the key cut.
    #[test]
    fn a_server_reads_what_was_written() {
        for byte in (0..=u8::MAX).filter(|&byte| byte != b'\n') {
            for key in [&[byte][..], &[byte, byte], &[b'a', byte, b'b'], &[byte, b'a', byte]] {
                let line = LockRequest::new(key).workers(2).max_queue(3).line().expect("a line");
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
