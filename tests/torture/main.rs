//! Torture: a crowd of clients that do at random what clients do, well and badly,
//! while the daemon is restarted under them every few hundred milliseconds. All is
//! judged from outside, by what the clients see and when:
//!
//! - a key never has more holders than it has workers ([`crowd`]);
//! - every command is answered, every wait by its timeout, none too early, and each
//!   answer is one that the protocol allows there ([`told`]);
//! - waiters get the lock in the order in which they came ([`order`]);
//! - when all have left, what was given was given back, all gauges are 0, and
//!   memory and descriptors are where they were.
//!
//! `make torture TORTURE_SECONDS=600` runs it for longer than `make test` does. It goes
//! in rounds, each with a daemon of its own and a seed, from which comes what each
//! client does; *when* things happen is up to the machine, so `TORTURE_SEED=17`
//! repeats the plans of a failed round, not each accident.

#![cfg(feature = "daemon")]

mod actor;
#[path = "../common/mod.rs"]
mod common;
mod crowd;
#[path = "../common/restart.rs"]
mod hot;
mod order;
#[path = "../common/random.rs"]
mod random;
mod told;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Client, PATIENCE, Server};
use crowd::{Crowd, Rules, Tally};
use hot::restart;
use random::Random;

#[test]
fn the_daemon_survives_torture() {
    let total = Duration::from_secs(number_from_env("TORTURE_SECONDS").unwrap_or(20));
    let first_seed = number_from_env("TORTURE_SEED").unwrap_or_else(seed_of_the_day);
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

/// One round, with all that it promises checked.
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

/// The thread that looks at the order of waiters.
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

    /// It only ends by itself when it has found something.
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

/// What a daemon takes of the machine.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    descriptors: usize,
    memory_kb: u64,
}

impl Footprint {
    /// With this client, which is there for sure once it has its answer.
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

    /// Descriptors exactly; memory but for what the allocator keeps after any
    /// crowd, however small. Tens of bytes lost with each lock would be more.
    fn is_back_at(&self, before: Footprint) -> bool {
        let memory_kb_max = before.memory_kb + 512;
        self.descriptors == before.descriptors && self.memory_kb <= memory_kb_max
    }
}

/// The clients have closed; the daemon may need a moment to hear of it.
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

    /// True so many times out of a hundred.
    fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn millis_below(&mut self, bound: usize) -> Duration {
        Duration::from_millis(self.below(bound) as u64)
    }
}

fn number_from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Other plans each day, the same within it.
fn seed_of_the_day() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).expect("a clock");
    since.as_secs() / 86_400 * 1_000_000
}
