//! All processes that the command has started, found in /proc: terminates and kills them.

use crate::run::act::Signalled;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
    set_child_subreaper, test_kill_process, wait, waitid,
};
use std::cmp::Reverse;
use std::fs;

/// How often to look for processes that were started while others were being stopped. Only
/// processes that must not be stopped, or that live for less than a look takes, start more.
const LOOKS_MAX: u32 = 100;

/// The processes below this one, except those that existed before the command.
#[derive(Default)]
pub(super) struct Descendants {
    /// The command, until it is reaped.
    pub(super) command: Option<Pid>,
    /// How it has ended, until that is told.
    command_end: Option<WaitStatus>,
    others: Vec<Pid>,
}

impl Descendants {
    /// Adopts orphans from now on. The command is not started yet.
    pub(super) fn adopt() -> Descendants {
        // On a kernel that can't, they are not found.
        let _ = set_child_subreaper(Some(getpid()));
        // A shell that executed this process in its place has left its children. Usually there
        // are none, and /proc need not be read.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let mut descendants = Descendants::default();
        if waitid(WaitId::All, look).is_ok() {
            // With their descendants, whose parents may end.
            let before = descendants.look(|_| ());
            descendants.others = before.iter().map(|process| process.pid).collect();
        }
        descendants
    }

    /// Takes the ends of the command and of orphans. Returns that of the command, once.
    pub(super) fn reap(&mut self) -> Option<WaitStatus> {
        while let Ok(Some((child, status))) = wait(WaitOptions::NOHANG) {
            if self.command == Some(child) {
                self.command = None;
                self.command_end = Some(status);
            }
            // Another process may get its number.
            self.others.retain(|&other| other != child);
        }
        self.command_end.take()
    }

    /// Sends SIGTERM to all. Stops them first, to miss no process that is started meanwhile,
    /// and to signal none that a script's trap starts to clean up. They go on without it if the
    /// command has ended by itself.
    pub(super) fn terminate(&mut self) -> Option<Signalled> {
        let mut found = Vec::new();
        for _ in 0..LOOKS_MAX {
            self.command_end = self.reap();
            let mut new = self.signalable(|process| process.send(Signal::STOP));
            new.retain(|process| !found.contains(process));
            if new.is_empty() {
                break;
            }
            found.append(&mut new);
        }
        self.command_end = self.reap();
        let has_ended = self.command_end.is_some();
        if !has_ended {
            found.iter().for_each(|process| process.send(Signal::TERM));
        }
        found.iter().for_each(|process| process.send(Signal::CONT));
        (!has_ended).then(|| self.signalled())
    }

    /// Which processes could get a signal.
    fn signalled(&self) -> Signalled {
        if self.command.is_some_and(|command| test_kill_process(command).is_err()) {
            return Signalled::NotTheCommand;
        }
        // Others may have been started meanwhile, to clean up.
        let may_not = |process: &Process| !process.has_ended && !process.may_be_signalled();
        if self.look(|_| ()).iter().any(may_not) { Signalled::Some } else { Signalled::All }
    }

    /// Sends SIGKILL to all. The end of a process is the moment to look for more.
    pub(super) fn kill(&self) {
        self.look(|process| process.send(Signal::KILL));
    }

    /// Whether no process is left that this one may signal. Children that had ended were reaped.
    pub(super) fn are_gone(&self) -> bool {
        // A look misses what a process starts that ends before it is looked at. So one that has
        // ended, or one that may not be signalled and starts some, needs a second look.
        let first = self.signalable(|_| ());
        first.iter().all(|process| process.has_ended)
            && self.signalable(|_| ()).iter().all(|process| first.contains(process))
    }

    fn signalable(&self, act: impl Fn(&Process)) -> Vec<Process> {
        let mut found = self.look(act);
        found.retain(Process::may_be_signalled);
        found
    }

    /// Finds the processes, and acts on each. Without /proc, only the command is known.
    fn look(&self, act: impl Fn(&Process)) -> Vec<Process> {
        let own = Some(getpid());
        let Some(pids) = pids() else {
            let command = self.command.map(|pid| Process { pid, parent: own, has_ended: false });
            return command.into_iter().inspect(act).collect();
        };
        let mut processes = Vec::new();
        for process in pids.filter(|pid| !self.others.contains(pid)).filter_map(process) {
            // At once, because some end soon. Those that they start are children then.
            if process.parent == own {
                act(&process);
            }
            processes.push(process);
        }
        let mut found: Vec<Process> = Vec::new();
        let mut parent = own;
        // Parents that change meanwhile could make a circle.
        for next in 0..=processes.len() {
            found.extend(processes.iter().filter(|process| process.parent == parent));
            let Some(process) = found.get(next) else { break };
            parent = Some(process.pid);
        }
        found.iter().filter(|process| process.parent != own).for_each(act);
        found
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: Pid,
    parent: Option<Pid>,
    /// It may still have children, as long as it is in the list.
    has_ended: bool,
}

impl Process {
    /// True if it is reaped meanwhile: it may have started another.
    fn may_be_signalled(&self) -> bool {
        test_kill_process(self.pid) != Err(Errno::PERM)
    }

    fn send(&self, signal: Signal) {
        if !self.has_ended {
            let _ = kill_process(self.pid, signal);
        }
    }
}

/// All processes, the newest first. `None` without /proc, or if that has the numbers of another
/// namespace.
fn pids() -> Option<impl Iterator<Item = Pid>> {
    let own = fs::read_link("/proc/self").ok()?;
    if own.to_str()?.parse() != Ok(std::process::id()) {
        return None;
    }
    let names = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.file_name());
    let mut numbers: Vec<i32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    // proc_loadavg(5): after the highest number, the kernel begins with low ones again.
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let newest = loads.split_whitespace().last().and_then(|number| number.parse().ok());
    numbers.sort_unstable_by_key(|&number| (Some(number) > newest, Reverse(number)));
    Some(numbers.into_iter().filter_map(Pid::from_raw))
}

fn process(pid: Pid) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &String::from_utf8_lossy(&stat))
}

/// Parses proc_pid_stat(5).
fn parse(pid: Pid, stat: &str) -> Option<Process> {
    // The name may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let (state, parent, threads) = (fields[0], fields.get(1)?, fields.get(17)?);
    // Other threads of a process may outlive its first one.
    let has_ended = matches!(state, "Z" | "X") && matches!(*threads, "0" | "1");
    Some(Process { pid, parent: Pid::from_raw(parent.parse().ok()?), has_ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_with_its_last_thread() {
        for (state, threads, has_ended) in
            [("S", 1, false), ("Z", 1, true), ("Z", 2, false), ("Z", 10, false), ("X", 0, true)]
        {
            let stat =
                format!("7 (a) b) {state} 5 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 9 0");
            let pid = Pid::from_raw(7).expect("a number");
            let process = parse(pid, &stat).expect("a process");
            assert_eq!(process.has_ended, has_ended, "{stat}");
            assert_eq!(process.parent, Pid::from_raw(5));
        }
        assert!(parse(getpid(), "7 (a) Z 5").is_none());
    }
}
