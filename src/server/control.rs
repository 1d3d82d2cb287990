//! The control socket: how an operator, or `--reload`, talks to the daemon.
//!
//! Lines over a Unix socket that only root (and the daemon's own user) may open:
//! `RESTART`, `DRAIN`, `UNDRAIN`, `HELP`. Each is answered with one line, `OK …`
//! or `ERROR …`; `HELP` with several and a blank one.

use super::connection::{Connection, Flushed, Life};
use super::unix_socket;
use crate::protocol::lines::{LINE_BYTES_MAX, Line};
use log::{info, warn};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with, listen, send, sockopt};
use slab::Slab;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Where the package puts it, and where `--reload` looks.
pub const DEFAULT_PATH: &str = "/run/poolcounter/control.sock";

/// Operators are few. More than this is a mistake.
const CONNECTIONS_MAX: usize = 16;

/// Longer than the longest trial of a new binary.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The answer to `HELP`; the line end after it makes a blank line.
pub(super) const HELP: &str = "\
RESTART [JSON list of arguments]  hot restart, with the same or another command line
DRAIN                             no new clients; exit when the last has left
UNDRAIN                           new clients again
HELP                              this
";

/// What an operator asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Hot restart, with another command line or the same.
    Restart(Option<Vec<OsString>>),
    /// No new clients.
    Drain,
    /// New clients again.
    Undrain,
    /// What can be asked for.
    Help,
}

/// The socket and who is connected to it.
pub(super) struct Control {
    pub(super) socket: OwnedFd,
    pub(super) path: String,
    connections: Slab<Connection>,
    buffer: [u8; 1024],
}

impl Control {
    /// Listens at `path`, for root, the own user and `group`.
    ///
    /// # Errors
    /// What the kernel says; `AddrInUse` when another daemon answers there.
    pub(super) fn bind(path: &str, group: Option<&str>) -> io::Result<Self> {
        let socket = unix_socket::bind(path, mode(group), group)?;
        listen(&socket, CONNECTIONS_MAX as i32)?;
        Ok(Self::adopt(socket, path.to_owned()))
    }

    /// Lets `group` in, which may be another one than before a hot restart.
    ///
    /// # Errors
    /// What the kernel says, or that there is no such group.
    pub(super) fn admit(&self, group: Option<&str>) -> io::Result<()> {
        unix_socket::admit(&self.path, mode(group), group)
    }

    /// Takes over a socket that is listened on already.
    pub(super) fn adopt(socket: OwnedFd, path: String) -> Self {
        Control { socket, path, connections: Slab::new(), buffer: [0; 1024] }
    }

    /// Accepts all who wait, each watched under `first_token` and its number.
    pub(super) fn accept(&mut self, registry: &Registry, first_token: usize) {
        while let Ok(socket) =
            accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
        {
            if self.connections.len() >= CONNECTIONS_MAX {
                warn!("more than {CONNECTIONS_MAX} connections to the control socket");
                // Whoever it is may have gone.
                let _ = send(&socket, b"ERROR too many control connections\n", SendFlags::NOSIGNAL);
                continue;
            }
            if let Err(e) = self.add(socket, registry, first_token) {
                warn!("a control connection could not be watched: {e}");
            }
        }
    }

    /// Serves a control connection. Returns its number.
    pub(super) fn add(
        &mut self,
        socket: OwnedFd,
        registry: &Registry,
        first_token: usize,
    ) -> io::Result<usize> {
        let entry = self.connections.vacant_entry();
        let number = entry.key();
        let fd = socket.as_raw_fd();
        registry.register(&mut SourceFd(&fd), Token(first_token + number), Interest::READABLE)?;
        entry.insert(Connection::new(socket, 0));
        Ok(number)
    }

    /// The descriptor of connection `number`, while it is there.
    pub(super) fn descriptor(&self, number: usize) -> Option<BorrowedFd<'_>> {
        self.connections.get(number).map(|connection| connection.socket.as_fd())
    }

    /// Reads what connection `number` sent: its requests, or why a line is none,
    /// each to be answered in turn. Then [`Control::leave`] it.
    pub(super) fn read(&mut self, number: usize) -> Vec<Result<Request, String>> {
        let Some(connection) = self.connections.get_mut(number) else {
            return Vec::new();
        };
        let mut input = Vec::new();
        while connection.life == Life::Open {
            match connection.read(&mut self.buffer) {
                Ok(len) if len > 0 => input.extend_from_slice(&self.buffer[..len]),
                Err(Errno::AGAIN) => break,
                Ok(_) | Err(_) => connection.life = Life::Finishing,
            }
            if input.len() > LINE_BYTES_MAX {
                connection.life = Life::Finishing;
            }
        }
        let requests = lines_of(connection, &input).into_iter().map(|line| {
            info!("control socket: {} asks: {line}", credentials_of(&connection.socket));
            parse(&line)
        });
        requests.collect()
    }

    /// Sends `answer` to connection `number`, if it is still there. Answers are
    /// short: one that the kernel does not take goes to somebody who has stopped
    /// listening.
    pub(super) fn answer(&mut self, number: usize, answer: &str) {
        if let Some(connection) = self.connections.get_mut(number) {
            connection.owe(format!("{answer}\n").into_bytes().into());
            if connection.flush() != Flushed::All {
                self.connections.remove(number);
            }
        }
    }

    /// Connection `number` has all its answers: if it asks for nothing more, it
    /// is closed.
    pub(super) fn leave(&mut self, number: usize) {
        let life = self.connections.get(number).map(|connection| connection.life);
        if life == Some(Life::Finishing) {
            self.connections.remove(number);
        }
    }
}

fn mode(group: Option<&str>) -> u32 {
    if group.is_some() { 0o660 } else { 0o600 }
}

/// Every complete line of `input`, as it can be logged; one too long comes as an
/// empty one.
fn lines_of(connection: &mut Connection, mut input: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(line) = connection.lines.next_line(&mut input) {
        lines.push(match line {
            Line::Complete(line) => String::from_utf8_lossy(line).replace(char::is_control, "?"),
            Line::TooLong => String::new(),
        });
    }
    lines
}

/// Reads one request.
///
/// # Errors
/// Why it is none.
pub fn parse(line: &str) -> Result<Request, String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match (word, rest.trim()) {
        ("HELP", "") => Ok(Request::Help),
        ("DRAIN", "") => Ok(Request::Drain),
        ("UNDRAIN", "") => Ok(Request::Undrain),
        ("RESTART", "") => Ok(Request::Restart(None)),
        ("RESTART", list) => serde_json::from_str::<Vec<String>>(list)
            .map(|list| Request::Restart(Some(list.into_iter().map(Into::into).collect())))
            .map_err(|e| format!("not a JSON list of arguments: {e}")),
        _ => Err("no such request; HELP lists them".to_owned()),
    }
}

/// Who is at the other end, as the kernel knows it (unix(7), SO_PEERCRED).
fn credentials_of(socket: &OwnedFd) -> String {
    match sockopt::socket_peercred(socket) {
        Ok(peer) => format!("uid {}, pid {}", peer.uid.as_raw(), peer.pid.as_raw_nonzero()),
        Err(e) => format!("somebody unknown ({e})"),
    }
}

/// `--reload`: asks the daemon at `path` for a hot restart and waits until it is
/// done. Without `arguments` it keeps its command line.
///
/// # Errors
/// Why it was refused, or why the daemon could not be asked.
pub fn reload(path: &str, arguments: &[String]) -> Result<String, String> {
    let failed = |e: io::Error| format!("{path}: {e}");
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(RELOAD_TIMEOUT)).map_err(failed)?;
    let request = match arguments {
        [] => "RESTART\n".to_owned(),
        _ => format!("RESTART {}\n", serde_json::json!(arguments)),
    };
    // A daemon that has no time for us has said so, and closed, before we ask.
    let sent = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(failed)?;
    if answer.is_empty() {
        sent.map_err(failed)?;
    }
    let answer = answer.trim_end();
    if answer.starts_with("OK ") {
        Ok(answer.to_owned())
    } else if answer.is_empty() {
        Err("the daemon ended without an answer".to_owned())
    } else {
        Err(answer.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_exactly() {
        let restart =
            |list: &[&str]| Ok(Request::Restart(Some(list.iter().map(Into::into).collect())));
        assert_eq!(parse("HELP"), Ok(Request::Help));
        assert_eq!(parse("DRAIN"), Ok(Request::Drain));
        assert_eq!(parse("UNDRAIN"), Ok(Request::Undrain));
        assert_eq!(parse("RESTART"), Ok(Request::Restart(None)));
        assert_eq!(parse(r#"RESTART ["-l","::"]"#), restart(&["-l", "::"]));
        for bad in ["", "restart", "RESTART now", "DRAIN now", "RESTART {}", "RESTARTED"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
