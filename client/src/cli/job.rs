//! A command that runs while a lock is held: signals, a lost connection.

use super::child::{Arrived, Signals, send};
use super::teller::Teller;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, waitpid};
use std::os::fd::BorrowedFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long a command that is told to stop may take before it is killed.
pub(super) const KILLED_AFTER: Duration = Duration::from_secs(10);

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OnLost {
    /// Say so; the command goes on.
    Warn,
    /// Stop the command: SIGTERM, and SIGKILL ten seconds later.
    Kill,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exited(u8),
    Killed(i32),
}

/// What a command runs with.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) signals: &'a Signals,
    /// The connection that has the lock, while it lasts.
    pub(super) connection: Option<BorrowedFd<'a>>,
    pub(super) on_lost: OnLost,
    pub(super) teller: &'a Teller,
}

/// The running command.
pub(super) struct Job<'a> {
    with: Surroundings<'a>,
    pid: Pid,
    /// The lock was lost.
    pub(super) was_lost: bool,
    /// We have stopped the command for that.
    pub(super) was_stopped: bool,
    killed_at: Option<Instant>,
    // Not reaped by the standard library: `wait` does.
    _child: Child,
}

impl<'a> Job<'a> {
    /// Starts the command.
    ///
    /// # Errors
    /// When it can't be executed.
    pub(super) fn start(with: Surroundings<'a>, command: &mut Command) -> std::io::Result<Self> {
        let child = with.signals.spawn(command)?;
        let pid = Pid::from_child(&child);
        let (was_lost, was_stopped, killed_at) = (false, false, None);
        Ok(Job { with, pid, was_lost, was_stopped, killed_at, _child: child })
    }

    /// Waits for its end, and meanwhile passes signals on and watches the connection.
    pub(super) fn wait(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.look_at_the_command() {
                return ended;
            }
            if self.wait_for_events() {
                self.lose();
            }
            while let Some(signal) = self.with.signals.next() {
                self.pass_on(signal);
            }
            if self.killed_at.is_some_and(|at| Instant::now() >= at) {
                self.killed_at = None;
                send(self.pid, Signal::KILL.as_raw());
            }
        }
    }

    /// How the command ended, if it has.
    fn look_at_the_command(&self) -> Option<Ended> {
        let (_, status) = waitpid(Some(self.pid), WaitOptions::NOHANG).ok()??;
        ended(status)
    }

    /// Waits for a signal. True if the connection has ended.
    fn wait_for_events(&self) -> bool {
        let mut wanted = vec![PollFd::new(self.with.signals, PollFlags::IN)];
        // A server says nothing unasked: whatever there is to read is the end.
        let end = PollFlags::IN | PollFlags::RDHUP;
        let connection = self.with.connection.as_ref();
        wanted.extend(connection.map(|connection| PollFd::new(connection, end)));
        let left = self.killed_at.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let events = poll(&mut wanted, left.as_ref());
        events.is_ok() && wanted.get(1).is_some_and(|wanted| !wanted.revents().is_empty())
    }

    fn lose(&mut self) {
        self.with.connection = None;
        self.was_lost = true;
        let is_kill = self.with.on_lost == OnLost::Kill;
        let what_follows = match is_kill.then(|| self.stop_the_command()) {
            None => "the command goes on",
            Some(true) => "stopping the command",
            Some(false) => "we may not signal it, so we can't stop the command",
        };
        self.with.teller.tell(&format!(
            "the connection to the server is lost, and with it the lock; {what_follows}"
        ));
    }

    /// False if it has taken another user's rights.
    fn stop_the_command(&mut self) -> bool {
        self.was_stopped = send(self.pid, Signal::TERM.as_raw());
        if self.was_stopped {
            send(self.pid, Signal::CONT.as_raw());
            self.killed_at = Some(Instant::now() + KILLED_AFTER);
        }
        self.was_stopped
    }

    fn pass_on(&self, signal: Arrived) {
        if signal.was_sent_to_us && signal.number != Signal::CHILD.as_raw() {
            send(self.pid, signal.number);
        }
    }
}

fn ended(status: WaitStatus) -> Option<Ended> {
    if let Some(code) = status.exit_status() {
        return Some(Ended::Exited(code as u8));
    }
    status.terminating_signal().map(Ended::Killed)
}
