//! One client's connection: its stream, its unfinished line, its states, which the tables in
//! `connections.rs` explain, its address; what a hot restart carries of it.

use crate::clients::known_ends::KnownEnd;
use crate::platform::os::fd::{AsRawFd, RawFd};
use crate::platform::os::io::Errno;
use crate::platform::sys::lost_peer_ip;
use crate::sockets::socket::{Socket, peer_address, peer_name};
use crate::sockets::stream::Stream;
use engine::ClientId;
use protocol::lines::Lines;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

/// A connection's stage of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionStage {
    /// It is served.
    Open,
    /// Its input has ended and it holds no locks; answers to earlier requests are
    /// still sent. A held line, its last one, is still answered.
    Finishing,
    /// It will be closed at the end of the turn.
    Closing,
}

/// What is to be done about a connection's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputState {
    /// Nothing: all is sent, or an event will tell when there is room for the rest.
    Idle,
    /// It is in the list of clients to flush.
    Owed,
    /// An answer could not be sent, so no more are. What the client sent before is still
    /// handled.
    Failed,
}

/// A client. An idle one owns no memory beyond this struct: buffers for
/// pending input and output are freed once they are empty.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) lines: Lines,
    pub(crate) stage: ConnectionStage,
    pub(super) end: KnownEnd,
    /// Is in a queue of clients that may have more to read or handle, or was taken from it
    /// in this turn.
    pub(super) is_unread: bool,
    pub(super) output: OutputState,
    /// Is watched for writable events, because output has blocked before.
    pub(super) watches_writable: bool,
    /// Its address, once it was needed: those who look at connections may ask for it.
    origin: Cell<Origin>,
}

// With its serial number. (Tests have other streams.)
#[cfg(not(test))]
const _: () = assert!(size_of::<(u32, Connection)>() <= 72);

/// What can be seen of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOfInput {
    NotSeen,
    /// The client has closed its side, and may still read answers.
    Ended,
    /// No answer reaches the client any more.
    HungUp,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    NotAsked,
    /// The client has left already.
    Unknown,
    /// Smaller than a `SocketAddr`.
    Known(IpAddr, u16),
}

/// What a hot restart carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionState {
    /// Its slot, which its engine client shares.
    pub slot: u32,
    /// The serial number of its engine client.
    pub serial: u32,
    /// Its descriptor.
    pub fd: RawFd,
    /// The received part of an incomplete line.
    #[serde(with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub unfinished_line: Vec<u8>,
    /// It is in the middle of a line that is too long.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skipping: bool,
    /// Input received but not handled yet; it comes before new input.
    #[serde(with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub unhandled: Vec<u8>,
    /// Output that the kernel has not taken yet.
    #[serde(with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub unsent: Vec<u8>,
    /// Its input has ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub finishing: bool,
    /// It may have more to read; no event will report it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
}

impl ConnectionState {
    /// Its engine client.
    pub fn client(&self) -> ClientId {
        ClientId { slot: self.slot, serial: self.serial }
    }
}

impl Connection {
    pub(crate) fn new(socket: Socket) -> Self {
        Connection {
            stream: Stream::new(socket),
            lines: Lines::default(),
            stage: ConnectionStage::Open,
            end: KnownEnd::default(),
            is_unread: false,
            output: OutputState::Idle,
            watches_writable: false,
            origin: Cell::new(Origin::NotAsked),
        }
    }

    /// Whether no answer can reach it any more.
    pub(crate) fn has_failed_output(&self) -> bool {
        self.output == OutputState::Failed
    }

    /// What can be seen of its end while a line is held: nothing is received meanwhile.
    pub(crate) fn end_behind_held_line(&self) -> EndOfInput {
        if !self.end.is_known() {
            return EndOfInput::NotSeen;
        }
        if self.stream.is_hung_up() {
            return EndOfInput::HungUp;
        }
        match self.stream.socket().peek(&mut [0]) {
            Ok(0) if self.is_held_line_last() => EndOfInput::Ended,
            Ok(_) | Err(Errno::AGAIN) => EndOfInput::NotSeen,
            Err(_) => EndOfInput::HungUp,
        }
    }

    /// Whether no whole line is known that follows the held one.
    pub(crate) fn is_held_line_last(&self) -> bool {
        let held = self.lines.unhandled();
        self.lines.is_line_held() && held.iter().filter(|&&b| b == b'\n').count() == 1
    }

    /// Whether answers to its lines are still to be made or sent.
    pub(crate) fn owes_answers(&self) -> bool {
        self.lines.is_line_held() || !self.stream.unsent().is_empty()
    }

    /// Asks for its address, unless that is known: it costs a system call, and the
    /// kernel forgets it when the connection breaks.
    pub(crate) fn record_origin(&self) {
        if let Origin::NotAsked = self.origin.get() {
            let address = peer_address(self.stream.socket());
            let known = |it: SocketAddr| Origin::Known(it.ip(), it.port());
            self.origin.set(address.map_or(Origin::Unknown, known));
        }
    }

    /// The address of its host, if that was asked for and is known.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self.origin.get() {
            Origin::Known(ip, _) => Some(ip),
            Origin::NotAsked | Origin::Unknown => None,
        }
    }

    /// The address of its host, also once the connection is broken.
    pub(crate) fn lost_ip(&self) -> Option<IpAddr> {
        self.ip().or_else(|| lost_peer_ip(self.stream.socket()).ok())
    }

    /// Replaces `address` by that of its host, without the port.
    pub(crate) fn write_address(&self, address: &mut String) {
        self.record_origin();
        address.clear();
        match self.origin.get() {
            // Writing to a String never fails.
            Origin::Known(ip, _) => drop(write!(address, "{ip}")),
            Origin::NotAsked | Origin::Unknown => address.push_str("unknown"),
        }
    }

    /// Its address, as logs show it.
    pub(crate) fn peer(&self) -> String {
        match self.origin.get() {
            Origin::Known(ip, port) => SocketAddr::new(ip, port).to_string(),
            _ => peer_name(self.stream.socket()),
        }
    }

    /// What a hot restart carries over of this connection, which has the id `client`.
    pub(crate) fn state(&self, client: ClientId) -> ConnectionState {
        ConnectionState {
            slot: client.slot,
            serial: client.serial,
            fd: self.stream.socket().as_raw_fd(),
            unfinished_line: self.lines.unfinished().to_vec(),
            skipping: self.lines.is_skipping(),
            unhandled: self.lines.unhandled().to_vec(),
            unsent: self.stream.unsent().to_vec(),
            finishing: self.stage == ConnectionStage::Finishing,
            // A held line is handled again.
            unread: self.is_unread || self.lines.is_line_held(),
        }
    }

    /// Continues the connection of `state`.
    pub(crate) fn resume(socket: Socket, state: ConnectionState) -> Self {
        let mut lines = Lines::resume(state.unfinished_line, state.skipping);
        lines.put_back(&state.unhandled);
        Connection {
            stream: Stream::resume(socket, state.unsent),
            lines,
            stage: if state.finishing { ConnectionStage::Finishing } else { ConnectionStage::Open },
            end: KnownEnd::default(),
            is_unread: state.unread,
            // The old image's epoll instance reports when blocked output has room.
            output: OutputState::Idle,
            // The next block registers it again, which epoll permits.
            watches_writable: false,
            origin: Cell::new(Origin::NotAsked),
        }
    }
}
