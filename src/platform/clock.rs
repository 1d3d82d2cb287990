//! The one place where time is read.

use crate::platform::failed_call::named;
use crate::platform::os::io::Errno;
use crate::platform::os::time::{ClockId, DynamicClockId, Timespec, clock_gettime_dynamic};
use engine::Time;
use std::io;

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

/// Whether the clock of the decisions can be read.
pub(crate) fn check() -> io::Result<()> {
    now_on(ClockId::Monotonic).map(drop).map_err(named("clock_gettime"))
}

fn read(clock: ClockId) -> u64 {
    // The process's time needs a system call, which may be denied: vdso(7) has no such clock.
    let Ok(now) = now_on(clock) else { return 0 };
    // The fields are negative on a wall clock set before 1970 only (clock_gettime(2)).
    now.tv_sec.max(0) as u64 * 1_000_000_000 + now.tv_nsec.max(0) as u64
}

/// rustix's `clock_gettime` expects that it can't fail.
#[expect(clippy::disallowed_methods, reason = "the only place that may")]
fn now_on(clock: ClockId) -> Result<Timespec, Errno> {
    clock_gettime_dynamic(DynamicClockId::Known(clock))
}
