//! What all clients sent in a turn, in one buffer, and where each client's bytes start.
//!
//! The loop first receives from several clients, then handles their input: the kernel's
//! code and the daemon's evict each other from the processor's caches less often, and
//! one reading of the clock serves all (docs/development/benchmarks.md, "What was tried").

use crate::clients::input_queues::{InputQueue, SHARE_BYTES};
use crate::platform::os::io::Errno;
use crate::sockets::stream::Stream;
use engine::ClientId;

/// Room for four shares, or for some 250 requests. More gains nothing and stays in
/// use after a busy moment.
const BUFFER_BYTES: usize = 4 * SHARE_BYTES;

/// The input buffer of all clients. It is handled before the loop waits again.
pub(crate) struct Input {
    buffer: Box<[u8]>,
    used: usize,
    /// With the place in the buffer where each client's bytes end.
    received: Vec<(ClientId, Received<usize>)>,
}

/// One client's input to handle.
#[derive(Clone, Copy)]
pub(crate) enum Received<Bytes> {
    /// Received bytes; none at the end of its input.
    Bytes(Bytes),
    /// Input left from an earlier turn: its connection keeps it. With the queue that the
    /// client was in.
    Unhandled(InputQueue),
    /// recv(2) failed.
    Failed(Errno),
}

impl Input {
    pub(crate) fn new() -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Input { buffer, used: 0, received: Vec::new() }
    }

    /// Whether there is no room for another share.
    pub(crate) fn is_full(&self) -> bool {
        self.buffer.len() - self.used < SHARE_BYTES
    }

    /// Receives one share from `client`. The buffer must not be full.
    pub(crate) fn receive(&mut self, client: ClientId, stream: &Stream) {
        let share = &mut self.buffer[self.used..][..SHARE_BYTES];
        let end = match stream.socket().receive(share) {
            Ok(len) => {
                self.used += len;
                Received::Bytes(self.used)
            }
            Err(e) => Received::Failed(e),
        };
        self.received.push((client, end));
    }

    /// Notes that the input of `client` has ended.
    pub(crate) fn record_end(&mut self, client: ClientId) {
        self.received.push((client, Received::Bytes(self.used)));
    }

    /// Notes that `client` has input left from an earlier turn, which comes first.
    pub(crate) fn record_unhandled(&mut self, client: ClientId, queue: InputQueue) {
        self.received.push((client, Received::Unhandled(queue)));
    }

    /// The input to handle, in the order received.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, Received<&[u8]>)> {
        let mut start = 0;
        self.received.iter().map(move |&(client, end)| match end {
            Received::Bytes(end) => {
                let start = std::mem::replace(&mut start, end);
                (client, Received::Bytes(&self.buffer[start..end]))
            }
            Received::Unhandled(queue) => (client, Received::Unhandled(queue)),
            Received::Failed(e) => (client, Received::Failed(e)),
        })
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.received.clear();
    }

    pub(crate) fn shrink(&mut self) {
        self.received.shrink_to_fit();
    }
}
