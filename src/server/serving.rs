//! Serves clients and operators, one turn at a time: listeners, connections, the engine.

use super::accepting::Newcomer;
use super::addresses::Purpose;
use super::asking::Asker;
use super::clients::Clients;
use super::clock;
use super::dispatch::Dispatch;
use super::http::Http;
use super::input::Input;
use super::listeners::Listeners;
use super::logging::limited;
use super::memory::Tidier;
use super::operator::Operator;
use super::options::Options;
use super::reporting::Reporting;
use super::sys;
use super::tokens::Source;
use super::world::mio::{Events, Poll};
use super::world::{Engine, thread};
use crate::engine::{ClientId, Time};
use log::{debug, error, info};
use std::io;
use std::time::Duration;

/// The serving parts, all of which a hot restart hands over.
pub(super) struct Serving {
    pub(super) poll: Poll,
    pub(super) listeners: Listeners,
    pub(super) clients: Clients,
    pub(super) engine: Engine,
    pub(super) reporting: Reporting,
    pub(super) operator: Operator,
    http: Http,
    input: Input,
    tidier: Tidier,
    /// When this turn began: the loop has stopped waiting for events.
    turn_began: Time,
    /// Events of this turn.
    events: usize,
}

impl Serving {
    /// Assembles the parts. `poll` must watch all of them already.
    pub(super) fn new(
        poll: Poll,
        listeners: Listeners,
        clients: Clients,
        mut engine: Engine,
        operator: Operator,
        options: &Options,
    ) -> Self {
        engine.watch.set_slow(options.slow);
        Serving {
            poll,
            listeners,
            clients,
            engine,
            reporting: Reporting::new(options),
            operator,
            http: Http::new(options),
            input: Input::new(),
            tidier: Tidier::default(),
            turn_began: clock::now(),
            events: 0,
        }
    }

    /// Waits for events, at most until `deadline`.
    pub(super) fn wait(&mut self, events: &mut Events, deadline: Option<Time>) {
        let now = clock::now();
        self.engine.measures.turns.count(now.ns_since(self.turn_began), self.events);
        let timeout = self.time_until_next_work(deadline, now);
        if let Err(e) = self.poll.poll(events, timeout) {
            // Those of the last turn would remain.
            events.clear();
            if e.kind() != io::ErrorKind::Interrupted {
                limited!(error, "waiting for events failed: {e}");
                // No documented error leads here; avoids a busy loop.
                thread::sleep(Duration::from_millis(10));
            }
        }
        self.turn_began = clock::now();
    }

    fn time_until_next_work(&self, deadline: Option<Time>, now: Time) -> Option<Duration> {
        let has_work =
            self.clients.has_work() || self.listeners.has_work() || self.reporting.has_work();
        if has_work {
            return Some(Duration::ZERO);
        }
        let deadlines = [
            self.engine.next_deadline(),
            self.listeners.next_deadline(),
            self.tidier.next_deadline(),
            self.http.next_deadline(),
            self.operator.next_deadline(),
            deadline,
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_nanos(next.ns_since(now)))
    }

    /// Walks the events once.
    pub(super) fn note_events(&mut self, events: &Events) {
        self.clients.begin_turn();
        self.listeners.start_turn(self.turn_began);
        self.events = 0;
        for event in events.iter() {
            self.events += 1;
            match Source::from(event.token()) {
                Source::Client(slot) => self.clients.note_event(slot, event),
                Source::Listener(number) => self.listeners.note_ready(number),
                Source::Http(number) => self.http.note_event(number),
                source => self.operator.note_event(source, event),
            }
        }
    }

    /// Accepts new connections, as many as are left for this turn, and closes listeners
    /// whose time is over.
    pub(super) fn accept(&mut self) {
        let counters = &mut self.engine.counters;
        let registry = self.poll.registry();
        let is_draining = self.listeners.is_draining();
        loop {
            let has_room_for_http = self.http.has_room(self.turn_began);
            let open = self.clients.len();
            let Some(newcomer) = self.listeners.next(open, has_room_for_http, counters) else {
                break;
            };
            let Newcomer { socket, purpose } = newcomer;
            match purpose {
                Purpose::Clients => self.clients.admit(socket, registry, counters),
                Purpose::Control => self.operator.control.admit(socket, registry),
                Purpose::Http => self.http.admit(socket, registry, is_draining, self.turn_began),
            }
        }
        self.listeners.close_finished(registry);
    }

    /// Receives from all ready clients, handles their input, and ends waits that have
    /// timed out. Returns the time used for that.
    pub(super) fn handle_input(&mut self) -> Time {
        loop {
            let has_more = self.clients.receive(&mut self.input);
            let now = clock::now();
            let mut dispatch = Dispatch {
                clients: &mut self.clients,
                engine: &mut self.engine,
                reporting: &mut self.reporting,
                registry: self.poll.registry(),
                now,
            };
            dispatch.handle(&mut self.input);
            if !has_more {
                dispatch.expire();
                return now;
            }
        }
    }

    /// Continues reports and HTTP exchanges.
    pub(super) fn report(&mut self, now: Time) {
        let is_draining = self.listeners.is_draining();
        for (client, ask) in self.http.handle(is_draining, now) {
            self.reporting.ask(Asker::Http(client), ask);
        }
        let (engine, clients) = (&mut self.engine, &mut self.clients);
        let waits = |asker| match asker {
            Asker::Client(_) => true,
            Asker::Http(client) => self.http.waits(client),
            Asker::Operator(client) => self.operator.control.awaits_report(client),
        };
        for (asker, text) in self.reporting.step(engine, clients, is_draining, now, waits) {
            match asker {
                Asker::Client(client) => self.dispatch(now).deliver_report(client, text),
                Asker::Http(client) => self.http.answer(client, text, now),
                Asker::Operator(client) => self.operator.report(client, text),
            }
        }
    }

    fn dispatch(&mut self, now: Time) -> Dispatch<'_> {
        Dispatch {
            clients: &mut self.clients,
            engine: &mut self.engine,
            reporting: &mut self.reporting,
            registry: self.poll.registry(),
            now,
        }
    }

    /// Sends everything owed before the loop sleeps, and closes ended connections: the
    /// last step for clients in a turn.
    pub(super) fn finish_turn(&mut self, now: Time) {
        let mut dispatch = self.dispatch(now);
        dispatch.send();
        dispatch.note_observed();
        if self.clients.close_scheduled() {
            self.listeners.note_closed();
        }
        if self.http.has_room_again(now) {
            self.listeners.note_room_for_http();
        }
    }

    /// Returns memory to the system after many clients have left.
    pub(super) fn tidy(&mut self, now: Time) {
        if !self.tidier.is_due(self.clients.spare().max(self.engine.spare()), now) {
            return;
        }
        self.engine.shrink();
        self.clients.shrink();
        self.input.shrink();
        sys::give_memory_back();
        debug!("returned unused memory");
    }

    /// Disconnects the clients whose connections a hot restart has lost.
    pub(super) fn disconnect_lost(&mut self, lost: Vec<(ClientId, io::Error)>) {
        for (client, e) in lost {
            error!("#{} was lost in the hot restart: {e}", client.serial);
            self.engine.disconnect(client, clock::now());
        }
    }

    /// Counts and logs that the daemon continues after a hot restart.
    pub(super) fn note_resumed(&mut self, version: &str, pause_ns: u64) {
        let restarts = &mut self.engine.measures.restarts;
        restarts.done += 1;
        restarts.pause_ns += pause_ns;
        restarts.last_pause_ns = pause_ns;
        let pause_us = pause_ns / 1_000;
        let counters = &self.engine.counters;
        info!(
            "poolcounterd {version} continued after a pause of {pause_us} µs with {} connections, \
             {} locks and {} waits; listening on {}",
            self.clients.len(),
            counters.processing_workers,
            counters.waiting_workers,
            self.listeners.names(),
        );
        self.listeners.log_http();
    }
}
