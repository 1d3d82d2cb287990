//! What the process uses, as the kernel counts it.

use super::accepting::{descriptors_open, limit_of_descriptors};
use super::clock;
use super::world::fs::read_to_string;
use crate::reports::figures::Process;

/// Reads it, which takes some microseconds. A figure that the kernel does not give is 0.
pub(super) fn read() -> Process {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    Process {
        cpu_ns: clock::cpu_ns(),
        resident_bytes: bytes_of("VmRSS:", &status),
        virtual_bytes: bytes_of("VmSize:", &status),
        open_descriptors: descriptors_open().unwrap_or(0) as u64,
        descriptors_max: limit_of_descriptors() as u64,
    }
}

/// A line of proc_pid_status(5): `VmRSS:      1234 kB`.
fn bytes_of(name: &str, status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.unwrap_or(0_u64) * 1024
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
