//! The one place where time is read.
#![allow(clippy::disallowed_methods)]

use super::world::time::{ClockId, clock_gettime};
use crate::engine::Time;

/// The time on CLOCK_MONOTONIC, which jumps of the wall clock do not affect.
pub(super) fn now() -> Time {
    Time::from_ns(read(ClockId::Monotonic))
}

/// Nanoseconds since 1970 on the wall clock: to be shown, never to decide anything.
pub(super) fn wall_ns() -> u64 {
    read(ClockId::Realtime)
}

/// User and system time of this process, in nanoseconds: to be shown, too.
pub(super) fn cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // The fields are negative on a wall clock set before 1970 only (clock_gettime(2)).
    now.tv_sec.max(0) as u64 * 1_000_000_000 + now.tv_nsec.max(0) as u64
}
