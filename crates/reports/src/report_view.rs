//! `ReportView`, all that a report may look at; times, durations, modes, keys, names and
//! addresses as text; nanoseconds as seconds.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt::{self, Display, Formatter};
use engine::{ClientId, Engine, Time};
use jiff::Timestamp;
use protocol::{Mode, Subject, key_text_cut};
use schema::reports::ProcessFigures;
use schema::words::{HIDDEN, Kind};

/// The most rows of a list, however many are requested, so that no answer exceeds what a
/// client may leave unread.
pub const ROWS_MAX: usize = 200;

/// How long the rows of a list in JSON are together: an answer must not exceed what a client may
/// leave unread, 64 KiB.
pub(super) const ROWS_BYTES_MAX: usize = 60 << 10;

/// What reports are made of.
#[derive(Clone, Copy)]
pub struct ReportView<'a> {
    /// Locks and statistics.
    pub engine: &'a Engine,
    /// When the report is made.
    pub now: Time,
    /// The same moment on the wall clock, in nanoseconds since 1970: for display only.
    pub wall_ns: u64,
    /// Finds the address of a client.
    pub peers: &'a dyn Peers,
    /// Keys and addresses are not shown.
    pub is_private: bool,
}

/// Finds the clients' addresses.
pub trait Peers {
    /// The address of `client` with its port, as logs show it. `None` if it has gone.
    fn peer(&self, client: ClientId) -> Option<String>;
}

/// In lists, keys are cut to this length.
pub(super) const KEY_BYTES_MAX: usize = 128;

/// Nanoseconds, shown as `2.500000s`; from one minute as `1m 2.500000s`, from one
/// hour as `1h 0m 2.500000s`, from one day as `1 days 0h 0m 2.500000s`.
pub(super) struct Seconds(pub(super) u128);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let us = self.0 / 1_000;
        let s = us / 1_000_000;
        if s >= 86_400 {
            write!(f, "{} days ", s / 86_400)?;
        }
        if s >= 3_600 {
            write!(f, "{}h ", s / 3_600 % 24)?;
        }
        if s >= 60 {
            write!(f, "{}m ", s / 60 % 60)?;
        }
        write!(f, "{}.{:06}s", s % 60, us % 1_000_000)
    }
}

/// A mode, as rows and labels spell it.
pub(super) fn kind_of(mode: Mode) -> Kind {
    match mode {
        Mode::ForMe => Kind::Me,
        Mode::ForAnyone => Kind::Anyone,
    }
}

/// Nanoseconds since 1970 as `2026-11-21T18:03:07.250Z` (ISO 8601).
pub(super) fn iso_8601(wall_ns: u64) -> String {
    let ms = (wall_ns / 1_000_000) as i64;
    // 64 bits of nanoseconds reach to 2554, a `Timestamp` to 9999.
    let moment = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{moment:.3}")
}

impl ReportView<'_> {
    /// A moment on the wall clock.
    pub(super) fn wall(&self, at: Time) -> String {
        iso_8601(self.wall_ns.saturating_sub(self.now.ns_since(at)))
    }

    /// How long ago a moment was, in nanoseconds.
    pub(super) fn age_ns(&self, since: Time) -> u64 {
        self.now.ns_since(since)
    }

    /// A key in a list.
    pub(super) fn key(&self, key: &[u8]) -> String {
        if self.is_private { HIDDEN.to_owned() } else { key_text_cut(key, KEY_BYTES_MAX) }
    }

    /// The name of a group.
    pub(super) fn group(&self, number: usize) -> String {
        self.engine.rules().groups().get(number).map_or_else(String::new, |g| g.name.clone())
    }

    /// The name of a row of `STATS TOP`.
    pub(super) fn name(&self, subject: Subject, name: &[u8]) -> String {
        match subject {
            Subject::Keys => self.key(name),
            Subject::Clients => self.address(&String::from_utf8_lossy(name)),
        }
    }

    /// An address in a list.
    pub(super) fn address(&self, address: &str) -> String {
        if self.is_private { HIDDEN.to_owned() } else { address.to_owned() }
    }

    /// The address of a client.
    pub(super) fn peer(&self, client: ClientId) -> String {
        self.address(&self.peers.peer(client).unwrap_or_else(|| "unknown".to_owned()))
    }
}

/// Figures that only the server has.
#[derive(Clone, Debug, Default)]
pub struct ServerFigures {
    /// The daemon's version.
    pub version: &'static str,
    /// Clients connected now.
    pub connections: usize,
    /// The daemon takes no new clients.
    pub is_draining: bool,
    /// When it was started, in nanoseconds since 1970 on the wall clock.
    pub started_wall_ns: u64,
    /// What operators' orders have changed about the rules.
    pub rule_orders: RuleOrders,
    /// The process.
    pub process: ProcessFigures,
}

/// The rules that differ from the file's by operators' orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleOrders {
    /// How many rules orders have set or turned off.
    pub rules: usize,
    /// When the oldest of these orders was given.
    pub since: Option<Time>,
    /// How many of them have no end: `RULE SET` without `FOR`, and `RULE OFF`.
    pub endless: usize,
    /// When the oldest of those was given.
    pub endless_since: Option<Time>,
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: impl Into<u128>) -> f64 {
    ns.into() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn durations_grow_a_unit_at_a_time() {
        const S: u128 = 1_000_000_000;
        for (ns, shown) in [
            (0, "0.000000s"),
            (1_999, "0.000001s"),
            (59 * S + 999_999_999, "59.999999s"),
            (60 * S, "1m 0.000000s"),
            (3_600 * S + 500_000_000, "1h 0m 0.500000s"),
            (84_553 * S + 609_375_000, "23h 29m 13.609375s"),
            (86_400 * S, "1 days 0h 0m 0.000000s"),
            (356_437 * S + 62_500_000, "4 days 3h 0m 37.062500s"),
        ] {
            assert_eq!(Seconds(ns).to_string(), shown);
        }
    }

    #[test]
    fn milliseconds_are_cut_off_not_rounded() {
        assert_eq!(iso_8601(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso_8601(1_709_251_199_999_999_999), "2024-02-29T23:59:59.999Z");
        assert_eq!(iso_8601(u64::MAX), "2554-07-21T23:34:33.709Z");
    }
}
