//! Asks any server `STATS`; for the daemon's `--check` also its uptime, and which addresses to
//! ask if only a port is known.

use super::server_name::{BadServerName, ServerName};
use super::transport::{Stream, connect_unix, is_closed};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a healthy server may take to accept and to answer all questions.
const STATS_TIMEOUT: Duration = Duration::from_secs(5);

/// The read timeout when no time is left; zero would mean none.
const SHORTEST_READ: Duration = Duration::from_millis(1);

/// More than any server sends.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How much of an invalid answer is shown.
const SHOWN_CHARS_MAX: usize = 200;

/// An old server's answer to an unknown question. The C daemon's has no line end.
const WRONG_STAT: &str = "ERROR WRONG_STAT";

/// A connection for statistics. Holds no locks.
pub struct StatsConnection {
    stream: Stream,
    /// How long the server may take from now on; `None` is for ever.
    left: Option<Duration>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The server is unreachable, or silent.
    Io(io::Error),
    /// It is an older server.
    Unknown,
    /// It answers `ERROR …`.
    Refused(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Io(e) => e.fmt(f),
            NoAnswer::Unknown => f.write_str("this server can't tell: it knows STATS FULL only"),
            NoAnswer::Refused(answer) if answer.starts_with("HTTP/") => {
                write!(f, "answered {:?}: that is an HTTP server", beginning(answer))
            }
            NoAnswer::Refused(answer) => write!(f, "answered {:?}", beginning(answer)),
        }
    }
}

/// Enough to recognize it by.
fn beginning(answer: &str) -> String {
    answer.lines().next().unwrap_or_default().chars().take(SHOWN_CHARS_MAX).collect()
}

impl From<io::Error> for NoAnswer {
    fn from(e: io::Error) -> Self {
        NoAnswer::Io(e)
    }
}

impl StatsConnection {
    /// Connects to a server.
    ///
    /// # Errors
    /// It is unreachable.
    pub fn connect(server: &ServerName) -> Result<StatsConnection, NoAnswer> {
        let began = Instant::now();
        let stream = Stream::connect(server, STATS_TIMEOUT)?;
        Ok(StatsConnection::over(stream, Some(STATS_TIMEOUT.saturating_sub(began.elapsed()))))
    }

    /// On a connection that is there. The server may take so long to answer all questions; `None`
    /// is for ever.
    pub fn over(stream: Stream, timeout: Option<Duration>) -> StatsConnection {
        StatsConnection { stream, left: timeout }
    }

    /// Asks `STATS words`; returns the lines of the answer, without the blank one at
    /// its end.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn query(&mut self, words: &str) -> Result<String, NoAnswer> {
        let asked = Instant::now();
        let answer = self.answer_within(self.left, words);
        self.left = self.left.map(|left| left.saturating_sub(asked.elapsed()));
        answer
    }

    fn answer_within(
        &mut self,
        timeout: Option<Duration>,
        words: &str,
    ) -> Result<String, NoAnswer> {
        let asked = Instant::now();
        (&self.stream).write_all(format!("STATS {words}\n").as_bytes()).map_err(not_admitted)?;
        let mut answer = Vec::new();
        while !is_complete(&answer, words) {
            if answer.len() > ANSWER_BYTES_MAX {
                let why = "an answer that is too long";
                return Err(io::Error::new(ErrorKind::InvalidData, why).into());
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(asked.elapsed()));
            // Reads once more: the answer may have come while this process was stopped.
            let is_last = left == Some(Duration::ZERO);
            if !self.receive(&mut answer, left)? {
                return Err(cut_off(&answer));
            }
            if is_last && !is_complete(&answer, words) {
                return Err(too_late().into());
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        let answer = answer.trim_end_matches('\n');
        match answer {
            WRONG_STAT => Err(NoAnswer::Unknown),
            error if error.starts_with("ERROR ") => Err(NoAnswer::Refused(error.to_owned())),
            answer => Ok(format!("{answer}\n")),
        }
    }

    /// Appends what arrives. False at the end of the connection.
    fn receive(&mut self, answer: &mut Vec<u8>, left: Option<Duration>) -> io::Result<bool> {
        self.stream.set_read_timeout(left.map(|left| left.max(SHORTEST_READ)))?;
        let mut buffer = [0; 8192];
        match (&self.stream).read(&mut buffer) {
            Ok(received) => {
                answer.extend_from_slice(&buffer[..received]);
                Ok(received > 0)
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(true),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Err(too_late()),
            Err(e) => Err(not_admitted(e)),
        }
    }
}

fn too_late() -> io::Error {
    let why = format!("timed out, no answer within {} seconds", STATS_TIMEOUT.as_secs());
    io::Error::new(ErrorKind::TimedOut, why)
}

fn cut_off(answer: &[u8]) -> NoAnswer {
    if answer.is_empty() {
        not_admitted(ErrorKind::UnexpectedEof.into()).into()
    } else {
        NoAnswer::Refused(String::from_utf8_lossy(answer).into_owned())
    }
}

/// The daemon may close a connection before the question arrives.
fn not_admitted(e: io::Error) -> io::Error {
    if !is_closed(&e) {
        return e;
    }
    let why = "closed the connection; its --allow, --max-connections or \
        --max-connections-per-ip may not admit this host";
    io::Error::new(e.kind(), why)
}

/// Whether an answer is complete. A single line has no blank line behind it.
fn is_complete(answer: &[u8], words: &str) -> bool {
    if answer.starts_with(b"ERROR ") {
        return answer == WRONG_STAT.as_bytes() || answer.ends_with(b"\n");
    }
    if words == "UPTIME" { answer.contains(&b'\n') } else { answer.ends_with(b"\n\n") }
}

/// Where a daemon is asked whether it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On its port.
    Server(ServerName),
    /// On the control socket at this path.
    ControlSocket(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Server(server) => server.fmt(f),
            Place::ControlSocket(path) => path.display().fmt(f),
        }
    }
}

impl Place {
    /// Asks for the uptime.
    ///
    /// # Errors
    /// Why the daemon is unreachable, or what it answered instead.
    pub fn uptime(&self) -> Result<String, String> {
        let why = match self.connect().and_then(|mut connection| connection.query("UPTIME")) {
            Ok(line) if line.starts_with("uptime: ") => return Ok(line),
            Ok(line) => format!("answered {:?}, not its uptime", beginning(&line)),
            Err(e) => e.to_string(),
        };
        Err(format!("{self}: {why}"))
    }

    fn connect(&self) -> Result<StatsConnection, NoAnswer> {
        match self {
            Place::Server(server) => StatsConnection::connect(server),
            Place::ControlSocket(path) => {
                let stream = connect_unix(path, STATS_TIMEOUT)?.into();
                Ok(StatsConnection::over(stream, Some(STATS_TIMEOUT)))
            }
        }
    }
}

/// Where to ask a daemon given as `HOST:PORT`, as `HOST` with this `port`, or as the path of its
/// control socket, with a slash in it. Without a name, the loopback addresses of this host.
///
/// # Errors
/// The name is invalid.
pub fn places(name: Option<&str>, port: u16) -> Result<Vec<Place>, BadServerName> {
    if let Some(path) = name.filter(|name| name.contains('/')) {
        return Ok(vec![Place::ControlSocket(PathBuf::from(path))]);
    }
    // Not by name: a container built from scratch has no /etc/hosts.
    let names = name.map_or(vec!["127.0.0.1", "::1"], |name| vec![name]);
    let server = |name: &&str| ServerName::on_port(name, port).map(Place::Server);
    names.iter().map(server).collect()
}
