//! Connections that break at the same moment: one by one they are usual, and many have one cause,
//! which the log tells in one line.

use crate::logging::rate_limit::{RateLimit, limit_of};
use crate::platform::os::SHARES_PER_TURN;
use crate::platform::os::io::Errno;
use engine::ClientId;
use log::warn;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// So many in a turn are a crowd. (The simulation's turns are shorter.)
const CROWD: usize = if SHARES_PER_TURN < 10 { SHARES_PER_TURN } else { 10 };

/// How many hosts the log names.
const HOSTS_NAMED: usize = 3;

/// How often a crowd is told.
static LIMIT: RateLimit = limit_of!(warn, "{} connections broke at once: {}; from {}");

/// The connections that broke lately.
#[derive(Default)]
pub(super) struct Losses {
    /// In this turn.
    lost: Vec<(ClientId, Errno)>,
    /// The crowd of this turn and of the turns before it, if each of them had a crowd.
    crowd: Option<Crowd>,
}

enum Crowd {
    /// The log has told of another one just before.
    Dropped,
    Told(Told),
}

/// What the log tells.
#[derive(Default)]
struct Told {
    by_reason: BTreeMap<&'static str, usize>,
    by_host: BTreeMap<Option<IpAddr>, usize>,
}

impl Losses {
    pub(super) fn add(&mut self, client: ClientId, e: Errno) {
        self.lost.push((client, e));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.crowd.is_none()
    }

    /// Ends a turn, while the connections are still open: `ip_of` tells where a client came from,
    /// and is asked only if a line tells it, because it costs two system calls. A crowd that
    /// `goes_on` in the next turn, which begins at once, is logged there.
    pub(super) fn end_turn(&mut self, goes_on: bool, ip_of: impl Fn(ClientId) -> Option<IpAddr>) {
        let lost = std::mem::take(&mut self.lost);
        let is_crowd = lost.len() >= CROWD;
        if is_crowd {
            if let Crowd::Told(told) = self.crowd.get_or_insert_with(Crowd::new) {
                lost.into_iter().for_each(|(client, e)| told.add(e, ip_of(client)));
            }
        }
        if is_crowd && goes_on {
            return;
        }
        if let Some(Crowd::Told(told)) = self.crowd.take() {
            if let Some(suppressed) = LIMIT.allow() {
                warn!(
                    "{} connections broke at once: {}; from {}",
                    told.by_reason.values().sum::<usize>(),
                    told.reasons(),
                    told.hosts() + &suppressed
                );
            }
        }
    }
}

impl Crowd {
    fn new() -> Self {
        if LIMIT.admits() { Crowd::Told(Told::default()) } else { Crowd::Dropped }
    }
}

impl Told {
    fn add(&mut self, e: Errno, ip: Option<IpAddr>) {
        *self.by_reason.entry(reason(e)).or_default() += 1;
        *self.by_host.entry(ip).or_default() += 1;
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
    use crate::logging::rate_limit::forget;
    use std::cell::Cell;

    fn told(count: u32, errors: &[Errno], hosts: u8) -> Told {
        let mut told = Told::default();
        for n in 0..count {
            let host = n as u8 % hosts;
            let ip = (host > 0).then(|| IpAddr::from([10, 0, 0, host]));
            told.add(errors[n as usize % errors.len()], ip);
        }
        told
    }

    #[test]
    fn a_crowd_is_told_by_reason_and_host() {
        let both = told(11, &[Errno::TIMEDOUT, Errno::TIMEDOUT, Errno::CONNRESET], 2);
        assert_eq!(both.reasons(), "8 did not respond (ETIMEDOUT), 3 were reset (ECONNRESET)");
        assert_eq!(both.hosts(), "unknown (6), 10.0.0.1 (5)");
        let one_other = told(10, &[Errno::PIPE], 4).hosts();
        assert_eq!(one_other, "unknown (3), 10.0.0.1 (3), 10.0.0.2 (2), one other host");
        let others = told(100, &[Errno::PIPE], 10).hosts();
        assert_eq!(others, "unknown (10), 10.0.0.1 (10), 10.0.0.2 (10), 7 other hosts");
    }

    /// Adds so many in a turn, and returns how often the log asks where they came from.
    fn asked(losses: &mut Losses, count: usize, goes_on: bool) -> usize {
        let asked = Cell::new(0);
        (0..count).for_each(|_| losses.add(ClientId { slot: 1, serial: 1 }, Errno::CONNRESET));
        losses.end_turn(goes_on, |_| {
            asked.set(asked.get() + 1);
            None
        });
        asked.get()
    }

    #[test]
    fn nobody_asks_where_they_came_from_without_a_line_that_tells() {
        let _alone = crate::simulation::alone();
        forget();
        let mut losses = Losses::default();
        assert_eq!(asked(&mut losses, CROWD - 1, false), 0);
        assert!(losses.is_empty());
        // One crowd of several turns.
        assert_eq!(asked(&mut losses, 300, true), 300);
        assert_eq!(asked(&mut losses, 200, true), 200);
        assert!(!losses.is_empty());
        assert_eq!(asked(&mut losses, 1, false), 0);
        assert!(losses.is_empty());
        // Within ten seconds, another one.
        assert_eq!(asked(&mut losses, 300, true) + asked(&mut losses, 300, false), 0);
        assert!(losses.is_empty());
    }
}
