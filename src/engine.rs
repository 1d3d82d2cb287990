//! What decides: pools, wait queues, locks, timeouts, statistics.
//!
//! Pure: no I/O, no clock, no randomness but a hash seed. Time is passed in, and
//! the same calls with the same times give the same answers; simulation, fuzzing
//! and hot restart live on that. What is to be said to clients is appended to an
//! outbox ([`Engine::take_answer`]), since a command of one client may answer
//! others: the engine never writes and knows no peer.
//!
//! Every operation is O(1), with 10 waiters or 1,000,000 (but for those that
//! answer many: each answer costs O(1)).

mod hold_limits;
pub mod image;
mod lock;
mod pool;
pub mod statistics;
mod time;
mod wheel;

use crate::protocol::{Acquire, Mode, Reply};
pub use hold_limits::HoldLimit;
use lock::{Lock, LockId, Locks, NO_POOL, State};
use pool::Pools;
use statistics::{Counters, Durations};
use std::collections::VecDeque;
use std::hash::RandomState;
pub use time::Time;
use wheel::Wheel;

/// How many locks a client may hold and wait for.
pub const LOCKS_PER_CLIENT_MAX: usize = 4;

/// Who inherits a slot whose holder did not finish its work.
const HEIRS: &[State] = &[State::WaitingForMe, State::WaitingForAnyone];

/// A client, as the caller numbers them: a slot that is used again, and a serial
/// number that is not. With it, something said of a former client of the slot
/// misses and does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId {
    /// Small numbers, used again: an index.
    pub slot: u32,
    /// Never used again (but after 2^32 clients).
    pub serial: u32,
}

/// The locks of one client: a stack. If it waits, the wait is on top.
#[derive(Clone, Copy, Debug, Default)]
struct Stack {
    locks: [LockId; LOCKS_PER_CLIENT_MAX],
    len: u8,
}

impl Stack {
    fn as_slice(&self) -> &[LockId] {
        &self.locks[..usize::from(self.len)]
    }

    fn top(&self) -> Option<LockId> {
        self.as_slice().last().copied()
    }

    fn push(&mut self, id: LockId) {
        self.locks[usize::from(self.len)] = id;
        self.len += 1;
    }

    fn pop(&mut self) {
        self.len -= 1;
    }
}

/// A lock that was held for longer than its key allows, and taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredLock {
    /// Who held it.
    pub client: ClientId,
    /// Whose key.
    pub key: Vec<u8>,
    /// For how long, in nanoseconds.
    pub held_ns: u64,
}

/// The state of the daemon, without its connections.
#[derive(Debug)]
pub struct Engine {
    pools: Pools,
    locks: Locks,
    wheel: Wheel,
    /// By the clients' slots.
    stacks: Vec<Stack>,
    outbox: VecDeque<(ClientId, Reply)>,
    hold_limits: Vec<HoldLimit>,
    /// Locks taken away, of which nobody has been told yet.
    expired: Vec<ExpiredLock>,
    /// The whole-number statistics. The caller counts here too what only it
    /// can see (`connect_errors`, `failed_sends`, `rejected_connections`).
    pub counters: Counters,
    durations: Durations,
    started: Time,
}

impl Engine {
    /// An engine without locks, started at `now`.
    pub fn new(hasher: RandomState, now: Time) -> Self {
        Engine {
            pools: Pools::new(hasher),
            locks: Locks::new(),
            wheel: Wheel::new(now),
            stacks: Vec::new(),
            outbox: VecDeque::new(),
            hold_limits: Vec::new(),
            expired: Vec::new(),
            counters: Counters::default(),
            durations: Durations::default(),
            started: now,
        }
    }

    /// `ACQ4ME`, `ACQ4ANY`: gives the lock, refuses it, or lets the client wait
    /// (no answer yet).
    pub fn acquire(&mut self, client: ClientId, request: &Acquire, now: Time) {
        if let Some(answer) = self.try_acquire(client, request, now) {
            self.answer(client, answer);
        }
    }

    /// The order of the checks is the protocol's (docs/protocol.md).
    fn try_acquire(&mut self, client: ClientId, request: &Acquire, now: Time) -> Option<Reply> {
        let stack = self.stack(client);
        if stack.as_slice().len() == LOCKS_PER_CLIENT_MAX {
            self.counters.lock_mismatch += 1;
            return Some(Reply::LockHeld);
        }
        if self.waits(stack) {
            self.counters.lock_while_waiting += 1;
            return Some(Reply::WaitForResponse);
        }
        if request.key.is_empty() || request.workers == 0 || request.max_queue == 0 {
            return Some(Reply::BadSyntax);
        }
        let hash = self.pools.hash(request.key);
        let found = self.pools.find(request.key, hash);
        let (holders, count) = found.map_or((0, 0), |id| {
            let pool = self.pools.get(id);
            (pool.holders.len(), pool.count())
        });
        if count >= request.max_queue {
            self.counters.full_queues += 1;
            return Some(Reply::QueueFull);
        }
        let state = match request.mode {
            _ if holders < request.workers => State::Holding,
            _ if request.timeout_s == 0 => return Some(Reply::Timeout),
            Mode::ForMe => State::WaitingForMe,
            Mode::ForAnyone => State::WaitingForAnyone,
        };
        let pool = found.unwrap_or_else(|| self.add_pool(request.key, hash));
        let lock = self.add_lock(Lock::new(client, pool, state, now));
        if state == State::Holding {
            self.limit_hold(lock);
            self.counters.total_acquired += 1;
            self.counters.processing_workers += 1;
            return Some(Reply::Locked);
        }
        self.counters.waiting_workers += 1;
        self.wheel.start(&mut self.locks, lock, now.plus_seconds(request.timeout_s));
        None
    }

    /// `RELEASE`: gives back the client's last lock, or cancels its wait.
    pub fn release(&mut self, client: ClientId, now: Time) {
        let Some(id) = self.stack(client).top() else {
            self.counters.release_mismatch += 1;
            self.answer(client, Reply::NotLocked);
            return;
        };
        let lock = self.remove_lock(id);
        if lock.state == State::Spent {
            // It was taken away; the client did nothing wrong by giving it back.
            self.answer(client, Reply::NotLocked);
            return;
        }
        self.counters.total_releases += 1;
        if lock.state == State::Holding {
            let held_ns = self.count_processed(lock.since, now);
            self.answer_done(lock.pool, held_ns, now);
            self.hand_on(lock.pool, &[State::WaitingForMe], now);
        }
        self.drop_pool_if_empty(lock.pool);
        self.answer(client, Reply::Released);
    }

    /// The client has gone: gives back all it holds, the last one first. Its
    /// work was not finished, so nobody is told `DONE`.
    pub fn disconnect(&mut self, client: ClientId, now: Time) {
        while let Some(id) = self.stack(client).top() {
            let lock = self.remove_lock(id);
            if lock.state == State::Spent {
                continue;
            }
            if lock.state == State::Holding {
                self.count_processed(lock.since, now);
                self.hand_on(lock.pool, HEIRS, now);
            }
            self.drop_pool_if_empty(lock.pool);
        }
    }

    /// Ends the waits whose time has run out at `now`, and takes away the locks
    /// that were held for too long.
    pub fn expire(&mut self, now: Time) {
        while let Some(id) = self.wheel.pop_expired(&mut self.locks, now) {
            if self.locks[id as usize].state == State::Holding {
                self.take_away(id, now);
                continue;
            }
            let lock = self.remove_lock(id);
            self.durations.wasted_timeout_ns += u128::from(now.ns_since(lock.since));
            self.drop_pool_if_empty(lock.pool);
            self.answer(lock.client, Reply::Timeout);
        }
    }

    /// The slot goes on as if the holder had disconnected; for the holder itself
    /// the lock is spent. It is told so when it gives it back.
    fn take_away(&mut self, id: LockId, now: Time) {
        let lock = &mut self.locks[id as usize];
        lock.state = State::Spent;
        let pool = std::mem::replace(&mut lock.pool, NO_POOL);
        let (client, since) = (lock.client, lock.since);
        self.pools.get_mut(pool).holders.leave(&mut self.locks, id);
        self.counters.processing_workers -= 1;
        self.counters.expired_locks += 1;
        let held_ns = self.count_processed(since, now);
        let key = self.pools.get(pool).key().to_vec();
        self.expired.push(ExpiredLock { client, key, held_ns });
        self.hand_on(pool, HEIRS, now);
        self.drop_pool_if_empty(pool);
    }

    /// Takes the locks that were taken away since the last call, to be told to
    /// the operator.
    pub fn take_expired(&mut self) -> Vec<ExpiredLock> {
        std::mem::take(&mut self.expired)
    }

    /// Limits how long keys may be held; the first that matches a key counts.
    /// Holds for locks that are held already, from when they were given.
    pub fn set_hold_limits(&mut self, limits: Vec<HoldLimit>) {
        self.hold_limits = limits;
        for pool in self.pools.iter_mut() {
            pool.hold_s_max = hold_limits::hold_s_max(&self.hold_limits, pool.key());
        }
        let held = self.locks.iter().filter(|(_, lock)| lock.state == State::Holding);
        let held: Vec<LockId> = held.map(|(id, _)| id as LockId).collect();
        for id in held {
            self.wheel.stop(&mut self.locks, id);
            self.limit_hold(id);
        }
    }

    /// Starts the timer of a lock that is held, if its key has a limit.
    fn limit_hold(&mut self, id: LockId) {
        let lock = &self.locks[id as usize];
        let hold_s_max = self.pools.get(lock.pool).hold_s_max;
        if hold_s_max > 0 {
            let deadline = lock.since.plus_seconds(hold_s_max.into());
            self.wheel.start(&mut self.locks, id, deadline);
        }
    }

    /// When [`Engine::expire`] should be called next: never after a deadline by
    /// more than a tick of the wheel (about a millisecond), perhaps before it.
    pub fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    /// Takes the oldest answer that has not been taken yet.
    pub fn take_answer(&mut self) -> Option<(ClientId, Reply)> {
        self.outbox.pop_front()
    }

    /// How many locks are held, waited for or spent.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Whether nobody holds or waits for anything.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Gives back memory after a crowd has left. O(what it had).
    pub fn shrink(&mut self) {
        self.pools.shrink();
        self.locks.shrink_to_fit();
        self.outbox.shrink_to_fit();
        let used = self.stacks.iter().rposition(|stack| stack.top().is_some());
        self.stacks.truncate(used.map_or(0, |slot| slot + 1));
        self.stacks.shrink_to_fit();
    }

    /// The sums of time.
    pub fn durations(&self) -> &Durations {
        &self.durations
    }

    /// When the engine was made.
    pub fn started(&self) -> Time {
        self.started
    }

    fn answer(&mut self, client: ClientId, reply: Reply) {
        self.outbox.push_back((client, reply));
    }

    fn stack(&self, client: ClientId) -> Stack {
        let stack = self.stacks.get(client.slot as usize).copied().unwrap_or_default();
        debug_assert!(stack.as_slice().iter().all(|&id| self.locks[id as usize].client == client));
        stack
    }

    fn waits(&self, stack: Stack) -> bool {
        stack.top().is_some_and(|id| self.locks[id as usize].state.waits())
    }

    fn add_pool(&mut self, key: &[u8], hash: u64) -> u32 {
        self.counters.hashtable_entries += 1;
        let hold_s_max = hold_limits::hold_s_max(&self.hold_limits, key);
        self.pools.add(key, hash, hold_s_max)
    }

    fn drop_pool_if_empty(&mut self, pool: u32) {
        if self.pools.remove_if_empty(pool) {
            self.counters.hashtable_entries -= 1;
        }
    }

    /// Puts a lock on its client's stack and into its pool's queue.
    fn add_lock(&mut self, lock: Lock) -> LockId {
        let client = lock.client;
        let id = self.queue_lock(lock);
        self.stack_mut(client).push(id);
        id
    }

    fn queue_lock(&mut self, lock: Lock) -> LockId {
        let Lock { pool, state, .. } = lock;
        let id = LockId::try_from(self.locks.insert(lock)).expect("fewer locks than 2^32");
        self.pools.get_mut(pool).queue_mut(state).join(&mut self.locks, id);
        id
    }

    fn stack_mut(&mut self, client: ClientId) -> &mut Stack {
        let slot = client.slot as usize;
        if slot >= self.stacks.len() {
            self.stacks.resize(slot + 1, Stack::default());
        }
        &mut self.stacks[slot]
    }

    /// Takes a lock out of everything that knows it. It must be on top of its
    /// client's stack: waits always are.
    fn remove_lock(&mut self, id: LockId) -> Lock {
        let Lock { client, pool, state, .. } = self.locks[id as usize];
        self.wheel.stop(&mut self.locks, id);
        if state != State::Spent {
            self.pools.get_mut(pool).queue_mut(state).leave(&mut self.locks, id);
        }
        let stack = &mut self.stacks[client.slot as usize];
        debug_assert_eq!(stack.top(), Some(id));
        stack.pop();
        match state {
            State::Holding => self.counters.processing_workers -= 1,
            State::WaitingForMe | State::WaitingForAnyone => self.counters.waiting_workers -= 1,
            State::Spent => {}
        }
        self.locks.remove(id as usize)
    }

    /// Counts a lock that was held and has ended. Returns for how long it was.
    fn count_processed(&mut self, since: Time, now: Time) -> u64 {
        let held_ns = now.ns_since(since);
        self.durations.processing_ns += u128::from(held_ns);
        self.counters.processed_count += 1;
        held_ns
    }

    /// The work is done: all who would take anyone's are told, oldest first.
    fn answer_done(&mut self, pool: u32, held_ns: u64, now: Time) {
        while let Some(id) = self.pools.get(pool).waiters_for_anyone.first() {
            let waiter = self.remove_lock(id);
            self.durations.waiting_for_good_ns += u128::from(now.ns_since(waiter.since));
            self.durations.gained_ns += u128::from(held_ns);
            self.answer(waiter.client, Reply::Done);
        }
    }

    /// A slot is free: it goes to the oldest waiter of the first kind of
    /// `heirs` that has one.
    fn hand_on(&mut self, pool: u32, heirs: &[State], now: Time) {
        let pool = self.pools.get_mut(pool);
        let Some(id) = heirs.iter().find_map(|&state| pool.queue(state).first()) else {
            return;
        };
        self.wheel.stop(&mut self.locks, id);
        let lock = &mut self.locks[id as usize];
        let waited_as = std::mem::replace(&mut lock.state, State::Holding);
        let waited_ns = u128::from(now.ns_since(lock.since));
        let client = lock.client;
        lock.since = now;
        pool.queue_mut(waited_as).leave(&mut self.locks, id);
        pool.holders.join(&mut self.locks, id);
        self.limit_hold(id);
        match waited_as {
            State::WaitingForMe => self.durations.waiting_for_me_ns += waited_ns,
            _ => self.durations.waiting_for_anyone_ns += waited_ns,
        }
        self.counters.waiting_workers -= 1;
        self.counters.processing_workers += 1;
        self.counters.total_acquired += 1;
        self.answer(client, Reply::Locked);
    }

    /// Panics unless the engine's parts say the same. O(everything): for tests,
    /// simulation and fuzzing, after each step.
    pub fn check_invariants(&self) {
        self.pools.check_invariants(&self.locks);
        let in_queues: u32 = self.pools.iter().map(|(_, pool)| pool.count()).sum();
        let of_state = |state| self.locks.iter().filter(|(_, lock)| lock.state == state).count();
        let (holders, spent) = (of_state(State::Holding), of_state(State::Spent));
        let waiters = self.locks.len() - holders - spent;
        assert_eq!(in_queues as usize, holders + waiters, "a lock is in no queue");
        let on_stacks: usize = self.stacks.iter().map(|stack| stack.as_slice().len()).sum();
        assert_eq!(on_stacks, self.locks.len(), "a lock is on no stack");
        let timers = self.locks.iter().filter(|(_, lock)| lock.timer.deadline().is_some()).count();
        assert_eq!(timers, self.wheel.len());
        for (slot, stack) in self.stacks.iter().enumerate() {
            for &id in stack.as_slice() {
                let lock = &self.locks[id as usize];
                assert_eq!(lock.client.slot as usize, slot);
                assert_eq!(lock.timer.deadline().is_some(), self.needs_timer(lock));
                assert!(!lock.state.waits() || stack.top() == Some(id), "a wait below a lock");
            }
        }
        let gauges = &self.counters;
        assert_eq!(gauges.hashtable_entries as usize, self.pools.len());
        assert_eq!(gauges.processing_workers as usize, holders);
        assert_eq!(gauges.waiting_workers as usize, waiters);
    }

    fn needs_timer(&self, lock: &Lock) -> bool {
        match lock.state {
            State::Holding => self.pools.get(lock.pool).hold_s_max > 0,
            State::WaitingForMe | State::WaitingForAnyone => true,
            State::Spent => false,
        }
    }
}
