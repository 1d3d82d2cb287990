//! Engine → snapshot → text → engine gives an equal engine: in the simulation's
//! random states, both give the same answers to the same operations.
//!
//! `SNAPSHOT_SEED=17 cargo test --test restart snapshot_property` runs one seed alone.

use crate::random::{Random, number_from_environment};
use crate::simulation::pair::{any_seed, read, rules};
use crate::simulation::script::{Choices, Script, Step};
use crate::whole_snapshot::{Snapshot, owned};
use engine::counts::histogram::{Histogram, LOCK_TIMES};
use engine::counts::measures::Replies;
use engine::counts::statistics::{Counters, Times};
use engine::state::{EngineState, PoolState};
use engine::{ClientId, Engine, Time};
use poolcounterd::snapshot::{
    ConnectionState, LauncherState, ListenerStage, ListenerState, ListenersState, ServerState,
    SocketFile,
};
use poolcounterd::{Purpose, Wanted, WantedControl, WantedTcp};
use protocol::{Acquire, Reply};
use std::fmt::Debug;

const RUNS: u64 = 100;
const STEPS_PER_RUN: usize = 600;
/// How often a twin is made, and for how many steps it lives.
const STEPS_PER_TWIN: usize = 40;

#[test]
fn an_engine_read_from_a_snapshot_is_the_same_engine() {
    if let Some(seed) = number_from_environment("SNAPSHOT_SEED") {
        run(seed);
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

#[test]
fn a_sum_of_time_survives_any_format() {
    for ns in [0, 1, 999_999_999, 1_000_000_000, u128::from(u64::MAX) * 1_000_000_000] {
        let times = Times { gained_ns: ns, ..Times::default() };
        let read = serde_json::from_str(&serde_json::to_string(&times).expect("text"));
        assert_eq!(read.ok(), Some(times));
    }
}

#[test]
fn an_unknown_statistic_is_ignored_and_a_missing_one_is_zero() {
    let read = serde_json::from_str(r#"{"full_queues":3,"of_tomorrow":4}"#);
    assert_eq!(read.ok(), Some(Counters { full_queues: 3, ..Counters::default() }));
    let read = serde_json::from_str(r#"{"gained_ns":[1,5],"of_tomorrow":[1,2]}"#);
    assert_eq!(read.ok(), Some(Times { gained_ns: 1_000_000_005, ..Times::default() }));
}

#[test]
fn histograms_and_replies_of_newer_versions_are_read() {
    let read = serde_json::from_str(
        r#"{"counts":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20],
        "sum_high":0,"sum_low":7,"of_tomorrow":1}"#,
    );
    let read: Histogram = read.expect("a histogram");
    assert_eq!((read.counts(&LOCK_TIMES).len(), read.sum()), (18, 7));
    let again = serde_json::to_string(&read).expect("text");
    assert_eq!(serde_json::from_str::<Histogram>(&again).ok(), Some(read));
    let replies = r#"[["ACQ4ME","LOCKED",3],["ACQ4ME","MAYBE",4],["ASK","LOCKED",5]]"#;
    let read: Replies = serde_json::from_str(replies).expect("replies");
    assert_eq!(read.iter().collect::<Vec<_>>(), [("ACQ4ME", "LOCKED", 3)]);
    let again = serde_json::to_string(&read).expect("text");
    assert_eq!(serde_json::from_str::<Replies>(&again).ok(), Some(read));
}

/// How much of each kind was covered.
#[derive(Debug, Default)]
struct Seen {
    snapshots: usize,
    /// The most locks in a snapshot.
    locks: usize,
    /// Timeouts among the answers of twins.
    timeouts: usize,
}

fn run(seed: u64) -> Seen {
    let mut random = Random(seed);
    let script = Script::generate(&mut random, STEPS_PER_RUN);
    let mut outside = Outside::new(&script);
    let mut seen = Seen::default();
    let mut engine = outside.engine();
    let mut twin = None;
    for (n, step) in script.steps.iter().enumerate() {
        let what = format!("SNAPSHOT_SEED={seed}, step {n}, {step:?}");
        if n % STEPS_PER_TWIN == 0 {
            let snapshot = outside.snapshot(&engine, &mut random);
            seen.snapshots += 1;
            seen.locks = seen.locks.max(engine.lock_count());
            twin = Some(outside.twin(&snapshot, &what));
        }
        outside.prepare(step, &engine);
        let expected = outside.take(step, &mut engine);
        let Some(twin) = &mut twin else {
            continue;
        };
        let answers = outside.take(step, twin);
        seen.timeouts += answers.iter().filter(|(_, reply)| *reply == Reply::Timeout).count();
        same(&what, "answers", &answers, &expected);
        same(&what, "counters", &twin.counters, &engine.counters);
        same(&what, "times", twin.times(), engine.times());
        same(&what, "states", &state_of(twin), &state_of(&engine));
    }
    seen
}

fn set_rules(engine: &mut Engine, number: u8, now: Time) {
    let (rules, groups) = rules(number);
    engine.set_rules(read(&rules), &groups, now, || {});
}

/// The state outside the engine.
struct Outside {
    now: Time,
    rules: u8,
    /// The serial number of the client in each slot.
    serials: Vec<u32>,
    last_serial: u32,
}

impl Outside {
    fn new(script: &Script) -> Self {
        let now = Time::from_ns(script.start_ns);
        Outside { now, rules: script.rules, serials: Vec::new(), last_serial: 0 }
    }

    fn engine(&self) -> Engine {
        let mut engine = Engine::new(any_seed(), self.now);
        set_rules(&mut engine, self.rules, self.now);
        engine
    }

    /// Connections for all clients, with random contents.
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
                unhandled: Vec::new(),
                unsent: random.bytes(),
                finishing: random.below(2) == 0,
                unread: random.below(2) == 0,
            })
            .collect();
        let pools: Vec<_> = engine.pool_states().map(owned).collect();
        let server = ServerState {
            engine: engine.state(),
            taken: self.now,
            last_serial: self.last_serial,
            listening: listening(random),
            epoll_fd: 8,
            operators: Vec::new(),
            requester: None,
            restarts_again: false,
            launcher: LauncherState { trial_fds: [9, 10], program: random.bytes() },
            settings: Default::default(),
            rules_file: Default::default(),
            history: Default::default(),
            logging: Default::default(),
            connections: connections.len(),
            pools: pools.len(),
        };
        Snapshot { server, connections, pools }
    }

    /// Another engine, made from the text.
    fn twin(&self, snapshot: &Snapshot, what: &str) -> Engine {
        let text = snapshot.write();
        let read = Snapshot::read(&text).unwrap_or_else(|e| panic!("{what}: {e}"));
        same(what, "snapshots", &read, snapshot);
        assert_eq!(read.write(), text, "{what}: written again");
        let twin = read.resume_engine(self.now);
        let twin = twin.unwrap_or_else(|e| panic!("{what}: {e:?}"));
        twin.check_invariants();
        same(
            what,
            "states",
            &state_of(&twin),
            &sorted(snapshot.server.engine.clone(), snapshot.pools.clone()),
        );
        twin
    }

    /// The part of a step outside the engine.
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

    /// The engine's part of a step. Returns its answers.
    fn take(&mut self, step: &Step, engine: &mut Engine) -> Vec<(ClientId, Reply)> {
        let client_in = |slot: u32| ClientId { slot, serial: self.serials[slot as usize] };
        match *step {
            Step::Acquire { slot, mode, key, workers, max_queue, timeout_s } => {
                let key = if key == 0 { vec![] } else { vec![b'k', b'0' + key] };
                let request = Acquire { mode, key: &key, workers, max_queue, timeout_s };
                engine.acquire(client_in(slot), &request, self.now);
            }
            Step::Release { slot } => engine.release(client_in(slot), self.now),
            Step::Disconnect { slot } => engine.disconnect(client_in(slot), self.now),
            Step::DisconnectAll { first, count } => {
                let slots = first..(first + count).min(self.serials.len() as u32);
                let clients: Vec<ClientId> = slots.map(client_in).collect();
                engine.disconnect_all(&clients, self.now);
            }
            Step::Shrink => engine.shrink(),
            Step::SetRules { number } => set_rules(engine, number, self.now),
            Step::Expire => engine.expire(self.now),
            Step::Advance { .. }
            | Step::AdvanceToDeadline
            | Step::AdvanceToRunOut { .. }
            | Step::AdvanceToNextLook
            | Step::Restart => {}
        }
        engine.check_invariants();
        engine.take_expired();
        std::iter::from_fn(|| engine.take_answer()).collect()
    }
}

/// Listeners of every kind.
fn listening(random: &mut Random) -> ListenersState {
    let path = "/a \"b\"\n\u{1f511}".to_owned();
    let tcp = Wanted::Tcp(WantedTcp {
        address: "[::1]:7531".parse().expect("an address"),
        optional: random.below(2) == 0,
        purpose: Purpose::Clients,
    });
    let group = (random.below(2) == 0).then(|| "ops".to_owned());
    let control = Wanted::Control(WantedControl { path, group });
    let file = Some(SocketFile { device: u64::MAX, inode: 0 });
    let mut listener = |fd, wanted, file| ListenerState {
        fd,
        name: "[::1]:7531".to_owned(),
        wanted,
        file,
        life: [ListenerStage::Open, ListenerStage::Closing][random.below(2) as usize],
        left: random.below(100) as usize,
    };
    ListenersState {
        listeners: vec![
            listener(3, Some(tcp), None),
            listener(4, Some(control), file),
            listener(5, None, None),
        ],
        draining: random.below(2) == 0,
        lost: vec!["[::1]:7532".to_owned(); random.below(2) as usize],
        free_port: (random.below(2) == 0).then_some(40_000),
        own_descriptors: random.below(100) as u16,
    }
}

/// The earliest deadline of a wait; the start of time without waits.
fn first_deadline(engine: &Engine) -> Time {
    let waiters = engine
        .pool_states()
        .flat_map(|pool| [pool.waiters_for_me, pool.waiters_for_anyone].concat());
    waiters.filter_map(|lock| lock.deadline).min().unwrap_or_default()
}

#[track_caller]
fn same<T: PartialEq + Debug>(what: &str, of_what: &str, one: &T, other: &T) {
    assert!(one == other, "{what}: {of_what} differ:\n  twin: {one:?}\n first: {other:?}");
}

fn state_of(engine: &Engine) -> (EngineState, Vec<PoolState<'_>>) {
    sorted(engine.state(), engine.pool_states())
}

/// The order of the pools in a state has no meaning.
fn sorted<'a>(
    state: EngineState,
    pools: impl IntoIterator<Item = PoolState<'a>>,
) -> (EngineState, Vec<PoolState<'a>>) {
    let mut pools: Vec<PoolState<'_>> = pools.into_iter().collect();
    pools.sort_by(|one, other| one.key.cmp(&other.key));
    (state, pools)
}

impl Random {
    /// Mostly empty.
    fn bytes(&mut self) -> Vec<u8> {
        let len = if self.below(4) == 0 { self.below(50) } else { 0 };
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}
