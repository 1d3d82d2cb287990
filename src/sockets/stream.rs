//! A socket and its unsent output, of clients and operators.

use crate::platform::failed_call::named;
use crate::platform::os::event::PollFlags;
use crate::platform::os::io::Errno;
use crate::platform::os::net::{SendFlags, send};
use crate::sockets::socket::Socket;
use std::borrow::Cow;
use std::io;

/// How much output a peer may leave unread beyond the kernel's buffer: some eighty
/// times `STATS FULL`.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Up to this size, the output buffer doubles as it grows. Beyond it, doubling would
/// let a slow reader cost twice what it may leave unread.
const OUTPUT_STEP_BYTES: usize = 4096;

/// What a peer that reads slowly gets room for.
const ROOM_BYTES: usize = OUTPUT_BYTES_MAX + OUTPUT_STEP_BYTES;

/// A connection's socket and its unsent output.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Socket,
    output: Output,
}

/// Unsent output. With it, a connection takes a cache line, which a `Cow` would exceed.
#[derive(Debug)]
enum Output {
    /// None or a single reply, which allocates nothing.
    Static(&'static [u8]),
    #[expect(clippy::box_collection, reason = "three words would be too many")]
    Buffer(Box<Vec<u8>>),
}

impl Output {
    const NONE: Output = Output::Static(b"");

    fn bytes(&self) -> &[u8] {
        match self {
            Output::Static(bytes) => bytes,
            Output::Buffer(bytes) => bytes,
        }
    }

    /// Keeps what the kernel has not taken. A peer that reads slowly gets room for all
    /// that it may leave unread: if outputs grew step by step, side by side, they would
    /// leave holes between them that no one can use. (Pages that are not written to
    /// take no memory.) A larger buffer, of a report, is given back.
    fn keep_from(&mut self, sent: usize) {
        match self {
            Output::Buffer(output) if output.capacity() == ROOM_BYTES => drop(output.drain(..sent)),
            output => {
                let mut kept = Vec::with_capacity(ROOM_BYTES);
                kept.extend_from_slice(&output.bytes()[sent..]);
                *output = kept.into();
            }
        }
    }

    /// How much memory it takes.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        match self {
            Output::Static(_) => 0,
            Output::Buffer(output) => size_of::<Vec<u8>>() + output.capacity(),
        }
    }

    /// All of it in a buffer of its own.
    fn buffer(&mut self) -> &mut Vec<u8> {
        if let Output::Static(bytes) = *self {
            *self = Output::from(bytes.to_vec());
        }
        match self {
            Output::Buffer(bytes) => bytes,
            Output::Static(_) => unreachable!("it was static and is not any more"),
        }
    }
}

impl From<Vec<u8>> for Output {
    fn from(bytes: Vec<u8>) -> Self {
        Output::Buffer(Box::new(bytes))
    }
}

/// The result of a flush.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// The kernel has accepted all output.
    All,
    /// The kernel accepts no more for now.
    Blocked,
    /// The output can't be delivered and is dropped.
    Failed(Errno),
}

impl Stream {
    pub(crate) fn new(socket: Socket) -> Self {
        Stream { socket, output: Output::NONE }
    }

    /// Continues a stream of the old image, with its unsent output.
    pub(crate) fn resume(socket: Socket, unsent: Vec<u8>) -> Self {
        let output = if unsent.is_empty() { Output::NONE } else { unsent.into() };
        Stream { socket, output }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The output that the kernel has not accepted yet.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.output.bytes()
    }

    /// How much memory the output takes.
    #[cfg(test)]
    pub(crate) fn output_bytes(&self) -> usize {
        self.output.memory_bytes()
    }

    /// Whether the pending output exceeds what a peer may leave unread.
    pub(crate) fn exceeds_bound(&self) -> bool {
        self.unsent().len() > OUTPUT_BYTES_MAX
    }

    /// Receives once, as [`Socket::receive`] does, but nothing behind a line feed. For operators.
    pub(crate) fn receive_line(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.socket.peek(buffer).map_err(named("recvfrom"))?;
        match buffer[..len].iter().position(|&b| b == b'\n').map_or(len, |end| end + 1) {
            0 => Ok(0),
            end => self.socket.receive(&mut buffer[..end]).map_err(named("recvmsg")),
        }
    }

    /// Whether the connection is lost, or both sides are shut: nothing more reaches the peer.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.socket.has_state(PollFlags::HUP | PollFlags::ERR)
    }

    /// Whether the peer has shut its writing side.
    pub(crate) fn is_shut_there(&self) -> bool {
        self.socket.has_state(PollFlags::RDHUP)
    }

    /// Appends to the output, for the next flush.
    pub(crate) fn push(&mut self, bytes: Cow<'static, [u8]>) {
        if self.unsent().is_empty() {
            self.output = match bytes {
                Cow::Borrowed(reply) => Output::Static(reply),
                Cow::Owned(bytes) => bytes.into(),
            };
            return;
        }
        let output = self.output.buffer();
        if output.len() >= OUTPUT_STEP_BYTES {
            output.reserve_exact(bytes.len().next_multiple_of(OUTPUT_STEP_BYTES));
        }
        output.extend_from_slice(&bytes);
    }

    /// Drops the output, which can't be delivered.
    pub(crate) fn discard_output(&mut self) {
        self.output = Output::NONE;
    }

    /// Sends the output until the kernel accepts no more; usually in one call.
    pub(crate) fn flush(&mut self) -> Flushed {
        let mut sent = 0;
        let result = loop {
            if sent == self.unsent().len() {
                break Flushed::All;
            }
            // SIGPIPE is ignored anyway; NOSIGNAL does not depend on it.
            match send(self.socket(), &self.unsent()[sent..], SendFlags::NOSIGNAL) {
                Ok(len) => sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break Flushed::Blocked,
                Err(error) => break Flushed::Failed(error),
            }
        };
        match result {
            Flushed::Blocked => self.output.keep_from(sent),
            Flushed::All | Flushed::Failed(_) => self.output = Output::NONE,
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/reference/sizing.md: a client may leave 64 KiB unread, and has room for the next
    /// answer. The buffer of a report may have been larger.
    #[test]
    fn a_slow_reader_takes_no_more_memory_than_is_promised() {
        for capacity in [100, ROOM_BYTES - 1, ROOM_BYTES, ROOM_BYTES + 1, 4 << 20] {
            let mut report = Vec::with_capacity(capacity);
            report.extend((0..100_u8).cycle().take(capacity.min(OUTPUT_BYTES_MAX + 100)));
            for sent in [0, 1, 99, report.len() - 1] {
                let mut output = Output::from(report.clone());
                if let Output::Buffer(bytes) = &mut output {
                    bytes.reserve_exact(capacity - bytes.len());
                }
                output.keep_from(sent);
                assert_eq!(output.bytes(), &report[sent..], "{capacity} bytes, {sent} sent");
                let promised = ROOM_BYTES.max(report.len() - sent);
                assert!(output.memory_bytes() <= promised + size_of::<Vec<u8>>(), "{capacity}");
            }
        }
    }
}
