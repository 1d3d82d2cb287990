//! One connection to a server, blocking: sends a line, waits for its answer.

use super::failure::failure;
use super::now;
use super::uptime::ask_uptime;
use crate::run::act::{Answer, Failure, NoReply, NotReleased, Uptime};
use crate::run::moment::Moment;
use crate::unsafe_calls::is_acknowledged;
use connect::failed_call::named;
use connect::{NoAnswer, StatsConnection, Stream, is_closed};
use protocol::Reply;
use protocol::lines::{Line, Lines};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The read timeout when no time is left; zero would mean no timeout.
const SHORTEST_READ: Duration = Duration::from_millis(1);

/// How much of an invalid answer is shown.
const SHOWN_BYTES_MAX: usize = 200;

/// A host that is silent for this long is probed, three times; what is not acknowledged by then is
/// lost. In all 25 s: the daemon hands the locks of a silent host on after 60 s by default.
const SILENCE: Duration = Duration::from_secs(10);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// A connection to a server. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Connection(Stream);

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Connection(stream)
    }

    /// Lets the kernel end the connection when the server's host is silent: TCP keepalive and
    /// TCP_USER_TIMEOUT. No effect if the kernel can't.
    pub(super) fn watch_the_host(&self) {
        let _ = sockopt::set_socket_keepalive(self, true);
        let _ = sockopt::set_tcp_keepidle(self, SILENCE);
        let _ = sockopt::set_tcp_keepintvl(self, PROBE_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(self, PROBES);
        // The kernel does not probe a host that owes an acknowledgement, such as of the request.
        let silence = SILENCE + PROBE_INTERVAL * PROBES;
        let _ = sockopt::set_tcp_user_timeout(self, silence.as_millis() as u32);
    }

    /// Asks for a lock and waits for the answer. A request without a timeout may be answered at
    /// any time, so a daemon that hangs looks like a lock that is held.
    pub(super) fn ask(&self, line: &[u8], until: Option<Moment>) -> Result<Answer, NoReply> {
        (&self.0).write_all(line).map_err(failed)?;
        self.answer(until, answer_to_request)?.ok_or_else(|| failed(too_late()))
    }

    /// Asks whether the server's process has run since then.
    ///
    /// # Errors
    /// The connection has ended, or no answer came in time.
    pub(super) fn ask_uptime(
        &self,
        since: Moment,
        until: Option<Moment>,
    ) -> Result<Uptime, Failure> {
        let stream = self.as_fd().try_clone_to_owned().map_err(|e| failure(&e))?.into();
        let left = until.map(|until| until.since(now()));
        match ask_uptime(&mut StatsConnection::over(stream, left), || now().since(since)) {
            Ok(uptime) => Ok(uptime),
            Err(NoAnswer::Unknown | NoAnswer::Refused(_)) => Ok(Uptime::RunsSince),
            Err(NoAnswer::Io(e)) if is_too_late(&e) => Err(failure(&too_late())),
            Err(NoAnswer::Io(e)) if is_closed(&e) => Err(failure(&closed())),
            Err(NoAnswer::Io(e)) => Err(failure(&e)),
        }
    }

    /// Gives the lock back, and waits for the answer.
    pub(super) fn release(&self, until: Moment) -> Result<(), NotReleased> {
        let sent = (&self.0).write_all(b"RELEASE\n");
        sent.map_err(|e| NotReleased::NoReply(failed(e)))?;
        self.await_released(until)
    }

    pub(super) fn await_released(&self, until: Moment) -> Result<(), NotReleased> {
        let is_it = |reply| (reply == Reply::Released).then_some(());
        let answer = self.answer(Some(until), is_it).map_err(NotReleased::NoReply)?;
        let silent = || NotReleased::Silent { is_acknowledged: is_acknowledged(&self.0) };
        answer.ok_or_else(silent)
    }

    /// Looks whether the connection still is as it was when the server gave the lock: the answer
    /// may have lain unread while this process was stopped, with the connection's end behind it.
    /// Does not wait.
    ///
    /// # Errors
    /// It has ended, or the server has said more.
    pub(super) fn check_held(&self) -> Result<(), NoReply> {
        let mut wanted = [PollFd::new(&self.0, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut wanted, Some(&Timespec::default())));
        if ready.map_err(|e| failed(named("ppoll")(e)))? == 0 {
            return Ok(());
        }
        let mut buffer = [0; SHOWN_BYTES_MAX];
        match (&self.0).read(&mut buffer) {
            Ok(0) => Err(failed(closed())),
            Ok(received) => Err(unexpected(&buffer[..received])),
            Err(e) => Err(failed(e)),
        }
    }

    /// Whether the connection has ended. What the server answers to something that the command
    /// has written there by mistake is dropped.
    pub(super) fn has_ended(&self) -> bool {
        match recv(self, &mut [0; 512][..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => len == 0,
            Err(e) => !matches!(e, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Waits for an answer that is taken; `None` if none came in time.
    ///
    /// # Errors
    /// The connection has ended, or the answer is another one.
    fn answer<T>(
        &self,
        until: Option<Moment>,
        take: impl Fn(Reply) -> Option<T>,
    ) -> Result<Option<T>, NoReply> {
        let mut lines = Lines::default();
        let mut buffer = [0; 512];
        loop {
            let left = until.map(|until| until.since(now()));
            // Reads once more: the answer may have arrived while this process was suspended.
            let is_last = left.is_some_and(|left| left.is_zero());
            let timeout = left.map(|left| left.max(SHORTEST_READ));
            self.0.set_read_timeout(timeout).map_err(failed)?;
            let received = match (&self.0).read(&mut buffer) {
                Ok(0) => return Err(failed(closed())),
                Ok(received) => received,
                Err(e) if e.kind() == ErrorKind::Interrupted && !is_last => continue,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(None);
                }
                Err(e) => return Err(failed(e)),
            };
            let answer = answer_in(&mut lines, &buffer[..received], &take)?;
            if answer.is_some() || is_last {
                return Ok(answer);
            }
        }
    }
}

fn too_late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no answer")
}

/// Not an error of the kernel's, such as that the host is silent.
fn is_too_late(e: &io::Error) -> bool {
    e.kind() == ErrorKind::TimedOut && e.raw_os_error().is_none()
}

fn failed(e: io::Error) -> NoReply {
    NoReply::Failed(failure(&e))
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed it")
}

fn answer_to_request(reply: Reply) -> Option<Answer> {
    match reply {
        Reply::Locked => Some(Answer::Locked),
        Reply::Done => Some(Answer::Done),
        Reply::QueueFull => Some(Answer::QueueFull),
        Reply::Timeout => Some(Answer::TimedOut),
        _ => None,
    }
}

/// The answer that these bytes complete, if any.
///
/// # Errors
/// It is not taken, or something follows it.
fn answer_in<T>(
    lines: &mut Lines,
    mut bytes: &[u8],
    take: impl Fn(Reply) -> Option<T>,
) -> Result<Option<T>, NoReply> {
    let line = match lines.next_line(&mut bytes) {
        None => return Ok(None),
        Some(Line::TooLong(_)) => return Err(NoReply::Unexpected("a very long line".to_owned())),
        Some(Line::Complete(line)) => line,
    };
    let taken = Reply::parse(line).and_then(take).ok_or_else(|| unexpected(line))?;
    if bytes.is_empty() { Ok(Some(taken)) } else { Err(unexpected(bytes)) }
}

fn unexpected(bytes: &[u8]) -> NoReply {
    let beginning = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    NoReply::Unexpected(String::from_utf8_lossy(beginning).into_owned())
}

impl Drop for Connection {
    /// Not only the descriptor is closed, of which a child of the process may have a copy.
    fn drop(&mut self) {
        // Fails if the server has closed it already.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::act::FailureKind;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_answer_that_is_there_is_not_too_late() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let connection = Connection::new(Stream::from(OwnedFd::from(ours)));
        let exchange = || connection.ask(b"\n", Some(now()));
        (&theirs).write_all(b"LOCKED\n").expect("room");
        assert_eq!(exchange(), Ok(Answer::Locked));
        (&theirs).write_all(b"LOCK").expect("room");
        let too_late = failure(&too_late());
        assert_eq!(exchange(), Err(NoReply::Failed(too_late)));
    }

    /// What the look finds when the server's side of the connection has done this. It stays open
    /// if it is returned.
    fn look_after(act: impl Fn(TcpStream) -> Option<TcpStream>) -> Result<(), NoReply> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let ours = TcpStream::connect(listener.local_addr().expect("an address")).expect("room");
        let (theirs, _) = listener.accept().expect("a connection");
        let connection = Connection::new(Stream::from(OwnedFd::from(ours)));
        connection.check_held().expect("nothing has happened");
        let _kept = act(theirs);
        poll(&mut [PollFd::new(&connection, PollFlags::IN)], None).expect("an event");
        connection.check_held()
    }

    #[test]
    fn a_lock_is_held_until_the_server_ends_the_connection_or_says_more() {
        let resets = |theirs: TcpStream| {
            let linger = Some(Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(&theirs, linger).expect("an option");
            None
        };
        let speaks = |mut theirs: TcpStream| {
            theirs.write_all(b"DO").expect("room");
            Some(theirs)
        };
        let is_closed = |found| match found {
            Err(NoReply::Failed(why)) => why.kind == FailureKind::Closed,
            other => panic!("{other:?}"),
        };
        assert!(is_closed(look_after(|_| None)));
        assert!(is_closed(look_after(resets)));
        assert_eq!(look_after(speaks), Err(NoReply::Unexpected("DO".to_owned())));
    }

    #[test]
    fn one_answer_is_taken_however_it_is_cut() {
        for cut in 0..7 {
            let (first, rest) = b"LOCKED\n".split_at(cut);
            let mut lines = Lines::default();
            let mut take = |bytes| answer_in(&mut lines, bytes, answer_to_request);
            assert_eq!(take(first), Ok(None));
            assert_eq!(take(rest), Ok(Some(Answer::Locked)));
        }
        for (said, shown) in [
            ("RELEASED\n", "RELEASED"),
            ("ERROR BAD_SYNTAX\n", "ERROR BAD_SYNTAX"),
            ("\n", ""),
            ("LOCKED\nDONE\n", "DONE\n"),
        ] {
            let answer = answer_in(&mut Lines::default(), said.as_bytes(), answer_to_request);
            assert_eq!(answer, Err(NoReply::Unexpected(shown.to_owned())), "{said:?}");
        }
    }
}
