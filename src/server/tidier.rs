//! When to give memory back.

use crate::engine::Time;

/// Some time after a crowd has left, and not while the next may be coming.
#[derive(Default)]
pub(super) struct Tidier {
    /// The most connections and locks at a time since memory was given back.
    peak: usize,
    due: Option<Time>,
}

impl Tidier {
    /// Below that there is nothing worth giving back.
    const WORTHWHILE: usize = 1_000;
    const DELAY_S: u64 = 2;

    /// Whether it is time, `now` that `size` connections and locks are there.
    pub(super) fn is_due(&mut self, size: usize, now: Time) -> bool {
        self.peak = self.peak.max(size);
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
