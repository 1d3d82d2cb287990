//! An attempt to get a lock: goes through the servers, and starts a wait again whose connection
//! is lost, as long as the request has time.

use super::client::{Client, Reached};
use super::connection::Connection;
use super::error::Error;
use super::lock::Outcome;
use super::request::LockRequest;
use super::still_runs::{Finding, look_after};
use connect::failed_call::is_denied;
use connect::{Addresses, ServerName, Stream, is_closed};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to come back before the next one is asked. Others that waited come
/// back to it too, and a second holder elsewhere is worse than a late start.
const RETURN_TIME: Duration = Duration::from_secs(2);

/// Between two attempts to connect to a server that may come back.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Before the list of servers is gone through again.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);

/// What happens while an attempt lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress<'a> {
    /// This server is asked, and the wait begins.
    Asking(&'a ServerName),
    /// This server can't be connected to, for this reason: the next one is tried.
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
/// again, with what is left of the request's time: on the same server if that comes back
/// within two seconds, otherwise on the next one in the order of the key
/// (with [`Client::no_fallback`] on the same one, whenever it comes back). A request without
/// a timeout goes through the list of servers once, and then fails. A lock that was granted
/// is never asked for again.
///
/// # Errors
/// [`Error::Refused`], before it connects, when the request is invalid. Others when no server
/// could be connected to, or the one that was gave no answer, or did not come back in time, or
/// still runs and has ended this wait ([`Error::TurnedAway`]).
pub(crate) fn lock(
    client: &Client,
    request: &LockRequest,
    observer: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, Error> {
    request.line().map_err(Error::Refused)?;
    let ends_at = request.wait().and_then(|wait| Instant::now().checked_add(wait));
    let (passed_over, lost) = (Vec::new(), None);
    LockAttempt { client, request, observer, ends_at, passed_over, lost }.go_through_servers()
}

impl LockAttempt<'_> {
    fn go_through_servers(&mut self) -> Result<Outcome, Error> {
        loop {
            for server in self.client.order(self.request.key()) {
                if let Some(outcome) = self.visit(server)? {
                    return Ok(outcome);
                }
            }
            // Without a timeout, a second round would be the first of an endless number.
            if self.lost.is_none() || self.ends_at.is_none() {
                return Err(self.failure());
            }
            self.pause(ROUND_INTERVAL)?;
        }
    }

    /// Asks one server, again and again while its waits are lost. `None` if the next server is to
    /// be tried.
    fn visit(&mut self, server: &ServerName) -> Result<Option<Outcome>, Error> {
        let time = self.time_to_connect(Duration::MAX);
        let reached = match self.client.reach(server, time)? {
            Ok(reached) => self.ask_until_answered(server, reached)?,
            Err(why) => Err(why),
        };
        match reached {
            Ok(outcome) => Ok(Some(outcome)),
            Err(why) => {
                self.pass_over(server, why);
                Ok(None)
            }
        }
    }

    /// The inner error is why the server is to be passed over.
    fn ask_until_answered(
        &mut self,
        server: &ServerName,
        reached: Reached,
    ) -> Result<io::Result<Outcome>, Error> {
        let Reached { addresses, mut stream } = reached;
        let mut until = None;
        let mut has_others = !addresses.is_one();
        loop {
            // Another address may be that of another server, which has run for longer.
            let own = addresses.of(&stream);
            let asked = Instant::now();
            let why = match self.ask(server, stream) {
                // Neither time nor the server can change that.
                Err(Error::Lost { cause, .. }) if is_denied(&cause) => return Ok(Err(cause)),
                Err(Error::Lost { cause, .. }) => cause,
                answered => return answered.map(Ok),
            };
            let waited = asked.elapsed();
            (self.observer)(Progress::Lost(server, &why));
            let was_closed = is_closed(&why);
            self.lost = Some((server.clone(), why));
            if was_closed && !self.may_return(server, &own, asked)? {
                let why = "it accepts connections, but does not answer";
                return Ok(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            // A server that ends again and again does not gain time by that.
            let began = until.filter(|_| waited < RETURN_TIME);
            let ends = began.unwrap_or_else(|| Instant::now() + RETURN_TIME);
            until = Some(ends);
            let mut returned = self.return_to(&own, ends)?;
            if returned.is_err() && std::mem::take(&mut has_others) {
                let time = self.time_to_connect(Duration::MAX);
                returned = self.client.connect_within(time, &addresses);
                until = None;
            }
            stream = match returned {
                Ok(stream) => stream,
                Err(why) => return Ok(Err(why)),
            };
        }
    }

    /// Asks for the lock on this connection, with the time that is left.
    fn ask(&mut self, server: &ServerName, stream: Stream) -> Result<Outcome, Error> {
        (self.observer)(Progress::Asking(server));
        self.passed_over.retain(|(name, _)| name != server);
        let mut request = self.request.clone();
        if let Some(left) = self.time_left().filter(|_| self.lost.is_some()) {
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
    ) -> Result<bool, Error> {
        let connect = || self.client.connect_within(RETURN_TIME, addresses);
        match look_after(connect, asked) {
            Finding::StillRuns => {
                let key = self.request.key().to_vec();
                Err(Error::TurnedAway { key, server: server.clone() })
            }
            Finding::Silent => Ok(false),
            Finding::HasEnded => Ok(true),
        }
    }

    /// Connects to a server as soon as it accepts again. The inner error is why it has not.
    fn return_to(
        &mut self,
        addresses: &Addresses,
        until: Instant,
    ) -> Result<io::Result<Stream>, Error> {
        let mut why = io::Error::other("it ends again and again");
        while Instant::now() < until {
            self.pause(RETRY_INTERVAL)?;
            let left = self.time_to_connect(until.saturating_duration_since(Instant::now()));
            match self.client.connect_within(left, addresses) {
                Ok(stream) => return Ok(Ok(stream)),
                Err(e) => why = e,
            }
        }
        Ok(Err(why))
    }

    /// Goes on to the next server, and tells so unless it did in the round before.
    fn pass_over(&mut self, server: &ServerName, why: io::Error) {
        if self.passed_over.iter().all(|(name, _)| name != server) {
            (self.observer)(Progress::PassedOver(server, &why));
            self.passed_over.push((server.clone(), why));
        }
    }

    /// Waits for a moment.
    ///
    /// # Errors
    /// The request's time is over.
    fn pause(&mut self, time: Duration) -> Result<(), Error> {
        let time = self.time_left().map_or(time, |left| left.min(time));
        thread::sleep(time);
        match self.time_left() {
            Some(left) if left.is_zero() => Err(self.failure()),
            _ => Ok(()),
        }
    }

    /// `None` is for ever.
    fn time_left(&self) -> Option<Duration> {
        self.ends_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// This time, or what is left of the request's once a wait was lost; enough to connect.
    fn time_to_connect(&self, time: Duration) -> Duration {
        let left = self.time_left().filter(|_| self.lost.is_some());
        left.map_or(time, |left| left.min(time)).max(RETRY_INTERVAL)
    }

    /// Why there is no answer.
    fn failure(&mut self) -> Error {
        match self.lost.take() {
            Some((server, cause)) => {
                Error::Lost { key: self.request.key().to_vec(), server, cause }
            }
            None => Error::NoServer(std::mem::take(&mut self.passed_over)),
        }
    }
}
