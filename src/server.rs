//! The loop: sockets, signals and the clock around the engine. Decides nothing
//! about locks.
//!
//! One turn: wait → accept → receive from all ready clients → handle their input → expire waits →
//! continue reports and HTTP → flush owed output → close ended connections → operators' orders
//! last, so that they take effect between turns.

mod accepting;
mod addresses;
mod admission;
mod advice;
mod asking;
mod clients;
mod clock;
mod connection;
mod control;
mod dispatch;
mod for_reports;
mod hangup;
mod http;
mod inherited;
mod input;
mod launcher;
mod listener;
mod listeners;
mod logging;
mod memory;
mod opening;
mod operator;
mod options;
mod rehearsal;
mod reporting;
mod restart;
mod resume;
mod serving;
mod slots;
pub mod snapshot;
mod socket;
mod stream;
#[cfg(not(test))]
mod sys;
mod systemd;
mod tokens;
mod trial;
mod unix_socket;
mod usage;
#[cfg(not(test))]
mod world;

// The tests run the server in a simulated world.
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;
#[cfg(test)]
use simulation::{sys, world};

use crate::engine::{HoldLimit, Time};
use crate::protocol::Query;
use crate::reports::{Answer, stats};
pub use addresses::{ListenError, Purpose, Wanted};
pub use advice::StartError;
use asking::{Ask, Asker};
use clients::Clients;
use control::ControlClient;
pub use control::{Request as ControlRequest, parse as parse_control_request};
pub use http::head::{Head as HttpHead, parse as parse_http_head};
use launcher::{Launcher, inherited_snapshot};
use listeners::Listeners;
use log::{error, info};
pub use logging::print as print_error;
use operator::{Operator, Order};
pub use options::{Options, PORT, arguments_after_reload};
pub use rehearsal::rehearse;
use restart::Restart;
use resume::{Restored, adopt, insist, restore};
use serving::Serving;
use std::ffi::OsString;
use std::hash::RandomState;
use std::io;
use sys::inherited_descriptor;
use systemd::ServiceManager;
use world::Engine;
use world::fd::OwnedFd;
use world::mio::{Events, Poll};

const VERSION: &str = env!("CARGO_PKG_VERSION");

const EVENTS_PER_TURN: usize = 1024;

/// The daemon: one thread, one event loop.
pub struct Server {
    options: Options,
    serving: Serving,
    restart: Restart,
    service_manager: ServiceManager,
}

/// Why the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop.
    Stopped,
    /// The last client of a drain has left.
    Drained,
}

/// Starts logging. To be called once, before anything else.
pub fn start_logging(options: &Options) {
    logging::start(options.log.as_deref());
}

impl Server {
    /// Opens the sockets and prepares to serve them.
    ///
    /// # Errors
    /// Why it can't listen, or which resource the kernel refuses.
    pub fn start(options: Options) -> Result<Self, StartError> {
        hangup::note_terminal();
        match inherited_snapshot()? {
            Some(snapshot) => Self::resume(options, snapshot),
            None => Self::start_empty(options),
        }
    }

    fn start_empty(options: Options) -> Result<Self, StartError> {
        options.warn_of_ignored();
        // Comes first, to get low descriptor numbers.
        let restart = Restart::new(Launcher::new()?);
        sys::raise_descriptor_limit();
        let operator = Operator::new(sys::take_over_signals()?);
        let mut listeners = Listeners::open(&options)?;
        let mut engine = Engine::new(RandomState::new(), clock::now());
        engine.set_hold_limits(options.max_hold.clone());
        let clients = Clients::new(&options);
        let poll = Poll::new()?;
        operator.watch(poll.registry())?;
        listeners.watch(poll.registry(), 0)?;
        info!("poolcounterd {VERSION} listening on {}", listeners.names());
        listeners.log_http();
        let serving = Serving::new(poll, listeners, clients, engine, operator, &options);
        Ok(Self::ready(options, serving, restart))
    }

    /// Takes over everything that the old image of this process left in `snapshot`;
    /// [`resume`] says why no step can fail.
    fn resume(options: Options, snapshot: OwnedFd) -> Result<Self, StartError> {
        let bytes = insist("mapping the snapshot", || sys::MappedFile::new(&snapshot))?;
        let restored =
            restore(&bytes, &options, adopt).map_err(|e| io::Error::other(e.to_string()))?;
        drop(bytes);
        let Restored { server: state, clients, engine, lost } = restored;
        let settings = state.settings;
        let log_option = options.log.as_deref().filter(|_| settings.options_are_new);
        logging::resume(settings.logging, log_option);
        options.warn_of_ignored();
        sys::raise_descriptor_limit();
        let launcher = Launcher::resume(state.launcher, snapshot)?;
        let restart = Restart::resume(launcher, settings.hold_limits_were_set);
        let operator = Operator::new(insist("reading signals", sys::take_over_signals)?);
        let poll = insist("an epoll instance", Poll::new)?;
        sys::take_over_epoll(&poll, inherited_descriptor(state.epoll_fd)?)?;
        let mut listeners = Listeners::resume(state.listening, &options);
        insist("watching sockets", || {
            operator.watch(poll.registry())?;
            listeners.watch(poll.registry(), clients.len())
        })?;
        let mut serving = Serving::new(poll, listeners, clients, engine, operator, &options);
        serving.disconnect_lost(lost);
        serving.accept();
        serving.finish_turn(clock::now());
        serving.note_resumed(VERSION, clock::now().ns_since(state.taken));
        restart::answer_requester(state.requester_fd, VERSION);
        Ok(Self::ready(options, serving, restart))
    }

    fn ready(options: Options, serving: Serving, restart: Restart) -> Self {
        Server { options, serving, restart, service_manager: ServiceManager::find() }
    }
}

/// The loop.
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
    fn stop(mut self) {
        let is_told = self.service_manager.stopping();
        self.restart.abandon();
        self.serving.listeners.remove_files();
        // Clients are disconnected before anything waits for systemd or the log.
        drop(self.serving);
        if !is_told {
            self.service_manager.stopping_at_last();
        }
        logging::flush_briefly();
    }

    /// Runs one turn of the loop. Operators' orders come last, so that a hot restart
    /// finds no work half done.
    fn turn(&mut self, events: &mut Events) -> Option<Ended> {
        self.serving.wait(events, self.next_deadline());
        self.serving.note_events(events);
        self.serving.accept();
        let now = self.serving.handle_input();
        self.serving.report(now);
        self.serving.finish_turn(now);
        self.serving.tidy(now);
        self.notify_service_manager(now);
        logging::retry(now);
        self.obey_operators(now)
    }

    fn next_deadline(&self) -> Option<Time> {
        let deadlines = [
            self.service_manager.next_deadline(),
            self.restart.deadline(),
            logging::next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn notify_service_manager(&mut self, now: Time) {
        let Serving { clients, engine, .. } = &self.serving;
        self.service_manager.notify(clients.len(), engine, now);
    }
}

/// Operators' orders.
impl Server {
    /// Obeys the orders of this turn; returns why the daemon ends, if it does.
    fn obey_operators(&mut self, now: Time) -> Option<Ended> {
        for order in self.serving.operator.take_orders() {
            match order {
                Order::Stop(why) => {
                    info!("{why}; {} connections are closed", self.serving.clients.len());
                    return Some(Ended::Stopped);
                }
                Order::Restart => self.begin_restart(None, None),
                Order::Drain => self.drain(),
                Order::FinishRestart => self.restart.note_tried(),
                // Errors are logged already.
                Order::ToggleDrain if self.serving.listeners.is_draining() => drop(self.undrain()),
                Order::ToggleDrain => self.drain(),
                Order::Asked(client, request) => self.serve_request(client, request),
                Order::Ended(client) => self.serving.operator.note_ended(client),
            }
        }
        // Comes last: the new image does not know what operators have asked.
        if self.restart.is_due(|| self.serving.reporting.has_operators(), now) {
            self.finish_restart();
        }
        let Serving { listeners, clients, operator, .. } = &mut self.serving;
        let has_drained = listeners.has_drained(clients.len(), now);
        has_drained.then(|| operator.tell_waiting("OK drained")).map(|()| Ended::Drained)
    }

    fn serve_request(&mut self, client: ControlClient, request: Result<ControlRequest, String>) {
        let result = request.and_then(|request| match request {
            ControlRequest::Restart(arguments) => {
                self.begin_restart(arguments, Some(client));
                Ok(None)
            }
            ControlRequest::Drain => {
                self.drain();
                Ok(Some(format!("OK draining, connections left: {}", self.serving.clients.len())))
            }
            ControlRequest::Drained if self.serving.listeners.is_draining() => {
                self.serving.operator.wait_for_end(client).map(|()| None)
            }
            ControlRequest::Drained => Err("not draining".to_owned()),
            ControlRequest::Undrain => self
                .undrain()
                .map(|()| Some(format!("OK listening on {}", self.serving.listeners.names()))),
            ControlRequest::Log(filter) => {
                filter.map_or(Ok(()), |filter| logging::set_filter(&filter))?;
                Ok(Some(format!("OK log filter: {}", logging::filter())))
            }
            ControlRequest::MaxHold(limits) => Ok(Some(self.limit_holds(limits))),
            ControlRequest::Stats(query) => self.report(client, query),
            ControlRequest::Help => Ok(Some(control::help())),
        });
        match result {
            Ok(Some(answer)) => self.serving.operator.answer(client, &answer),
            // The answer comes when the restart is done.
            Ok(None) => {}
            Err(why) => self.serving.operator.answer(client, &format!("ERROR {why}")),
        }
    }

    /// Answers at once if that is possible; otherwise in one of the next turns.
    fn report(&mut self, client: ControlClient, query: Query) -> Result<Option<String>, String> {
        match stats(&query, &self.serving.engine, clock::now()) {
            Answer::Text(text) => self.serving.operator.report(client, text),
            Answer::Unknown => return Err("no such statistic".to_owned()),
            Answer::Report if self.serving.operator.control.await_report(client) => {
                self.serving.reporting.ask(Asker::Operator(client), Ask::Query(query));
            }
            Answer::Report => {}
        }
        Ok(None)
    }

    fn limit_holds(&mut self, limits: Option<Vec<HoldLimit>>) -> String {
        if let Some(limits) = limits {
            self.serving.engine.set_hold_limits(limits);
            self.restart.note_hold_limits_set();
        }
        let limits: Vec<String> =
            self.serving.engine.hold_limits().iter().map(HoldLimit::to_string).collect();
        let shown = if limits.is_empty() { "none".to_owned() } else { limits.join(" ") };
        format!("OK hold limits: {shown}")
    }

    fn begin_restart(
        &mut self,
        arguments: Option<Vec<OsString>>,
        requester: Option<ControlClient>,
    ) {
        if self.restart.is_under_way() {
            let why = "a hot restart is already under way";
            info!("{why}");
            return self.answer(requester, &format!("ERROR {why}"));
        }
        if let Err(why) = self.restart.begin(arguments, requester, &self.serving) {
            self.refuse_restart(&why, requester);
        }
    }

    /// Returns only if the new binary can't take over.
    fn finish_restart(&mut self) {
        let Serving { operator, reporting, .. } = &mut self.serving;
        operator.put_off(reporting.give_up_operators());
        if let Some((why, requester)) = self.restart.finish(&self.serving) {
            self.refuse_restart(&why, requester);
        }
    }

    fn refuse_restart(&mut self, why: &str, requester: Option<ControlClient>) {
        self.serving.engine.measures.restarts.refused += 1;
        error!("hot restart refused, continuing to serve: {why}");
        self.answer(requester, &format!("ERROR refused: {why}"));
    }

    /// Answers the operator on the control socket, if one made the request.
    fn answer(&mut self, requester: Option<ControlClient>, answer: &str) {
        if let Some(client) = requester {
            self.serving.operator.answer(client, answer);
        }
    }

    /// Stops taking new clients, except those already in the kernel's queues.
    fn drain(&mut self) {
        if self.serving.listeners.is_draining() {
            return;
        }
        self.serving.listeners.drain();
        // If few are in the queues, who comes after the answer is refused.
        self.serving.accept();
        info!("draining: no new clients; connections left: {}", self.serving.clients.len());
    }

    fn undrain(&mut self) -> Result<(), String> {
        if !self.serving.listeners.is_draining() {
            return Ok(());
        }
        let Serving { poll, listeners, .. } = &mut self.serving;
        let result = listeners.undrain(&self.options, poll.registry());
        match &result {
            Ok(()) => {
                info!("no longer draining: listening on {}", listeners.names());
                self.serving.operator.tell_waiting("ERROR not draining");
            }
            Err(why) => error!("still draining: {why}"),
        }
        result
    }
}
