//! The protocol in its plainest terms: one list, searched from end to end.
//! Written from docs/protocol.md and not from the engine, of which it uses no
//! more than the words (`Acquire`, `Reply`, the names of the statistics).

use poolcounterd::engine::statistics::{Counters, Durations};
use poolcounterd::engine::{ClientId, Time};
use poolcounterd::protocol::{Acquire, Mode, Reply};
use std::collections::HashSet;

/// Waits are looked at once a tick, about a millisecond.
const TICK_NS: u128 = 1 << 20;

struct Lock {
    client: ClientId,
    key: Vec<u8>,
    /// `None` when it is held.
    wait: Option<Wait>,
    /// Since when it is held or waited for.
    since: Time,
}

#[derive(Clone, Copy)]
struct Wait {
    mode: Mode,
    /// Far behind the end of time, if the client says so.
    deadline_ns: u128,
}

impl Wait {
    /// The rule for running out: at the first look at or after this moment,
    /// which is the first tick that begins at or after the deadline.
    fn runs_out_ns(&self) -> u128 {
        self.deadline_ns.next_multiple_of(TICK_NS)
    }
}

#[derive(Default)]
pub(crate) struct Model {
    /// All that is held or waited for, in the order in which it was asked for.
    /// So a client's last lock is the last in here, and a key's oldest waiter
    /// is the first.
    locks: Vec<Lock>,
    answers: Vec<(ClientId, Reply)>,
    /// The gauges in here stay 0: [`Model::counters`] counts them afresh.
    totals: Counters,
    durations: Durations,
}

impl Model {
    /// The numbers are those of docs/protocol.md.
    pub(crate) fn acquire(&mut self, client: ClientId, request: &Acquire, now: Time) {
        let mine = || self.locks.iter().filter(|lock| lock.client == client);
        let of_key = || self.locks.iter().filter(|lock| lock.key == request.key);
        let held = of_key().filter(|lock| lock.wait.is_none()).count() as u64;
        let count = of_key().count() as u64;
        // 1. four locks held or waited for already
        if mine().count() == 4 {
            self.totals.lock_mismatch += 1;
            return self.answer(client, Reply::LockHeld);
        }
        // 2. still waiting for an earlier ACQ
        if mine().any(|lock| lock.wait.is_some()) {
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
        let key = request.key.to_vec();
        if held < u64::from(request.workers) {
            self.totals.total_acquired += 1;
            self.locks.push(Lock { client, key, wait: None, since: now });
            return self.answer(client, Reply::Locked);
        }
        // 6. will not wait
        if request.timeout_s == 0 {
            return self.answer(client, Reply::Timeout);
        }
        // 7. waits
        let deadline_ns = u128::from(now.as_ns()) + u128::from(request.timeout_s) * 1_000_000_000;
        let wait = Some(Wait { mode: request.mode, deadline_ns });
        self.locks.push(Lock { client, key, wait, since: now });
    }

    pub(crate) fn release(&mut self, client: ClientId, now: Time) {
        let Some(last) = self.last_of(client) else {
            self.totals.release_mismatch += 1;
            return self.answer(client, Reply::NotLocked);
        };
        self.totals.total_releases += 1;
        let lock = self.locks.remove(last);
        if lock.wait.is_none() {
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
            if lock.wait.is_some() {
                continue;
            }
            self.end(&lock, now);
            let for_me = self.oldest_waiter(&lock.key, Mode::ForMe);
            let for_anyone = self.oldest_waiter(&lock.key, Mode::ForAnyone);
            if let Some(n) = for_me.or(for_anyone) {
                self.hand_on(n, now);
            }
        }
    }

    /// Those that run out at the same moment do so in the order in which they
    /// began to wait.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some(moment_ns) = self.next_run_out_ns().filter(|&ns| ns <= now.as_ns().into()) {
            let is_due =
                |lock: &Lock| lock.wait.is_some_and(|wait| wait.runs_out_ns() == moment_ns);
            let first = self.locks.iter().position(is_due).expect("somebody waits until then");
            let lock = self.locks.remove(first);
            self.durations.wasted_timeout_ns += ns_between(lock.since, now);
            self.answer(lock.client, Reply::Timeout);
        }
    }

    /// When the next wait runs out.
    pub(crate) fn next_run_out_ns(&self) -> Option<u128> {
        self.waits().map(|wait| wait.runs_out_ns()).min()
    }

    /// The earliest deadline, whether or not a tick begins there.
    pub(crate) fn next_deadline_ns(&self) -> Option<u128> {
        self.waits().map(|wait| wait.deadline_ns).min()
    }

    /// What has been said since the last call.
    pub(crate) fn take_answers(&mut self) -> Vec<(ClientId, Reply)> {
        std::mem::take(&mut self.answers)
    }

    pub(crate) fn counters(&self) -> Counters {
        let keys: HashSet<&[u8]> = self.locks.iter().map(|lock| &lock.key[..]).collect();
        let waiting = self.waits().count();
        Counters {
            hashtable_entries: keys.len() as u64,
            waiting_workers: waiting as u64,
            processing_workers: (self.locks.len() - waiting) as u64,
            ..self.totals
        }
    }

    pub(crate) fn durations(&self) -> &Durations {
        &self.durations
    }

    fn answer(&mut self, client: ClientId, reply: Reply) {
        self.answers.push((client, reply));
    }

    fn waits(&self) -> impl Iterator<Item = Wait> {
        self.locks.iter().filter_map(|lock| lock.wait)
    }

    fn last_of(&self, client: ClientId) -> Option<usize> {
        self.locks.iter().rposition(|lock| lock.client == client)
    }

    fn oldest_waiter(&self, key: &[u8], mode: Mode) -> Option<usize> {
        let waits = |lock: &Lock| lock.wait.is_some_and(|wait| wait.mode == mode);
        self.locks.iter().position(|lock| lock.key == key && waits(lock))
    }

    /// Counts a lock that was held and has ended; returns for how long it was.
    fn end(&mut self, lock: &Lock, now: Time) -> u128 {
        let held_ns = ns_between(lock.since, now);
        self.totals.processed_count += 1;
        self.durations.processing_ns += held_ns;
        held_ns
    }

    fn hand_on(&mut self, n: usize, now: Time) {
        let lock = &mut self.locks[n];
        let wait = lock.wait.take().expect("handed on to a waiter");
        let waited_ns = ns_between(lock.since, now);
        lock.since = now;
        match wait.mode {
            Mode::ForMe => self.durations.waiting_for_me_ns += waited_ns,
            Mode::ForAnyone => self.durations.waiting_for_anyone_ns += waited_ns,
        }
        self.totals.total_acquired += 1;
        let client = lock.client;
        self.answer(client, Reply::Locked);
    }
}

fn ns_between(earlier: Time, later: Time) -> u128 {
    u128::from(later.as_ns() - earlier.as_ns())
}
