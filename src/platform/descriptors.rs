//! How many descriptors the process has open, and may have.

use crate::platform::os::fs::{metadata, read_dir};
use crate::platform::sys;

/// How many may be open. An administrator may change it (prlimit(1)).
pub(crate) fn limit() -> usize {
    usize::try_from(sys::descriptors_max()).unwrap_or(usize::MAX)
}

/// Reads how many are open from the directory's size (Linux 6.2, proc_pid_fd(5)), because
/// listing the entries would add milliseconds to a hot restart.
pub(crate) fn open() -> Option<usize> {
    const DIRECTORY: &str = "/proc/self/fd";
    let size = metadata(DIRECTORY).ok()?.len();
    if size > 0 {
        return usize::try_from(size).ok();
    }
    Some(read_dir(DIRECTORY).ok()?.count())
}
