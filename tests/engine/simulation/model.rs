//! The protocol in the simplest form: one list, searched from end to end. Written
//! from docs/protocol.md, not from the engine. It shares only the vocabulary with the
//! engine (`Acquire`, `Reply`, the names of the statistics).

use poolcounterd::engine::counts::statistics::{Counters, Times};
use poolcounterd::engine::{ClientId, Time};
use poolcounterd::protocol::{Acquire, Mode, Reply};
use std::collections::{BTreeMap, HashSet};

/// Deadlines are checked once per tick, about a millisecond.
const TICK_NS: u128 = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) client: ClientId,
    pub(crate) key: Vec<u8>,
    /// How it was asked for.
    pub(crate) mode: Mode,
    pub(crate) state: State,
    /// When the hold or the wait began.
    pub(crate) since: Time,
    /// When the wait ends or the lock is taken away. May be far behind the end of
    /// time, if the client asks for that; `None` means never.
    pub(crate) deadline_ns: Option<u128>,
    /// How many waits and holds began before this one.
    pub(crate) nth: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Held,
    Waiting(Mode),
}

impl Lock {
    /// A deadline expires at the first check at or after this time: the first tick
    /// that begins at or after the deadline.
    fn runs_out_ns(&self) -> Option<u128> {
        Some(self.deadline_ns?.next_multiple_of(TICK_NS))
    }

    fn waits(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }
}

/// A lock that was taken away: its client, its key and how long it was held.
pub(crate) type TakenAway = (ClientId, Vec<u8>, u128);

/// A hold or a wait that has ended, and how.
#[allow(dead_code)]
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) client: ClientId,
    pub(crate) key: Vec<u8>,
    pub(crate) mode: Mode,
    pub(crate) how: &'static str,
    pub(crate) took_ns: u128,
}

#[derive(Clone, Default)]
pub(crate) struct Model {
    /// All locks and waits, in the order in which they were requested: a client's
    /// last lock is its last one in here, and a key's oldest waiter is the first one.
    pub(crate) locks: Vec<Lock>,
    answers: Vec<(ClientId, Reply)>,
    taken_away: Vec<TakenAway>,
    /// The gauges in here stay 0: [`Model::counters`] computes them.
    totals: Counters,
    times: Times,
    /// The only key that has a limit, and the limit.
    hold_limit: Option<(Vec<u8>, u32)>,
    begun: u64,
    /// Only if the caller takes them.
    ends: Option<Vec<End>>,
}

impl Model {
    pub(crate) fn new(hold_limit: Option<(Vec<u8>, u32)>) -> Self {
        Model { hold_limit, ..Model::default() }
    }

    /// The ends of holds and waits since the last call (only the server's simulation asks).
    #[allow(dead_code)]
    pub(crate) fn take_ends(&mut self) -> Vec<End> {
        self.ends.replace(Vec::new()).unwrap_or_default()
    }

    fn note_end(&mut self, lock: &Lock, how: &'static str, now: Time) {
        if let Some(ends) = &mut self.ends {
            let Lock { client, mode, .. } = *lock;
            let took_ns = ns_between(lock.since, now);
            ends.push(End { client, key: lock.key.clone(), mode, how, took_ns });
        }
    }

    /// Replaces the limit (only the server's simulation does). Locks already held are limited too, from the time when they
    /// were given.
    #[allow(dead_code)]
    pub(crate) fn limit_holds(&mut self, limit: Option<(Vec<u8>, u32)>) {
        self.hold_limit = limit;
        for n in 0..self.locks.len() {
            if self.locks[n].state == State::Held {
                let (key, since) = (self.locks[n].key.clone(), self.locks[n].since);
                self.locks[n].deadline_ns = self.hold_deadline_ns(&key, since);
            }
        }
    }

    /// The numbers are those of docs/protocol.md.
    pub(crate) fn acquire(&mut self, client: ClientId, request: &Acquire, now: Time) {
        let mine = || self.locks.iter().filter(|lock| lock.client == client);
        let of_key = || self.locks.iter().filter(|lock| lock.key == request.key);
        let held = of_key().filter(|lock| lock.state == State::Held).count() as u64;
        let count = of_key().count() as u64;
        // 1. four locks held or waited for already
        if mine().count() == 4 {
            self.totals.lock_mismatch += 1;
            return self.answer(client, Reply::LockHeld);
        }
        // 2. still waiting for an earlier ACQ
        if mine().any(Lock::waits) {
            self.totals.lock_while_waiting += 1;
            return self.answer(client, Reply::WaitForResponse);
        }
        // 3. syntax
        if request.key.is_empty() || request.workers == 0 || request.max_queue == 0 {
            return self.answer(client, Reply::BadSyntax);
        }
        // 4. the queue is full
        if count >= u64::from(request.max_queue) {
            self.totals.full_queues += 1;
            return self.answer(client, Reply::QueueFull);
        }
        // 5. a slot is free
        if held < u64::from(request.workers) {
            self.totals.total_acquired += 1;
            let deadline_ns = self.hold_deadline_ns(request.key, now);
            self.add((client, request), State::Held, now, deadline_ns);
            return self.answer(client, Reply::Locked);
        }
        // 6. will not wait
        if request.timeout_s == 0 {
            return self.answer(client, Reply::Timeout);
        }
        // 7. waits
        let deadline_ns = Some(ns_after(now, request.timeout_s));
        self.add((client, request), State::Waiting(request.mode), now, deadline_ns);
    }

    pub(crate) fn release(&mut self, client: ClientId, now: Time) {
        let Some(last) = self.last_of(client) else {
            self.totals.release_mismatch += 1;
            return self.answer(client, Reply::NotLocked);
        };
        let lock = self.locks.remove(last);
        self.totals.total_releases += 1;
        if lock.state == State::Held {
            let held_ns = self.end(&lock, "released", now);
            while let Some(n) = self.oldest_waiter(&lock.key, Mode::ForAnyone) {
                let waiter = self.locks.remove(n);
                self.times.waiting_for_good_ns += ns_between(waiter.since, now);
                self.times.gained_ns += held_ns;
                self.note_end(&waiter, "done", now);
                self.answer(waiter.client, Reply::Done);
            }
            if let Some(n) = self.oldest_waiter(&lock.key, Mode::ForMe) {
                self.hand_on(n, now);
            }
        } else {
            self.note_end(&lock, "cancelled", now);
        }
        self.answer(client, Reply::Released);
    }

    pub(crate) fn disconnect(&mut self, client: ClientId, now: Time) {
        self.end_locks(client, None, now);
    }

    fn end_locks(&mut self, client: ClientId, expired: Option<u64>, now: Time) {
        while let Some(last) = self.last_of(client) {
            let lock = self.locks.remove(last);
            if lock.state == State::Held {
                let how = if expired == Some(lock.nth) { "expired" } else { "disconnected" };
                self.end(&lock, how, now);
                self.hand_on_unfinished(&lock.key, now);
            } else if lock.waits() {
                self.note_end(&lock, "cancelled", now);
            }
        }
    }

    /// Their waits end first.
    pub(crate) fn disconnect_all(&mut self, clients: &[ClientId], now: Time) {
        let waits = |lock: &Lock| lock.waits() && clients.contains(&lock.client);
        while let Some(n) = self.locks.iter().position(waits) {
            let lock = self.locks.remove(n);
            self.note_end(&lock, "cancelled", now);
        }
        for &client in clients {
            self.disconnect(client, now);
        }
    }

    /// Waits and holds that expire at the same time do so in the order in which they
    /// began.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some(n) = self.first_to_run_out() {
            if self.locks[n].runs_out_ns() > Some(now.as_ns().into()) {
                break;
            }
            if self.locks[n].state == State::Held {
                self.take_away(n, now);
                continue;
            }
            let lock = self.locks.remove(n);
            self.times.wasted_timeout_ns += ns_between(lock.since, now);
            self.note_end(&lock, "timeout", now);
            self.answer(lock.client, Reply::Timeout);
        }
    }

    /// Its client is disconnected.
    fn take_away(&mut self, n: usize, now: Time) {
        let Lock { client, since, nth, .. } = self.locks[n];
        self.totals.expired_locks += 1;
        self.taken_away.push((client, self.locks[n].key.clone(), ns_between(since, now)));
        self.end_locks(client, Some(nth), now);
    }

    fn first_to_run_out(&self) -> Option<usize> {
        let limited = (0..self.locks.len()).filter(|&n| self.locks[n].deadline_ns.is_some());
        limited.min_by_key(|&n| (self.locks[n].runs_out_ns(), self.locks[n].nth))
    }

    /// When the next wait or hold expires.
    pub(crate) fn next_run_out_ns(&self) -> Option<u128> {
        self.locks[self.first_to_run_out()?].runs_out_ns()
    }

    /// The earliest deadline, whether or not a tick begins there.
    pub(crate) fn next_deadline_ns(&self) -> Option<u128> {
        self.locks.iter().filter_map(|lock| lock.deadline_ns).min()
    }

    /// The number of locks, held or waited for.
    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }

    /// The locks that were taken away since the last call.
    pub(crate) fn take_taken_away(&mut self) -> Vec<TakenAway> {
        std::mem::take(&mut self.taken_away)
    }

    /// The answers since the last call.
    pub(crate) fn take_answers(&mut self) -> Vec<(ClientId, Reply)> {
        std::mem::take(&mut self.answers)
    }

    pub(crate) fn counters(&self) -> Counters {
        let keys: HashSet<&[u8]> = self.locks.iter().map(|lock| &lock.key[..]).collect();
        let waiting = self.locks.iter().filter(|lock| lock.waits()).count();
        Counters {
            hashtable_entries: keys.len() as u64,
            waiting_workers: waiting as u64,
            processing_workers: (self.locks.len() - waiting) as u64,
            ..self.totals
        }
    }

    pub(crate) fn times(&self) -> &Times {
        &self.times
    }

    /// Of each key that is held or waited for, the holders, those that wait for it, and
    /// those that wait for anyone's result (only the server's simulation asks).
    #[allow(dead_code)]
    pub(crate) fn queues(&self) -> BTreeMap<Vec<u8>, [usize; 3]> {
        let mut queues: BTreeMap<Vec<u8>, [usize; 3]> = BTreeMap::new();
        for lock in &self.locks {
            let n = match lock.state {
                State::Held => 0,
                State::Waiting(Mode::ForMe) => 1,
                State::Waiting(Mode::ForAnyone) => 2,
            };
            queues.entry(lock.key.clone()).or_default()[n] += 1;
        }
        queues
    }

    fn answer(&mut self, client: ClientId, reply: Reply) {
        self.answers.push((client, reply));
    }

    fn add(
        &mut self,
        (client, request): (ClientId, &Acquire),
        state: State,
        now: Time,
        deadline_ns: Option<u128>,
    ) {
        let (key, mode, nth) = (request.key.to_vec(), request.mode, self.next_nth());
        self.locks.push(Lock { client, key, mode, state, since: now, deadline_ns, nth });
    }

    fn next_nth(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// When a lock that is given now is taken away.
    fn hold_deadline_ns(&self, key: &[u8], now: Time) -> Option<u128> {
        let limit = self.hold_limit.as_ref().filter(|(limited, _)| limited == key);
        limit.map(|&(_, seconds)| ns_after(now, seconds.into()))
    }

    fn last_of(&self, client: ClientId) -> Option<usize> {
        self.locks.iter().rposition(|lock| lock.client == client)
    }

    fn oldest_waiter(&self, key: &[u8], mode: Mode) -> Option<usize> {
        let is_one = |lock: &Lock| lock.key == key && lock.state == State::Waiting(mode);
        self.locks.iter().position(is_one)
    }

    /// Counts a hold that has ended, and returns how long it lasted.
    fn end(&mut self, lock: &Lock, how: &'static str, now: Time) -> u128 {
        self.note_end(lock, how, now);
        let held_ns = ns_between(lock.since, now);
        self.totals.processed_count += 1;
        self.times.processing_ns += held_ns;
        held_ns
    }

    /// The holder did not finish its work, so no waiter gets DONE.
    fn hand_on_unfinished(&mut self, key: &[u8], now: Time) {
        let for_me = self.oldest_waiter(key, Mode::ForMe);
        if let Some(n) = for_me.or_else(|| self.oldest_waiter(key, Mode::ForAnyone)) {
            self.hand_on(n, now);
        }
    }

    /// Gives the lock to the waiter that is `n`th in the list.
    fn hand_on(&mut self, n: usize, now: Time) {
        let waited_ns = ns_between(self.locks[n].since, now);
        match self.locks[n].state {
            State::Waiting(Mode::ForMe) => self.times.waiting_for_me_ns += waited_ns,
            State::Waiting(Mode::ForAnyone) => self.times.waiting_for_anyone_ns += waited_ns,
            State::Held => unreachable!("handed on to a waiter"),
        }
        self.totals.total_acquired += 1;
        self.note_end(&self.locks[n].clone(), "locked", now);
        let deadline_ns = self.hold_deadline_ns(&self.locks[n].key, now);
        let nth = self.next_nth();
        let lock = &mut self.locks[n];
        (lock.state, lock.since, lock.deadline_ns, lock.nth) = (State::Held, now, deadline_ns, nth);
        let client = lock.client;
        self.answer(client, Reply::Locked);
    }
}

fn ns_between(earlier: Time, later: Time) -> u128 {
    u128::from(later.as_ns() - earlier.as_ns())
}

fn ns_after(now: Time, seconds: u64) -> u128 {
    u128::from(now.as_ns()) + u128::from(seconds) * 1_000_000_000
}
