//! A `run` in its world: carries out what its machine decides, as the driver does, and the command.

use super::world::{Daemon, Got, KEY, RULES, Resolver, Sent, World};
use crate::run::act::{
    AboutKey, Act, Answer, Event, Failure, FailureKind, Guard, Limit, LimitKind, NoReply,
    NotReleased, Signalled, Uptime, Watched, Woken,
};
use crate::run::ending::{Ending, JobEnd};
use crate::run::line::Line;
use crate::run::machine::Machine;
use crate::run::moment::Moment;
use crate::run::plan::Plan;
use connect::ServerName;
use engine::view::Phase;
use protocol::{Mode, Reply};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a server may take to tell of a key, or that it runs (`StatsConnection`).
const STATS_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// What `run` is asked to do, and how its command behaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Options {
    pub(super) plan: Plan,
    pub(super) workers: u32,
    pub(super) ignores_sigterm: bool,
    /// It has another user's rights.
    pub(super) is_foreign: bool,
    /// It does not keep the connection that it inherits.
    pub(super) closes_copy: bool,
    /// It leaves a process behind.
    pub(super) leaves_rest: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) options: Options,
    pub(super) process: Process,
    pub(super) machine: Option<Machine>,
    pub(super) is_stopped: bool,
    /// Ever stopped, or its host asleep: times are no promise then.
    pub(super) was_disturbed: bool,
    pub(super) begun: Duration,
    pub(super) act: Option<Pending>,
    pub(super) connection: Option<usize>,
    pub(super) job: Option<Job>,
    signals: Vec<i32>,
    /// Of the last question.
    pub(super) workers_asked: u32,
    pub(super) lines: Vec<Line>,
    pub(super) seen: Seen,
}

/// What the judge has seen of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Since when its server has not been there, for all that the run has tried.
    pub(super) away_since: Option<Duration>,
    /// Since when the addresses of a server are tried in turn.
    pub(super) attempt: Option<Duration>,
    /// How many tries to connect there were since then.
    pub(super) tries: u32,
    /// How many waits it has lost since then.
    pub(super) losses: u32,
    /// How many connections it has closed since it lost the last one of them.
    pub(super) closed: u32,
    /// Where it has asked the server.
    pub(super) last: Option<SocketAddr>,
    /// Whether it was told that the server is away.
    pub(super) is_told: bool,
    /// The addresses of the server, as far as they are known.
    pub(super) found: Vec<SocketAddr>,
    /// When they were asked for.
    pub(super) looked_up: Duration,
    /// Those that this attempt has tried, and those that it must try.
    pub(super) tried: Vec<SocketAddr>,
    pub(super) to_try: Option<Vec<SocketAddr>>,
    /// The address and the process that have ended the last wait by closing its connection.
    pub(super) closed_by: Option<(SocketAddr, usize, u32)>,
    /// Acts since time has passed.
    pub(super) acts: (Duration, u32),
    /// Whether the last question got the lock.
    pub(super) had_lock: bool,
    /// When it was sent.
    pub(super) asked: Duration,
    /// Whether the refusal was the queue's, of the request's own limit.
    pub(super) is_queue_full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Process {
    NotBegun,
    Lives,
    Killed,
    Ended(Ending),
}

/// An act that is being done.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) act: Act,
    pub(super) since: Duration,
    /// By the host's clock that stands still in sleep, as timers of the kernel are.
    due: Option<Duration>,
    /// When a start has looked for an end of the connection.
    looked: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The number of the grant.
    pub(super) grant: Option<usize>,
    pub(super) looked: Duration,
    pub(super) started: Duration,
    pub(super) ended: Option<(Duration, JobEnd)>,
    /// By a signal of ours, because the lock was lost.
    pub(super) was_stopped: bool,
    is_reaped: bool,
    pub(super) has_rest: bool,
    pub(super) inherits: Option<usize>,
}

impl Job {
    pub(super) fn runs(&self) -> bool {
        self.ended.is_none()
    }

    pub(super) fn has_process(&self) -> bool {
        self.runs() || self.has_rest
    }

    fn end(&mut self, now: Duration, end: JobEnd) {
        if self.runs() {
            self.ended = Some((now, end));
        }
    }
}

impl Run {
    pub(super) fn new(options: Options) -> Run {
        Run {
            options,
            process: Process::NotBegun,
            machine: None,
            is_stopped: false,
            was_disturbed: false,
            begun: Duration::ZERO,
            act: None,
            connection: None,
            job: None,
            signals: Vec::new(),
            workers_asked: 0,
            lines: Vec::new(),
            seen: Seen::default(),
        }
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.options.plan
    }
}

fn failed(kind: FailureKind, text: &str) -> Failure {
    Failure { kind, text: text.to_owned() }
}

impl World {
    /// When the act of a run is over at the latest. Nothing if its host sleeps.
    pub(super) fn due(&self, run: usize) -> Option<Duration> {
        let (host, of) = (&self.hosts[run], &self.runs[run]);
        let is_able = of.process == Process::Lives && !of.is_stopped && host.asleep_since.is_none();
        let due = of.act.as_ref()?.due.filter(|_| is_able)?;
        Some(self.now + due.saturating_sub(host.awake(self.now)))
    }

    pub(super) fn begin(&mut self, run: usize) {
        let of = &mut self.runs[run];
        (of.process, of.begun) = (Process::Lives, self.now);
        of.machine = Some(Machine::new(of.options.plan.clone(), Moment(self.now)));
        self.step(run, Event::Begun).expect("a first act");
    }

    /// Whether the machine can be told something now.
    pub(super) fn is_ready(&self, run: usize) -> bool {
        let of = &self.runs[run];
        let is_able = of.process == Process::Lives
            && !of.is_stopped
            && self.hosts[run].asleep_since.is_none();
        let Some(pending) = of.act.as_ref().filter(|_| is_able) else { return false };
        let is_due = self.due(run).is_some_and(|due| due <= self.now);
        is_due
            || match &pending.act {
                Act::LookUp { .. } => self.hosts[run].resolver != Resolver::Hangs,
                Act::Connect { address, .. } => self.reaches(run, self.server_of(*address)),
                Act::Ask { .. }
                | Act::AskUptime { .. }
                | Act::Release { .. }
                | Act::AwaitReleased { .. } => {
                    let connection = of.connection.expect("a connection");
                    !self.connections[connection].inbox.is_empty()
                }
                Act::Pause { .. } => false,
                Act::Watch { what, .. } => self.woken(run, *what) != Woken::default(),
                Act::AskAboutKey(server) => {
                    self.servers[self.server_named(server)].daemon != Daemon::Hangs
                }
                _ => true,
            }
    }

    /// Completes the act of a run.
    pub(super) fn go_on(&mut self, run: usize) -> Result<(), String> {
        match self.completed(run) {
            Some(Some(event)) => self.step(run, event),
            _ => Ok(()),
        }
    }

    /// Tells the machine an event, and begins its next act.
    fn step(&mut self, run: usize, event: Event) -> Result<(), String> {
        let of = &mut self.runs[run];
        let before = of.act.as_ref().map(|pending| (pending.act.clone(), pending.since));
        let machine = of.machine.as_mut().expect("a machine");
        let (lines, act) = machine.next(event.clone(), Moment(self.now));
        of.lines.extend(lines.iter().cloned());
        self.judge(run, before, &event, &lines, &act)
            .map_err(|why| format!("run {run}: {why}\n  {event:?}\n  -> {lines:?} {act:?}"))?;
        self.issue(run, act);
        Ok(())
    }

    fn issue(&mut self, run: usize, act: Act) {
        let until = match &act {
            Act::LookUp { until, .. }
            | Act::Connect { until, .. }
            | Act::Pause { until }
            | Act::Release { until }
            | Act::AwaitReleased { until } => Some(*until),
            Act::Ask { until, .. } | Act::AskUptime { until, .. } | Act::Watch { until, .. } => {
                *until
            }
            Act::AskAboutKey(_) | Act::AskWhoAnswers(_) => Some(Moment(self.now) + STATS_TIMEOUT),
            _ => None,
        };
        let awake = self.hosts[run].awake(self.now);
        let due = until.map(|until| awake + until.since(Moment(self.now)));
        let since = self.now;
        self.runs[run].act = Some(Pending { act: act.clone(), since, due, looked: None });
        let options = self.runs[run].options.clone();
        match act {
            Act::Connect { .. } => self.shut_own(run),
            Act::Ask { wait_s, .. } => {
                let mode = if options.plan.is_any { Mode::ForAnyone } else { Mode::ForMe };
                let (workers, max_queue) = (options.workers, options.plan.max_queue);
                let connection = self.runs[run].connection.expect("a connection");
                self.runs[run].seen.asked = self.now;
                self.send(connection, Sent::Acquire { mode, workers, max_queue, wait_s });
            }
            Act::AskUptime { .. } => {
                let connection = self.runs[run].connection.expect("a connection");
                self.runs[run].seen.asked = self.now;
                self.send(connection, Sent::Uptime);
            }
            Act::Release { .. } => {
                let connection = self.runs[run].connection.expect("a lock");
                self.send(connection, Sent::Release);
            }
            Act::StartWithoutLock => self.shut_own(run),
            Act::End(ending) => {
                self.shut_own(run);
                self.runs[run].process = Process::Ended(ending);
            }
            _ => {}
        }
    }

    fn shut_own(&mut self, run: usize) {
        if let Some(connection) = self.runs[run].connection.take() {
            self.shut(connection);
        }
    }

    /// What has come of the act. `None`: nothing yet; `Some(None)`: a part of it is done.
    fn completed(&mut self, run: usize) -> Option<Option<Event>> {
        let pending = self.runs[run].act.clone()?;
        let is_due = self.due(run).is_some_and(|due| due <= self.now);
        let event = match pending.act {
            Act::LookUp { server, .. } => match self.hosts[run].resolver {
                Resolver::Works => Event::LookedUp(Ok(self.addresses_of(&server).to_vec())),
                Resolver::Fails => {
                    Event::LookedUp(Err(failed(FailureKind::Lasting, "no name server")))
                }
                Resolver::Hangs if is_due => {
                    Event::LookedUp(Err(failed(FailureKind::Down, "not resolved in time")))
                }
                Resolver::Hangs => return None,
            },
            Act::Connect { address, .. } => {
                let server = self.server_of(address);
                if !self.reaches(run, server) {
                    let timed_out = failed(FailureKind::Down, "connection timed out");
                    is_due.then_some(Event::Connected(Err(timed_out)))?
                } else if self.servers[server].accepts() {
                    self.runs[run].connection = Some(self.connect(run, server));
                    self.settle(super::grants::Cause::Released);
                    Event::Connected(Ok(()))
                } else {
                    Event::Connected(Err(failed(FailureKind::Down, "refused")))
                }
            }
            Act::Ask { .. } => {
                let answer = self.answer_of(run, is_due)?.map(|got| match got {
                    Got::Reply(Reply::Locked) => Answer::Locked,
                    Got::Reply(Reply::Done) => Answer::Done,
                    Got::Reply(Reply::QueueFull) => Answer::QueueFull,
                    Got::Reply(Reply::Timeout) => Answer::TimedOut,
                    got => unreachable!("{got:?}"),
                });
                if answer != Ok(Answer::Locked) {
                    self.shut_own(run);
                }
                Event::Answered(answer.map_err(NoReply::Failed))
            }
            Act::AskUptime { since, .. } => {
                let uptime = self.answer_of(run, is_due)?.map(|got| match got {
                    Got::Uptime(started) if Moment(started) <= since => Uptime::RunsSince,
                    _ => Uptime::HasEnded,
                });
                if uptime.is_err() {
                    self.shut_own(run);
                }
                Event::Uptime(uptime)
            }
            Act::Pause { .. } => is_due.then_some(Event::Done)?,
            Act::StartIfHeld => {
                let connection = self.runs[run].connection.expect("a lock");
                match (pending.looked, self.connections[connection].inbox.front()) {
                    (None, Some(Got::End(_))) => {
                        let why = self.answer_of(run, false)?.expect_err("an end");
                        self.shut_own(run);
                        Event::LostBeforeStart(NoReply::Failed(why))
                    }
                    (None, _) => {
                        let pending = self.runs[run].act.as_mut().expect("an act");
                        pending.looked = Some(self.now);
                        return Some(None);
                    }
                    (Some(looked), _) => self.start(run, looked),
                }
            }
            Act::StartWithoutLock => self.start(run, self.now),
            Act::Watch { what, .. } => {
                let woken = self.woken(run, what);
                if woken == Woken::default() && !is_due {
                    return None;
                }
                self.runs[run].signals.clear();
                if woken.ended.is_some() {
                    self.runs[run].job.as_mut().expect("a job").is_reaped = true;
                }
                Event::Woke(woken)
            }
            Act::Terminate => Event::Terminated(self.terminate(run)),
            Act::Kill => {
                let (is_foreign, now) = (self.runs[run].options.is_foreign, self.now);
                let job = self.runs[run].job.as_mut().expect("a job");
                if !is_foreign {
                    job.end(now, JobEnd::Killed(SIGKILL));
                }
                job.has_rest = false;
                Event::Done
            }
            Act::PassOn(signals) => {
                let Options { ignores_sigterm, is_foreign, .. } = self.runs[run].options;
                let now = self.now;
                let job = self.runs[run].job.as_mut().expect("a job");
                if signals.contains(&SIGTERM) && !ignores_sigterm && !is_foreign {
                    job.end(now, JobEnd::Killed(SIGTERM));
                }
                Event::Done
            }
            Act::Release { .. } | Act::AwaitReleased { .. } => {
                let connection = self.runs[run].connection.expect("a lock");
                let answer = match self.answer_of(run, false) {
                    Some(answer) => {
                        answer.map(drop).map_err(|why| NotReleased::NoReply(NoReply::Failed(why)))
                    }
                    None if is_due => {
                        let is_acknowledged = self.is_acknowledged(connection);
                        Err(NotReleased::Silent { is_acknowledged })
                    }
                    None => return None,
                };
                Event::Released(answer)
            }
            Act::AskAboutKey(server) => {
                let server = self.server_named(&server);
                let answers = self.reaches(run, server)
                    && self.servers[server].accepts()
                    && self.hosts[run].resolver == Resolver::Works;
                match self.servers[server].daemon {
                    Daemon::Runs if answers => Event::AboutKey(self.about_key(server)),
                    Daemon::Hangs if !is_due => return None,
                    _ => Event::AboutKey(AboutKey::default()),
                }
            }
            Act::AskWhoAnswers(servers) => {
                let answers = |name: &ServerName| self.answers(run, self.server_named(name));
                Event::Answering(servers.into_iter().find(answers))
            }
            Act::End(_) => return None,
        };
        Some(Some(event))
    }

    /// Whether a server tells that it runs.
    pub(super) fn answers(&self, run: usize, server: usize) -> bool {
        let of = &self.servers[server];
        let answers = self.reaches(run, server) && of.daemon == Daemon::Runs;
        answers && of.accepts() && !of.admits_nobody
    }

    /// What is there to read, in order.
    fn answer_of(&mut self, run: usize, is_due: bool) -> Option<Result<Got, Failure>> {
        let connection = self.runs[run].connection.expect("a connection");
        let of = &mut self.connections[connection];
        match of.inbox.front().copied() {
            // An end stays.
            Some(Got::End(kind)) => {
                let (server, incarnation) = (of.server, of.incarnation);
                let of = &mut self.runs[run];
                if !matches!(of.act.as_ref()?.act, Act::AskUptime { .. }) {
                    let process = (of.seen.last?, server, incarnation);
                    of.seen.closed_by = (kind == FailureKind::Closed).then_some(process);
                }
                Some(Err(failed(kind, "the end")))
            }
            Some(got) => {
                of.inbox.pop_front();
                Some(Ok(got))
            }
            None if is_due => Some(Err(failed(FailureKind::Down, "no answer"))),
            None => None,
        }
    }

    fn start(&mut self, run: usize, looked: Duration) -> Event {
        let inherits = self.runs[run].connection;
        let grant = inherits
            .and_then(|number| self.grants.iter().rposition(|grant| grant.connection == number));
        self.runs[run].job = Some(Job {
            grant,
            looked,
            started: self.now,
            ended: None,
            was_stopped: false,
            is_reaped: false,
            has_rest: self.runs[run].options.leaves_rest,
            inherits,
        });
        Event::Started(Guard::Works)
    }

    fn woken(&self, run: usize, what: Watched) -> Woken {
        let signals = self.runs[run].signals.clone();
        let inbox_ends = self.runs[run].connection.is_some_and(|number| {
            self.connections[number].inbox.iter().any(|got| matches!(got, Got::End(_)))
        });
        let job = self.runs[run].job.as_ref().expect("a job");
        let ended = job.ended.filter(|_| !job.is_reaped).map(|(_, end)| end);
        let is_lost = what == Watched::CommandAndLock && inbox_ends;
        let is_rest_gone = what == Watched::Rest && !job.has_rest;
        Woken { ended, is_lost, is_rest_gone, signals }
    }

    fn terminate(&mut self, run: usize) -> Option<Signalled> {
        let (Options { ignores_sigterm, is_foreign, .. }, now) =
            (self.runs[run].options.clone(), self.now);
        let job = self.runs[run].job.as_mut().expect("a job");
        if !job.runs() {
            return None;
        }
        if !ignores_sigterm {
            if !is_foreign && job.runs() {
                job.was_stopped = true;
                job.end(now, JobEnd::Killed(SIGTERM));
            }
            job.has_rest = false;
        }
        if is_foreign && job.runs() {
            return Some(Signalled::NotTheCommand);
        }
        job.was_stopped |= job.runs();
        Some(Signalled::All)
    }

    /// As the daemon's report of the key.
    fn about_key(&self, server: usize) -> AboutKey {
        let of = &self.servers[server];
        let setting = of.rule.and_then(|rule| RULES[rule].split(' ').nth(2));
        let count = |phase| of.engine.pool(KEY).map_or(0, |pool| pool.count(phase)) as u64;
        let held = count(Phase::Holding);
        let kind = setting.and_then(|setting| match setting.split_once('=')? {
            ("maxqueue", max) => Some(LimitKind::MaxQueue(max.parse().expect("a number"))),
            ("total", total) => {
                let total: u64 = total.parse().expect("a number");
                Some(LimitKind::Total { is_used_up: held >= total })
            }
            ("timeout", time) => {
                Some(LimitKind::Timeout(Duration::from_secs(time.parse().expect("seconds"))))
            }
            _ => None,
        });
        let setting = setting.unwrap_or_default();
        let limit = |kind| Limit { rule: "r".to_owned(), setting: setting.to_owned(), kind };
        AboutKey {
            denied_by: (setting == "deny").then(|| "r".to_owned()),
            limits: kind.map(limit).into_iter().collect(),
            in_queue: held + count(Phase::WaitingForMe) + count(Phase::WaitingForAnyone),
            holders: (held > 0).then(|| " by somebody".to_owned()),
        }
    }

    /// SIGTERM to `run` alone.
    pub(super) fn send_sigterm(&mut self, run: usize) {
        let of = &mut self.runs[run];
        match (of.process, &of.job) {
            // Signals are blocked.
            (Process::Lives, Some(_)) => of.signals.push(SIGTERM),
            _ => self.kill(run),
        }
    }

    /// SIGKILL to `run` alone: the kernel kills the command too, unless it has other rights.
    pub(super) fn kill(&mut self, run: usize) {
        let now = self.now;
        let of = &mut self.runs[run];
        of.process = Process::Killed;
        if let Some(job) = of.job.as_mut().filter(|_| !of.options.is_foreign) {
            job.end(now, JobEnd::Killed(SIGKILL));
        }
        self.close_unheld();
    }

    pub(super) fn end_job(&mut self, run: usize, end: JobEnd) {
        let now = self.now;
        if let Some(job) = self.runs[run].job.as_mut() {
            job.end(now, end);
        }
        self.close_unheld();
    }

    pub(super) fn end_rest(&mut self, run: usize) {
        if let Some(job) = self.runs[run].job.as_mut() {
            job.has_rest = false;
        }
        self.close_unheld();
    }
}
