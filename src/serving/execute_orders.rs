//! What each order does: `DRAIN`, `UNDRAIN`, `FREE`, `RULE`, `LOG`, `STATS`; begins and
//! finishes a hot restart.

use crate::clients::connections::Clients;
use crate::listening::addresses::ListenError;
use crate::logging::logger;
use crate::operator::control_socket::{self, Free, FreeTarget, RefusedOrder, Request};
use crate::operator::orders::Order;
use crate::operator::rule_book::RuleOrder;
use crate::platform::clock;
use crate::platform::os::Engine;
use crate::reporting::report_queue::{ReportRequest, Requester};
use crate::restart::old_image::RefusedRestart;
use crate::restart::parts::Parts;
use crate::restart::restart_error::RestartError;
use crate::serving::{Ended, Server};
use crate::sockets::ids::ControlClient;
use engine::{ClientId, Time};
use log::{error, info};
use protocol::answers::{DRAINED, ERROR, NOT_DRAINING, OK};
use protocol::{Query, key_text};
use reports::lists::{freed, written};
use reports::{ReportView, StatsAnswer, stats, text};
use schema::reports::ListReport;
use schema::words::Event;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Display;

/// How a request on the control socket is answered.
enum Answer {
    Now(String),
    /// With a report, or when a drain or a hot restart is done.
    Separately,
}

impl Server {
    /// Executes the orders of this turn; returns why the daemon ends, if it does.
    pub(super) fn execute_orders(&mut self, now: Time) -> Option<Ended> {
        for order in self.parts.operator.take_orders(now) {
            match order {
                Order::Stop(why) => {
                    info!("{why}; {} connections are closed", self.parts.clients.len());
                    return Some(Ended::Stopped);
                }
                Order::Restart => self.begin_restart(None, None),
                Order::Drain => self.drain(),
                // Errors are logged already.
                Order::ToggleDrain if self.parts.listeners.is_draining() => drop(self.undrain()),
                Order::ToggleDrain => self.drain(),
                Order::Asked(client, request) => self.serve_request(client, request, now),
                Order::Ended(client) => self.parts.operator.record_ended(client),
            }
        }
        if self.restart.is_due(now) && !self.awaits_newcomers(now) {
            self.finish_restart();
        }
        if self.parts.listeners.is_draining() { self.end_drain(now) } else { None }
    }

    /// Ends the daemon once nobody is left, no newcomer either, and all operators have their
    /// answers.
    fn end_drain(&mut self, now: Time) -> Option<Ended> {
        let clients = self.parts.clients.len();
        if clients + self.parts.clients.newcomers() == 0 && !self.parts.listeners.is_closing() {
            if !self.parts.operator.control.has_unsent() {
                self.parts.operator.answer_waiting(DRAINED);
            }
            if !self.parts.operator.control.has_unsent() {
                info!("drained: the last client has left");
                return Some(Ended::Drained);
            }
        }
        self.parts.listeners.log_drain(clients, now);
        None
    }

    fn serve_request(
        &mut self,
        client: ControlClient,
        request: Result<Request, RefusedOrder>,
        now: Time,
    ) {
        let result = request.and_then(|request| match request {
            Request::Restart(_) if self.restart.is_under_way() => {
                let why = RefusedOrder::UnderWay;
                info!("{why}");
                Err(why)
            }
            Request::Restart(arguments) => {
                self.begin_restart(arguments, Some(client));
                Ok(Answer::Separately)
            }
            Request::Drain => {
                self.drain();
                let left = self.parts.clients.len();
                Ok(Answer::Now(format!("{OK}draining, connections left: {left}")))
            }
            Request::Drained if self.parts.listeners.is_draining() => {
                self.parts.operator.wait_for_end(client);
                Ok(Answer::Separately)
            }
            Request::Drained => Ok(Answer::Now(NOT_DRAINING.to_owned())),
            Request::Undrain => {
                self.undrain().map_err(|why| RefusedOrder::StillDraining(why.into()))?;
                Ok(Answer::Now(format!("{OK}listening on {}", self.parts.listeners.names())))
            }
            Request::Log(filter) => {
                if let Some(filter) = filter {
                    self.parts.operator.settings.set_log(filter).map_err(RefusedOrder::Filter)?;
                    self.mark(Event::Log, &logger::filter());
                }
                Ok(Answer::Now(format!("{OK}log filter: {}", logger::filter())))
            }
            Request::Free(free) => self.free(free, now).map(Answer::Now),
            Request::Rules { as_json } => {
                let sources = self.parts.operator.settings.rules.sources();
                let request = ReportRequest::Rules { sources, as_json };
                self.reporting.enqueue(Requester::Operator(client), request);
                Ok(Answer::Separately)
            }
            Request::Rule(order) => self.change_rules(order, now).map(Answer::Now),
            Request::Stats(query) => self.report(client, query),
            Request::Help => Ok(Answer::Now(control_socket::help())),
        });
        match result {
            Ok(Answer::Now(answer)) => self.parts.operator.answer(client, &answer),
            Ok(Answer::Separately) => {}
            Err(why) => self.parts.operator.answer(client, &format!("{ERROR}{}", one_line(&why))),
        }
    }

    /// Answers at once if that is possible; otherwise in one of the next turns.
    fn report(&mut self, client: ControlClient, query: Query) -> Result<Answer, RefusedOrder> {
        match stats(&query, &self.parts.engine, clock::now(), false) {
            StatsAnswer::Text(text) => self.parts.operator.report(client, text),
            StatsAnswer::Unknown => return Err(RefusedOrder::NoStatistic),
            StatsAnswer::Report => {
                self.reporting.enqueue(Requester::Operator(client), ReportRequest::Query(query));
            }
        }
        Ok(Answer::Separately)
    }

    fn change_rules(&mut self, order: RuleOrder, now: Time) -> Result<String, RefusedOrder> {
        let answer = self.parts.operator.settings.rules.execute(order, now);
        let answer = answer.map_err(RefusedOrder::Rules)?;
        self.set_rules(now);
        self.send_owed(now);
        self.mark(Event::Rule, &answer);
        Ok(format!("{OK}rule {answer}"))
    }

    /// Passes the rules in force on to the engine, whose answers are to be sent then.
    fn set_rules(&mut self, now: Time) {
        let Parts { engine, operator, .. } = &mut self.parts;
        let go_on = || self.service_manager.notify_watchdog(clock::now());
        operator.settings.rules.apply(engine, now, go_on);
    }

    /// Ends the rules that have expired.
    pub(super) fn end_expired_rules(&mut self, now: Time) {
        let ended = self.parts.operator.settings.rules.expire(now);
        if !ended.is_empty() {
            let ended = ended.join(", ");
            info!("the time of these rules is over: {ended}");
            self.mark(Event::Rule, &format!("the time is over: {ended}"));
            self.set_rules(now);
        }
    }

    fn begin_restart(
        &mut self,
        arguments: Option<Vec<OsString>>,
        requester: Option<ControlClient>,
    ) {
        if self.restart.is_under_way() {
            info!("{}: another one follows", RefusedOrder::UnderWay);
            return self.restart.repeat();
        }
        self.service_manager.begin_reload(clock::now());
        if let Err(why) = self.restart.begin(arguments, requester, &self.parts) {
            self.refuse_restart(&why, requester);
        }
    }

    /// Returns if the new binary can't take over, or if that is decided later.
    fn finish_restart(&mut self) {
        let refused = self.restart.finish(&self.parts);
        if let Some(RefusedRestart { why, requester, is_repeated }) = refused {
            self.refuse_restart(&why, requester);
            if is_repeated {
                self.begin_restart(None, None);
            }
        }
    }

    fn refuse_restart(&mut self, why: &RestartError, requester: Option<ControlClient>) {
        self.parts.engine.measures.restarts.refused += 1;
        let why = one_line(why);
        self.mark(Event::RestartRefused, &why);
        error!("hot restart refused, continuing to serve: {why}");
        self.service_manager.end_reload(clock::now());
        self.answer(requester, &format!("{ERROR}refused: {why}"));
    }

    /// Answers the operator on the control socket, if one made the request.
    pub(super) fn answer(&mut self, requester: Option<ControlClient>, answer: &str) {
        if let Some(client) = requester {
            self.parts.operator.answer(client, answer);
        }
    }

    /// Notes in the history what happened.
    pub(super) fn mark(&mut self, what: Event, detail: &str) {
        self.parts.history.mark(what, detail, clock::now());
    }

    /// Stops taking new clients, except those already in the kernel's queues.
    fn drain(&mut self) {
        if self.parts.listeners.is_draining() {
            return;
        }
        self.parts.listeners.drain();
        self.http.set_draining(true);
        // Accepts those in the queues now: unless they are many, the kernel refuses every client
        // that connects after the answer.
        self.accept(clock::now());
        let left = format!("connections left: {}", self.parts.clients.len());
        info!("draining: no new clients; {left}");
        self.mark(Event::Drain, &left);
    }

    fn undrain(&mut self) -> Result<(), ListenError> {
        if !self.parts.listeners.is_draining() {
            return Ok(());
        }
        let result = self.parts.listeners.undrain(&self.options, self.parts.poll.registry());
        match &result {
            Ok(()) => {
                self.http.set_draining(false);
                let names = self.parts.listeners.names();
                info!("no longer draining: listening on {names}");
                self.mark(Event::Undrain, &format!("listening on {names}"));
                self.parts.operator.answer_waiting(NOT_DRAINING);
            }
            Err(why) => error!("still draining: {}", one_line(why)),
        }
        result
    }
}

impl Server {
    /// Closes the connections that `free` names and answers with the locks that they had. As
    /// if the clients had disconnected: no waiter gets `DONE`, and the next one gets the lock.
    ///
    /// # Errors
    /// No connection matches, or too many do: nothing is closed.
    fn free(&mut self, free: Free, now: Time) -> Result<String, RefusedOrder> {
        let mut clients = clients_of(&free.target, &self.parts.engine, &self.parts.clients);
        // A client may hold a key several times. Some clients' input has ended already, and they
        // only wait for their output to be sent.
        let mut seen = HashSet::new();
        clients.retain(|client| {
            seen.insert(*client) && self.parts.clients.open_mut(*client).is_some()
        });
        if clients.is_empty() {
            return Err(RefusedOrder::Nobody(free.target));
        }
        let count = clients.len();
        if count > free.connections_max && !free.is_dry_run {
            return Err(RefusedOrder::TooMany(count, free.connections_max));
        }
        let what = if free.is_dry_run { "would close" } else { "closed" };
        let ending = if count == 1 { "" } else { "s" };
        #[expect(clippy::disallowed_methods, reason = "the list shows since when, as reports do")]
        let wall_ns = clock::wall_ns();
        let view = ReportView {
            engine: &self.parts.engine,
            now,
            wall_ns,
            peers: &self.parts.clients,
            is_private: false,
        };
        let report = freed(&view, &clients, free.is_dry_run);
        let locks = format!("holds: {}, waits: {}", report.holds, report.waits);
        let first = format!("{what} {count} connection{ending}: {locks}");
        let report = ListReport::Freed(report);
        let answer = if free.as_json {
            let mut json = written(&report);
            // An answer gets one line end more.
            json.pop();
            json
        } else {
            format!("{OK}{first}\n{}", text(&report))
        };
        if !free.is_dry_run {
            self.close(&clients, now);
        }
        info!("FREE {first}");
        if !free.is_dry_run {
            self.mark(Event::Free, &format!("{first}: {}", target_text(&free.target)));
        }
        Ok(answer)
    }

    fn close(&mut self, clients: &[ClientId], now: Time) {
        self.parts.engine.disconnect_all(clients, now);
        for &client in clients {
            self.parts.clients.free(client, &mut self.parts.engine.counters);
        }
        // The old holders notice before the next ones get the locks.
        self.close_freed(now);
        self.send_owed(now);
    }
}

/// A reason in one line: it may name a path or a group, whose name may have line ends and what
/// controls a terminal.
fn one_line(why: &dyn Display) -> String {
    why.to_string().chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// As in the order.
fn target_text(target: &FreeTarget) -> String {
    match target {
        FreeTarget::Key(key) => format!("KEY {}", key_text(key)),
        FreeTarget::Connection(serial) => format!("#{serial}"),
        FreeTarget::Host(host) => format!("HOST {host}"),
    }
}

/// Looks at every connection, unless a key is named.
fn clients_of(target: &FreeTarget, engine: &Engine, clients: &Clients) -> Vec<ClientId> {
    let mut found = Vec::new();
    match target {
        FreeTarget::Key(key) => {
            found.extend(engine.pool(key).iter().flat_map(|pool| pool.holders()));
        }
        FreeTarget::Connection(serial) => {
            let all = clients.iter().map(|(client, _)| client);
            found.extend(all.filter(|client| client.serial == *serial));
        }
        FreeTarget::Host(host) => {
            let all = 0..clients.slots();
            clients.for_each_address(all, |client, address| {
                if address == host {
                    found.push(client);
                }
            });
        }
    }
    found
}
