//! Pools, each with the queues of holders and waiters of one key, and what these decide about a
//! request; the map from keys to pools, with the hash; which numbers of pools are in use.

use crate::hash::HashSeed;
use crate::lock::{LockQueue, Locks, Phase, PoolId};
use crate::rules::matcher::Matches;
use crate::spare_capacity::SpareCapacity;
use alloc::boxed::Box;
use core::cell::Cell;
use hashbrown::HashTable;
use protocol::Acquire;
use slab::Slab;

/// Makes a pool 96 bytes long.
const SHORT_KEY_BYTES_MAX: usize = 54;

/// A short key, like most of MediaWiki's, allocates nothing.
#[derive(Clone, Debug)]
enum StoredKey {
    Short { len: u8, bytes: [u8; SHORT_KEY_BYTES_MAX] },
    Long(Box<[u8]>),
}

impl StoredKey {
    #[inline(always)]
    fn new(key: &[u8]) -> Self {
        if key.len() > SHORT_KEY_BYTES_MAX {
            return StoredKey::Long(key.into());
        }
        let mut bytes = [0; SHORT_KEY_BYTES_MAX];
        bytes[..key.len()].copy_from_slice(key);
        StoredKey::Short { len: key.len() as u8, bytes }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            StoredKey::Short { len, bytes } => &bytes[..usize::from(*len)],
            StoredKey::Long(bytes) => bytes,
        }
    }
}

/// One key. A pool exists only while a client holds the key: waiters always have a
/// holder to wait for.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    key: StoredKey,
    hash: u64,
    /// Always of the rules in force.
    pub(super) matches: Matches,
    pub(super) holders: LockQueue,
    pub(super) waiters_for_me: LockQueue,
    pub(super) waiters_for_anyone: LockQueue,
}

// Including a key of up to 54 bytes.
const _: () = assert!(size_of::<Option<Pool>>() <= 96);

impl Pool {
    pub(super) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn len(&self) -> QueueLen {
        QueueLen { holders: self.holders.len(), all: self.count() }
    }

    /// The number of holders and waiters.
    pub(super) fn count(&self) -> u32 {
        self.holders.len() + self.waiters_for_me.len() + self.waiters_for_anyone.len()
    }

    pub(super) fn queue(&self, phase: Phase) -> &LockQueue {
        match phase {
            Phase::Holding => &self.holders,
            Phase::WaitingForMe => &self.waiters_for_me,
            Phase::WaitingForAnyone => &self.waiters_for_anyone,
        }
    }

    pub(super) fn queue_mut(&mut self, phase: Phase) -> &mut LockQueue {
        match phase {
            Phase::Holding => &mut self.holders,
            Phase::WaitingForMe => &mut self.waiters_for_me,
            Phase::WaitingForAnyone => &mut self.waiters_for_anyone,
        }
    }
}

/// What is decided about a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Full,
    Granted,
    Waits,
    TimedOut,
}

/// How many clients hold a key, and how many hold it or wait for it.
#[derive(Clone, Copy, Default)]
pub(super) struct QueueLen {
    pub(super) holders: u32,
    pub(super) all: u32,
}

/// Decides about a request from the numbers in it.
#[inline(always)]
pub(super) fn verdict(request: &Acquire<'_>, queue: QueueLen) -> Verdict {
    if queue.all >= request.max_queue {
        Verdict::Full
    } else if queue.holders < request.workers {
        Verdict::Granted
    } else if request.timeout_s == 0 {
        Verdict::TimedOut
    } else {
        Verdict::Waits
    }
}

/// All pools, by number and by key.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    slots: Slab<Pool>,
    /// Pool numbers. Only the pool stores the key and its hash: when the table grows,
    /// it moves four bytes per entry and hashes nothing again.
    by_key: HashTable<PoolId>,
    seed: HashSeed,
    /// How many slots were looked at, one after the other.
    visited: Cell<u64>,
}

impl Pools {
    pub(super) fn new(seed: HashSeed) -> Self {
        Pools { slots: Slab::new(), by_key: HashTable::new(), seed, visited: Cell::new(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash(key)
    }

    /// As [`Pools::hash`], where speed does not matter.
    pub(super) fn hash_aside(&self, key: &[u8]) -> u64 {
        self.seed.hash_aside(key)
    }

    #[inline(always)]
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Option<PoolId> {
        let same = |&id: &PoolId| {
            let pool = &self.slots[id.place()];
            pool.hash == hash && pool.key() == key
        };
        self.by_key.find(hash, same).copied()
    }

    /// Adds an empty pool for a key that has none.
    #[inline(always)]
    pub(super) fn add(&mut self, key: &[u8], hash: u64, matches: Matches) -> PoolId {
        let pool = Pool {
            key: StoredKey::new(key),
            hash,
            matches,
            holders: LockQueue::default(),
            waiters_for_me: LockQueue::default(),
            waiters_for_anyone: LockQueue::default(),
        };
        let id = u32::try_from(self.slots.insert(pool)).expect("fewer pools than 2^32");
        let id = PoolId(id);
        let slots = &self.slots;
        self.by_key.insert_unique(hash, id, |&id| slots[id.place()].hash);
        id
    }

    /// Removes the pool if it is empty, and returns whether it was.
    pub(super) fn remove_if_empty(&mut self, id: PoolId) -> bool {
        let pool = &self.slots[id.place()];
        if pool.count() > 0 {
            return false;
        }
        let entry = self.by_key.find_entry(pool.hash, |&other| other == id);
        entry.expect("every pool is in the table").remove();
        self.slots.remove(id.place());
        true
    }

    pub(super) fn spare(&self) -> SpareCapacity {
        SpareCapacity::of(&self.slots)
    }

    pub(super) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
        let slots = &self.slots;
        self.by_key.shrink_to_fit(|&id| slots[id.place()].hash);
    }

    pub(super) fn get_mut(&mut self, id: PoolId) -> &mut Pool {
        &mut self.slots[id.place()]
    }

    pub(super) fn get(&self, id: PoolId) -> &Pool {
        &self.slots[id.place()]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        self.count_visited(self.slots.len());
        self.iter_uncounted()
    }

    /// For a hot restart and for tests, which look at each key anyway.
    pub(super) fn iter_uncounted(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        self.slots.iter().map(|(place, pool)| (PoolId(place as u32), pool))
    }

    /// How many slots there are, with and without a pool.
    pub(super) fn places(&self) -> usize {
        self.slots.capacity()
    }

    pub(super) fn in_places(
        &self,
        from: usize,
        to: usize,
    ) -> impl Iterator<Item = (PoolId, &Pool)> {
        self.count_visited((from..to).len());
        (from..to).filter_map(|place| Some((PoolId(place as u32), self.slots.get(place)?)))
    }

    pub(super) fn visited(&self) -> u64 {
        self.visited.get()
    }

    fn count_visited(&self, slots: usize) {
        self.visited.set(self.visited.get() + slots as u64);
    }

    /// Panics unless the table, the pools and the queues agree.
    pub(super) fn check_invariants(&self, locks: &Locks) {
        assert_eq!(self.by_key.len(), self.slots.len());
        for (id, pool) in self.iter_uncounted() {
            assert_eq!(self.find(pool.key(), self.hash_aside(pool.key())), Some(id));
            assert!(pool.holders.len() > 0, "a pool without a holder was kept");
            for phase in Phase::QUEUED {
                let (queue, mut len) = (pool.queue(phase), 0);
                for (_, lock) in queue.iter(locks) {
                    assert_eq!((lock.pool, lock.phase), (id, phase));
                    len += 1;
                }
                assert_eq!(len, queue.len());
            }
        }
    }
}
