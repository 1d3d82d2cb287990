//! Makes the reports of `STATS` and HTTP, which take time. Requests wait in queues, and
//! each turn of the loop does a few steps, so that neither many keys nor many requests
//! hold it up. Requests that come during a survey wait for the next one, which serves
//! all of them. Operators and HTTP have a queue of their own, which comes first.
#![allow(clippy::disallowed_methods)]

use crate::engine::{Engine, Time};
use crate::protocol::{Query, Span, Subject};
use crate::reports::figures::Figures;
use crate::reports::json::{self, Tops};
use crate::reports::survey::{PLACES_PER_TURN, Survey, Wants};
use crate::reports::{self, View, exporter, prometheus};
use crate::server::clients::connections::Clients;
use crate::server::kernel::clock;
use crate::server::kernel::usage;
use crate::server::kernel::world::CONNECTIONS_PER_TURN;
use crate::server::operator::control::ControlClient;
use crate::server::options::Options;
use crate::server::reporting::asking::{Ask, Asker};
use std::collections::VecDeque;

/// What the reports of a turn may [`cost`] before clients are served again.
const COST_PER_TURN: usize = 64 * 1024;

/// The requests that are not answered yet.
pub(crate) struct Reporting {
    /// Those of operators and of HTTP, who must see what a crowd of clients does to the
    /// daemon. They are few: each connection waits for one at a time.
    first: Queue,
    /// Those of clients.
    others: Queue,
    /// Only operators may see keys and addresses.
    is_private: bool,
    /// How many keys `/metrics` names.
    hot_keys: usize,
}

/// Requests in the order in which they came.
#[derive(Default)]
struct Queue {
    /// They need no survey.
    direct: VecDeque<(Asker, Ask)>,
    /// They wait for the next survey.
    waiting: VecDeque<(Asker, Ask)>,
    under_way: Option<UnderWay>,
}

/// A survey, and the requests that wait for it.
struct UnderWay {
    survey: Survey,
    /// What it has not seen yet.
    left: Wants,
    /// The slot of the next connection to look at.
    next_slot: usize,
    requests: VecDeque<(Asker, Ask)>,
}

impl Reporting {
    pub(crate) fn new(options: &Options) -> Self {
        Reporting {
            first: Queue::default(),
            others: Queue::default(),
            is_private: options.private,
            hot_keys: options.http_keys,
        }
    }

    /// Puts a request into its queue.
    pub(crate) fn ask(&mut self, asker: Asker, ask: Ask) {
        match asker {
            Asker::Operator(_) | Asker::Http(_) => self.first.ask(asker, ask),
            Asker::Client(_) => self.others.ask(asker, ask),
        }
    }

    /// Whether the next turn should start at once.
    pub(crate) fn has_work(&self) -> bool {
        self.first.has_work() || self.others.has_work()
    }

    /// Whether an operator waits for a report. Clients ask the new image again after a
    /// hot restart; operators can't.
    pub(crate) fn has_operators(&self) -> bool {
        self.first.requests().any(|(asker, _)| matches!(asker, Asker::Operator(_)))
    }

    /// Forgets the requests of operators; returns who made them.
    pub(crate) fn give_up_operators(&mut self) -> Vec<ControlClient> {
        let mut given_up = Vec::new();
        self.first.retain(|asker| match asker {
            Asker::Operator(client) => {
                given_up.push(client);
                false
            }
            Asker::Client(_) | Asker::Http(_) => true,
        });
        given_up
    }

    /// Does the work of one turn; returns the answers that are ready. Operators and HTTP
    /// clients who do not wait any more are forgotten.
    pub(crate) fn step(
        &mut self,
        engine: &mut Engine,
        clients: &mut Clients,
        is_draining: bool,
        now: Time,
        waits: impl Fn(Asker) -> bool,
    ) -> Vec<(Asker, Vec<u8>)> {
        self.first.retain(waits);
        if !self.has_work() {
            return Vec::new();
        }
        self.first.survey(engine, clients, now);
        self.others.survey(engine, clients, now);
        let connections = clients.len();
        let process = usage::read();
        let started_wall_ns = started_wall_ns(engine);
        let version = env!("CARGO_PKG_VERSION");
        let figures = Figures { version, connections, is_draining, started_wall_ns, process };
        let (is_private, hot_keys) = (self.is_private, self.hot_keys);
        let maker = Maker { clients, figures: &figures, now, is_private, hot_keys };
        let mut answers = Answers::default();
        self.first.answer(&maker, engine, &mut answers);
        self.others.answer(&maker, engine, &mut answers);
        answers.made
    }
}

/// The reports of a turn, and what they [`cost`].
#[derive(Default)]
struct Answers {
    made: Vec<(Asker, Vec<u8>)>,
    cost: usize,
}

impl Queue {
    fn ask(&mut self, asker: Asker, ask: Ask) {
        let needs_survey = ask.wants() != Wants::default();
        let queue = if needs_survey { &mut self.waiting } else { &mut self.direct };
        queue.push_back((asker, ask));
    }

    fn has_work(&self) -> bool {
        !(self.direct.is_empty() && self.waiting.is_empty()) || self.under_way.is_some()
    }

    fn requests(&self) -> impl Iterator<Item = &(Asker, Ask)> {
        let under_way = self.under_way.iter().flat_map(|under_way| &under_way.requests);
        self.direct.iter().chain(&self.waiting).chain(under_way)
    }

    /// Forgets the requests of others.
    fn retain(&mut self, mut stays: impl FnMut(Asker) -> bool) {
        let under_way = self.under_way.iter_mut().map(|under_way| &mut under_way.requests);
        for queue in [&mut self.direct, &mut self.waiting].into_iter().chain(under_way) {
            queue.retain(|(asker, _)| stays(*asker));
        }
        self.end_survey();
    }

    /// Begins a survey if one is waited for, and does its work of a turn.
    fn survey(&mut self, engine: &Engine, clients: &mut Clients, now: Time) {
        if self.under_way.is_none() && !self.waiting.is_empty() {
            self.under_way = Some(UnderWay::new(std::mem::take(&mut self.waiting), now));
        }
        if let Some(under_way) = &mut self.under_way {
            under_way.walk(engine, clients);
        }
    }

    fn end_survey(&mut self) {
        if self.under_way.as_ref().is_some_and(|it| it.requests.is_empty()) {
            self.under_way = None;
        }
    }

    /// Makes reports until those of this turn cost enough, but at least one: no queue
    /// waits for another one to be empty.
    fn answer(&mut self, maker: &Maker, engine: &mut Engine, answers: &mut Answers) {
        let nothing = Survey::default();
        loop {
            // Alternates between the kinds, so that neither waits for a crowd of the other.
            let surveyed = self.under_way.as_mut().filter(|it| it.is_done());
            let surveyed = surveyed.and_then(|it| Some((it.requests.pop_front()?, &it.survey)));
            let direct = self.direct.pop_front().map(|request| (request, &nothing));
            if surveyed.is_none() && direct.is_none() {
                break;
            }
            for ((asker, ask), survey) in surveyed.into_iter().chain(direct) {
                let text = maker.report(engine, asker, &ask, survey);
                answers.cost += cost(&ask, text.len());
                answers.made.push((asker, text));
            }
            if answers.cost >= COST_PER_TURN {
                break;
            }
        }
        self.end_survey();
    }
}

/// What a report costs: the number of bytes of a plain list that takes as long to make.
/// Sorting the rows of an hour takes milliseconds (docs/operations.md).
fn cost(ask: &Ask, bytes: usize) -> usize {
    let before_the_first_byte = match ask {
        Ask::Query(Query::Json) => COST_PER_TURN,
        Ask::Query(Query::Top(Span::Hour, _)) => COST_PER_TURN / 2,
        Ask::Query(Query::Top(Span::Minute, _)) | Ask::Metrics => COST_PER_TURN / 8,
        Ask::Query(_) | Ask::Exporter => COST_PER_TURN / 64,
    };
    before_the_first_byte + bytes
}

/// When the daemon was started, in nanoseconds since 1970. Another answer would look like
/// another start, so the first one stands, also if the wall clock is set later.
fn started_wall_ns(engine: &mut Engine) -> u64 {
    let age_ns = clock::now().ns_since(engine.started());
    *engine.started_wall_ns.get_or_insert_with(|| clock::wall_ns().saturating_sub(age_ns))
}

impl UnderWay {
    fn new(requests: VecDeque<(Asker, Ask)>, now: Time) -> Self {
        let wants = requests.iter().map(|(_, ask)| ask.wants());
        let wants = wants.fold(Wants::default(), Wants::and);
        UnderWay { survey: Survey::new(now), left: wants, next_slot: 0, requests }
    }

    fn is_done(&self) -> bool {
        self.left == Wants::default()
    }

    /// Looks at the next keys and connections.
    fn walk(&mut self, engine: &Engine, clients: &mut Clients) {
        if self.is_done() {
            return;
        }
        self.survey.note_turn();
        // Keys that appear after all were seen belong to a later moment.
        if self.left.keys {
            self.left.keys = !self.survey.step(engine, PLACES_PER_TURN);
        }
        if self.left.clients {
            let end = self.next_slot + CONNECTIONS_PER_TURN;
            clients.for_each_address(self.next_slot..end, |client, address| {
                let locks = engine.client(client).into_iter().flat_map(|client| client.locks());
                let (mut holds, mut waits) = (0, 0);
                for lock in locks {
                    holds += u64::from(lock.is_held());
                    waits += u64::from(lock.phase().waits());
                }
                self.survey.add_connection(address, holds, waits);
            });
            self.next_slot = end;
            self.left.clients = end < clients.slots();
        }
    }
}

/// Makes reports.
struct Maker<'a> {
    clients: &'a Clients,
    figures: &'a Figures,
    now: Time,
    is_private: bool,
    hot_keys: usize,
}

impl Maker<'_> {
    fn report(&self, engine: &mut Engine, asker: Asker, ask: &Ask, survey: &Survey) -> Vec<u8> {
        let is_private = self.is_private && !matches!(asker, Asker::Operator(_));
        let text = match ask {
            Ask::Query(Query::Json) => return self.json(engine, is_private, survey),
            Ask::Query(query) => {
                let top = match query {
                    Query::Top(span, subject) => Some(engine.watch.top(*span, *subject, self.now)),
                    _ => None,
                };
                reports::report(query, &self.view(engine, is_private), survey, top.as_ref())
            }
            Ask::Metrics => {
                let rows = self.hot_keys;
                let top =
                    (rows > 0).then(|| engine.watch.top(Span::Minute, Subject::Keys, self.now));
                let top = top.as_ref().map(|top| (top, rows));
                prometheus::metrics(&self.view(engine, is_private), survey, top)
            }
            Ask::Exporter => exporter::metrics(&self.view(engine, is_private)),
        };
        text.into_bytes()
    }

    fn json(&self, engine: &mut Engine, is_private: bool, survey: &Survey) -> Vec<u8> {
        let mut both = |subject| {
            [Span::Minute, Span::Hour].map(|span| engine.watch.top(span, subject, self.now))
        };
        let tops = Tops { keys: both(Subject::Keys), clients: both(Subject::Clients) };
        // Can't fail: plain data with text keys and finite numbers, written to memory.
        let report = json::report(&self.view(engine, is_private), survey, &tops);
        let mut text = serde_json::to_vec(&report).unwrap_or_default();
        text.extend_from_slice(b"\n\n");
        text
    }

    fn view<'a>(&'a self, engine: &'a Engine, is_private: bool) -> View<'a> {
        View {
            engine,
            now: self.now,
            wall_ns: clock::wall_ns(),
            figures: self.figures,
            peers: self.clients,
            is_private,
        }
    }
}
