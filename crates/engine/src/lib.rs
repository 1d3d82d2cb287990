//! All decisions about locks: acquire, release, disconnect, expire; which waiter gets a lock
//! next; the outbox of replies; a record of every event. The daemon calls it, and the reports read
//! its views. It may know the protocol, but no connection and, without std, no socket, file, clock
//! or thread.
//!
//! The caller passes the time and a hash seed in, and the same calls with the same times give the
//! same answers; simulation, fuzzing and hot restart rely on that. A command of one client may
//! answer others, so the engine appends answers to an outbox
//! ([`Engine::take_answer`]) and writes to no connection.
//!
//! Every operation of a client is O(1), with 10 waiters or 1,000,000. One that answers several
//! clients costs O(1) for each answer. A change of rules visits all keys (`rule_change`).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod counts;
mod enforcement;
mod hash;
mod invariants;
mod lock;
pub mod observe;
mod pool;
mod rule_change;
pub mod rules;
mod spare_capacity;
pub mod state;
mod time;
pub mod view;
mod wheel;
mod work;

use alloc::vec::Vec;
pub use hash::HashSeed;
pub use lock::ClientId;
pub use spare_capacity::SpareCapacity;
pub use time::Time;
pub use work::KeyWork;

use alloc::collections::VecDeque;
use counts::measures::{CommandKind, LockOutcome, Measures};
use counts::statistics::{Counters, Times};
use lock::{Lock, LockId, Locks, Phase, PoolId, Stack};
use observe::observer::{FollowedRequest, Observer};
use pool::{Pools, QueueLen, Verdict, verdict};
use protocol::{Acquire, Mode, Reply};
use rules::Rules;
use rules::matcher::Matches;
use wheel::Wheel;

/// The key of a request, looked up.
#[derive(Clone, Copy)]
struct FoundKey {
    hash: u64,
    /// `None` if nobody holds the key.
    pool: Option<PoolId>,
}

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

/// All state about locks, without the connections.
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
    /// The whole-number statistics. The caller adds what only it can see (`connect_errors`,
    /// `failed_sends`, `rejected_connections`).
    pub counters: Counters,
    times: Times,
    /// Histograms, and answers by command. The caller also counts here the answers that
    /// only it gives.
    pub measures: Measures,
    /// What is observed of single keys and clients.
    pub observer: Observer,
    started: Time,
    /// The same moment in nanoseconds since 1970, as the caller has first shown it.
    pub started_wall_ns: Option<u64>,
}

impl Engine {
    /// An engine without locks, started at `now`.
    pub fn new(seed: HashSeed, now: Time) -> Self {
        let observer = Observer::new(seed, now);
        Engine {
            pools: Pools::new(seed),
            locks: Locks::new(),
            wheel: Wheel::new(now),
            stacks: Vec::new(),
            outbox: VecDeque::new(),
            rules: Rules::new(Vec::new(), &[]),
            last_sequence: 0,
            expired: Vec::new(),
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
        core::mem::take(&mut self.expired)
    }

    /// The number of locks, held or waited for.
    pub fn lock_count(&self) -> usize {
        self.locks.len()
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
}

/// The waiters that inherit a slot whose holder did not finish its work, in this
/// order.
const HEIRS: &[Phase] = &[Phase::WaitingForMe, Phase::WaitingForAnyone];

/// The call was for a former client of its slot.
struct FormerClient;

impl Engine {
    /// `ACQ4ME`, `ACQ4ANY`: gives the lock, refuses it, or lets the client wait
    /// (no answer yet).
    pub fn acquire(&mut self, client: ClientId, request: &Acquire<'_>, now: Time) {
        let Ok(top) = self.top_lock(client, now) else {
            return;
        };
        let answer = match top.and_then(|top| self.refuse_more(top)) {
            None => self.try_acquire(client, request, now),
            refusal => refusal,
        };
        if let Some(answer) = answer {
            self.answer(request.mode.into(), client, answer);
        }
    }

    /// Refuses a client that waits already or has as many locks as it may. The
    /// protocol defines the order of the checks, here and in [`Engine::try_acquire`]
    /// (docs/reference/protocol.md).
    fn refuse_more(&mut self, top: LockId) -> Option<Reply> {
        let Lock { client, phase, .. } = self.locks[top as usize];
        if self.stacks[client.slot as usize].is_full(&self.locks) {
            return Some(self.refuse(Reply::LockHeld));
        }
        phase.waits().then(|| self.refuse(Reply::WaitForResponse))
    }

    fn try_acquire(&mut self, client: ClientId, request: &Acquire<'_>, now: Time) -> Option<Reply> {
        if request.key.is_empty() || request.workers == 0 || request.max_queue == 0 {
            return Some(Reply::BadSyntax);
        }
        let hash = self.pools.hash(request.key);
        let found = FoundKey { hash, pool: self.pools.find(request.key, hash) };
        let answer = if self.rules.are_active() {
            self.decide_by_rules(client, request, found, now)
        } else {
            self.decide(client, request, found, Matches::NONE, now)
        };
        let weight = self.observer.sampler.next(now);
        if weight != 1 {
            self.observer.left_out = now;
        }
        if weight > 0 {
            let followed = FollowedRequest { client, key: request.key, hash, weight };
            self.follow(&followed, answer, now);
        }
        answer
    }

    /// Decides with the numbers in `request`, whose key was `found` and matches these rules.
    #[inline(always)]
    fn decide(
        &mut self,
        client: ClientId,
        request: &Acquire<'_>,
        found: FoundKey,
        matches: Matches,
        now: Time,
    ) -> Option<Reply> {
        let queue = found.pool.map_or(QueueLen::default(), |id| self.pools.get(id).len());
        let phase = match (verdict(request, queue), request.mode) {
            (Verdict::Full, _) => return Some(self.refuse(Reply::QueueFull)),
            (Verdict::TimedOut, _) => return Some(Reply::Timeout),
            (Verdict::Granted, _) => Phase::Holding,
            (Verdict::Waits, Mode::ForMe) => Phase::WaitingForMe,
            (Verdict::Waits, Mode::ForAnyone) => Phase::WaitingForAnyone,
        };
        let pool = match found.pool {
            Some(pool) => pool,
            None => self.add_pool(request.key, found.hash, matches),
        };
        let sequence = self.next_sequence();
        let kind = (phase, request.mode);
        let mut lock = Lock::new(client, pool, kind, now, sequence);
        lock.set_workers(request.workers);
        let lock = self.add_lock(lock);
        if phase == Phase::Holding {
            self.begin_hold(lock);
            return Some(Reply::Locked);
        }
        self.counters.waiting_workers += 1;
        self.wheel.start(&mut self.locks, lock, now.plus_seconds(request.timeout_s));
        None
    }

    /// Follows a request, and the lock that it got or waits for.
    #[cold]
    #[inline(never)]
    fn follow(&mut self, request: &FollowedRequest<'_>, answer: Option<Reply>, now: Time) {
        if matches!(answer, None | Some(Reply::Locked)) {
            if let Some(lock) = self.stacks[request.client.slot as usize].top() {
                self.locks[lock as usize].weight = request.weight;
            }
        }
        self.observer.count_request(request, answer, now);
    }

    /// Counts a hold or a wait that has ended after `ns` nanoseconds. Its pool must still be there.
    #[inline(always)]
    fn observe_end(&mut self, lock: &Lock, outcome: LockOutcome, ns: u64, now: Time) {
        self.measures.count_lock(lock.mode, outcome, ns);
        if lock.weight != 1 {
            self.observer.left_out = now;
        }
        if lock.weight > 0 || ns >= self.observer.watched_ns {
            self.count_end(lock, (outcome, ns), now);
        }
    }

    #[cold]
    #[inline(never)]
    fn count_end(&mut self, lock: &Lock, (outcome, ns): (LockOutcome, u64), now: Time) {
        if self.rules.are_active() {
            self.count_end_by_rules(lock, outcome, ns);
        }
        let is_slow = self.observer.is_slow(ns);
        if lock.weight > 0 || is_slow {
            let pool = self.pools.get(lock.pool);
            let rules = is_slow.then(|| {
                let ended_by = self.rules.ended_by(pool.matches, lock.shortened_by, outcome);
                self.rules.behind(pool.matches, ended_by)
            });
            self.observer.count_end(lock, pool, (outcome, ns), rules.unwrap_or_default(), now);
        }
    }

    /// `RELEASE`: gives back the client's last lock, or cancels its wait.
    pub fn release(&mut self, client: ClientId, now: Time) {
        let Ok(top) = self.top_lock(client, now) else {
            return;
        };
        let Some(id) = top else {
            let answer = self.refuse(Reply::NotLocked);
            self.answer(CommandKind::Release, client, answer);
            return;
        };
        let lock = self.remove_lock(id);
        self.counters.total_releases += 1;
        if lock.phase == Phase::Holding {
            let held_ns = self.end_hold(&lock, LockOutcome::Released, now);
            self.answer_done(lock.pool, held_ns, now);
            self.hand_on(lock.pool, &[Phase::WaitingForMe], now);
            self.drop_pool_if_empty(lock.pool);
        } else {
            self.cancel_wait(&lock, now);
        }
        self.answer(CommandKind::Release, client, Reply::Released);
    }

    /// Counts the end of a hold; returns how long it lasted, in nanoseconds.
    #[inline(always)]
    fn end_hold(&mut self, lock: &Lock, outcome: LockOutcome, now: Time) -> u64 {
        let held_ns = now.ns_since(lock.since);
        self.counters.processed_count += 1;
        self.counters.processing_workers -= 1;
        self.counters.expired_locks += u64::from(outcome == LockOutcome::Expired);
        self.times.processing_ns += u128::from(held_ns);
        self.observe_end(lock, outcome, held_ns, now);
        held_ns
    }

    /// Counts the end of a wait; returns how long it lasted, in nanoseconds.
    #[inline(always)]
    fn end_wait(&mut self, lock: &Lock, outcome: LockOutcome, now: Time) -> u64 {
        let waited_ns = now.ns_since(lock.since);
        self.counters.waiting_workers -= 1;
        self.observe_end(lock, outcome, waited_ns, now);
        waited_ns
    }

    fn cancel_wait(&mut self, lock: &Lock, now: Time) {
        self.end_wait(lock, LockOutcome::Cancelled, now);
    }

    /// The client has disconnected: gives back all that it holds, the last lock
    /// first. Its work was not finished, so no waiter gets `DONE`.
    pub fn disconnect(&mut self, client: ClientId, now: Time) {
        self.end_locks(client, None, now);
    }

    /// Ends all locks of `client`, one of which may have `expired`.
    fn end_locks(&mut self, client: ClientId, expired: Option<LockId>, now: Time) {
        let mut top = self.top_lock(client, now);
        while let Ok(Some(id)) = top {
            let lock = self.remove_lock(id);
            match lock.phase {
                Phase::Holding => {
                    let outcome = if expired == Some(id) {
                        LockOutcome::Expired
                    } else {
                        LockOutcome::Disconnected
                    };
                    self.end_hold(&lock, outcome, now);
                    self.hand_on(lock.pool, HEIRS, now);
                    self.drop_pool_if_empty(lock.pool);
                }
                // The pool stays: it has a holder as long as it has waiters.
                Phase::WaitingForMe | Phase::WaitingForAnyone => self.cancel_wait(&lock, now),
            }
            top = Ok(self.stacks[client.slot as usize].top());
        }
    }

    /// As [`Engine::disconnect`] for all these clients together: their waits end first, so
    /// that no lock passes from one of them to another.
    pub fn disconnect_all(&mut self, clients: &[ClientId], now: Time) {
        for &client in clients {
            // Only a client's last lock can be a wait.
            let top = self.top_lock(client, now).ok().flatten();
            if let Some(id) = top.filter(|&id| self.locks[id as usize].phase.waits()) {
                let lock = self.remove_lock(id);
                self.cancel_wait(&lock, now);
            }
        }
        for &client in clients {
            self.disconnect(client, now);
        }
    }

    /// The last lock of `client`. Fails for a former client of the slot.
    #[inline(always)]
    fn top_lock(&mut self, client: ClientId, now: Time) -> Result<Option<LockId>, FormerClient> {
        let Some(top) = self.stacks.get(client.slot as usize).and_then(Stack::top) else {
            return Ok(None);
        };
        let owner = self.locks[top as usize].client;
        if owner == client { Ok(Some(top)) } else { self.change_owner(owner, client, now) }
    }

    /// Not reached if the caller disconnects each client before it reuses the slot.
    #[cold]
    fn change_owner(
        &mut self,
        owner: ClientId,
        client: ClientId,
        now: Time,
    ) -> Result<Option<LockId>, FormerClient> {
        if !client.came_after(owner) {
            return Err(FormerClient);
        }
        self.disconnect(owner, now);
        Ok(None)
    }

    /// Ends the waits that time out by `now`, and disconnects the clients that have held a
    /// lock for too long: [`Engine::take_expired`] returns their locks, and the caller closes
    /// their connections. Goes by the wheel's ticks, and within a tick by when the timers were
    /// started: with the hold or the wait, or by a later change of rules.
    pub fn expire(&mut self, now: Time) {
        while let Some(id) = self.wheel.pop_expired(&mut self.locks, now) {
            self.expire_lock(id, now);
        }
        self.observer.roll(now);
    }

    #[inline(always)]
    fn expire_lock(&mut self, id: LockId, now: Time) {
        if self.locks[id as usize].phase == Phase::Holding {
            return self.expire_hold(id, now);
        }
        let lock = self.remove_lock(id);
        let waited_ns = self.end_wait(&lock, LockOutcome::Timeout, now);
        self.times.wasted_timeout_ns += u128::from(waited_ns);
        self.answer(lock.mode.into(), lock.client, Reply::Timeout);
    }

    /// Disconnects the holder of a lock: a client whose connection stays would not notice
    /// that it has lost the lock.
    fn expire_hold(&mut self, id: LockId, now: Time) {
        let Lock { client, pool, since, .. } = self.locks[id as usize];
        let key = self.pools.get(pool).key().to_vec();
        self.expired.push(ExpiredLock { client, key, held_ns: now.ns_since(since) });
        self.end_locks(client, Some(id), now);
    }

    /// The work is done: sends `DONE` to all waiters that accept another client's
    /// work, oldest first.
    fn answer_done(&mut self, pool: PoolId, held_ns: u64, now: Time) {
        while let Some(id) = self.pools.get(pool).waiters_for_anyone.first(&self.locks) {
            let waiter = self.remove_lock(id);
            let waited_ns = self.end_wait(&waiter, LockOutcome::Done, now);
            self.times.waiting_for_good_ns += u128::from(waited_ns);
            self.times.gained_ns += u128::from(held_ns);
            self.answer(CommandKind::ForAnyone, waiter.client, Reply::Done);
        }
    }

    /// Gives a free slot to the oldest waiter of the first phase in `heirs` that has
    /// waiters. Most often there is none, so the search is inlined.
    #[inline(always)]
    fn hand_on(&mut self, pool: PoolId, heirs: &[Phase], now: Time) {
        let of_pool = self.pools.get(pool);
        if let Some(id) = heirs.iter().find_map(|&phase| of_pool.queue(phase).first(&self.locks)) {
            if of_pool.matches.is_empty() || self.may_inherit(pool) {
                self.hand_to(id, now);
            }
        }
    }

    #[inline(never)]
    fn hand_to(&mut self, id: LockId, now: Time) {
        self.wheel.stop(&mut self.locks, id);
        let lock = &mut self.locks[id as usize];
        let waiter = lock.clone();
        lock.phase = Phase::Holding;
        lock.since = now;
        lock.shortened_by = None;
        self.last_sequence += 1;
        lock.sequence = self.last_sequence;
        let pool = self.pools.get_mut(waiter.pool);
        pool.queue_mut(waiter.phase).leave(&mut self.locks, id);
        pool.holders.join(&mut self.locks, id);
        self.begin_hold(id);
        let waited_ns = self.end_wait(&waiter, LockOutcome::Locked, now);
        *self.times.of_waits(waiter.mode) += u128::from(waited_ns);
        self.answer(waiter.mode.into(), waiter.client, Reply::Locked);
    }

    fn refuse(&mut self, reply: Reply) -> Reply {
        self.counters.refused(reply);
        reply
    }
}

/// The steps that decisions are made of.
impl Engine {
    fn answer(&mut self, asked: CommandKind, client: ClientId, reply: Reply) {
        self.measures.replies.count(asked, Some(reply));
        self.outbox.push_back((client, reply));
    }

    #[inline(always)]
    fn add_pool(&mut self, key: &[u8], hash: u64, matches: Matches) -> PoolId {
        self.counters.hashtable_entries += 1;
        self.pools.add(key, hash, matches)
    }

    fn drop_pool_if_empty(&mut self, pool: PoolId) {
        if self.pools.remove_if_empty(pool) {
            self.counters.hashtable_entries -= 1;
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

    #[inline(always)]
    fn begin_hold(&mut self, id: LockId) {
        self.counters.total_acquired += 1;
        self.counters.processing_workers += 1;
        if self.rules.limit_holds() {
            self.begin_hold_by_rules(id);
        }
    }
}
