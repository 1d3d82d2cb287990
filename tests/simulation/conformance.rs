//! Checks the simulated kernel against the real one: the same random script of socket calls runs on
//! both, and after each step both must have returned the same, also from poll(2) for each socket.
//! Only [`is_allowed`] permits differences.
//!
//! The seeds are always the same: `KERNEL_SEED` repeats one, `KERNEL_SCRIPTS` tries more.
//!
//! On a full socket only the kind of the result is compared, because buffers differ in size. The
//! simulated kernel chooses at random the order, lengths and moments that Linux leaves open; the
//! scripts wait until everything has arrived.

mod addresses;
mod real;
mod real_calls;
mod simulated;
mod socket_script;

use super::random::{Random, number_from_environment};
use super::stopwatch::ask_within;
use real::RealKernel;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use simulated::SimulatedKernel;
use socket_script::{SocketScript, SocketStep};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long the real kernel may take to bring something from one end of a loopback connection to
/// the other, in each play of a script. A difference counts only if it shows in all plays. Other
/// processes can delay an acknowledgement; the last play, which only a failing script reaches, is
/// as patient as all other tests (`PATIENCE`).
const ARRIVALS_MAX_MS: [u64; 4] = [10, 100, 500, 30_000];

/// The first seed.
const USUAL_SEED: u64 = 1;

const THREADS: RawFd = 4;
/// The numbers of the daemon's connections, [`FDS`] for each thread, apart from those
/// of other tests' descriptors.
const LOWEST_FD: RawFd = 900;
const FDS: RawFd = 16;

/// What a connection's peer finds after what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadEnd {
    /// More may come.
    Waits,
    End,
    Reset,
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CallResult {
    /// The step makes no sense here: its peer or slot is empty.
    Skipped,
    Done,
    Failed(Errno),
    Received(Vec<u8>),
    Sent(usize),
    /// Some of what was to be sent: the buffer is full now.
    SentSome,
    /// The peer; `None` if getpeername(2) finds none any more.
    Accepted(Option<u8>),
    /// Bytes, whether these were all that the daemon had sent, and what follows.
    Read(usize, bool, ReadEnd),
    /// By token; their order is not known.
    Events(Vec<(u64, EventFlags)>),
}

impl From<Result<(), Errno>> for CallResult {
    fn from(result: Result<(), Errno>) -> Self {
        result.map_or_else(CallResult::Failed, |()| CallResult::Done)
    }
}

/// What can be observed without changing anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PollView {
    /// What poll(2) returns, by slot.
    connections: BTreeMap<u8, EventFlags>,
    /// What FIONREAD returns, by slot; not if urgent data makes it depend on the mark.
    unread: BTreeMap<u8, usize>,
    /// What poll(2) returns for the listening sockets.
    listeners: Vec<EventFlags>,
}

/// Whether Linux may return `real` where the simulated kernel returns `simulated`. They may differ
/// if `is_full`: the daemon has filled the connection, and its peer has not read all of it.
///
/// - Whether a few bytes more go in depends on how memory is accounted for: socket(7),
///   SO_SNDBUF, "to allow space for bookkeeping overhead".
/// - How much of it a peer can read before a reset depends on how much had left the
///   daemon's buffer: RFC 9293, 3.10.7.4, flushes all segment queues at a reset.
/// - The daemon has closed, but its end still waits behind what fills the buffer. Then a
///   peer that sends something is reset: RFC 1122, 4.2.2.13, "if new data is received
///   after CLOSE is called, its TCP SHOULD send a RST to show that data was lost". The
///   simulated kernel ends it properly; the daemon can't tell.
///
/// They may also differ if the daemon `has_shut` its side of a connection: Linux delays the
/// acknowledgement of its end, which may cause another event. The simulated kernel delivers it at
/// once here, and later elsewhere.
fn is_allowed(real: &CallResult, simulated: &CallResult, is_full: bool, has_shut: bool) -> bool {
    let is_of_send = |answer: &CallResult| {
        matches!(
            answer,
            CallResult::Sent(_) | CallResult::SentSome | CallResult::Failed(Errno::AGAIN)
        )
    };
    match (real, simulated) {
        (CallResult::Read(_, _, actual), CallResult::Read(_, _, expected)) if is_full => {
            actual == expected || (*actual, *expected) == (ReadEnd::Reset, ReadEnd::End)
        }
        (CallResult::Events(real), CallResult::Events(simulated)) if has_shut => {
            simulated.iter().all(|event| real.contains(event))
        }
        _ => real == simulated || is_full && is_of_send(real) && is_of_send(simulated),
    }
}

/// The first step whose answers differ, and how.
struct Difference {
    step: usize,
    why: String,
}

/// Plays a script on both kernels.
///
/// # Errors
/// Where they differ first.
fn play(script: &SocketScript, lowest_fd: RawFd, arrival_max: Duration) -> Result<(), Difference> {
    let (mut real, mut simulated) =
        (RealKernel::new(lowest_fd, arrival_max), SimulatedKernel::new());
    let mut has_shut = false;
    for (n, step) in script.steps.iter().enumerate() {
        let was_full = simulated.is_full(step);
        let shuts = matches!(step, SocketStep::ShutWriting { .. });
        has_shut |= shuts;
        if was_full && shuts {
            // When the end gets through depends on how memory is accounted for.
            continue;
        }
        let (actual, expected) = (real.act(step), simulated.act(step));
        let differ = |real: &str, simulated: &str| {
            let why = format!("{step:?}:\n  Linux:     {real}\n  simulated: {simulated}");
            Difference { step: n, why }
        };
        if !is_allowed(&actual, &expected, was_full || simulated.is_full(step), has_shut) {
            return Err(differ(&format!("{actual:?}"), &format!("{expected:?}")));
        }
        let expected = simulated.view();
        let actual = settled(&real, &expected, arrival_max);
        if actual != expected {
            return Err(differ(&format!("{actual:?}"), &format!("{expected:?}")));
        }
    }
    Ok(())
}

/// Waits until everything has arrived: until the real kernel shows what is expected, or for `max`.
fn settled(real: &RealKernel, expected: &PollView, max: Duration) -> PollView {
    let as_expected = || Some(real.view()).filter(|view| view == expected);
    ask_within(max, as_expected).unwrap_or_else(|| real.view())
}

fn judge(script: &SocketScript, lowest_fd: RawFd) -> Result<(), Difference> {
    let mut result = Ok(());
    for ms in ARRIVALS_MAX_MS {
        result = play(script, lowest_fd, Duration::from_millis(ms));
        if result.is_ok() {
            break;
        }
    }
    result
}

fn plays_differ(script: &SocketScript, lowest_fd: RawFd) -> bool {
    let soon = Duration::from_millis(ARRIVALS_MAX_MS[0]);
    (0..2).all(|_| play(script, lowest_fd, soon).is_err())
}

/// Removes steps as long as the kernels still differ.
fn shrink(script: &SocketScript, lowest_fd: RawFd) -> SocketScript {
    let mut smallest = script.clone();
    if let Err(difference) = judge(script, lowest_fd) {
        smallest.steps.truncate(difference.step + 1);
    }
    let mut n = 0;
    while n < smallest.steps.len() {
        let mut shorter = smallest.clone();
        shorter.steps.remove(n);
        if plays_differ(&shorter, lowest_fd) {
            smallest = shorter;
        } else {
            n += 1;
        }
    }
    smallest
}

fn check(seed: u64, lowest_fd: RawFd) {
    let script = SocketScript::generate(&mut Random(seed));
    if judge(&script, lowest_fd).is_err() {
        let shrunk = shrink(&script, lowest_fd);
        let why = judge(&shrunk, lowest_fd).map_or_else(|e| e.why, |()| "?".to_owned());
        panic!("KERNEL_SEED={seed}: the kernels differ at {why}\nin\n{shrunk}");
    }
}

/// Seeds to try: one to repeat, or `KERNEL_SCRIPTS`.
fn seeds(usual: u64) -> impl Iterator<Item = u64> {
    let repeated = number_from_environment("KERNEL_SEED");
    let count = number_from_environment("KERNEL_SCRIPTS").unwrap_or(usual);
    let first = repeated.unwrap_or(USUAL_SEED);
    first..first + repeated.map_or(count, |_| 1)
}

/// Judges scripts on several threads, which mostly wait for the real kernel. Each has its own range
/// of descriptor numbers.
fn judge_seeds(usual: u64, judge: impl Fn(u64, RawFd) + Sync) {
    let seeds = Mutex::new(seeds(usual));
    let scripts = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (seeds, scripts, judge) = (&seeds, &scripts, &judge);
            scope.spawn(move || {
                loop {
                    let Some(seed) = seeds.lock().expect("no panic").next() else { return };
                    judge(seed, LOWEST_FD + thread * FDS);
                    scripts.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{scripts:?} scripts on both kernels");
}

#[test]
fn the_simulated_kernel_behaves_like_linux() {
    judge_seeds(4000, check);
}
