//! What clients have sent, between receiving and handling.
//!
//! All who are ready are received from first, and what they sent is handled
//! then: that way the kernel's code and ours push each other out of the
//! processor's caches less often, and the clock is read once for all
//! (docs/benchmarks.md, "What was tried").

use super::connection::Connection;
use crate::engine::ClientId;
use rustix::io::Errno;

/// What one client may have received and handled in a turn: its fair share. A
/// request is 30 to 300 bytes.
pub(super) const SHARE_BYTES: usize = 4096;

/// Room for four whole shares, or for some 250 requests. More gains nothing, and
/// is memory that a daemon keeps once it was busy.
const BUFFER_BYTES: usize = 4 * SHARE_BYTES;

/// Shared by all connections: handled before the loop waits again.
#[derive(Default)]
pub(super) struct Input {
    buffer: Box<[u8]>,
    used: usize,
    /// Whom it is from, and where it ends in the buffer, or why there is none.
    received: Vec<(ClientId, Result<usize, Errno>)>,
}

impl Input {
    pub(super) fn new() -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Input { buffer, used: 0, received: Vec::new() }
    }

    /// There may be no room for another share.
    pub(super) fn is_full(&self) -> bool {
        self.buffer.len() - self.used < SHARE_BYTES
    }

    /// Receives one share from `client`. Must not be full.
    pub(super) fn receive(&mut self, client: ClientId, connection: &Connection) {
        let share = &mut self.buffer[self.used..][..SHARE_BYTES];
        let result = connection.read(share);
        self.used += result.unwrap_or(0);
        self.received.push((client, result.map(|_| self.used)));
    }

    /// What was received from whom, in that order. No bytes: the end of input.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClientId, Result<&[u8], Errno>)> {
        let mut start = 0;
        self.received.iter().map(move |&(client, end)| {
            let bytes = end.map(|end| &self.buffer[std::mem::replace(&mut start, end)..end]);
            (client, bytes)
        })
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.received.clear();
    }

    pub(super) fn shrink(&mut self) {
        self.received.shrink_to_fit();
    }
}
