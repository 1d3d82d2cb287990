//! The client: its servers, how it chooses one for a key and connects to it; the connection before
//! its first lock.

use crate::connection::{Canceller, Connection};
use crate::error::Error;
use crate::lock::{Lock, Outcome};
use crate::order::order;
use crate::request::LockRequest;
use connect::{ServerName, Stream};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

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
    /// key ([`order`]).
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

    /// Never asks another server than the key's own, the first in [`order`]. Otherwise a
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
                    let has_failed = |server| failed.iter().any(|(failed, _)| failed == server);
                    let servers = self.servers.iter().filter(|&server| !has_failed(server));
                    let (server, servers) = (server.clone(), servers.cloned().collect());
                    let timeout = self.answer_timeout;
                    return Ok(Connected(Connection::new(stream, server, servers, timeout)));
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
pub struct Connected(Connection);

impl Connected {
    /// The server.
    pub fn server(&self) -> &ServerName {
        self.0.server()
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
        self.0.canceller()
    }

    /// Whether the server has closed the connection, or its host has vanished. Does not
    /// wait.
    pub fn is_lost(&self) -> bool {
        self.0.has_ended()
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

impl AsFd for Connected {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
