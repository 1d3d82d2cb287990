//! HTTP for monitoring and for people, read-only: connections, deadlines and stages; which
//! connection it closes for a new client. A slow, silent or hostile client can't harm others:
//! connections are few, each has little time, and what a client may send and leave unread is
//! bounded.

pub(crate) mod head;
mod pages;

use crate::options::Options;
use crate::platform::os::io::Errno;
use crate::platform::os::mio::{Interest, Registry};
use crate::platform::os::net::{Shutdown, shutdown};
use crate::reporting::report_queue::ReportRequest;
use crate::sockets::ids::{HTTP_CONNECTIONS_MAX, HttpClient};
use crate::sockets::slots::Slots;
use crate::sockets::socket::{Socket, peer_address, peer_name};
use crate::sockets::stream::{Flushed, Stream};
use engine::Time;
use head::{AnswerPart, Head, parse};
use ipnet::IpNet;
use log::debug;
use pages::{Page, Response, find};
use std::net::IpAddr;

/// How long a client may take to send its request, to take the answer, and to close.
const REQUEST_S: u64 = 5;
const ANSWER_S: u64 = 10;
const CLOSE_S: u64 = 2;

/// A client isn't evicted until it has had this long to read its answer.
const PROMPT_S: u64 = 1;

/// How long a report may take before the request is given up.
const REPORT_S: u64 = 60;

/// All HTTP connections.
pub(crate) struct Http {
    exchanges: Slots<HttpClient, Exchange>,
    /// The slots of connections that had an event in this turn.
    ready: Vec<usize>,
    /// The reports requested in this turn.
    asked: Vec<(HttpClient, ReportRequest)>,
    allowed: Vec<IpNet>,
    /// The daemon takes no new clients, as `/-/ready` shows.
    is_draining: bool,
}

/// A request and its answer.
struct Exchange {
    stream: Stream,
    /// The received part of the request.
    head: Vec<u8>,
    stage: ExchangeStage,
    /// When the stage must be over.
    deadline: Time,
    ip: IpAddr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExchangeStage {
    /// The request is being received.
    Receiving,
    /// The report is being made.
    Waiting(ReportRequest),
    /// The answer is being sent.
    Sending,
    /// The answer is sent. The kernel would discard it if the socket were closed while
    /// input is unread.
    Closing,
}

impl Http {
    pub(crate) fn new(options: &Options) -> Self {
        let allowed =
            if options.http_allow.is_empty() { &options.allow } else { &options.http_allow };
        let allowed = allowed.clone();
        Http {
            exchanges: Slots::new(Interest::READABLE.add(Interest::WRITABLE)),
            ready: Vec::new(),
            asked: Vec::new(),
            allowed,
            is_draining: false,
        }
    }

    /// Notes whether the daemon takes no new clients.
    pub(crate) fn set_draining(&mut self, is_draining: bool) {
        self.is_draining = is_draining;
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.exchanges.len()
    }

    /// Serves a new connection, or closes it if its address is not admitted.
    pub(crate) fn add(&mut self, socket: Socket, registry: &Registry, now: Time) {
        let Ok(ip) = peer_address(&socket).map(|address| address.ip()) else {
            // The client has left already.
            return;
        };
        if !self.allowed.is_empty() && !self.allowed.iter().any(|net| net.contains(&ip)) {
            debug!("{} is not admitted to HTTP", peer_name(&socket));
            return;
        }
        if self.exchanges.len() >= HTTP_CONNECTIONS_MAX && !self.make_room(now) {
            return;
        }
        let open = |socket| Exchange {
            stream: Stream::new(socket),
            head: Vec::new(),
            stage: ExchangeStage::Receiving,
            deadline: now.plus_seconds(REQUEST_S),
            ip,
        };
        match self.exchanges.insert(socket, registry, open).map(|(client, _)| client.slot) {
            // Reads immediately: a connection whose request has arrived does not make room
            // for the next one.
            Ok(slot) => self.advance(slot as usize, now),
            Err(e) => {
                debug!("closing an HTTP connection that could not be registered with epoll: {e}")
            }
        }
    }

    /// Whether a new connection can be served now. If not, it waits in the backlog.
    pub(crate) fn has_room(&self, now: Time) -> bool {
        let mut all = self.exchanges.iter();
        self.exchanges.len() < HTTP_CONNECTIONS_MAX || all.any(|(_, it)| it.may_yield(now))
    }

    /// Closes a connection that has its answer, else the oldest one of the address with
    /// the most. Returns whether that made room.
    fn make_room(&mut self, now: Time) -> bool {
        let same = |ip| self.exchanges.iter().filter(|(_, other)| other.ip == ip).count();
        let candidates = self.exchanges.iter().filter(|(_, exchange)| exchange.may_yield(now));
        let most = candidates.max_by_key(|(_, exchange)| {
            let is_answered = exchange.stage == ExchangeStage::Closing;
            (is_answered, same(exchange.ip), std::cmp::Reverse(exchange.deadline))
        });
        let most = most.map(|(client, _)| client);
        most.and_then(|client| self.exchanges.remove(client)).is_some()
    }

    /// Notes an event of the connection in this slot.
    pub(crate) fn record_event(&mut self, slot: usize) {
        self.ready.push(slot);
    }

    /// When [`Http::handle`] has work without an event.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.exchanges.iter().map(|(_, exchange)| exchange.deadline).min()
    }

    /// Continues the ready connections and ends those that took too long. Returns the
    /// requested reports.
    pub(crate) fn handle(&mut self, now: Time) -> Vec<(HttpClient, ReportRequest)> {
        for slot in std::mem::take(&mut self.ready) {
            self.advance(slot, now);
        }
        if self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.end_late(now);
        }
        std::mem::take(&mut self.asked)
    }

    /// Answers requests that are late with an error, and closes other late connections.
    fn end_late(&mut self, now: Time) {
        let late = self.exchanges.iter().filter(|(_, exchange)| exchange.deadline <= now);
        let late: Vec<HttpClient> = late.map(|(client, _)| client).collect();
        for client in late {
            let Some(exchange) = self.exchanges.get_mut(client) else { continue };
            let is_request =
                exchange.stage == ExchangeStage::Receiving && !exchange.head.is_empty();
            if !is_request || exchange.answer(Response::refused(408), now) == Next::Ends {
                self.exchanges.remove(client);
            }
        }
    }

    fn advance(&mut self, slot: usize, now: Time) {
        let Some((client, exchange)) = self.exchanges.at_mut(slot) else {
            return;
        };
        let next = match exchange.stage {
            ExchangeStage::Receiving => match exchange.receive() {
                None => Next::Ends,
                Some(Head::Partial) => Next::GoesOn,
                Some(Head::Refused(status)) => exchange.answer(Response::refused(status), now),
                Some(Head::Get { path, query }) => {
                    exchange.open(&path, find(&path, &query, self.is_draining), now)
                }
            },
            ExchangeStage::Waiting(_) => Next::GoesOn,
            ExchangeStage::Sending => exchange.send(now),
            ExchangeStage::Closing => exchange.discard_input(),
        };
        match next {
            Next::Request(request) => self.asked.push((client, request)),
            Next::GoesOn => {}
            Next::Ends => drop(self.exchanges.remove(client)),
        }
    }

    /// Whether `client` still waits for the report that it has asked for.
    pub(crate) fn waits(&self, client: HttpClient) -> bool {
        let exchange = self.exchanges.get(client);
        exchange.is_some_and(|exchange| matches!(exchange.stage, ExchangeStage::Waiting(_)))
    }

    /// Sends the report that `client` has asked for, if it is still connected.
    pub(crate) fn answer(&mut self, client: HttpClient, report: Vec<u8>, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(client) else {
            return;
        };
        let ExchangeStage::Waiting(request) = &exchange.stage else {
            return;
        };
        let answer = Response::of_report(request, report);
        if exchange.answer(answer, now) == Next::Ends {
            self.exchanges.remove(client);
        }
    }
}

/// What becomes of a connection.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Request(ReportRequest),
    GoesOn,
    Ends,
}

impl Exchange {
    /// Whether it may be evicted for a new connection: not after its request has arrived,
    /// if it reads the answer promptly.
    fn may_yield(&self, now: Time) -> bool {
        match self.stage {
            ExchangeStage::Receiving | ExchangeStage::Closing => true,
            ExchangeStage::Waiting(_) => false,
            ExchangeStage::Sending => self.deadline < now.plus_seconds(ANSWER_S - PROMPT_S),
        }
    }

    /// Receives the head of the request, as much as there is. `None` if the client has gone.
    fn receive(&mut self) -> Option<Head> {
        let mut buffer = [0; 2048];
        loop {
            match self.stream.socket().receive(&mut buffer) {
                Ok(0) => return None,
                Ok(len) => self.head.extend_from_slice(&buffer[..len]),
                Err(Errno::AGAIN) => return Some(Head::Partial),
                Err(_) => return None,
            }
            match parse(&self.head) {
                Head::Partial => {}
                head => return Some(head),
            }
        }
    }

    fn open(&mut self, path: &str, page: Page, now: Time) -> Next {
        debug!("HTTP: {} asks for {}", peer_name(self.stream.socket()), path.escape_debug());
        match page {
            Page::Ready(answer) => self.answer(answer, now),
            Page::Report(request) => {
                self.stage = ExchangeStage::Waiting(request.clone());
                self.deadline = now.plus_seconds(REPORT_S);
                Next::Request(request)
            }
        }
    }

    fn answer(&mut self, answer: Response, now: Time) -> Next {
        let part = AnswerPart::of(&std::mem::take(&mut self.head));
        self.stream.push(answer.into_bytes(part).into());
        self.stage = ExchangeStage::Sending;
        self.deadline = now.plus_seconds(ANSWER_S);
        self.send(now)
    }

    fn send(&mut self, now: Time) -> Next {
        match self.stream.flush() {
            Flushed::Blocked => Next::GoesOn,
            Flushed::Failed(_) => Next::Ends,
            Flushed::All => {
                // Fails if the client has gone, which the next line notices.
                let _ = shutdown(self.stream.socket(), Shutdown::Write);
                self.stage = ExchangeStage::Closing;
                self.deadline = now.plus_seconds(CLOSE_S);
                self.discard_input()
            }
        }
    }

    fn discard_input(&mut self) -> Next {
        let mut buffer = [0; 2048];
        // A client that never stops sending has no more than its time for closing.
        for _ in 0..16 {
            match self.stream.socket().receive(&mut buffer) {
                Ok(len) if len > 0 => {}
                Err(Errno::AGAIN) => return Next::GoesOn,
                Ok(_) | Err(_) => return Next::Ends,
            }
        }
        Next::Ends
    }
}
