//! Gets the lock: goes through the servers that may be asked, and begins a wait again whose
//! connection is lost, as long as there is time.

use super::{Machine, Refused, State};
use crate::run::act::{Act, Answer, Failure, FailureKind, NoReply, Uptime};
use crate::run::ending::Ending;
use crate::run::line::{Line, NoLock};
use crate::run::moment::Moment;
use crate::run::plan::Talk;
use crate::run::request::wait_s;
use connect::ServerName;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a server may take to answer, once the time of the wait is over, or that in which it may
/// be away; and how long in any case. A busy one answers in a fraction of this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// A server that has kept a request for so long is there: one that ends at once was not.
const THERE_AFTER: Duration = Duration::from_secs(2);

/// Between two attempts to reach a server.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How long an address, or the resolver, may be silent in one attempt: the kernel sends a lost packet
/// again after a second, and a name may be that of another address by then.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long addresses are used that were found, and how long a resolver then has to confirm them.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// How many connections a server may close before it counts as one that runs: a process that ends
/// may close its listener last.
const CLOSED_MAX: u32 = 4;

/// A server that is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Visit {
    pub(super) server: ServerName,
    /// Its addresses, and when they were looked up.
    found: Option<(Vec<SocketAddr>, Moment)>,
    /// Where it was asked.
    last: Option<SocketAddr>,
    /// Nothing while it is there: it has answered, or kept a request for a while.
    away: Option<Away>,
    /// It has closed the last connection, and may run still.
    doubt: Option<Doubt>,
}

/// A server that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Away {
    /// When the first attempt began that has failed, or a loss was noticed.
    since: Moment,
    /// When it counts as down.
    until: Moment,
    /// How many waits it has lost since.
    losses: u32,
    is_told: bool,
}

/// Whether the process still runs that has closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Doubt {
    /// When it was asked for the lock.
    asked_at: Moment,
    had_lock: bool,
    /// How many connections it has closed since.
    closed: u32,
}

/// An attempt to reach a server: at each address, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Round {
    began: Moment,
    until: Moment,
    address: SocketAddr,
    /// Those that follow.
    rest: Vec<SocketAddr>,
    failures: Vec<Failure>,
}

/// A question that a server has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    at: Moment,
    /// When it is late; `None` is never.
    until: Option<Moment>,
    had_lock: bool,
}

impl Visit {
    fn new(server: ServerName) -> Visit {
        Visit { server, found: None, last: None, away: None, doubt: None }
    }

    /// Where to try. Another address than the last one may be that of another server, which has run
    /// for longer; others that waited come back to the last one too. So the last one is the first,
    /// and the rest of them is tried in the second half of the time.
    fn tried_addresses(&self, found: &[SocketAddr], now: Moment) -> Vec<SocketAddr> {
        let is_early = |away: Away| now.since(away.since) < away.until.since(away.since) / 2;
        let Some(last) = self.last.filter(|last| found.contains(last)) else {
            return found.to_vec();
        };
        let others = found.iter().copied().filter(|other| *other != last);
        let rest = if self.away.is_some_and(is_early) { 0 } else { found.len() };
        [last].into_iter().chain(others.take(rest)).collect()
    }
}

impl Round {
    /// One that is silent leaves the next its part.
    fn connect_until(&self, now: Moment) -> Moment {
        let part = self.until.since(now) / (1 + self.rest.len()) as u32;
        now + part.min(ADDRESS_TIMEOUT)
    }

    /// What has failed at all addresses.
    fn failure(self) -> Failure {
        let is_lasting = self.failures.iter().all(|why| why.kind == FailureKind::Lasting);
        let kind = if is_lasting { FailureKind::Lasting } else { FailureKind::Down };
        let texts: Vec<String> = self.failures.into_iter().map(|why| why.text).collect();
        Failure { kind, text: texts.join("; ") }
    }
}

impl Machine {
    pub(super) fn visit_next(&mut self, now: Moment) -> Act {
        if let Some(server) = self.plan.servers.get(self.passed_over.len()).cloned() {
            return self.try_again(Visit::new(server), now);
        }
        match self.lost.take() {
            Some((server, why)) => self.lost_for_good(server, why, self.plan.servers.clone()),
            None => {
                let tried = std::mem::take(&mut self.passed_over);
                self.without_lock(NoLock::Unreachable(tried))
            }
        }
    }

    fn pass_over(&mut self, server: ServerName, why: Failure, now: Moment) -> Act {
        // Otherwise the end says why.
        if self.plan.has_fallback {
            self.say(Line::PassedOver(server.clone(), why.clone()));
        }
        self.passed_over.push((server, why));
        self.visit_next(now)
    }

    /// Since when a server is away, of which that is known by now.
    fn away(&self, visit: &Visit, since: Moment) -> Away {
        let until = since + self.plan.tolerated(self.time_left(since));
        visit.away.unwrap_or(Away { since, until, losses: 0, is_told: false })
    }

    fn pause(&mut self, visit: Visit, time: Duration, now: Moment) -> Act {
        self.enter(State::Retrying(visit), Act::Pause { until: now + time })
    }

    /// Looks the server up, and connects to it.
    pub(super) fn try_again(&mut self, visit: Visit, now: Moment) -> Act {
        let until = self.away(&visit, now).until.max(now + RETRY_INTERVAL);
        let until = match &visit.found {
            Some((found, at)) if now.since(*at) < FRESH_FOR => {
                let found = found.clone();
                return self.connect_to(visit, &found, now, now);
            }
            Some(_) => until.min(now + FRESH_FOR),
            None => until.min(now + ADDRESS_TIMEOUT),
        };
        let act = Act::LookUp { server: visit.server.clone(), until };
        self.enter(State::LookingUp(visit, now), act)
    }

    pub(super) fn looked_up(
        &mut self,
        mut visit: Visit,
        began: Moment,
        found: Result<Vec<SocketAddr>, Failure>,
        now: Moment,
    ) -> Act {
        let found = match (found, visit.found.take()) {
            (Ok(found), _) => found,
            (Err(_), Some((known, _))) => known,
            // A resolver does not say whether time changes it.
            (Err(why), None) => return self.failed(visit, began, why, now),
        };
        if !self.plan.has_fallback && !are_one_host(&found) {
            return self.without_lock(NoLock::SeveralAddresses(visit.server, found));
        }
        visit.found = Some((found.clone(), now));
        self.connect_to(visit, &found, began, now)
    }

    /// Goes on with an attempt that began then.
    fn connect_to(
        &mut self,
        visit: Visit,
        found: &[SocketAddr],
        began: Moment,
        now: Moment,
    ) -> Act {
        let until = self.away(&visit, began).until.max(now + RETRY_INTERVAL);
        let mut rest = visit.tried_addresses(found, now);
        let address = rest.remove(0);
        self.connect(visit, Round { began, until, address, rest, failures: Vec::new() }, now)
    }

    fn connect(&mut self, visit: Visit, round: Round, now: Moment) -> Act {
        let act = Act::Connect { address: round.address, until: round.connect_until(now) };
        self.enter(State::Connecting(visit, round), act)
    }

    pub(super) fn connected(
        &mut self,
        mut visit: Visit,
        mut round: Round,
        result: Result<(), Failure>,
        now: Moment,
    ) -> Act {
        let Err(mut why) = result else {
            // Another address may be that of another server.
            let doubt = visit.doubt.take().filter(|_| visit.last == Some(round.address));
            visit.last = Some(round.address);
            let until = self.answers_until(&visit, now);
            return match doubt {
                Some(doubt) => self.examine(visit, doubt, until, now),
                None => self.ask(visit, until, now),
            };
        };
        if !visit.server.is_numeric() {
            why.text = format!("{}: {}", round.address, why.text);
        }
        round.failures.push(why);
        if !round.rest.is_empty() {
            round.address = round.rest.remove(0);
            return self.connect(visit, round, now);
        }
        let began = round.began;
        let why = round.failure();
        if why.kind == FailureKind::Lasting {
            return self.pass_over(visit.server, why, now);
        }
        self.failed(visit, began, why, now)
    }

    /// Until when a server that is connected to now may answer.
    fn answers_until(&self, visit: &Visit, now: Moment) -> Option<Moment> {
        let there = visit.away.map_or(now, |away| away.until.min(now));
        let until = self.ends_at?.max(there) + ANSWER_TIMEOUT;
        Some(until.max(now + ANSWER_TIMEOUT_MIN))
    }

    /// Whether the time in which a server may be away begins anew once it was there: not for ever,
    /// when the wait is over.
    fn may_begin_anew(&self, now: Moment) -> bool {
        self.ends_at.is_none_or(|at| now <= at + ANSWER_TIMEOUT)
    }

    /// An attempt has failed that began then.
    fn failed(&mut self, mut visit: Visit, began: Moment, why: Failure, now: Moment) -> Act {
        let away = self.away(&visit, began);
        let left = away.until.since(now);
        if left.is_zero() {
            return self.pass_over(visit.server, why, now);
        }
        if !away.is_told {
            let tried_for = away.until.since(away.since);
            self.say(Line::Retries { server: visit.server.clone(), why, tried_for });
        }
        visit.away = Some(Away { is_told: true, ..away });
        self.pause(visit, RETRY_INTERVAL.min(left), now)
    }

    /// Asks whether the process there is the one that was asked before. It gets as long to answer
    /// as the question for the lock that follows.
    fn examine(&mut self, visit: Visit, doubt: Doubt, until: Option<Moment>, now: Moment) -> Act {
        let act = Act::AskUptime { server: visit.server.clone(), since: doubt.asked_at, until };
        let asked = Asked { at: now, until, had_lock: false };
        self.enter(State::Examining(visit, doubt, asked), act)
    }

    pub(super) fn examined(
        &mut self,
        mut visit: Visit,
        mut doubt: Doubt,
        asked: Asked,
        uptime: Result<Uptime, Failure>,
        now: Moment,
    ) -> Act {
        let why = match uptime {
            Ok(Uptime::HasEnded) => return self.ask(visit, asked.until, now),
            Ok(Uptime::RunsSince) => return self.turned_away(visit.server, doubt),
            Err(why) => why,
        };
        let is_closed = why.kind == FailureKind::Closed;
        doubt.closed += u32::from(is_closed);
        if doubt.closed == CLOSED_MAX {
            return self.turned_away(visit.server, doubt);
        }
        visit.doubt = Some(doubt);
        if is_closed && now.since(asked.at) < THERE_AFTER {
            return self.pause(visit, RETRY_INTERVAL, now);
        }
        self.has_no_answer(visit, asked, NoReply::Failed(why), now)
    }

    fn turned_away(&mut self, server: ServerName, doubt: Doubt) -> Act {
        self.without_lock(NoLock::TurnedAway { server, had_lock: doubt.had_lock })
    }

    /// Asks for the lock, with the time that is left.
    fn ask(&mut self, visit: Visit, until: Option<Moment>, now: Moment) -> Act {
        if visit.away.is_some_and(|away| away.until <= now && away.losses > 1) {
            let why = "it ends again and again".to_owned();
            let why = Failure { kind: FailureKind::Down, text: why };
            return self.pass_over(visit.server, why, now);
        }
        let wait_s = self.time_left(now).map(wait_s);
        let act = Act::Ask { server: visit.server.clone(), wait_s, until };
        self.enter(State::Asking(visit, Asked { at: now, until, had_lock: false }), act)
    }

    pub(super) fn answered(
        &mut self,
        mut visit: Visit,
        asked: Asked,
        answer: Result<Answer, NoReply>,
        now: Moment,
    ) -> Act {
        let refused = match answer {
            Ok(Answer::Locked) => {
                if !self.passed_over.is_empty() {
                    self.say(Line::GaveTheLock(visit.server.clone()));
                }
                if self.plan.is_any && self.plan.talk == Talk::Verbose {
                    self.say(Line::NobodyDidTheWork);
                }
                if self.may_begin_anew(now) {
                    visit.away = None;
                }
                let asked = Asked { had_lock: true, ..asked };
                return self.enter(State::Starting(visit, asked), Act::StartIfHeld);
            }
            Ok(Answer::Done) if !self.plan.is_any => {
                return self.without_lock(NoLock::Unexpected("DONE".to_owned()));
            }
            Ok(Answer::Done) => {
                if self.plan.talk == Talk::Verbose {
                    self.say(Line::AnotherDidTheWork);
                }
                return Act::End(Ending::DoneByAnother);
            }
            Ok(Answer::QueueFull) => Refused::QueueFull,
            Ok(Answer::TimedOut) => Refused::TimedOut,
            Err(why) => return self.has_no_answer(visit, asked, why, now),
        };
        self.enter(State::Explaining(refused), Act::AskAboutKey(visit.server))
    }

    pub(super) fn has_no_answer(
        &mut self,
        mut visit: Visit,
        asked: Asked,
        why: NoReply,
        now: Moment,
    ) -> Act {
        let why = match why {
            NoReply::Unexpected(answer) => return self.without_lock(NoLock::Unexpected(answer)),
            NoReply::Failed(why) => why,
        };
        let is_closed = why.kind == FailureKind::Closed;
        let has_time = self.has_time(now);
        if why.kind == FailureKind::Lasting || !(is_closed || has_time) {
            let mut others = self.plan.servers.clone();
            others.retain(|other| *other != visit.server);
            return self.lost_for_good(visit.server, why, others);
        }
        if self.plan.talk == Talk::Verbose {
            self.say(Line::WaitLost(visit.server.clone(), why.clone()));
        }
        self.lost = Some((visit.server.clone(), why));
        if self.may_begin_anew(now) && now.since(asked.at) >= THERE_AFTER {
            visit.away = None;
        }
        // One that ends again and again does not gain time by that.
        let away = self.away(&visit, now);
        visit.away = Some(Away { losses: away.losses + 1, ..away });
        let doubt = Doubt { asked_at: asked.at, had_lock: asked.had_lock, closed: 0 };
        visit.doubt = visit.doubt.or(is_closed.then_some(doubt));
        self.pause(visit, RETRY_INTERVAL, now)
    }
}

/// Whether addresses are those of one host, as far as numbers can show it: a single address, or one
/// of IPv4 and one of IPv6.
fn are_one_host(addresses: &[SocketAddr]) -> bool {
    match addresses {
        [one, other] => one.is_ipv4() != other.is_ipv4(),
        found => found.len() < 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_of_each_kind_may_be_one_host() {
        for (list, expected) in [
            (&["10.0.0.1:7531"][..], true),
            (&["10.0.0.1:7531", "[2001:db8::1]:7531"], true),
            (&["[2001:db8::1]:7531", "10.0.0.1:7531"], true),
            (&["10.0.0.1:7531", "10.0.0.2:7531"], false),
            (&["[2001:db8::1]:7531", "[2001:db8::2]:7531"], false),
            (&["10.0.0.1:7531", "[2001:db8::1]:7531", "10.0.0.2:7531"], false),
        ] {
            let addresses: Vec<SocketAddr> =
                list.iter().map(|one| one.parse().expect("an address")).collect();
            assert_eq!(are_one_host(&addresses), expected, "{list:?}");
        }
    }
}
