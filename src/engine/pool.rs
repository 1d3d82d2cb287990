//! Pools: who holds and who waits for one key; and the map from keys to them.

use super::lock::{Locks, Queue, State};
use hashbrown::HashTable;
use slab::Slab;
use std::hash::{BuildHasher, RandomState};

/// One key. Exists only while somebody holds it or waits for it.
#[derive(Debug)]
pub(super) struct Pool {
    key: Box<[u8]>,
    hash: u64,
    /// How long the key may be held, in seconds; 0 is for ever.
    pub(super) hold_s_max: u32,
    pub(super) holders: Queue,
    pub(super) waiters_for_me: Queue,
    pub(super) waiters_for_anyone: Queue,
}

impl Pool {
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Those that hold or wait.
    pub(super) fn count(&self) -> u32 {
        self.holders.len() + self.waiters_for_me.len() + self.waiters_for_anyone.len()
    }

    pub(super) fn queue(&self, state: State) -> &Queue {
        match state {
            State::Holding => &self.holders,
            State::WaitingForMe => &self.waiters_for_me,
            State::WaitingForAnyone => &self.waiters_for_anyone,
            State::Spent => unreachable!("a spent lock is in no pool"),
        }
    }

    pub(super) fn queue_mut(&mut self, state: State) -> &mut Queue {
        match state {
            State::Holding => &mut self.holders,
            State::WaitingForMe => &mut self.waiters_for_me,
            State::WaitingForAnyone => &mut self.waiters_for_anyone,
            State::Spent => unreachable!("a spent lock is in no pool"),
        }
    }
}

/// All pools, by number and by key.
#[derive(Debug)]
pub(super) struct Pools {
    slots: Slab<Pool>,
    /// Numbers of pools. The key and its hash stand once, in the pool: to grow,
    /// the table moves four bytes an entry and hashes nothing again.
    by_key: HashTable<u32>,
    /// Keyed SipHash: nobody outside can make keys that collide.
    hasher: RandomState,
}

impl Pools {
    pub(super) fn new(hasher: RandomState) -> Self {
        Pools { slots: Slab::new(), by_key: HashTable::new(), hasher }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(super) fn find(&self, key: &[u8], hash: u64) -> Option<u32> {
        let same = |&id: &u32| {
            let pool = &self.slots[id as usize];
            pool.hash == hash && *pool.key == *key
        };
        self.by_key.find(hash, same).copied()
    }

    /// Adds an empty pool for a key that has none.
    pub(super) fn add(&mut self, key: &[u8], hash: u64, hold_s_max: u32) -> u32 {
        let pool = Pool {
            key: key.into(),
            hash,
            hold_s_max,
            holders: Queue::default(),
            waiters_for_me: Queue::default(),
            waiters_for_anyone: Queue::default(),
        };
        let id = u32::try_from(self.slots.insert(pool)).expect("fewer pools than 2^32");
        let slots = &self.slots;
        self.by_key.insert_unique(hash, id, |&id| slots[id as usize].hash);
        id
    }

    /// Returns whether it was empty and is removed.
    pub(super) fn remove_if_empty(&mut self, id: u32) -> bool {
        let pool = &self.slots[id as usize];
        if pool.count() > 0 {
            return false;
        }
        let entry = self.by_key.find_entry(pool.hash, |&other| other == id);
        entry.expect("every pool is in the table").remove();
        self.slots.remove(id as usize);
        true
    }

    pub(super) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
        let slots = &self.slots;
        self.by_key.shrink_to_fit(|&id| slots[id as usize].hash);
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Pool {
        &mut self.slots[id as usize]
    }

    pub(super) fn get(&self, id: u32) -> &Pool {
        &self.slots[id as usize]
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.slots.iter_mut().map(|(_, pool)| pool)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Pool)> {
        self.slots.iter().map(|(id, pool)| (id as u32, pool))
    }

    /// Panics unless the table and the pools say the same.
    pub(super) fn check_invariants(&self, locks: &Locks) {
        assert_eq!(self.by_key.len(), self.slots.len());
        for (id, pool) in self.iter() {
            assert_eq!(self.find(&pool.key, self.hash(&pool.key)), Some(id));
            assert!(pool.count() > 0, "an empty pool was kept");
            for (state, queue) in [
                (State::Holding, &pool.holders),
                (State::WaitingForMe, &pool.waiters_for_me),
                (State::WaitingForAnyone, &pool.waiters_for_anyone),
            ] {
                let mut len = 0;
                for (_, lock) in queue.iter(locks) {
                    assert_eq!((lock.pool, lock.state), (id, state));
                    len += 1;
                }
                assert_eq!(len, queue.len());
            }
        }
    }
}
