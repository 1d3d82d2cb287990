//! A daemon with a control socket, and the operators who use it.

use super::command::poolcounter;
use super::restart::Place;
use super::{DAEMON, Finished, PATIENCE, Server, daemon_command, finish, launched, next_address};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// A daemon with a control socket, both in a place of their own.
pub(crate) struct Operated {
    pub(crate) place: Place,
    pub(crate) server: Server,
}

impl Operated {
    pub(crate) fn start() -> Operated {
        Operated::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Operated {
        Operated::start_in(Place::with_daemon(), arguments)
    }

    /// With this file of rules, whose name in the place is `rules`.
    pub(crate) fn start_with_rules(rules: &str, arguments: &[&str]) -> Operated {
        let place = Place::with_daemon();
        let path = place.path("rules");
        fs::write(&path, rules).expect("a file of rules");
        Operated::start_in(place, &[&["--rules", &path.display().to_string()], arguments].concat())
    }

    /// Starts it in a place that has the binary and the files that the arguments name.
    pub(crate) fn start_in(place: Place, arguments: &[&str]) -> Operated {
        let server = place.start(&[&["--control", &path_in(&place)], arguments].concat());
        Operated { place, server }
    }

    /// On a loopback address of its own: no other test takes a port that it closes.
    pub(crate) fn start_apart() -> Operated {
        Operated::start_at(&["-l", &next_address().to_string(), "-p", "0"])
    }

    /// With these arguments and `--control` alone.
    pub(crate) fn start_at(arguments: &[&str]) -> Operated {
        let place = Place::with_daemon();
        let path = path_in(&place);
        let all = [&["--control", &path], arguments].concat();
        let server = Server::spawn(&mut place.command(&all));
        Operated { place, server }
    }

    /// Executed by a launcher, which sets up what it inherits. Its binary can't be replaced.
    pub(crate) fn launched(launcher: &[&str]) -> Operated {
        let place = Place::new();
        let arguments = ["-l", "127.0.0.1", "-p", "0", "--control", &path_in(&place)];
        let server = Server::spawn(&mut launched(launcher, DAEMON, &arguments));
        Operated { place, server }
    }

    /// Of its control socket.
    pub(crate) fn path(&self) -> String {
        path_in(&self.place)
    }

    pub(crate) fn port(&self) -> String {
        self.server.address().port().to_string()
    }

    pub(crate) fn operator(&self) -> Operator {
        Operator::connect(&self.path())
    }

    /// The first line that answers an operator.
    pub(crate) fn ask(&self, request: &str) -> String {
        self.operator().ask(request)
    }

    /// `poolcounterd --reload` with more arguments.
    pub(crate) fn reload(&self, arguments: &[&str]) -> Finished {
        finish(&mut daemon_command(&[&["--reload", "--control", &self.path()], arguments].concat()))
    }

    /// The result of `poolcounter` with these arguments, on the control socket.
    pub(crate) fn poolcounter(&self, arguments: &[&str]) -> Finished {
        finish(&mut self.command(arguments))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        poolcounter("", &[arguments, &["--control-socket", &self.path()]].concat())
    }
}

fn path_in(place: &Place) -> String {
    place.path("control.sock").display().to_string()
}

/// A connection to a control socket.
pub(crate) struct Operator {
    stream: BufReader<UnixStream>,
}

impl Drop for Operator {
    /// Ends the connection now, even if a process that another test starts has a copy for a moment.
    fn drop(&mut self) {
        let _ = self.stream.get_mut().shutdown(Shutdown::Write);
    }
}

impl Operator {
    pub(crate) fn connect(path: &str) -> Operator {
        // std lacks the longest paths.
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        connect(&socket, &SocketAddrUnix::new(path).expect("an address")).expect("connect");
        let stream = UnixStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Operator { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("send");
    }

    pub(crate) fn shut_writing(&mut self) {
        self.stream.get_mut().shutdown(Shutdown::Write).expect("shutdown");
    }

    /// The next line; empty at the end of the connection.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("an answer");
        assert!(line.is_empty() || line.ends_with('\n'), "{line:?} has no end");
        line.trim_end_matches('\n').to_owned()
    }

    /// The first line of the answer.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\n").as_bytes());
        self.line()
    }

    /// Asks for a hot restart with these options.
    pub(crate) fn restart(&mut self, options: &[impl AsRef<str>]) -> String {
        let options: Vec<&str> = options.iter().map(AsRef::as_ref).collect();
        self.ask(&format!("RESTART {}", serde_json::json!(options)))
    }

    /// The lines of an answer, up to the blank line.
    pub(crate) fn list(&mut self, request: &[u8]) -> Vec<String> {
        self.send(&[request, b"\n"].concat());
        std::iter::from_fn(|| Some(self.line()).filter(|line| !line.is_empty())).collect()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(len) => len == 0,
            // Closed with unread input.
            Err(e) => e.kind() == ErrorKind::ConnectionReset,
        }
    }
}
