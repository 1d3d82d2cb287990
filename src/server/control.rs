//! The control socket: how an operator, or `--reload`, talks to the daemon.
//!
//! A Unix socket that only root and the daemon's own user may open. Each line is one
//! request ([`Request`]) and gets a line in answer, `OK …` or `ERROR …`; `HELP` gets
//! several lines and a blank one.

use super::socket::Socket;
use super::stream::{Flushed, Stream};
use super::sys::{self, Peer};
use super::tokens::Source;
use super::world::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use super::world::io::Errno;
use super::world::mio::unix::SourceFd;
use super::world::mio::{Interest, Registry};
use super::world::net::{SendFlags, send};
use crate::engine::HoldLimit;
use crate::protocol::{Command, Query};
use log::{info, warn};
use slab::Slab;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Where the package puts the socket, and where `--reload` looks for it.
pub const DEFAULT_PATH: &str = "/run/poolcounter/control.sock";

/// Operators are few: more connections than this are a mistake.
pub(super) const CONNECTIONS_MAX: usize = 16;

/// As many options as a command line usually takes (execve(2)).
const REQUESTS_BYTES_MAX: usize = 1 << 20;

/// How much of a request a log line shows.
const LOGGED_CHARS: usize = 1_000;

/// Longer than the longest trial of a new binary.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A request from an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Hot restart, with a new command line or the same.
    Restart(Option<Vec<OsString>>),
    /// Take no new clients.
    Drain,
    /// Tell when the drain is over.
    Drained,
    /// Take new clients again.
    Undrain,
    /// Set the log filter, or show it.
    Log(Option<String>),
    /// Set the hold limits, or show them.
    MaxHold(Option<Vec<HoldLimit>>),
    /// Answer with statistics, keys and addresses included.
    Stats(Query),
    /// List the requests.
    Help,
}

/// A request as operators write it. `server.rs` implements it.
struct Kind {
    word: &'static str,
    arguments: &'static str,
    help: &'static str,
    /// Parses what follows the word.
    parse: fn(&str) -> Result<Request, String>,
}

const KINDS: &[Kind] = &[
    Kind {
        word: "RESTART",
        arguments: "[JSON list of arguments]",
        help: "hot restart, with the same or another command line",
        parse: parse_restart,
    },
    Kind {
        word: "DRAIN",
        arguments: "",
        help: "no new clients; exit when the last has left",
        parse: |rest| alone(Request::Drain, rest),
    },
    Kind {
        word: "DRAINED",
        arguments: "",
        help: "answered when the drain is over",
        parse: |rest| alone(Request::Drained, rest),
    },
    Kind {
        word: "UNDRAIN",
        arguments: "",
        help: "new clients again",
        parse: |rest| alone(Request::Undrain, rest),
    },
    Kind {
        word: "LOG",
        arguments: "[FILTER]",
        help: "what to log, as --log; without FILTER, shows it",
        parse: |rest| Ok(Request::Log((!rest.is_empty()).then(|| rest.to_owned()))),
    },
    Kind {
        word: "MAX-HOLD",
        arguments: "[PATTERN=SECONDS ... | none]",
        help: "hold limits, as --max-hold; alone, shows them",
        parse: parse_max_hold,
    },
    Kind {
        word: "STATS",
        arguments: "[FULL | JSON | KEYS | KEY | ...]",
        help: "statistics, as on the port",
        parse: parse_stats,
    },
    Kind { word: "HELP", arguments: "", help: "this", parse: |rest| alone(Request::Help, rest) },
];

/// The answer to `HELP`; the line end appended to it makes a blank line.
pub(super) fn help() -> String {
    let line = |kind: &Kind| {
        let request = format!("{} {}", kind.word, kind.arguments);
        format!("{request:39}{}\n", kind.help)
    };
    KINDS.iter().map(line).collect()
}

/// A control connection. Numbers are reused, serial numbers are not: an answer to a
/// closed connection must not reach its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ControlClient {
    number: usize,
    serial: u32,
}

/// All control connections.
pub(super) struct Control {
    connections: Slab<Conversation>,
    last_serial: u32,
}

/// One operator's connection.
struct Conversation {
    stream: Stream,
    /// The beginning of a request, whose line feed is still to come.
    input: Vec<u8>,
    /// Requests that are not answered yet.
    unanswered: usize,
    /// Its input has ended.
    has_ended: bool,
}

impl Control {
    pub(super) fn new() -> Self {
        Control { connections: Slab::new(), last_serial: 0 }
    }

    /// Serves a new connection, or refuses it.
    pub(super) fn admit(&mut self, socket: Socket, registry: &Registry) {
        if self.connections.len() >= CONNECTIONS_MAX {
            warn!("more than {CONNECTIONS_MAX} connections to the control socket");
            // Fails if the operator has gone.
            let _ = send(&*socket, b"ERROR too many control connections\n", SendFlags::NOSIGNAL);
            return;
        }
        if let Err(e) = self.add(socket, registry) {
            warn!("a control connection could not be watched: {e}");
        }
    }

    /// Serves a control connection.
    fn add(&mut self, socket: Socket, registry: &Registry) -> io::Result<()> {
        let entry = self.connections.vacant_entry();
        let fd = socket.as_raw_fd();
        let token = Source::Operator(entry.key()).into();
        registry.register(&mut SourceFd(&fd), token, Interest::READABLE)?;
        self.last_serial = self.last_serial.wrapping_add(1);
        entry.insert(Conversation {
            stream: Stream::new(socket, self.last_serial),
            input: Vec::new(),
            unanswered: 0,
            has_ended: false,
        });
        Ok(())
    }

    fn find(&mut self, client: ControlClient) -> Option<&mut Conversation> {
        let connection = self.connections.get_mut(client.number)?;
        (connection.stream.serial() == client.serial).then_some(connection)
    }

    /// The descriptor of `client`, while it is connected.
    pub(super) fn descriptor(&self, client: ControlClient) -> Option<BorrowedFd<'_>> {
        let connection = self.connections.get(client.number)?;
        (connection.stream.serial() == client.serial).then(|| connection.stream.socket().as_fd())
    }

    /// Whether `client` still waits for an answer.
    pub(super) fn waits(&self, client: ControlClient) -> bool {
        self.descriptor(client).is_some()
    }

    /// Reads from connection `number`. Returns each request, or why a line is not one,
    /// with the client to answer. A connection whose input has ended is closed once it
    /// has all its answers.
    pub(super) fn read(&mut self, number: usize) -> Vec<(ControlClient, Result<Request, String>)> {
        let mut buffer = [0; 4096];
        let Some(connection) = self.connections.get_mut(number) else {
            return Vec::new();
        };
        let client = ControlClient { number, serial: connection.stream.serial() };
        while !connection.has_ended {
            match connection.stream.receive(&mut buffer) {
                Ok(len) if len > 0 => connection.input.extend_from_slice(&buffer[..len]),
                Err(Errno::AGAIN) => break,
                Ok(_) | Err(_) => connection.has_ended = true,
            }
            if connection.input.len() > REQUESTS_BYTES_MAX {
                connection.has_ended = true;
                connection.unanswered += 1;
                connection.input = Vec::new();
                let why = format!("that is more than {REQUESTS_BYTES_MAX} bytes");
                return vec![(client, Err(why))];
            }
        }
        let lines = take_lines(&mut connection.input);
        connection.unanswered += lines.len();
        let who = credentials_of(connection.stream.socket());
        self.close_if_done(number);
        let requests = lines.into_iter().map(|line| {
            let start: String = line.chars().take(LOGGED_CHARS).collect();
            info!("control socket: {who} asks: {start}");
            (client, parse(&line))
        });
        requests.collect()
    }

    /// The client of connection `number`, if it says no more and waits for an answer.
    pub(super) fn ended(&self, number: usize) -> Option<ControlClient> {
        let connection = self.connections.get(number).filter(|it| it.has_ended)?;
        Some(ControlClient { number, serial: connection.stream.serial() })
    }

    /// Sends `answer` to `client`, if it is still connected. Answers are short: if the
    /// kernel does not accept one, the operator has stopped reading.
    pub(super) fn answer(&mut self, client: ControlClient, answer: &str) {
        self.send(client, format!("{answer}\n").into_bytes());
    }

    /// Sends an answer of whole lines, as [`Control::answer`] does.
    pub(super) fn send(&mut self, client: ControlClient, answer: Vec<u8>) {
        let Some(connection) = self.find(client) else {
            return;
        };
        connection.unanswered -= 1;
        connection.stream.push(answer.into());
        if connection.stream.flush() != Flushed::All {
            connection.has_ended = true;
            connection.unanswered = 0;
        }
        self.close_if_done(client.number);
    }

    fn close_if_done(&mut self, number: usize) {
        let is_done =
            |connection: &Conversation| connection.has_ended && connection.unanswered == 0;
        if self.connections.get(number).is_some_and(is_done) {
            self.connections.remove(number);
        }
    }
}

/// Takes every complete line, as it can be logged.
fn take_lines(input: &mut Vec<u8>) -> Vec<String> {
    let end = input.iter().rposition(|&b| b == b'\n').map_or(0, |last| last + 1);
    let rest = input.split_off(end);
    let lines = std::mem::replace(input, rest);
    let printable = |line: &[u8]| String::from_utf8_lossy(line).replace(char::is_control, "?");
    let without_end = |line: &[u8]| printable(line.strip_suffix(b"\r").unwrap_or(line));
    lines
        .split_inclusive(|&b| b == b'\n')
        .map(|line| without_end(&line[..line.len() - 1]))
        .collect()
}

/// Parses one request.
///
/// # Errors
/// Why it is not one.
pub fn parse(line: &str) -> Result<Request, String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match KINDS.iter().find(|kind| kind.word == word) {
        Some(kind) => (kind.parse)(rest.trim()),
        None => Err(NO_SUCH_REQUEST.to_owned()),
    }
}

const NO_SUCH_REQUEST: &str = "no such request; HELP lists them";

/// Parses a request that takes no arguments.
fn alone(request: Request, rest: &str) -> Result<Request, String> {
    if rest.is_empty() { Ok(request) } else { Err(NO_SUCH_REQUEST.to_owned()) }
}

fn parse_restart(rest: &str) -> Result<Request, String> {
    if rest.is_empty() {
        return Ok(Request::Restart(None));
    }
    let list: Vec<String> =
        serde_json::from_str(rest).map_err(|e| format!("not a JSON list of arguments: {e}"))?;
    Ok(Request::Restart(Some(list.into_iter().map(Into::into).collect())))
}

fn parse_stats(rest: &str) -> Result<Request, String> {
    let words = if rest.is_empty() { "FULL" } else { rest };
    match Command::parse(format!("STATS {words}").as_bytes()) {
        Command::Stats(query) => Ok(Request::Stats(query)),
        _ => Err(NO_SUCH_REQUEST.to_owned()),
    }
}

fn parse_max_hold(rest: &str) -> Result<Request, String> {
    let limit = |word: &str| word.parse().map_err(|e| format!("{word}: {e}"));
    Ok(Request::MaxHold(match rest {
        "" => None,
        "none" => Some(Vec::new()),
        limits => Some(limits.split_whitespace().map(limit).collect::<Result<_, _>>()?),
    }))
}

/// The peer's process, as the kernel reports it.
fn credentials_of(socket: &OwnedFd) -> String {
    match sys::peer_of(socket) {
        Ok(Peer { uid, pid: Some(pid) }) => format!("uid {uid}, pid {pid}"),
        Ok(Peer { uid, pid: None }) => format!("uid {uid}, outside of this container"),
        Err(e) => format!("an unknown process ({e})"),
    }
}

/// `--reload`: asks the daemon at `path` for a hot restart and waits until it is
/// done. Without `arguments` the daemon keeps its command line.
///
/// # Errors
/// Why the restart was refused, or why the daemon is unreachable.
pub fn reload(path: &str, arguments: &[String]) -> Result<String, String> {
    let failed = |e: io::Error| format!("{path}: {e}");
    let request = match arguments {
        [] => "RESTART\n".to_owned(),
        _ => format!("RESTART {}\n", serde_json::json!(arguments)),
    };
    let stream = UnixStream::connect(path).map_err(failed)?;
    let daemon = process_of(&stream);
    let mut answer = ask(stream, &request).map_err(failed)?;
    if answer.is_empty() {
        // Another hot restart may have come first, which closes our connection. In a new
        // process there was none: its locks are lost.
        let is_same = |stream: &UnixStream| daemon.is_some() && process_of(stream) == daemon;
        if let Some(stream) = UnixStream::connect(path).ok().filter(is_same) {
            answer = ask(stream, &request).map_err(failed)?;
        }
    }
    match answer.trim_end() {
        "" => Err("the daemon ended without an answer".to_owned()),
        answer if answer.starts_with("OK ") => Ok(answer.to_owned()),
        answer => Err(answer.to_owned()),
    }
}

fn process_of(daemon: &UnixStream) -> Option<i32> {
    sys::peer_of(daemon).ok()?.pid
}

/// Sends `request` and waits for the answer. That is empty if the daemon has closed the
/// connection.
///
/// # Errors
/// Any other error of the kernel, or that no answer came in time.
fn ask(mut stream: UnixStream, request: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    // A daemon with too many control connections says so, and closes, before we ask.
    let sent = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    let read = BufReader::new(stream).read_line(&mut answer);
    match sent.and(read) {
        Err(e) if answer.is_empty() && !is_closed(&e) => Err(e),
        _ => Ok(answer),
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests;
