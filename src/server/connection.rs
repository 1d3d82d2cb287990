//! One client's socket: bytes in, lines out; replies in, bytes out.

use super::snapshot::ConnectionState;
use crate::protocol::lines::Lines;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::borrow::Cow;
use std::os::fd::{AsRawFd, OwnedFd};

/// How much output a client may leave unread beyond what the kernel's buffer
/// takes. Some eighty times `STATS FULL`.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Up to that, output doubles its room as it grows; beyond, it would be a slow
/// reader's price of twice what it may leave unread.
const OUTPUT_STEP_BYTES: usize = 4096;

/// Where a connection stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Served.
    Open,
    /// Its input has ended and it holds nothing more; what it asked for before
    /// is still sent.
    Finishing,
    /// Is closed at the end of the turn.
    Dead,
}

/// A client, TCP or Unix. An idle one owns no memory beyond this struct: half
/// a line and unsent output are given back as soon as they are done with.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) serial: u32,
    pub(super) lines: Lines,
    pub(super) life: Life,
    /// The peer has closed or reset: input is read until its end is seen, for no
    /// second event will come.
    pub(super) peer_closed: bool,
    /// Is in the list of those that may have more to read, or was and has not been
    /// handled yet.
    pub(super) is_unfinished: bool,
    /// Is in the list of those to be flushed.
    pub(super) is_owed: bool,
    /// Writable events were asked for, since output once got stuck.
    pub(super) watches_writable: bool,
    /// A single reply is borrowed: the usual case takes no memory.
    output: Cow<'static, [u8]>,
}

/// What became of the output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// All of it is with the kernel.
    All,
    /// The kernel takes no more for now.
    Stuck,
    /// Nobody will ever take it; it is dropped.
    Failed(Errno),
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, serial: u32) -> Self {
        Connection {
            socket,
            serial,
            lines: Lines::default(),
            life: Life::Open,
            peer_closed: false,
            is_unfinished: false,
            is_owed: false,
            watches_writable: false,
            output: Cow::Borrowed(b""),
        }
    }

    /// What a hot restart carries over. `slot` is where it lies.
    pub(super) fn state(&self, slot: u32) -> ConnectionState {
        ConnectionState {
            slot,
            serial: self.serial,
            fd: self.socket.as_raw_fd(),
            unfinished_line: self.lines.unfinished().to_vec(),
            skipping: self.lines.is_skipping(),
            unsent: self.output.to_vec(),
            finishing: self.life == Life::Finishing,
            unread: self.is_unfinished,
        }
    }

    /// Goes on where the connection of `state` stood.
    pub(super) fn resume(socket: OwnedFd, state: ConnectionState) -> Self {
        Connection {
            lines: Lines::resume(state.unfinished_line, state.skipping),
            life: if state.finishing { Life::Finishing } else { Life::Open },
            output: state.unsent.into(),
            // Perhaps: then what is unread is read to its end.
            peer_closed: state.unread,
            is_unfinished: state.unread,
            ..Connection::new(socket, state.serial)
        }
    }

    /// Reads once. `Ok(0)` is the end of input.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                result => return result.map(|(len, _)| len),
            }
        }
    }

    pub(super) fn owes_nothing(&self) -> bool {
        self.output.is_empty()
    }

    pub(super) fn owes_too_much(&self) -> bool {
        self.output.len() > OUTPUT_BYTES_MAX
    }

    /// Appends to the output, for the next flush.
    pub(super) fn owe(&mut self, bytes: Cow<'static, [u8]>) {
        if self.output.is_empty() {
            self.output = bytes;
            return;
        }
        let output = self.output.to_mut();
        if output.len() >= OUTPUT_STEP_BYTES {
            output.reserve_exact(bytes.len().next_multiple_of(OUTPUT_STEP_BYTES));
        }
        output.extend_from_slice(&bytes);
    }

    /// Sends all that is owed, in one call as far as the kernel takes it.
    pub(super) fn flush(&mut self) -> Flushed {
        self.is_owed = false;
        let mut sent = 0;
        let result = loop {
            if sent == self.output.len() {
                break Flushed::All;
            }
            // SIGPIPE is ignored; NOSIGNAL keeps it so whatever happens to that.
            match send(&self.socket, &self.output[sent..], SendFlags::NOSIGNAL) {
                Ok(len) => sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break Flushed::Stuck,
                Err(error) => break Flushed::Failed(error),
            }
        };
        match result {
            Flushed::Stuck => drop(self.output.to_mut().drain(..sent)),
            Flushed::All | Flushed::Failed(_) => self.output = Cow::Borrowed(b""),
        }
        result
    }
}
