//! Locks, held or waited for; the queues of a pool and the stacks of clients that link them;
//! how the caller identifies clients.

use crate::rules::rule::RuleNumber;
use crate::time::Time;
use crate::wheel::{Timer, Timers};
use protocol::{LOCKS_PER_CONNECTION_MAX, Mode};
use serde::{Deserialize, Serialize};
use slab::Slab;

/// The number of a lock in the slab of locks.
pub(super) type LockId = u32;

/// The number of a pool in the slab of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PoolId(pub(super) u32);

impl PoolId {
    #[inline(always)]
    pub(super) fn place(self) -> usize {
        self.0 as usize
    }
}

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
    /// The phases that have a queue in each pool.
    pub const QUEUED: [Phase; 3] = [Phase::Holding, Phase::WaitingForMe, Phase::WaitingForAnyone];

    /// Whether its client waits for it.
    pub fn waits(self) -> bool {
        matches!(self, Phase::WaitingForMe | Phase::WaitingForAnyone)
    }
}

/// With its place in the slab, it takes 64 bytes: a cache line.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) client: ClientId,
    pub(super) pool: PoolId,
    pub(super) phase: Phase,
    /// How it was asked for.
    pub(super) mode: Mode,
    /// How many requests this one stands for in `STATS TOP`; 0 if it is not followed.
    pub(super) weight: u8,
    /// The rule that has shortened the wait, while it is in force.
    pub(super) shortened_by: Option<RuleNumber>,
    /// How many clients may hold the key beside this wait's client, by its own request; its
    /// largest value also stands for more.
    pub(super) workers: u16,
    /// When the hold or the wait began.
    pub(super) since: Time,
    /// Its number in the order in which holds and waits began.
    pub(super) sequence: u64,
    /// When the wait times out or the hold exceeds its limit.
    pub(super) timer: Timer,
    /// The next lock in the ring of its queue.
    next: LockId,
    previous: LockId,
    /// The lock that its client got before.
    pub(super) below: LockId,
}

// One cache line.
const _: () = assert!(size_of::<Option<Lock>>() <= 64);

impl Lock {
    #[inline(always)]
    pub(super) fn new(
        client: ClientId,
        pool: PoolId,
        (phase, mode): (Phase, Mode),
        since: Time,
        sequence: u64,
    ) -> Self {
        let timer = Timer::default();
        Lock {
            client,
            pool,
            phase,
            mode,
            weight: 0,
            shortened_by: None,
            workers: 0,
            since,
            sequence,
            timer,
            next: 0,
            previous: 0,
            below: 0,
        }
    }

    /// Notes how many clients may hold the key by the request of this one.
    pub(super) fn set_workers(&mut self, workers: u32) {
        self.workers = u16::try_from(workers).unwrap_or(u16::MAX);
    }
}

/// All locks of the daemon, of every pool and client.
pub(super) type Locks = Slab<Lock>;

impl Timers for Locks {
    fn timer(&self, id: u32) -> &Timer {
        &self[id as usize].timer
    }

    fn timer_mut(&mut self, id: u32) -> &mut Timer {
        &mut self[id as usize].timer
    }
}

/// A first-in, first-out queue: a ring through the slab of locks, so that a lock anywhere in
/// it leaves in O(1). A lock is in one queue at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockQueue {
    /// Valid only if there are locks. Its `next` is the first.
    last: LockId,
    len: u32,
}

impl LockQueue {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The lock that joined first.
    #[inline(always)]
    pub(super) fn first(&self, locks: &Locks) -> Option<LockId> {
        (self.len > 0).then(|| locks[self.last as usize].next)
    }

    /// The lock that joined next after `id`, which is in the queue.
    pub(super) fn next(&self, locks: &Locks, id: LockId) -> Option<LockId> {
        (id != self.last).then(|| locks[id as usize].next)
    }

    pub(super) fn join(&mut self, locks: &mut Locks, id: LockId) {
        let previous = core::mem::replace(&mut self.last, id);
        let mut first = id;
        if self.len > 0 {
            first = core::mem::replace(&mut locks[previous as usize].next, id);
            locks[id as usize].previous = previous;
            locks[first as usize].previous = id;
        }
        locks[id as usize].next = first;
        self.len += 1;
    }

    pub(super) fn leave(&mut self, locks: &mut Locks, id: LockId) {
        self.len -= 1;
        if self.len == 0 {
            return;
        }
        let Lock { previous, next, .. } = locks[id as usize];
        locks[previous as usize].next = next;
        locks[next as usize].previous = previous;
        if self.last == id {
            self.last = previous;
        }
    }

    /// The locks in the queue, oldest first.
    pub(super) fn iter<'a>(&self, locks: &'a Locks) -> impl Iterator<Item = (LockId, &'a Lock)> {
        core::iter::successors(self.first(locks), |&id| self.next(locks, id))
            .map(|id| (id, &locks[id as usize]))
    }
}

const NONE: LockId = LockId::MAX;

/// The locks of one client: a list through the slab of locks, from the last one down. A wait
/// is always on top.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack {
    top: LockId,
}

impl Default for Stack {
    fn default() -> Self {
        Stack { top: NONE }
    }
}

impl Stack {
    pub(super) fn top(&self) -> Option<LockId> {
        (self.top != NONE).then_some(self.top)
    }

    fn last_first(self, locks: &Locks) -> impl Iterator<Item = LockId> {
        let below = |&id: &LockId| Some(locks[id as usize].below).filter(|&id| id != NONE);
        core::iter::successors(self.top(), below)
    }

    pub(super) fn oldest_first(self, locks: &Locks) -> impl ExactSizeIterator<Item = LockId> {
        let mut ids = [NONE; LOCKS_PER_CONNECTION_MAX];
        let places = ids.iter_mut().rev();
        let len = places.zip(self.last_first(locks)).map(|(place, id)| *place = id).count();
        ids.into_iter().skip(LOCKS_PER_CONNECTION_MAX - len)
    }

    pub(super) fn is_full(self, locks: &Locks) -> bool {
        self.last_first(locks).count() == LOCKS_PER_CONNECTION_MAX
    }

    pub(super) fn push(&mut self, locks: &mut Locks, id: LockId) {
        locks[id as usize].below = core::mem::replace(&mut self.top, id);
    }

    pub(super) fn pop(&mut self, locks: &Locks) {
        self.top = locks[self.top as usize].below;
    }
}

/// Identifies a client by a slot, which is used again, and a serial number, which is
/// not. The caller assigns both.
///
/// A slot belongs to the client that has locks in it. A call for a former client of
/// the slot has no effect and gets no answer. A call for a newer client first ends
/// the locks of the former client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClientId {
    /// An index: a small number, used again after the client has gone.
    pub slot: u32,
    /// Increases with each client. Repeats only after 2^32 clients.
    pub serial: u32,
}

impl ClientId {
    /// Whether this client came after `other`. Serial numbers wrap around.
    pub(super) fn came_after(self, other: ClientId) -> bool {
        (self.serial.wrapping_sub(other.serial) as i32) > 0
    }
}
