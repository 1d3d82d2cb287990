//! The control socket: operators' connections, their input, answers in order; which connection
//! it closes if there are too many; its log; what a hot restart carries over.
//!
//! A Unix socket that only root and the daemon's own user may open. Each line is one
//! request ([`Request`]) and gets a line in answer, `OK …` or `ERROR …`; `HELP` gets
//! several lines and a blank one. The next line is read when the answer to the one before is
//! sent.

mod requests;

use crate::logging::rate_limit::limited;
use crate::platform::clock;
use crate::platform::failed_call::{errno, is_plain};
use crate::platform::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use crate::platform::os::io::Errno;
use crate::platform::os::mio::{Interest, Registry};
use crate::platform::sys::{self, Peer};
use crate::sockets::ids::{CONTROL_CONNECTIONS_MAX, ControlClient};
use crate::sockets::slots::Slots;
use crate::sockets::socket::{Socket, tell};
use crate::sockets::stream::{Flushed, Stream};
use engine::Time;
use log::{debug, info, warn};
use protocol::answers::{NOT_HEARD, TOO_MANY};
pub(crate) use requests::help;
use requests::printable;
pub(crate) use requests::{Free, FreeTarget};
pub use requests::{RefusedOrder, Request, parse};
use serde::{Deserialize, Serialize};
use std::io;

/// As long as a command line may usually be (execve(2)).
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A connection's first requests, this many, are all logged; then one every ten seconds, and
/// each order about rules.
const REQUESTS_LOGGED: u32 = 100;

/// How long an operator may take nothing of an answer, as long as `poolcounter` waits for one.
const UNREAD_S: u64 = 10;

/// All control connections.
pub(crate) struct ControlSocket {
    connections: Slots<ControlClient, ControlConnection>,
    /// Counts what operators do.
    uses: u64,
}

/// One operator's connection.
struct ControlConnection {
    stream: Stream,
    /// The beginning of a request, whose line feed is still to come.
    input: Vec<u8>,
    /// How many requests it has made.
    requests: u32,
    /// The request that is not answered yet.
    unanswered: Option<Vec<u8>>,
    /// When it is closed unless it takes more of an answer, of which a part is unsent.
    unread_until: Option<Time>,
    /// Its input has ended.
    has_ended: bool,
    /// The number of its last use.
    last_use: u64,
}

/// What a hot restart carries over of an operator's connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlConnectionState {
    /// Its slot.
    pub slot: u32,
    /// Its serial number.
    pub serial: u32,
    /// Its descriptor.
    pub fd: RawFd,
    /// The beginning of its next request.
    #[serde(with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub input: Vec<u8>,
    /// The request that is not answered yet.
    #[serde(with = "serde_bytes", skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Vec<u8>>,
    /// The part of an answer that the kernel has not taken yet.
    #[serde(with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub unsent: Vec<u8>,
    /// How many requests it has made.
    pub requests: u32,
}

impl ControlSocket {
    pub(crate) fn new() -> Self {
        ControlSocket {
            connections: Slots::new(Interest::READABLE.add(Interest::WRITABLE)),
            uses: 0,
        }
    }

    /// Serves a new connection. If there are too many, closes another one: forgotten ones
    /// must not lock operators out.
    pub(crate) fn add(&mut self, socket: Socket, registry: &Registry) {
        if self.connections.len() >= CONTROL_CONNECTIONS_MAX {
            self.make_room();
        }
        self.uses += 1;
        let uses = self.uses;
        let open = |socket| ControlConnection::new(Stream::new(socket), uses);
        if let Err(e) = self.connections.insert(socket, registry, open) {
            warn!("closing a control connection that could not be registered with epoll: {e}");
        }
    }

    /// Closes the connection that was silent for longest, preferably one without a request
    /// to read or to answer, or one that leaves an answer unread.
    fn make_room(&mut self) {
        let looks = self.connections.iter().map(|(client, it)| {
            let input = if it.has_unsent() { Ok(false) } else { it.has_input() };
            let waits = !it.has_unsent() && (input == Ok(true) || it.unanswered.is_some());
            (client, (waits, it.last_use), input.is_err())
        });
        let looks: Vec<_> = looks.collect();
        let longest = looks.iter().min_by_key(|(_, rank, _)| *rank).map(|(client, ..)| *client);
        let Some(connection) = longest.and_then(|client| self.connections.remove(client)) else {
            return;
        };
        limited!(
            warn,
            "more than {CONTROL_CONNECTIONS_MAX} connections to the control socket: \
             closed the one that was silent for longest"
        );
        // Not in the middle of an answer.
        if !connection.has_unsent() {
            tell(connection.stream.socket(), TOO_MANY);
        }
        for (client, _, is_lost) in looks {
            if is_lost {
                self.connections.remove(client);
            }
        }
    }

    /// Whether `client` is there and waits for an answer.
    pub(crate) fn awaits_answer(&self, client: ControlClient) -> bool {
        self.connections.get(client).is_some_and(|connection| connection.unanswered.is_some())
    }

    /// Reads the next request from the connection in `slot`, unless the answer to the one before
    /// is still to be made or sent: one in a turn, so that a crowd of requests delays no client.
    /// Returns it, or why the line is invalid, with the client to answer. A connection whose input
    /// has ended is closed once it has all its answers; one whose peer has gone, at once.
    pub(crate) fn read(
        &mut self,
        slot: usize,
    ) -> Option<(ControlClient, Result<Request, RefusedOrder>)> {
        let (client, connection) = self.connections.at(slot)?;
        if connection.has_unsent() {
            self.flush(client);
        }
        let connection = self.connections.get_mut(client)?;
        let is_free = connection.unanswered.is_none() && !connection.has_unsent();
        let line = if is_free { connection.read_line() } else { None };
        if connection.stream.is_hung_up() {
            connection.log_late(line);
            self.connections.remove(client);
            return None;
        }
        if !is_free {
            return None;
        }
        self.uses += 1;
        connection.last_use = self.uses;
        let request = line.map(|line| {
            connection.unanswered = Some(line.as_ref().map(Vec::clone).unwrap_or_default());
            let line = line?;
            connection.log(&line);
            parse(&line)
        });
        if request.is_none() {
            self.close_if_done(client);
        }
        Some((client, request?))
    }

    /// The client in `slot`, if it has shut its writing side and waits for an answer.
    pub(crate) fn ended(&self, slot: usize) -> Option<ControlClient> {
        let (client, connection) = self.connections.at(slot)?;
        (connection.unanswered.is_some() && connection.stream.is_shut_there()).then_some(client)
    }

    /// Sends an answer of whole lines to `client`, if it is still connected. What the kernel does
    /// not take is kept, at most one answer.
    pub(crate) fn answer(&mut self, client: ControlClient, answer: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(client) {
            connection.unanswered = None;
            connection.stream.push(answer.into());
            self.flush(client);
        }
    }

    fn flush(&mut self, client: ControlClient) {
        let Some(connection) = self.connections.get_mut(client) else {
            return;
        };
        self.uses += 1;
        if !connection.flush(clock::now(), self.uses) {
            self.connections.remove(client);
        }
        self.close_if_done(client);
    }

    /// When the next operator has left an answer unread for too long.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        if self.connections.len() == 0 {
            return None;
        }
        self.connections.iter().filter_map(|(_, it)| it.unread_until).min()
    }

    /// Closes the connections of operators that leave an answer unread for too long.
    pub(crate) fn close_unread(&mut self, now: Time) {
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let is_due = |it: &ControlConnection| it.unread_until.is_some_and(|at| at <= now);
            let due = self.connections.iter().find(|(_, it)| is_due(it)).map(|(client, _)| client);
            due.into_iter().for_each(|client| self.flush(client));
        }
    }

    /// Whether a part of an answer is still to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.connections.iter().any(|(_, connection)| connection.has_unsent())
    }

    /// Closes it with the daemon. Operators whose orders were not read are told so.
    pub(crate) fn close(self) {
        for (_, connection) in self.connections.iter() {
            if !connection.has_unsent() && connection.has_input() == Ok(true) {
                tell(connection.stream.socket(), NOT_HEARD);
            }
        }
    }

    fn close_if_done(&mut self, client: ControlClient) {
        if self.connections.get_mut(client).is_some_and(|it| it.is_done()) {
            self.connections.remove(client);
        }
    }
}

/// Over a hot restart.
impl ControlSocket {
    /// What the new image continues with: all connections.
    pub(crate) fn states(&self) -> Vec<ControlConnectionState> {
        let state =
            |(client, connection): (ControlClient, &ControlConnection)| ControlConnectionState {
                slot: client.slot,
                serial: client.serial,
                fd: connection.stream.socket().as_raw_fd(),
                input: connection.input.clone(),
                unanswered: connection.unanswered.clone(),
                unsent: connection.stream.unsent().to_vec(),
                requests: connection.requests,
            };
        self.connections.iter().map(state).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// The descriptors of all connections.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.connections.iter().map(|(_, connection)| connection.stream.socket().as_fd())
    }

    /// Continues with the old image's connections. The loop watches them already, but events
    /// may have come before: each must be read.
    pub(crate) fn resume(states: Vec<ControlConnectionState>) -> Self {
        let mut control = ControlSocket::new();
        let mut connections = Vec::new();
        let last_serial = states.iter().map(|state| state.serial).max().unwrap_or_default();
        for state in states {
            let client = ControlClient { slot: state.slot, serial: state.serial };
            match sys::inherited_descriptor(state.fd) {
                Ok(socket) => {
                    let socket = Socket::new(socket, /* is_unix */ true);
                    let is_unread = !state.unsent.is_empty();
                    let stream = Stream::resume(socket, state.unsent);
                    let connection = ControlConnection {
                        input: state.input,
                        unanswered: state.unanswered,
                        unread_until: is_unread.then(|| clock::now().plus_seconds(UNREAD_S)),
                        requests: state.requests,
                        ..ControlConnection::new(stream, 0)
                    };
                    connections.push((client, connection));
                }
                Err(e) => warn!("a control connection was lost in the hot restart: {e}"),
            }
        }
        control.connections.resume(connections, last_serial);
        control
    }

    /// The connections, each with its request that is not answered yet.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (ControlClient, Option<&[u8]>)> {
        self.connections.iter().map(|(client, it)| (client, it.unanswered.as_deref()))
    }
}

impl ControlConnection {
    fn new(stream: Stream, last_use: u64) -> Self {
        ControlConnection {
            stream,
            input: Vec::new(),
            requests: 0,
            unanswered: None,
            unread_until: None,
            has_ended: false,
            last_use,
        }
    }

    /// Sends what is unsent, at `now`, in use number `uses`. Returns whether the operator may take
    /// more: not if it has gone, or has taken none for too long. What it has sent before is not
    /// executed then.
    fn flush(&mut self, now: Time, uses: u64) -> bool {
        let before = self.stream.unsent().len();
        let flushed = self.stream.flush();
        if self.stream.unsent().len() < before {
            (self.unread_until, self.last_use) = (None, uses);
        }
        match flushed {
            Flushed::All => true,
            Flushed::Failed(_) => false,
            Flushed::Blocked => {
                let until = *self.unread_until.get_or_insert(now.plus_seconds(UNREAD_S));
                if until <= now {
                    limited!(warn, "an operator does not read the answers: closed its connection");
                }
                until > now
            }
        }
    }

    fn has_unsent(&self) -> bool {
        !self.stream.unsent().is_empty()
    }

    /// Logs a request whose sender has gone: it is not executed.
    fn log_late(&self, line: Option<Result<Vec<u8>, RefusedOrder>>) {
        if let Some(Ok(line)) = line {
            let (who, line) = (credentials_of(self.stream.socket()), printable(&line));
            limited!(info, "control socket: {who} has left; not executed: {line}");
        }
    }

    /// The next line without its line feed, if it has come; or why it is refused.
    fn read_line(&mut self) -> Option<Result<Vec<u8>, RefusedOrder>> {
        let mut buffer = [0; 4096];
        while !self.has_ended {
            match self.stream.receive_line(&mut buffer) {
                Ok(len) if len > 0 => self.input.extend_from_slice(&buffer[..len]),
                Ok(_) => self.has_ended = true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    self.has_ended = true;
                    if !errno(&e).is_some_and(is_plain) {
                        limited!(warn, "an order can't be received: {e}");
                    }
                }
            }
            if self.input.len() > REQUEST_BYTES_MAX {
                self.has_ended = true;
                self.input = Vec::new();
                return Some(Err(RefusedOrder::TooLong(REQUEST_BYTES_MAX)));
            }
            if self.input.ends_with(b"\n") {
                let mut line = std::mem::take(&mut self.input);
                line.pop();
                return Some(Ok(line));
            }
        }
        None
    }

    /// Logs a request; of many, only some. Requests for statistics change nothing, and monitors
    /// send several a second: only for debugging.
    fn log(&mut self, line: &[u8]) {
        let who = credentials_of(self.stream.socket());
        let line = printable(line);
        if line.starts_with("STATS ") {
            debug!("control socket: {who} asks: {line}");
            return;
        }
        self.requests = self.requests.saturating_add(1);
        if self.requests <= REQUESTS_LOGGED || line.starts_with("RULE ") {
            info!("control socket: {who} asks: {line}");
        } else {
            limited!(info, "control socket: {who} asks: {line}");
        }
    }

    /// Whether there is something to read.
    ///
    /// # Errors
    /// The connection is lost. The look has consumed its error, and no event follows.
    fn has_input(&self) -> Result<bool, Errno> {
        match self.stream.socket().peek(&mut [0]) {
            Err(Errno::AGAIN) => Ok(false),
            looked => looked.map(|len| len > 0),
        }
    }

    fn is_done(&self) -> bool {
        self.has_ended && self.unanswered.is_none() && !self.has_unsent()
    }
}

/// The peer's process, as the kernel reports it.
fn credentials_of(socket: &OwnedFd) -> String {
    match sys::peer_credentials(socket) {
        Ok(Peer { uid, pid: Some(pid) }) => format!("uid {uid}, pid {pid}"),
        Ok(Peer { uid, pid: None }) => format!("uid {uid}, outside of this container"),
        Err(e) => format!("an unknown process ({e})"),
    }
}
