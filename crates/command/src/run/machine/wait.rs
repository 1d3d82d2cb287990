//! Gets the lock: goes through the servers that may be asked, and begins a wait again whose
//! connection is lost, as long as there is time.

use super::{ANSWER_TIMEOUT, Machine, State};
use crate::run::act::{Act, Failure, FailureKind, NoReply, Uptime};
use crate::run::line::{Line, NoLock};
use crate::run::moment::Moment;
use crate::run::plan::{TOLERATED_MIN, Talk};
use crate::run::request::wait_s;
use connect::ServerName;
use protocol::Reply;
use std::net::SocketAddr;
use std::time::Duration;

/// Between two attempts to connect to a server.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How often to look at a server that closes new connections too: a process that ends may close
/// its listener last.
const LOOKS: u32 = 4;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A server that is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Visit {
    pub(super) server: ServerName,
    all: Vec<SocketAddr>,
    /// Where the server was that has lost a wait. Another address may be that of another server,
    /// which has run for longer; others that waited come back to this one too.
    last: Option<SocketAddr>,
    /// How long it may accept no connection.
    until: Moment,
    /// The same, since it has lost a wait for the first time in a row: one that ends again and
    /// again does not gain time by that.
    lost_until: Option<Moment>,
}

/// An attempt to connect to each address of a server, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Round {
    /// Which address is tried.
    number: usize,
    until: Moment,
}

/// A question for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    address: SocketAddr,
    at: Moment,
    had_lock: bool,
}

/// Whether a server still runs that has closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Examination {
    asked: Asked,
    lost_at: Moment,
    looks: u32,
}

impl Visit {
    fn addresses(&self) -> &[SocketAddr] {
        self.last.as_ref().map_or(&self.all[..], std::slice::from_ref)
    }
}

impl Machine {
    /// How long the next server may accept no connection.
    fn tolerated(&self, now: Moment) -> Duration {
        self.plan.tolerated(self.time_left(now))
    }

    pub(super) fn visit_next(&mut self, now: Moment) -> Act {
        if let Some(server) = self.plan.servers.get(self.passed_over.len()).cloned() {
            let until = now + self.tolerated(now).max(TOLERATED_MIN);
            let act = Act::LookUp { server: server.clone(), until };
            return self.enter(State::LookingUp(server), act);
        }
        match self.lost.take() {
            Some((server, why)) => self.lost_for_good(server, why),
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

    pub(super) fn looked_up(
        &mut self,
        server: ServerName,
        found: Result<Vec<SocketAddr>, Failure>,
        now: Moment,
    ) -> Act {
        match found {
            Err(why) => self.pass_over(server, why, now),
            Ok(all) if !self.plan.has_fallback && !are_one_host(&all) => {
                self.without_lock(NoLock::SeveralAddresses(server, all))
            }
            Ok(all) => {
                let until = now + self.tolerated(now);
                let visit = Visit { server, all, last: None, until, lost_until: None };
                self.begin_round(visit, now)
            }
        }
    }

    pub(super) fn begin_round(&mut self, visit: Visit, now: Moment) -> Act {
        let time = visit.until.since(now).max(RETRY_INTERVAL);
        self.connect(visit, Round { number: 0, until: now + time }, now)
    }

    /// The addresses share the time: one that is silent leaves the next its part.
    fn connect(&mut self, visit: Visit, round: Round, now: Moment) -> Act {
        let addresses = visit.addresses();
        let part = round.until.since(now) / (addresses.len() - round.number) as u32;
        let act = Act::Connect { address: addresses[round.number], until: now + part };
        self.enter(State::Connecting(visit, round), act)
    }

    pub(super) fn connected(
        &mut self,
        mut visit: Visit,
        round: Round,
        result: Result<(), Failure>,
        now: Moment,
    ) -> Act {
        let why = match result {
            Ok(()) => return self.ask(visit, round, now),
            Err(why) => why,
        };
        if round.number + 1 < visit.addresses().len() {
            return self.connect(visit, Round { number: round.number + 1, ..round }, now);
        }
        let left = visit.until.since(now);
        if why.kind != FailureKind::Lasting && !left.is_zero() {
            let act = Act::Pause { until: now + RETRY_INTERVAL.min(left) };
            return self.enter(State::Retrying(visit), act);
        }
        if visit.last.take().is_some() && visit.all.len() > 1 {
            visit.until = now + self.tolerated(now);
            return self.begin_round(visit, now);
        }
        self.pass_over(visit.server, why, now)
    }

    /// Asks for the lock, with the time that is left.
    fn ask(&mut self, mut visit: Visit, round: Round, now: Moment) -> Act {
        let address = visit.addresses()[round.number];
        visit.last = Some(address);
        let wait_s = self.time_left(now).map(wait_s);
        let until = wait_s.map(|wait_s| now + Duration::from_secs(wait_s) + ANSWER_TIMEOUT);
        let act = Act::Ask { server: visit.server.clone(), wait_s, until };
        self.enter(State::Asking(visit, Asked { address, at: now, had_lock: false }), act)
    }

    pub(super) fn answered(
        &mut self,
        visit: Visit,
        asked: Asked,
        answer: Result<Reply, NoReply>,
        now: Moment,
    ) -> Act {
        match answer {
            Ok(Reply::Locked) => {
                if !self.passed_over.is_empty() {
                    self.say(Line::GaveTheLock(visit.server.clone()));
                }
                if self.plan.is_any && self.plan.talk == Talk::Verbose {
                    self.say(Line::NobodyDidTheWork);
                }
                let asked = Asked { had_lock: true, ..asked };
                self.enter(State::Starting(visit, asked), Act::StartIfHeld)
            }
            Ok(reply) => self.refused(visit.server, reply),
            Err(why) => self.has_no_answer(visit, asked, why, now),
        }
    }

    pub(super) fn has_no_answer(
        &mut self,
        visit: Visit,
        asked: Asked,
        why: NoReply,
        now: Moment,
    ) -> Act {
        let why = match why {
            NoReply::Unexpected(answer) => return self.without_lock(NoLock::Unexpected(answer)),
            NoReply::Failed(why) => why,
        };
        let is_closed = why.kind == FailureKind::Closed;
        let is_late = !is_closed && self.time_left(now) == Some(Duration::ZERO);
        if why.kind == FailureKind::Lasting || is_late {
            return self.lost_for_good(visit.server, why);
        }
        if self.plan.talk == Talk::Verbose {
            self.say(Line::WaitLost(visit.server.clone(), why.clone()));
        }
        self.lost = Some((visit.server.clone(), why));
        if is_closed {
            return self.examine(visit, Examination { asked, lost_at: now, looks: 0 }, now);
        }
        self.recover(visit, asked, now, now)
    }

    pub(super) fn examine(&mut self, visit: Visit, examination: Examination, now: Moment) -> Act {
        let Asked { address, at, .. } = examination.asked;
        let act = Act::AskUptime { address, since: at, until: now + TOLERATED_MIN };
        self.enter(State::Examining(visit, examination), act)
    }

    pub(super) fn examined(
        &mut self,
        visit: Visit,
        examination: Examination,
        uptime: Uptime,
        now: Moment,
    ) -> Act {
        let Examination { asked, lost_at, looks } = examination;
        match uptime {
            Uptime::Closed if looks + 1 < LOOKS => {
                let examination = Examination { looks: looks + 1, ..examination };
                let act = Act::Pause { until: now + LOOK_INTERVAL };
                self.enter(State::BetweenLooks(visit, examination), act)
            }
            Uptime::RunsSince | Uptime::Closed => self.without_lock(NoLock::TurnedAway {
                server: visit.server,
                had_lock: asked.had_lock,
            }),
            Uptime::Silent => {
                let text = "it accepts connections, but does not answer".to_owned();
                self.pass_over(visit.server, Failure { kind: FailureKind::Down, text }, now)
            }
            Uptime::HasEnded => self.recover(visit, asked, lost_at, now),
        }
    }

    /// Asks again, after a moment.
    fn recover(&mut self, mut visit: Visit, asked: Asked, lost_at: Moment, now: Moment) -> Act {
        let has_waited = lost_at.since(asked.at) >= TOLERATED_MIN;
        let began = visit.lost_until.filter(|_| !has_waited);
        visit.until = began.unwrap_or_else(|| now + self.tolerated(now));
        visit.lost_until = Some(visit.until);
        self.enter(State::Recovering(visit), Act::Pause { until: now + RETRY_INTERVAL })
    }

    pub(super) fn recovered(&mut self, visit: Visit, now: Moment) -> Act {
        if now >= visit.until {
            let text = "it ends again and again".to_owned();
            return self.pass_over(visit.server, Failure { kind: FailureKind::Down, text }, now);
        }
        self.begin_round(visit, now)
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
