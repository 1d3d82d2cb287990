//! When to return memory to the system.

use engine::{SpareCapacity, Time};

/// Waits for some time after many clients have left, because more may follow.
#[derive(Default)]
pub(crate) struct MemoryRelease {
    /// Not before then; `None` while there is little to return.
    due: Option<Time>,
    /// A client in the last slot pins all the slots before it; when it leaves, an event
    /// wakes the loop.
    is_kept: bool,
}

impl MemoryRelease {
    const DELAY_S: u64 = 2;

    /// Whether to return memory `now`, when this much is to `spare`.
    pub(crate) fn is_due(&mut self, spare: SpareCapacity, now: Time) -> bool {
        self.is_kept = spare == SpareCapacity::Kept;
        if spare == SpareCapacity::Little {
            self.due = None;
            return false;
        }
        let due = *self.due.get_or_insert(now.plus_seconds(Self::DELAY_S));
        if now < due || self.is_kept {
            return false;
        }
        self.due = None;
        true
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.filter(|_| !self.is_kept)
    }
}
