//! Read-only views of the engine, borrowed from it: pools, locks and clients.
//! Nothing is copied, and nothing can be changed through them.

use super::bookkeeping::Engine;
use super::client::ClientId;
use super::lock::{Lock, LockId, Locks};
use super::pool::{Pool, Pools};
use super::sampler::Followed;
use super::stack::Stack;
use super::time::Time;
use crate::protocol::Mode;

pub use super::lock::Phase;

impl Engine {
    /// All keys that clients hold or wait for, in no particular order.
    pub fn pools(&self) -> impl Iterator<Item = PoolView<'_>> {
        self.pools.iter().map(|(_, pool)| PoolView { engine: self, pool })
    }

    /// The keys in the places `from` to `to`, of [`Engine::pool_places`], for a walk in
    /// steps: a key stays in its place for as long as somebody holds it.
    pub fn pools_in(&self, from: usize, to: usize) -> impl Iterator<Item = PoolView<'_>> {
        self.pools.in_places(from, to).map(|pool| PoolView { engine: self, pool })
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

    /// All clients that have locks, by slot.
    pub fn clients(&self) -> impl Iterator<Item = ClientView<'_>> {
        self.stacks.iter().filter_map(|stack| ClientView::new(self, stack))
    }

    /// The client `id`, if it has locks. O(1).
    pub fn client(&self, id: ClientId) -> Option<ClientView<'_>> {
        let view = ClientView::new(self, self.stacks.get(id.slot as usize)?)?;
        (view.id == id).then_some(view)
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

    /// The locks in one phase, oldest first. No pool has spent locks.
    pub fn locks(self, phase: Phase) -> impl ExactSizeIterator<Item = LockView<'a>> {
        let queue = (phase != Phase::Spent).then(|| self.pool.queue(phase));
        let Engine { locks, pools, .. } = self.engine;
        Members {
            next: queue.and_then(|queue| queue.first()),
            left: queue.map_or(0, |queue| queue.len() as usize),
            locks,
            pools,
        }
    }

    /// Oldest first.
    pub fn holders(self) -> impl ExactSizeIterator<Item = LockView<'a>> {
        self.locks(Phase::Holding)
    }

    /// Clients that wait after `ACQ4ME`, oldest first.
    pub fn waiters_for_me(self) -> impl ExactSizeIterator<Item = LockView<'a>> {
        self.locks(Phase::WaitingForMe)
    }

    /// Clients that wait after `ACQ4ANY`, oldest first.
    pub fn waiters_for_anyone(self) -> impl ExactSizeIterator<Item = LockView<'a>> {
        self.locks(Phase::WaitingForAnyone)
    }
}

/// One lock: held, waited for or spent.
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

    /// Whether it is held, waited for or spent.
    pub fn phase(self) -> Phase {
        self.lock.phase
    }

    /// Whether its client holds it.
    pub fn is_held(self) -> bool {
        self.lock.phase == Phase::Holding
    }

    /// Its key. `None` for a spent lock.
    pub fn key(self) -> Option<&'a [u8]> {
        (self.lock.phase != Phase::Spent).then(|| self.pools.get(self.lock.pool).key())
    }

    /// When the hold or the wait began.
    pub fn since(self) -> Time {
        self.lock.since
    }

    /// When the wait times out or the lock is taken away. `None` means never.
    pub fn deadline(self) -> Option<Time> {
        self.lock.timer.deadline()
    }

    /// How it was asked for.
    pub fn mode(self) -> Mode {
        self.lock.mode
    }

    /// Whether its request is followed.
    pub(super) fn followed(self) -> Followed {
        self.lock.followed
    }

    /// Its number in the order in which all holds and waits of the engine began.
    pub fn sequence(self) -> u64 {
        self.lock.sequence
    }
}

/// One client that has locks.
#[derive(Clone, Copy, Debug)]
pub struct ClientView<'a> {
    id: ClientId,
    engine: &'a Engine,
    stack: &'a Stack,
}

impl<'a> ClientView<'a> {
    fn new(engine: &'a Engine, stack: &'a Stack) -> Option<Self> {
        let id = engine.locks[stack.top()? as usize].client;
        Some(ClientView { id, engine, stack })
    }

    /// Its slot and serial number.
    pub fn id(self) -> ClientId {
        self.id
    }

    /// Its locks, oldest first. If it waits, the wait is the last one.
    pub fn locks(self) -> impl ExactSizeIterator<Item = LockView<'a>> {
        let Engine { locks, pools, .. } = self.engine;
        self.stack.as_slice().iter().map(|&id| LockView { lock: &locks[id as usize], pools })
    }
}

/// Iterates over a queue.
struct Members<'a> {
    next: Option<LockId>,
    left: usize,
    locks: &'a Locks,
    pools: &'a Pools,
}

impl<'a> Iterator for Members<'a> {
    type Item = LockView<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let lock = &self.locks[self.next? as usize];
        self.next = lock.next();
        self.left -= 1;
        Some(LockView { lock, pools: self.pools })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Members<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Acquire;
    use std::hash::RandomState;

    fn client(slot: u32) -> ClientId {
        ClientId { slot, serial: slot + 7 }
    }

    /// Slot 0 holds `a`, slot 1 holds `b` and waits for `a`, slot 2 waits for `a`.
    fn engine() -> Engine {
        let mut engine = Engine::new(RandomState::new(), Time::default());
        engine.set_hold_limits(vec!["b=30".parse().expect("a limit")]);
        for (at_s, slot, mode, key) in [
            (1, 0, Mode::ForMe, b"a"),
            (2, 1, Mode::ForMe, b"b"),
            (3, 1, Mode::ForMe, b"a"),
            (4, 2, Mode::ForAnyone, b"a"),
        ] {
            let request = Acquire { mode, key, workers: 1, max_queue: 9, timeout_s: 5 };
            engine.acquire(client(slot), &request, Time::default().plus_seconds(at_s));
        }
        engine
    }

    fn at_s(seconds: u64) -> Time {
        Time::default().plus_seconds(seconds)
    }

    #[test]
    fn a_pool_shows_its_holders_and_waiters() {
        let engine = engine();
        let pool = engine.pool(b"a").expect("the pool");
        assert_eq!((pool.key(), pool.holders().len()), (&b"a"[..], 1));
        let holder = pool.holders().next().expect("a holder");
        assert_eq!(
            (holder.client(), holder.since(), holder.deadline()),
            (client(0), at_s(1), None)
        );
        let waiters: Vec<_> = pool.waiters_for_me().map(|lock| lock.client()).collect();
        assert_eq!(waiters, [client(1)]);
        let waiter = pool.waiters_for_anyone().next().expect("a waiter");
        assert_eq!((waiter.client(), waiter.deadline()), (client(2), Some(at_s(9))));
        assert_eq!(pool.locks(Phase::Spent).len(), 0);
        let mut keys: Vec<_> = engine.pools().map(|pool| pool.key()).collect();
        keys.sort_unstable();
        assert_eq!(keys, [b"a", b"b"]);
        assert!(engine.pool(b"c").is_none());
    }

    #[test]
    fn a_client_shows_its_locks_and_a_former_one_none() {
        let mut engine = engine();
        let shown: Vec<_> = engine.clients().map(|client| client.id()).collect();
        assert_eq!(shown, [client(0), client(1), client(2)]);
        let locks = |engine: &Engine| -> Vec<_> {
            let view = engine.client(client(1)).expect("the client");
            view.locks().map(|lock| (lock.key().map(<[u8]>::to_vec), lock.phase())).collect()
        };
        let waits = (Some(b"a".to_vec()), Phase::WaitingForMe);
        assert_eq!(locks(&engine), [(Some(b"b".to_vec()), Phase::Holding), waits.clone()]);
        assert_eq!((engine.hold_s_max(b"b"), engine.hold_s_max(b"a")), (Some(30), None));
        assert!(engine.client(ClientId { serial: 0, ..client(1) }).is_none());
        engine.disconnect(client(0), at_s(5));
        engine.expire(at_s(40));
        assert_eq!(locks(&engine), [(None, Phase::Spent), (waits.0, Phase::Holding)]);
        assert!(engine.client(client(0)).is_none());
    }
}
