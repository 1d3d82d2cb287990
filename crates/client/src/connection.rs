//! One connection to a server, blocking: sends what its conversation says, waits for the answers,
//! and is closed when the state of its locks is unknown.

use crate::canceller::{Cancellation, Canceller};
use crate::conversation::{Answer, Conversation, UnexpectedAnswer};
use crate::error::Error;
use crate::order::order;
use crate::request::{LockRequest, Refusal};
use connect::{ServerName, Stream};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
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
    cancellation: Arc<Cancellation>,
    /// Those of its locks, in their order.
    keys: Vec<Vec<u8>>,
}

impl Connection {
    /// On a stream to `server`, which guards the keys for which it is the first of `servers`.
    pub(crate) fn new(
        stream: Stream,
        server: ServerName,
        servers: Vec<ServerName>,
        answer_timeout: Duration,
        cancellation: Arc<Cancellation>,
    ) -> Self {
        let stream = Arc::new(stream);
        cancellation.follow(&stream);
        Connection {
            stream,
            conversation: Conversation::new(),
            server,
            servers,
            answer_timeout,
            is_closed: false,
            cancellation,
            keys: Vec::new(),
        }
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    pub(crate) fn canceller(&self) -> Canceller {
        self.cancellation.canceller()
    }

    /// The key of the outermost lock.
    pub(crate) fn first_key(&self) -> &[u8] {
        self.keys.first().map_or(&[], Vec::as_slice)
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
        self.must_be_open(request.key())?;
        self.conversation.lock(request).map_err(Error::Refused)?;
        let answer = self.exchange(request.key())?;
        if answer == Answer::Locked {
            self.keys.push(request.key().to_vec());
        }
        Ok(answer)
    }

    /// Gives the last lock back, which must be the `level`th of the connection, and waits for the
    /// answer.
    pub(crate) fn release(&mut self, level: usize) -> Result<(), Error> {
        // The last one, which the server releases, belongs to an inner guard that was leaked.
        if self.locks() > level {
            self.close();
        }
        self.keys.truncate(level);
        let key = self.keys.pop().unwrap_or_default();
        self.must_be_open(&key)?;
        self.conversation.release().map_err(Error::Refused)?;
        self.exchange(&key).map(drop)
    }

    /// Ends the connection: the server gives all its locks to others, with their work
    /// undone.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.stream.shutdown();
    }

    fn must_be_open(&self, key: &[u8]) -> Result<(), Error> {
        if self.cancellation.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if self.is_closed {
            let why = "it was closed when an inner lock was dropped, or a request failed";
            return Err(self.lost(key, io::Error::new(ErrorKind::NotConnected, why)));
        }
        Ok(())
    }

    fn lost(&self, key: &[u8], cause: io::Error) -> Error {
        Error::Lost { key: key.to_vec(), server: self.server.clone(), cause }
    }

    /// Sends what is to be sent about a key and waits for the answer. After an error the state of
    /// the locks is unknown, so the connection is closed.
    fn exchange(&mut self, key: &[u8]) -> Result<Answer, Error> {
        let timeout = self.conversation.answer_within(self.answer_timeout);
        let output = self.conversation.take_output();
        let sent = (&*self.stream).write_all(&output);
        let mut answer = match sent.and_then(|()| self.answer(timeout)) {
            Ok(answer) => answer.map_err(Error::Unexpected),
            Err(e) => Err(self.lost(key, e)),
        };
        // A lock that was granted just before is also lost.
        if self.cancellation.is_cancelled() && matches!(answer, Ok(Answer::Locked) | Err(_)) {
            answer = Err(Error::Cancelled);
        }
        if answer.is_err() {
            self.close();
        }
        answer
    }

    /// # Errors
    /// The connection has ended, or no answer came in time.
    fn answer(
        &mut self,
        timeout: Option<Duration>,
    ) -> io::Result<Result<Answer, UnexpectedAnswer>> {
        let asked = Instant::now();
        let too_late = || io::Error::new(ErrorKind::TimedOut, "no answer");
        let mut buffer = [0; 512];
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(asked.elapsed()));
            // Reads once more: the answer may have arrived while this process was suspended.
            let is_last = left.is_some_and(|left| left.is_zero());
            self.stream.set_read_timeout(left.map(|left| left.max(SHORTEST_READ)))?;
            let received = match (&*self.stream).read(&mut buffer) {
                Ok(0) => {
                    let why = "the server closed it";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, why));
                }
                Ok(received) => received,
                Err(e) if e.kind() == ErrorKind::Interrupted && !is_last => continue,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Err(too_late());
                }
                Err(e) => return Err(e),
            };
            if let Some(answer) = self.conversation.receive(&buffer[..received]).transpose() {
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
        let mut connection =
            Connection::new(stream, server, servers, Duration::ZERO, Arc::default());
        (&theirs).write_all(b"LOCKED\n").expect("room");
        let request = LockRequest::new("k").timeout(Duration::ZERO);
        assert!(matches!(connection.lock(&request), Ok(Answer::Locked)));
        (&theirs).write_all(b"RELE").expect("room");
        let error = connection.release(1).expect_err("half an answer");
        assert!(
            matches!(&error, Error::Lost { cause, .. } if cause.kind() == ErrorKind::TimedOut),
            "{error}"
        );
    }
}
