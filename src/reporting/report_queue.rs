//! Makes the reports of `STATS` and HTTP, which take time: requests in queues, a few steps each
//! turn, given up at a restart. Neither many keys nor many requests hold up the loop. Requests
//! that come during a scan wait for the next one, which serves all of them, but only those that
//! have the same pattern. Operators and HTTP have a queue of their own, which comes first.

use crate::clients::connections::Clients;
use crate::options::Options;
use crate::platform::clock;
use crate::platform::os::{CONNECTIONS_PER_TURN, PLACES_PER_TURN};
use crate::sockets::ids::{ControlClient, HttpClient};
use engine::{ClientId, Engine, Time};
use protocol::{List, Query, Span};
use reports::history::History;
use reports::lists::{self, written};
use reports::rules::{self, RuleSource};
use reports::scan::{Scan, ScanParts};
use reports::{ReportView, ServerFigures, json, metrics, text, wants_of};
use schema::reports::ListReport;
use std::collections::VecDeque;

/// What the reports of a turn may [`cost`] before clients are served again.
const COST_PER_TURN: usize = 64 * 1024;

/// The requests that are not answered yet.
pub(crate) struct Reporting {
    /// Requests of operators and HTTP, which must see what a crowd of clients does to the
    /// daemon. They are few: each connection waits for one report at a time.
    first: ReportQueue,
    /// Requests of clients.
    others: ReportQueue,
    /// Only operators may see keys and addresses.
    is_private: bool,
    /// How many keys `/metrics` names.
    hot_keys: usize,
}

/// Requests in the order in which they came.
#[derive(Default)]
struct ReportQueue {
    /// They need no scan.
    direct: VecDeque<(Requester, ReportRequest)>,
    /// They wait for the next scan.
    waiting: VecDeque<(Requester, ReportRequest)>,
    under_way: Option<RunningScan>,
}

/// A scan, and the requests that wait for it.
struct RunningScan {
    scan: Scan,
    /// What it has not seen yet.
    left: ScanParts,
    /// The slot of the next connection to look at.
    next_slot: usize,
    requests: VecDeque<(Requester, ReportRequest)>,
}

impl Reporting {
    pub(crate) fn new(options: &Options) -> Self {
        Reporting {
            first: ReportQueue::default(),
            others: ReportQueue::default(),
            is_private: options.private,
            hot_keys: options.http_keys,
        }
    }

    /// Whether clients may see no keys.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Puts a request into its queue.
    pub(crate) fn enqueue(&mut self, requester: Requester, request: ReportRequest) {
        match requester {
            Requester::Operator(_) | Requester::Http(_) => self.first.enqueue(requester, request),
            Requester::Client(_) => self.others.enqueue(requester, request),
        }
    }

    /// Whether the next turn should start at once.
    pub(crate) fn has_work(&self) -> bool {
        self.first.has_work() || self.others.has_work()
    }

    /// Drops the requests of operators and HTTP clients that no longer wait.
    pub(crate) fn retain(&mut self, waits: impl Fn(Requester) -> bool) {
        self.first.retain(waits);
    }

    /// Does the work of one turn; returns the answers that are ready.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        clients: &Clients,
        history: &History,
        figures: &dyn Fn() -> ServerFigures,
        now: Time,
    ) -> Vec<(Requester, Vec<u8>)> {
        self.first.scan(engine, clients, now);
        self.others.scan(engine, clients, now);
        let (is_private, hot_keys) = (self.is_private, self.hot_keys);
        let maker = Maker { engine, clients, figures, now, is_private, hot_keys, history };
        let mut answers = Answers::default();
        self.first.answer(&maker, &mut answers);
        self.others.answer(&maker, &mut answers);
        answers.made
    }
}

/// The reports of a turn, and what they [`cost`].
#[derive(Default)]
struct Answers {
    made: Vec<(Requester, Vec<u8>)>,
    cost: usize,
}

impl ReportQueue {
    fn enqueue(&mut self, requester: Requester, request: ReportRequest) {
        let needs_scan = request.wants() != ScanParts::default();
        let queue = if needs_scan { &mut self.waiting } else { &mut self.direct };
        queue.push_back((requester, request));
    }

    fn has_work(&self) -> bool {
        !(self.direct.is_empty() && self.waiting.is_empty()) || self.under_way.is_some()
    }

    /// Drops the requests of all requesters that do not stay.
    fn retain(&mut self, mut stays: impl FnMut(Requester) -> bool) {
        let under_way = self.under_way.iter_mut().map(|under_way| &mut under_way.requests);
        for queue in [&mut self.direct, &mut self.waiting].into_iter().chain(under_way) {
            queue.retain(|(requester, _)| stays(*requester));
        }
        self.end_scan();
    }

    /// Begins a scan if a request waits for one, and does its work of a turn.
    fn scan(&mut self, engine: &Engine, clients: &Clients, now: Time) {
        if self.under_way.is_none() && !self.waiting.is_empty() {
            // Each of many that have left might want a scan of its own.
            self.waiting.retain(|(requester, _)| is_there(*requester, clients));
            self.under_way = self.next_scan(now);
        }
        if let Some(under_way) = &mut self.under_way {
            under_way.walk(engine, clients);
        }
    }

    /// A scan for those that wait; of those with patterns, for the first one's: a turn compares
    /// each key with one.
    fn next_scan(&mut self, now: Time) -> Option<RunningScan> {
        let mut patterns = self.waiting.iter().filter_map(|(_, request)| request.pattern());
        let pattern = patterns.next().map(<[u8]>::to_vec);
        let (requests, later): (VecDeque<_>, _) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(_, request)| {
                request.pattern().is_none_or(|other| Some(other) == pattern.as_deref())
            });
        self.waiting = later;
        let wants = requests.iter().map(|(_, request)| request.wants());
        let left = wants.fold(ScanParts::default(), ScanParts::and);
        let scan = Scan::new(now, pattern.as_deref());
        (!requests.is_empty()).then_some(RunningScan { scan, left, next_slot: 0, requests })
    }

    fn end_scan(&mut self) {
        if self.under_way.as_ref().is_some_and(|it| it.requests.is_empty()) {
            self.under_way = None;
        }
    }

    /// Makes reports until those of this turn cost enough, but at least one: no queue
    /// waits for another one to be empty.
    fn answer(&mut self, maker: &Maker<'_>, answers: &mut Answers) {
        let nothing = Scan::default();
        loop {
            // Alternates between the kinds, so that neither waits for a crowd of the other.
            let scanned = self.under_way.as_mut().filter(|it| it.is_done());
            let scanned = scanned.and_then(|it| Some((maker.next(&mut it.requests)?, &it.scan)));
            let direct = maker.next(&mut self.direct).map(|request| (request, &nothing));
            if scanned.is_none() && direct.is_none() {
                break;
            }
            for ((requester, request), scan) in scanned.into_iter().chain(direct) {
                let text = maker.report(requester, &request, scan);
                answers.cost += cost(&request, text.len());
                answers.made.push((requester, text));
            }
            if answers.cost >= COST_PER_TURN {
                break;
            }
        }
        self.end_scan();
    }
}

/// What a report costs: the number of bytes of a plain list that takes as long to make.
/// Sorting the rows of an hour takes milliseconds (docs/development/evidence.md).
fn cost(request: &ReportRequest, bytes: usize) -> usize {
    let before_the_first_byte = match request {
        ReportRequest::Query(Query::Json) => COST_PER_TURN,
        ReportRequest::Query(
            Query::List(List::Top(span, _)) | Query::JsonList(List::Top(span, _)),
        ) => match span {
            Span::Hour => COST_PER_TURN / 2,
            Span::Minute => COST_PER_TURN / 4,
        },
        ReportRequest::Query(Query::History) | ReportRequest::Metrics => COST_PER_TURN / 8,
        ReportRequest::Query(_) | ReportRequest::Rules { .. } | ReportRequest::Exporter => {
            COST_PER_TURN / 64
        }
    };
    before_the_first_byte + bytes
}

impl RunningScan {
    fn is_done(&self) -> bool {
        self.left == ScanParts::default()
    }

    /// Looks at the next keys and connections.
    fn walk(&mut self, engine: &Engine, clients: &Clients) {
        if self.is_done() {
            return;
        }
        self.scan.count_turn();
        // Keys that appear after all were seen belong to a later moment.
        if self.left.keys {
            self.left.keys = !self.scan.step(engine, PLACES_PER_TURN);
        }
        if self.left.clients {
            let end = self.next_slot + CONNECTIONS_PER_TURN;
            clients.for_each_address(self.next_slot..end, |client, address| {
                let (mut holds, mut waits) = (0, 0);
                for lock in engine.locks_of(client) {
                    holds += u64::from(lock.is_held());
                    waits += u64::from(!lock.is_held());
                }
                self.scan.add_connection(address, holds, waits);
            });
            self.next_slot = end;
            self.left.clients = end < clients.slots();
        }
    }
}

/// Makes reports.
struct Maker<'a> {
    engine: &'a Engine,
    clients: &'a Clients,
    /// They take some system calls.
    figures: &'a dyn Fn() -> ServerFigures,
    now: Time,
    is_private: bool,
    hot_keys: usize,
    history: &'a History,
}

impl Maker<'_> {
    /// The next request, without those of clients that have left.
    fn next(
        &self,
        requests: &mut VecDeque<(Requester, ReportRequest)>,
    ) -> Option<(Requester, ReportRequest)> {
        loop {
            let next = requests.pop_front()?;
            if is_there(next.0, self.clients) {
                return Some(next);
            }
        }
    }

    fn report(&self, requester: Requester, request: &ReportRequest, scan: &Scan) -> Vec<u8> {
        let view = self.view(requester);
        let text = match request {
            ReportRequest::Query(query) => self.query(query, &view, scan),
            ReportRequest::Rules { sources, as_json } => {
                list(&rules::list(&view, scan, sources), *as_json)
            }
            ReportRequest::Metrics => {
                metrics::metrics(&view, &(self.figures)(), scan, self.hot_keys)
            }
            ReportRequest::Exporter => metrics::legacy(&view),
        };
        text.into_bytes()
    }

    fn query(&self, query: &Query, view: &ReportView<'_>, scan: &Scan) -> String {
        match query {
            Query::Json => written(&json::report(view, &(self.figures)(), scan)),
            Query::History => written(&self.history.report(view)),
            Query::MatchingKeys(query) => written(&lists::matching_keys(query, view, scan)),
            Query::List(query) => list(&lists::list(query, view, scan), false),
            Query::JsonList(query) => list(&lists::list(query, view, scan), true),
            // Answered at once, without a report.
            Query::Full | Query::Uptime | Query::Counter(_) => String::new(),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "reports show the wall clock")]
    fn view(&self, requester: Requester) -> ReportView<'_> {
        ReportView {
            engine: self.engine,
            now: self.now,
            wall_ns: clock::wall_ns(),
            peers: self.clients,
            is_private: self.is_private && !matches!(requester, Requester::Operator(_)),
        }
    }
}

/// A list as JSON or as text. A blank line ends both.
fn list(report: &ListReport, as_json: bool) -> String {
    if as_json { written(report) } else { text(report) + "\n" }
}

/// False for a client that has left. Others that have left are dropped at once.
fn is_there(requester: Requester, clients: &Clients) -> bool {
    match requester {
        Requester::Client(client) => clients.awaits_report(client),
        Requester::Operator(_) | Requester::Http(_) => true,
    }
}

/// Who asks for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    Client(ClientId),
    Operator(ControlClient),
    Http(HttpClient),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportRequest {
    Query(Query),
    /// The rules, with their sources.
    Rules {
        sources: Vec<RuleSource>,
        as_json: bool,
    },
    /// `/metrics`.
    Metrics,
    /// `/prometheus`.
    Exporter,
}

impl ReportRequest {
    /// With what keys are compared.
    fn pattern(&self) -> Option<&[u8]> {
        match self {
            ReportRequest::Query(Query::MatchingKeys(query)) => Some(&query.pattern),
            _ => None,
        }
    }

    /// What has to be scanned first.
    pub(crate) fn wants(&self) -> ScanParts {
        match self {
            ReportRequest::Query(query) => wants_of(query),
            ReportRequest::Metrics | ReportRequest::Rules { .. } => {
                ScanParts { keys: true, clients: false }
            }
            ReportRequest::Exporter => ScanParts::default(),
        }
    }
}
