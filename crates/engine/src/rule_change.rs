//! A change of rules, at once for all live keys: which rules match them, the holders of each
//! total, the timers of holds, and locks for waiters in the room that it makes.
//!
//! This is the one call of the engine that takes time in proportion to the number of keys:
//! until a change has reached all of them, no count of holders would be right.

use crate::lock::{LockId, PoolId};
use crate::rules::Rules;
use crate::rules::rule::Rule;
use crate::time::Time;
use crate::{Engine, HEIRS};
use alloc::string::String;
use alloc::vec::Vec;

/// After how many keys the caller hears of the progress.
const KEYS_PER_REPORT: usize = 1_000;

/// What follows when all keys have their new matches.
#[derive(Default)]
struct Reached {
    /// The holds whose limit has changed.
    holds: Vec<LockId>,
    /// The pools that may have room for their waiters, each with the number of its oldest wait.
    may_have_room: Vec<(u64, PoolId)>,
}

impl Engine {
    /// The rules in force and the groups.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Replaces the rules, at most [`RULES_MAX`](super::rules::RULES_MAX), and the groups,
    /// named like their rules, at once for all keys. Limits locks that are already held as well,
    /// counted from when they were given. Waiters get the room that this makes: for each key
    /// those of `ACQ4ME` first, the oldest first, and the key first whose wait is the oldest.
    ///
    /// Takes time in proportion to the number of keys, so it calls `go_on` after each 1,000.
    pub fn set_rules(
        &mut self,
        in_force: Vec<Rule>,
        groups: &[String],
        now: Time,
        go_on: impl FnMut(),
    ) {
        if self.rules.are(&in_force, groups) {
            return;
        }
        let mut new = Rules::new(in_force, groups);
        new.continue_counts(&self.rules);
        let old = core::mem::replace(&mut self.rules, new);
        self.observer.watch_all(self.rules.are_active());
        self.rename_shortened_waits(&old);
        let Reached { holds, mut may_have_room } = self.reach_keys(&old, go_on);
        self.restart_timers(holds, now);
        may_have_room.sort_unstable();
        for (_, pool) in may_have_room {
            self.fill(pool, false, now);
        }
    }

    /// A wait that a rule has shortened keeps that rule, which may have another number now.
    fn rename_shortened_waits(&mut self, old: &Rules) {
        let numbers = old.continuations(&self.rules);
        for (_, lock) in &mut self.locks {
            lock.shortened_by = lock.shortened_by.and_then(|rule| numbers[rule.get()]);
        }
    }

    fn reach_keys(&mut self, old: &Rules, mut go_on: impl FnMut()) -> Reached {
        let mut reached = Reached::default();
        let pools: Vec<PoolId> = self.pools.iter().map(|(id, _)| id).collect();
        for keys in pools.chunks(KEYS_PER_REPORT) {
            for &pool in keys {
                self.reach_key(pool, old, &mut reached);
            }
            go_on();
        }
        reached
    }

    fn reach_key(&mut self, pool: PoolId, old: &Rules, reached: &mut Reached) {
        let of_pool = self.pools.get_mut(pool);
        let matches = self.rules.matching(of_pool.key());
        let before = core::mem::replace(&mut of_pool.matches, matches);
        let holders = of_pool.holders;
        self.rules.count_holders(matches, holders.len());
        if old.max_hold_s(before) != self.rules.max_hold_s(matches) {
            reached.holds.extend(holders.iter(&self.locks).map(|(id, _)| id));
        }
        if old.limit_room(before) || self.rules.limit_room(matches) {
            let of_pool = self.pools.get(pool);
            let first = |&phase| of_pool.queue(phase).first(&self.locks);
            let oldest = HEIRS.iter().filter_map(first).map(|id| self.locks[id as usize].sequence);
            reached.may_have_room.extend(oldest.min().map(|oldest| (oldest, pool)));
        }
    }

    /// Starts the timers of these holds again, in the order in which the holds began. A limit
    /// that is exceeded already ends a hold now.
    fn restart_timers(&mut self, mut holds: Vec<LockId>, now: Time) {
        holds.sort_unstable_by_key(|&id| self.locks[id as usize].sequence);
        for id in holds {
            self.wheel.stop(&mut self.locks, id);
            if let Some(deadline) = self.hold_deadline(id) {
                self.wheel.start(&mut self.locks, id, deadline.max(now));
            }
        }
    }
}
