//! All processes that the command has started, found in /proc: terminates and kills them.

use crate::run::act::Signalled;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper,
    test_kill_process, waitid,
};
use std::fs;

/// How often to look for processes that were started while others were being stopped. Only a
/// process that must not be stopped starts more.
const LOOKS_MAX: u32 = 100;

/// The processes below this one, except those that existed before the command.
#[derive(Default)]
pub(super) struct Descendants {
    /// The command, until it is reaped.
    pub(super) command: Option<Pid>,
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
        let before = Descendants { command: None, others: Vec::new() };
        match waitid(WaitId::All, look) {
            // With their descendants, whose parents may end.
            Ok(_) => Descendants { others: before.running(), ..before },
            Err(_) => before,
        }
    }

    /// A child was reaped: another process may get its number.
    pub(super) fn forget(&mut self, child: Pid) {
        self.others.retain(|&other| other != child);
        self.command = self.command.filter(|&command| command != child);
    }

    /// Sends SIGTERM to all. Stops them first, to miss no process that is started meanwhile,
    /// and to signal none that a script's trap starts to clean up.
    pub(super) fn terminate(&self) -> Signalled {
        let mut found = Vec::new();
        for _ in 0..LOOKS_MAX {
            let mut new = self.signalable();
            new.retain(|process| !found.contains(process));
            if new.is_empty() {
                break;
            }
            send_all(&new, Signal::STOP);
            found.append(&mut new);
        }
        send_all(&found, Signal::TERM);
        send_all(&found, Signal::CONT);
        if self.command.is_some_and(|command| test_kill_process(command).is_err()) {
            return Signalled::NotTheCommand;
        }
        // Others may have been started meanwhile, to clean up.
        let may_not = |process: &Pid| test_kill_process(*process) == Err(Errno::PERM);
        if self.running().iter().any(may_not) { Signalled::Some } else { Signalled::All }
    }

    /// Sends SIGKILL to all. The end of a process is the moment to look for more.
    pub(super) fn kill(&self) {
        send_all(&self.signalable(), Signal::KILL);
    }

    /// Whether no process is left that this one may signal.
    pub(super) fn are_gone(&self) -> bool {
        self.signalable().is_empty()
    }

    fn signalable(&self) -> Vec<Pid> {
        let mut found = self.running();
        found.retain(|&process| test_kill_process(process).is_ok());
        found
    }

    /// Without /proc, only the command is known.
    fn running(&self) -> Vec<Pid> {
        let Some(processes) = processes() else { return self.command.into_iter().collect() };
        let mut found: Vec<&ProcessStat> = Vec::new();
        let mut parent = getpid();
        // Parents that change meanwhile could make a circle.
        for next in 0..=processes.len() {
            let children = processes.iter().filter(|process| process.parent == Some(parent));
            found.extend(children.filter(|child| !self.others.contains(&child.pid)));
            let Some(process) = found.get(next) else { break };
            parent = process.pid;
        }
        found.iter().filter(|process| !process.has_ended).map(|process| process.pid).collect()
    }
}

fn send_all(processes: &[Pid], signal: Signal) {
    for &process in processes {
        let _ = kill_process(process, signal);
    }
}

struct ProcessStat {
    pid: Pid,
    parent: Option<Pid>,
    /// It may still have children, as long as it is in the list.
    has_ended: bool,
}

/// All processes. `None` without /proc, or if that has the numbers of another namespace.
fn processes() -> Option<Vec<ProcessStat>> {
    let own = fs::read_link("/proc/self").ok()?;
    if own.to_str()?.parse() != Ok(std::process::id()) {
        return None;
    }
    let numbers = fs::read_dir("/proc").ok()?.flatten();
    Some(numbers.filter_map(|entry| process(entry.file_name().to_str()?)).collect())
}

fn process(number: &str) -> Option<ProcessStat> {
    let pid = Pid::from_raw(number.parse().ok()?)?;
    let stat = fs::read(format!("/proc/{number}/stat")).ok()?;
    parse(pid, &String::from_utf8_lossy(&stat))
}

/// Parses proc_pid_stat(5).
fn parse(pid: Pid, stat: &str) -> Option<ProcessStat> {
    // The name may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let (state, parent, threads) = (fields[0], fields.get(1)?, fields.get(17)?);
    // Other threads of a process may outlive its first one.
    let has_ended = matches!(state, "Z" | "X") && matches!(*threads, "0" | "1");
    Some(ProcessStat { pid, parent: Pid::from_raw(parent.parse().ok()?), has_ended })
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
