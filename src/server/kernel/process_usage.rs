//! CPU time, memory, descriptors and their limit, as the kernel counts them for the process.

use crate::server::kernel::clock;
use crate::server::kernel::world::fs::{metadata, read_dir, read_to_string};
use crate::server::kernel::world::process::{Resource, getrlimit};
use reports::ProcessFigures;

/// Reads it, which takes some microseconds. A figure that the kernel does not give is 0.
pub(crate) fn read() -> ProcessFigures {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    ProcessFigures {
        cpu_s: clock::cpu_ns() as f64 / 1e9,
        resident_bytes: bytes_of("VmRSS:", &status),
        virtual_bytes: bytes_of("VmSize:", &status),
        open_descriptors: descriptors_open().unwrap_or(0) as u64,
        descriptors_max: descriptors_max() as u64,
    }
}

/// A line of proc_pid_status(5): `VmRSS:      1234 kB`.
fn bytes_of(name: &str, status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.unwrap_or(0_u64) * 1024
}

/// How many descriptors may be open. An administrator may change it (prlimit(1)).
pub(crate) fn descriptors_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Reads the count from the directory's size (Linux 6.2, proc_pid_fd(5)), because
/// listing the entries would add milliseconds to a hot restart.
pub(crate) fn descriptors_open() -> Option<usize> {
    const DIRECTORY: &str = "/proc/self/fd";
    let size = metadata(DIRECTORY).ok()?.len();
    if size > 0 {
        return usize::try_from(size).ok();
    }
    Some(read_dir(DIRECTORY).ok()?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_status_are_read() {
        assert_eq!(bytes_of("VmRSS:", "VmSize:\t  7 kB\nVmRSS:\t    5 kB\n"), 5_120);
        assert_eq!(bytes_of("VmRSS:", "VmRSS: many\n"), 0);
    }
}
