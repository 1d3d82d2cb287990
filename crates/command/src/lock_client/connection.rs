//! One connection to a server, blocking: sends a line, waits for its answer.

use super::error::Error;
use super::lock::{Lock, Outcome};
use super::request::LockRequest;
use connect::failed_call::named;
use connect::{ServerName, Stream};
use protocol::Reply;
use protocol::lines::{Line, Lines};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long a server may take to answer, besides the time that a request waits. A busy one answers
/// in a fraction of this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The read timeout when no time is left; zero would mean no timeout.
const SHORTEST_READ: Duration = Duration::from_millis(1);

/// How much of an invalid answer is shown.
const SHOWN_BYTES_MAX: usize = 200;

/// A connection to a server. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    server: ServerName,
}

impl Connection {
    pub(super) fn new(stream: Stream, server: ServerName) -> Self {
        Connection { stream, server }
    }

    pub(super) fn server(&self) -> &ServerName {
        &self.server
    }

    /// Asks for a lock and waits for the answer. A request without a timeout may be answered at
    /// any time, so a daemon that hangs looks like a lock that is held.
    pub(super) fn lock(self, request: &LockRequest) -> Result<Outcome, Error> {
        let line = request.line().map_err(Error::Refused)?;
        let time = request.wait().map(|wait| wait.saturating_add(ANSWER_TIMEOUT));
        let answers = [Reply::Locked, Reply::Done, Reply::QueueFull, Reply::Timeout];
        Ok(match self.exchange(&line, time, request.key(), &answers)? {
            Reply::Locked => Outcome::Locked(Lock::new(self, request.key().to_vec())),
            Reply::Done => Outcome::Done,
            Reply::QueueFull => Outcome::QueueFull,
            _ => Outcome::TimedOut,
        })
    }

    /// Gives the lock on this key back, and waits for the answer.
    pub(super) fn release(&self, key: &[u8]) -> Result<(), Error> {
        self.exchange(b"RELEASE\n", Some(ANSWER_TIMEOUT), key, &[Reply::Released]).map(drop)
    }

    /// Looks whether the connection still is as it was when the server gave the lock on this key.
    /// Does not wait.
    ///
    /// # Errors
    /// It has ended, or the server has said more.
    pub(super) fn check_held(&self, key: &[u8]) -> Result<(), Error> {
        let mut wanted = [PollFd::new(&self.stream, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut wanted, Some(&Timespec::default())));
        if ready.map_err(|e| self.lost(key, named("ppoll")(e)))? == 0 {
            return Ok(());
        }
        let mut buffer = [0; SHOWN_BYTES_MAX];
        match (&self.stream).read(&mut buffer) {
            Ok(0) => Err(self.lost(key, closed())),
            Ok(received) => Err(Error::Unexpected(beginning(&buffer[..received]))),
            Err(e) => Err(self.lost(key, e)),
        }
    }

    /// Sends a line about a key and waits for one of these answers, for this time at most. After
    /// an error the state of the lock is unknown: the connection must be closed.
    fn exchange(
        &self,
        line: &[u8],
        time: Option<Duration>,
        key: &[u8],
        answers: &[Reply],
    ) -> Result<Reply, Error> {
        let answer = (&self.stream).write_all(line).and_then(|()| self.answer(time, answers));
        answer.map_err(|cause| self.lost(key, cause))?.map_err(Error::Unexpected)
    }

    fn lost(&self, key: &[u8], cause: io::Error) -> Error {
        Error::Lost { key: key.to_vec(), server: self.server.clone(), cause }
    }

    /// The inner error is an answer that is none of these.
    ///
    /// # Errors
    /// The connection has ended, or no answer came in time.
    fn answer(
        &self,
        time: Option<Duration>,
        answers: &[Reply],
    ) -> io::Result<Result<Reply, String>> {
        let asked = Instant::now();
        let too_late = || io::Error::new(ErrorKind::TimedOut, "no answer");
        let mut lines = Lines::default();
        let mut buffer = [0; 512];
        loop {
            let left = time.map(|time| time.saturating_sub(asked.elapsed()));
            // Reads once more: the answer may have arrived while this process was suspended.
            let is_last = left.is_some_and(|left| left.is_zero());
            self.stream.set_read_timeout(left.map(|left| left.max(SHORTEST_READ)))?;
            let received = match (&self.stream).read(&mut buffer) {
                Ok(0) => return Err(closed()),
                Ok(received) => received,
                Err(e) if e.kind() == ErrorKind::Interrupted && !is_last => continue,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Err(too_late());
                }
                Err(e) => return Err(e),
            };
            if let Some(answer) = answer_in(&mut lines, &buffer[..received], answers).transpose() {
                return Ok(answer);
            }
            if is_last {
                return Err(too_late());
            }
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed it")
}

/// The answer that these bytes complete, if any.
///
/// # Errors
/// It is none of these, or something follows it.
fn answer_in(
    lines: &mut Lines,
    mut bytes: &[u8],
    answers: &[Reply],
) -> Result<Option<Reply>, String> {
    let line = match lines.next_line(&mut bytes) {
        None => return Ok(None),
        Some(Line::TooLong(_)) => return Err("a very long line".to_owned()),
        Some(Line::Complete(line)) => line,
    };
    let reply = Reply::parse(line).filter(|reply| answers.contains(reply));
    let reply = reply.ok_or_else(|| beginning(line))?;
    if bytes.is_empty() { Ok(Some(reply)) } else { Err(beginning(bytes)) }
}

fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

impl Drop for Connection {
    /// Not only the descriptor is closed, of which a child of the process may have a copy.
    fn drop(&mut self) {
        self.stream.shutdown();
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_answer_that_is_there_is_not_too_late() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let stream = Stream::from(OwnedFd::from(ours));
        let connection = Connection::new(stream, "10.1.2.3".parse().expect("a server"));
        let exchange = || connection.exchange(b"\n", Some(Duration::ZERO), b"k", &[Reply::Locked]);
        (&theirs).write_all(b"LOCKED\n").expect("room");
        assert!(matches!(exchange(), Ok(Reply::Locked)));
        (&theirs).write_all(b"LOCK").expect("room");
        let error = exchange().expect_err("half an answer");
        assert!(
            matches!(&error, Error::Lost { cause, .. } if cause.kind() == ErrorKind::TimedOut),
            "{error}"
        );
    }

    /// What the look finds when the server's side of the connection has done this. It stays open
    /// if it is returned.
    fn look_after(act: impl Fn(TcpStream) -> Option<TcpStream>) -> Result<(), Error> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let ours = TcpStream::connect(listener.local_addr().expect("an address")).expect("room");
        let (theirs, _) = listener.accept().expect("a connection");
        let stream = Stream::from(OwnedFd::from(ours));
        let connection = Connection::new(stream, "10.1.2.3".parse().expect("a server"));
        connection.check_held(b"k").expect("nothing has happened");
        let _kept = act(theirs);
        poll(&mut [PollFd::new(&connection, PollFlags::IN)], None).expect("an event");
        connection.check_held(b"k")
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
        let cause = |found| match found {
            Err(Error::Lost { cause, .. }) => cause.kind(),
            other => panic!("{other:?}"),
        };
        assert_eq!(cause(look_after(|_| None)), ErrorKind::UnexpectedEof);
        assert_eq!(cause(look_after(resets)), ErrorKind::ConnectionReset);
        assert!(matches!(look_after(speaks), Err(Error::Unexpected(said)) if said == "DO"));
    }

    #[test]
    fn one_answer_is_taken_however_it_is_cut() {
        for cut in 0..7 {
            let (first, rest) = b"LOCKED\n".split_at(cut);
            let mut lines = Lines::default();
            let mut take = |bytes| answer_in(&mut lines, bytes, &[Reply::Locked, Reply::Done]);
            assert_eq!(take(first), Ok(None));
            assert_eq!(take(rest), Ok(Some(Reply::Locked)));
        }
        for (said, shown) in [
            ("RELEASED\n", "RELEASED"),
            ("ERROR BAD_SYNTAX\n", "ERROR BAD_SYNTAX"),
            ("\n", ""),
            ("LOCKED\nDONE\n", "DONE\n"),
        ] {
            let answer = answer_in(&mut Lines::default(), said.as_bytes(), &[Reply::Locked]);
            assert_eq!(answer, Err(shown.to_owned()), "{said:?}");
        }
    }
}
