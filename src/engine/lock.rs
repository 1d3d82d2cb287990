//! Locks, held or waited for, and the queues through them.

use super::ClientId;
use super::time::Time;
use super::wheel::{Timer, Timers};
use slab::Slab;

/// The number of a lock in the slab of locks.
pub(super) type LockId = u32;
const NONE: LockId = LockId::MAX;

/// The pool of a spent lock: nothing in it may lead to another's pool.
pub(super) const NO_POOL: u32 = u32::MAX;

/// What a lock is to its client at the moment, and so which queue of its pool
/// it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Holding,
    WaitingForMe,
    WaitingForAnyone,
    /// Held for too long and taken away: still on its client's stack, so that
    /// the client's own RELEASE pops the right one, but in no pool any more.
    Spent,
}

impl State {
    pub(super) fn waits(self) -> bool {
        matches!(self, State::WaitingForMe | State::WaitingForAnyone)
    }
}

#[derive(Debug)]
pub(super) struct Lock {
    pub(super) client: ClientId,
    /// [`NO_POOL`] when it is spent.
    pub(super) pool: u32,
    pub(super) state: State,
    /// Since when it is held or waited for.
    pub(super) since: Time,
    /// When the wait runs out, or the lock is taken away.
    pub(super) timer: Timer,
    next: LockId,
    previous: LockId,
}

impl Lock {
    pub(super) fn new(client: ClientId, pool: u32, state: State, now: Time) -> Self {
        let timer = Timer::default();
        Lock { client, pool, state, since: now, timer, next: NONE, previous: NONE }
    }
}

/// All locks of the daemon, whatever their pool and client.
pub(super) type Locks = Slab<Lock>;

impl Timers for Locks {
    fn timer(&mut self, id: u32) -> &mut Timer {
        &mut self[id as usize].timer
    }
}

/// A first-in, first-out queue: a doubly linked list through the slab of locks,
/// so that a lock anywhere in it leaves in O(1). A lock is in one queue at most.
#[derive(Debug)]
pub(super) struct Queue {
    first: LockId,
    last: LockId,
    len: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Queue { first: NONE, last: NONE, len: 0 }
    }
}

impl Queue {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The one that joined first.
    pub(super) fn first(&self) -> Option<LockId> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn join(&mut self, locks: &mut Locks, id: LockId) {
        let previous = std::mem::replace(&mut self.last, id);
        if previous == NONE {
            self.first = id;
        } else {
            locks[previous as usize].next = id;
        }
        let lock = &mut locks[id as usize];
        (lock.previous, lock.next) = (previous, NONE);
        self.len += 1;
    }

    pub(super) fn leave(&mut self, locks: &mut Locks, id: LockId) {
        let Lock { previous, next, .. } = locks[id as usize];
        if previous == NONE {
            self.first = next;
        } else {
            locks[previous as usize].next = next;
        }
        if next == NONE {
            self.last = previous;
        } else {
            locks[next as usize].previous = previous;
        }
        self.len -= 1;
    }

    /// The locks in it, the oldest first.
    pub(super) fn iter<'a>(&self, locks: &'a Locks) -> impl Iterator<Item = (LockId, &'a Lock)> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let id = next;
            let lock = locks.get(id as usize)?;
            next = lock.next;
            Some((id, lock))
        })
    }
}
