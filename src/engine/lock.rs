//! Locks, held or waited for, and the queues that link them.

use crate::engine::client::ClientId;
use crate::engine::time::Time;
use crate::engine::wheel::{Timer, Timers};
use crate::protocol::Mode;
use slab::Slab;

/// The number of a lock in the slab of locks.
pub(super) type LockId = u32;
const NONE: LockId = LockId::MAX;

/// The state of a lock. It determines the queue of the pool that the lock is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its client holds it.
    Holding,
    /// Its client waits after `ACQ4ME`.
    WaitingForMe,
    /// Its client waits after `ACQ4ANY`.
    WaitingForAnyone,
}

impl Phase {
    /// Those that have a queue in each pool.
    pub const QUEUED: [Phase; 3] = [Phase::Holding, Phase::WaitingForMe, Phase::WaitingForAnyone];

    /// Whether its client waits for it.
    pub fn waits(self) -> bool {
        matches!(self, Phase::WaitingForMe | Phase::WaitingForAnyone)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) client: ClientId,
    pub(super) pool: u32,
    pub(super) phase: Phase,
    /// How it was asked for.
    pub(super) mode: Mode,
    /// As how many requests its own counts in [`crate::engine::observe::observer`]; 0 if it is not followed.
    pub(super) requests: u8,
    /// A rule has shortened the wait.
    pub(super) is_shortened: bool,
    /// When the hold or the wait began.
    pub(super) since: Time,
    /// Its number in the order in which holds and waits began.
    pub(super) sequence: u64,
    /// When the wait times out or the hold has lasted for too long.
    pub(super) timer: Timer,
    next: LockId,
    previous: LockId,
}

impl Lock {
    #[inline(always)]
    pub(super) fn new(
        client: ClientId,
        pool: u32,
        (phase, mode): (Phase, Mode),
        since: Time,
        sequence: u64,
    ) -> Self {
        let (timer, next, previous) = (Timer::default(), NONE, NONE);
        Lock {
            client,
            pool,
            phase,
            mode,
            requests: 0,
            is_shortened: false,
            since,
            sequence,
            timer,
            next,
            previous,
        }
    }

    /// The next lock in its queue.
    pub(super) fn next(&self) -> Option<LockId> {
        (self.next != NONE).then_some(self.next)
    }
}

/// All locks of the daemon, of every pool and client.
pub(super) type Locks = Slab<Lock>;

impl Timers for Locks {
    fn timer(&mut self, id: u32) -> &mut Timer {
        &mut self[id as usize].timer
    }
}

/// A first-in, first-out queue: a doubly linked list through the slab of locks,
/// so that a lock anywhere in it leaves in O(1). A lock is in one queue at most.
#[derive(Clone, Debug)]
pub(super) struct LockQueue {
    first: LockId,
    last: LockId,
    len: u32,
}

impl Default for LockQueue {
    fn default() -> Self {
        LockQueue { first: NONE, last: NONE, len: 0 }
    }
}

impl LockQueue {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The lock that joined first.
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

    /// The locks in the queue, oldest first.
    pub(super) fn iter<'a>(&self, locks: &'a Locks) -> impl Iterator<Item = (LockId, &'a Lock)> {
        std::iter::successors(self.first(), |&id| locks[id as usize].next())
            .map(|id| (id, &locks[id as usize]))
    }
}
