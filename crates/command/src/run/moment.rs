//! A point in time, as a number that decisions compare.

use std::ops::Add;
use std::time::Duration;

/// A point of CLOCK_BOOTTIME, which goes on while the host sleeps: servers do not sleep with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Moment(pub(super) Duration);

impl Moment {
    /// The time from `earlier` to this, or zero.
    pub(super) fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time))
    }
}
