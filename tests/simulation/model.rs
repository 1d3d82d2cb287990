//! The protocol in its plainest terms: one list, searched from end to end.
//! Written from docs/protocol.md and not from the engine, of which it uses no
//! more than the words (`Acquire`, `Reply`, the names of the statistics).

use poolcounterd::engine::statistics::{Counters, Durations};
use poolcounterd::engine::{ClientId, Time};
use poolcounterd::protocol::{Acquire, Mode, Reply};
use std::collections::HashSet;

/// Deadlines are looked at once a tick, about a millisecond.
const TICK_NS: u128 = 1 << 20;

struct Lock {
    client: ClientId,
    key: Vec<u8>,
    state: State,
    /// Since when it is held or waited for.
    since: Time,
    /// A wait ends then, and a lock that is held is taken away. Far behind the end
    /// of time, if the client says so; `None` for never.
    deadline_ns: Option<u128>,
    /// How many waits and holds had begun when this one did.
    nth: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    Waiting(Mode),
    /// Was held for too long and taken away.
    Spent,
}

impl Lock {
    /// The rule for running out: at the first look at or after this moment,
    /// which is the first tick that begins at or after the deadline.
    fn runs_out_ns(&self) -> Option<u128> {
        Some(self.deadline_ns?.next_multiple_of(TICK_NS))
    }

    fn waits(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }
}

/// What is known of a lock that was taken away: whose, which, for how long held.
pub(crate) type TakenAway = (ClientId, Vec<u8>, u128);

#[derive(Default)]
pub(crate) struct Model {
    /// All that is held or waited for, in the order in which it was asked for.
    /// So a client's last lock is the last in here, and a key's oldest waiter
    /// is the first.
    locks: Vec<Lock>,
    answers: Vec<(ClientId, Reply)>,
    taken_away: Vec<TakenAway>,
    /// The gauges in here stay 0: [`Model::counters`] counts them afresh.
    totals: Counters,
    durations: Durations,
    /// The only key for which there is a limit, and the limit.
    hold_limit: Option<(Vec<u8>, u32)>,
    begun: u64,
}

impl Model {
    pub(crate) fn new(hold_limit: Option<(Vec<u8>, u32)>) -> Self {
        Model { hold_limit, ..Model::default() }
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
            self.add(client, request.key, State::Held, now, deadline_ns);
            return self.answer(client, Reply::Locked);
        }
        // 6. will not wait
        if request.timeout_s == 0 {
            return self.answer(client, Reply::Timeout);
        }
        // 7. waits
        let deadline_ns = Some(ns_after(now, request.timeout_s));
        self.add(client, request.key, State::Waiting(request.mode), now, deadline_ns);
    }

    pub(crate) fn release(&mut self, client: ClientId, now: Time) {
        let Some(last) = self.last_of(client) else {
            self.totals.release_mismatch += 1;
            return self.answer(client, Reply::NotLocked);
        };
        let lock = self.locks.remove(last);
        if lock.state == State::Spent {
            return self.answer(client, Reply::NotLocked);
        }
        self.totals.total_releases += 1;
        if lock.state == State::Held {
            let held_ns = self.end(&lock, now);
            while let Some(n) = self.oldest_waiter(&lock.key, Mode::ForAnyone) {
                let waiter = self.locks.remove(n);
                self.durations.waiting_for_good_ns += ns_between(waiter.since, now);
                self.durations.gained_ns += held_ns;
                self.answer(waiter.client, Reply::Done);
            }
            if let Some(n) = self.oldest_waiter(&lock.key, Mode::ForMe) {
                self.hand_on(n, now);
            }
        }
        self.answer(client, Reply::Released);
    }

    pub(crate) fn disconnect(&mut self, client: ClientId, now: Time) {
        while let Some(last) = self.last_of(client) {
            let lock = self.locks.remove(last);
            if lock.state == State::Held {
                self.end(&lock, now);
                self.hand_on_unfinished(&lock.key, now);
            }
        }
    }

    /// What runs out at the same moment does so in the order in which it began.
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
            self.durations.wasted_timeout_ns += ns_between(lock.since, now);
            self.answer(lock.client, Reply::Timeout);
        }
    }

    /// Its slot goes on as after a disconnect, and it stays where it is in its
    /// client's stack.
    fn take_away(&mut self, n: usize, now: Time) {
        let spent =
            Lock { key: Vec::new(), state: State::Spent, deadline_ns: None, ..self.locks[n] };
        let lock = std::mem::replace(&mut self.locks[n], spent);
        let held_ns = self.end(&lock, now);
        self.totals.expired_locks += 1;
        self.hand_on_unfinished(&lock.key, now);
        self.taken_away.push((lock.client, lock.key, held_ns));
    }

    fn first_to_run_out(&self) -> Option<usize> {
        let limited = (0..self.locks.len()).filter(|&n| self.locks[n].deadline_ns.is_some());
        limited.min_by_key(|&n| (self.locks[n].runs_out_ns(), self.locks[n].nth))
    }

    /// When the next wait or lock runs out.
    pub(crate) fn next_run_out_ns(&self) -> Option<u128> {
        self.locks[self.first_to_run_out()?].runs_out_ns()
    }

    /// The earliest deadline, whether or not a tick begins there.
    pub(crate) fn next_deadline_ns(&self) -> Option<u128> {
        self.locks.iter().filter_map(|lock| lock.deadline_ns).min()
    }

    /// How many locks are held, waited for or spent.
    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }

    /// What was taken away since the last call.
    pub(crate) fn take_taken_away(&mut self) -> Vec<TakenAway> {
        std::mem::take(&mut self.taken_away)
    }

    /// What has been said since the last call.
    pub(crate) fn take_answers(&mut self) -> Vec<(ClientId, Reply)> {
        std::mem::take(&mut self.answers)
    }

    pub(crate) fn counters(&self) -> Counters {
        let of_keys = || self.locks.iter().filter(|lock| lock.state != State::Spent);
        let keys: HashSet<&[u8]> = of_keys().map(|lock| &lock.key[..]).collect();
        let waiting = of_keys().filter(|lock| lock.waits()).count();
        Counters {
            hashtable_entries: keys.len() as u64,
            waiting_workers: waiting as u64,
            processing_workers: (of_keys().count() - waiting) as u64,
            ..self.totals
        }
    }

    pub(crate) fn durations(&self) -> &Durations {
        &self.durations
    }

    fn answer(&mut self, client: ClientId, reply: Reply) {
        self.answers.push((client, reply));
    }

    fn add(
        &mut self,
        client: ClientId,
        key: &[u8],
        state: State,
        now: Time,
        deadline_ns: Option<u128>,
    ) {
        let (key, nth) = (key.to_vec(), self.next_nth());
        self.locks.push(Lock { client, key, state, since: now, deadline_ns, nth });
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

    /// Counts a lock that was held and has ended; returns for how long it was.
    fn end(&mut self, lock: &Lock, now: Time) -> u128 {
        let held_ns = ns_between(lock.since, now);
        self.totals.processed_count += 1;
        self.durations.processing_ns += held_ns;
        held_ns
    }

    /// The holder did not finish its work, so nobody gets DONE.
    fn hand_on_unfinished(&mut self, key: &[u8], now: Time) {
        let for_me = self.oldest_waiter(key, Mode::ForMe);
        if let Some(n) = for_me.or_else(|| self.oldest_waiter(key, Mode::ForAnyone)) {
            self.hand_on(n, now);
        }
    }

    /// To the waiter that is `n`th in the list.
    fn hand_on(&mut self, n: usize, now: Time) {
        let waited_ns = ns_between(self.locks[n].since, now);
        match self.locks[n].state {
            State::Waiting(Mode::ForMe) => self.durations.waiting_for_me_ns += waited_ns,
            State::Waiting(Mode::ForAnyone) => self.durations.waiting_for_anyone_ns += waited_ns,
            State::Held | State::Spent => unreachable!("handed on to a waiter"),
        }
        self.totals.total_acquired += 1;
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
