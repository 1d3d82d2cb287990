//! What the kernel reports about a process: its CPU time and its memory.

use std::fs;
use std::time::{Duration, Instant};

use crate::Result;

/// What the scheduler has charged to a process so far, for all threads together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Nanoseconds on a core, including the kernel's work for it.
    pub used_ns: u64,
    /// Nanoseconds ready to run while another process had the core.
    pub waited_ns: u64,
}

/// Memory of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident set, shared libraries included.
    pub rss_bytes: u64,
    /// Pages that it wrote to: heap, stack, data.
    pub private_dirty_bytes: u64,
}

/// CPU time of `pid` from `/proc/PID/task/*/schedstat`: nanoseconds, where
/// `/proc/PID/stat` counts hundredths of a second. It is exact for a process
/// that sleeps and up to one tick old for one that runs: see [`settled_cpu`].
pub fn cpu(pid: u32) -> Result<Cpu> {
    let mut sum = Cpu::default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|e| format!("can't read process {pid}: {e}"))?;
    for task in tasks {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let one = parse_schedstat(&text).ok_or("this kernel has no schedstat")?;
        sum.used_ns += one.used_ns;
        sum.waited_ns += one.waited_ns;
    }
    Ok(sum)
}

/// CPU time of `pid` once it sleeps: two readings 3 ms apart agree. After two
/// seconds, stops waiting and returns the last reading.
pub fn settled_cpu(pid: u32) -> Result<Cpu> {
    settled_for(pid, Duration::from_millis(3))
}

/// The same with a longer `quiet` time.
pub fn settled_for(pid: u32, quiet: Duration) -> Result<Cpu> {
    let end = Instant::now() + Duration::from_secs(2);
    let mut before = cpu(pid)?;
    loop {
        std::thread::sleep(quiet);
        let now = cpu(pid)?;
        if now.used_ns == before.used_ns || Instant::now() > end {
            return Ok(now);
        }
        before = now;
    }
}

fn parse_schedstat(text: &str) -> Option<Cpu> {
    let mut fields = text.split_whitespace();
    Some(Cpu { used_ns: fields.next()?.parse().ok()?, waited_ns: fields.next()?.parse().ok()? })
}

/// Memory of `pid` from `/proc/PID/smaps_rollup`.
pub fn memory(pid: u32) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .map_err(|e| format!("can't read the memory of process {pid}: {e}"))?;
    parse_smaps(&text).ok_or_else(|| "unknown format of smaps_rollup".into())
}

fn parse_smaps(text: &str) -> Option<Memory> {
    let bytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory { rss_bytes: bytes("Rss:")?, private_dirty_bytes: bytes("Private_Dirty:")? })
}

/// The cores that this process may use.
pub fn cores() -> Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Keeps this process on one core.
pub fn pin_to(core: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|e| format!("can't stay on core {core}: {e}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_three_numbers_in_schedstat_are_used() {
        let cpu = parse_schedstat("1234567890 42 17\n");
        assert_eq!(cpu, Some(Cpu { used_ns: 1_234_567_890, waited_ns: 42 }));
        assert_eq!(parse_schedstat("1 x 3"), None);
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn smaps_are_read_by_name_and_scaled_to_bytes() {
        let text = "5562c0-7ffd ---p 00000000 00:00 0   [rollup]\n\
                    Rss:                1708 kB\nPss:                 141 kB\n\
                    Private_Clean:         8 kB\nPrivate_Dirty:       124 kB\n";
        let memory = Memory { rss_bytes: 1708 * 1024, private_dirty_bytes: 124 * 1024 };
        assert_eq!(parse_smaps(text), Some(memory));
        assert_eq!(parse_smaps("Rss: 12 kB\n"), None);
    }

    #[test]
    fn own_process_can_be_read() {
        let pid = std::process::id();
        assert!(memory(pid).unwrap().rss_bytes > 0);
        assert!(cpu(pid).is_ok());
    }
}
