//! The engine as plain data for a hot restart: what is written, gauges too, how it resumes, and
//! what it refuses because no engine can have written it.
//!
//! [`Engine::state`] and [`Engine::pool_states`] return it, one pool at a time and
//! with borrowed keys, so that a snapshot of any size is streamed, not copied.
//! [`Engine::resume`] reads it in the same way and checks what decisions depend on, not
//! the statistics.
//!
//! All types derive serde. The data contains the names of the fields, fields with
//! default values are left out, and unknown fields are ignored: a daemon reads the
//! state of an older or a newer version.

use crate::Engine;
use crate::counts::measures::Measures;
use crate::counts::statistics::{Counters, Times};
use crate::hash::HashSeed;
use crate::lock::{ClientId, Lock, LockId, Phase, PoolId};
use crate::observe::observer::{Observer, ObserverState};
use crate::rules::rule::RuleNumber;
use crate::rules::{Rules, RulesState};
use crate::time::Time;
use crate::wheel::tick_after;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use protocol::Mode;
use protocol::lines::LINE_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// All state of the engine, except the pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineState {
    /// When the daemon began to count.
    #[serde(rename = "started_ns")]
    pub started: Time,
    /// [`Engine::started_wall_ns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_wall_ns: Option<u64>,
    /// The whole-number statistics. [`Engine::resume`] counts the gauges itself.
    #[serde(default)]
    pub counters: Counters,
    /// The sums of time.
    #[serde(default)]
    pub times: Times,
    /// Histograms, and answers by command.
    #[serde(default)]
    pub measures: Measures,
    /// The most frequent keys and addresses, and slow holds and waits.
    #[serde(default)]
    pub observer: ObserverState,
    /// The sequence number of the hold or wait that began last.
    #[serde(default)]
    pub last_sequence: u64,
    /// The rules in force, and their counts.
    #[serde(default)]
    pub rules: RulesState,
}

/// One key and its queues, the oldest lock first in each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolState<'a> {
    /// Raw bytes, borrowed where the format allows it.
    #[serde(borrow, with = "serde_bytes")]
    pub key: Cow<'a, [u8]>,
    /// Never empty: waiters always have a holder to wait for.
    pub holders: Vec<LockState>,
    /// Clients that wait after `ACQ4ME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiters_for_me: Vec<LockState>,
    /// Clients that wait after `ACQ4ANY`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiters_for_anyone: Vec<LockState>,
}

/// One lock, held or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockState {
    /// The client that it belongs to.
    pub client: ClientId,
    /// Its number in the order in which all holds and waits of the engine began.
    /// Decides which lock expires first within a tick, and which is a client's last.
    pub sequence: u64,
    /// When the hold or the wait began.
    #[serde(rename = "since_ns")]
    pub since: Time,
    /// When the wait times out or the hold exceeds its limit. `None` for a hold without one.
    #[serde(rename = "deadline_ns", default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// A holder that used `ACQ4ANY`. A waiter's command follows from its queue.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub for_anyone: bool,
    /// How many requests this one stands for in `STATS TOP`; 0 if it is not followed.
    #[serde(rename = "requests", default, skip_serializing_if = "is_zero")]
    pub weight: u8,
    /// How many clients may hold the key beside a waiter, by its own request; 65,535 also
    /// stands for more. 0 for a holder.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub workers: u16,
    /// The rule that has shortened the wait, while it is in force: its number plus 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortened_by: Option<RuleNumber>,
    /// The place of its timer among those of its tick, from 1, where a change of rules has
    /// started some of them again; otherwise 0: they were started in the order of `sequence`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub timer_place: u32,
}

/// The kernel allows a process a million descriptors (fs.nr_open); a slot far
/// above that would make the engine reserve memory for all below it.
pub const SLOTS_MAX: u32 = 1 << 22;

/// The reason why no engine can have written a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadState(pub &'static str);

impl Engine {
    /// Everything except the pools. Pending answers, and expired locks that are not reported
    /// yet, are not included.
    pub fn state(&self) -> EngineState {
        EngineState {
            started: self.started,
            started_wall_ns: self.started_wall_ns,
            counters: self.counters,
            times: self.times,
            measures: self.measures.clone(),
            observer: self.observer.state(),
            last_sequence: self.last_sequence,
            rules: self.rules.state(),
        }
    }

    /// The pools, in no particular order.
    pub fn pool_states(&self) -> impl Iterator<Item = PoolState<'_>> {
        let places = self.timer_places();
        self.pools.iter_uncounted().map(move |(_, pool)| {
            let state = |(id, lock): (LockId, &Lock)| LockState {
                timer_place: places.get(&id).copied().unwrap_or_default(),
                ..LockState::of(lock)
            };
            let queue = |phase| pool.queue(phase).iter(&self.locks).map(state).collect();
            PoolState {
                key: Cow::Borrowed(pool.key()),
                holders: queue(Phase::Holding),
                waiters_for_me: queue(Phase::WaitingForMe),
                waiters_for_anyone: queue(Phase::WaitingForAnyone),
            }
        })
    }

    /// The places of timers among those of their tick, where they were not started in the order
    /// in which the holds and waits began. Only a change of rules does that, to holds.
    fn timer_places(&self) -> BTreeMap<LockId, u32> {
        let mut places = BTreeMap::new();
        if !self.rules.have_max_hold() {
            return places;
        }
        for mut timers in self.wheel.buckets(&self.locks) {
            let tick = |&id: &LockId| self.locks[id as usize].timer.deadline().map(tick_after);
            timers.sort_by_key(tick);
            for timers in timers.chunk_by(|one, other| tick(one) == tick(other)) {
                if !timers.is_sorted_by_key(|&id| self.locks[id as usize].sequence) {
                    places.extend(timers.iter().copied().zip(1..));
                }
            }
        }
        places
    }

    /// Makes an engine that continues at `now` from the state of another one: it
    /// gives the same answers in the same order. Reads one pool at a time; an owned
    /// key is moved, not copied.
    ///
    /// # Errors
    /// A state that no engine can have written, or the first error among `pools`.
    pub fn resume<'a, E: From<BadState>>(
        state: EngineState,
        pools: impl IntoIterator<Item = Result<PoolState<'a>, E>>,
        seed: HashSeed,
        now: Time,
    ) -> Result<Self, E> {
        if state.last_sequence > u64::MAX / 2 {
            return Err(BadState("an impossible sequence number").into());
        }
        let mut engine = Engine::new(seed, now);
        engine.rules = Rules::resume(state.rules).map_err(BadState)?;
        engine.last_sequence = state.last_sequence;
        let mut resumed = Resumed {
            now,
            last_sequence: state.last_sequence,
            locks: Vec::new(),
            timers: Vec::new(),
        };
        for pool in pools {
            engine.resume_pool(pool?, &mut resumed)?;
        }
        engine.resume_stacks(resumed.locks)?;
        engine.start_timers(resumed.timers);
        engine.started = state.started;
        engine.times = state.times;
        engine.measures = state.measures;
        engine.observer = Observer::resume(state.observer, seed, now);
        engine.observer.watch_all(engine.rules.are_active());
        engine.started_wall_ns = state.started_wall_ns;
        engine.counters = Counters {
            hashtable_entries: engine.counters.hashtable_entries,
            processing_workers: engine.counters.processing_workers,
            waiting_workers: engine.counters.waiting_workers,
            ..state.counters
        };
        Ok(engine)
    }

    fn resume_pool(&mut self, state: PoolState<'_>, resumed: &mut Resumed) -> Result<(), BadState> {
        check_pool(&state)?;
        let hash = self.pools.hash_aside(&state.key);
        if self.pools.find(&state.key, hash).is_some() {
            return Err(BadState("a key twice"));
        }
        let matches = self.rules.matching(&state.key);
        let pool = self.add_pool(&state.key, hash, matches);
        for (queue, locks) in [
            (Phase::Holding, state.holders),
            (Phase::WaitingForMe, state.waiters_for_me),
            (Phase::WaitingForAnyone, state.waiters_for_anyone),
        ] {
            for lock in locks {
                let id = self.queue_lock(lock.resume(pool, queue));
                resumed.record(id, &lock, queue)?;
                match queue {
                    Phase::Holding => self.counters.processing_workers += 1,
                    _ => self.counters.waiting_workers += 1,
                }
                self.check_rules_of(&lock, id)?;
                let place = lock.timer_place;
                let timer = |deadline| ResumedTimer { deadline, place, lock: id };
                resumed.timers.extend(lock.deadline.map(timer));
            }
        }
        let holders = self.pools.get(pool).holders.len();
        self.rules.count_holders(matches, holders);
        Ok(())
    }

    /// Checks what the rules have made of a lock.
    fn check_rules_of(&self, lock: &LockState, id: LockId) -> Result<(), BadState> {
        if lock.shortened_by.is_some_and(|rule| rule.get() >= self.rules.in_force.len()) {
            return Err(BadState("a wait that an unknown rule has shortened"));
        }
        if self.locks[id as usize].phase.waits() {
            return Ok(());
        }
        match (lock.deadline, self.hold_deadline(id)) {
            (None, None) => Ok(()),
            // Later if it was exceeded when the rule came.
            (Some(deadline), Some(earliest)) if deadline >= earliest => Ok(()),
            (Some(_), Some(_)) => Err(BadState("a hold that ends too early")),
            (Some(_), None) => Err(BadState("a held lock with a deadline")),
            (None, Some(_)) => Err(BadState("a held lock without its deadline")),
        }
    }

    /// Starts the timers in the order in which they were started before. Overdue timers need
    /// this order too: they share one slot of the wheel.
    fn start_timers(&mut self, mut timers: Vec<ResumedTimer>) {
        timers.sort_by_cached_key(|timer| {
            let sequence = self.locks[timer.lock as usize].sequence;
            (tick_after(timer.deadline), timer.place, sequence)
        });
        for ResumedTimer { deadline, lock, .. } in timers {
            self.wheel.start(&mut self.locks, lock, deadline);
        }
    }

    /// Puts the locks on their clients' stacks, in the order in which they began.
    fn resume_stacks(&mut self, mut locks: Vec<(u64, LockId)>) -> Result<(), BadState> {
        locks.sort_unstable();
        if locks.windows(2).any(|two| two[0].0 == two[1].0) {
            return Err(BadState("a sequence number twice"));
        }
        for (_, id) in locks {
            let client = self.locks[id as usize].client;
            let stack = self.stacks.get(client.slot as usize).copied().unwrap_or_default();
            if let Some(top) = stack.top().map(|top| &self.locks[top as usize]) {
                if top.client != client {
                    return Err(BadState("two clients in one slot"));
                }
                if top.phase.waits() {
                    return Err(BadState("a wait below another lock of its client"));
                }
            }
            if stack.is_full(&self.locks) {
                return Err(BadState("a client with too many locks"));
            }
            self.push_lock(client.slot, id);
        }
        Ok(())
    }
}

/// What [`Engine::resume`] sorts once it has read all locks.
struct Resumed {
    now: Time,
    last_sequence: u64,
    /// With their sequence numbers.
    locks: Vec<(u64, LockId)>,
    timers: Vec<ResumedTimer>,
}

/// The timer of a lock, which is still to be started.
struct ResumedTimer {
    deadline: Time,
    /// Its place among those of a tick.
    place: u32,
    lock: LockId,
}

impl Resumed {
    fn record(&mut self, id: LockId, lock: &LockState, phase: Phase) -> Result<(), BadState> {
        check_lock(lock, phase, self.now)?;
        if lock.sequence == 0 || lock.sequence > self.last_sequence {
            return Err(BadState("a sequence number that was not given yet"));
        }
        self.locks.push((lock.sequence, id));
        Ok(())
    }
}

impl LockState {
    fn of(lock: &Lock) -> Self {
        LockState {
            client: lock.client,
            sequence: lock.sequence,
            since: lock.since,
            deadline: lock.timer.deadline(),
            for_anyone: lock.phase == Phase::Holding && lock.mode == Mode::ForAnyone,
            weight: lock.weight,
            workers: if lock.phase.waits() { lock.workers } else { 0 },
            shortened_by: lock.shortened_by,
            timer_place: 0,
        }
    }

    fn resume(&self, pool: PoolId, phase: Phase) -> Lock {
        let mode = match phase {
            Phase::WaitingForAnyone => Mode::ForAnyone,
            Phase::Holding if self.for_anyone => Mode::ForAnyone,
            _ => Mode::ForMe,
        };
        let mut lock = Lock::new(self.client, pool, (phase, mode), self.since, self.sequence);
        lock.weight = self.weight;
        lock.workers = self.workers;
        lock.shortened_by = self.shortened_by;
        lock
    }
}

impl PoolState<'_> {
    /// The clients that hold the key or wait for it, once for each hold or wait.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        let waiters = self.waiters_for_me.iter().chain(&self.waiters_for_anyone);
        self.holders.iter().chain(waiters).map(|lock| lock.client)
    }
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

fn check_pool(state: &PoolState<'_>) -> Result<(), BadState> {
    // Two fast searches instead of one loop over the bytes: keys are most of the data
    // of a hot restart.
    let is_key = |key: &[u8]| !key.is_empty() && !key.contains(&b' ') && !key.contains(&b'\n');
    if !is_key(&state.key) || state.key.len() >= LINE_BYTES_MAX {
        return Err(BadState("a key that no command could hold"));
    }
    if state.holders.is_empty() {
        return Err(BadState("a key without a holder"));
    }
    let is_in_order = |queue: &[LockState]| queue.is_sorted_by_key(|lock| lock.sequence);
    let queues = [&state.holders, &state.waiters_for_me, &state.waiters_for_anyone];
    if !queues.into_iter().all(|queue| is_in_order(queue)) {
        return Err(BadState("a queue in which a newer lock precedes an older one"));
    }
    Ok(())
}

fn check_lock(lock: &LockState, phase: Phase, now: Time) -> Result<(), BadState> {
    if lock.client.slot >= SLOTS_MAX {
        return Err(BadState("a client in a slot that no connection could have"));
    }
    if lock.since > now {
        return Err(BadState("a lock from the future"));
    }
    match lock.deadline {
        _ if !phase.waits() => Ok(()),
        _ if lock.workers == 0 => Err(BadState("a wait for none of the workers")),
        Some(deadline) => check_wait(lock.since, deadline),
        None => Err(BadState("a wait without a deadline")),
    }
}

/// A client waits for whole seconds, or until the end of time if that comes first.
fn check_wait(since: Time, deadline: Time) -> Result<(), BadState> {
    let timeout_ns = deadline.ns_since(since);
    let is_whole = timeout_ns > 0 && timeout_ns % 1_000_000_000 == 0;
    if !is_whole && deadline != Time::from_ns(u64::MAX) {
        return Err(BadState("a wait that is not a whole number of seconds"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
