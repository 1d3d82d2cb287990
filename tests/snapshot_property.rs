//! Engine → snapshot → text → engine is the same engine: over the simulation's
//! random states it answers the same operations in the same way.
//!
//! `SNAPSHOT_SEED=17 cargo test --test snapshot_property` runs one seed alone.

#[path = "common/random.rs"]
mod random;
#[path = "simulation/script.rs"]
#[allow(dead_code)]
mod script;

use poolcounterd::engine::image::Image;
use poolcounterd::engine::{ClientId, Engine, HoldLimit, Time};
use poolcounterd::protocol::{Acquire, Reply};
use poolcounterd::server::snapshot::{
    ConnectionState, ControlState, ListenerState, Origin, Snapshot,
};
use random::Random;
use script::{Choices, Script, Step};
use std::fmt::Debug;
use std::hash::RandomState;

const RUNS: u64 = 100;
const STEPS_PER_RUN: usize = 600;
/// A twin is made so often, and lives so long.
const STEPS_PER_TWIN: usize = 40;

#[test]
fn an_engine_read_from_a_snapshot_is_the_same_engine() {
    if let Ok(seed) = std::env::var("SNAPSHOT_SEED") {
        run(seed.parse().expect("a number"));
        return;
    }
    let mut seen = Seen::default();
    for seed in 0..RUNS {
        let new = run(seed);
        seen.locks = seen.locks.max(new.locks);
        seen.timeouts += new.timeouts;
        seen.snapshots += new.snapshots;
    }
    println!("{seen:?}");
    assert!(seen.snapshots >= 1_000 && seen.locks >= 20 && seen.timeouts >= 300, "{seen:?}");
}

/// What there was to get wrong.
#[derive(Debug, Default)]
struct Seen {
    snapshots: usize,
    /// The most locks in a snapshot.
    locks: usize,
    /// Answered by a twin.
    timeouts: usize,
}

fn run(seed: u64) -> Seen {
    let mut random = Random(seed);
    let script = Script::generate(&mut random, STEPS_PER_RUN);
    let mut world = World::new(&script);
    let mut seen = Seen::default();
    let mut engine = world.engine();
    let mut twin = None;
    for (n, step) in script.steps.iter().enumerate() {
        let what = format!("SNAPSHOT_SEED={seed}, step {n}, {step:?}");
        if n % STEPS_PER_TWIN == 0 {
            let snapshot = world.snapshot(&engine, &mut random);
            seen.snapshots += 1;
            seen.locks = seen.locks.max(snapshot.engine.clients().count());
            twin = Some(world.twin(&snapshot, &what));
        }
        world.prepare(step, &engine);
        let expected = world.take(step, &mut engine);
        let Some(twin) = &mut twin else {
            continue;
        };
        // What a lock's limit takes away within one tick may come in another
        // order, and another client may be its heir: then there is no comparing.
        if !world.hold_limits.is_empty() {
            continue;
        }
        let answers = world.take(step, twin);
        seen.timeouts += answers.iter().filter(|(_, reply)| *reply == Reply::Timeout).count();
        same(&what, "answers", &answers, &expected);
        same(&what, "counters", &twin.counters, &engine.counters);
        same(&what, "durations", twin.durations(), engine.durations());
        same(&what, "images", &sorted(twin.image()), &sorted(engine.image()));
    }
    seen
}

/// What is outside the engine.
struct World {
    now: Time,
    hold_limits: Vec<HoldLimit>,
    /// The serial number of the client in each slot.
    serials: Vec<u32>,
    last_serial: u32,
}

impl World {
    fn new(script: &Script) -> Self {
        let limit = format!("k\u{1}={}", script.hold_s_max);
        let hold_limits = match script.hold_s_max {
            0 => Vec::new(),
            _ => vec![limit.parse().expect("a limit")],
        };
        let now = Time::from_ns(script.start_ns);
        World { now, hold_limits, serials: Vec::new(), last_serial: 0 }
    }

    fn engine(&self) -> Engine {
        let mut engine = Engine::new(RandomState::new(), self.now);
        engine.set_hold_limits(self.hold_limits.clone());
        engine
    }

    /// All clients have a connection, with anything in it.
    fn snapshot(&mut self, engine: &Engine, random: &mut Random) -> Snapshot {
        let connections: Vec<_> = self
            .serials
            .iter()
            .zip(0..)
            .map(|(&serial, slot)| ConnectionState {
                slot,
                serial,
                fd: 100 + slot as i32,
                unfinished_line: random.bytes().into_iter().filter(|&b| b != b'\n').collect(),
                skipping: random.below(2) == 0,
                unsent: random.bytes(),
                finishing: random.below(2) == 0,
                unread: random.below(2) == 0,
            })
            .collect();
        Snapshot {
            engine: engine.image(),
            taken: self.now,
            last_serial: self.last_serial,
            draining: random.below(2) == 0,
            listeners: vec![
                ListenerState { fd: 3, origin: Origin::Address, name: "[::1]:7531".to_owned() },
                ListenerState { fd: 4, origin: Origin::Unix, name: "unix:/a \"b\"".to_owned() },
                ListenerState { fd: 5, origin: Origin::Inherited, name: "unix".to_owned() },
            ],
            connections,
            control: Some(ControlState { fd: 6, path: "/run/c\n\u{1f511}".to_owned() }),
            epoll: 8,
            requester: (random.below(2) == 0).then_some(7),
        }
    }

    /// Another engine, by way of the text.
    fn twin(&self, snapshot: &Snapshot, what: &str) -> Engine {
        let text = snapshot.write();
        let read = Snapshot::read(&text).unwrap_or_else(|e| panic!("{what}: {e}"));
        same(what, "snapshots", &read, snapshot);
        assert_eq!(read.write(), text, "{what}: written again");
        let mut twin = Engine::from_image(read.engine, RandomState::new(), self.now)
            .unwrap_or_else(|e| panic!("{what}: {e:?}"));
        twin.set_hold_limits(self.hold_limits.clone());
        twin.check_invariants();
        same(what, "images", &sorted(twin.image()), &sorted(snapshot.engine.clone()));
        twin
    }

    /// The part of a step that is not the engine's.
    fn prepare(&mut self, step: &Step, engine: &Engine) {
        if let Step::Acquire { slot, .. } | Step::Release { slot } | Step::Disconnect { slot } =
            step
        {
            while self.serials.len() <= *slot as usize {
                self.last_serial += 1;
                self.serials.push(self.last_serial);
            }
        }
        match step {
            Step::Advance { by_ns } => self.now = self.now.plus_ns(*by_ns),
            Step::AdvanceToDeadline => self.now = self.now.max(first_deadline(engine)),
            Step::AdvanceToRunOut { early_ns } => {
                let deadline_ns = first_deadline(engine).as_ns();
                self.now = self.now.max(Time::from_ns(deadline_ns.saturating_sub(*early_ns)));
            }
            Step::AdvanceToNextLook => {
                self.now = self.now.max(engine.next_deadline().unwrap_or_default());
            }
            _ => {}
        }
    }

    /// The engine's part; gives its answers. Those of one look may come in any
    /// order among clients: no snapshot says whose wait in another pool began
    /// first within one nanosecond, or tick.
    fn take(&mut self, step: &Step, engine: &mut Engine) -> Vec<(ClientId, Reply)> {
        let client_in = |slot: u32| ClientId { slot, serial: self.serials[slot as usize] };
        match *step {
            Step::Acquire { slot, mode, key, workers, max_queue, timeout_s } => {
                let key = if key == 0 { vec![] } else { vec![b'k', key] };
                let request = Acquire { mode, key: &key, workers, max_queue, timeout_s };
                engine.acquire(client_in(slot), &request, self.now);
            }
            Step::Release { slot } => engine.release(client_in(slot), self.now),
            Step::Disconnect { slot } => engine.disconnect(client_in(slot), self.now),
            Step::Shrink => engine.shrink(),
            Step::Expire => engine.expire(self.now),
            _ => {}
        }
        engine.check_invariants();
        engine.take_expired();
        let mut answers: Vec<_> = std::iter::from_fn(|| engine.take_answer()).collect();
        if *step == Step::Expire {
            answers.sort_by_key(|(client, _)| client.serial);
        }
        answers
    }
}

/// Of a wait; the past when nobody waits.
fn first_deadline(engine: &Engine) -> Time {
    let image = engine.image();
    let waiters = image
        .pools
        .iter()
        .flat_map(|pool| pool.waiters_for_me.iter().chain(&pool.waiters_for_anyone));
    waiters.filter_map(|lock| lock.deadline).min().unwrap_or_default()
}

#[track_caller]
fn same<T: PartialEq + Debug>(what: &str, of_what: &str, one: &T, other: &T) {
    assert!(one == other, "{what}: {of_what} differ:\n  twin: {one:?}\n first: {other:?}");
}

/// The order of the pools and of the spent locks in an image means nothing.
fn sorted(mut image: Image) -> Image {
    image.pools.sort_by(|a, b| a.key.cmp(&b.key));
    image.spent.sort_by_key(|lock| (lock.client.slot, lock.depth));
    image
}

impl Choices for Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn is_empty(&self) -> bool {
        false
    }
}

impl Random {
    /// Mostly none.
    fn bytes(&mut self) -> Vec<u8> {
        let len = if self.below(4) == 0 { self.below(50) } else { 0 };
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}
