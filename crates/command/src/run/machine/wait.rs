//! Gets the lock: goes through the servers that may be asked, and begins a wait again whose
//! connection is lost, as long as there is time.

use super::{ANSWER_TIMEOUT, Machine, State};
use crate::run::act::{Act, Failure, FailureKind, NoReply, Uptime};
use crate::run::line::{Line, NoLock};
use crate::run::moment::Moment;
use crate::run::plan::Talk;
use crate::run::request::wait_s;
use connect::ServerName;
use protocol::Reply;
use std::net::SocketAddr;
use std::time::Duration;

/// A server that has kept a request for so long is there: one that ends at once was not.
const THERE_AFTER: Duration = Duration::from_secs(2);

/// How long a server may take to accept a connection for a question about itself.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// Empty before it is looked up.
    addresses: Vec<SocketAddr>,
    /// Where it was asked.
    last: Option<SocketAddr>,
    /// Nothing while it is there: it has answered, or kept a request for a while.
    away: Option<Away>,
}

/// A server that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Away {
    /// When the first attempt began that has failed, or a loss was noticed.
    since: Moment,
    /// When it counts as down.
    until: Moment,
    /// It has lost a wait since.
    has_lost: bool,
}

/// An attempt to connect to each address of a server, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Round {
    began: Moment,
    until: Moment,
    address: SocketAddr,
    /// Those that follow.
    rest: Vec<SocketAddr>,
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
    /// After an attempt that had followed another loss.
    has_lost_before: bool,
    looks: u32,
}

impl Visit {
    /// Where to try. Another address than the last one may be that of another server, which has run
    /// for longer; others that waited come back to the last one too. So the rest of them is tried
    /// in the second half of the time.
    fn tried_addresses(&self, now: Moment) -> Vec<SocketAddr> {
        let is_early = |away: Away| now.since(away.since) < away.until.since(away.since) / 2;
        match (self.last, self.away) {
            (Some(last), Some(away)) if is_early(away) => vec![last],
            _ => self.addresses.clone(),
        }
    }
}

impl Machine {
    pub(super) fn visit_next(&mut self, now: Moment) -> Act {
        if let Some(server) = self.plan.servers.get(self.passed_over.len()).cloned() {
            let visit = Visit { server, addresses: Vec::new(), last: None, away: None };
            return self.try_again(visit, now);
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

    /// Since when a server is away, of which that is known by now.
    fn away(&self, visit: &Visit, since: Moment) -> Away {
        let until = since + self.plan.tolerated(self.time_left(since));
        visit.away.unwrap_or(Away { since, until, has_lost: false })
    }

    /// Looks the server up, or connects to it.
    pub(super) fn try_again(&mut self, visit: Visit, now: Moment) -> Act {
        let until = self.away(&visit, now).until.max(now + RETRY_INTERVAL);
        if visit.addresses.is_empty() {
            let act = Act::LookUp { server: visit.server.clone(), until };
            return self.enter(State::LookingUp(visit, now), act);
        }
        let mut addresses = visit.tried_addresses(now).into_iter();
        let address = addresses.next().expect("an address");
        self.connect(visit, Round { began: now, until, address, rest: addresses.collect() }, now)
    }

    pub(super) fn looked_up(
        &mut self,
        mut visit: Visit,
        began: Moment,
        found: Result<Vec<SocketAddr>, Failure>,
        now: Moment,
    ) -> Act {
        match found {
            // A resolver does not say whether time changes it.
            Err(why) => self.failed(visit, began, why, now),
            Ok(all) if !self.plan.has_fallback && !are_one_host(&all) => {
                self.without_lock(NoLock::SeveralAddresses(visit.server, all))
            }
            Ok(all) => {
                visit.addresses = all;
                self.try_again(visit, now)
            }
        }
    }

    /// The addresses share the time: one that is silent leaves the next its part.
    fn connect(&mut self, visit: Visit, round: Round, now: Moment) -> Act {
        let part = round.until.since(now) / (1 + round.rest.len()) as u32;
        let act = Act::Connect { address: round.address, until: now + part };
        self.enter(State::Connecting(visit, round), act)
    }

    pub(super) fn connected(
        &mut self,
        visit: Visit,
        mut round: Round,
        result: Result<(), Failure>,
        now: Moment,
    ) -> Act {
        let why = match result {
            Ok(()) => return self.ask(visit, round.address, now),
            Err(why) => why,
        };
        if !round.rest.is_empty() {
            round.address = round.rest.remove(0);
            return self.connect(visit, round, now);
        }
        let why =
            Failure { address: Some(round.address).filter(|_| !visit.server.is_numeric()), ..why };
        if why.kind == FailureKind::Lasting {
            return self.pass_over(visit.server, why, now);
        }
        self.failed(visit, round.began, why, now)
    }

    /// An attempt has failed that began then.
    fn failed(&mut self, mut visit: Visit, began: Moment, why: Failure, now: Moment) -> Act {
        let away = self.away(&visit, began);
        let is_first = visit.away.is_none();
        visit.away = Some(away);
        let left = away.until.since(now);
        if left.is_zero() {
            return self.pass_over(visit.server, why, now);
        }
        if is_first {
            let tried_for = away.until.since(away.since);
            self.say(Line::Retries { server: visit.server.clone(), why, tried_for });
        }
        let act = Act::Pause { until: now + RETRY_INTERVAL.min(left) };
        self.enter(State::Retrying(visit), act)
    }

    /// Asks for the lock, with the time that is left.
    fn ask(&mut self, mut visit: Visit, address: SocketAddr, now: Moment) -> Act {
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
        let is_late = !is_closed && self.time_left(now) == Some(Duration::ZERO);
        if why.kind == FailureKind::Lasting || is_late {
            return self.lost_for_good(visit.server, why);
        }
        if self.plan.talk == Talk::Verbose {
            self.say(Line::WaitLost(visit.server.clone(), why.clone()));
        }
        self.lost = Some((visit.server.clone(), why));
        if asked.had_lock || now.since(asked.at) >= THERE_AFTER {
            visit.away = None;
        }
        // One that ends again and again does not gain time by that.
        let away = self.away(&visit, now);
        visit.away = Some(Away { has_lost: true, ..away });
        let examination = Examination { asked, has_lost_before: away.has_lost, looks: 0 };
        if is_closed {
            return self.examine(visit, examination, now);
        }
        self.recover(visit, examination, now)
    }

    pub(super) fn examine(&mut self, visit: Visit, examination: Examination, now: Moment) -> Act {
        let Asked { address, at, .. } = examination.asked;
        let act = Act::AskUptime { address, since: at, until: now + LOOK_TIMEOUT };
        self.enter(State::Examining(visit, examination), act)
    }

    pub(super) fn examined(
        &mut self,
        visit: Visit,
        examination: Examination,
        uptime: Uptime,
        now: Moment,
    ) -> Act {
        let Examination { asked, looks, .. } = examination;
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
                self.pass_over(visit.server, Failure::down(text), now)
            }
            Uptime::HasEnded => self.recover(visit, examination, now),
        }
    }

    /// Asks again, after a moment.
    fn recover(&mut self, visit: Visit, examination: Examination, now: Moment) -> Act {
        let is_over = visit.away.is_some_and(|away| away.until <= now);
        if is_over && examination.has_lost_before {
            let text = "it ends again and again".to_owned();
            return self.pass_over(visit.server, Failure::down(text), now);
        }
        self.enter(State::Retrying(visit), Act::Pause { until: now + RETRY_INTERVAL })
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
