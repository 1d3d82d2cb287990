//! The control socket: operators' connections, their input, answers in order; which connection
//! it closes if there are too many; its log.
//!
//! A Unix socket that only root and the daemon's own user may open. Each line is one
//! request ([`Request`]) and gets a line in answer, `OK …` or `ERROR …`; `HELP` gets
//! several lines and a blank one.

mod requests;

use crate::engine::ClientId;
use crate::server::clients::stream::{Flushed, Stream};
use crate::server::kernel::slots::Slots;
use crate::server::kernel::slots::Source;
use crate::server::kernel::socket::Socket;
use crate::server::kernel::sys::{self, Peer};
use crate::server::kernel::world::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::server::kernel::world::io::Errno;
use crate::server::kernel::world::mio::{Interest, Registry};
use crate::server::kernel::world::net::{SendFlags, send};
use crate::server::telling::logging::limited;
use log::{debug, info, warn};
pub(crate) use requests::help;
use requests::printable;
pub(crate) use requests::{Free, FreeTarget};
pub use requests::{Request, parse};

/// Operators are few: beyond this, the connection silent for longest counts as forgotten.
pub(crate) const CONNECTIONS_MAX: usize = 16;

/// As long as a command line may usually be (execve(2)).
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A connection's first requests, this many, are all logged; then one every ten seconds, and
/// each order about rules.
const REQUESTS_LOGGED: u32 = 100;

/// The last answer on a connection that is closed to make room for another one.
const TOO_MANY: &[u8] = b"ERROR too many control connections\n";

/// A control connection's id.
pub(crate) type ControlClient = ClientId;

/// All control connections.
pub(crate) struct ControlSocket {
    connections: Slots<ControlConnection>,
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
    /// Requests that are not answered yet: one, and a hot restart.
    unanswered: usize,
    /// One of them is a report: the next request waits for it.
    awaits_report: bool,
    /// Its input has ended.
    has_ended: bool,
    /// It takes no answers any more. What it has sent before is obeyed.
    is_gone: bool,
    /// The number of its last use.
    last_use: u64,
}

impl ControlSocket {
    pub(crate) fn new() -> Self {
        ControlSocket { connections: Slots::new(Source::Operator, Interest::READABLE), uses: 0 }
    }

    /// Serves a new connection. If there are too many, closes another one: forgotten ones
    /// must not lock operators out.
    pub(crate) fn add(&mut self, socket: Socket, registry: &Registry) {
        if self.connections.len() >= CONNECTIONS_MAX {
            self.make_room();
        }
        self.uses += 1;
        let open = |socket| ControlConnection {
            stream: Stream::new(socket),
            input: Vec::new(),
            requests: 0,
            unanswered: 0,
            awaits_report: false,
            has_ended: false,
            is_gone: false,
            last_use: self.uses,
        };
        if let Err(e) = self.connections.insert(socket, registry, open) {
            warn!("closing a control connection that could not be registered with epoll: {e}");
        }
    }

    /// Closes the connection that was silent for longest, preferably one without a request
    /// to read or to answer.
    fn make_room(&mut self) {
        let ranks = self.connections.iter_mut().map(|(client, it)| {
            let waits = it.has_input() || it.unanswered > 0;
            ((waits, it.last_use), client)
        });
        let longest = ranks.min_by_key(|(rank, _)| *rank).map(|(_, client)| client);
        let Some(connection) = longest.and_then(|client| self.connections.remove(client)) else {
            return;
        };
        limited!(
            warn,
            "more than {CONNECTIONS_MAX} connections to the control socket: \
             closed the one that was silent for longest"
        );
        // Fails if the operator has gone.
        let _ = send(connection.stream.socket(), TOO_MANY, SendFlags::NOSIGNAL);
        // The look at a lost connection has consumed its error, and no event follows.
        self.connections.retain(|it| !(it.is_gone && it.has_ended));
    }

    /// The descriptor of `client`, while it is connected.
    pub(crate) fn descriptor(&self, client: ControlClient) -> Option<BorrowedFd<'_>> {
        self.connections.get(client).map(|connection| connection.stream.socket().as_fd())
    }

    /// Notes that the peer has closed the connection in `slot`.
    pub(crate) fn record_gone(&mut self, slot: usize) {
        if let Some((_, connection)) = self.connections.at(slot) {
            connection.is_gone = true;
            connection.awaits_report = false;
        }
    }

    /// Whether `client` waits for a report.
    pub(crate) fn awaits_report(&self, client: ControlClient) -> bool {
        self.connections.get(client).is_some_and(|connection| connection.awaits_report)
    }

    /// Notes that `client` is answered by a report, and reads no more from it until then.
    /// Returns false if it has gone.
    pub(crate) fn await_report(&mut self, client: ControlClient) -> bool {
        let connection = self.connections.get_mut(client).filter(|connection| !connection.is_gone);
        connection.map(|connection| connection.awaits_report = true).is_some()
    }

    /// Reads the next request from the connection in `slot`: one in a turn, so that a crowd
    /// of requests delays no client. Returns it, or why the line is invalid, with the client to
    /// answer. A connection whose input has ended is closed once it has all its answers.
    pub(crate) fn read(&mut self, slot: usize) -> Option<(ControlClient, Result<Request, String>)> {
        let (client, connection) = self.connections.at(slot)?;
        if connection.awaits_report {
            return None;
        }
        self.uses += 1;
        connection.last_use = self.uses;
        let line = connection.read_line();
        let request = line.map(|line| {
            connection.unanswered += 1;
            let line = line?;
            connection.log(&line);
            parse(&line)
        });
        if request.is_none() {
            self.close_if_done(client);
        }
        Some((client, request?))
    }

    /// The client in `slot`, if its input has ended and it waits for an answer.
    pub(crate) fn ended(&mut self, slot: usize) -> Option<ControlClient> {
        let (client, connection) = self.connections.at(slot)?;
        connection.has_ended.then_some(client)
    }

    /// Sends `answer` to `client`, if it is still connected. Answers are short: if the
    /// kernel does not accept one, the operator has stopped reading.
    pub(crate) fn answer(&mut self, client: ControlClient, answer: &str) {
        self.send(client, format!("{answer}\n").into_bytes());
    }

    /// Answers `client` with a report, or with why there is none.
    pub(crate) fn report(&mut self, client: ControlClient, text: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(client) {
            connection.awaits_report = false;
        }
        self.send(client, text);
    }

    /// Sends an answer of whole lines.
    fn send(&mut self, client: ControlClient, answer: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(client) else {
            return;
        };
        connection.unanswered -= 1;
        if !connection.is_gone {
            connection.stream.push(answer.into());
            let flushed = connection.stream.flush();
            connection.is_gone = flushed != Flushed::All;
            if flushed == Flushed::Blocked {
                connection.has_ended = true;
                limited!(warn, "an operator does not read the answers: closed its connection");
            }
        }
        self.close_if_done(client);
    }

    fn close_if_done(&mut self, client: ControlClient) {
        if self.connections.get_mut(client).is_some_and(ControlConnection::is_done) {
            self.connections.remove(client);
        }
    }
}

impl ControlConnection {
    /// The next line without its line feed, if it has come; or why it is refused.
    fn read_line(&mut self) -> Option<Result<Vec<u8>, String>> {
        let mut buffer = [0; 4096];
        while !self.has_ended {
            match self.stream.receive_line(&mut buffer) {
                Ok(len) if len > 0 => self.input.extend_from_slice(&buffer[..len]),
                Err(Errno::AGAIN) => break,
                Ok(_) | Err(_) => self.has_ended = true,
            }
            if self.input.len() > REQUEST_BYTES_MAX {
                self.has_ended = true;
                self.input = Vec::new();
                return Some(Err(format!("that is more than {REQUEST_BYTES_MAX} bytes")));
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

    fn has_input(&mut self) -> bool {
        match self.stream.peek(&mut [0]) {
            Ok(len) => len > 0,
            Err(Errno::AGAIN) => false,
            Err(_) => {
                (self.has_ended, self.is_gone) = (true, true);
                false
            }
        }
    }

    fn is_done(&mut self) -> bool {
        if self.is_gone {
            self.has_ended || !self.has_input()
        } else {
            self.has_ended && self.unanswered == 0
        }
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
