//! The command as a process: starts it, waits for its end, passes signals on, stops it.

use super::connection::Connection;
use super::descendants::Descendants;
use super::now;
use crate::run::act::{Guard, NotStarted, Signalled, Watched, Woken};
use crate::run::ending::JobEnd;
use crate::run::moment::Moment;
use crate::run::plan::OnLost;
use crate::unsafe_calls::{Signals, check_death_signal, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitStatus};
use std::os::fd::AsFd;
use std::process::{Child, Command};

/// The running command, and what it has started.
pub(super) struct RunningJob {
    signals: Signals,
    descendants: Descendants,
    // Not reaped by the standard library: `Descendants::reap` does.
    _child: Child,
}

impl RunningJob {
    /// Starts the command, which inherits the connection.
    pub(super) fn start(
        command: &mut Command,
        connection: Option<&Connection>,
        on_lost: OnLost,
    ) -> Result<(RunningJob, Guard), NotStarted> {
        let guard =
            check_death_signal().map_or_else(|e| Guard::Fails(e.to_string()), |()| Guard::Works);
        let signals = Signals::block().map_err(|e| NotStarted::Unprepared(e.to_string()))?;
        let may_be_stopped = matches!(on_lost, OnLost::Kill { .. }) && connection.is_some();
        let mut descendants =
            if may_be_stopped { Descendants::adopt() } else { Descendants::default() };
        // A signal of the terminal has reached this process only: the command does not exist yet.
        if let Some(signal) = signals.ending() {
            return Err(NotStarted::Signalled(signal));
        }
        // As flock(1) does with its file: the lock lasts as long as a process of the job.
        let child = signals.spawn(command, connection.map(Connection::as_fd));
        let child = child.map_err(|e| NotStarted::CantExecute(e.to_string()))?;
        descendants.command = Some(Pid::from_child(&child));
        Ok((RunningJob { signals, descendants, _child: child }, guard))
    }

    /// Waits until something has happened, and takes all that has.
    pub(super) fn watch(
        &mut self,
        what: Watched,
        until: Option<Moment>,
        connection: Option<&Connection>,
    ) -> Woken {
        let connection = connection.filter(|_| what == Watched::CommandAndLock);
        let mut is_lost = false;
        loop {
            // Before the process is looked for: if it ends after that, its SIGCHLD must still wake the poll.
            let signals: Vec<i32> = std::iter::from_fn(|| self.signals.next())
                .filter(|signal| signal.was_sent_here && signal.number != Signal::CHILD.as_raw())
                .map(|signal| signal.number)
                .collect();
            // An end that came before that of the connection is taken with it.
            let ended = self.descendants.reap().and_then(ended);
            let is_rest_gone = what == Watched::Rest && self.descendants.are_gone();
            let is_over = until.is_some_and(|until| until <= now());
            if ended.is_some() || is_lost || is_rest_gone || is_over || !signals.is_empty() {
                return Woken { ended, is_lost, is_rest_gone, signals };
            }
            is_lost = self.wait_for_events(until, connection);
        }
    }

    /// Waits for a signal. True if the connection has ended.
    fn wait_for_events(&self, until: Option<Moment>, connection: Option<&Connection>) -> bool {
        let mut wanted = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let end = PollFlags::IN | PollFlags::RDHUP;
        wanted.extend(connection.map(|connection| PollFd::new(connection, end)));
        let left = until.and_then(|until| Timespec::try_from(until.since(now())).ok());
        let events = poll(&mut wanted, left.as_ref());
        let is_readable = wanted.get(1).is_some_and(|wanted| !wanted.revents().is_empty());
        events.is_ok() && is_readable && connection.is_some_and(Connection::has_ended)
    }

    /// Nothing if the command has ended by itself.
    pub(super) fn terminate(&mut self) -> Option<Signalled> {
        self.descendants.terminate()
    }

    pub(super) fn kill(&self) {
        self.descendants.kill();
    }

    /// Sends signals to the command, unless it has ended.
    pub(super) fn pass_on(&self, signals: &[i32]) {
        if let Some(command) = self.descendants.command {
            signals.iter().for_each(|&signal| send(command, signal));
        }
    }
}

fn ended(status: WaitStatus) -> Option<JobEnd> {
    if let Some(code) = status.exit_status() {
        return Some(JobEnd::Exited(code as u8));
    }
    status.terminating_signal().map(JobEnd::Killed)
}
