//! CPU time, memory and the limit of descriptors, as the kernel counts them for the process.

use crate::platform::os::fs::read_to_string;
use crate::platform::{clock, descriptors};
use schema::reports::ProcessFigures;

/// Reads it, which takes some microseconds, except how many descriptors are open. What the kernel
/// does not give is 0.
pub(crate) fn read(open_descriptors: u64) -> ProcessFigures {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    ProcessFigures {
        cpu_s: clock::cpu_ns() as f64 / 1e9,
        resident_bytes: bytes_of("VmRSS:", &status),
        virtual_bytes: bytes_of("VmSize:", &status),
        descriptors_max: descriptors::limit() as u64,
        open_descriptors,
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
