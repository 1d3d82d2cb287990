//! What a request for a lock comes to, and the guards of locks that are held: a lock lasts as long
//! as its guard.

use crate::connection::Connection;
use crate::conversation::{Answer, UnexpectedAnswer};
use crate::error::Error;
use crate::request::LockRequest;
use connect::ServerName;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What became of a request: with a guard, or with what [`Client::with_lock`] did under the lock.
///
/// [`Client::with_lock`]: crate::Client::with_lock
#[derive(Debug)]
#[must_use = "a lock that is dropped is given up, with its work undone"]
#[non_exhaustive]
pub enum Outcome<G> {
    /// The client has the lock, until the guard is released or dropped; or it had the lock, and
    /// the work returned this.
    Locked(G),
    /// Another client did the work. Only for [`LockRequest::any`].
    Done,
    /// As many clients hold the key or wait for it as the request allows.
    QueueFull,
    /// The wait timed out.
    TimedOut,
}

impl<G> Outcome<G> {
    /// What the answer to a request for a lock means, for a client on a
    /// [`Conversation`](crate::Conversation); `guard` is made if it has the lock.
    ///
    /// # Errors
    /// [`Error::Unexpected`] if it answers a release, or a cancelled wait.
    pub fn of(answer: Answer, guard: impl FnOnce() -> G) -> Result<Outcome<G>, Error> {
        Ok(match answer {
            Answer::Locked => Outcome::Locked(guard()),
            Answer::Done => Outcome::Done,
            Answer::QueueFull => Outcome::QueueFull,
            Answer::TimedOut => Outcome::TimedOut,
            // A conversation gives these only when it was asked to release or to cancel.
            Answer::Released | Answer::Cancelled => {
                return Err(Error::Unexpected(UnexpectedAnswer::released()));
            }
        })
    }

    pub(crate) fn try_map<T, E>(
        self,
        work: impl FnOnce(G) -> Result<T, E>,
    ) -> Result<Outcome<T>, E> {
        Ok(match self {
            Outcome::Locked(guard) => Outcome::Locked(work(guard)?),
            Outcome::Done => Outcome::Done,
            Outcome::QueueFull => Outcome::QueueFull,
            Outcome::TimedOut => Outcome::TimedOut,
        })
    }
}

/// A lock, on a connection of its own. [`Lock::release`] gives it back, with its work done.
/// Dropped, by `?`, a `return` or a panic, it is given up with its work undone: the
/// connection is closed, no client gets `Done`, and the next waiter gets the lock.
///
/// # Nested locks
/// A connection has up to four locks, given back in reverse order: an inner guard
/// borrows the outer one. So this compiles:
/// And this does not, since the outer one would be released first:
/// An inner guard that is dropped closes the connection, and so gives up the outer locks
/// too: their next call returns [`Error::Lost`]. One that is leaked, as by
/// `std::mem::forget`, keeps its lock until then, and counts as dropped when an outer guard is
/// released: only `release` says that work is done.
#[derive(Debug)]
#[must_use = "a lock that is dropped is given up, with its work undone"]
pub struct Lock {
    connection: Connection,
    passed_over: Vec<(ServerName, io::Error)>,
}

/// A lock on the connection of another lock, which it borrows. See [`Lock`] for what happens
/// to both when it is dropped.
#[derive(Debug)]
#[must_use = "a lock that is dropped is given up, with its work undone"]
pub struct NestedLock<'a> {
    connection: &'a mut Connection,
    /// How many locks the connection had when this one was given, with this one.
    level: usize,
}

/// The level of a connection's first lock.
const OUTERMOST: usize = 1;

impl Lock {
    pub(crate) fn new(connection: Connection, passed_over: Vec<(ServerName, io::Error)>) -> Self {
        Lock { connection, passed_over }
    }

    /// Gives the lock back, with its work done, and waits for the answer. Clients that
    /// wait for anyone's work get `Done`.
    ///
    /// # Errors
    /// [`Error::Lost`] or [`Error::Cancelled`]: then another client may have had the lock
    /// meanwhile, and waiting clients may still get `Done`.
    pub fn release(mut self) -> Result<(), Error> {
        self.connection.release(OUTERMOST)
    }

    /// Asks for an inner lock, on this connection.
    ///
    /// # Errors
    /// When the inner key belongs to another server, or a fifth lock is asked for:
    /// [`Error::Refused`], and the outer lock stays. Otherwise as
    /// [`Client::lock`](crate::Client::lock), and all locks of the connection are gone.
    pub fn lock(&mut self, request: &LockRequest) -> Result<Outcome<NestedLock<'_>>, Error> {
        NestedLock::ask(&mut self.connection, request)
    }

    /// Whether the connection has ended, and with it the lock, so that another client may
    /// have it. Asks the kernel only and does not wait: a daemon that ends is noticed at
    /// once, a host that vanishes after [`Client::keepalive`](crate::Client::keepalive).
    pub fn is_lost(&self) -> bool {
        self.connection.has_ended()
    }

    /// The server that keeps it.
    pub fn server(&self) -> &ServerName {
        self.connection.server()
    }

    /// The key, as it was given.
    pub fn key(&self) -> &[u8] {
        self.connection.first_key()
    }

    /// The servers before it in [`order`](crate::order()) that could not be connected to, and
    /// why: while they are down for this client only, others get the same key from them.
    pub fn passed_over(&self) -> &[(ServerName, io::Error)] {
        &self.passed_over
    }
}

impl<'a> NestedLock<'a> {
    fn ask(
        connection: &'a mut Connection,
        request: &LockRequest,
    ) -> Result<Outcome<NestedLock<'a>>, Error> {
        let answer = connection.lock(request)?;
        let level = connection.locks();
        Outcome::of(answer, || NestedLock { connection, level })
    }

    /// As [`Lock::release`]; the outer locks stay.
    ///
    /// # Errors
    /// As [`Lock::release`].
    pub fn release(self) -> Result<(), Error> {
        self.connection.release(self.level)
    }

    /// As [`Lock::lock`].
    ///
    /// # Errors
    /// As [`Lock::lock`].
    pub fn lock(&mut self, request: &LockRequest) -> Result<Outcome<NestedLock<'_>>, Error> {
        NestedLock::ask(self.connection, request)
    }

    /// As [`Lock::is_lost`], of all locks of the connection.
    pub fn is_lost(&self) -> bool {
        self.connection.has_ended()
    }
}

impl Drop for NestedLock<'_> {
    fn drop(&mut self) {
        // Unless it was released.
        if self.connection.locks() >= self.level {
            self.connection.close();
        }
    }
}

/// The connection, to wait for its end together with other events: it can be read then. Nothing
/// may be read from it or written to it.
impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
