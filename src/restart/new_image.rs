//! The new image's side of a hot restart: adopts what a snapshot names, waits for descriptors
//! and memory to do so, answers in the trial. `serving::resume` continues from there, and says
//! why no step can fail.
//!
//! A client that waits for a report asks again by itself: its line is the first of its
//! unhandled input. That is at most a share and a line, as [`restore`] demands, because
//! nothing is received from a client that waits. So do operators.

use crate::clients::connection::Connection;
use crate::clients::connections::Clients;
use crate::listening::addresses;
use crate::listening::listeners::Listeners;
use crate::operator::orders::Operators;
use crate::operator::rule_book::read_rules;
use crate::options::Options;
use crate::platform::hash_seed::random_seed;
use crate::platform::os::fd::{OwnedFd, RawFd};
use crate::platform::os::fs::is_same_file;
use crate::platform::os::io::{Errno, fcntl_dupfd_cloexec};
use crate::platform::os::mio::Poll;
use crate::platform::os::{process, stdio, thread};
use crate::platform::sys::{self, inherited_connection, inherited_descriptor};
use crate::platform::{clock, descriptors};
use crate::reporting::http::Http;
use crate::reporting::report_queue::Reporting;
use crate::restart::launcher::inherited_snapshot;
use crate::restart::snapshot::{Reader, ServerState, SnapshotError, Summary};
use crate::restart::trial::TrialAnswer;
use crate::sockets::socket::Socket;
use engine::rules::rule::Rule;
use engine::{ClientId, Engine, Time};
use log::error;
use std::hint::black_box;
use std::io::{self, Read};
use std::time::Duration;

/// What a snapshot restores, including descriptors.
pub(crate) struct Restored {
    pub(crate) server: ServerState,
    pub(crate) clients: Clients,
    /// Its rules are still to be set, at the time `now`.
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    /// When the daemon was started, as it was first shown.
    pub(crate) started_wall_ns: Option<u64>,
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
    let started_wall_ns = state.started_wall_ns;
    let engine = Engine::resume(state, reader.pools(), random_seed(), now)?;
    let settings = &mut reader.server.settings;
    let rules_file = rules_file.unwrap_or_else(|| std::mem::take(&mut reader.server.rules_file));
    let ended_orders = settings.resume(options, rules_file);
    settings.rules.check().map_err(SnapshotError::Rules)?;
    let clients = Clients::resume(connections, reader.server.last_serial, options);
    Ok(Restored {
        server: reader.server,
        clients,
        engine,
        now,
        started_wall_ns,
        lost,
        ended_orders,
    })
}

impl Restored {
    /// Proves that the snapshot was read.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            taken: self.server.taken,
            connections: self.clients.len(),
            locks: self.engine.len(),
        }
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
pub fn dry_run(options: &Options) -> Result<String, String> {
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
    let summary = restored.summary();
    let max_hold = options.max_hold.clone();
    let answer = TrialAnswer {
        poolcounterd,
        process,
        descriptors_max,
        summary,
        wanted,
        rules_file,
        max_hold,
    };
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

/// Sets the rules, builds what the new image builds besides the restored state, and touches a
/// margin of memory.
fn build_the_rest(mut restored: Restored, options: &Options) -> io::Result<()> {
    let rules = &restored.server.settings.rules;
    restored.engine.set_rules(rules.in_force(), &rules.groups(), restored.now, || {});
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
