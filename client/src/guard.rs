//! Locks that are held: guards that give them back.

use crate::conversation::Answer;
use crate::error::Error;
use crate::link::Connection;
use crate::request::LockRequest;
use crate::route::Route;
use crate::server_name::ServerName;
use std::os::fd::{AsFd, BorrowedFd};

/// What became of a request.
#[derive(Debug)]
#[must_use = "a lock that is dropped is given back"]
pub enum Outcome<G> {
    /// The lock is ours, until the guard is dropped.
    Locked(G),
    /// Another client did the work that we waited for. Only for
    /// [`LockRequest::any`].
    Done,
    /// As many clients hold the key or wait for it as the request allows.
    QueueFull,
    /// The time to wait is over.
    TimedOut,
}

impl<G> Outcome<G> {
    pub(crate) fn of(answer: Answer, guard: impl FnOnce() -> G) -> Result<Outcome<G>, Error> {
        Ok(match answer {
            Answer::Locked => Outcome::Locked(guard()),
            Answer::Done => Outcome::Done,
            Answer::QueueFull => Outcome::QueueFull,
            Answer::TimedOut => Outcome::TimedOut,
            // A conversation gives these only when it was asked to release.
            Answer::Released | Answer::NotLocked => return Err(Error::TakenAway),
        })
    }
}

/// A lock, on a connection of its own. Dropped, it is given back, with its work done;
/// dropped by a panic, with its work undone.
///
/// Dropping a guard does not wait for the server's answer. But one question is asked at a
/// time: where an inner guard was dropped or leaked, dropping the outer one first waits for
/// the answer to each of those, up to
/// [`Client::answer_timeout`](crate::Client::answer_timeout).
///
/// # Nested locks
/// A connection has up to four locks, given back in reverse order: an inner guard
/// borrows the outer one. (An inner one that is leaked, as by `std::mem::forget`, is given
/// back with the outer one.) So this compiles:
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support/server.rs"));
/// # fn main() -> Result<(), poolcounter::Error> {
/// use poolcounter::{Client, LockRequest, Outcome};
///
/// # let client = Client::new([serve().parse().unwrap()]);
/// let Outcome::Locked(mut outer) = client.lock(&LockRequest::new("host:7"))? else { return Ok(()) };
/// if let Outcome::Locked(inner) = outer.lock(&LockRequest::new("page:1"))? {
///     inner.release()?;
/// }
/// outer.release()?;
/// # Ok(())
/// # }
/// ```
/// And this does not, since the outer one would be released first:
/// ```compile_fail
/// # use poolcounter::{Client, LockRequest, Outcome};
/// # fn f(client: &Client) -> Result<(), poolcounter::Error> {
/// # let Outcome::Locked(mut outer) = client.lock(&LockRequest::new("host:7"))? else { return Ok(()) };
/// if let Outcome::Locked(inner) = outer.lock(&LockRequest::new("page:1"))? {
///     outer.release()?;
///     inner.release()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Lock {
    /// `None` once it is released.
    held: Option<Box<Held>>,
}

#[derive(Debug)]
struct Held {
    connection: Connection,
    route: Route,
}

/// The first lock of a connection.
const OUTERMOST: usize = 1;

/// A lock on the connection of another lock, which it borrows.
#[derive(Debug)]
pub struct NestedLock<'a> {
    /// `None` once it is released.
    held: Option<&'a mut Held>,
    /// How many locks the connection had when this one was given.
    level: usize,
}

impl Held {
    fn nested(&mut self, request: &LockRequest) -> Result<Outcome<NestedLock<'_>>, Error> {
        self.route.check(request)?;
        let answer = self.connection.lock(request)?;
        let level = self.connection.locks();
        Outcome::of(answer, || NestedLock { held: Some(self), level })
    }

    /// Gives back the lock of this level. The server takes the last one, so first those
    /// inside of it whose guards were leaked.
    fn release(&mut self, level: usize) -> Result<(), Error> {
        let mut released = Ok(());
        for _ in level..=self.connection.locks() {
            if self.connection.release()? != Answer::Released {
                released = Err(Error::TakenAway);
            }
        }
        released
    }

    /// For a guard that is dropped.
    fn let_go(&mut self, level: usize) {
        if std::thread::panicking() {
            return self.connection.close();
        }
        for _ in level..=self.connection.locks() {
            self.connection.release_unheard();
        }
    }
}

impl Lock {
    pub(crate) fn new(connection: Connection, route: Route) -> Self {
        Lock { held: Some(Box::new(Held { connection, route })) }
    }

    /// Gives the lock back, with its work done, and waits for the answer. Clients that
    /// wait for anyone's work get `Done`.
    ///
    /// # Errors
    /// [`Error::TakenAway`] or [`Error::Lost`]: then another client may have had the
    /// lock meanwhile.
    pub fn release(mut self) -> Result<(), Error> {
        self.held.take().map_or(Ok(()), |mut held| held.release(OUTERMOST))
    }

    /// Gives the lock back with its work undone: nobody is told `Done`, and the next
    /// one waiting gets the lock.
    pub fn abandon(mut self) {
        if let Some(mut held) = self.held.take() {
            held.connection.close();
        }
    }

    /// Asks for an inner lock, on this connection.
    ///
    /// # Errors
    /// When the inner key belongs to another server, or a fifth lock is asked for:
    /// [`Error::Refused`], and the outer lock stays. Otherwise as
    /// [`Client::lock`](crate::Client::lock), and all locks of the connection are gone.
    pub fn lock(&mut self, request: &LockRequest) -> Result<Outcome<NestedLock<'_>>, Error> {
        nested_in(self.held.as_deref_mut(), request)
    }

    /// The server that keeps it.
    pub fn server(&self) -> &ServerName {
        self.held().route.server()
    }

    /// A guard that can be borrowed is not released: that takes it by value.
    fn held(&self) -> &Held {
        self.held.as_ref().expect("a guard is released by value")
    }
}

impl NestedLock<'_> {
    /// As [`Lock::release`]; the outer locks stay.
    ///
    /// # Errors
    /// As [`Lock::release`].
    pub fn release(mut self) -> Result<(), Error> {
        let level = self.level;
        self.held.take().map_or(Ok(()), |held| held.release(level))
    }

    /// As [`Lock::lock`].
    ///
    /// # Errors
    /// As [`Lock::lock`].
    pub fn lock(&mut self, request: &LockRequest) -> Result<Outcome<NestedLock<'_>>, Error> {
        nested_in(self.held.as_deref_mut(), request)
    }
}

/// A guard that can be asked is not released yet.
fn nested_in<'a>(
    held: Option<&'a mut Held>,
    request: &LockRequest,
) -> Result<Outcome<NestedLock<'a>>, Error> {
    held.ok_or(Error::TakenAway)?.nested(request)
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(mut held) = self.held.take() {
            held.let_go(OUTERMOST);
        }
    }
}

impl Drop for NestedLock<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.let_go(self.level);
        }
    }
}

/// The connection: for keepalive, and to notice that the server is gone. Nothing may
/// be read from it or written to it.
impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held().connection.as_fd()
    }
}
