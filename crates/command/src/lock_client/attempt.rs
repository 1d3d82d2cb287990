//! An attempt to get a lock: goes through the servers that may be asked, and starts a wait again
//! whose connection is lost, as long as the request has time.

use super::client::{Client, TOLERATED_MIN};
use super::connection::Connection;
use super::error::Error;
use super::lock::Outcome;
use super::request::LockRequest;
use super::still_runs::{Finding, look_after};
use connect::{Addresses, ServerName, Stream, is_closed};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Between two attempts to connect to a server.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What happens while an attempt lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress<'a> {
    /// This server is asked, and the wait begins.
    Asking(&'a ServerName),
    /// This server can't be connected to, for this reason: the next one is tried, if there is one.
    PassedOver(&'a ServerName, &'a io::Error),
    /// The connection to this server ended during the wait, for this reason.
    Lost(&'a ServerName, &'a io::Error),
}

/// An attempt to get a lock.
struct LockAttempt<'a> {
    client: &'a Client,
    request: &'a LockRequest,
    observer: &'a mut dyn FnMut(Progress<'_>),
    /// When the request's time is over; `None` is never.
    ends_at: Option<Instant>,
    passed_over: Vec<(ServerName, io::Error)>,
    /// The last wait that was lost.
    lost: Option<(ServerName, io::Error)>,
}

/// Asks for a lock and waits for it, for as long as the request allows. Calls `observer` for
/// all that happens meanwhile.
///
/// If the connection ends during the wait, as when the server is restarted, the wait starts
/// again, with what is left of the request's time. It also does if the connection has ended since
/// the server gave the lock. A server that accepts no connection is tried again for as long as the
/// client tolerates it; then it is passed over.
///
/// # Errors
/// [`Error::Refused`], before it connects, when the request is invalid. Others when no server
/// that may be asked could be connected to, or the one that was gave no answer, or did not come
/// back in time, or still runs and has ended this wait ([`Error::TurnedAway`]).
pub(crate) fn lock(
    client: &Client,
    request: &LockRequest,
    observer: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, Error> {
    request.line().map_err(Error::Refused)?;
    let ends_at = request.wait().and_then(|wait| Instant::now().checked_add(wait));
    let (passed_over, lost) = (Vec::new(), None);
    LockAttempt { client, request, observer, ends_at, passed_over, lost }.ask_servers()
}

impl LockAttempt<'_> {
    fn ask_servers(&mut self) -> Result<Outcome, Error> {
        for server in self.client.order(self.request.key()) {
            match self.visit(server)? {
                Ok(outcome) => return Ok(outcome),
                Err(why) => {
                    (self.observer)(Progress::PassedOver(server, &why));
                    self.passed_over.push((server.clone(), why));
                }
            }
        }
        Err(match self.lost.take() {
            Some((server, cause)) => {
                Error::Lost { key: self.request.key().to_vec(), server, cause }
            }
            None => Error::NoServer(std::mem::take(&mut self.passed_over)),
        })
    }

    /// Asks one server, again and again while its waits are lost. The inner error is why it is to
    /// be passed over.
    fn visit(&mut self, server: &ServerName) -> Result<io::Result<Outcome>, Error> {
        let all = match self.client.look_up(server, self.tolerated())? {
            Ok(addresses) => addresses,
            Err(why) => return Ok(Err(why)),
        };
        let mut addresses = all.clone();
        let mut until = Instant::now() + self.tolerated();
        let mut lost_until = None;
        loop {
            let stream = match connect_until(until, &addresses) {
                Ok(stream) => stream,
                Err(_) if addresses != all => {
                    until = Instant::now() + self.tolerated();
                    addresses.clone_from(&all);
                    continue;
                }
                Err(why) => return Ok(Err(why)),
            };
            // Another address may be that of another server, which has run for longer; others that
            // waited come back to this one too.
            addresses = all.of(&stream);
            let asked = Instant::now();
            let answered = self.ask(server, stream);
            let had_lock = matches!(answered, Ok(Outcome::Locked(_)));
            let why = match answered.and_then(still_held) {
                Err(Error::Lost { cause, .. }) if may_pass(&cause) => cause,
                held => return held.map(Ok),
            };
            let waited = asked.elapsed();
            let was_closed = is_closed(&why);
            if !was_closed && self.time_left() == Some(Duration::ZERO) {
                let key = self.request.key().to_vec();
                return Err(Error::Lost { key, server: server.clone(), cause: why });
            }
            (self.observer)(Progress::Lost(server, &why));
            self.lost = Some((server.clone(), why));
            if was_closed && !self.may_return(server, &addresses, asked, had_lock)? {
                let why = "it accepts connections, but does not answer";
                return Ok(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            // A server that ends again and again does not gain time by that.
            let began = lost_until.filter(|_| waited < TOLERATED_MIN);
            until = began.unwrap_or_else(|| Instant::now() + self.tolerated());
            lost_until = Some(until);
            thread::sleep(RETRY_INTERVAL);
            if Instant::now() >= until {
                return Ok(Err(io::Error::other("it ends again and again")));
            }
        }
    }

    /// Asks for the lock on this connection, with the time that is left.
    fn ask(&mut self, server: &ServerName, stream: Stream) -> Result<Outcome, Error> {
        (self.observer)(Progress::Asking(server));
        let mut request = self.request.clone();
        if let Some(left) = self.time_left() {
            request = request.timeout(left);
        }
        Connection::new(stream, server.clone()).lock(&request)
    }

    /// Whether a server that has closed the connection may come back. False if it accepts
    /// connections and is silent.
    ///
    /// # Errors
    /// It still runs, so it has ended this wait alone.
    fn may_return(
        &self,
        server: &ServerName,
        addresses: &Addresses,
        asked: Instant,
        had_lock: bool,
    ) -> Result<bool, Error> {
        match look_after(|| addresses.connect(TOLERATED_MIN), asked) {
            Finding::StillRuns => {
                let key = self.request.key().to_vec();
                Err(Error::TurnedAway { key, server: server.clone(), had_lock })
            }
            Finding::Silent => Ok(false),
            Finding::HasEnded => Ok(true),
        }
    }

    /// How long the next server may accept no connection.
    fn tolerated(&self) -> Duration {
        self.client.tolerated(self.time_left())
    }

    /// `None` is for ever.
    fn time_left(&self) -> Option<Duration> {
        self.ends_at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// The outcome, unless it is a lock that is lost already.
fn still_held(outcome: Outcome) -> Result<Outcome, Error> {
    if let Outcome::Locked(lock) = &outcome {
        lock.check_held()?;
    }
    Ok(outcome)
}

/// Connects as soon as one of the addresses accepts.
fn connect_until(until: Instant, addresses: &Addresses) -> io::Result<Stream> {
    let left = || until.saturating_duration_since(Instant::now());
    loop {
        match addresses.connect(left().max(RETRY_INTERVAL)) {
            Ok(stream) => {
                stream.watch_the_host();
                return Ok(stream);
            }
            Err(why) if !may_pass(&why) || left().is_zero() => return Err(why),
            Err(_) => thread::sleep(RETRY_INTERVAL.min(left())),
        }
    }
}

/// Whether an error is about the server or the network to it. Time does not change others, such as
/// of a call that is denied.
fn may_pass(e: &io::Error) -> bool {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    let is_down = matches!(
        e.kind(),
        AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut
    );
    is_closed(e) || is_down
}
