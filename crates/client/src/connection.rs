//! One connection to a server, blocking: sends what its conversation says, waits for the answers,
//! and is closed when the state of its locks is unknown; from another thread, a canceller ends it.

use crate::conversation::{Answer, Conversation};
use crate::error::Error;
use crate::order::order;
use crate::request::{LockRequest, Refusal};
use connect::{ServerName, Stream};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The read timeout when no time is left; zero would mean no timeout.
const SHORTEST_READ: Duration = Duration::from_millis(1);

/// A connection to a server, its locks, and which keys may be locked on it. Dropped, it is
/// closed.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Arc<Stream>,
    conversation: Conversation,
    server: ServerName,
    /// The servers that guard the keys: all that did not fail before this one.
    servers: Vec<ServerName>,
    /// How long the server may take to answer, besides the time that a request waits.
    answer_timeout: Duration,
    is_closed: bool,
    is_cancelled: Arc<AtomicBool>,
}

/// Ends a wait for a lock from another thread: see
/// [`Connected::canceller`](crate::Connected::canceller).
#[derive(Clone, Debug)]
pub struct Canceller {
    /// Gone when the connection is dropped.
    stream: Weak<Stream>,
    is_cancelled: Arc<AtomicBool>,
}

impl Canceller {
    /// Closes the connection. A call that waits on it returns
    /// [`Error::Cancelled`], and so does each later one; the server drops the wait. A
    /// lock that was granted before is given up, with its work undone, whether or not its
    /// guard was returned already; [`Lock::is_lost`](crate::Lock::is_lost) reports it. A
    /// release that was sent before may still take effect, although its call returns
    /// [`Error::Cancelled`].
    ///
    /// When the connection has ended already, nothing happens.
    pub fn cancel(&self) {
        if let Some(stream) = self.stream.upgrade() {
            self.is_cancelled.store(true, Ordering::SeqCst);
            stream.shutdown();
        }
    }
}

impl Connection {
    /// On a stream to `server`, which guards the keys for which it is the first of `servers`.
    pub(crate) fn new(
        stream: Stream,
        server: ServerName,
        servers: Vec<ServerName>,
        answer_timeout: Duration,
    ) -> Self {
        Connection {
            stream: Arc::new(stream),
            conversation: Conversation::new(),
            server,
            servers,
            answer_timeout,
            is_closed: false,
            is_cancelled: Arc::default(),
        }
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    pub(crate) fn canceller(&self) -> Canceller {
        let is_cancelled = Arc::clone(&self.is_cancelled);
        Canceller { stream: Arc::downgrade(&self.stream), is_cancelled }
    }

    /// How many locks it has.
    pub(crate) fn locks(&self) -> usize {
        self.conversation.locks()
    }

    /// Whether the locks are lost, as far as the connection shows.
    pub(crate) fn has_ended(&self) -> bool {
        self.stream.has_ended()
    }

    /// Asks for a lock and waits for the answer; refuses a key that another server guards.
    pub(crate) fn lock(&mut self, request: &LockRequest) -> Result<Answer, Error> {
        if order(&self.servers, request.key()).first() != Some(&&self.server) {
            return Err(Error::Refused(Refusal::OtherServer));
        }
        self.must_be_open()?;
        self.conversation.lock(request).map_err(Error::Refused)?;
        let timeout = request.wait().map(|wait| wait.saturating_add(self.answer_timeout));
        self.exchange(timeout)
    }

    /// Gives the last lock back, which must be the `level`th of the connection, and waits for the
    /// answer.
    pub(crate) fn release(&mut self, level: usize) -> Result<(), Error> {
        // The last one, which the server releases, belongs to an inner guard that was leaked.
        if self.locks() > level {
            self.close();
        }
        self.must_be_open()?;
        self.conversation.release().map_err(Error::Refused)?;
        self.exchange(Some(self.answer_timeout)).map(drop)
    }

    /// Ends the connection: the server gives all its locks to others, with their work
    /// undone.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.stream.shutdown();
    }

    fn must_be_open(&self) -> Result<(), Error> {
        if self.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if self.is_closed {
            let why = "it was closed when an inner lock was dropped, or a request failed";
            return Err(Error::Lost(io::Error::new(ErrorKind::NotConnected, why)));
        }
        Ok(())
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }

    /// Sends what is to be sent and waits for the answer. After an error the state of the
    /// locks is unknown, so the connection is closed.
    fn exchange(&mut self, timeout: Option<Duration>) -> Result<Answer, Error> {
        let output = self.conversation.take_output();
        let sent = (&*self.stream).write_all(&output).map_err(Error::Lost);
        let mut answer = sent.and_then(|()| self.answer(timeout));
        // A lock that was granted just before is also lost.
        if self.is_cancelled() && matches!(answer, Ok(Answer::Locked) | Err(_)) {
            answer = Err(Error::Cancelled);
        }
        if answer.is_err() {
            self.close();
        }
        answer
    }

    fn answer(&mut self, timeout: Option<Duration>) -> Result<Answer, Error> {
        let asked = Instant::now();
        let too_late = || Error::Lost(io::Error::new(ErrorKind::TimedOut, "no answer"));
        let mut buffer = [0; 512];
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(asked.elapsed()));
            // Reads once more: the answer may have arrived while this process was suspended.
            let is_last = left.is_some_and(|left| left.is_zero());
            let read_timeout = left.map(|left| left.max(SHORTEST_READ));
            self.stream.set_read_timeout(read_timeout).map_err(Error::Lost)?;
            let received = match (&*self.stream).read(&mut buffer) {
                Ok(0) => return Err(Error::Lost(ErrorKind::UnexpectedEof.into())),
                Ok(received) => received,
                Err(e) if e.kind() == ErrorKind::Interrupted && !is_last => continue,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Err(too_late());
                }
                Err(e) => return Err(Error::Lost(e)),
            };
            let answer = self.conversation.receive(&buffer[..received]);
            if let Some(answer) = answer.map_err(Error::Unexpected)? {
                return Ok(answer);
            }
            if is_last {
                return Err(too_late());
            }
        }
    }
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
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_answer_that_is_there_is_not_too_late() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let stream = Stream::from(OwnedFd::from(ours));
        let server: ServerName = "10.1.2.3".parse().expect("a server");
        let servers = vec![server.clone()];
        let mut connection = Connection::new(stream, server, servers, Duration::ZERO);
        (&theirs).write_all(b"LOCKED\n").expect("room");
        let request = LockRequest::new("k").timeout(Duration::ZERO);
        assert!(matches!(connection.lock(&request), Ok(Answer::Locked)));
        (&theirs).write_all(b"RELE").expect("room");
        let error = connection.release(1).expect_err("half an answer");
        assert!(matches!(&error, Error::Lost(e) if e.kind() == ErrorKind::TimedOut), "{error}");
    }
}
