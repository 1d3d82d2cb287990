//! The command as a job while a lock is held: what its end, a lost lock and signals lead to.

use super::{Machine, State};
use crate::run::act::{Act, Guard, NotReleased, Signalled, Watched, Woken};
use crate::run::ending::{Ending, JobEnd};
use crate::run::line::{AfterLoss, Line};
use crate::run::moment::Moment;
use crate::run::plan::OnLost;
use crate::unsafe_calls::ENDING_SIGNALS;
use connect::ServerName;
use std::time::Duration;

/// How often to look whether the processes that the command has left are gone: while they may
/// take their time, and once they are killed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const KILLED_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long a daemon may take to confirm a release.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take before it counts as one that hangs.
const HANGS_AFTER: Duration = Duration::from_secs(1);

/// A command that runs, or what it has left behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Job {
    lock: JobLock,
    ended: Option<JobEnd>,
    /// No process that may be signalled is left.
    is_rest_gone: bool,
    /// That have come and are not passed on yet.
    signals: Vec<i32>,
}

/// A job whose lock is lost, and which is being told to end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Doomed {
    job: Job,
    server: ServerName,
    kill_after: Duration,
}

/// The lock of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum JobLock {
    /// There was none.
    Without,
    Held(ServerName),
    /// The command continues.
    Lost,
    /// The command and what it has started shall end.
    Stopping {
        signalled: Signalled,
        kill: Kill,
    },
}

/// When processes are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kill {
    At(Moment),
    /// Those that are left, whenever something has happened.
    Now,
}

impl Machine {
    pub(super) fn started(&mut self, guard: Guard, server: Option<ServerName>, now: Moment) -> Act {
        if let Guard::Fails(why) = guard {
            self.say(Line::NoDeathSignal(why));
        }
        let lock = server.map_or(JobLock::Without, JobLock::Held);
        let job = Job { lock, ended: None, is_rest_gone: false, signals: Vec::new() };
        self.watch(job, now)
    }

    pub(super) fn woke(&mut self, mut job: Job, woken: Woken, now: Moment) -> Act {
        let Woken { ended, is_lost, is_rest_gone, signals } = woken;
        job.ended = job.ended.or(ended);
        job.is_rest_gone = is_rest_gone;
        job.signals = signals;
        match &job.lock {
            JobLock::Held(server) if is_lost => self.lose(server.clone(), job, now),
            _ => self.go_on(job, now),
        }
    }

    fn lose(&mut self, server: ServerName, job: Job, now: Moment) -> Act {
        match self.plan.on_lost {
            _ if job.ended.is_some() => {
                self.continue_without(server, job, AfterLoss::HadEnded, now)
            }
            OnLost::Warn => self.continue_without(server, job, AfterLoss::Continues, now),
            OnLost::Kill { after } => {
                let doomed = Doomed { job, server, kill_after: after };
                self.enter(State::Terminating(doomed), Act::Terminate)
            }
        }
    }

    fn continue_without(
        &mut self,
        server: ServerName,
        mut job: Job,
        how: AfterLoss,
        now: Moment,
    ) -> Act {
        self.say(Line::LockLost(server, how));
        job.lock = JobLock::Lost;
        self.go_on(job, now)
    }

    pub(super) fn terminated(
        &mut self,
        doomed: Doomed,
        signalled: Option<Signalled>,
        now: Moment,
    ) -> Act {
        let Doomed { mut job, server, kill_after } = doomed;
        let Some(signalled) = signalled else {
            return self.continue_without(server, job, AfterLoss::HadEnded, now);
        };
        self.say(Line::LockLost(server, AfterLoss::Stopped(signalled)));
        job.lock = JobLock::Stopping { signalled, kill: Kill::At(now + kill_after) };
        self.go_on(job, now)
    }

    /// What is to be done before the next wait, one after the other.
    pub(super) fn go_on(&mut self, mut job: Job, now: Moment) -> Act {
        if let Some(ended) = job.ended.filter(|_| job.is_over()) {
            return self.finish(job.lock, ended, now);
        }
        let signals = std::mem::take(&mut job.signals);
        if job.ended.is_none() && !signals.is_empty() {
            return self.enter(State::PassingOn(job), Act::PassOn(signals));
        }
        let is_asked_to_end = signals.iter().any(|signal| ENDING_SIGNALS.contains(signal));
        if let JobLock::Stopping { kill, .. } = &mut job.lock {
            if is_asked_to_end || matches!(kill, Kill::At(at) if *at <= now) {
                *kill = Kill::Now;
            }
            if *kill == Kill::Now {
                return self.enter(State::Killing(job), Act::Kill);
            }
        }
        self.watch(job, now)
    }

    pub(super) fn watch(&mut self, job: Job, now: Moment) -> Act {
        let act = Act::Watch { what: job.watched(), until: job.next_look(now) };
        self.enter(State::Watching(job), act)
    }

    /// Gives the lock back: released after success, so that waiters get `DONE`, and otherwise by
    /// closing the connection.
    fn finish(&mut self, lock: JobLock, ended: JobEnd, now: Moment) -> Act {
        let ending = Ending::AsCommand(ended);
        match lock {
            JobLock::Held(server) if ended == JobEnd::Exited(0) => {
                let releasing = Releasing { server, ending, until: now + ANSWER_TIMEOUT };
                self.enter(State::Releasing(releasing), Act::Release { until: now + HANGS_AFTER })
            }
            JobLock::Stopping { signalled, .. } if signalled != Signalled::NotTheCommand => {
                Act::End(Ending::Stopped)
            }
            _ => Act::End(ending),
        }
    }
}

/// A lock that is being given back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Releasing {
    server: ServerName,
    ending: Ending,
    until: Moment,
}

impl Machine {
    pub(super) fn released(
        &mut self,
        releasing: Releasing,
        result: Result<(), NotReleased>,
        now: Moment,
    ) -> Act {
        let Releasing { server, ending, until } = releasing;
        match result {
            Ok(()) => {}
            // It hangs, and gives the lock to nobody: an end would have come behind the message.
            Err(NotReleased::Silent { is_acknowledged: true }) => {}
            Err(NotReleased::Silent { .. }) if now < until => {
                let releasing = Releasing { server, ending, until };
                return self.enter(State::Releasing(releasing), Act::AwaitReleased { until });
            }
            Err(why) => self.say(Line::ReleaseFailed(server, why)),
        }
        Act::End(ending)
    }
}

impl Job {
    /// Whether nothing is waited for any more, once the command has ended. What it leaves behind is
    /// its own affair, unless the lock was lost.
    fn is_over(&self) -> bool {
        self.is_rest_gone || !self.waits_for_rest()
    }

    fn waits_for_rest(&self) -> bool {
        matches!(&self.lock, JobLock::Stopping { signalled, .. } if *signalled != Signalled::NotTheCommand)
    }

    fn watched(&self) -> Watched {
        match &self.lock {
            JobLock::Held(_) => Watched::CommandAndLock,
            _ if self.ended.is_some() => Watched::Rest,
            _ => Watched::Command,
        }
    }

    /// When there is something to do without an event.
    fn next_look(&self, now: Moment) -> Option<Moment> {
        let JobLock::Stopping { kill, .. } = self.lock else { return None };
        let (kill_at, interval) = match kill {
            Kill::At(at) => (Some(at), LOOK_INTERVAL),
            Kill::Now => (None, KILLED_LOOK_INTERVAL),
        };
        // Only a child's end is a signal, and the parent of another process may be one that must
        // not be signalled.
        let look = self.ended.map(|_| now + interval);
        kill_at.into_iter().chain(look).min()
    }
}
