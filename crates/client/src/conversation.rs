//! The client without I/O, for any runtime: bytes to send and bytes received, and which answer
//! belongs to which command.

use crate::request::{LockRequest, Refusal};
use protocol::lines::{Line, Lines};
use protocol::{LOCKS_PER_CONNECTION_MAX, Reply};
use std::fmt;
use std::time::Duration;

/// One connection's conversation with a server, without I/O: it returns the bytes to send,
/// takes those that were received, and keeps track of the locks that are held.
///
/// There is one question at a time: [`lock`](Self::lock) or [`release`](Self::release),
/// then an [`Answer`], for which [`answer_within`](Self::answer_within) says how long to wait.
/// A wait that is not wanted any more must end, or the lock comes later and nobody gives it
/// back: close the connection, which is always right, or [`cancel`](Self::cancel) the wait.
#[derive(Debug, Default)]
pub struct Conversation {
    lines: Lines,
    output: Vec<u8>,
    pending: Option<PendingCommand>,
    locks: usize,
}

/// How much of an invalid answer is shown.
const SHOWN_BYTES_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingCommand {
    Lock {
        /// How long the server lets it wait; `None` is for ever.
        wait: Option<Duration>,
        for_anyone: bool,
    },
    Release,
    /// A release of what was asked for, whether or not it is granted.
    Cancel,
    /// That release, when this other answer was already on its way.
    CancelTooLate(Reply),
}

/// What an answer leads to.
enum Step {
    Answer(Answer),
    Await(PendingCommand),
}

/// What a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The client has the lock.
    Locked,
    /// Another client did the work.
    Done,
    /// As many clients hold the key or wait for it as the request allows.
    QueueFull,
    /// The wait timed out.
    TimedOut,
    /// The last lock is given back.
    Released,
    /// The wait is over, and nothing is held.
    Cancelled,
}

/// The server sent an answer that does not fit the command. The state of the locks is
/// unknown: close the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnexpectedAnswer(String);

impl UnexpectedAnswer {
    pub(crate) fn released() -> Self {
        UnexpectedAnswer("RELEASED".to_owned())
    }
}

impl fmt::Display for UnexpectedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {:?}", self.0)
    }
}

impl std::error::Error for UnexpectedAnswer {}

impl Conversation {
    /// For a new connection.
    pub fn new() -> Self {
        Conversation::default()
    }

    /// Asks for a lock. The answer is `Locked`, `Done`, `QueueFull` or `TimedOut`.
    ///
    /// # Errors
    /// When the request is invalid, or not allowed now. Nothing is sent then.
    pub fn lock(&mut self, request: &LockRequest) -> Result<(), Refusal> {
        self.may_ask()?;
        if self.locks >= LOCKS_PER_CONNECTION_MAX {
            return Err(Refusal::TooManyLocks);
        }
        self.output.extend(request.line()?);
        let (wait, for_anyone) = (request.wait(), request.is_for_anyone());
        self.pending = Some(PendingCommand::Lock { wait, for_anyone });
        Ok(())
    }

    /// Gives the last lock back, with its work done: clients that wait for anyone's
    /// work get `Done`. (To give everything back with the work undone, close the
    /// connection.) The answer is `Released`.
    ///
    /// # Errors
    /// When nothing is held, or the previous question is not answered.
    pub fn release(&mut self) -> Result<(), Refusal> {
        self.may_ask()?;
        if self.locks == 0 {
            return Err(Refusal::NothingHeld);
        }
        self.output.extend_from_slice(b"RELEASE\n");
        self.locks -= 1;
        self.pending = Some(PendingCommand::Release);
        Ok(())
    }

    /// Ends the wait for a lock, and keeps the connection. The answer is `Cancelled`. A lock
    /// that is granted in that moment is given back at once.
    ///
    /// The server takes that for finished work, so this is for keys that no client asks for with
    /// [`LockRequest::any`], and for poolcounterd 2: version 1 reports a wait that is cancelled
    /// as finished work, too. Closing the connection has neither restriction.
    ///
    /// # Errors
    /// [`Refusal::NothingAsked`]. [`Refusal::CloseInstead`] if the connection has a lock, which
    /// could be given back in the place of the wait, or the request is for anyone's work. Nothing
    /// is sent then.
    pub fn cancel(&mut self) -> Result<(), Refusal> {
        match self.pending {
            Some(PendingCommand::Lock { for_anyone: false, .. }) if self.locks == 0 => {}
            Some(PendingCommand::Lock { .. }) => return Err(Refusal::CloseInstead),
            _ => return Err(Refusal::NothingAsked),
        }
        self.output.extend_from_slice(b"RELEASE\n");
        self.pending = Some(PendingCommand::Cancel);
        Ok(())
    }

    /// How long to wait for the answer: the time that the request lets the server wait, and
    /// `answer_timeout`, which the server may take besides. After that the daemon hangs, or its
    /// host is gone: close the connection. `None` is for ever: a request without a timeout may be
    /// answered at any time.
    pub fn answer_within(&self, answer_timeout: Duration) -> Option<Duration> {
        match self.pending {
            Some(PendingCommand::Lock { wait, .. }) => {
                wait.map(|wait| wait.saturating_add(answer_timeout))
            }
            _ => Some(answer_timeout),
        }
    }

    /// Takes the bytes to send. Send all of them before you call [`receive`](Self::receive).
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Takes bytes that were received, however they were cut. Returns the answer once
    /// it is complete.
    ///
    /// # Errors
    /// When they do not answer the question.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<Option<Answer>, UnexpectedAnswer> {
        // What comes before the question is sent can't be its answer.
        let may_come = self.is_waiting() && self.output.is_empty();
        loop {
            let Some(line) = self.lines.next_line(&mut bytes) else {
                return match self.lines.unfinished() {
                    unasked if !may_come && !unasked.is_empty() => Err(unexpected(unasked)),
                    _ => Ok(None),
                };
            };
            let line = match line {
                Line::Complete(line) => line,
                Line::TooLong(_) => return Err(UnexpectedAnswer("a very long line".to_owned())),
            };
            let pending = self.pending.take().filter(|_| may_come);
            let step = pending.and_then(|pending| step(pending, Reply::parse(line)?));
            let answer = match step.ok_or_else(|| unexpected(line))? {
                Step::Answer(answer) => answer,
                Step::Await(next) => {
                    self.pending = Some(next);
                    continue;
                }
            };
            if !bytes.is_empty() {
                return Err(unexpected(bytes));
            }
            self.locks += usize::from(answer == Answer::Locked);
            return Ok(Some(answer));
        }
    }

    /// How many locks are held.
    pub fn locks(&self) -> usize {
        self.locks
    }

    /// Whether a question waits for its answer.
    pub fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    fn may_ask(&self) -> Result<(), Refusal> {
        if self.is_waiting() { Err(Refusal::Unanswered) } else { Ok(()) }
    }
}

fn unexpected(line: &[u8]) -> UnexpectedAnswer {
    let beginning = &line[..line.len().min(SHOWN_BYTES_MAX)];
    UnexpectedAnswer(String::from_utf8_lossy(beginning).into_owned())
}

/// What a reply to this command leads to; `None` if it is none.
fn step(pending: PendingCommand, reply: Reply) -> Option<Step> {
    use PendingCommand::{Cancel, CancelTooLate, Lock, Release};
    Some(Step::Answer(match (pending, reply) {
        (Lock { .. }, Reply::Locked) => Answer::Locked,
        (Lock { .. }, Reply::Done) => Answer::Done,
        (Lock { .. }, Reply::QueueFull) => Answer::QueueFull,
        (Lock { .. }, Reply::Timeout) => Answer::TimedOut,
        (Release, Reply::Released) => Answer::Released,
        (Cancel, Reply::Released) => Answer::Cancelled,
        (Cancel, reply @ (Reply::Locked | Reply::QueueFull | Reply::Timeout)) => {
            return Some(Step::Await(CancelTooLate(reply)));
        }
        (CancelTooLate(Reply::Locked), Reply::Released) => Answer::Cancelled,
        (CancelTooLate(Reply::QueueFull | Reply::Timeout), Reply::NotLocked) => Answer::Cancelled,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_locks(locks: usize) -> Conversation {
        let mut conversation = Conversation::new();
        for _ in 0..locks {
            conversation.lock(&LockRequest::new("k")).expect("asked");
            conversation.take_output();
            assert_eq!(conversation.receive(b"LOCKED\n"), Ok(Some(Answer::Locked)));
        }
        conversation
    }

    #[test]
    fn one_question_at_a_time() {
        let mut conversation = with_locks(1);
        conversation.release().expect("asked");
        conversation.take_output();
        assert_eq!(conversation.release(), Err(Refusal::Unanswered));
        assert_eq!(conversation.lock(&LockRequest::new("k")), Err(Refusal::Unanswered));
        assert_eq!(conversation.receive(b"RELEASED\r\n"), Ok(Some(Answer::Released)));
        assert_eq!(conversation.release(), Err(Refusal::NothingHeld));
    }

    #[test]
    fn invalid_answers_are_errors() {
        for said in ["RELEASED\n", "ERROR BAD_SYNTAX\n", "LOCK_HELD\n", "\n", "LOCKED\nLOCKED\n"] {
            let mut conversation = Conversation::new();
            conversation.lock(&LockRequest::new("k")).expect("asked");
            conversation.take_output();
            assert!(conversation.receive(said.as_bytes()).is_err(), "{said:?}");
        }
        assert!(with_locks(1).receive(b"LOCKED\n").is_err(), "nothing was asked");
    }

    #[test]
    fn bytes_before_the_question_is_sent_are_an_error() {
        assert!(Conversation::new().receive(b"LOCK").is_err(), "nothing was asked");
        let mut conversation = Conversation::new();
        conversation.lock(&LockRequest::new("k")).expect("asked");
        assert!(conversation.receive(b"LOCKED\n").is_err(), "nothing was sent");
        assert_eq!(conversation.locks(), 0);
        let mut conversation = with_locks(1);
        assert_eq!(conversation.receive(b""), Ok(None), "the connection's end");
        conversation.release().expect("asked");
        assert!(conversation.receive(b"RELE").is_err(), "nothing was sent");
    }

    /// A connection that waits for a lock of its own.
    fn waiting() -> Conversation {
        let mut conversation = Conversation::new();
        conversation.lock(&LockRequest::new("k")).expect("asked");
        conversation.take_output();
        conversation
    }

    #[test]
    fn a_cancelled_wait_leaves_a_connection_that_may_ask() {
        for said in ["RELEASED\n", "LOCKED\nRELEASED\n", "TIMEOUT\r\nNOT_LOCKED\n"] {
            for cut in 0..said.len() {
                let mut conversation = waiting();
                conversation.cancel().expect("asked");
                assert_eq!(conversation.take_output(), b"RELEASE\n");
                let (first, rest) = said.as_bytes().split_at(cut);
                assert_eq!(conversation.receive(first), Ok(None), "{said:?} at {cut}");
                assert_eq!(conversation.receive(rest), Ok(Some(Answer::Cancelled)), "{said:?}");
                assert_eq!(conversation.locks(), 0);
                conversation.lock(&LockRequest::new("k")).expect("asked");
            }
        }
        for said in ["DONE\n", "LOCKED\nNOT_LOCKED\n", "TIMEOUT\nRELEASED\n", "RELEASED\nLOCKED\n"]
        {
            let mut conversation = waiting();
            conversation.cancel().expect("asked");
            conversation.take_output();
            assert!(conversation.receive(said.as_bytes()).is_err(), "{said:?}");
        }
    }

    #[test]
    fn what_a_release_could_confuse_is_not_cancelled() {
        assert_eq!(Conversation::new().cancel(), Err(Refusal::NothingAsked));
        let mut outer = with_locks(1);
        assert_eq!(outer.cancel(), Err(Refusal::NothingAsked));
        outer.lock(&LockRequest::new("inner")).expect("asked");
        assert_eq!(outer.cancel(), Err(Refusal::CloseInstead));
        let mut for_anyone = Conversation::new();
        for_anyone.lock(&LockRequest::new("k").any()).expect("asked");
        assert_eq!(for_anyone.cancel(), Err(Refusal::CloseInstead));
        let mut cancelled = waiting();
        cancelled.cancel().expect("asked");
        assert_eq!(cancelled.cancel(), Err(Refusal::NothingAsked), "once");
    }

    #[test]
    fn an_answer_takes_as_long_as_the_request_and_the_server_may() {
        let seconds = Duration::from_secs;
        let of = |request: &LockRequest| {
            let mut conversation = Conversation::new();
            conversation.lock(request).expect("asked");
            conversation.answer_within(seconds(5))
        };
        let k = || LockRequest::new("k");
        assert_eq!(of(&k().timeout(Duration::from_millis(1500))), Some(seconds(7)));
        assert_eq!(of(&k().timeout(Duration::ZERO)), Some(seconds(5)));
        assert_eq!(of(&k()), None);
        let mut held = with_locks(1);
        held.release().expect("asked");
        assert_eq!(held.answer_within(seconds(5)), Some(seconds(5)));
        let mut cancelled = waiting();
        cancelled.cancel().expect("asked");
        assert_eq!(cancelled.answer_within(seconds(5)), Some(seconds(5)));
    }
}
