//! The protocol in the simplest form: one list, searched from end to end. Written
//! from docs/reference/protocol.md, not from the engine. It shares only the vocabulary with the
//! engine (`Acquire`, `Reply`, the names of the statistics).

use engine::counts::statistics::{Counters, Times};
use engine::{ClientId, Time};
use protocol::{Acquire, Mode, Reply};
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
    /// When the wait ends or the lock is taken away. May be far beyond the end of time, if the
    /// client asks for that; `None` means never.
    pub(crate) deadline_ns: Option<u128>,
    /// How many waits and holds began before this one.
    pub(crate) nth: u64,
    /// In which order the timers of the deadlines were started.
    pub(crate) started: u64,
    /// How many clients may hold the key by the client's own request.
    pub(crate) workers: u64,
    /// The rule that has shortened the wait, as long as it is in force.
    pub(crate) shortened: Option<String>,
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

/// A rule, as operators write it: a name, a pattern and settings.
#[derive(Clone)]
struct ModelRule {
    text: String,
    name: String,
    pattern: Vec<u8>,
    settings: BTreeMap<String, u64>,
    changed: u64,
}

impl ModelRule {
    fn read(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let name = words.next().expect("a name").to_owned();
        let pattern = words.next().expect("a pattern").as_bytes().to_vec();
        let settings = words
            .filter_map(|word| match word.split_once('=') {
                // Affects only what reports show.
                Some(("stuck-after", _)) => None,
                Some((setting, value)) => {
                    let number = value.trim_end_matches('s').parse().expect("a number or seconds");
                    Some((setting.to_owned(), number))
                }
                None => Some((word.to_owned(), 1)),
            })
            .collect();
        ModelRule { text: text.to_owned(), name, pattern, settings, changed: 0 }
    }

    /// Whether it continues `old`. Rules without a name do not change.
    fn continues(&self, old: &ModelRule) -> bool {
        old.name == self.name
            && old.pattern == self.pattern
            && (self.name != "-" || old.text == self.text)
    }
}

/// Whether `key` matches a pattern without escaped bytes.
pub(crate) fn is_match(pattern: &[u8], key: &[u8]) -> bool {
    match (pattern, key) {
        ([], rest) => rest.is_empty(),
        ([b'*', rest @ ..], _) => (0..=key.len()).any(|n| is_match(rest, &key[n..])),
        ([one, pattern @ ..], [other, key @ ..]) => one == other && is_match(pattern, key),
        _ => false,
    }
}

/// What is counted for a group.
#[derive(Clone, Copy, Default)]
struct ModelGroup([u64; 7]);

const REQUESTS: usize = 0;
const ACQUIRED: usize = 1;
const REFUSED: usize = 2;
const TIMEOUTS: usize = 3;
const DENIED: usize = 4;
const WAITS: usize = 5;
const HOLDS: usize = 6;

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
    rules: Vec<ModelRule>,
    groups: Vec<(String, ModelGroup)>,
    begun: u64,
    timers: u64,
    /// Only if the caller takes them.
    ends: Option<Vec<End>>,
}

impl Model {
    /// The rules in force, as operators write them, and the names of those that are groups.
    pub(crate) fn new(rules: &[String], groups: &[String]) -> Self {
        let mut model = Model::default();
        model.set_rules(rules, groups, Time::default());
        model
    }

    /// The ends of holds and waits since the last call (only the server's simulation asks).
    #[allow(dead_code)]
    pub(crate) fn take_ends(&mut self) -> Vec<End> {
        self.ends.replace(Vec::new()).unwrap_or_default()
    }

    fn note_end(&mut self, lock: &Lock, how: &'static str, now: Time) {
        let cause = match how {
            "timeout" => {
                self.rules.iter().position(|rule| lock.shortened.as_ref() == Some(&rule.name))
            }
            "expired" => self.setting(&lock.key, "max-hold").map(|(rule, _)| rule),
            _ => None,
        };
        if let Some(rule) = cause {
            self.rules[rule].changed += 1;
        }
        let counted: &[usize] = match how {
            "locked" => &[ACQUIRED, WAITS],
            "timeout" => &[TIMEOUTS, WAITS],
            "released" | "disconnected" | "expired" => &[HOLDS],
            _ => &[WAITS],
        };
        self.count(&lock.key, counted);
        if let Some(ends) = &mut self.ends {
            let Lock { client, mode, .. } = *lock;
            let took_ns = ns_between(lock.since, now);
            ends.push(End { client, key: lock.key.clone(), mode, how, took_ns });
        }
    }

    /// Replaces the rules and the groups. Rules of the same name and pattern, and groups of the same
    /// name, keep their counts. Locks already held are also limited, from the time when they were given. Waiters get the free slots that
    /// are enough for them.
    pub(crate) fn set_rules(&mut self, rules: &[String], groups: &[String], now: Time) {
        let is_same = self.rules.iter().map(|rule| &rule.text).eq(rules)
            && self.groups.iter().skip(1).map(|(name, _)| name).eq(groups);
        if is_same && !self.groups.is_empty() {
            return;
        }
        let max_holds: Vec<_> = self.locks.iter().map(|lock| self.max_hold_s(&lock.key)).collect();
        let old = std::mem::take(&mut self.rules);
        for text in rules {
            let mut rule = ModelRule::read(text);
            let is_same = |old: &&ModelRule| rule.continues(old);
            rule.changed = old.iter().find(is_same).map_or(0, |old| old.changed);
            self.rules.push(rule);
        }
        let is_continued = |name: &String| {
            let old = old.iter().find(|old| old.name == *name);
            old.is_some_and(|old| self.rules.iter().any(|rule| rule.continues(old)))
        };
        for lock in &mut self.locks {
            lock.shortened = lock.shortened.take().filter(is_continued);
        }
        let old = std::mem::take(&mut self.groups);
        for name in std::iter::once("other").chain(groups.iter().map(String::as_str)) {
            let counts = old.iter().find(|(of_old, _)| of_old == name);
            let counts = counts.map_or(ModelGroup::default(), |(_, counts)| *counts);
            self.groups.push((name.to_owned(), counts));
        }
        self.restart_timers(&max_holds, now);
        self.fill(now);
    }

    /// Holds whose limit has changed end by the new one, but not in the past. Their timers are
    /// started again, the oldest hold first.
    fn restart_timers(&mut self, max_holds: &[Option<u64>], now: Time) {
        let mut oldest_first: Vec<usize> = (0..self.locks.len()).collect();
        oldest_first.sort_by_key(|&n| self.locks[n].nth);
        for n in oldest_first {
            let lock = &self.locks[n];
            if lock.state == State::Held && self.max_hold_s(&lock.key) != max_holds[n] {
                let deadline_ns = self.hold_deadline_ns(&lock.key, lock.since);
                let started = self.next_timer();
                let lock = &mut self.locks[n];
                lock.deadline_ns = deadline_ns.map(|at_ns| at_ns.max(now.as_ns().into()));
                lock.started = started;
            }
        }
    }

    /// The key comes first whose wait is the oldest.
    fn fill(&mut self, now: Time) {
        let waiters = || self.locks.iter().filter(|lock| lock.waits());
        let mut keys: Vec<(u64, Vec<u8>)> = waiters().map(|w| (w.nth, w.key.clone())).collect();
        keys.sort();
        for (_, key) in keys {
            for mode in [Mode::ForMe, Mode::ForAnyone] {
                while let Some(n) = self.first_that_fits(&key, mode) {
                    self.give(n, now);
                }
            }
        }
        assert!(!(0..self.locks.len()).any(|n| self.locks[n].waits() && self.fits(n)));
    }

    /// The oldest waiter of this kind that may hold the key now.
    fn first_that_fits(&self, key: &[u8], mode: Mode) -> Option<usize> {
        let waits = |lock: &Lock| lock.key == key && lock.state == State::Waiting(mode);
        (0..self.locks.len()).find(|&n| waits(&self.locks[n]) && self.fits(n))
    }

    fn holders(&self, key: &[u8]) -> u64 {
        self.locks.iter().filter(|l| l.key == key && l.state == State::Held).count() as u64
    }

    /// Whether its own limits, or those of rules, allow this waiter to hold its key.
    fn fits(&self, n: usize) -> bool {
        let Lock { key, workers, .. } = &self.locks[n];
        let workers = self.setting(key, "workers").map_or(*workers, |(_, n)| n.min(*workers));
        let total = self.setting(key, "total");
        self.holders(key) < workers
            && total.is_none_or(|(rule, total)| self.holders_of_total(rule) < total)
    }

    fn max_hold_s(&self, key: &[u8]) -> Option<u64> {
        self.setting(key, "max-hold").map(|(_, seconds)| seconds)
    }

    /// The first rule that matches `key` and has the setting, and its value.
    fn setting(&self, key: &[u8], name: &str) -> Option<(usize, u64)> {
        let mut matching = (0..self.rules.len()).filter(|&n| is_match(&self.rules[n].pattern, key));
        matching.find_map(|n| Some((n, *self.rules[n].settings.get(name)?)))
    }

    /// Counts for the group of `key`. Without rules nothing is counted.
    fn count(&mut self, key: &[u8], what: &[usize]) {
        if self.rules.is_empty() && self.groups.len() == 1 {
            return;
        }
        let group = self.group(key);
        what.iter().for_each(|&n| group.0[n] += 1);
    }

    fn group(&mut self, key: &[u8]) -> &mut ModelGroup {
        let is_group = |name: &str| self.groups[1..].iter().position(|(group, _)| group == name);
        let mut matching = self.rules.iter().filter(|rule| is_match(&rule.pattern, key));
        let group = matching.find_map(|rule| is_group(&rule.name)).map_or(0, |n| n + 1);
        &mut self.groups[group].1
    }

    /// The clients that hold a key that gets its `total` from this rule.
    fn holders_of_total(&self, rule: usize) -> u64 {
        let counts = |lock: &&Lock| {
            let total = self.setting(&lock.key, "total");
            lock.state == State::Held && total.is_some_and(|(of, _)| of == rule)
        };
        self.locks.iter().filter(counts).count() as u64
    }

    /// What was counted for each rule and each group: `changed`, or requests, acquired, refused,
    /// timeouts, denied, waits, holds.
    pub(crate) fn counts_of_rules(&self) -> (Vec<u64>, Vec<(String, [u64; 7])>) {
        let rules = self.rules.iter().map(|rule| rule.changed).collect();
        let groups = self.groups.iter().map(|(name, group)| (name.clone(), group.0)).collect();
        (rules, groups)
    }

    /// The numbers are those of docs/reference/protocol.md.
    pub(crate) fn acquire(&mut self, client: ClientId, request: &Acquire<'_>, now: Time) {
        let mine = || self.locks.iter().filter(|lock| lock.client == client);
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
        // 4. older requests, if a rule has limited them, and there is room now
        if ["workers", "total"].iter().any(|limit| self.setting(request.key, limit).is_some()) {
            for mode in [Mode::ForMe, Mode::ForAnyone] {
                let first = |model: &Self| model.oldest_waiter(request.key, mode);
                while let Some(n) = first(self).filter(|&n| self.fits(n)) {
                    self.give(n, now);
                }
            }
        }
        // 5. rules
        let held = self.holders(request.key);
        let count = self.locks.iter().filter(|lock| lock.key == request.key).count() as u64;
        let of_client =
            (u64::from(request.workers), u64::from(request.max_queue), request.timeout_s);
        let value = |name, default| self.setting(request.key, name).map_or(default, |(_, n)| n);
        let workers = of_client.0.min(value("workers", of_client.0));
        let max_queue = value("maxqueue", of_client.1);
        let timeout_s = of_client.2.min(value("timeout", of_client.2));
        let decide = |(workers, max_queue, timeout_s): (u64, u64, u64)| match () {
            // the queue is full
            () if count >= max_queue => "full",
            // a slot is free
            () if held < workers => "locked",
            // will not wait
            () if timeout_s == 0 => "timeout",
            () => "waits",
        };
        let without = decide(of_client);
        let mut with = decide((workers, max_queue, timeout_s));
        let mut cause = match (without, with) {
            (same, same_again) if same == same_again => None,
            ("full", _) | (_, "full") => self.setting(request.key, "maxqueue"),
            _ => self.setting(request.key, "workers"),
        };
        if let Some((rule, total)) = self.setting(request.key, "total") {
            if with == "locked" && self.holders_of_total(rule) >= total {
                with = "full";
                cause = Some((rule, total)).filter(|_| without != "full");
            }
        }
        let denies = self.setting(request.key, "deny");
        if denies.is_some() {
            with = "full";
            cause = denies.filter(|_| without != "full");
        }
        if let Some((rule, _)) = cause {
            self.rules[rule].changed += 1;
        }
        let counted: &[usize] = match with {
            "full" if denies.is_some() => &[REQUESTS, DENIED],
            "full" => &[REQUESTS, REFUSED],
            "locked" => &[REQUESTS, ACQUIRED],
            "timeout" => &[REQUESTS, TIMEOUTS],
            _ => &[REQUESTS],
        };
        self.count(request.key, counted);
        match with {
            "full" => {
                self.totals.full_queues += 1;
                self.answer(client, Reply::QueueFull);
            }
            "locked" => {
                self.totals.total_acquired += 1;
                let deadline_ns = self.hold_deadline_ns(request.key, now);
                self.add((client, request), State::Held, now, deadline_ns);
                self.answer(client, Reply::Locked);
            }
            "timeout" => self.answer(client, Reply::Timeout),
            _ => {
                let deadline_ns = Some(ns_after(now, timeout_s));
                self.add((client, request), State::Waiting(request.mode), now, deadline_ns);
                let by = self.setting(request.key, "timeout").map(|(n, _)| &self.rules[n].name);
                let by = by.filter(|_| timeout_s < request.timeout_s).cloned();
                self.locks.last_mut().expect("it was added").shortened = by;
            }
        }
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

    /// Waits and holds that expire at the same time do so in the order in which their timers
    /// were started.
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
        limited.min_by_key(|&n| (self.locks[n].runs_out_ns(), self.locks[n].started))
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

    /// For each key that is held or waited for, how many hold it, wait for it, and wait for
    /// anyone's result (only the server's simulation asks).
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
        (client, request): (ClientId, &Acquire<'_>),
        state: State,
        now: Time,
        deadline_ns: Option<u128>,
    ) {
        let (nth, started) = (self.next_nth(), self.next_timer());
        self.locks.push(Lock {
            client,
            key: request.key.to_vec(),
            mode: request.mode,
            state,
            since: now,
            deadline_ns,
            nth,
            started,
            workers: u64::from(request.workers).min(u16::MAX.into()),
            shortened: None,
        });
    }

    fn next_timer(&mut self) -> u64 {
        self.timers += 1;
        self.timers
    }

    fn next_nth(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// When a lock that is given now is taken away.
    fn hold_deadline_ns(&self, key: &[u8], now: Time) -> Option<u128> {
        self.max_hold_s(key).map(|seconds| ns_after(now, seconds))
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

    /// Whether a waiter inherits the slot of a holder of `key` that has left.
    fn may_inherit(&self, key: &[u8]) -> bool {
        let held = self.holders(key);
        let is_over = |limit: u64, holders: u64| holders + 1 > limit;
        let workers = self.setting(key, "workers");
        let total = self.setting(key, "total");
        held == 0
            || !(workers.is_some_and(|(_, limit)| is_over(limit, held))
                || total.is_some_and(|(rule, limit)| is_over(limit, self.holders_of_total(rule))))
    }

    /// Gives the lock of a holder that has left to the waiter that is `n`th in the list.
    fn hand_on(&mut self, n: usize, now: Time) {
        if self.may_inherit(&self.locks[n].key) {
            self.give(n, now);
        }
    }

    fn give(&mut self, n: usize, now: Time) {
        let waited_ns = ns_between(self.locks[n].since, now);
        match self.locks[n].state {
            State::Waiting(Mode::ForMe) => self.times.waiting_for_me_ns += waited_ns,
            State::Waiting(Mode::ForAnyone) => self.times.waiting_for_anyone_ns += waited_ns,
            State::Held => unreachable!("handed on to a waiter"),
        }
        self.totals.total_acquired += 1;
        self.note_end(&self.locks[n].clone(), "locked", now);
        let deadline_ns = self.hold_deadline_ns(&self.locks[n].key, now);
        let (nth, started) = (self.next_nth(), self.next_timer());
        let lock = &mut self.locks[n];
        (lock.state, lock.since, lock.deadline_ns) = (State::Held, now, deadline_ns);
        (lock.nth, lock.started, lock.shortened) = (nth, started, None);
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
