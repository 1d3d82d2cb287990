//! The locks that a client has.

use crate::engine::lock::LockId;

/// How many locks a client may hold and wait for.
pub const LOCKS_PER_CLIENT_MAX: usize = 4;

/// The locks of one client, oldest first. A wait is always on top.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stack {
    locks: [LockId; LOCKS_PER_CLIENT_MAX],
    len: u8,
}

impl Stack {
    pub(super) fn as_slice(&self) -> &[LockId] {
        &self.locks[..usize::from(self.len)]
    }

    pub(super) fn top(&self) -> Option<LockId> {
        self.as_slice().last().copied()
    }

    pub(super) fn is_full(&self) -> bool {
        self.as_slice().len() == LOCKS_PER_CLIENT_MAX
    }

    pub(super) fn push(&mut self, id: LockId) {
        self.locks[usize::from(self.len)] = id;
        self.len += 1;
    }

    pub(super) fn pop(&mut self) {
        self.len -= 1;
    }
}
