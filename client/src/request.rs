//! What a client asks for: a key and its limits.

use crate::protocol::{Acquire, Command, Mode, UNLIMITED};
use std::time::Duration;

/// A request for a lock: its key, and the limits under which it is granted.
///
/// Without limits, one client at a time holds the key, any number may wait for it, and
/// they wait for ever.
///
/// ```
/// use poolcounter::LockRequest;
/// use std::time::Duration;
///
/// let request = LockRequest::new("thumbnails:Cat.jpg")
///     .workers(2)
///     .max_queue(50)
///     .timeout(Duration::from_secs(8));
/// assert_eq!(request.key(), b"thumbnails:Cat.jpg");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    key: Vec<u8>,
    mode: Mode,
    workers: u32,
    max_queue: u32,
    timeout: Option<Duration>,
}

impl LockRequest {
    /// A request for `key`. A space in it is sent as `%20`, as MediaWiki's client does.
    pub fn new(key: impl AsRef<[u8]>) -> Self {
        LockRequest {
            key: key.as_ref().to_vec(),
            mode: Mode::ForMe,
            workers: 1,
            max_queue: UNLIMITED,
            timeout: None,
        }
    }

    /// How many clients may hold the key at once, for this request to be granted.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// How many clients may hold the key or wait for it, this one included. Beyond that
    /// the answer is `QueueFull`.
    pub fn max_queue(mut self, max_queue: u32) -> Self {
        self.max_queue = max_queue;
        self
    }

    /// How long to wait, rounded up to whole seconds. Zero means not to wait.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Another client's finished work is enough: a holder's release is then answered
    /// with `Done`. (`ACQ4ANY`.)
    pub fn any(mut self) -> Self {
        self.mode = Mode::ForAnyone;
        self
    }

    /// The key, as it was given.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// How long the server lets this request wait: a time in whole seconds. `None` is
    /// for ever.
    pub fn wait(&self) -> Option<Duration> {
        self.timeout.map(|_| Duration::from_secs(self.timeout_s()))
    }

    pub(crate) fn has_limit_of_zero(&self) -> bool {
        self.workers == 0 || self.max_queue == 0
    }

    fn timeout_s(&self) -> u64 {
        let whole = |t: Duration| t.as_secs().saturating_add(u64::from(t.subsec_nanos() > 0));
        self.timeout.map_or(UNLIMITED.into(), |t| whole(t).min(UNLIMITED.into()))
    }

    /// Appends the line that asks for this. `None` if no line can: the key is empty or
    /// too long or has a line feed, or a limit is 0.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Option<()> {
        let key = key_on_the_wire(&self.key);
        let request = Acquire {
            mode: self.mode,
            key: &key,
            workers: self.workers.min(UNLIMITED),
            max_queue: self.max_queue.min(UNLIMITED),
            timeout_s: self.timeout_s(),
        };
        if self.has_limit_of_zero() || key.is_empty() {
            return None;
        }
        Command::Acquire(request).write(out).ok()
    }
}

/// With a space as `%20`.
pub(crate) fn key_on_the_wire(key: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(key.len());
    for &byte in key {
        match byte {
            b' ' => text.extend_from_slice(b"%20"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(request: &LockRequest) -> Option<String> {
        let mut out = Vec::new();
        request.write(&mut out)?;
        Some(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn limits_are_written_as_every_server_reads_them() {
        let plain = LockRequest::new("a b");
        assert_eq!(line(&plain).unwrap(), "ACQ4ME a%20b 1 2147483647 2147483647\n");
        let limited = LockRequest::new("k").any().workers(2).max_queue(3);
        let limited = limited.timeout(Duration::from_millis(1500));
        assert_eq!(line(&limited).unwrap(), "ACQ4ANY k 2 3 2\n");
        assert_eq!(limited.wait(), Some(Duration::from_secs(2)));
        let huge = plain.workers(u32::MAX).max_queue(u32::MAX).timeout(Duration::MAX);
        assert_eq!(line(&huge).unwrap(), "ACQ4ME a%20b 2147483647 2147483647 2147483647\n");
        let at_once = LockRequest::new("k").timeout(Duration::ZERO);
        assert_eq!(line(&at_once).unwrap(), "ACQ4ME k 1 2147483647 0\n");
    }

    #[test]
    fn what_no_line_can_say_is_refused() {
        for key in ["", "a\nRELEASE", &"x".repeat(5000)] {
            assert_eq!(line(&LockRequest::new(key)), None, "{key:?}");
        }
        assert_eq!(line(&LockRequest::new("k").workers(0)), None);
        assert_eq!(line(&LockRequest::new("k").max_queue(0)), None);
    }
}
