//! A blocking connection to one server.

use crate::conversation::{Answer, Conversation};
use crate::error::Error;
use crate::request::LockRequest;
use crate::transport::Stream;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A conversation on a stream.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    conversation: Conversation,
    /// How long the server may take to answer, besides the time that a request waits.
    answer_timeout: Duration,
    is_broken: bool,
}

impl Connection {
    pub(crate) fn new(stream: Stream, answer_timeout: Duration) -> Self {
        Connection { stream, conversation: Conversation::new(), answer_timeout, is_broken: false }
    }

    /// How many locks it has.
    pub(crate) fn locks(&self) -> usize {
        self.conversation.locks()
    }

    /// Asks for a lock and waits for the answer.
    pub(crate) fn lock(&mut self, request: &LockRequest) -> Result<Answer, Error> {
        self.finish_release()?;
        self.conversation.lock(request).map_err(Error::Refused)?;
        let timeout = request.wait().map(|wait| wait.saturating_add(self.answer_timeout));
        self.exchange(timeout)
    }

    /// Gives the last lock back and waits for the answer.
    pub(crate) fn release(&mut self) -> Result<Answer, Error> {
        self.finish_release()?;
        self.conversation.release().map_err(Error::Refused)?;
        self.exchange(Some(self.answer_timeout))
    }

    /// Gives the last lock back without waiting for the answer: the next question does.
    pub(crate) fn release_unheard(&mut self) {
        let released = self.finish_release().is_ok() && self.conversation.release().is_ok();
        if released && self.send().is_err() {
            self.close();
        }
    }

    /// Ends the connection: the server gives all its locks to others, as of work that is
    /// not done.
    pub(crate) fn close(&mut self) {
        self.is_broken = true;
        self.stream.shutdown();
    }

    /// Takes the answer of [`Connection::release_unheard`]. (The C daemon drops a
    /// question that arrives together with the one before.)
    fn finish_release(&mut self) -> Result<(), Error> {
        if self.is_broken {
            let closed = io::Error::new(ErrorKind::NotConnected, "the connection is closed");
            return Err(Error::Lost(closed));
        }
        if self.conversation.is_waiting() {
            self.exchange(Some(self.answer_timeout))?;
        }
        Ok(())
    }

    /// Sends what is to be sent and waits for the answer. After an error nothing is
    /// known of the locks, so the connection is closed.
    fn exchange(&mut self, timeout: Option<Duration>) -> Result<Answer, Error> {
        let answer = self.send().map_err(Error::Lost).and_then(|()| self.answer(timeout));
        if answer.is_err() {
            self.close();
        }
        answer
    }

    fn send(&mut self) -> io::Result<()> {
        let output = self.conversation.take_output();
        self.stream.write_all(&output)
    }

    fn answer(&mut self, timeout: Option<Duration>) -> Result<Answer, Error> {
        let asked = Instant::now();
        let too_late = || Error::Lost(io::Error::new(ErrorKind::TimedOut, "no answer"));
        let mut buffer = [0; 512];
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(asked.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(too_late());
            }
            self.stream.set_read_timeout(left).map_err(Error::Lost)?;
            let received = match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Error::Lost(ErrorKind::UnexpectedEof.into())),
                Ok(received) => received,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(too_late()),
                Err(e) => return Err(Error::Lost(e)),
            };
            let answer = self.conversation.receive(&buffer[..received]);
            if let Some(answer) = answer.map_err(Error::Unexpected)? {
                return Ok(answer);
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
