//! The new image's side of a hot restart: adopts what a snapshot names, waits for descriptors
//! and memory to do so, answers in the trial, answers the operator.
//!
//! Nothing here may fail, because all locks would be lost. What the new image does from
//! its first line on, in order, and why it can't fail. (The trial also had more stack and
//! memory than all of it takes: [`rehearse`].)
//!
//! | step | why it can't fail |
//! |---|---|
//! | reads its options | the trial read the same ones |
//! | starts logging | an unreadable filter is ignored, a line that can't be written is dropped |
//! | looks for a terminal | opening it does not block, and a failure means that there is none |
//! | finds the snapshot | the old image wrote descriptor and process id into the environment; the trial got both in the same way |
//! | maps the snapshot | the trial mapped one like it; if the machine has no memory, it retries ([`retry_for_a_while`]) |
//! | [`restore`]: reads the snapshot, makes the engine and the connections, sets up hold limits and admission | the trial did the same with the same code; a memfd has no read errors; a connection whose descriptor is missing is counted as lost, not fatal |
//! | applies the log filter | the old image checked it; one that is unknown to the new image is ignored |
//! | raises the limit of descriptors | a failure is only logged |
//! | resumes the launcher | the snapshot's file becomes its own; the other descriptor and the program's absolute path are handed over: neither the working directory nor `PATH` is used |
//! | opens signalfd and epoll instance | the old image checked that descriptors are free, and the exec closed some more; if the whole machine has none, it retries ([`retry_for_a_while`]) |
//! | takes over the old epoll instance | dup3(2) onto an open descriptor |
//! | resumes the listeners, also those of HTTP | the old image has opened the missing ones; their state in the kernel is not checked; options that can't be set are only logged |
//! | watches listeners and signals | the epoll instance has most of them already; if the machine has no memory for another, it retries |
//! | sets up reports, `--slow` and HTTP | assignments of options, which the trial parsed; no report is under way, and no client is connected to HTTP: the exec has closed those connections, and with them their places in the epoll instance |
//! | continues with the operators' connections | assignments; one whose descriptor is missing is lost |
//! | disconnects clients whose connections are lost | the engine does it in memory |
//! | accepts connections, a turn's worth | a failure loses one new connection |
//! | sends what it owes | as in every turn, an error ends one connection |
//! | tells systemd that it is ready, answers the operator | neither waits nor needs a reader |
//!
//! A client that waits for a report asks again by itself: its line is the first of its
//! unhandled input. That is at most a share and a line, as [`restore`] demands, because
//! nothing is received from a client that waits. So do operators.

use crate::server::advice::StartError;
use crate::server::clients::connection::Connection;
use crate::server::clients::connections::Clients;
use crate::server::event_loop::{Server, VERSION};
use crate::server::kernel::hash_seed::random_seed;
use crate::server::kernel::sys::{self, inherited_connection, inherited_descriptor};
use crate::server::kernel::world::fd::{OwnedFd, RawFd};
use crate::server::kernel::world::fs::is_same_file;
use crate::server::kernel::world::io::{Errno, fcntl_dupfd_cloexec};
use crate::server::kernel::world::mio::Poll;
use crate::server::kernel::world::{Engine, process, stdio, thread};
use crate::server::kernel::{clock, descriptors};
use crate::server::listening::addresses;
use crate::server::listening::listeners::Listeners;
use crate::server::operator::orders::Operators;
use crate::server::operator::rule_book::read_rules;
use crate::server::options::Options;
use crate::server::reporting::http::Http;
use crate::server::reporting::report_queue::Reporting;
use crate::server::restart::launcher::{Launcher, inherited_snapshot};
use crate::server::restart::old_image::Restart;
use crate::server::restart::snapshot::{Gist, Reader, ServerState, SnapshotError};
use crate::server::restart::trial::TrialAnswer;
use crate::server::sockets::ids::ControlClient;
use crate::server::sockets::socket::Socket;
use crate::server::telling::logging;
use engine::rules::rule::Rule;
use engine::{ClientId, Time};
use log::{debug, error, info};
use std::hint::black_box;
use std::io::{self, Read};
use std::time::Duration;

impl Server {
    /// Takes over everything that the old image of this process left in `snapshot`.
    pub(crate) fn resume(options: Options, snapshot: OwnedFd) -> Result<Self, StartError> {
        let began = clock::now();
        let bytes = retry_for_a_while("mapping the snapshot", || sys::MappedFile::new(&snapshot))?;
        let restored =
            restore(&bytes, &options, None, adopt).map_err(|e| io::Error::other(e.to_string()))?;
        drop(bytes);
        let Restored { server: state, clients, engine, lost, ended_orders } = restored;
        logging::resume(state.logging);
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
        let poll = retry_for_a_while("an epoll instance", Poll::new)?;
        sys::take_over_epoll(&poll, inherited_descriptor(state.epoll_fd)?)?;
        let mut listeners = Listeners::resume(state.listening, &options);
        retry_for_a_while("watching sockets", || {
            operator.watch(poll.registry())?;
            listeners.watch(poll.registry(), clients.len() + operator.control.len())
        })?;
        let mut server =
            Self::assemble(options, poll, listeners, clients, engine, operator, restart);
        server.disconnect_lost(lost);
        server.accept();
        server.finish_turn(clock::now());
        if state.restarts_again {
            server.service_manager.begin_reload(clock::now());
            server.operator.restart_again();
        } else {
            server.service_manager.end_reload(clock::now());
        }
        server.count_restart(clock::now().ns_since(state.taken));
        server.answer_requester(requester, &ended_orders);
        Ok(server)
    }

    /// Disconnects the clients whose connections a hot restart has lost.
    fn disconnect_lost(&mut self, lost: Vec<(ClientId, io::Error)>) {
        for (client, e) in lost {
            error!("#{} was lost in the hot restart: {e}", client.serial);
            self.engine.counters.lost_connections += 1;
            self.engine.disconnect(client, clock::now());
        }
    }

    /// Tells the operator who asked for the restart, and the log, what has `ended`: orders of
    /// [`ServerState::settings`] that no longer apply.
    fn answer_requester(&mut self, requester: Option<ControlClient>, ended: &[String]) {
        let ended = if ended.is_empty() {
            String::new()
        } else {
            format!("; no longer set: {}", ended.join(", "))
        };
        if !ended.is_empty() {
            info!("hot restart{ended}");
        }
        if let Some(client) = requester {
            self.operator.answer(client, &format!("OK restarted, poolcounterd {VERSION}{ended}"));
        }
    }

    /// Counts and logs that the daemon continues after a hot restart.
    fn count_restart(&mut self, pause_ns: u64) {
        let restarts = &mut self.engine.measures.restarts;
        restarts.done += 1;
        restarts.pause_ns += pause_ns;
        restarts.last_pause_ns = pause_ns;
        let pause_us = pause_ns / 1_000;
        let counters = &self.engine.counters;
        info!(
            "poolcounterd {VERSION} continued after a pause of {pause_us} µs with {} connections, \
             {} locks and {} waits; listening on {}",
            self.clients.len(),
            counters.processing_workers,
            counters.waiting_workers,
            self.listeners.names(),
        );
        self.listeners.log_http();
    }
}

/// What a snapshot restores, including descriptors.
pub(crate) struct Restored {
    pub(crate) server: ServerState,
    pub(crate) clients: Clients,
    pub(crate) engine: Engine,
    /// Clients whose descriptors are missing, and why. Not logged yet: the old image may
    /// have written half a line.
    pub(crate) lost: Vec<(ClientId, io::Error)>,
    /// Operators' settings that no longer apply.
    pub(crate) ended_orders: Vec<String>,
}

/// Takes over the socket of a connection that the old image has left.
pub(crate) fn adopt(fd: RawFd, is_unix: bool) -> io::Result<Socket> {
    Ok(Socket::new(inherited_connection(fd)?, is_unix))
}

/// Reads a snapshot, in a trial as in the restart itself. Only a trial reads a `rules_file`:
/// what it has read is in the snapshot of the restart. `adopt` takes over the socket of a
/// connection, and whether it is a Unix socket.
pub(crate) fn restore(
    bytes: &[u8],
    options: &Options,
    rules_file: Option<Vec<Rule>>,
    mut adopt: impl FnMut(RawFd, bool) -> io::Result<Socket>,
) -> Result<Restored, SnapshotError> {
    let mut reader = Reader::new(bytes)?;
    let mut connections = Vec::new();
    let mut lost = Vec::new();
    for state in reader.connections() {
        let state = state?;
        match adopt(state.fd, state.unix) {
            Ok(socket) => connections.push((state.client(), Connection::resume(socket, state))),
            Err(e) => lost.push((state.client(), e)),
        }
    }
    let now = clock::now().max(reader.server.taken);
    let state = std::mem::take(&mut reader.server.engine);
    let mut engine = Engine::resume(state, reader.pools(), random_seed(), now)?;
    let settings = &mut reader.server.settings;
    let rules_file = rules_file.unwrap_or_else(|| std::mem::take(&mut reader.server.rules_file));
    let ended_orders = settings.resume(options, rules_file);
    settings.rules.check().map_err(SnapshotError::Rules)?;
    engine.set_rules(settings.rules.in_force(), &settings.rules.groups(), now, || {});
    let clients = Clients::resume(connections, reader.server.last_serial, options);
    Ok(Restored { server: reader.server, clients, engine, lost, ended_orders })
}

impl Restored {
    /// Proves that the snapshot was read.
    pub(crate) fn gist(&self) -> Gist {
        Gist { taken: self.server.taken, connections: self.clients.len(), locks: self.engine.len() }
    }
}

/// Retries for some seconds if the machine lacks memory or descriptors: giving up would
/// lose every lock.
pub(crate) fn retry_for_a_while<T>(
    what: &str,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    const ATTEMPTS: usize = 1_000;
    const PAUSE: Duration = Duration::from_millis(10);
    for n in 0..ATTEMPTS {
        match attempt() {
            Err(e) if lacks_resources(&e) => {
                if n == 0 {
                    error!("hot restart: {what} failed and is tried again: {e}");
                }
                thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
    attempt()
}

fn lacks_resources(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let transient = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::NOSPC];
    errno.is_some_and(|errno| transient.contains(&errno))
}

/// How much more memory than in the trial the new image finds in any case.
const HEAP_MARGIN_BYTES: usize = 4 << 20;
const STACK_MARGIN_BYTES: usize = 256 << 10;

/// Reads a trial snapshot and returns the answer to print, namely that this binary could
/// take over with `options`. The snapshot is handed over as in the restart itself; an
/// operator may also pipe one in, to find out whether this binary can read it.
///
/// # Errors
/// Why it can't, to be printed too.
pub fn rehearse(options: &Options) -> Result<String, String> {
    if !options.are_for_serving() {
        return Err("a daemon can only continue with options for serving".to_owned());
    }
    let rules_file = read_rules(options).map_err(|e| e.to_string())?;
    let closed = |e: io::Error| format!("the snapshot was lost on its way here: {e}");
    let (process, restored) = match inherited_snapshot().map_err(closed)? {
        Some(snapshot) => (Some(process::id() as i32), take_over(snapshot, options, &rules_file)?),
        None => (None, read_standard_input(options, &rules_file)?),
    };
    let wanted = addresses::wanted(options).map_err(|e| e.to_string())?;
    let poolcounterd = env!("CARGO_PKG_VERSION").to_owned();
    sys::raise_descriptor_limit();
    let descriptors_max = descriptors::limit();
    let gist = restored.gist();
    let max_hold = options.max_hold.clone();
    let answer =
        TrialAnswer { poolcounterd, process, descriptors_max, gist, wanted, rules_file, max_hold };
    build_the_rest(restored, options).map_err(|e| e.to_string())?;
    serde_json::to_string(&answer).map_err(|e| e.to_string())
}

/// Restores what was handed over, and finds the snapshot at each descriptor, where the
/// old image has put it in place of a socket.
fn take_over(
    snapshot: OwnedFd,
    options: &Options,
    rules_file: &[Rule],
) -> Result<Restored, String> {
    let adopt = |number, _| {
        let stand_in = inherited_descriptor(number)?;
        if is_same_file(&stand_in, &snapshot) {
            Ok(Socket::new(stand_in, /* is_unix */ false))
        } else {
            Err(io::Error::other("it was replaced"))
        }
    };
    let bytes = sys::MappedFile::new(&snapshot).map_err(|e| e.to_string())?;
    let restored =
        restore(&bytes, options, Some(rules_file.to_vec()), adopt).map_err(|e| e.to_string())?;
    if let Some((_, e)) = restored.lost.first() {
        return Err(format!("{} connections would be lost: {e}", restored.lost.len()));
    }
    for number in restored.server.kept_descriptors() {
        adopt(number, false)
            .map_err(|e| format!("descriptor {number} was lost on its way here: {e}"))?;
    }
    Ok(restored)
}

fn read_standard_input(options: &Options, rules_file: &[Rule]) -> Result<Restored, String> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.is_empty() {
        return Err("it was handed no snapshot: whatever is at the daemon's path must execute \
                    the daemon in the same process, with its environment"
            .to_owned());
    }
    // Stands in for each connection. As a Unix socket it would be shut down.
    let stand_in =
        |_, _| Ok(Socket::new(fcntl_dupfd_cloexec(stdio::stdout(), 3)?, /* is_unix */ false));
    restore(&bytes, options, Some(rules_file.to_vec()), stand_in).map_err(|e| e.to_string())
}

/// Builds what the new image builds besides the restored state, and touches a margin of
/// memory.
fn build_the_rest(restored: Restored, options: &Options) -> io::Result<()> {
    let operator = Operators::new(sys::take_over_signals()?, restored.server.settings.clone());
    let poll = Poll::new()?;
    operator.watch(poll.registry())?;
    let others = (Listeners::none(options), Reporting::new(options), Http::new(options));
    black_box(vec![1_u8; HEAP_MARGIN_BYTES]);
    touch_stack();
    drop((restored, poll, operator, others));
    Ok(())
}

#[inline(never)]
fn touch_stack() {
    black_box([1_u8; STACK_MARGIN_BYTES]);
}
