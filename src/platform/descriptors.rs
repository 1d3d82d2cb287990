//! How many descriptors the process has open, and may have.

use crate::platform::os::fs::read_dir;
pub(crate) use crate::platform::sys::descriptors_max as limit;

/// Counts those that are open, by listing them: with thousands that takes milliseconds, so it is
/// for a daemon without clients. `None` without /proc.
pub(crate) fn count() -> Option<usize> {
    // The list contains the one that reads it.
    Some(read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}
