//! Read-only views of the engine, borrowed from it: pools and locks.
//! Nothing is copied, and nothing can be changed through them.

use crate::Engine;
pub use crate::lock::Phase;
use crate::lock::{ClientId, Lock};
use crate::pool::{Pool, Pools};
use crate::rules::matcher::Matches;
use crate::time::Time;
use protocol::Mode;

impl Engine {
    /// All keys that clients hold or wait for, in no particular order.
    pub fn pools(&self) -> impl Iterator<Item = PoolView<'_>> {
        self.pools.iter().map(|(_, pool)| PoolView { engine: self, pool })
    }

    /// The keys in the places `from` to `to`, of [`Engine::pool_places`], for a walk in
    /// steps: a key stays in its place while a client holds it.
    pub fn pools_in(&self, from: usize, to: usize) -> impl Iterator<Item = PoolView<'_>> {
        self.pools.in_places(from, to).map(|(_, pool)| PoolView { engine: self, pool })
    }

    /// How many places there are for keys, taken and free.
    pub fn pool_places(&self) -> usize {
        self.pools.places()
    }

    /// The pool of `key`, if a client holds it. O(1).
    pub fn pool(&self, key: &[u8]) -> Option<PoolView<'_>> {
        let id = self.pools.find(key, self.pools.hash_aside(key))?;
        Some(PoolView { engine: self, pool: self.pools.get(id) })
    }

    /// The locks of a client, oldest first. If it waits, the wait is the last one. O(1).
    pub fn locks_of(&self, client: ClientId) -> impl Iterator<Item = LockView<'_>> {
        let Engine { locks, pools, .. } = self;
        let stack = self.stacks.get(client.slot as usize).copied().unwrap_or_default();
        let all = stack.oldest_first(locks).map(|id| LockView { lock: &locks[id as usize], pools });
        all.filter(move |lock| lock.client() == client)
    }
}

/// One key, with its holders and waiters.
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'a> {
    engine: &'a Engine,
    pool: &'a Pool,
}

impl<'a> PoolView<'a> {
    /// Any bytes except spaces and line feeds.
    pub fn key(self) -> &'a [u8] {
        self.pool.key()
    }

    /// Which rules match the key.
    pub fn matches(self) -> Matches {
        self.pool.matches
    }

    /// How many locks hold the key or wait for it, in one phase.
    pub fn count(self, phase: Phase) -> usize {
        self.pool.queue(phase).len() as usize
    }

    /// The clients that hold the key, the oldest hold first.
    pub fn holders(self) -> impl Iterator<Item = ClientId> + use<'a> {
        self.locks(Phase::Holding).map(LockView::client)
    }

    /// The locks in one phase, oldest first.
    pub fn locks(self, phase: Phase) -> impl Iterator<Item = LockView<'a>> {
        let Engine { locks, pools, .. } = self.engine;
        self.pool.queue(phase).iter(locks).map(|(_, lock)| LockView { lock, pools })
    }
}

/// One lock, held or waited for.
#[derive(Clone, Copy, Debug)]
pub struct LockView<'a> {
    lock: &'a Lock,
    pools: &'a Pools,
}

impl<'a> LockView<'a> {
    /// The client that it belongs to.
    pub fn client(self) -> ClientId {
        self.lock.client
    }

    /// Whether its client holds it.
    pub fn is_held(self) -> bool {
        self.lock.phase == Phase::Holding
    }

    /// Its key.
    pub fn key(self) -> &'a [u8] {
        self.pools.get(self.lock.pool).key()
    }

    /// When the hold or the wait began.
    pub fn since(self) -> Time {
        self.lock.since
    }

    /// When the wait times out or the hold exceeds its limit. `None` means never.
    pub fn deadline(self) -> Option<Time> {
        self.lock.timer.deadline()
    }

    /// How it was asked for.
    pub fn mode(self) -> Mode {
        self.lock.mode
    }

    /// Its number in the order in which all holds and waits of the engine began.
    pub fn sequence(self) -> u64 {
        self.lock.sequence
    }
}
