//! What is true after every call: counts, stacks, the order of queues, timers, rules. For
//! tests, simulation and fuzzing.

use crate::Engine;
use crate::lock::{Lock, LockId, Phase};
use alloc::vec;

impl Engine {
    /// Panics unless the engine's parts agree. O(everything).
    pub fn check_invariants(&self) {
        self.pools.check_invariants(&self.locks);
        self.check_counts();
        self.check_stacks();
        self.check_order();
        self.check_rules();
    }

    fn check_counts(&self) {
        let in_phase = |phase| self.locks.iter().filter(|(_, lock)| lock.phase == phase).count();
        let holders = in_phase(Phase::Holding);
        let waiters = self.locks.len() - holders;
        let in_queues: u32 = self.pools.iter_uncounted().map(|(_, pool)| pool.count()).sum();
        assert_eq!(in_queues as usize, holders + waiters, "a lock is in no queue");
        let on_stacks: usize =
            self.stacks.iter().map(|stack| stack.oldest_first(&self.locks).len()).sum();
        assert_eq!(on_stacks, self.locks.len(), "a lock is on no stack");
        let timers = self.locks.iter().filter(|(_, lock)| lock.timer.deadline().is_some()).count();
        assert_eq!(timers, self.wheel.len());
        let gauges = &self.counters;
        assert_eq!(gauges.hashtable_entries as usize, self.pools.len());
        assert_eq!(gauges.processing_workers as usize, holders);
        assert_eq!(gauges.waiting_workers as usize, waiters);
    }

    fn check_stacks(&self) {
        for (slot, stack) in self.stacks.iter().enumerate() {
            for id in stack.oldest_first(&self.locks) {
                let lock = &self.locks[id as usize];
                let top = stack.top().expect("a lock is on it");
                assert_eq!(lock.client.slot as usize, slot);
                assert_eq!(lock.client, self.locks[top as usize].client);
                assert_eq!(lock.timer.deadline().is_some(), self.needs_timer(lock));
                assert!(!lock.phase.waits() || top == id, "a wait below a lock");
            }
        }
    }

    /// Sequence numbers increase along every queue and every stack.
    fn check_order(&self) {
        let sequence = |id: LockId| self.locks[id as usize].sequence;
        for stack in &self.stacks {
            let sequences = stack.oldest_first(&self.locks).map(sequence);
            assert!(sequences.is_sorted(), "a stack is not in order");
        }
        for (_, pool) in self.pools.iter_uncounted() {
            for phase in Phase::QUEUED {
                let queue = pool.queue(phase).iter(&self.locks);
                let sequences = queue.map(|(_, lock)| lock.sequence);
                assert!(sequences.is_sorted(), "a queue is not in order");
            }
        }
    }

    /// The pools have the matches of the current rules, and holders of a total are counted.
    fn check_rules(&self) {
        let mut holders = vec![0; self.rules.in_force.len()];
        for (_, pool) in self.pools.iter_uncounted() {
            assert_eq!(pool.matches, self.rules.matching(pool.key()));
            if let Some((rule, _)) = self.rules.total(pool.matches) {
                holders[rule] += pool.holders.len();
            }
        }
        let counted = self.rules.in_force.iter().map(|rule| rule.holders);
        assert!(counted.eq(holders), "the holders of a total");
    }

    fn needs_timer(&self, lock: &Lock) -> bool {
        match lock.phase {
            Phase::Holding => self.rules.max_hold_s(self.pools.get(lock.pool).matches).is_some(),
            Phase::WaitingForMe | Phase::WaitingForAnyone => true,
        }
    }
}
