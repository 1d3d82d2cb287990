//! Which clients are admitted: `--allow`, `--max-connections`, `--max-connections-per-ip`, and
//! the count of connections of each address. Other connections are closed once accepted, without
//! any of the states in `connections.rs`, counted separately, and logged at a limited rate.
//!
//! A newcomer at a limit is held first. Its host may have closed another connection before, whose
//! end the daemon has not seen: an event tells of it later than accept(2) tells of the newcomer.

use crate::clients::connection::Connection;
use crate::clients::known_ends::KnownEnds;
use crate::options::Options;
use crate::platform::clock;
use crate::platform::os::SHARES_PER_TURN;
use crate::platform::os::fd::OwnedFd;
use crate::sockets::socket::{Socket, peer_address};
use engine::Time;
use ipnet::IpNet;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

/// What to do with a new client.
pub(crate) enum Verdict {
    Admitted,
    /// It is refused unless another client turns out to have left.
    AtLimit(Refusal),
    Refused(Refusal),
    HasLeft,
}

/// Why a new client is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not in `--allow`.
    Denied(IpAddr),
    /// `--max-connections` is reached.
    Full,
    /// `--max-connections-per-ip` is reached by this host.
    FullForHost(IpAddr),
}

/// How long a newcomer at a limit is held, at most.
const HELD_MS: u64 = 1_000;

/// How many newcomers are held at a time: as many as a turn accepts, if there are descriptors.
const HELD_MAX: usize = SHARES_PER_TURN * 4 / 5;

/// New clients at a limit, oldest first.
#[derive(Default)]
pub(crate) struct Newcomers(VecDeque<Newcomer>);

/// A new client at a limit.
pub(crate) struct Newcomer {
    pub(crate) socket: Socket,
    pub(crate) ip: Option<IpAddr>,
    /// The limit that is reached.
    why: Refusal,
    until: Time,
    /// A wait for events that began after it was accepted has returned all that there were: the
    /// end of each connection that was closed before is known.
    knows_ends: bool,
}

impl Newcomers {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Holds another one.
    pub(crate) fn hold(&mut self, socket: Socket, why: Refusal) {
        let ip = peer_address(&socket).map(|address| address.ip()).ok();
        let until = clock::now().plus_ns(HELD_MS * 1_000_000);
        self.0.push_back(Newcomer { socket, ip, why, until, knows_ends: false });
    }

    /// Gives up a newcomer if more are held than there are descriptors for: the newest newcomer of
    /// the host that has the most, so that no host crowds out another.
    pub(crate) fn give_up_one(&mut self, descriptors: usize) -> Option<Newcomer> {
        if self.0.len() <= HELD_MAX.min(descriptors) {
            return None;
        }
        let mut by_host = BTreeMap::<_, (usize, usize)>::new();
        for (place, newcomer) in self.0.iter().enumerate() {
            let (count, newest) = by_host.entry(newcomer.ip).or_default();
            (*count, *newest) = (*count + 1, place);
        }
        let (_, newest) = by_host.into_values().max()?;
        self.0.remove(newest)
    }

    /// Goes on holding one, at the limit that is reached now.
    pub(crate) fn hold_on(&mut self, newcomer: Newcomer, why: Refusal) {
        self.0.push_back(Newcomer { why, ..newcomer });
    }

    pub(crate) fn pop(&mut self) -> Option<Newcomer> {
        self.0.pop_front()
    }

    /// Notes that one from `ip` is served, which may have left already: the next wait for events
    /// tells those that wait for the same place.
    pub(crate) fn record_served(&mut self, ip: Option<IpAddr>) {
        let waits = |it: &&mut Newcomer| it.ip == ip || it.why == Refusal::Full;
        self.0.iter_mut().filter(waits).for_each(|newcomer| newcomer.knows_ends = false);
    }

    /// Notes that a wait for events has returned all that there were.
    pub(crate) fn record_all_events(&mut self) {
        self.0.iter_mut().for_each(|newcomer| newcomer.knows_ends = true);
    }
}

impl Newcomer {
    /// Whether it is refused now if there is no place, while these `ends` are to be handled.
    pub(super) fn has_waited(&self, ends: &KnownEnds, now: Time) -> bool {
        self.knows_ends && ends.is_empty() || self.until <= now
    }
}

/// The rules and the state that they need.
pub(crate) struct Admission {
    connections_max: usize,
    allowed: Vec<IpNet>,
    per_ip_max: Option<usize>,
    /// Maintained only if there is a limit per address.
    connections_by_ip: HashMap<IpAddr, usize>,
    /// Each client's address is noted at once, so that `--slow` can name a client whose
    /// connection has broken.
    notes_addresses: bool,
}

impl Admission {
    pub(crate) fn new(options: &Options) -> Self {
        Admission {
            connections_max: options.max_connections.unwrap_or(usize::MAX),
            allowed: options.allow.clone(),
            per_ip_max: options.max_connections_per_ip,
            connections_by_ip: HashMap::new(),
            notes_addresses: options.slow_ns.is_some(),
        }
    }

    /// What to do with a new client while `open` clients are served.
    pub(crate) fn judge(&self, socket: &OwnedFd, open: usize) -> Verdict {
        if open >= self.connections_max {
            return Verdict::AtLimit(Refusal::Full);
        }
        // The address costs a system call, so it is looked up only for a rule.
        if self.allowed.is_empty() && self.per_ip_max.is_none() {
            return Verdict::Admitted;
        }
        // A client that has left already is not served: that would still read its requests.
        let Ok(ip) = peer_address(socket).map(|address| address.ip()) else {
            return Verdict::HasLeft;
        };
        if !self.allowed.is_empty() && !self.allowed.iter().any(|net| net.contains(&ip)) {
            return Verdict::Refused(Refusal::Denied(ip));
        }
        let connections = self.connections_by_ip.get(&ip).copied().unwrap_or(0);
        if self.per_ip_max.is_some_and(|max| connections >= max) {
            return Verdict::AtLimit(Refusal::FullForHost(ip));
        }
        Verdict::Admitted
    }

    /// Counts a new connection.
    pub(crate) fn count_opened(&mut self, connection: &Connection) {
        if self.notes_addresses || self.per_ip_max.is_some() {
            connection.record_origin();
        }
        if let (Some(ip), Some(_)) = (connection.ip(), self.per_ip_max) {
            *self.connections_by_ip.entry(ip).or_default() += 1;
        }
    }

    /// Uncounts a connection that is closed.
    pub(crate) fn count_closed(&mut self, connection: &Connection) {
        let Some(ip) = connection.ip() else {
            return;
        };
        if let Some(connections) = self.connections_by_ip.get_mut(&ip) {
            *connections -= 1;
            if *connections == 0 {
                self.connections_by_ip.remove(&ip);
            }
        }
    }

    /// Frees memory after many clients have left.
    pub(crate) fn shrink(&mut self) {
        self.connections_by_ip.shrink_to_fit();
    }
}
