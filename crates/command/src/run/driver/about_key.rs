//! What a server tells of a key: who holds it, and what limits it.

use crate::ask::ask_about_key;
use crate::run::act::{AboutKey, Limit, LimitKind};
use crate::table::duration_text;
use connect::{ServerName, StatsConnection};
use protocol::{key_on_the_wire, time_from_text};
use schema::reports::KeyReport;
use schema::rows::LimitRow;
use schema::words::{HIDDEN, LockState};

/// What the server says of a key, if it does.
pub(super) fn about_key(server: &ServerName, key: &[u8]) -> Option<KeyReport> {
    let mut connection = StatsConnection::connect(server).ok()?;
    Some(ask_about_key(&mut connection, &key_on_the_wire(key)).ok()?.report)
}

impl From<&KeyReport> for AboutKey {
    fn from(report: &KeyReport) -> AboutKey {
        let rows = report.limits.iter();
        let limits = rows.flat_map(|row| row.settings.iter().filter_map(|set| limit(row, set)));
        AboutKey {
            denied_by: report.denied_by.clone(),
            limits: limits.collect(),
            in_queue: [report.holders, report.for_me, report.for_anyone]
                .into_iter()
                .fold(0, |sum, clients| sum.saturating_add(clients as u64)),
            holders: holders(report),
        }
    }
}

/// A setting that may explain why the lock is not given.
fn limit(row: &LimitRow, setting: &str) -> Option<Limit> {
    let kind = match setting.split_once('=')? {
        ("maxqueue", max) => LimitKind::MaxQueue(max.parse().ok()?),
        ("total", total) => {
            let total = total.parse().ok()?;
            LimitKind::Total { is_used_up: row.holders.is_some_and(|holders| holders >= total) }
        }
        ("timeout", time) => LimitKind::Timeout(time_from_text(time).ok()?),
        _ => return None,
    };
    Some(Limit { rule: row.rule.clone(), setting: setting.to_owned(), kind })
}

/// The client that has held the key for longest, as ` by 10.1.2.9 for 3m 10s`, and the number of
/// other holders.
pub(super) fn holders(key: &KeyReport) -> Option<String> {
    let holders = key.locks.iter().filter(|lock| lock.what == LockState::Holder);
    let oldest = holders.max_by(|one, other| one.for_s.total_cmp(&other.for_s))?;
    let address = oldest.address.as_str();
    let who = match address.rsplit_once(':') {
        _ if address == HIDDEN => String::new(),
        Some((host, port)) if port.parse::<u16>().is_ok() => format!(" by {host}"),
        _ => format!(" by {address}"),
    };
    let others = match key.holders {
        0 | 1 => String::new(),
        2 => " and by another".to_owned(),
        count => format!(" and by {} others", count - 1),
    };
    Some(format!("{who} for {}{others}", duration_text(oldest.for_s)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::rows::LockRow;

    #[test]
    fn the_oldest_holder_is_named() {
        let lock = |what: LockState, for_s: f64, address: &str| LockRow {
            what,
            for_s,
            address: address.to_owned(),
            ..LockRow::default()
        };
        let words = |count: usize, locks: &[LockRow]| {
            holders(&KeyReport { holders: count, locks: locks.to_vec(), ..KeyReport::default() })
        };
        let alone = lock(LockState::Holder, 190.5, "[2001:db8::1]:4711");
        assert_eq!(words(1, &[alone]).unwrap(), " by [2001:db8::1] for 3m 10s");
        let (young, old) = (
            lock(LockState::Holder, 1.5, "10.1.2.8:1"),
            lock(LockState::Holder, 7200.0, "10.1.2.9:1"),
        );
        let both = words(130, &[young, old]).unwrap();
        assert_eq!(both, " by 10.1.2.9 for 2h 0m and by 129 others");
        assert_eq!(words(1, &[lock(LockState::Holder, 1.0, "hidden")]).unwrap(), " for 1.000s");
        assert_eq!(words(0, &[lock(LockState::Waiter, 1.0, "10.1.2.8:1")]), None);
    }
}
