//! The command as a job while a lock is held: starts it, passes signals on, notices a lost
//! connection, waits for its end.

use super::descendants::{Descendants, Signalled};
use super::stderr_thread::StderrThread;
use crate::lock_client::Lock;
use crate::unsafe_calls::{Arrived, ENDING_SIGNALS, Signals, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OnLost {
    /// Print a warning; the command continues.
    Warn,
    /// Stop the command and all that it has started: SIGTERM, then SIGKILL.
    Kill,
}

/// How often to look whether the processes that the command has left are gone: while they may
/// take their time, and once they are killed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const KILLED_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobEnd {
    Exited(u8),
    Killed(i32),
}

/// What a command runs with.
#[derive(Clone, Copy)]
pub(super) struct JobContext<'a> {
    pub(super) signals: &'a Signals,
    /// While it lasts.
    pub(super) lock: Option<&'a Lock>,
    pub(super) on_lost: OnLost,
    /// How long processes may take to end after SIGTERM before they are killed.
    pub(super) kill_after: Duration,
    pub(super) stderr: &'a StderrThread,
}

/// The running command.
pub(super) struct Job<'a> {
    with: JobContext<'a>,
    descendants: Descendants,
    ended: Option<JobEnd>,
    /// The lock was lost.
    pub(super) was_lost: bool,
    /// The command was stopped for that.
    pub(super) was_stopped: bool,
    killed_at: Option<Instant>,
    is_killed: bool,
    // Not reaped by the standard library: `reap` does.
    _child: Child,
}

impl<'a> Job<'a> {
    /// Starts the command.
    pub(super) fn start(with: JobContext<'a>, command: &mut Command) -> std::io::Result<Self> {
        let may_be_stopped = with.on_lost == OnLost::Kill && with.lock.is_some();
        let mut descendants =
            if may_be_stopped { Descendants::adopt() } else { Descendants::default() };
        // As flock(1) does with its file: the lock lasts as long as a process of the job.
        let child = with.signals.spawn(command, with.lock.map(Lock::as_fd))?;
        descendants.command = Some(Pid::from_child(&child));
        Ok(Job {
            with,
            descendants,
            ended: None,
            was_lost: false,
            was_stopped: false,
            killed_at: None,
            is_killed: false,
            _child: child,
        })
    }

    /// Waits for its end, and meanwhile passes signals on and watches the connection.
    pub(super) fn wait(&mut self) -> JobEnd {
        loop {
            self.reap();
            // What it leaves behind is its own affair, unless the lock was lost.
            let is_over = |_: &JobEnd| !self.was_stopped || self.descendants.are_gone();
            if let Some(ended) = self.ended.filter(is_over) {
                return ended;
            }
            if self.wait_for_events() {
                self.lose();
            }
            while let Some(signal) = self.with.signals.next() {
                self.pass_on(signal);
            }
            self.is_killed |= self.killed_at.take_if(|at| *at <= Instant::now()).is_some();
            if self.is_killed {
                self.descendants.kill();
            }
        }
    }

    /// Takes the ends of the command and of orphans.
    fn reap(&mut self) {
        while let Ok(Some((child, status))) = wait(WaitOptions::NOHANG) {
            if self.descendants.command == Some(child) {
                self.ended = ended(status);
            }
            self.descendants.forget(child);
        }
    }

    /// Waits for a signal. True if the connection has ended.
    fn wait_for_events(&self) -> bool {
        let mut wanted = vec![PollFd::new(self.with.signals, PollFlags::IN)];
        let end = PollFlags::IN | PollFlags::RDHUP;
        wanted.extend(self.with.lock.map(|lock| PollFd::new(lock, end)));
        let left = self.next_look().and_then(|left| Timespec::try_from(left).ok());
        let events = poll(&mut wanted, left.as_ref());
        let is_readable = wanted.get(1).is_some_and(|wanted| !wanted.revents().is_empty());
        events.is_ok() && is_readable && self.with.lock.is_some_and(Lock::has_ended)
    }

    /// How long to wait for a signal until there is something to do without one.
    fn next_look(&self) -> Option<Duration> {
        let left = self.killed_at.map(|at| at.saturating_duration_since(Instant::now()));
        // Only a child's end is a signal, and the parent of another process may be one that must
        // not be signalled.
        let interval = if self.is_killed { KILLED_LOOK_INTERVAL } else { LOOK_INTERVAL };
        let look = (self.was_stopped && self.ended.is_some()).then_some(interval);
        left.into_iter().chain(look).min()
    }

    fn lose(&mut self) {
        let Some(lock) = self.with.lock.take() else { return };
        self.was_lost = true;
        let what_follows = match self.with.on_lost {
            OnLost::Warn => "the command continues",
            OnLost::Kill => self.stop_the_command(),
        };
        let (key, server) = (String::from_utf8_lossy(lock.key()), lock.server());
        self.with.stderr.print(&format!(
            "{key}: the connection to {server} is lost, and with it the lock; {what_follows}"
        ));
    }

    fn stop_the_command(&mut self) -> &'static str {
        let signalled = self.descendants.terminate();
        self.was_stopped = signalled != Signalled::NotTheCommand;
        self.killed_at = Instant::now().checked_add(self.with.kill_after);
        match signalled {
            Signalled::All => "stopping the command",
            Signalled::Some => "stopping the command, except processes that it may not signal",
            Signalled::NotTheCommand => "not allowed to signal the command, so it continues",
        }
    }

    fn pass_on(&mut self, signal: Arrived) {
        let is_for_it = signal.was_sent_here && signal.number != Signal::CHILD.as_raw();
        match self.descendants.command {
            Some(command) if is_for_it => send(command, signal.number),
            Some(_) => {}
            // Processes that it has left behind are waited for.
            None => self.is_killed |= is_for_it && ENDING_SIGNALS.contains(&signal.number),
        }
    }
}

fn ended(status: WaitStatus) -> Option<JobEnd> {
    if let Some(code) = status.exit_status() {
        return Some(JobEnd::Exited(code as u8));
    }
    status.terminating_signal().map(JobEnd::Killed)
}
