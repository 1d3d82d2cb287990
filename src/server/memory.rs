//! When to return memory to the system.

use crate::engine::Time;

/// Waits for some time after many clients have left, because more may follow.
#[derive(Default)]
pub(super) struct Tidier {
    /// The highest number of connections and locks since memory was last returned.
    peak: usize,
    due: Option<Time>,
}

impl Tidier {
    /// Below this peak there is too little to return.
    const WORTHWHILE: usize = 100;
    const DELAY_S: u64 = 2;

    /// Notes that there are `size` connections and locks.
    pub(super) fn note(&mut self, size: usize) {
        self.peak = self.peak.max(size);
    }

    /// Whether to return memory `now`, with `size` connections and locks.
    pub(super) fn is_due(&mut self, size: usize, now: Time) -> bool {
        self.note(size);
        if self.peak < Self::WORTHWHILE || size > self.peak / 4 {
            self.due = None;
            return false;
        }
        let due = *self.due.get_or_insert(now.plus_seconds(Self::DELAY_S));
        if now < due {
            return false;
        }
        *self = Tidier { peak: size, due: None };
        true
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.due
    }
}
