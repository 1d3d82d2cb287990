//! How rules change decisions: verdicts, holders of a total, limits of holds, free slots.

use crate::counts::measures::LockOutcome;
use crate::lock::{ClientId, Lock, LockId, PoolId};
use crate::pool::{Pool, QueueLen};
use crate::rules::LimitedRequest;
use crate::rules::matcher::Matches;
use crate::time::Time;
use crate::{Engine, FoundKey, HEIRS};
use protocol::{Acquire, Reply};

impl Engine {
    /// Decides about a request with the numbers of rules.
    #[cold]
    #[inline(never)]
    pub(super) fn decide_by_rules(
        &mut self,
        client: ClientId,
        request: &Acquire<'_>,
        found: FoundKey,
        now: Time,
    ) -> Option<Reply> {
        let matches = match found.pool {
            Some(pool) => self.pools.get(pool).matches,
            None => self.rules.matching(request.key),
        };
        if let Some(pool) = found.pool.filter(|_| self.rules.limit_room(matches)) {
            // Room that a release on another key has made goes to waiters before newcomers, in
            // line: a request must not look at a whole crowd.
            self.fill(pool, true, now);
        }
        let queue = found.pool.map_or(QueueLen::default(), |pool| self.pools.get(pool).len());
        let limited = self.rules.limit(matches, request, queue);
        let answer = self.decide(client, &limited.request, found, matches, now);
        if answer.is_none() {
            self.record_wait(client, request, &limited);
        }
        self.rules.record_changed(limited.changed_by);
        let group = self.rules.group_of(matches);
        self.rules.groups[group].counts.count_request(answer, limited.is_denied);
        answer
    }

    /// Gives the room of a key to the waiters that it is enough for: those of `ACQ4ME` first, the
    /// oldest first. `in_line`: no waiter passes an older one of its kind.
    pub(super) fn fill(&mut self, pool: PoolId, in_line: bool, now: Time) {
        for &phase in HEIRS {
            let mut next = self.pools.get(pool).queue(phase).first(&self.locks);
            while let Some(id) = next {
                next = self.pools.get(pool).queue(phase).next(&self.locks, id);
                if self.has_room_for(id) {
                    self.hand_to(id, now);
                } else if in_line {
                    break;
                }
            }
        }
    }

    /// The client's wait has begun.
    fn record_wait(
        &mut self,
        client: ClientId,
        request: &Acquire<'_>,
        limited: &LimitedRequest<'_>,
    ) {
        if let Some(wait) = self.stacks[client.slot as usize].top() {
            let wait = &mut self.locks[wait as usize];
            wait.set_workers(request.workers);
            wait.shortened_by = limited.shortened_by;
        }
    }

    /// Begins a hold of a key that may match rules.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_hold_by_rules(&mut self, id: LockId) {
        let matches = self.matches_of(id);
        self.rules.count_holders(matches, 1);
        if let Some(deadline) = self.hold_deadline(id) {
            self.wheel.start(&mut self.locks, id, deadline);
        }
    }

    fn matches_of(&self, lock: LockId) -> Matches {
        self.pools.get(self.locks[lock as usize].pool).matches
    }

    /// When a hold exceeds the limit of its key, if there is one.
    pub(super) fn hold_deadline(&self, id: LockId) -> Option<Time> {
        let max_hold_s = self.rules.max_hold_s(self.matches_of(id))?;
        Some(self.locks[id as usize].since.plus_seconds(max_hold_s.into()))
    }

    /// Counts the end of a hold or a wait. Its pool must still be there.
    pub(super) fn count_end_by_rules(&mut self, lock: &Lock, outcome: LockOutcome, ns: u64) {
        let matches = self.pools.get(lock.pool).matches;
        if outcome.is_of_hold() {
            self.rules.uncount_holder(matches);
        }
        self.rules.record_changed(self.rules.ended_by(matches, lock.shortened_by, outcome));
        let group = self.rules.group_of(matches);
        self.rules.groups[group].counts.count_end(outcome, ns);
    }

    /// Whether the limits of a key allow one more holder, namely this waiter.
    fn has_room_for(&self, waiter: LockId) -> bool {
        let lock = &self.locks[waiter as usize];
        self.has_room(self.pools.get(lock.pool), lock.workers.into())
    }

    /// Whether a waiter may inherit the slot of a holder that has left. While there are more
    /// holders than a rule allows, only a key without holders gets a new one.
    #[cold]
    pub(super) fn may_inherit(&self, pool: PoolId) -> bool {
        let pool = self.pools.get(pool);
        pool.holders.len() == 0 || self.has_room(pool, u32::MAX)
    }

    /// Whether these `workers` and the rules allow one more holder.
    fn has_room(&self, pool: &Pool, workers: u32) -> bool {
        let workers = self.rules.limit_workers(pool.matches, workers);
        pool.holders.len() < workers && self.rules.exhausted_total(pool.matches).is_none()
    }
}
