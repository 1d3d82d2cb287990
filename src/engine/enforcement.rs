//! How rules change decisions: verdicts, holders of a total, overdue holds; applies changed
//! rules pool by pool.
//!
//! A key's [`Matches`] are looked up when its pool is made and when the rules change. A
//! change reaches the pools in steps of bounded size ([`Engine::apply_rules`]); requests
//! follow it at once.

use crate::engine::Engine;
use crate::engine::counts::measures::LockOutcome;
use crate::engine::lock::{ClientId, Lock, LockId};
use crate::engine::rules::rule::Rule;
use crate::engine::rules::{APPLIED, Having, Limited, Matches, QueueLen, Rules};
use crate::engine::time::Time;
use crate::protocol::{Acquire, Reply};

/// How many pools a change of rules reaches at once.
const POOLS_PER_STEP: usize = 1_000;

/// For the caller.
impl Engine {
    /// The rules in force and the groups.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Replaces the rules, at most [`RULES_MAX`](super::rules::RULES_MAX), and the groups,
    /// named like their rules. Limits locks that are already held as well, counted from when
    /// they were given: those of the first keys at once, the others by [`Engine::apply_rules`].
    pub fn set_rules(&mut self, in_force: Vec<Rule>, groups: &[String]) {
        let is_same = self.rules.in_force.iter().map(|r| &r.rule).eq(&in_force)
            && self.rules.groups[1..].iter().map(|group| &group.name).eq(groups);
        if is_same {
            return;
        }
        self.rules.replace(in_force, groups);
        self.rules.applied = 0;
        self.rules.holding = u64::MAX;
        self.observer.watch_all(self.rules.are_active());
        self.apply_rules();
    }

    /// Whether [`Engine::apply_rules`] has to be called.
    pub fn has_rules_to_apply(&self) -> bool {
        self.rules.applied != APPLIED
    }

    /// Applies new rules to some more keys.
    pub fn apply_rules(&mut self) {
        let places = self.pools.places();
        let to = places.min(self.rules.applied.saturating_add(POOLS_PER_STEP));
        while self.rules.applied < to {
            let pool = self.rules.applied as u32;
            self.rules.applied += 1;
            if self.pools.contains(pool) {
                self.apply_rules_to(pool);
            }
        }
        if to == places {
            self.rules.applied = APPLIED;
            self.rules.holding = self.rules.having.total | self.rules.having.max_hold;
        }
    }

    /// Whether a hold is too long by new rules, which may not have reached its timer yet. If
    /// not, restarts the timer.
    #[cold]
    pub(super) fn is_overdue_by_new_rules(&mut self, id: LockId, now: Time) -> bool {
        match self.hold_deadline(id) {
            Some(deadline) if deadline <= now => return true,
            Some(deadline) => {
                self.has_late_timers = true;
                self.wheel.start(&mut self.locks, id, deadline);
            }
            None => {}
        }
        false
    }

    fn apply_rules_to(&mut self, pool: u32) {
        let of_pool = self.pools.get_mut(pool);
        let matches = self.rules.matching(of_pool.key());
        of_pool.matches = matches;
        if let Some(rule) = matches.first_of(self.rules.having.total) {
            self.rules.in_force[rule].holders += of_pool.holders.len();
        }
        let holders = of_pool.holders;
        let mut next = holders.first(&self.locks);
        while let Some(id) = next {
            next = holders.next(&self.locks, id);
            self.wheel.stop(&mut self.locks, id);
            if let Some(deadline) = self.hold_deadline(id) {
                self.wheel.start(&mut self.locks, id, deadline);
                self.has_late_timers = true;
            }
        }
    }
}

/// For the decisions.
impl Engine {
    /// The matches of a pool's key.
    #[inline(always)]
    pub(super) fn matches_of(&self, pool: u32) -> Matches {
        let of_pool = self.pools.get(pool);
        match self.is_applied_to(pool) {
            true => of_pool.matches,
            false => self.rules.matching(of_pool.key()),
        }
    }

    pub(super) fn is_applied_to(&self, pool: u32) -> bool {
        (pool as usize) < self.rules.applied
    }

    /// Decides about a request with the numbers of rules.
    #[cold]
    #[inline(never)]
    pub(super) fn decide_by_rules(
        &mut self,
        client: ClientId,
        request: &Acquire,
        (hash, found): (u64, Option<u32>),
        now: Time,
    ) -> Option<Reply> {
        let matches = match found {
            Some(pool) => self.matches_of(pool),
            None => self.rules.matching(request.key),
        };
        let mut limited = Limited { request: *request, is_denied: false, changed_by: None };
        if matches.0 & self.rules.deciding != 0 {
            let queue = found.map_or(QueueLen::default(), |pool| self.pools.get(pool).len());
            limited = self.rules.limit(matches, request, queue);
        }
        let answer = self.decide(client, &limited.request, (hash, found, matches), now);
        if answer.is_none() && limited.request.timeout_s < request.timeout_s {
            if let Some(wait) = self.stacks[client.slot as usize].top() {
                self.locks[wait as usize].is_shortened = true;
            }
        }
        self.rules.record_changed(limited.changed_by);
        let group = self.rules.group_of(matches);
        self.rules.groups[group].counts.count_request(answer, limited.is_denied);
        answer
    }

    /// Begins a hold of a key that may match rules.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_hold_by_rules(&mut self, id: LockId) {
        self.count_holder(self.locks[id as usize].pool);
        if let Some(deadline) = self.hold_deadline(id) {
            self.wheel.start(&mut self.locks, id, deadline);
        }
    }

    pub(super) fn count_holder(&mut self, pool: u32) {
        if let Some(rule) = self.total_of(pool) {
            self.rules.in_force[rule].holders += 1;
        }
    }

    /// When a hold exceeds the limit of its key, if there is one.
    pub(super) fn hold_deadline(&self, id: LockId) -> Option<Time> {
        let lock = &self.locks[id as usize];
        let max_hold_s = self.rules.max_hold_s(self.matches_of(lock.pool))?;
        Some(lock.since.plus_seconds(max_hold_s.into()))
    }

    /// Counts the end of a hold or a wait. Its pool must still be there.
    pub(super) fn count_end_by_rules(&mut self, lock: &Lock, outcome: LockOutcome, ns: u64) {
        let matches = self.matches_of(lock.pool);
        if outcome.is_of_hold() && self.rules.limit_holds() {
            if let Some(rule) = self.total_of(lock.pool) {
                self.rules.in_force[rule].holders -= 1;
            }
        }
        let Having { timeout, max_hold, .. } = self.rules.having;
        match outcome {
            LockOutcome::Timeout if lock.is_shortened => {
                self.rules.record_changed(matches.first_of(timeout));
            }
            LockOutcome::Expired => self.rules.record_changed(matches.first_of(max_hold)),
            _ => {}
        }
        let group = self.rules.group_of(matches);
        self.rules.groups[group].counts.count_end(outcome, ns);
    }

    /// Whether a waiter may inherit the slot of a holder that has left. While there are more
    /// holders than a rule allows, only a key without holders gets a new one.
    #[cold]
    pub(super) fn may_inherit(&self, pool: u32) -> bool {
        let matches = self.matches_of(pool);
        let holders = self.pools.get(pool).holders.len();
        let settings = |rule: usize| &self.rules.in_force[rule].rule.settings;
        let workers = matches.first_of(self.rules.having.workers);
        let exceeds_workers = workers
            .and_then(|rule| settings(rule).workers)
            .is_some_and(|workers| holders + 1 > workers.get());
        let exceeds_total = self.total_of(pool).is_some_and(|rule| {
            let total = settings(rule).total;
            total.is_some_and(|total| self.rules.in_force[rule].holders + 1 > total.get())
        });
        holders == 0 || !(exceeds_workers || exceeds_total)
    }

    /// The rule for which the holders of a pool are counted.
    pub(super) fn total_of(&self, pool: u32) -> Option<usize> {
        let matches = self.pools.get(pool).matches;
        matches.first_of(self.rules.having.total).filter(|_| self.is_applied_to(pool))
    }
}
