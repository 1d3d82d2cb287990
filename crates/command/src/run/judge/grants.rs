//! Grants: from when to when a daemon gives a run the lock, and why that ends. Two commands may run
//! at once for a known cause only, and with `--on-lost kill` for a known time.

use super::process::{Job, Process, Run};
use super::world::World;
use crate::run::line::Line;
use crate::run::plan::OnLost;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a grant ends, or why two are in force at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Cause {
    /// Given back: the command has ended.
    Released,
    /// The client has closed the connection.
    GivenUp,
    DaemonEnded,
    HostCrashed,
    /// The client's host was silent for too long: it sleeps, or the network is cut.
    Vanished,
    Freed,
    MaxHold,
    /// Each request has its own `-n`.
    WorkersDiffer,
    /// Another server has given the lock, by another list.
    ListsDiffer,
    /// The key's own server was passed over.
    ServerAway,
    /// A name's addresses are those of several servers.
    SeveralAddresses,
    /// One of IPv4 and one of IPv6.
    FamiliesDiffer,
    NameMoved,
    WithoutLock,
    /// The lock was lost between the look and the start.
    LostBeforeStart,
    /// A stopped `run` stops nothing.
    RunWasStopped,
    HostSlept,
}

impl Cause {
    /// The first column of its row, if it has one.
    pub(super) fn row(self) -> Option<&'static str> {
        Some(match self {
            Cause::Released => return None,
            Cause::GivenUp => "The first's `poolcounter run` is killed by `SIGKILL`.",
            Cause::DaemonEnded => "The daemon ends or crashes, and starts again.",
            Cause::HostCrashed | Cause::HostSlept => {
                "The daemon's host crashes and restarts, or the first's host sleeps."
            }
            Cause::Vanished => "The network between the daemon and the first is cut.",
            Cause::Freed | Cause::MaxHold => {
                "`max-hold` or an operator's `FREE` closes the first's connection."
            }
            Cause::WorkersDiffer => "`-n` differs.",
            Cause::ListsDiffer => {
                "The hosts' lists differ, if only in spelling (`10.1.2.3` and `10.1.2.3:7531`), \
                 or one has none and asks its own daemon."
            }
            Cause::ServerAway => "The key's own server drains, or can't be reached.",
            Cause::SeveralAddresses => {
                "A server's name has several addresses, with a daemon on each."
            }
            Cause::FamiliesDiffer => {
                "A server's name has an address of IPv4 and one of IPv6, with a daemon on each."
            }
            Cause::NameMoved => "A server's name moves to another daemon.",
            Cause::WithoutLock => "The second has `--no-server run`, and no server answers it.",
            Cause::LostBeforeStart => "The first's lock is lost while its command starts.",
            Cause::RunWasStopped => {
                "The first's `poolcounter run` alone is stopped, and its lock is lost."
            }
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) run: usize,
    pub(super) connection: usize,
    /// How many may hold the key beside it, by its request or by that whose slot it has inherited.
    pub(super) workers: u32,
    pub(super) ended: Option<GrantEnd>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct GrantEnd {
    pub(super) at: Duration,
    pub(super) cause: Cause,
    /// The client's kernel could not hear of it then.
    was_cut: bool,
}

/// What TCP's timers add until a client hears that its server's host is gone.
const HEARD_AFTER: Duration = Duration::from_secs(25);

/// For the steps of `run` itself, and ticks of timers.
const SLACK: Duration = Duration::from_millis(500);

impl World {
    /// Ends, for this cause, what daemons do not say is held any more.
    pub(super) fn end_grants(&mut self, cause: Cause) {
        for number in 0..self.grants.len() {
            let grant = &self.grants[number];
            if grant.ended.is_none() && !self.is_held(grant.connection) {
                let server = self.connections[grant.connection].server;
                let was_cut = !self.reaches(grant.run, server);
                self.grants[number].ended = Some(GrantEnd { at: self.now, cause, was_cut });
            }
        }
    }

    /// Why two commands run at once, for each pair that does.
    ///
    /// # Errors
    /// They may not.
    pub(super) fn check_overlaps(&self) -> Result<Vec<Cause>, String> {
        let mut causes = Vec::new();
        for later in 0..self.runs.len() {
            for earlier in 0..self.runs.len() {
                let job = |run: usize| self.runs[run].job.as_ref().filter(|job| job.runs());
                let (Some(first), Some(second)) = (job(earlier), job(later)) else { continue };
                if (first.started, earlier) < (second.started, later) {
                    causes.push(
                        self.cause(first, second).map_err(|why| {
                            format!("runs {earlier} and {later} run at once: {why}")
                        })?,
                    );
                }
            }
        }
        Ok(causes)
    }

    fn cause(&self, first: &Job, second: &Job) -> Result<Cause, String> {
        let (Some(of_first), Some(of_second)) = (first.grant, second.grant) else {
            return Ok(Cause::WithoutLock);
        };
        let grants = [(first, &self.grants[of_first]), (second, &self.grants[of_second])];
        let server = |grant: &Grant| self.connections[grant.connection].server;
        if server(grants[0].1) != server(grants[1].1) {
            return self.cause_of_other_servers(grants.map(|(_, grant)| grant.run));
        }
        let ended = grants.into_iter().filter(|(_, grant)| grant.ended.is_some());
        // Which ended first has let the other one in.
        match ended.min_by_key(|(_, grant)| grant.ended.map(|end| end.at)) {
            Some((job, grant)) => self.cause_of_end(job, grant, second.started.max(first.started)),
            None if grants.iter().any(|(_, grant)| grant.workers > 1) => Ok(Cause::WorkersDiffer),
            None => Err("both have the lock".to_owned()),
        }
    }

    /// Why two servers have given the lock to these runs.
    fn cause_of_other_servers(&self, runs: [usize; 2]) -> Result<Cause, String> {
        let [one, other] = runs.map(|run| &self.runs[run]);
        if one.plan().servers != other.plan().servers {
            return Ok(Cause::ListsDiffer);
        }
        let has_gone_on =
            |of: &Run| of.lines.iter().any(|line| matches!(line, Line::PassedOver(..)));
        let name = &self.names[0];
        let servers: BTreeSet<usize> =
            name.addresses.iter().map(|&at| self.server_of(at)).collect();
        let families = name.addresses.iter().map(SocketAddr::is_ipv4).collect::<BTreeSet<bool>>();
        match () {
            () if has_gone_on(one) || has_gone_on(other) => Ok(Cause::ServerAway),
            () if name.moved_at.is_some() => Ok(Cause::NameMoved),
            () if servers.len() > 1 && families.len() > 1 => Ok(Cause::FamiliesDiffer),
            () if servers.len() > 1 => Ok(Cause::SeveralAddresses),
            () => Err("two servers gave the lock".to_owned()),
        }
    }

    fn cause_of_end(
        &self,
        job: &Job,
        grant: &Grant,
        both_since: Duration,
    ) -> Result<Cause, String> {
        let GrantEnd { at: ended, cause, was_cut } = grant.ended.expect("an end");
        let heard = self.connections[grant.connection].ended_at;
        if heard.is_some_and(|heard| heard < job.looked) {
            return Err(format!("the lock was lost before the start had looked: {cause:?}"));
        }
        let of = &self.runs[grant.run];
        if heard.is_some_and(|heard| heard <= job.started) {
            return Ok(Cause::LostBeforeStart);
        }
        if matches!(cause, Cause::Released | Cause::GivenUp) && of.process == Process::Lives {
            return Err(format!("it was given back at {ended:?}, and the command runs: {cause:?}"));
        }
        if of.was_disturbed || of.options.is_foreign || of.process != Process::Lives {
            return Ok(match cause {
                _ if self.hosts[grant.run].has_slept() => Cause::HostSlept,
                _ if of.was_disturbed => Cause::RunWasStopped,
                cause => cause,
            });
        }
        let OnLost::Kill { after } = of.plan().on_lost else { return Ok(cause) };
        let more = match cause {
            // Heard of long before the daemon hands the lock on.
            Cause::Vanished => return Err("it was lost long ago".to_owned()),
            _ if was_cut => HEARD_AFTER,
            _ => Duration::ZERO,
        };
        let since = ended.max(both_since);
        if self.now > since + after + more + SLACK {
            return Err(format!(
                "since {since:?}, for longer than {after:?} and {more:?}: {cause:?}"
            ));
        }
        Ok(cause)
    }
}
