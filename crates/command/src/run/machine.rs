//! All decisions of `run`, without I/O: what has come of the last act, and when, → what to say, and
//! the next act. It does one thing at a time.

mod job;
mod wait;

use self::job::{Doomed, Job, Releasing};
use self::wait::{Asked, Doubt, Round, Visit};
use super::act::{AboutKey, Act, Event, Failure, Limit, LimitKind, NotStarted};
use super::ending::Ending;
use super::line::{Line, NoLock, NotGiven};
use super::moment::Moment;
use super::plan::{NoServer, Plan, Talk};
use connect::ServerName;
use std::time::Duration;

/// A `run`, from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Machine {
    plan: Plan,
    /// When the wait is over; `None` is never.
    ends_at: Option<Moment>,
    passed_over: Vec<(ServerName, Failure)>,
    /// The last wait that was lost.
    lost: Option<(ServerName, Failure)>,
    state: State,
    /// Since the last event.
    lines: Vec<Line>,
}

/// What is being done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Begun,
    /// Since then.
    LookingUp(Visit, Moment),
    Connecting(Visit, Round),
    /// Before the next attempt.
    Retrying(Visit),
    Asking(Visit, Asked),
    /// The lock was given; whether it is still held is known with the command's start.
    Starting(Visit, Asked),
    /// A server that has closed a connection is asked whether it still runs.
    Examining(Visit, Doubt, Asked),
    /// This server is asked why the lock was not given.
    Explaining(Refused),
    /// Whether another server runs, which may have given the lock to another client.
    AskingWhoAnswers(ServerName, Failure),
    StartingWithoutLock,
    Watching(Job),
    Terminating(Doomed),
    PassingOn(Job),
    Killing(Job),
    Releasing(Releasing),
    Ended,
}

/// What a server has answered that does not give the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Refused {
    QueueFull,
    TimedOut,
}

impl Machine {
    pub(super) fn new(plan: Plan, now: Moment) -> Machine {
        let ends_at = plan.ends_at(now);
        let (passed_over, lines) = (Vec::new(), Vec::new());
        Machine { plan, ends_at, passed_over, lost: None, state: State::Begun, lines }
    }

    /// Takes what has come of the last act; returns what to say, then the next act.
    pub(super) fn next(&mut self, event: Event, now: Moment) -> (Vec<Line>, Act) {
        let act = match (std::mem::replace(&mut self.state, State::Ended), event) {
            (State::Begun, Event::Begun) => {
                // The variable may be an old one's: who wants no lines gets none.
                let may_wait = self.plan.wait_s != Some(0);
                if self.plan.is_own_key && may_wait && self.plan.talk != Talk::Quiet {
                    self.say(Line::AsksForOwnKey);
                }
                self.visit_next(now)
            }
            (State::LookingUp(visit, began), Event::LookedUp(found)) => {
                self.looked_up(visit, began, found, now)
            }
            (State::Connecting(visit, round), Event::Connected(result)) => {
                self.connected(visit, round, result, now)
            }
            (State::Retrying(visit), Event::Done) => self.try_again(visit, now),
            (State::Asking(visit, asked), Event::Answered(answer)) => {
                self.answered(visit, asked, answer, now)
            }
            (State::Starting(visit, asked), Event::LostBeforeStart(why)) => {
                self.has_no_answer(visit, asked, why, now)
            }
            (State::Starting(visit, _), Event::Started(guard)) => {
                self.started(guard, Some(visit.server), now)
            }
            (State::StartingWithoutLock, Event::Started(guard)) => self.started(guard, None, now),
            (State::Starting(..) | State::StartingWithoutLock, Event::NotStarted(why)) => {
                self.not_started(why)
            }
            (State::Examining(visit, doubt, asked), Event::Uptime(uptime)) => {
                self.examined(visit, doubt, asked, uptime, now)
            }
            (State::Explaining(refused), Event::AboutKey(about)) => self.not_given(refused, &about),
            (State::AskingWhoAnswers(server, why), Event::Answering(answering)) => self
                .without_lock(match answering {
                    Some(answering) => NoLock::LostButAnswered { lost: (server, why), answering },
                    None => NoLock::Lost(server, why),
                }),
            (State::Watching(job), Event::Woke(woken)) => self.woke(job, woken, now),
            (State::Terminating(doomed), Event::Terminated(signalled)) => {
                self.terminated(doomed, signalled, now)
            }
            (State::PassingOn(job), Event::Done) => self.go_on(job, now),
            (State::Killing(job), Event::Done) => self.watch(job, now),
            (State::Releasing(releasing), Event::Released(result)) => {
                self.released(releasing, result, now)
            }
            // Shown, they would need a hundredth of the program.
            _ => unreachable!("an event of another act"),
        };
        (std::mem::take(&mut self.lines), act)
    }

    fn say(&mut self, line: Line) {
        self.lines.push(line);
    }

    fn enter(&mut self, state: State, act: Act) -> Act {
        self.state = state;
        act
    }

    /// `None` is for ever.
    fn time_left(&self, now: Moment) -> Option<Duration> {
        self.ends_at.map(|at| at.since(now))
    }

    fn not_given(&mut self, refused: Refused, about: &AboutKey) -> Act {
        let why = match (refused, &about.denied_by) {
            (Refused::QueueFull, Some(rule)) => {
                // Nobody else does it either.
                self.say(Line::Denied { rule: rule.clone() });
                return Act::End(Ending::NoServer);
            }
            (Refused::QueueFull, None) => match self.refused_by(about) {
                Some(limit) => NotGiven::Limited(limit.clone()),
                None => NotGiven::QueueFull,
            },
            (Refused::TimedOut, _) if self.plan.wait_s == Some(0) => {
                NotGiven::Locked { holders: about.holders.clone() }
            }
            (Refused::TimedOut, _) => NotGiven::TimedOut {
                shortened_by: self.shortened_by(about),
                holders: about.holders.clone(),
            },
        };
        if self.plan.talk != Talk::Quiet {
            self.say(Line::NotGiven(why));
        }
        Act::End(Ending::NotGiven)
    }

    /// The rule that explains a full queue. A total counts only where the queue had room.
    fn refused_by<'a>(&self, about: &'a AboutKey) -> Option<&'a Limit> {
        let set = about.limits.iter().find_map(|limit| match limit.kind {
            LimitKind::MaxQueue(max) => Some((limit, max)),
            _ => None,
        });
        let max = set.map_or(self.plan.max_queue.into(), |(_, max)| max);
        if about.in_queue >= max {
            return set.map(|(limit, _)| limit);
        }
        let is_used_up = |limit: &&Limit| limit.kind == LimitKind::Total { is_used_up: true };
        about.limits.iter().find(is_used_up)
    }

    /// The first rule about the time of waits, if it shortens this one.
    fn shortened_by(&self, about: &AboutKey) -> Option<Limit> {
        let time = |limit: &Limit| match limit.kind {
            LimitKind::Timeout(time) => Some(time),
            LimitKind::MaxQueue(_) | LimitKind::Total { .. } => None,
        };
        let (first, time) = about.limits.iter().find_map(|limit| Some((limit, time(limit)?)))?;
        let wanted = self.plan.wait_s.map(Duration::from_secs);
        wanted.is_none_or(|wanted| time < wanted).then(|| first.clone())
    }

    fn has_time(&self, now: Moment) -> bool {
        self.time_left(now) != Some(Duration::ZERO)
    }

    /// A wait was lost, and does not begin again. `may_run`: who may have given the lock to another
    /// client since.
    fn lost_for_good(&mut self, server: ServerName, why: Failure, may_run: Vec<ServerName>) -> Act {
        if self.plan.no_server == NoServer::Fail || may_run.is_empty() {
            return self.without_lock(NoLock::Lost(server, why));
        }
        self.enter(State::AskingWhoAnswers(server, why), Act::AskWhoAnswers(may_run))
    }

    fn without_lock(&mut self, why: NoLock) -> Act {
        if why.is_down() && self.plan.no_server == NoServer::Run {
            self.say(Line::RunsWithoutLock(why));
            return self.enter(State::StartingWithoutLock, Act::StartWithoutLock);
        }
        let ending = why.ending();
        self.say(Line::NotRun(why));
        Act::End(ending)
    }

    fn not_started(&mut self, why: NotStarted) -> Act {
        self.say(match why {
            NotStarted::Unprepared(why) => Line::Unprepared(why),
            NotStarted::CantExecute(why) => Line::CantExecute(why),
            NotStarted::Signalled(signal) => return Act::End(Ending::Signalled(signal)),
        });
        Act::End(Ending::NotExecuted)
    }
}
