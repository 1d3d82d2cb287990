//! The one place where time is read.

use crate::platform::os::time::{ClockId, clock_gettime};
use engine::Time;

/// The time on CLOCK_MONOTONIC, which jumps of the wall clock do not affect.
pub(crate) fn now() -> Time {
    Time::from_ns(read(ClockId::Monotonic))
}

/// Nanoseconds since 1970 on the wall clock: for display, never for decisions.
pub(crate) fn wall_ns() -> u64 {
    read(ClockId::Realtime)
}

/// User and system time of this process, in nanoseconds: also for display.
pub(crate) fn cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

#[expect(clippy::disallowed_methods, reason = "the only place that may")]
fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // The fields are negative on a wall clock set before 1970 only (clock_gettime(2)).
    now.tv_sec.max(0) as u64 * 1_000_000_000 + now.tv_nsec.max(0) as u64
}
