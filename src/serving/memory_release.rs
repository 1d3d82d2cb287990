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

    /// Notes that `now` this much is to `spare`.
    pub(crate) fn record_spare(&mut self, spare: SpareCapacity, now: Time) {
        self.is_kept = spare == SpareCapacity::Kept;
        self.due = match spare {
            SpareCapacity::Little => None,
            _ => self.due.or(Some(now.plus_seconds(Self::DELAY_S))),
        };
    }

    /// When to return memory.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.filter(|_| !self.is_kept)
    }
}
