//! The steps of one turn of the loop. Decides nothing about locks.

use crate::listening::accepting::NewConnection;
use crate::listening::addresses::Purpose;
use crate::logging::logger;
use crate::logging::rate_limit::limited;
use crate::logging::systemd::Status;
use crate::platform::os::mio::Events;
use crate::platform::os::thread;
use crate::platform::{clock, sys};
use crate::reporting::process_usage;
use crate::reporting::report_queue::Requester;
use crate::restart::parts::Parts;
use crate::serving::Server;
use crate::serving::dispatch::Dispatch;
use crate::serving::memory_release::MemoryRelease;
use crate::sockets::slots::Source;
use engine::Time;
use log::debug;
use reports::ServerFigures;
use std::io;
use std::time::Duration;

pub(super) const EVENTS_PER_TURN: usize = 1024;

/// Why the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal to stop.
    Stopped,
    /// The last client of a drain has left.
    Drained,
}

impl Server {
    /// Serves until the daemon ends; returns why it ended.
    pub fn run(mut self) -> Ended {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let ended = loop {
            if let Some(ended) = self.turn(&mut events) {
                break ended;
            }
        };
        self.stop();
        ended
    }

    /// Ends what would outlive the loop, and disconnects the clients.
    pub(super) fn stop(self) {
        let Server { mut service_manager, restart, http, parts, .. } = self;
        let Parts { poll, mut listeners, clients, operator, .. } = parts;
        let is_delivered = service_manager.stopping();
        restart.abandon();
        listeners.remove_files();
        // Clients are disconnected before anything waits for systemd or the log.
        drop(poll);
        listeners.close_tcp();
        drop((clients, http));
        operator.control.close();
        drop(listeners);
        if !is_delivered {
            service_manager.stopping_at_last();
        }
        logger::flush_briefly();
    }

    /// Runs one turn of the loop. Operators' orders come last, so that a hot restart
    /// finds no work half done.
    pub(super) fn turn(&mut self, events: &mut Events) -> Option<Ended> {
        let has_waited = self.wait(events);
        self.record_history();
        self.record_events(events);
        if self.parts.clients.newcomers() > 0 && has_waited && self.events < EVENTS_PER_TURN {
            self.parts.clients.record_all_events();
        }
        let now = self.handle_input();
        self.make_reports(now);
        self.send_owed(now);
        self.accept(now);
        self.service_manager.notify(&self.status(), now);
        logger::retry(now);
        self.execute_orders(now)
    }
}

/// The steps of a turn.
impl Server {
    fn status(&self) -> Status {
        let counters = &self.parts.engine.counters;
        Status {
            connections: self.parts.clients.len(),
            held: counters.processing_workers,
            waiting: counters.waiting_workers,
            keys: counters.hashtable_entries,
            is_draining: self.parts.listeners.is_draining(),
        }
    }

    /// Waits for events, or until there is work without one. Returns whether the kernel has told
    /// its events.
    fn wait(&mut self, events: &mut Events) -> bool {
        let now = clock::now();
        self.parts.engine.measures.turns.count(now.ns_since(self.turn_began), self.events);
        let timeout = self.time_until_next_work(now);
        let waited = self.parts.poll.poll(events, timeout);
        if let Err(e) = &waited {
            // Otherwise the last turn's events remain.
            events.clear();
            if e.kind() != io::ErrorKind::Interrupted {
                limited!(error, "waiting for events failed: epoll_wait: {e}");
                // No documented error leads here; avoids a busy loop.
                thread::sleep(Duration::from_millis(10));
            }
        }
        self.turn_began = clock::now();
        waited.is_ok()
    }

    /// Comes first in a turn: a daemon that slept fills the gap with what was then.
    fn record_history(&mut self) {
        let history = &mut self.parts.history;
        if history.is_due(self.turn_began) {
            history.add_points(&mut self.parts.engine, clock::cpu_ns(), self.turn_began);
        }
    }

    fn time_until_next_work(&self, now: Time) -> Option<Duration> {
        let may_accept = self.parts.listeners.has_work(self.http.has_room(now));
        if may_accept && !self.awaits_newcomers(now)
            || self.parts.clients.has_work()
            || self.reporting.has_work()
        {
            return Some(Duration::ZERO);
        }
        let deadlines = [
            self.parts.engine.next_deadline(),
            self.parts.listeners.next_deadline(),
            self.memory_release.next_deadline(),
            self.http.next_deadline(),
            self.parts.operator.next_deadline(),
            self.parts.operator.settings.rules.next_deadline(),
            self.service_manager.next_deadline(),
            self.restart.deadline(),
            logger::next_deadline(),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_nanos(next.ns_since(now)))
    }

    fn record_events(&mut self, events: &Events) {
        self.parts.listeners.begin_turn(self.turn_began);
        self.events = 0;
        for event in events.iter() {
            self.events += 1;
            match Source::from(event.token()) {
                Source::Client(slot) => self.parts.clients.record_event(slot, event),
                Source::Listener(number) => self.parts.listeners.record_ready(number),
                Source::Http(number) => self.http.record_event(number),
                Source::Trial => self.restart.record_trial_end(),
                source @ (Source::Signals | Source::Operator(_)) => {
                    self.parts.operator.record_event(source);
                }
            }
        }
        self.parts.clients.begin_shares();
    }

    /// Accepts new connections, as many as are left for this turn, and closes finished
    /// listeners. Comes after the closes of a turn, which give places back.
    pub(super) fn accept(&mut self, now: Time) {
        let registry = self.parts.poll.registry();
        if self.parts.clients.decide_newcomers(registry, &mut self.parts.engine.counters, now) {
            self.parts.listeners.record_closed();
        }
        while !self.awaits_newcomers(now) {
            let has_room_for_http = self.http.has_room(self.turn_began);
            let open = self.parts.clients.len() + self.parts.clients.newcomers();
            let Some(new) = self.parts.listeners.accept(open, has_room_for_http) else {
                break;
            };
            let NewConnection { socket, purpose } = new;
            match purpose {
                Purpose::Clients => {
                    let counters = &mut self.parts.engine.counters;
                    let clients = &mut self.parts.clients;
                    clients.add(socket, registry, counters);
                    let held = clients.newcomers();
                    if held > 0 {
                        let listeners = &mut self.parts.listeners;
                        let descriptors = listeners.descriptors_for_newcomers(held, clients.len());
                        clients.refuse_surplus(descriptors, counters);
                    }
                }
                Purpose::Control => self.parts.operator.control.add(socket, registry),
                Purpose::Http => self.http.add(socket, registry, self.turn_began),
            }
        }
        self.parts.listeners.close_finished(registry);
        self.parts.engine.counters.connect_errors += self.parts.listeners.take_errors();
    }

    /// Whether a hot restart is due, but newcomers are still held: they are decided before, and
    /// nobody else is accepted.
    pub(super) fn awaits_newcomers(&self, now: Time) -> bool {
        self.parts.clients.newcomers() > 0 && self.restart.is_due(now)
    }

    /// Receives from all ready clients, handles their input, and ends waits that have
    /// timed out. Returns the time used for that.
    fn handle_input(&mut self) -> Time {
        loop {
            let has_more = self.parts.clients.receive(&mut self.input);
            let now = clock::now();
            Dispatch::new(&mut self.parts, &mut self.reporting, now).handle(&mut self.input);
            if !has_more {
                // An expired rule must not end a hold.
                self.end_expired_rules(now);
                if self.dispatch(now).expire() {
                    self.close_freed(now);
                }
                return now;
            }
        }
    }

    /// Continues reports and HTTP exchanges.
    fn make_reports(&mut self, now: Time) {
        for (client, request) in self.http.handle(now) {
            self.reporting.enqueue(Requester::Http(client), request);
        }
        if !self.reporting.has_work() {
            return;
        }
        self.reporting.retain(|requester| match requester {
            Requester::Client(_) => true,
            Requester::Http(client) => self.http.waits(client),
            Requester::Operator(client) => self.parts.operator.control.awaits_answer(client),
        });
        let open_descriptors = self.open_descriptors();
        let started_wall_ns = self.started_wall_ns();
        let Parts { engine, clients, history, listeners, operator, .. } = &self.parts;
        let figures = || ServerFigures {
            version: env!("CARGO_PKG_VERSION"),
            connections: clients.len(),
            is_draining: listeners.is_draining(),
            started_wall_ns,
            rule_orders: operator.settings.rules.orders(),
            process: process_usage::read(open_descriptors),
        };
        for (requester, text) in self.reporting.step(engine, clients, history, &figures, now) {
            match requester {
                Requester::Client(client) => self.dispatch(now).deliver_report(client, text),
                Requester::Http(client) => self.http.answer(client, text, now),
                Requester::Operator(client) => self.parts.operator.report(client, text),
            }
        }
    }

    /// How many descriptors are open, without those that a trial has for a moment: the kernel, before
    /// Linux 6.2, tells it by a list, for which others would wait.
    pub(crate) fn open_descriptors(&self) -> u64 {
        let connections = self.parts.clients.len()
            + self.parts.clients.newcomers()
            + self.parts.operator.control.len()
            + self.http.len();
        (connections + self.parts.listeners.descriptors() + self.service_manager.descriptors())
            as u64
    }

    #[expect(clippy::disallowed_methods, reason = "reports show the wall clock")]
    fn started_wall_ns(&mut self) -> u64 {
        let age_ns = clock::now().ns_since(self.parts.engine.started());
        let started_wall_ns = &mut self.parts.engine.started_wall_ns;
        *started_wall_ns.get_or_insert_with(|| clock::wall_ns().saturating_sub(age_ns))
    }

    fn dispatch(&mut self, now: Time) -> Dispatch<'_> {
        Dispatch::new(&mut self.parts, &mut self.reporting, now)
    }

    /// Sends everything owed before the loop sleeps, closes ended connections, and returns
    /// their memory.
    pub(super) fn send_owed(&mut self, now: Time) {
        let mut dispatch = self.dispatch(now);
        dispatch.send();
        dispatch.record_observed();
        self.close_ended();
        self.release_memory(now);
    }

    /// Closes connections whose locks go to others, before these get them: the old holder
    /// notices first.
    pub(super) fn close_freed(&mut self, now: Time) {
        // Comes before the close: it needs the addresses of the connections.
        self.dispatch(now).record_observed();
        self.close_ended();
    }

    /// Closes the connections that have ended.
    fn close_ended(&mut self) {
        if self.parts.clients.close_scheduled() {
            self.parts.listeners.record_closed();
        }
    }

    /// Returns memory to the system after many clients have left.
    fn release_memory(&mut self, now: Time) {
        let spare = self.parts.clients.spare().max(self.parts.engine.spare());
        self.memory_release.record_spare(spare, now);
        if self.memory_release.next_deadline().is_none_or(|due| due > now) {
            return;
        }
        self.memory_release = MemoryRelease::default();
        self.parts.engine.shrink();
        self.parts.clients.shrink();
        self.input.shrink();
        sys::give_memory_back();
        debug!("returned unused memory");
    }
}
