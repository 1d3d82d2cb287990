//! Continues what an old image has handed over, in a hot restart.
//!
//! Nothing here may fail, because all locks would be lost. What the new image does from
//! its first line on, in order, and why it can't fail. (The trial also had more stack and
//! memory than all of it takes: `restart::dry_run`.)
//!
//! | step | why it can't fail |
//! |---|---|
//! | reads its options | the trial read the same ones |
//! | starts logging | an unreadable filter is ignored, a line that can't be written is dropped |
//! | looks for a terminal | opening it does not block, and a failure means that there is none |
//! | finds the snapshot | the old image wrote descriptor and process id into the environment; the trial got both in the same way |
//! | maps the snapshot | the trial mapped one like it; if the machine has no memory, it retries ([`retry_for_a_while`]) |
//! | [`restore`]: reads the snapshot, makes the engine and the connections, sets the rules, sets up admission | the trial did the same with the same code; a memfd has no read errors; a connection whose descriptor is missing is counted as lost, not fatal |
//! | continues the log | assignments of what is still to be written |
//! | applies the log filter | the old image checked it; one that is unknown to the new image is ignored |
//! | raises the limit of descriptors | a failure is only logged |
//! | resumes the launcher | the snapshot's file becomes its own; the other descriptor and the program's absolute path are handed over: neither the working directory nor `PATH` is used |
//! | opens signalfd and epoll instance | the old image checked that descriptors are free, and the exec closed some more; if the whole machine has none, it retries ([`retry_for_a_while`]) |
//! | continues with the operators' connections | assignments; one whose descriptor is missing is lost |
//! | takes over the old epoll instance | dup3(2) onto an open descriptor |
//! | resumes the listeners, also those of HTTP | the old image has opened the missing ones; their state in the kernel is not checked; options that can't be set are only logged |
//! | undoes `--free-port` on listeners and connections | an option that can't be read or set is ignored |
//! | watches listeners and signals | the epoll instance has most of them already; if the machine has no memory for another, it retries |
//! | continues the history, or begins one | in memory: numbers and text that are shown, and nothing is decided by them |
//! | sets up reports, `--slow` and HTTP | assignments of options, which the trial parsed; no report is under way, and no client is connected to HTTP: the exec has closed those connections, and with them their places in the epoll instance |
//! | disconnects clients whose connections are lost | the engine does it in memory |
//! | sends what it owes | as in every turn, an error ends one connection |
//! | accepts connections, a turn's worth | a failure loses one new connection |
//! | tells systemd that it is ready, answers the operator | neither waits nor needs a reader |

use crate::listening::listeners::Listeners;
use crate::logging::logger;
use crate::operator::orders::Operators;
use crate::options::Options;
use crate::platform::clock;
use crate::platform::failed_call::named;
use crate::platform::os::fd::OwnedFd;
use crate::platform::os::mio::Poll;
use crate::platform::sys::{self, inherited_descriptor};
use crate::restart::launcher::Launcher;
use crate::restart::new_image::{Restored, adopt, restore};
use crate::restart::old_image::{Restart, unchanged_options};
use crate::restart::parts::Parts;
use crate::restart::retry::retry_for_a_while;
use crate::serving::advice::StartError;
use crate::serving::{Server, VERSION};
use crate::sockets::ids::ControlClient;
use engine::{ClientId, Time};
use log::{debug, error, info};
use protocol::answers::OK;
use schema::words::Event;
use std::io;

impl Server {
    /// Takes over everything that the old image of this process left in `snapshot`.
    pub(super) fn resume(options: Options, snapshot: OwnedFd) -> Result<Self, StartError> {
        let began = clock::now();
        let bytes = retry_for_a_while("mapping the snapshot", || sys::MappedFile::new(&snapshot))?;
        let restored =
            restore(&bytes, &options, None, adopt).map_err(|e| io::Error::other(e.to_string()))?;
        drop(bytes);
        let Restored { server: state, clients, engine, now, lost, ended_orders } = restored;
        let unchanged = unchanged_options(state.keeps_options());
        logger::resume(state.logging);
        state.settings.apply_log();
        let pause_us = |until: Time| until.ns_since(state.taken) / 1_000;
        debug!(
            "the new image began to read after a pause of {} µs, and had read after {} µs",
            pause_us(began),
            pause_us(clock::now()),
        );
        options.warn_of_likely_mistakes();
        sys::raise_descriptor_limit();
        let launcher = Launcher::resume(state.launcher, snapshot)?;
        let restart = Restart::new(launcher);
        let signals = retry_for_a_while("reading signals", sys::take_over_signals)?;
        let requester = state.requester;
        let operator = Operators::resume(signals, state.settings, state.operators, requester);
        let create = || Poll::new().map_err(named("epoll_create1"));
        let poll = retry_for_a_while("an epoll instance", create)?;
        sys::take_over_epoll(&poll, inherited_descriptor(state.epoll_fd)?)?;
        let (mut listeners, closed) = Listeners::resume(state.listening, &options);
        clients.end_linger(listeners.end_linger());
        retry_for_a_while("watching sockets", || {
            operator.watch(poll.registry())?;
            listeners.watch(poll.registry())
        })?;
        let history = state.history.resume(now);
        let parts = Parts { poll, listeners, clients, engine, operator, history };
        let mut server = Self::assemble(options, parts, restart);
        server.disconnect_lost(lost);
        server.send_owed(clock::now());
        server.accept(clock::now());
        if state.restarts_again {
            server.service_manager.begin_reload(clock::now());
            server.parts.operator.restart_again();
        } else {
            server.service_manager.end_reload(clock::now());
        }
        server.count_restart(clock::now().ns_since(state.taken), unchanged);
        server.answer_requester(requester, unchanged, &closed, &ended_orders);
        Ok(server)
    }

    /// Disconnects the clients whose connections a hot restart has lost.
    fn disconnect_lost(&mut self, lost: Vec<(ClientId, io::Error)>) {
        for (client, e) in lost {
            error!("#{} was lost in the hot restart: {e}", client.serial);
            self.parts.engine.counters.lost_connections += 1;
            self.parts.engine.disconnect(client, clock::now());
        }
    }

    /// Tells the operator who asked for the restart, and the log, which listeners it has
    /// `closed`, and what has `ended`: orders of `ServerState::settings` that no longer apply.
    fn answer_requester(
        &mut self,
        requester: Option<ControlClient>,
        unchanged: &str,
        closed: &[String],
        ended: &[String],
    ) {
        let mut lost = String::new();
        for (what, names) in [("closed", closed), ("no longer set", ended)] {
            if !names.is_empty() {
                lost += &format!("; {what}: {}", names.join(", "));
            }
        }
        if !lost.is_empty() {
            info!("hot restart{unchanged}{lost}");
        }
        let answer = format!("{OK}restarted, poolcounterd {VERSION}{unchanged}{lost}");
        self.answer(requester, &answer);
    }

    /// Counts and logs that the daemon continues after a hot restart.
    fn count_restart(&mut self, pause_ns: u64, unchanged: &str) {
        let restarts = &mut self.parts.engine.measures.restarts;
        restarts.done += 1;
        restarts.pause_ns += pause_ns;
        restarts.last_pause_ns = pause_ns;
        let pause_us = pause_ns / 1_000;
        let counters = &self.parts.engine.counters;
        info!(
            "poolcounterd {VERSION} continued after a pause of {pause_us} µs with {} connections, \
             {} locks and {} waits{unchanged}; listening on {}",
            self.parts.clients.len(),
            counters.processing_workers,
            counters.waiting_workers,
            self.parts.listeners.names(),
        );
        self.parts.listeners.log_http();
        self.mark(Event::HotRestart, &format!("poolcounterd {VERSION}, a pause of {pause_us} µs"));
    }
}
