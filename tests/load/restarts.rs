//! Hot restarts under full load: half of the connections hold locks, half wait;
//! others cycle, and new clients connect. Checks every reply.
//!
//! `RESTART_LOAD_CONNECTIONS=2500 cargo test --release --test load restarts
//! -- --nocapture` takes fewer connections.

use crate::support::random::number_from_environment;
use crate::support::restart::{CONTINUED, wait_until};
use crate::support::{PATIENCE, Server, allow_descriptors};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::process::Signal;
use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 10_000;
const RESTARTS: usize = 8;
const CYCLERS: usize = 40;
/// Keys that half of the cyclers compete for. The other cyclers have keys of their own,
/// so that they wait only for the daemon.
const FOUGHT_KEYS: usize = 5;
/// Clients that connect, lock once and close, over and over.
const NEW_CLIENTS: usize = 4;
/// Cycles between two restarts.
const CYCLES_BETWEEN: u64 = 2_000;
/// The documentation promises 60 ms for 10,000 connections; ten times that for slow
/// machines.
const SILENCE_MAX: Duration = Duration::from_millis(600);

#[test]
fn no_client_notices_eight_restarts_under_full_load() {
    let connections = number_from_environment("RESTART_LOAD_CONNECTIONS");
    let connections = connections.map_or(CONNECTIONS, |number| number as usize);
    allow_descriptors();
    let mut load = Load::start(connections);
    load.cycle(CYCLES_BETWEEN);
    let silence_without = std::mem::take(&mut load.longest_silence);
    let began = Instant::now();
    let (ran, waited) = load.processor_times();
    for n in 1..=RESTARTS {
        load.server.signal(Signal::USR1);
        load.run_until("the restart is done", |load| load.server.log.count(CONTINUED) == n);
        load.cycle(CYCLES_BETWEEN);
    }
    let silence = load.longest_silence;
    let took = began.elapsed();
    let (ran, waited) = (load.processor_times().0 - ran, load.processor_times().1 - waited);
    load.wait_for_timeouts();
    load.finish();
    for line in load.server.log.lines().iter().filter(|line| line.contains(CONTINUED)) {
        println!("{line}");
    }
    println!(
        "{connections} connections, {RESTARTS} restarts in {took:.1?}, {} cycles, {} new clients",
        load.cycles, load.new_clients,
    );
    println!(
        "longest silence {silence:.1?} (at most {SILENCE_MAX:?}; without restarts \
         {silence_without:.1?}); \
         latest timeout {:.1?} late; ran for {ran:.1?}, waited {waited:.1?} for a processor",
        load.latest_timeout,
    );
    // Allows for the time that other work on the machine took.
    assert!(silence < SILENCE_MAX + waited, "a silence of {silence:?}");
}

/// The role of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Holds the key of its number; some hold three more.
    Holder { locks: usize },
    /// Waits for the key of the same number.
    Waiter(Wait),
    /// Locks and releases a key.
    Cycler { key: usize, holds: bool },
    /// Asks for a held key and is refused, locks a key of its own, and closes.
    NewClient,
}

/// How a wait must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// `LOCKED`, by the holder's `RELEASE` or disconnect.
    ForMe,
    /// `DONE`, by the holder's `RELEASE`; `LOCKED` by its disconnect.
    ForAnyone,
    /// `TIMEOUT`, at this time.
    RunsOut(Duration),
    /// `RELEASED`: the client sends half of `RELEASE` before the restarts, half after
    /// them.
    Cancelled,
}

struct Peer {
    stream: TcpStream,
    part: Part,
    received: Vec<u8>,
    /// When the last request was sent.
    asked: Instant,
}

/// What the server's counters must show.
#[derive(Debug, Default)]
struct Tally {
    locked: u64,
    released: u64,
    ended: u64,
}

struct Load {
    server: Server,
    poll: Poll,
    peers: HashMap<usize, Peer>,
    next_token: usize,
    /// Holders and as many waiters.
    pairs: usize,
    /// The holder of each cycled key.
    owners: HashMap<usize, usize>,
    /// Cyclers that have a key, with the key.
    to_release: Vec<(usize, usize)>,
    /// Waiters that got `TIMEOUT`.
    timed_out: HashSet<usize>,
    /// Replies of the others, read after the restarts.
    tally: Tally,
    cycles: u64,
    new_clients: u64,
    cycling: bool,
    longest_silence: Duration,
    latest_timeout: Duration,
}

impl Load {
    /// All clients are connected, and hold or wait for what they asked for.
    fn start(connections: usize) -> Load {
        let pairs = connections / 2;
        let mut load = Load {
            server: Server::start(),
            poll: Poll::new().expect("poll"),
            peers: HashMap::new(),
            next_token: 0,
            pairs,
            owners: HashMap::new(),
            to_release: Vec::new(),
            timed_out: HashSet::new(),
            tally: Tally::default(),
            cycles: 0,
            new_clients: 0,
            cycling: true,
            longest_silence: Duration::ZERO,
            latest_timeout: Duration::ZERO,
        };
        for n in 0..pairs {
            load.add_holder(n);
        }
        for n in 0..pairs {
            load.add_waiter(n);
        }
        load.run_until("all hold or wait", |load| {
            let held = load.server.counter("processing_workers");
            let waiting = load.server.counter("waiting_workers") + load.timed_out.len() as u64;
            (held, waiting) == (load.locks_of_holders(), pairs as u64)
        });
        for n in 0..CYCLERS {
            let key = if n < CYCLERS / 2 { n % FOUGHT_KEYS } else { FOUGHT_KEYS + n };
            let token = load.add(Part::Cycler { key, holds: false });
            load.acquire_cycled(token, key);
        }
        for _ in 0..NEW_CLIENTS {
            load.add_new_client();
        }
        load
    }

    fn add(&mut self, part: Part) -> usize {
        let address = self.server.address();
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        stream.set_nonblocking(true).expect("nonblocking");
        let token = self.next_token;
        self.next_token += 1;
        let fd = stream.as_raw_fd();
        let registry = self.poll.registry();
        registry.register(&mut SourceFd(&fd), Token(token), Interest::READABLE).expect("register");
        self.peers
            .insert(token, Peer { stream, part, received: Vec::new(), asked: Instant::now() });
        token
    }

    fn add_holder(&mut self, n: usize) {
        // Some hold the maximum of locks; some have sent half a line.
        let locks = if n % 10 == 0 { 4 } else { 1 };
        let token = self.add(Part::Holder { locks });
        for depth in 1..locks {
            self.send(token, format!("ACQ4ME hold-{n}-{depth} 1 1 0\n").as_bytes());
        }
        self.send(token, format!("ACQ4ME hold-{n} 1 9 0\n").as_bytes());
        if n % 3 == 0 {
            self.send(token, b"STATS upt");
        }
    }

    fn add_waiter(&mut self, n: usize) {
        let wait = match n % 5 {
            0 => Wait::ForAnyone,
            // During the restarts, and at many different times.
            1 => Wait::RunsOut(Duration::from_secs(1 + (n / 5 % 6) as u64)),
            2 => Wait::Cancelled,
            _ => Wait::ForMe,
        };
        let token = self.add(Part::Waiter(wait));
        let (mode, seconds) = match wait {
            Wait::ForAnyone => ("ACQ4ANY", 3600),
            Wait::RunsOut(time) => ("ACQ4ME", time.as_secs()),
            Wait::ForMe | Wait::Cancelled => ("ACQ4ME", 3600),
        };
        self.send(token, format!("{mode} hold-{n} 1 9 {seconds}\n").as_bytes());
        if wait == Wait::Cancelled {
            self.send(token, b"RELEA");
        }
    }

    fn add_new_client(&mut self) {
        let token = self.add(Part::NewClient);
        // In one segment: a key that another client holds, and one of its own.
        let held = token % self.pairs;
        let own = format!("ACQ4ME new-{token} 1 1 0\nRELEASE\n");
        self.send(token, format!("ACQ4ME hold-{held} 1 1 0\n{own}").as_bytes());
    }

    fn acquire_cycled(&mut self, token: usize, key: usize) {
        self.send(token, format!("ACQ4ME cycle-{key} 1 1000 60\n").as_bytes());
    }

    fn send(&mut self, token: usize, bytes: &[u8]) {
        let peer = self.peers.get_mut(&token).expect("a peer");
        peer.asked = Instant::now();
        let sent = peer.stream.write(bytes).expect("send");
        assert_eq!(sent, bytes.len(), "a short request fits into the socket buffer");
    }

    fn locks_of_holders(&self) -> u64 {
        (0..self.pairs).map(|n| if n % 10 == 0 { 4 } else { 1 }).sum()
    }

    /// Handles events until the condition is met.
    fn run_until(&mut self, what: &str, mut is_met: impl FnMut(&Load) -> bool) {
        let deadline = Instant::now() + 4 * PATIENCE;
        let mut events = Events::with_capacity(1024);
        let mut next_check = Instant::now();
        loop {
            // The check may open a connection.
            if Instant::now() >= next_check {
                if is_met(self) {
                    return;
                }
                next_check = Instant::now() + Duration::from_millis(5);
            }
            assert!(Instant::now() < deadline, "timed out waiting until {what}");
            // A lock is held for a full pass, so that two holders of one key are
            // detected.
            let to_release = std::mem::take(&mut self.to_release);
            let timeout = if to_release.is_empty() { 5 } else { 0 };
            self.poll.poll(&mut events, Some(Duration::from_millis(timeout))).expect("poll");
            for event in events.iter() {
                self.receive(event.token().0);
            }
            for (token, key) in to_release {
                // Removed before the RELEASE is sent: the next holder comes after it.
                self.owners.remove(&key);
                self.send(token, b"RELEASE\n");
            }
        }
    }

    /// How long daemon and test have run on a processor, and how long they have waited
    /// for one (proc_pid_schedstat(5)).
    fn processor_times(&self) -> (Duration, Duration) {
        let of = |process: &str| {
            let text = std::fs::read_to_string(format!("/proc/{process}/schedstat"));
            let text = text.unwrap_or_default();
            let mut fields = text.split_whitespace().map(|ns| ns.parse().unwrap_or(0));
            let mut next = || Duration::from_nanos(fields.next().unwrap_or(0));
            (next(), next())
        };
        let (daemon, test) = (of(&self.server.pid().to_string()), of("thread-self"));
        (daemon.0 + test.0, daemon.1 + test.1)
    }

    /// Runs this many more cycles.
    fn cycle(&mut self, cycles: u64) {
        let until = self.cycles + cycles;
        self.run_until("they cycle", |load| load.cycles >= until);
    }

    fn receive(&mut self, token: usize) {
        let mut buffer = [0; 4096];
        loop {
            let Some(peer) = self.peers.get_mut(&token) else {
                return;
            };
            match peer.stream.read(&mut buffer) {
                Ok(0) => panic!("the connection of {:?} ended", peer.part),
                Ok(len) => peer.received.extend_from_slice(&buffer[..len]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => panic!("the connection of {:?} failed: {e}", peer.part),
            }
            self.handle(token);
        }
    }

    fn handle(&mut self, token: usize) {
        let peer = self.peers.get_mut(&token).expect("a peer");
        let silence = peer.asked.elapsed();
        match peer.part.clone() {
            Part::Cycler { key, holds } => {
                let expected: &[u8] = if holds { b"RELEASED\n" } else { b"LOCKED\n" };
                if peer.received.len() < expected.len() {
                    return;
                }
                assert_eq!(text(&peer.received), text(expected));
                peer.received.clear();
                peer.part = Part::Cycler { key, holds: !holds };
                let waits_for_others = !holds && key < FOUGHT_KEYS;
                if !waits_for_others {
                    self.longest_silence = self.longest_silence.max(silence);
                }
                self.continue_cycling(token, key, holds);
            }
            Part::NewClient => {
                const EXPECTED: &[u8] = b"QUEUE_FULL\nLOCKED\nRELEASED\n";
                if peer.received.len() < EXPECTED.len() {
                    return;
                }
                assert_eq!(text(&peer.received), text(EXPECTED));
                self.longest_silence = self.longest_silence.max(silence);
                self.peers.remove(&token);
                self.new_clients += 1;
                self.tally.locked += 1;
                self.tally.released += 1;
                self.tally.ended += 1;
                if self.cycling {
                    self.add_new_client();
                }
            }
            Part::Waiter(Wait::RunsOut(after)) if peer.received.len() >= b"TIMEOUT\n".len() => {
                assert_eq!(text(&peer.received), "TIMEOUT\n");
                let late = silence.checked_sub(after).expect("no early TIMEOUT");
                self.latest_timeout = self.latest_timeout.max(late);
                assert!(self.timed_out.insert(token), "a second TIMEOUT");
                peer.received.clear();
            }
            // Checked as a whole at the end.
            Part::Holder { .. } | Part::Waiter(_) => {}
        }
    }

    fn continue_cycling(&mut self, token: usize, key: usize, held: bool) {
        if held {
            self.tally.released += 1;
            self.tally.ended += 1;
            self.cycles += 1;
            if self.cycling {
                self.acquire_cycled(token, key);
            }
        } else {
            self.tally.locked += 1;
            let other = self.owners.insert(key, token);
            assert_eq!(other, None, "two hold the key {key}");
            self.to_release.push((token, key));
        }
    }

    fn wait_for_timeouts(&mut self) {
        let expected = (0..self.pairs).filter(|n| n % 5 == 1).count();
        self.run_until("all have timed out", |load| load.timed_out.len() == expected);
    }

    /// Cyclers finish their last cycle. All others release their locks, and every reply
    /// must be correct.
    fn finish(&mut self) {
        self.cycling = false;
        self.run_until("the last cycle ends", |load| {
            let is_done = |peer: &Peer| match peer.part {
                Part::Cycler { holds, .. } => !holds && peer.asked.elapsed() > SETTLED,
                Part::NewClient => false,
                Part::Holder { .. } | Part::Waiter(_) => true,
            };
            load.peers.values().all(is_done)
        });
        self.peers.retain(|_, peer| !matches!(peer.part, Part::Cycler { .. }));
        self.check_waits_before_the_end();
        for n in 0..self.pairs {
            self.end_pair(n);
        }
        self.check_every_reply();
        self.check_statistics();
    }

    /// Only the waiters that timed out have received anything.
    fn check_waits_before_the_end(&mut self) {
        let held = self.locks_of_holders();
        let waiting = (self.pairs - self.timed_out.len()) as u64;
        assert_eq!(self.server.counter("processing_workers"), held);
        assert_eq!(self.server.counter("waiting_workers"), waiting);
        for n in 0..self.pairs {
            let waiter = &self.peers[&(self.pairs + n)];
            assert_eq!(text(&waiter.received), "", "{:?}", waiter.part);
        }
    }

    /// Completes the half lines, those of cancelled waits first. Then the holder releases
    /// its lock by `RELEASE`, or every seventh by closing.
    fn end_pair(&mut self, n: usize) {
        let (holder, waiter) = (n, self.pairs + n);
        if self.peers[&waiter].part == Part::Waiter(Wait::Cancelled) {
            self.send(waiter, b"SE\n");
            self.tally.released += 1;
        }
        if n % 3 == 0 {
            self.send(holder, b"ime\n");
        }
        let Part::Holder { locks } = self.peers[&holder].part else {
            panic!("the first peers are holders");
        };
        self.tally.locked += locks as u64;
        self.tally.ended += locks as u64;
        if closes(n) {
            // First its answers so far, then the close.
            let expected = expected_of_holder(n, locks, 0);
            self.expect_lines(holder, &expected);
            self.peers.remove(&holder);
        } else {
            self.send(holder, "RELEASE\n".repeat(locks).as_bytes());
            self.tally.released += locks as u64;
        }
        let waiter_gets_lock = match self.peers[&waiter].part {
            Part::Waiter(Wait::ForMe) => true,
            Part::Waiter(Wait::ForAnyone) => closes(n),
            _ => false,
        };
        if waiter_gets_lock {
            self.tally.locked += 1;
            self.tally.ended += 1;
        }
    }

    fn check_every_reply(&mut self) {
        for n in 0..self.pairs {
            if !closes(n) {
                let Part::Holder { locks } = self.peers[&n].part else {
                    panic!("the first peers are holders");
                };
                self.expect_lines(n, &expected_of_holder(n, locks, locks));
            }
            let waiter = self.pairs + n;
            let expected = match self.peers[&waiter].part {
                Part::Waiter(Wait::ForMe) => "LOCKED\n",
                Part::Waiter(Wait::ForAnyone) if closes(n) => "LOCKED\n",
                Part::Waiter(Wait::ForAnyone) => "DONE\n",
                Part::Waiter(Wait::Cancelled) => "RELEASED\n",
                // Checked when it arrived.
                _ => "",
            };
            self.expect_lines(waiter, expected);
        }
    }

    /// Waits for exactly these lines. `*` stands for the rest of a line.
    fn expect_lines(&mut self, token: usize, expected: &str) {
        let lines = expected.matches('\n').count();
        let has_all = |load: &Load| {
            load.peers[&token].received.iter().filter(|&&b| b == b'\n').count() >= lines
        };
        if !has_all(self) {
            self.run_until("a reply comes", has_all);
        }
        let peer = &self.peers[&token];
        let got = text(&peer.received);
        let is_right = |(line, pattern): (&str, &str)| match pattern.strip_suffix('*') {
            Some(start) => line.starts_with(start),
            None => line == pattern,
        };
        let all_right =
            got.lines().count() == lines && got.lines().zip(expected.lines()).all(is_right);
        assert!(all_right, "{:?} {token}: {got:?} instead of {expected:?}", peer.part);
    }

    /// Checks the counters once all clients have gone.
    fn check_statistics(&mut self) {
        self.peers.clear();
        let ended = self.tally.ended;
        wait_until("all have gone", || {
            (self.server.counter("processed_count") == ended).then_some(())
        });
        let expected = [
            ("total_acquired", self.tally.locked),
            ("total_releases", self.tally.released),
            ("processed_count", ended),
            ("hashtable_entries", 0),
            ("processing_workers", 0),
            ("waiting_workers", 0),
            ("connect_errors", 0),
            ("failed_sends", 0),
            ("full_queues", self.new_clients),
            ("lock_mismatch", 0),
            ("lock_while_waiting", 0),
            ("release_mismatch", 0),
        ];
        for (name, value) in expected {
            assert_eq!(self.server.counter(name), value, "{name}");
        }
    }
}

/// A cycler without an answer for this long has sent its last request.
const SETTLED: Duration = Duration::from_millis(200);

/// Whether the holder of pair `n` closes instead of sending RELEASE.
fn closes(n: usize) -> bool {
    n % 7 == 0
}

/// What a holder receives: its locks, the answer to the half line, its releases.
fn expected_of_holder(n: usize, locks: usize, releases: usize) -> String {
    let uptime = if n % 3 == 0 { "uptime: *\n" } else { "" };
    "LOCKED\n".repeat(locks) + uptime + &"RELEASED\n".repeat(releases)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
