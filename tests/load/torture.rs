//! Torture: a crowd of clients that behave at random, well and badly, while the
//! daemon is restarted every few hundred milliseconds. The test judges everything
//! from outside, by what the clients see and when:
//!
//! - a key never has more holders than it has workers ([`crowd`]);
//! - every command is answered, every wait by its timeout, none too early, and each
//!   answer is one that the protocol allows there ([`told`]);
//! - waiters get the lock in the order of arrival ([`order`]);
//! - when all clients have left, every lock given was given back, all gauges are 0,
//!   and memory and descriptors are as before.
//!
//! `make torture TORTURE_SECONDS=600` runs it for longer than `make test-load` does. It
//! runs in rounds, each with its own daemon and a seed, which determines what each
//! client does. *When* things happen depends on the machine, so `TORTURE_SEED=17`
//! repeats the actions of a failed round, but not their timing.

mod actor;
mod crowd;
mod order;
mod told;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::crowd::{Crowd, Rules, Tally};
use crate::support::random::{Random, number_from_environment};
use crate::support::restart::restart;
use crate::support::{Client, PATIENCE, Server};

#[test]
fn the_daemon_survives_torture() {
    let total = Duration::from_secs(number_from_environment("TORTURE_SECONDS").unwrap_or(20));
    let first_seed = number_from_environment("TORTURE_SEED").unwrap_or(1);
    let length = (total / 2).min(Duration::from_secs(30));
    let start = Instant::now();
    for seed in first_seed.. {
        if start.elapsed() + length / 2 > total {
            return;
        }
        let at = format!("{:.0} of {} s", start.elapsed().as_secs_f64(), total.as_secs());
        play(seed, length, &at);
    }
}

/// Runs one round and checks everything listed above.
fn play(seed: u64, length: Duration, at: &str) {
    let rules = Rules::of(seed);
    println!("{at}: TORTURE_SEED={seed}, {rules}");
    let server = Server::start_with(&rules.arguments());
    if rules.restarts {
        restart(&server);
    }
    let before = Footprint::of(&server, &mut server.connect());
    let end = Instant::now() + length;

    let order = Order::watch(&server, seed);
    let mut crowd = Crowd::new(&server, rules, seed);
    while Instant::now() < end && !order.has_failed() {
        crowd.go_on();
    }
    order.finish(seed);
    crowd.rest();
    let tally = crowd.leave();
    println!("  {tally}");
    check_that_all_is_over(&server, &tally, before);
    tally.assert_all_was_tried(rules);
    if rules.restarts {
        restart(&server);
        check_that_all_is_over(&server, &tally, before);
    }
    let log = server.log.lines();
    let errors: Vec<&String> = log.iter().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.is_empty(), "TORTURE_SEED={seed}: {errors:#?}");
}

/// The thread that checks the order of waiters.
struct Order {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<u64>,
}

impl Order {
    fn watch(server: &Server, seed: u64) -> Order {
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, address) = (Arc::clone(&stop), server.address());
        let watch = move || order::watch(address, Random(!seed), &seen);
        Order { stop, thread: thread::spawn(watch) }
    }

    /// It ends by itself only if it has found a failure.
    fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    fn finish(self, seed: u64) {
        self.stop.store(true, Ordering::Relaxed);
        let Ok(handed_on) = self.thread.join() else {
            panic!("the order of waiters: see above; repeat with TORTURE_SEED={seed}");
        };
        println!("  {handed_on} locks handed on in the order of arrival");
        assert!(handed_on > 0);
    }
}

/// The resources that a daemon uses.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    descriptors: usize,
    memory_kb: u64,
}

impl Footprint {
    /// Includes this client, whose connection certainly exists once it has its
    /// answer.
    fn of(server: &Server, client: &mut Client) -> Footprint {
        client.settle();
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
        let status = status.expect("status");
        let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let memory = memory.and_then(|text| text.trim().strip_suffix(" kB"));
        Footprint {
            descriptors: server.descriptors(),
            memory_kb: memory.expect("RssAnon").parse().expect("a number"),
        }
    }

    /// Descriptors must be equal; memory may grow by what the allocator and STATS TOP keep
    /// after any crowd, however small: 0.6 MB here. tests/load/memory.rs finds smaller leaks.
    fn is_back_at(&self, before: Footprint) -> bool {
        let memory_kb_max = before.memory_kb + 2048;
        self.descriptors == before.descriptors && self.memory_kb <= memory_kb_max
    }
}

/// The clients have closed; the daemon may need a moment to notice.
fn check_that_all_is_over(server: &Server, tally: &Tally, before: Footprint) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = server.connect();
        let mut counter = |name| client.counter(name);
        let gauges =
            ["hashtable_entries", "processing_workers", "waiting_workers"].map(&mut counter);
        let (given, ended) = (counter("total_acquired"), counter("processed_count"));
        let released = counter("total_releases");
        let connect_errors = counter("connect_errors");
        let now = Footprint::of(server, &mut client);
        if gauges == [0; 3] && now.is_back_at(before) {
            assert_eq!(given, ended, "total_acquired and processed_count");
            let (locked_seen, released_seen) = (tally.times("LOCKED"), tally.times("RELEASED"));
            assert!(given >= locked_seen, "{given} counted, {locked_seen} seen");
            assert!(released >= released_seen, "{released} counted, {released_seen} seen");
            assert_eq!(connect_errors, 0);
            return;
        }
        let left = format!("gauges {gauges:?}, {now:?}, before {before:?}");
        assert!(Instant::now() < deadline, "all have left, but not everything is over: {left}");
        thread::sleep(Duration::from_millis(50));
    }
}

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True in so many of a hundred cases.
    fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }

    fn millis_below(&mut self, bound: usize) -> Duration {
        Duration::from_millis(self.below(bound) as u64)
    }
}
