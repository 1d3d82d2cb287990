//! The part of [`super`] about processes and time.

pub(crate) mod process {
    use super::super::fd::OwnedFd;
    use crate::simulation::kernel::processes::PID;
    use crate::simulation::kernel::{File, kernel};
    use rustix::io::Errno;
    pub(crate) use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

    pub(crate) fn id() -> u32 {
        kernel(|k| k.pid()) as u32
    }

    pub(crate) fn getpid() -> Pid {
        Pid::from_raw(kernel(|k| k.pid())).expect("a process id")
    }

    /// Only a forked child calls this.
    pub(crate) fn getppid() -> Option<Pid> {
        Pid::from_raw(PID)
    }

    pub(crate) fn set_parent_process_death_signal(_signal: Option<Signal>) -> Result<(), Errno> {
        Ok(())
    }

    pub(crate) fn pidfd_open(pid: Pid, _flags: PidfdFlags) -> Result<OwnedFd, Errno> {
        let pid = pid.as_raw_nonzero().get();
        Ok(OwnedFd::new(kernel(|k| k.open(File::Child(pid)))?))
    }

    pub(crate) fn setpgid(_pid: Option<Pid>, _group: Option<Pid>) -> Result<(), Errno> {
        Ok(())
    }

    /// The only group is that of a child.
    pub(crate) fn kill_process_group(pid: Pid, _signal: Signal) -> Result<(), Errno> {
        kernel(|k| k.kill_child(pid.as_raw_nonzero().get()))
    }

    pub(crate) struct WaitStatus(i32);

    impl WaitStatus {
        pub(crate) fn as_raw(&self) -> i32 {
            self.0
        }
    }

    /// Waits, unless with NOHANG, for a child that was killed, or whose work is done.
    pub(crate) fn waitpid(
        pid: Option<Pid>,
        options: WaitOptions,
    ) -> Result<Option<(Pid, WaitStatus)>, Errno> {
        let pid = pid.expect("a child");
        let pid_number = pid.as_raw_nonzero().get();
        let waits = !options.contains(WaitOptions::NOHANG);
        let ended = kernel(|k| k.reap_child(pid_number, waits))?;
        Ok(ended.map(|status| (pid, WaitStatus(status))))
    }
}

pub(crate) mod env {
    use crate::simulation::kernel::{kernel, processes::PROGRAM};
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    pub(crate) fn args_os() -> impl Iterator<Item = OsString> {
        kernel(|k| k.arguments.clone()).into_iter()
    }

    pub(crate) fn vars_os() -> impl Iterator<Item = (OsString, OsString)> {
        let variables = kernel(|k| k.variables.clone());
        variables.into_iter().map(|(name, value)| (name.into(), value))
    }

    pub(crate) fn var_os(name: &str) -> Option<OsString> {
        kernel(|k| k.variables.get(name).cloned())
    }

    pub(crate) fn var(name: &str) -> Result<String, ()> {
        var_os(name).and_then(|value| value.into_string().ok()).ok_or(())
    }

    pub(crate) fn is_running_file(path: &Path) -> bool {
        path == Path::new(PROGRAM)
    }

    /// The file that was executed, wherever it is now.
    pub(crate) fn current_exe() -> std::io::Result<PathBuf> {
        Ok(format!("{PROGRAM} (deleted)").into())
    }
}

pub(crate) mod thread {
    use crate::simulation::kernel::kernel;
    use std::time::Duration;

    pub(crate) fn sleep(duration: Duration) {
        kernel(|k| k.advance(duration.as_nanos() as u64));
    }
}

pub(crate) mod time {
    use crate::simulation::kernel::kernel;
    use rustix::io::Errno;
    pub(crate) use rustix::time::{ClockId, DynamicClockId, Timespec};

    /// Invariant: The wall clock, which jumps all the time, changes nothing.
    pub(crate) fn clock_gettime_dynamic(clock: DynamicClockId<'_>) -> Result<Timespec, Errno> {
        let now_ns = kernel(|k| match clock {
            DynamicClockId::Known(ClockId::Realtime) => k.draws.below(1 << 62),
            _ => k.now_ns,
        });
        Ok(Timespec {
            tv_sec: (now_ns / 1_000_000_000) as i64,
            tv_nsec: (now_ns % 1_000_000_000) as i64,
        })
    }
}
