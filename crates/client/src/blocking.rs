//! The blocking client: its choice of a server, timeouts, locks that are given back when
//! dropped, waits and cancels on one connection; its errors.

use crate::conversation::{Answer, Conversation, UnexpectedAnswer};
use crate::order::order;
use crate::request::{LockRequest, Refusal};
use connect::{ServerName, Stream};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// As MediaWiki's client: a healthy server accepts in a fraction of this.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// How often connecting to a server is tried, as MediaWiki's client does.
const ATTEMPTS: usize = 2;

/// A busy server answers in a fraction of this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The daemon hands the locks of a silent host on after 60 s by default.
const KEEPALIVE: Duration = Duration::from_secs(25);

/// The servers, and how long to wait for them. Each lock has a connection of its own;
/// nested locks share it.
#[derive(Clone, Debug)]
pub struct Client {
    servers: Vec<ServerName>,
    connect_timeout: Duration,
    answer_timeout: Duration,
    keepalive: Option<Duration>,
    /// How many of the servers may be asked for a key.
    tries_max: usize,
}

impl Client {
    /// A client of these servers. The names, as they are written, choose the server of a
    /// key ([`order()`]).
    pub fn new(servers: impl IntoIterator<Item = ServerName>) -> Self {
        Client {
            servers: servers.into_iter().collect(),
            connect_timeout: CONNECT_TIMEOUT,
            answer_timeout: ANSWER_TIMEOUT,
            keepalive: Some(KEEPALIVE),
            tries_max: usize::MAX,
        }
    }

    /// How long one attempt to connect to an address may take; each server gets two
    /// attempts, at each of its addresses. 0.1 s by default, as MediaWiki's. Must not be
    /// zero. Finding the addresses of a name takes as long as the resolver does.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a server may take to answer a release, and a request for a lock besides the
    /// time that it allows to wait. 5 s by default. Must not be zero.
    ///
    /// A request without a timeout may be answered at any time, so a daemon that hangs looks
    /// like a lock that is held: only the end of the connection ends that wait, as by
    /// [`Client::keepalive`] or a [`Canceller`].
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// How long the server's host may be silent, during a wait or a hold, before the
    /// connection counts as lost: TCP keepalive and TCP_USER_TIMEOUT. 25 s by default; `None`
    /// is for ever. In whole seconds, at least four. Keep it below the `--keepalive` of the
    /// daemon, which hands the locks of a silent host on.
    pub fn keepalive(mut self, silence: Option<Duration>) -> Self {
        self.keepalive = silence;
        self
    }

    /// Never asks another server than the key's own, the first in [`order()`]. Otherwise a
    /// server that drains, or can't be reached for a moment, makes the next one give the
    /// lock, while a client that got it before may still hold it.
    pub fn no_fallback(mut self) -> Self {
        self.tries_max = 1;
        self
    }

    /// Asks for a lock and waits for it, for as long as the request allows.
    ///
    /// # Errors
    /// When no server could be connected to, or the one that was gave no answer. A
    /// request without a timeout waits as long as the connection lasts
    /// ([`Client::answer_timeout`]).
    pub fn lock(&self, request: &LockRequest) -> Result<Outcome<Lock>, Error> {
        self.connect(request.key())?.lock(request)
    }

    /// Connects to the server that guards `key`; the next one only when connecting
    /// fails (never, with [`Client::no_fallback`]).
    ///
    /// # Errors
    /// [`Error::NoServer`].
    pub fn connect(&self, key: &[u8]) -> Result<Connected, Error> {
        let mut failed = Vec::new();
        for server in order(&self.servers, key).into_iter().take(self.tries_max) {
            match self.connect_to(server) {
                Ok(stream) => {
                    let connection = Link::new(stream, self.answer_timeout);
                    let has_failed = |server| failed.iter().any(|(failed, _)| failed == server);
                    let servers = self.servers.iter().filter(|&server| !has_failed(server));
                    let (server, servers) = (server.clone(), servers.cloned().collect());
                    return Ok(Connected(Session { connection, server, servers }));
                }
                Err(e) => failed.push((server.clone(), e)),
            }
        }
        Err(Error::NoServer(failed))
    }

    fn connect_to(&self, server: &ServerName) -> io::Result<Stream> {
        let mut result = Stream::connect(server, self.connect_timeout);
        for _ in 1..ATTEMPTS {
            if result.is_err() {
                result = Stream::connect(server, self.connect_timeout);
            }
        }
        if let (Ok(stream), Some(silence)) = (&result, self.keepalive) {
            stream.watch_the_host(silence);
        }
        result
    }
}

/// A connection that holds no lock yet.
#[derive(Debug)]
pub struct Connected(Session);

impl Connected {
    /// The server.
    pub fn server(&self) -> &ServerName {
        &self.0.server
    }

    /// For another thread, to end a wait on this connection, and to give up its locks.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support/server.rs"));
    /// # fn main() -> Result<(), poolcounter::Error> {
    /// use poolcounter::{Client, Error, LockRequest};
    ///
    /// # let client = Client::new([serve().parse().unwrap()]);
    /// let request = LockRequest::new("nightly-report");
    /// let connected = client.connect(request.key())?;
    /// let canceller = connected.canceller();
    /// std::thread::spawn(move || canceller.cancel()).join().unwrap();
    /// assert!(matches!(connected.lock(&request), Err(Error::Cancelled)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn canceller(&self) -> Canceller {
        self.0.connection.canceller()
    }

    /// Whether the server has closed the connection, or its host has vanished. Does not
    /// wait.
    pub fn is_lost(&self) -> bool {
        self.0.connection.has_ended()
    }

    /// Asks for a lock and waits for it; its key must be one that this server guards.
    ///
    /// # Errors
    /// As [`Client::lock`]; and when another server guards the key.
    pub fn lock(mut self, request: &LockRequest) -> Result<Outcome<Lock>, Error> {
        let answer = self.0.lock(request)?;
        Outcome::of(answer, || Lock(self.0))
    }
}

impl std::os::fd::AsFd for Connected {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.connection.as_fd()
    }
}

/// What became of a request.
#[derive(Debug)]
#[must_use = "a lock that is dropped is given up, with its work undone"]
pub enum Outcome<G> {
    /// The client has the lock, until the guard is released or dropped.
    Locked(G),
    /// Another client did the work. Only for [`LockRequest::any`].
    Done,
    /// As many clients hold the key or wait for it as the request allows.
    QueueFull,
    /// The wait timed out.
    TimedOut,
}

impl<G> Outcome<G> {
    pub(crate) fn of(answer: Answer, guard: impl FnOnce() -> G) -> Result<Outcome<G>, Error> {
        Ok(match answer {
            Answer::Locked => Outcome::Locked(guard()),
            Answer::Done => Outcome::Done,
            Answer::QueueFull => Outcome::QueueFull,
            Answer::TimedOut => Outcome::TimedOut,
            // A conversation gives this only when it was asked to release.
            Answer::Released => return Err(Error::Unexpected(UnexpectedAnswer::released())),
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
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support/server.rs"));
/// # fn main() -> Result<(), poolcounter::Error> {
/// use poolcounter::{Client, LockRequest, Outcome};
///
/// # let client = Client::new([serve().parse().unwrap()]);
/// let Outcome::Locked(mut outer) = client.lock(&LockRequest::new("job:host:7"))? else { return Ok(()) };
/// if let Outcome::Locked(inner) = outer.lock(&LockRequest::new("job:report"))? {
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
/// # let Outcome::Locked(mut outer) = client.lock(&LockRequest::new("job:host:7"))? else { return Ok(()) };
/// if let Outcome::Locked(inner) = outer.lock(&LockRequest::new("job:report"))? {
///     outer.release()?;
///     inner.release()?;
/// }
/// # Ok(())
/// # }
/// ```
/// An inner guard that is dropped closes the connection, and so gives up the outer locks
/// too: their next call returns [`Error::Lost`]. One that is leaked, as by
/// `std::mem::forget`, keeps its lock until then, and counts as dropped when an outer guard is
/// released: only `release` says that work is done.
#[derive(Debug)]
#[must_use = "a lock that is dropped is given up, with its work undone"]
pub struct Lock(pub(crate) Session);

/// A lock on the connection of another lock, which it borrows. See [`Lock`] for what happens
/// to both when it is dropped.
#[derive(Debug)]
#[must_use = "a lock that is dropped is given up, with its work undone"]
pub struct NestedLock<'a> {
    session: &'a mut Session,
    /// How many locks the connection had when this one was given.
    level: usize,
}

/// A connection to a server, and which keys may be locked on it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Link,
    pub(crate) server: ServerName,
    /// The servers that guard the keys: all that did not fail before this one.
    pub(crate) servers: Vec<ServerName>,
}

/// The first lock of a connection.
const OUTERMOST: usize = 1;

impl Session {
    /// Asks for a lock and waits for it; refuses a key that another server guards.
    pub(crate) fn lock(&mut self, request: &LockRequest) -> Result<Answer, Error> {
        if order(&self.servers, request.key()).first() != Some(&&self.server) {
            return Err(Error::Refused(Refusal::OtherServer));
        }
        self.connection.lock(request)
    }

    fn nested(&mut self, request: &LockRequest) -> Result<Outcome<NestedLock<'_>>, Error> {
        let answer = self.lock(request)?;
        let level = self.connection.locks();
        Outcome::of(answer, || NestedLock { session: self, level })
    }

    /// Gives back the lock of this level.
    fn release(&mut self, level: usize) -> Result<(), Error> {
        // The server releases the last lock, which belongs to an inner guard that was leaked.
        if self.connection.locks() > level {
            self.connection.close();
        }
        self.connection.release().map(drop)
    }
}

impl Lock {
    /// Gives the lock back, with its work done, and waits for the answer. Clients that
    /// wait for anyone's work get `Done`.
    ///
    /// # Errors
    /// [`Error::Lost`] or [`Error::Cancelled`]: then another client may have had the lock
    /// meanwhile, and waiting clients may still get `Done`.
    pub fn release(mut self) -> Result<(), Error> {
        self.0.release(OUTERMOST)
    }

    /// Asks for an inner lock, on this connection.
    ///
    /// # Errors
    /// When the inner key belongs to another server, or a fifth lock is asked for:
    /// [`Error::Refused`], and the outer lock stays. Otherwise as
    /// [`Client::lock`](crate::Client::lock), and all locks of the connection are gone.
    pub fn lock(&mut self, request: &LockRequest) -> Result<Outcome<NestedLock<'_>>, Error> {
        self.0.nested(request)
    }

    /// Whether the connection has ended, and with it the lock, so that another client may
    /// have it. Asks the kernel only and does not wait: a daemon that ends is noticed at
    /// once, a host that vanishes after [`Client::keepalive`](crate::Client::keepalive).
    pub fn is_lost(&self) -> bool {
        self.0.connection.has_ended()
    }

    /// The server that keeps it.
    pub fn server(&self) -> &ServerName {
        &self.0.server
    }
}

impl NestedLock<'_> {
    /// As [`Lock::release`]; the outer locks stay.
    ///
    /// # Errors
    /// As [`Lock::release`].
    pub fn release(self) -> Result<(), Error> {
        self.session.release(self.level)
    }

    /// As [`Lock::lock`].
    ///
    /// # Errors
    /// As [`Lock::lock`].
    pub fn lock(&mut self, request: &LockRequest) -> Result<Outcome<NestedLock<'_>>, Error> {
        self.session.nested(request)
    }

    /// As [`Lock::is_lost`], of all locks of the connection.
    pub fn is_lost(&self) -> bool {
        self.session.connection.has_ended()
    }
}

impl Drop for NestedLock<'_> {
    fn drop(&mut self) {
        // Unless it was released.
        if self.session.connection.locks() >= self.level {
            self.session.connection.close();
        }
    }
}

/// The connection, to wait for its end together with other events: it can be read then. Nothing
/// may be read from it or written to it.
impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.connection.as_fd()
    }
}

/// The read timeout when no time is left; zero would mean no timeout.
const SHORTEST_READ: Duration = Duration::from_millis(1);

/// A conversation on a stream. Dropped, it is closed.
#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Shared>,
    conversation: Conversation,
    /// How long the server may take to answer, besides the time that a request waits.
    answer_timeout: Duration,
    is_closed: bool,
}

/// What cancellers share with the connection.
#[derive(Debug)]
struct Shared {
    stream: Stream,
    is_cancelled: AtomicBool,
}

/// Ends a wait for a lock from another thread: see
/// [`Connected::canceller`](crate::Connected::canceller).
#[derive(Clone, Debug)]
pub struct Canceller(Weak<Shared>);

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
        if let Some(shared) = self.0.upgrade() {
            shared.is_cancelled.store(true, Ordering::SeqCst);
            shared.stream.shutdown();
        }
    }
}

impl Link {
    pub(crate) fn new(stream: Stream, answer_timeout: Duration) -> Self {
        let shared = Arc::new(Shared { stream, is_cancelled: AtomicBool::new(false) });
        Link { shared, conversation: Conversation::new(), answer_timeout, is_closed: false }
    }

    pub(crate) fn canceller(&self) -> Canceller {
        Canceller(Arc::downgrade(&self.shared))
    }

    /// How many locks it has.
    pub(crate) fn locks(&self) -> usize {
        self.conversation.locks()
    }

    /// Whether the locks are lost, as far as the connection shows.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.stream.has_ended()
    }

    /// Asks for a lock and waits for the answer.
    pub(crate) fn lock(&mut self, request: &LockRequest) -> Result<Answer, Error> {
        self.must_be_open()?;
        self.conversation.lock(request).map_err(Error::Refused)?;
        let timeout = request.wait().map(|wait| wait.saturating_add(self.answer_timeout));
        self.exchange(timeout)
    }

    /// Gives the last lock back and waits for the answer.
    pub(crate) fn release(&mut self) -> Result<Answer, Error> {
        self.must_be_open()?;
        self.conversation.release().map_err(Error::Refused)?;
        self.exchange(Some(self.answer_timeout))
    }

    /// Ends the connection: the server gives all its locks to others, with their work
    /// undone.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.shared.stream.shutdown();
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
        self.shared.is_cancelled.load(Ordering::SeqCst)
    }

    /// Sends what is to be sent and waits for the answer. After an error the state of the
    /// locks is unknown, so the connection is closed.
    fn exchange(&mut self, timeout: Option<Duration>) -> Result<Answer, Error> {
        let output = self.conversation.take_output();
        let sent = (&self.shared.stream).write_all(&output).map_err(Error::Lost);
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
            self.shared.stream.set_read_timeout(read_timeout).map_err(Error::Lost)?;
            let received = match (&self.shared.stream).read(&mut buffer) {
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

impl Drop for Link {
    /// Not only the descriptor is closed, of which a child of the process may have a copy.
    fn drop(&mut self) {
        self.shared.stream.shutdown();
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.stream.as_fd()
    }
}

/// No answer, or an invalid one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No server could be connected to: each that was tried, and its error.
    NoServer(Vec<(ServerName, io::Error)>),
    /// The request is invalid. Nothing was sent.
    Refused(Refusal),
    /// The connection ended, or the answer did not come in time, or an inner guard was
    /// dropped before. All its locks are gone.
    Lost(io::Error),
    /// The server sent an unexpected answer. The connection is closed.
    Unexpected(UnexpectedAnswer),
    /// By a [`Canceller`]. All locks of the connection are gone.
    Cancelled,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoServer(tried) if tried.is_empty() => f.write_str("no server is configured"),
            Error::NoServer(tried) => {
                let tried: Vec<String> = tried.iter().map(|(s, e)| format!("{s}: {e}")).collect();
                write!(f, "no server could be connected to: {}", tried.join("; "))
            }
            Error::Refused(refusal) => refusal.fmt(f),
            Error::Lost(e) => write!(f, "the connection to the server is lost: {e}"),
            Error::Unexpected(answer) => answer.fmt(f),
            Error::Cancelled => f.write_str("cancelled"),
        }
    }
}

/// Its text includes its cause's.
impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_answer_that_is_there_is_not_too_late() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut connection = Link::new(Stream::from(OwnedFd::from(ours)), Duration::ZERO);
        (&theirs).write_all(b"LOCKED\n").expect("room");
        let request = LockRequest::new("k").timeout(Duration::ZERO);
        assert!(matches!(connection.lock(&request), Ok(Answer::Locked)));
        (&theirs).write_all(b"RELE").expect("room");
        let error = connection.release().expect_err("half an answer");
        assert!(matches!(&error, Error::Lost(e) if e.kind() == ErrorKind::TimedOut), "{error}");
    }
}
