//! Connections that break at the same moment: one by one they are usual, and many have one cause,
//! which the log tells in one line.

use crate::logging::rate_limit::limited;
use crate::platform::os::SHARES_PER_TURN;
use crate::platform::os::io::Errno;
use engine::ClientId;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// So many in a turn are a crowd. (The simulation's turns are shorter.)
const CROWD: usize = if SHARES_PER_TURN < 10 { SHARES_PER_TURN } else { 10 };

/// How many hosts the log names.
const HOSTS_NAMED: usize = 3;

/// The connections that broke lately.
#[derive(Default)]
pub(super) struct Losses {
    /// In this turn.
    lost: Vec<(ClientId, Errno)>,
    /// In this turn and in those before it, if all had a crowd.
    by_reason: BTreeMap<&'static str, usize>,
    by_host: BTreeMap<Option<IpAddr>, usize>,
}

impl Losses {
    pub(super) fn add(&mut self, client: ClientId, e: Errno) {
        self.lost.push((client, e));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.by_reason.is_empty()
    }

    /// Ends a turn, while the connections are still open: `ip_of` tells where a client came from. A
    /// crowd that `goes_on` in the next turn, which begins at once, is logged there.
    pub(super) fn end_turn(&mut self, goes_on: bool, ip_of: impl Fn(ClientId) -> Option<IpAddr>) {
        let lost = std::mem::take(&mut self.lost);
        let is_crowd = lost.len() >= CROWD;
        if is_crowd {
            for (client, e) in lost {
                *self.by_reason.entry(reason(e)).or_default() += 1;
                *self.by_host.entry(ip_of(client)).or_default() += 1;
            }
        }
        if self.by_reason.is_empty() || is_crowd && goes_on {
            return;
        }
        self.log();
        *self = Losses::default();
    }

    fn log(&self) {
        limited!(
            warn,
            "{} connections broke at once: {}; from {}",
            self.by_reason.values().sum::<usize>(),
            self.reasons(),
            self.hosts()
        );
    }

    fn reasons(&self) -> String {
        let mut reasons: Vec<_> = self.by_reason.iter().collect();
        reasons.sort_by_key(|&(_, count)| Reverse(count));
        let texts: Vec<String> =
            reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        texts.join(", ")
    }

    fn hosts(&self) -> String {
        let mut hosts: Vec<_> = self.by_host.iter().collect();
        hosts.sort_by_key(|&(_, count)| Reverse(count));
        let name = |ip: Option<IpAddr>| ip.map_or("unknown".to_owned(), |ip| ip.to_string());
        let mut texts: Vec<String> = hosts
            .iter()
            .take(HOSTS_NAMED)
            .map(|&(&ip, count)| format!("{} ({count})", name(ip)))
            .collect();
        match hosts.len().saturating_sub(HOSTS_NAMED) {
            0 => {}
            1 => texts.push("one other host".to_owned()),
            others => texts.push(format!("{others} other hosts")),
        }
        texts.join(", ")
    }
}

/// What has happened, by the error of recv(2) or send(2).
fn reason(e: Errno) -> &'static str {
    match e {
        Errno::TIMEDOUT => "did not respond (ETIMEDOUT)",
        Errno::HOSTUNREACH => "could not be reached (EHOSTUNREACH)",
        Errno::NETUNREACH => "could not be reached (ENETUNREACH)",
        Errno::CONNRESET => "were reset (ECONNRESET)",
        Errno::PIPE => "had left before an answer (EPIPE)",
        _ => "failed otherwise",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn client(slot: u32) -> ClientId {
        ClientId { slot, serial: slot }
    }

    fn with(count: u32, errors: &[Errno], hosts: u8) -> Losses {
        let mut losses = Losses::default();
        (0..count).for_each(|n| losses.add(client(n), errors[n as usize % errors.len()]));
        let ip_of = |client: ClientId| {
            let host = client.slot as u8 % hosts;
            (host > 0).then(|| IpAddr::from([10, 0, 0, host]))
        };
        losses.end_turn(true, ip_of);
        losses
    }

    #[test]
    fn a_crowd_is_told_by_reason_and_host() {
        let losses = with(11, &[Errno::TIMEDOUT, Errno::TIMEDOUT, Errno::CONNRESET], 2);
        assert_eq!(losses.reasons(), "8 did not respond (ETIMEDOUT), 3 were reset (ECONNRESET)");
        assert_eq!(losses.hosts(), "unknown (6), 10.0.0.1 (5)");
        let losses = with(10, &[Errno::PIPE], 4);
        assert_eq!(losses.hosts(), "unknown (3), 10.0.0.1 (3), 10.0.0.2 (2), one other host");
        let losses = with(100, &[Errno::PIPE], 10);
        assert_eq!(losses.hosts(), "unknown (10), 10.0.0.1 (10), 10.0.0.2 (10), 7 other hosts");
    }

    #[test]
    fn few_are_not_told_and_nobody_asks_where_they_came_from() {
        let mut losses = with(CROWD as u32 - 1, &[Errno::CONNRESET], 2);
        assert!(losses.by_reason.is_empty() && losses.lost.is_empty());
        let asked = Cell::new(0);
        losses.add(client(1), Errno::CONNRESET);
        losses.end_turn(false, |_| {
            asked.set(asked.get() + 1);
            None
        });
        assert_eq!(asked.get(), 0);
    }

    #[test]
    fn a_crowd_of_several_turns_is_one() {
        let mut losses = with(300, &[Errno::TIMEDOUT], 2);
        (0..300).for_each(|n| losses.add(client(n), Errno::TIMEDOUT));
        losses.end_turn(true, |_| None);
        assert_eq!(losses.reasons(), "600 did not respond (ETIMEDOUT)");
        losses.end_turn(true, |_| None);
        assert!(losses.by_reason.is_empty());
    }
}
