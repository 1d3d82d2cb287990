//! How many descriptors the process has open, and may have.

use crate::platform::os::fs::read_dir;
use crate::platform::sys;

/// How many may be open. An administrator may change it (prlimit(1)).
pub(crate) fn limit() -> usize {
    usize::try_from(sys::descriptors_max()).unwrap_or(usize::MAX)
}

/// Counts those that are open, by listing them: with thousands that takes milliseconds, so it is
/// for a daemon without clients. `None` without /proc.
pub(crate) fn count() -> Option<usize> {
    // The list contains the one that reads it.
    Some(read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}
