//! The one place where time is read.

use crate::engine::Time;
use rustix::time::{ClockId, clock_gettime};

/// Now, on CLOCK_MONOTONIC: jumps of the wall clock change nothing.
pub(super) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative for this clock (clock_gettime(2)).
    Time::from_ns(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
