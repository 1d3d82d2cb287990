//! The client: its servers, how it chooses one for a key and connects to it; the connection before
//! its first lock.

use crate::attempt::LockAttempt;
use crate::canceller::{Cancellation, Canceller};
use crate::connection::Connection;
use crate::environment::{self, BadEnvironment};
use crate::error::Error;
use crate::lock::{Lock, Outcome};
use crate::order::order;
use crate::request::{LockRequest, Refusal};
use connect::{Addresses, ServerName, Stream, watch_the_host};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
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

    /// A client of the servers that the environment names, as the command `poolcounter` reads it:
    /// those of `POOLCOUNTER_SERVERS`, separated by spaces or commas; or else of
    /// `POOLCOUNTER_SERVER`, which `poolcounter run` sets for its command; or else 127.0.0.1.
    ///
    /// # Errors
    /// A name in the variable is invalid.
    pub fn from_env() -> Result<Self, BadEnvironment> {
        environment::servers(|name| std::env::var_os(name)).map(Client::new)
    }

    /// Its servers, in the order in which they were given.
    pub fn servers(&self) -> &[ServerName] {
        &self.servers
    }

    /// How long one attempt to connect to an address may take; each server gets two
    /// attempts, at each of its addresses. 0.1 s by default, as MediaWiki's. A request with zero is
    /// refused. The addresses of a name are looked up once, in this time or in two seconds if
    /// that is longer.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a server may take to answer a release, and a request for a lock besides the
    /// time that it allows to wait. 5 s by default. A request with zero is refused.
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
    ///
    /// A name with several addresses may be several servers, each with locks of its own: it is
    /// refused then ([`Error::SeveralAddresses`]), unless it has one address of IPv4 and one of
    /// IPv6. With fallback, each address is tried as if it were the same server.
    pub fn no_fallback(mut self) -> Self {
        self.tries_max = 1;
        self
    }

    /// Asks for a lock and waits for it, for as long as the request allows.
    ///
    /// If the connection ends during the wait, as when the server is restarted, the wait starts
    /// again, with what is left of the request's time: on the same server if that comes back
    /// within two seconds, otherwise on the next one in [`order`]
    /// (with [`Client::no_fallback`] on the same one, whenever it comes back). A request without
    /// a timeout goes through the list of servers once, and then fails. A lock that was granted
    /// is never asked for again.
    ///
    /// # Errors
    /// [`Error::Refused`], before it connects, when the request is invalid, or a timeout of the
    /// client is zero. Others when no server could be connected to, or the one that was gave no
    /// answer, or did not come back in time, or still runs and has ended this wait
    /// ([`Error::TurnedAway`]). A request without a timeout waits as long as the connection
    /// lasts ([`Client::answer_timeout`]).
    pub fn lock(&self, request: &LockRequest) -> Result<Outcome<Lock>, Error> {
        self.attempt(request).lock()
    }

    /// Works under a lock: gets it as [`Client::lock`] does, and calls `work` then. If that
    /// succeeds, the lock is released, and the outcome is `Locked` with what it returned. If it
    /// fails or panics, the lock is given up, with its work undone: no client that waits for
    /// anyone's work gets `Done`.
    ///
    /// # Errors
    /// Those of `work`; those of [`Client::lock`]; those of [`Lock::release`], when the work is
    /// done, but another client may have had the lock meanwhile.
    pub fn with_lock<T, E: From<Error>>(
        &self,
        request: &LockRequest,
        work: impl FnOnce(&mut Lock) -> Result<T, E>,
    ) -> Result<Outcome<T>, E> {
        self.lock(request)?.try_map(|mut lock| {
            let result = work(&mut lock)?;
            lock.release()?;
            Ok(result)
        })
    }

    /// As [`Client::lock`], in two steps: between them, the attempt gives a [`Canceller`], and
    /// takes an observer.
    pub fn attempt<'a>(&'a self, request: &'a LockRequest) -> LockAttempt<'a> {
        LockAttempt::new(self, request)
    }

    /// Connects to the server that guards `key`; the next one only when connecting
    /// fails (never, with [`Client::no_fallback`]).
    ///
    /// # Errors
    /// [`Error::NoServer`], [`Error::SeveralAddresses`]; [`Error::Refused`] if the key is invalid
    /// or a timeout of the client is zero.
    pub fn connect(&self, key: impl AsRef<[u8]>) -> Result<Connected, Error> {
        self.may_ask(&LockRequest::new(&key))?;
        let mut passed_over = Vec::new();
        for server in self.order(key.as_ref()) {
            match self.reach(server, Duration::MAX)? {
                Ok(Reached { stream, .. }) => {
                    let connection = self.connection(stream, server, &passed_over, Arc::default());
                    return Ok(Connected { connection, passed_over });
                }
                Err(e) => passed_over.push((server.clone(), e)),
            }
        }
        Err(Error::NoServer(passed_over))
    }

    /// Whether the request, and what it is asked with, makes sense: no server need be asked.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) fn may_ask(&self, request: &LockRequest) -> Result<(), Error> {
        let all = [Some(self.connect_timeout), Some(self.answer_timeout), self.keepalive];
        if all.into_iter().flatten().any(|time| time.is_zero()) {
            return Err(Error::Refused(Refusal::TimeoutOfZero));
        }
        request.line().map(drop).map_err(Error::Refused)
    }

    /// The servers that may be asked for a key, in the order in which they are.
    pub(crate) fn order(&self, key: &[u8]) -> impl Iterator<Item = &ServerName> + use<'_> {
        order(&self.servers, key).into_iter().take(self.tries_max)
    }

    /// Looks a server up and connects to it; each attempt may take this time, but no longer than
    /// usual. The inner error is why it is unreachable.
    ///
    /// # Errors
    /// [`Error::SeveralAddresses`].
    pub(crate) fn reach(
        &self,
        server: &ServerName,
        time: Duration,
    ) -> Result<io::Result<Reached>, Error> {
        let addresses = match Addresses::look_up(server, self.connect_timeout.min(time)) {
            Ok(addresses) => addresses,
            Err(e) => return Ok(Err(e)),
        };
        self.must_be_one_host(server, &addresses)?;
        let mut result = self.connect_within(time, &addresses);
        for _ in 1..ATTEMPTS {
            if result.is_err() {
                result = self.connect_within(time, &addresses);
            }
        }
        Ok(result.map(|stream| Reached { addresses, stream }))
    }

    /// Without a fallback, each client must ask the same server, which a name of several does not
    /// promise.
    fn must_be_one_host(&self, server: &ServerName, addresses: &Addresses) -> Result<(), Error> {
        if self.tries_max > 1 || addresses.is_one_host() {
            return Ok(());
        }
        let (server, addresses) = (server.clone(), addresses.as_slice().to_vec());
        Err(Error::SeveralAddresses { server, addresses })
    }

    /// Connects once. Each address may take this time, but no longer than usual.
    pub(crate) fn connect_within(
        &self,
        time: Duration,
        addresses: &Addresses,
    ) -> io::Result<Stream> {
        let stream = addresses.connect(self.connect_timeout.min(time))?;
        if let Some(silence) = self.keepalive {
            watch_the_host(&stream, silence);
        }
        Ok(stream)
    }

    /// A connection to `server`, which guards all keys for which it is the first, except those
    /// servers that were passed over.
    pub(crate) fn connection(
        &self,
        stream: Stream,
        server: &ServerName,
        passed_over: &[(ServerName, io::Error)],
        cancellation: Arc<Cancellation>,
    ) -> Connection {
        let is_asked = |name: &&ServerName| passed_over.iter().all(|(it, _)| it != *name);
        let servers = self.servers.iter().filter(is_asked).cloned().collect();
        Connection::new(stream, server.clone(), servers, self.answer_timeout, cancellation)
    }
}

/// A server that accepts connections.
pub(crate) struct Reached {
    pub(crate) addresses: Addresses,
    pub(crate) stream: Stream,
}

/// A connection that holds no lock yet.
#[derive(Debug)]
pub struct Connected {
    connection: Connection,
    passed_over: Vec<(ServerName, io::Error)>,
}

impl Connected {
    /// The server.
    pub fn server(&self) -> &ServerName {
        self.connection.server()
    }

    /// The servers before it in [`order`] that could not be connected to, and why.
    pub fn passed_over(&self) -> &[(ServerName, io::Error)] {
        &self.passed_over
    }

    /// For another thread, to end a wait on this connection, and to give up its locks.
    pub fn canceller(&self) -> Canceller {
        self.connection.canceller()
    }

    /// Whether the server has closed the connection, or its host has vanished. Does not
    /// wait.
    pub fn is_lost(&self) -> bool {
        self.connection.has_ended()
    }

    /// Asks for a lock and waits for it, on this connection only: when that ends, so does the
    /// wait. Its key must be one that this server guards.
    ///
    /// # Errors
    /// [`Error::Lost`] when the connection ended, or gave no answer in time; and when another
    /// server guards the key.
    pub fn lock(mut self, request: &LockRequest) -> Result<Outcome<Lock>, Error> {
        let answer = self.connection.lock(request)?;
        Outcome::of(answer, || Lock::new(self.connection, self.passed_over))
    }
}

impl AsFd for Connected {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_refused_before_connecting() {
        // Nothing listens there: who connects gets another error.
        let client = || Client::new(["127.0.0.1:1".parse().expect("a server")]);
        let request = || LockRequest::new("k");
        assert!(matches!(client().lock(&request()), Err(Error::NoServer(_))));
        let refused = |result: Result<(), Error>, expected| match result {
            Err(Error::Refused(refusal)) => assert_eq!(refusal, expected),
            other => panic!("{other:?}"),
        };
        for (request, refusal) in [
            (LockRequest::new(""), Refusal::EmptyKey),
            (LockRequest::new("a\nb"), Refusal::KeyOfTwoLines),
            (request().workers(0), Refusal::LimitOfZero),
        ] {
            refused(client().lock(&request).map(drop), refusal);
        }
        refused(client().connect("").map(drop), Refusal::EmptyKey);
        for client in [
            client().connect_timeout(Duration::ZERO),
            client().answer_timeout(Duration::ZERO),
            client().keepalive(Some(Duration::ZERO)),
        ] {
            refused(client.lock(&request()).map(drop), Refusal::TimeoutOfZero);
            refused(client.connect("k").map(drop), Refusal::TimeoutOfZero);
        }
    }
}
