//! All decisions about locks: pools, wait queues, timeouts, statistics.
//!
//! Pure: no I/O, no clock, no randomness but a hash seed. The caller passes the
//! time in, and the same calls with the same times give the same answers;
//! simulation, fuzzing and hot restart rely on that. A command of one client may
//! answer others, so the engine appends answers to an outbox
//! ([`Engine::take_answer`]): it never writes, and knows no peer.
//!
//! Every operation is O(1), with 10 waiters or 1,000,000. An operation that answers
//! several clients costs O(1) for each answer.

mod client;
pub mod counts;
mod decisions;
mod enforcement;
mod invariants;
mod lock;
pub mod observe;
mod pool;
pub mod rules;
mod spare_capacity;
mod stack;
pub mod state;
mod time;
pub mod view;
mod wheel;

pub use client::ClientId;
pub use spare_capacity::SpareCapacity;
pub use stack::LOCKS_PER_CLIENT_MAX;
pub use time::Time;

use crate::protocol::Reply;
use counts::measures::{CommandKind, Measures};
use counts::statistics::{Counters, Event, Times};
use lock::{Lock, LockId, Locks};
use observe::observer::Observer;
use pool::Pools;
use rules::{Matches, Rules};
use stack::Stack;
use std::collections::VecDeque;
use std::hash::RandomState;
use wheel::Wheel;

/// A lock that was held for longer than its key allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredLock {
    /// Its holder.
    pub client: ClientId,
    /// Its key.
    pub key: Vec<u8>,
    /// How long it was held, in nanoseconds.
    pub held_ns: u64,
}

/// Everything that the daemon knows about locks, without the connections.
#[derive(Clone, Debug)]
pub struct Engine {
    pools: Pools,
    locks: Locks,
    wheel: Wheel,
    /// Indexed by client slot.
    stacks: Vec<Stack>,
    outbox: VecDeque<(ClientId, Reply)>,
    rules: Rules,
    /// The number of the last hold or wait that began.
    last_sequence: u64,
    /// Locks that were held for too long and are not reported yet.
    expired: Vec<ExpiredLock>,
    /// New rules have started timers of holds that began before others.
    has_late_timers: bool,
    /// The whole-number statistics. The caller also counts here what only it can
    /// see (`connect_errors`, `failed_sends`, `rejected_connections`).
    pub counters: Counters,
    times: Times,
    /// Histograms, and answers by command. The caller also counts here the answers that
    /// only it gives.
    pub measures: Measures,
    /// What is observed of single keys and clients.
    pub observer: Observer,
    started: Time,
    /// The same moment in nanoseconds since 1970, only shown. The caller sets it once; hot
    /// restarts keep it.
    pub started_wall_ns: Option<u64>,
}

impl Engine {
    /// An engine without locks, started at `now`.
    pub fn new(hasher: RandomState, now: Time) -> Self {
        let observer = Observer::new(hasher.clone(), now);
        Engine {
            pools: Pools::new(hasher),
            locks: Locks::new(),
            wheel: Wheel::new(now),
            stacks: Vec::new(),
            outbox: VecDeque::new(),
            rules: Rules::new(Vec::new(), &[]),
            last_sequence: 0,
            expired: Vec::new(),
            has_late_timers: false,
            counters: Counters::default(),
            times: Times::default(),
            measures: Measures::default(),
            observer,
            started: now,
            started_wall_ns: None,
        }
    }

    /// When to call [`Engine::expire`] next: at most a tick of the wheel (about a
    /// millisecond) after the earliest deadline, perhaps before it.
    pub fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    /// Removes and returns the oldest answer.
    pub fn take_answer(&mut self) -> Option<(ClientId, Reply)> {
        self.outbox.pop_front()
    }

    /// Returns the locks that were held for too long since the last call. Their clients are
    /// disconnected.
    pub fn take_expired(&mut self) -> Vec<ExpiredLock> {
        std::mem::take(&mut self.expired)
    }

    /// The number of locks, held or waited for.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Whether no client holds or waits for anything.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// What [`Engine::shrink`] would free.
    pub fn spare(&self) -> SpareCapacity {
        SpareCapacity::of(&self.locks).max(self.pools.spare())
    }

    /// Frees unused memory after many clients have left. Takes time in proportion to
    /// the memory that was in use.
    pub fn shrink(&mut self) {
        self.pools.shrink();
        self.locks.shrink_to_fit();
        self.outbox.shrink_to_fit();
        self.observer.samples.shrink_to_fit();
        let used = self.stacks.iter().rposition(|stack| stack.top().is_some());
        self.stacks.truncate(used.map_or(0, |slot| slot + 1));
        self.stacks.shrink_to_fit();
    }

    /// The sums of time.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// When the engine was made.
    pub fn started(&self) -> Time {
        self.started
    }

    fn answer(&mut self, asked: CommandKind, client: ClientId, reply: Reply) {
        self.record(Event::Answered(asked, reply));
        self.outbox.push_back((client, reply));
    }

    #[inline(always)]
    fn add_pool(&mut self, key: &[u8], hash: u64, matches: Matches) -> u32 {
        self.record(Event::PoolAdded);
        self.pools.add(key, hash, matches)
    }

    fn drop_pool_if_empty(&mut self, pool: u32) {
        if self.pools.remove_if_empty(pool) {
            self.record(Event::PoolRemoved);
        }
    }

    /// Puts a lock on its client's stack and into its pool's queue.
    #[inline(always)]
    fn add_lock(&mut self, lock: Lock) -> LockId {
        let client = lock.client;
        let id = self.queue_lock(lock);
        self.push_lock(client.slot, id);
        id
    }

    fn next_sequence(&mut self) -> u64 {
        self.last_sequence += 1;
        self.last_sequence
    }

    #[inline(always)]
    fn queue_lock(&mut self, lock: Lock) -> LockId {
        let Lock { pool, phase, .. } = lock;
        let id = LockId::try_from(self.locks.insert(lock)).expect("fewer locks than 2^32");
        self.pools.get_mut(pool).queue_mut(phase).join(&mut self.locks, id);
        id
    }

    #[inline(always)]
    fn push_lock(&mut self, slot: u32, id: LockId) {
        let slot = slot as usize;
        if slot >= self.stacks.len() {
            self.stacks.resize(slot + 1, Stack::default());
        }
        self.stacks[slot].push(&mut self.locks, id);
    }

    /// Removes a lock from its queue, its client's stack and the wheel. It must be on
    /// top of the stack, as waits always are.
    fn remove_lock(&mut self, id: LockId) -> Lock {
        let Lock { client, pool, phase, .. } = self.locks[id as usize];
        self.wheel.stop(&mut self.locks, id);
        self.pools.get_mut(pool).queue_mut(phase).leave(&mut self.locks, id);
        let stack = &mut self.stacks[client.slot as usize];
        debug_assert_eq!(stack.top(), Some(id));
        stack.pop(&self.locks);
        self.locks.remove(id as usize)
    }

    /// A lock is held from now on.
    #[inline(always)]
    fn begin_hold(&mut self, id: LockId) {
        if self.rules.limit_holds() {
            self.begin_hold_by_rules(id);
        }
    }

    /// Counts an event. Every event passes through here, once. Inlined, because the
    /// compiler then knows the event and keeps only its few additions; otherwise each
    /// operation takes 10 to 30 more instructions (`make bench-instructions`).
    #[inline(always)]
    fn record(&mut self, event: Event) {
        event.count(&mut self.counters, &mut self.times, &mut self.measures);
    }
}
