//! What a client knows about its own locks from what it sent and received; and
//! whether an answer of the daemon is allowed here.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How late an answer may come on a busy machine.
pub(crate) const MARGIN: Duration = Duration::from_secs(10);

/// How many locks a connection may hold or wait for.
const DEPTH_MAX: usize = 4;

/// A request with such a limit never gets QUEUE_FULL: there are not so many clients.
pub(crate) const QUEUE_MAX: usize = 10_000;

/// The number of a key, which determines its bytes and its limits.
pub(crate) type Key = usize;

/// A valid ACQ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquire {
    pub(crate) for_anyone: bool,
    pub(crate) key: Key,
    pub(crate) queue_max: usize,
    pub(crate) timeout: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    Acquire(Acquire),
    /// Refused for its syntax, unless another refusal comes first.
    BadAcquire,
    Release,
    /// Answered by one line that begins like this.
    Answered(&'static str),
    StatsFull,
}

/// A command without an answer, and when it was sent: never later than the daemon
/// read it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    command: Command,
    at: Instant,
}

/// A lock that the client got and that, as far as it knows, has not ended.
#[derive(Clone, Copy, Debug)]
struct Held {
    key: Key,
    /// The lock was given between `asked_at` and `locked_at`.
    asked_at: Instant,
    locked_at: Instant,
}

/// One connection, as its client sees it.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// `--max-hold` for all keys.
    hold_max: Option<Duration>,
    stack: Vec<Held>,
    /// The wait, once it is certain that the client waits.
    waiting: Option<(Acquire, Instant)>,
    /// Commands without an answer, except `waiting`.
    sent: VecDeque<Sent>,
    amid_stats_full: bool,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) key: Option<Key>,
    /// The client got a lock of that key.
    pub(crate) locked: bool,
}

/// An answer, or the reason why it is not allowed.
pub(crate) type Heard = Result<Answer, String>;

impl Told {
    pub(crate) fn new(hold_max: Option<Duration>) -> Told {
        Told { hold_max, ..Told::default() }
    }

    pub(crate) fn note_sent(&mut self, command: Command, at: Instant) {
        self.sent.push_back(Sent { command, at });
    }

    pub(crate) fn holds_something(&self) -> bool {
        !self.stack.is_empty()
    }

    /// The keys that the client holds or waits for, as far as it knows.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let waiting = self.waiting.iter().map(|(asked, _)| asked.key);
        self.stack.iter().map(|held| held.key).chain(waiting).collect()
    }

    /// Everything sent has its answer.
    pub(crate) fn is_settled(&self) -> bool {
        self.sent.is_empty() && self.waiting.is_none()
    }

    /// Commands without an answer.
    pub(crate) fn unanswered(&self) -> usize {
        self.sent.len()
    }

    /// How many locks of this key the client certainly holds: it got LOCKED, has sent
    /// no RELEASE that could mean this lock, and the lock is not so old that it may
    /// have been taken away.
    pub(crate) fn holds_for_sure(&self, key: Key, now: Instant) -> usize {
        let is_release = |sent: &&Sent| matches!(sent.command, Command::Release);
        let releases = self.sent.iter().filter(is_release).count();
        let sure = self.stack.len().saturating_sub(releases);
        let young = |held: &Held| self.hold_max.is_none_or(|max| now < held.asked_at + max);
        self.stack[..sure].iter().filter(|held| held.key == key && young(held)).count()
    }

    /// Why the oldest unanswered command should have an answer by now, if it should.
    /// `quiet_until`: when the client began to read again.
    pub(crate) fn overdue(
        &self,
        now: Instant,
        quiet_until: Instant,
    ) -> Option<(String, Option<Key>)> {
        let late = |at: Instant| now > at.max(quiet_until) + MARGIN;
        if let Some((asked, at)) = self.waiting {
            if late(at + asked.timeout) {
                return Some((format!("a forgotten waiter: {asked:?}"), Some(asked.key)));
            }
        }
        let sent = self.sent.front()?;
        let (timeout, key) = match sent.command {
            Command::Acquire(asked) => (asked.timeout, Some(asked.key)),
            _ => (Duration::ZERO, None),
        };
        late(sent.at + timeout).then(|| (format!("no answer to {:?}", sent.command), key))
    }

    /// Whether the daemon may close after the client shut down its writing side:
    /// everything is answered except a wait, which ended with it.
    pub(crate) fn may_end(&self) -> bool {
        let waits = |sent: &Sent| match sent.command {
            Command::Acquire(asked) => !asked.timeout.is_zero(),
            _ => false,
        };
        let all_answered = match self.waiting {
            Some(_) => self.sent.is_empty(),
            None => self.sent.is_empty() || self.sent.len() == 1 && waits(&self.sent[0]),
        };
        all_answered && !self.amid_stats_full
    }

    /// Takes a line from the daemon.
    pub(crate) fn hear(&mut self, line: &str, now: Instant) -> Heard {
        if self.amid_stats_full {
            self.amid_stats_full = !line.is_empty();
            return Ok(Answer::default());
        }
        if let Some((asked, at)) = self.waiting {
            if ends_a_wait(line) {
                self.waiting = None;
                return self.hear_of_lock(asked, at, line, now);
            }
        }
        let Some(&Sent { command, at }) = self.sent.front() else {
            return Err(format!("{line:?}, but nothing was asked"));
        };
        self.sent.pop_front();
        match (command, self.refusal()) {
            (Command::Acquire(_) | Command::BadAcquire, Some(refusal)) => want(line, refusal),
            (Command::BadAcquire, None) => want(line, "ERROR BAD_SYNTAX"),
            (Command::Acquire(asked), None) if ends_a_wait(line) => {
                self.hear_of_lock(asked, at, line, now)
            }
            (Command::Acquire(asked), None) if line == "QUEUE_FULL" => {
                let may_be = asked.queue_max < QUEUE_MAX;
                if may_be { Ok(about(asked.key)) } else { Err(format!("QUEUE_FULL to {asked:?}")) }
            }
            (Command::Acquire(asked), None) if !asked.timeout.is_zero() => {
                // This is not the answer to the ACQ: the client waits, and the answer
                // belongs to the next command.
                self.waiting = Some((asked, at));
                self.hear(line, now)
            }
            (Command::Acquire(asked), None) => Err(format!("{line:?} to {asked:?}")),
            (Command::Release, _) => self.hear_of_release(line, at, now),
            (Command::Answered(start), _) if line.starts_with(start) => Ok(Answer::default()),
            (Command::Answered(start), _) => Err(format!("{line:?} instead of {start:?}")),
            (Command::StatsFull, _) => {
                self.amid_stats_full = true;
                if line.starts_with("uptime: ") {
                    Ok(Answer::default())
                } else {
                    Err(line.to_owned())
                }
            }
        }
    }

    /// The answer that every ACQ gets now, whatever it asks for.
    fn refusal(&self) -> Option<&'static str> {
        let waits = self.waiting.is_some();
        if self.stack.len() + usize::from(waits) == DEPTH_MAX {
            return Some("LOCK_HELD");
        }
        waits.then_some("ERROR WAIT_FOR_RESPONSE")
    }

    fn hear_of_lock(
        &mut self,
        asked: Acquire,
        asked_at: Instant,
        line: &str,
        now: Instant,
    ) -> Heard {
        match line {
            "LOCKED" => {
                self.stack.push(Held { key: asked.key, asked_at, locked_at: now });
                Ok(Answer { key: Some(asked.key), locked: true })
            }
            "DONE" if asked.for_anyone && !asked.timeout.is_zero() => Ok(about(asked.key)),
            "TIMEOUT" if now >= asked_at + asked.timeout => Ok(about(asked.key)),
            _ => Err(format!("{line} after {:?} to {asked:?}", now - asked_at)),
        }
    }

    fn hear_of_release(&mut self, line: &str, sent_at: Instant, now: Instant) -> Heard {
        if let Some((asked, _)) = self.waiting.take() {
            return want(line, "RELEASED").map(|_| about(asked.key));
        }
        let Some(held) = self.stack.pop() else { return want(line, "NOT_LOCKED") };
        let (may_be_spent, must_be_spent) = match self.hold_max {
            None => (false, false),
            Some(max) => (now >= held.asked_at + max, sent_at > held.locked_at + max + MARGIN),
        };
        match line {
            "RELEASED" if !must_be_spent => Ok(about(held.key)),
            "NOT_LOCKED" if may_be_spent => Ok(about(held.key)),
            _ => Err(format!("{line:?} to RELEASE of {held:?}, sent {:?} ago", now - sent_at)),
        }
    }
}

fn about(key: Key) -> Answer {
    Answer { key: Some(key), locked: false }
}

fn ends_a_wait(line: &str) -> bool {
    matches!(line, "LOCKED" | "DONE" | "TIMEOUT")
}

fn want(line: &str, wanted: &str) -> Heard {
    if line == wanted {
        Ok(Answer::default())
    } else {
        Err(format!("{line:?} instead of {wanted:?}"))
    }
}
