//! What is judged at each step of a run: whether its lines and its ending are true, and whether it
//! keeps its times.

use super::process::Process;
use super::world::{Daemon, Got, Name, Resolver, World};
use crate::run::act::{
    Act, Answer, Event, Failure, FailureKind, Guard, Limit, LimitKind, NoReply, NotReleased,
    Signalled, Uptime,
};
use crate::run::ending::{Ending, JobEnd};
use crate::run::line::{AfterLoss, Line, NoLock, NotGiven};
use crate::run::moment::Moment;
use crate::run::plan::{NoServer, Talk};
use std::net::SocketAddr;
use std::time::Duration;

/// Acts while no time passes: one for each address of each server, a look, and what follows.
const ACTS_AT_ONCE_MAX: u32 = 16;

/// The most that an attempt takes at one address.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// How old the addresses of a name may be.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// A server runs that closes so many connections.
const CLOSED_MAX: u32 = 4;

/// For pauses between tries, and ticks of timers.
const SLACK: Duration = Duration::from_millis(500);

/// A server is there when it has kept a request for this long.
const THERE_AFTER: Duration = Duration::from_secs(2);

/// How long a daemon that hangs may delay the end of a `run` whose command has ended.
const HANGING_RELEASE: Duration = Duration::from_secs(1);

/// The same for one that does not even acknowledge, and for any other answer.
const ANSWER: Duration = Duration::from_secs(5);

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
        self.check_talk(run, event, lines, act)?;
        self.check_attempt(run, event, lines, act)?;
        self.check_lookups(run, event, act)?;
        self.check_begins_again(run, event, act)?;
        if let Act::Ask { wait_s: Some(wait_s), .. } = act {
            let of = &self.runs[run];
            let ends = of.begun + Duration::from_secs(of.plan().wait_s.unwrap_or_default());
            let most = ends.saturating_sub(self.now) + Duration::from_secs(1);
            ensure(Duration::from_secs(*wait_s) < most, "it asks for more time than is left")?;
        }
        let begins = !matches!(before, Some((Act::Connect { .. }, _)));
        if let Act::Connect { address, until } = act {
            let is_brief = until.since(Moment(self.now)) <= CONNECT_MAX;
            ensure(is_brief, "one silent address takes all the time")?;
            if begins {
                self.check_address(run, *address)?;
                self.begin_attempt(run);
            }
            let seen = &mut self.runs[run].seen;
            seen.tried.push(*address);
            let is_among = seen.to_try.as_ref().is_none_or(|to_try| to_try.contains(address));
            ensure(is_among, "it asks another address too soon")?;
        } else if let Event::Connected(Err(_)) = event {
            let seen = &self.runs[run].seen;
            let is_tried = |address| seen.tried.contains(address);
            let are_all = seen.to_try.as_ref().is_none_or(|to_try| to_try.iter().all(is_tried));
            ensure(are_all, "not all addresses were tried")?;
        }
        if let Act::Ask { until: Some(until), .. } | Act::AskUptime { until: Some(until), .. } = act
        {
            ensure(*until <= self.answers_until(run), "it waits for too long for an answer")?;
        }
        if let Act::Ask { .. } = act {
            let number = self.runs[run].connection.expect("a connection");
            let of = &self.connections[number];
            let seen = &self.runs[run].seen;
            // Unless it did not accept where it was asked.
            let is_it = seen.closed_by.is_some_and(|(last, server, incarnation)| {
                let has_refused = seen.last != Some(last) && seen.tried.contains(&last);
                (server, incarnation) == (of.server, of.incarnation) && !has_refused
            });
            ensure(!is_it, "a wait that was ended is begun again")?;
        }
        if let (Act::AskWhoAnswers(servers), Some((Act::Ask { server, .. }, _))) = (act, &before) {
            ensure(!servers.contains(server), "a server that is silent is asked once more")?;
        }
        if *event == Event::Started(Guard::Works) {
            self.check_has_looked(run, before.as_ref())?;
        }
        if let Act::End(ending) = act {
            self.check_ending(run, *ending)?;
            self.check_given_back(run, before.as_ref(), *ending)?;
        }
        self.check_patience(run, before.as_ref(), lines, act)?;
        Ok(())
    }

    /// The latest moment for an answer: 5 s after the time of the wait, or that in which the server
    /// may be away.
    fn answers_until(&self, run: usize) -> Moment {
        let of = &self.runs[run];
        let ends = of.begun + Duration::from_secs(of.plan().wait_s.unwrap_or_default());
        let away_until = of.seen.away_since.map(|since| since + self.tolerated(run, since));
        let there = away_until.unwrap_or(self.now).min(self.now);
        Moment((ends.max(there) + ANSWER).max(self.now + Duration::from_secs(1)))
    }

    /// Whether the address is that of a name, which is looked up again and again.
    fn check_address(&self, run: usize, address: SocketAddr) -> Checked {
        let is_of = |name: &Name| name.addresses.contains(&address);
        let moved = self.names.iter().filter_map(|name| name.moved_at).max();
        let changed = moved.max(self.hosts[run].resolver_changed_at);
        let is_new = changed.is_some_and(|changed| self.now <= changed + FRESH_FOR + SLACK);
        let works = self.hosts[run].resolver == Resolver::Works;
        ensure(self.names.iter().any(is_of) || is_new || !works, "the name has moved")
    }

    /// In the first half of the time a lost wait returns to where it was; then all addresses are
    /// tried. What a name that has moved had before is not known here.
    fn begin_attempt(&mut self, run: usize) {
        let seen = &self.runs[run].seen;
        let is_early = |since| self.now < since + self.tolerated(run, since) / 2;
        let last = seen.last.filter(|_| seen.away_since.is_some_and(is_early));
        let has_moved = self.names.iter().any(|name| name.moved_at.is_some());
        let to_try = last.map_or_else(|| seen.found.clone(), |last| vec![last]);
        let seen = &mut self.runs[run].seen;
        seen.tried.clear();
        seen.to_try = (!has_moved).then_some(to_try);
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
        let of = &self.runs[run];
        let ends = of.plan().wait_s.map(|wait_s| of.begun + Duration::from_secs(wait_s));
        let may_begin_anew = ends.is_none_or(|ends| now <= ends + ANSWER);
        let tried = before.map_or(now, |(_, began)| *began);
        let seen = &mut self.runs[run].seen;
        if let (Some((Act::Connect { address, .. }, _)), Event::Connected(Ok(()))) = (before, event)
        {
            seen.last = Some(*address);
        }
        seen.had_lock &= !matches!(act, Act::Ask { .. });
        // An attempt looks up, and goes on with the next address.
        let goes_on = matches!(act, Act::Connect { .. });
        match event {
            Event::LookedUp(_) | Event::Connected(Err(_)) if goes_on => {
                seen.attempt.get_or_insert(tried);
            }
            Event::LookedUp(_) | Event::Connected(_) => {
                let began = seen.attempt.take().unwrap_or(tried);
                if !matches!(event, Event::Connected(Ok(()))) {
                    seen.away_since.get_or_insert(began);
                }
                seen.tries += u32::from(matches!(event, Event::Connected(_)));
            }
            Event::Answered(Ok(answer)) => {
                seen.had_lock = *answer == Answer::Locked;
                if may_begin_anew {
                    (seen.away_since, seen.losses) = (None, 0);
                }
            }
            Event::Uptime(Err(why))
                if why.kind == FailureKind::Closed && now < seen.asked + THERE_AFTER =>
            {
                (seen.tries, seen.closed) = (0, seen.closed + 1);
            }
            Event::Answered(Err(_)) | Event::Uptime(Err(_)) | Event::LostBeforeStart(_) => {
                if may_begin_anew && now >= seen.asked + THERE_AFTER {
                    (seen.away_since, seen.losses, seen.is_told) = (None, 0, false);
                }
                seen.away_since.get_or_insert(now);
                seen.tries = 0;
                seen.losses += 1;
                match event {
                    Event::Uptime(Err(why)) => {
                        seen.closed += u32::from(why.kind == FailureKind::Closed);
                    }
                    _ => seen.closed = 0,
                }
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
            Line::PassedOver(_, why) => self.check_is_away(run, why),
            Line::WaitLost(..) => {
                let is_end = |why: &NoReply| matches!(why, NoReply::Failed(_));
                let is_true = match event {
                    Event::Answered(Err(why)) | Event::LostBeforeStart(why) => is_end(why),
                    Event::Uptime(result) => result.is_err(),
                    _ => false,
                };
                ensure(is_true, "no wait was lost")
            }
            Line::AsksForOwnKey => {
                let may_wait = of.plan().is_own_key && of.plan().wait_s != Some(0);
                ensure(may_wait, "it does not wait for itself")
            }
            Line::GaveTheLock(_) | Line::NobodyDidTheWork => {
                let is_true = *event == Event::Answered(Ok(Answer::Locked));
                ensure(is_true, "no lock was given")
            }
            Line::AnotherDidTheWork => {
                ensure(*event == Event::Answered(Ok(Answer::Done)), "nobody did the work")
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
                if is_judged { Ok(()) } else { self.check_is_away(run, last) }
            }
            // Of a wait without an answer, or of all servers that have followed.
            NoLock::LostButAnswered { .. } => Ok(()),
            NoLock::Lost(server, _) => {
                let others = self.runs[run].plan().servers.iter().filter(|name| *name != server);
                let answers = |name| self.answers(run, self.server_named(name));
                let may_run = self.runs[run].plan().no_server == NoServer::Run;
                ensure(!(may_run && others.into_iter().any(answers)), "another server answers")
            }
            NoLock::TurnedAway { had_lock, .. } => {
                let is_given = self.runs[run].seen.had_lock == *had_lock;
                ensure(is_given, "it is wrong about whether it had the lock")?;
                let is_true = match event {
                    Event::Uptime(Ok(uptime)) => *uptime == Uptime::RunsSince,
                    Event::Uptime(Err(why)) => {
                        why.kind == FailureKind::Closed && self.runs[run].seen.closed == CLOSED_MAX
                    }
                    _ => false,
                };
                ensure(is_true, "it does not run")
            }
            NoLock::SeveralAddresses(_, addresses) => ensure(addresses.len() > 1, "one address"),
            NoLock::Unexpected(_) => Err("no server answers nonsense here".to_owned()),
        }
    }

    /// A server counts as down only when it was away for as long as is tolerated, and was tried.
    fn check_is_away(&self, run: usize, why: &Failure) -> Checked {
        let of = &self.runs[run];
        let Some(since) = of.seen.away_since else {
            return Err(format!("it was not away: {why}"));
        };
        ensure(
            of.seen.tries > 0 || self.hosts[run].resolver != Resolver::Works,
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

    /// The first attempt that fails is told, and none fails for the resolver once an address is
    /// known.
    fn check_attempt(&mut self, run: usize, event: &Event, lines: &[Line], act: &Act) -> Checked {
        let seen = &mut self.runs[run].seen;
        seen.is_told &= seen.away_since.is_some();
        let tells = lines.iter().any(|line| matches!(line, Line::Retries { .. }));
        ensure(!(tells && seen.is_told), "it was told that the server is away")?;
        seen.is_told |= tells;
        let is_told = seen.is_told;
        match event {
            Event::LookedUp(Ok(found)) => seen.found = found.clone(),
            Event::LookedUp(Err(_)) if !seen.found.is_empty() => {
                let goes_on = matches!(act, Act::Connect { .. });
                ensure(goes_on, "a resolver that fails ends an attempt")?;
            }
            _ => {}
        }
        if lines.iter().any(|line| matches!(line, Line::PassedOver(..))) {
            (seen.found, seen.closed_by, seen.last) = (Vec::new(), None, None);
        }
        if let Act::LookUp { until, .. } | Act::Connect { until, .. } = act {
            let is_short = until.0.saturating_sub(self.now) <= Duration::from_secs(2);
            ensure(is_short, "nobody hears for long that nothing answers")?;
        }
        let has_failed = matches!(event, Event::LookedUp(Err(_)) | Event::Connected(Err(_)));
        let goes_on = matches!(act, Act::Pause { .. });
        ensure(is_told || !has_failed || !goes_on, "nobody hears that the server is away")
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
            Event::Released(Err(NotReleased::NoReply(_))) => {
                let is_told = lines.iter().any(|line| matches!(line, Line::ReleaseFailed(..)));
                ensure(is_told, "a loss is not told")
            }
            _ => Ok(()),
        }
    }

    /// `--quiet` says nothing of a wait, and `--verbose` tells each of its turns.
    fn check_talk(&self, run: usize, event: &Event, lines: &[Line], act: &Act) -> Checked {
        let plan = self.runs[run].plan();
        let is_of_anyone = plan.is_any && matches!(event, Event::Answered(Ok(_)));
        let says_who = is_of_anyone && matches!(act, Act::StartIfHeld | Act::End(_));
        let is_lost = match event {
            Event::Answered(Err(_)) | Event::LostBeforeStart(_) => matches!(act, Act::Pause { .. }),
            _ => false,
        };
        let has = |is_it: fn(&Line) -> bool| lines.iter().any(is_it);
        let turns = has(|line| {
            matches!(line, Line::WaitLost(..) | Line::NobodyDidTheWork | Line::AnotherDidTheWork)
        });
        ensure(!turns || plan.talk == Talk::Verbose, "nobody asked for each turn of a wait")?;
        let is_silent = plan.talk == Talk::Verbose && (says_who || is_lost) && !turns;
        ensure(!is_silent, "a turn of the wait is not told")?;
        let refused = has(|line| matches!(line, Line::NotGiven(_) | Line::AsksForOwnKey));
        ensure(!refused || plan.talk != Talk::Quiet, "it speaks of the wait")
    }

    /// A name is looked up again when its addresses are old, and not at each attempt.
    fn check_lookups(&mut self, run: usize, event: &Event, act: &Act) -> Checked {
        let now = self.now;
        let seen = &mut self.runs[run].seen;
        if let Event::LookedUp(_) = event {
            seen.looked_up = now;
        }
        let asks = matches!(act, Act::LookUp { .. }) && !seen.found.is_empty();
        let is_early = asks && now < seen.looked_up + FRESH_FOR;
        ensure(!is_early, "the resolver is asked for what it has just said")
    }

    /// A lost wait begins again while there is time. A wait whose connection the daemon has closed
    /// always does, because the daemon may be back at once.
    fn check_begins_again(&self, run: usize, event: &Event, act: &Act) -> Checked {
        let (Event::Answered(Err(NoReply::Failed(why)))
        | Event::LostBeforeStart(NoReply::Failed(why))) = event
        else {
            return Ok(());
        };
        let of = &self.runs[run];
        let has_time = |wait_s| self.now < of.begun + Duration::from_secs(wait_s);
        let begins = match why.kind {
            FailureKind::Closed => true,
            FailureKind::Down => of.plan().wait_s.is_none_or(has_time),
            FailureKind::Lasting => false,
        };
        let goes_on = matches!(act, Act::Pause { .. });
        ensure(!begins || goes_on, "a lost wait does not begin again")
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
            | Ending::NotExecuted
            | Ending::Signalled(_) => ensure(job.is_none(), "the command was run"),
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
    fn check_patience(
        &self,
        run: usize,
        before: Option<&(Act, Duration)>,
        lines: &[Line],
        act: &Act,
    ) -> Checked {
        let of = &self.runs[run];
        let is_silent =
            |line: &Line| matches!(line, Line::ReleaseFailed(_, NotReleased::Silent { .. }));
        if let Some((Act::Release { .. }, since)) = before {
            let is_early = lines.iter().any(is_silent) && self.now < *since + ANSWER;
            ensure(!is_early, "a server that is slow counts as silent")?;
        }
        if of.was_disturbed {
            return Ok(());
        }
        if let Some(since) = of.seen.away_since {
            let is_late = self.now > since + self.tolerated(run, since) + SLACK;
            let goes_on = match act {
                // There is an attempt after a loss at least, and more of them while it closes what
                // is asked whether it still runs.
                Act::LookUp { .. } | Act::Connect { .. } | Act::Pause { .. } => {
                    of.seen.tries > 0 || of.seen.closed >= CLOSED_MAX
                }
                Act::Ask { .. } => of.seen.losses > 1,
                _ => false,
            };
            ensure(!(is_late && goes_on), &format!("away since {since:?}, and tried still"))?;
        }
        match before {
            Some((Act::Release { .. }, since)) => {
                ensure(self.now <= *since + HANGING_RELEASE + SLACK, "a daemon that hangs delays")
            }
            Some((Act::AwaitReleased { .. }, since)) => {
                ensure(self.now <= *since + ANSWER + SLACK, "a silent daemon delays the end")
            }
            _ => Ok(()),
        }
    }

    /// What holds whenever nothing is ready.
    pub(super) fn check_times(&self) -> Checked {
        for of in &self.runs {
            let (Process::Lives, Some(wait_s)) = (of.process, of.plan().wait_s) else { continue };
            // Each server may take 5 s to answer, be away for 2 s then, and have 5 s again; and the
            // last one 5 s to say why it refuses.
            let servers = of.plan().servers.len() as u64;
            let most = Duration::from_secs(wait_s + servers * (5 + 2 + 5) + 5) + SLACK;
            let is_late = of.job.is_none() && self.now > of.begun + most;
            ensure(!is_late || of.was_disturbed, "the wait is over, and it waits still")?;
        }
        Ok(())
    }
}
