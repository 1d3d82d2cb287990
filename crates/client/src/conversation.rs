//! The client without I/O, for any runtime: bytes to send and bytes received, and which answer
//! belongs to which command.

use crate::request::{LockRequest, Refusal};
use protocol::lines::{Line, Lines};
use protocol::{LOCKS_PER_CONNECTION_MAX, Reply};
use std::fmt;

/// One connection's conversation with a server, without I/O: it returns the bytes to send,
/// takes those that were received, and keeps track of the locks that are held.
///
/// There is one question at a time: [`lock`](Self::lock) or [`release`](Self::release),
/// then an [`Answer`].
///
/// ```
/// use poolcounter::{Answer, Conversation, LockRequest};
///
/// let mut conversation = Conversation::new();
/// conversation.lock(&LockRequest::new("k").workers(2).max_queue(9).any())?;
/// assert_eq!(conversation.take_output(), b"ACQ4ANY k 2 9 2147483647\n");
/// assert_eq!(conversation.receive(b"LOC")?, None);
/// assert_eq!(conversation.receive(b"KED\n")?, Some(Answer::Locked));
/// assert_eq!(conversation.locks(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    Lock,
    Release,
}

/// What a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        self.pending = Some(PendingCommand::Lock);
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
        let Some(line) = self.lines.next_line(&mut bytes) else {
            return match self.lines.unfinished() {
                unasked if !may_come && !unasked.is_empty() => Err(unexpected(unasked)),
                _ => Ok(None),
            };
        };
        let line = match line {
            Line::Complete(line) => line,
            Line::TooLong => return Err(UnexpectedAnswer("a very long line".to_owned())),
        };
        let pending = self.pending.take().filter(|_| may_come);
        let answer = pending.and_then(|pending| answer_to(pending, Reply::parse(line)?));
        let answer = answer.ok_or_else(|| unexpected(line))?;
        if !bytes.is_empty() {
            return Err(unexpected(bytes));
        }
        self.locks += usize::from(answer == Answer::Locked);
        Ok(Some(answer))
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

fn answer_to(pending: PendingCommand, reply: Reply) -> Option<Answer> {
    match (pending, reply) {
        (PendingCommand::Lock, Reply::Locked) => Some(Answer::Locked),
        (PendingCommand::Lock, Reply::Done) => Some(Answer::Done),
        (PendingCommand::Lock, Reply::QueueFull) => Some(Answer::QueueFull),
        (PendingCommand::Lock, Reply::Timeout) => Some(Answer::TimedOut),
        (PendingCommand::Release, Reply::Released) => Some(Answer::Released),
        _ => None,
    }
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
}
