//! The locks of one client.

use crate::engine::lock::{LockId, Locks};

/// How many locks a client may hold and wait for.
pub const LOCKS_PER_CLIENT_MAX: usize = 4;

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
        std::iter::successors(self.top(), below)
    }

    pub(super) fn oldest_first(self, locks: &Locks) -> impl ExactSizeIterator<Item = LockId> {
        let mut ids = [NONE; LOCKS_PER_CLIENT_MAX];
        let places = ids.iter_mut().rev();
        let len = places.zip(self.last_first(locks)).map(|(place, id)| *place = id).count();
        ids.into_iter().skip(LOCKS_PER_CLIENT_MAX - len)
    }

    pub(super) fn is_full(self, locks: &Locks) -> bool {
        self.last_first(locks).count() == LOCKS_PER_CLIENT_MAX
    }

    pub(super) fn push(&mut self, locks: &mut Locks, id: LockId) {
        locks[id as usize].below = std::mem::replace(&mut self.top, id);
    }

    pub(super) fn pop(&mut self, locks: &Locks) {
        self.top = locks[self.top as usize].below;
    }
}
