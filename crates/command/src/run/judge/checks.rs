//! What is judged at each step of a run: whether its lines and its ending are true, and whether it
//! keeps its times.

use super::process::Process;
use super::world::{Daemon, Got, World};
use crate::run::act::{
    Act, Event, Failure, Guard, Limit, LimitKind, NoReply, NotReleased, Signalled, Uptime,
};
use crate::run::ending::{Ending, JobEnd};
use crate::run::line::{AfterLoss, Line, NoLock, NotGiven};
use crate::run::plan::NoServer;
use protocol::Reply;
use std::time::Duration;

/// Acts while no time passes: one for each address of each server, a look, and what follows.
const ACTS_AT_ONCE_MAX: u32 = 16;

/// For pauses between tries, and ticks of timers.
const SLACK: Duration = Duration::from_millis(500);

/// A server is there when it has kept a request for this long.
const THERE_AFTER: Duration = Duration::from_secs(2);

/// How long a daemon that hangs may delay the end of a `run` whose command has ended.
const HANGING_RELEASE: Duration = Duration::from_secs(1);

/// The same for one that does not even acknowledge.
const RELEASE: Duration = Duration::from_secs(5);

type Checked = Result<(), String>;

fn ensure(is_true: bool, why: &str) -> Checked {
    if is_true { Ok(()) } else { Err(why.to_owned()) }
}

impl World {
    /// Judges a step: `before` is the act that the event is about, and when it began.
    pub(super) fn judge(
        &mut self,
        run: usize,
        before: Option<(Act, Duration)>,
        event: &Event,
        lines: &[Line],
        act: &Act,
    ) -> Checked {
        self.count_acts(run)?;
        self.note(run, before.as_ref(), event, act);
        for line in lines {
            self.check_line(run, event, line)?;
            if let Line::PassedOver(..) = line {
                let seen = &mut self.runs[run].seen;
                (seen.away_since, seen.tries, seen.losses) = (None, 0, 0);
            }
        }
        self.check_losses_are_told(run, event, lines)?;
        if let Act::Ask { wait_s: Some(wait_s), .. } = act {
            let of = &self.runs[run];
            let ends = of.begun + Duration::from_secs(of.plan().wait_s.unwrap_or_default());
            let most = ends.saturating_sub(self.now) + Duration::from_secs(1);
            ensure(Duration::from_secs(*wait_s) < most, "it asks for more time than is left")?;
        }
        if *event == Event::Started(Guard::Works) {
            self.check_has_looked(run, before.as_ref())?;
        }
        if let Act::End(ending) = act {
            self.check_ending(run, *ending)?;
            self.check_given_back(run, before.as_ref(), *ending)?;
        }
        self.check_patience(run, before.as_ref(), act)?;
        Ok(())
    }

    fn count_acts(&mut self, run: usize) -> Checked {
        let seen = &mut self.runs[run].seen;
        if seen.acts.0 != self.now {
            seen.acts = (self.now, 0);
        }
        seen.acts.1 += 1;
        ensure(seen.acts.1 <= ACTS_AT_ONCE_MAX, "too many acts while no time passes")
    }

    /// Notes since when the server is away, as far as this run has tried.
    fn note(&mut self, run: usize, before: Option<&(Act, Duration)>, event: &Event, act: &Act) {
        let now = self.now;
        let tried = before.map_or(now, |(_, began)| *began);
        let seen = &mut self.runs[run].seen;
        match event {
            Event::LookedUp(Err(_)) => _ = seen.away_since.get_or_insert(tried),
            // The attempt goes on with the next address.
            Event::Connected(Err(_)) if matches!(act, Act::Connect { .. }) => {
                seen.attempt.get_or_insert(tried);
            }
            Event::Connected(Err(_)) => {
                seen.away_since.get_or_insert(seen.attempt.take().unwrap_or(tried));
                seen.tries += 1;
            }
            Event::Connected(Ok(())) => {
                seen.attempt = None;
                seen.tries += 1;
            }
            Event::Answered(Ok(_)) => (seen.away_since, seen.losses) = (None, 0),
            Event::Answered(Err(_)) | Event::LostBeforeStart(_) => {
                let was_there =
                    now >= seen.asked + THERE_AFTER || matches!(event, Event::LostBeforeStart(_));
                if was_there {
                    (seen.away_since, seen.losses) = (None, 0);
                }
                seen.away_since.get_or_insert(now);
                if seen.losses == 0 {
                    seen.tries = 0;
                }
                seen.losses += 1;
            }
            _ => {}
        }
    }

    fn check_line(&self, run: usize, event: &Event, line: &Line) -> Checked {
        let of = &self.runs[run];
        let has_ended = of.job.as_ref().is_some_and(|job| !job.runs());
        match line {
            Line::Retries { .. } => {
                let is_true = match event {
                    Event::LookedUp(result) => result.is_err(),
                    Event::Connected(result) => result.is_err(),
                    _ => false,
                };
                ensure(is_true, "no attempt has failed")
            }
            Line::PassedOver(_, why) => self.check_is_away(run, event, why),
            Line::WaitLost(..) => {
                let is_end = |why: &NoReply| matches!(why, NoReply::Failed(_));
                let is_true = match event {
                    Event::Answered(Err(why)) | Event::LostBeforeStart(why) => is_end(why),
                    _ => false,
                };
                ensure(is_true, "no wait was lost")
            }
            Line::AsksForOwnKey => ensure(of.plan().is_own_key, "it asks for another key"),
            Line::GaveTheLock(_) | Line::NobodyDidTheWork => {
                let is_true = *event == Event::Answered(Ok(Reply::Locked));
                ensure(is_true, "no lock was given")
            }
            Line::AnotherDidTheWork => {
                ensure(*event == Event::Answered(Ok(Reply::Done)), "nobody did the work")
            }
            Line::NotGiven(why) => self.check_not_given(run, event, why),
            Line::Denied { .. } => ensure(
                matches!(event, Event::AboutKey(about) if about.denied_by.is_some()),
                "no rule denies",
            ),
            Line::NotRun(why) => {
                ensure(of.job.is_none(), "the command was run")?;
                self.check_no_lock(run, event, why)
            }
            Line::RunsWithoutLock(why) => {
                ensure(of.plan().no_server == NoServer::Run, "nobody asked for that")?;
                let is_down = matches!(why, NoLock::Unreachable(_) | NoLock::Lost(..));
                ensure(is_down, "a server runs, which may have given the lock")?;
                self.check_no_lock(run, event, why)
            }
            Line::NoDeathSignal(_) | Line::Unprepared(_) | Line::CantExecute(_) => {
                Err("all calls work here".to_owned())
            }
            Line::LockLost(_, after) => {
                ensure(self.has_heard_of_an_end(run), "the connection has not ended")?;
                let job = of.job.as_ref().expect("a job");
                match after {
                    AfterLoss::Continues => {
                        let is_new = job.ended.is_none_or(|(at, _)| at == self.now);
                        ensure(is_new, "it has ended")
                    }
                    AfterLoss::Stopped(Signalled::All | Signalled::Some) => {
                        ensure(job.was_stopped, "it had ended by itself")
                    }
                    AfterLoss::Stopped(Signalled::NotTheCommand) => {
                        ensure(of.options.is_foreign, "it may be signalled")
                    }
                    AfterLoss::HadEnded => ensure(has_ended, "the command runs"),
                }
            }
            Line::ReleaseFailed(_, NotReleased::NoReply(_)) => {
                ensure(has_ended, "the command runs")
            }
            Line::ReleaseFailed(_, NotReleased::Silent { .. }) => {
                ensure(has_ended, "the command runs")?;
                // What the daemon's own clock says can't be known here if it is cut off.
                let connection = of.job.as_ref().and_then(|job| job.inherits).expect("a lock");
                let server = self.connections[connection].server;
                let hangs = self.servers[server].daemon == Daemon::Hangs;
                let is_live = self.is_held(connection) && self.reaches(run, server);
                ensure(!(hangs && is_live), "the lock was held until the command ended")
            }
        }
    }

    fn check_not_given(&self, run: usize, event: &Event, why: &NotGiven) -> Checked {
        let of = &self.runs[run];
        match why {
            NotGiven::QueueFull => Ok(()),
            NotGiven::Limited(limit) => match limit.kind {
                LimitKind::Total { .. } => {
                    // It may have changed until it was asked about.
                    let max = u64::from(of.plan().max_queue);
                    let is_full = matches!(event, Event::AboutKey(about) if about.in_queue >= max);
                    let is_true = !(is_full && of.seen.is_queue_full);
                    ensure(is_true, "the request's own queue was full, not a total")
                }
                LimitKind::MaxQueue(_) => Ok(()),
                LimitKind::Timeout(_) => Err("a time is no limit of a queue".to_owned()),
            },
            NotGiven::Locked { .. } => ensure(of.plan().wait_s == Some(0), "it has waited"),
            NotGiven::TimedOut { shortened_by, .. } => {
                let is_shorter = |limit: &Limit| match (limit.kind, of.plan().wait_s) {
                    (LimitKind::Timeout(time), Some(wait_s)) => time < Duration::from_secs(wait_s),
                    (LimitKind::Timeout(_), None) => true,
                    _ => false,
                };
                ensure(shortened_by.as_ref().is_none_or(is_shorter), "the rule shortens nothing")
            }
        }
    }

    fn check_no_lock(&self, run: usize, event: &Event, why: &NoLock) -> Checked {
        match why {
            NoLock::Unreachable(tried) => {
                let (_, last) = tried.last().ok_or("no server was tried")?;
                // That line has judged it.
                let is_judged = self.runs[run].plan().has_fallback;
                if is_judged { Ok(()) } else { self.check_is_away(run, event, last) }
            }
            // Of a wait without an answer, or of all servers that have followed.
            NoLock::Lost(..) | NoLock::LostButAnswered { .. } => Ok(()),
            NoLock::TurnedAway { .. } => {
                let is_true = matches!(event, Event::Uptime(Uptime::RunsSince | Uptime::Closed));
                ensure(is_true, "it does not run")
            }
            NoLock::SeveralAddresses(_, addresses) => ensure(addresses.len() > 1, "one address"),
            NoLock::Unexpected(_) => Err("no server answers nonsense here".to_owned()),
        }
    }

    /// A server counts as down only when it was away for as long as is tolerated, and was tried.
    fn check_is_away(&self, run: usize, event: &Event, why: &Failure) -> Checked {
        let of = &self.runs[run];
        if *event == Event::Uptime(Uptime::Silent) {
            return Ok(());
        }
        let Some(since) = of.seen.away_since else {
            return Err(format!("it was not away: {why}"));
        };
        ensure(
            of.seen.tries > 0 || self.hosts[run].resolver != super::world::Resolver::Works,
            "it was not tried since it was lost",
        )?;
        let tolerated = self.tolerated(run, since);
        let is_over = self.now + SLACK >= since + tolerated;
        ensure(is_over, &format!("given up after {:?} of {tolerated:?}", self.now - since))
    }

    /// What `--connect-timeout` and `-t` tolerate of a server that is away since then.
    fn tolerated(&self, run: usize, since: Duration) -> Duration {
        let of = &self.runs[run];
        let ends = of.plan().wait_s.map(|wait_s| of.begun + Duration::from_secs(wait_s));
        of.plan().tolerated(ends.map(|ends| ends.saturating_sub(since)))
    }

    /// The step that hears of the end of a lock says so.
    fn check_losses_are_told(&self, run: usize, event: &Event, lines: &[Line]) -> Checked {
        let of = &self.runs[run];
        match event {
            Event::Terminated(_) => {
                let is_told = lines.iter().any(|line| matches!(line, Line::LockLost(..)));
                ensure(is_told, "a loss is not told")
            }
            Event::Woke(woken) if woken.is_lost => {
                let is_told = lines.iter().any(|line| matches!(line, Line::LockLost(..)));
                let is_stopped = matches!(of.plan().on_lost, crate::run::plan::OnLost::Kill { .. });
                ensure(is_told || is_stopped || woken.ended.is_some(), "a loss is not told")
            }
            // Nor does one that a running server has ended begin again.
            Event::Uptime(Uptime::RunsSince) => {
                let is_told = lines.iter().any(|line| matches!(line, Line::NotRun(_)));
                ensure(is_told, "a wait that was ended is begun again")
            }
            Event::Released(Err(NotReleased::NoReply(_))) => {
                let is_told = lines.iter().any(|line| matches!(line, Line::ReleaseFailed(..)));
                ensure(is_told, "a loss is not told")
            }
            _ => Ok(()),
        }
    }

    fn has_heard_of_an_end(&self, run: usize) -> bool {
        let of = &self.runs[run];
        of.connection.is_some_and(|number| {
            self.connections[number].inbox.iter().any(|got| matches!(got, Got::End(_)))
        })
    }

    fn check_ending(&self, run: usize, ending: Ending) -> Checked {
        let of = &self.runs[run];
        let job = of.job.as_ref();
        match ending {
            Ending::AsCommand(end) => {
                let own = job.and_then(|job| job.ended).map(|(_, end)| end);
                ensure(own == Some(end), "the command has not ended so")
            }
            Ending::Stopped => {
                let was_stopped = job.is_some_and(|job| job.was_stopped && !job.has_process());
                ensure(was_stopped, "not all of the command was stopped")
            }
            Ending::DoneByAnother
            | Ending::NotGiven
            | Ending::NoServer
            | Ending::SeveralServers
            | Ending::InvalidAnswer
            | Ending::NotExecuted => ensure(job.is_none(), "the command was run"),
        }
    }

    /// No command is started under a lock whose end has come.
    fn check_has_looked(&self, run: usize, before: Option<&(Act, Duration)>) -> Checked {
        let Some(connection) = self.runs[run].connection else { return Ok(()) };
        let has_looked = matches!(before, Some((Act::StartIfHeld, _)));
        ensure(has_looked, "it starts without a look at its lock")?;
        let looked = self.runs[run].job.as_ref().map(|job| job.looked);
        let heard = self.connections[connection].ended_at;
        ensure(heard.is_none() || heard >= looked, "the lock was lost before the look")
    }

    /// Waiters for anyone's work hear of success, and of nothing else.
    fn check_given_back(
        &self,
        run: usize,
        before: Option<&(Act, Duration)>,
        ending: Ending,
    ) -> Checked {
        let of = &self.runs[run];
        let has_released =
            matches!(before, Some((Act::Release { .. } | Act::AwaitReleased { .. }, _)));
        let had_lock = of.job.as_ref().is_some_and(|job| job.grant.is_some());
        let is_success = ending == Ending::AsCommand(JobEnd::Exited(0)) && had_lock;
        ensure(is_success || !has_released, "failed work was called done")?;
        let is_told = of.lines.iter().any(|line| matches!(line, Line::LockLost(..)));
        ensure(!is_success || has_released || is_told, "the work was not called done")
    }

    /// No wait is longer than its promise.
    fn check_patience(&self, run: usize, before: Option<&(Act, Duration)>, act: &Act) -> Checked {
        let of = &self.runs[run];
        if of.was_disturbed {
            return Ok(());
        }
        let goes_on = matches!(act, Act::LookUp { .. } | Act::Connect { .. } | Act::Pause { .. });
        if let Some(since) = of.seen.away_since.filter(|_| goes_on) {
            let late = since + self.tolerated(run, since) + SLACK;
            // There is an attempt after a loss at least.
            let is_in_round = matches!(before, Some((Act::Connect { .. }, _)))
                && matches!(act, Act::Connect { .. });
            // So is a look whether it still runs, which a loss begins with.
            let is_look = matches!(before, Some((Act::AskUptime { .. }, _)));
            let is_in_time = self.now <= late || of.seen.tries == 0 || is_in_round || is_look;
            ensure(is_in_time, &format!("away since {since:?}, and tried still"))?;
        }
        match before {
            Some((Act::Release { .. }, since)) => {
                ensure(self.now <= *since + HANGING_RELEASE + SLACK, "a daemon that hangs delays")
            }
            Some((Act::AwaitReleased { .. }, since)) => {
                ensure(self.now <= *since + RELEASE + SLACK, "a silent daemon delays the end")
            }
            _ => Ok(()),
        }
    }

    /// What holds whenever nothing is ready.
    pub(super) fn check_times(&self) -> Checked {
        for of in &self.runs {
            let (Process::Lives, Some(wait_s)) = (of.process, of.plan().wait_s) else { continue };
            // The answer, looks at servers, and each server that is asked.
            let servers = of.plan().servers.len() as u64;
            let most = Duration::from_secs(wait_s + 5 + servers * 45);
            let is_late = of.job.is_none() && self.now > of.begun + most;
            ensure(!is_late || of.was_disturbed, "the wait is over, and it waits still")?;
        }
        Ok(())
    }
}
