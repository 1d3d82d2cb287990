//! The lists of `STATS`, and the answer to `FREE`: which rows, and how many at most. Each is written
//! as JSON or as a text.

use super::json;
use super::report_view::{ROWS_BYTES_MAX, ROWS_MAX, ReportView, kind_of, seconds};
use super::scan::{Row, Scan};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use engine::rules::matcher::Matches;
use engine::rules::settings::Effect;
use engine::rules::{RuleInForce, Rules};
use engine::view::{LockView, Phase};
use engine::{ClientId, Time};
use protocol::{List, MatchingKeys, UNLIMITED, key_text};
use schema::reports::{
    ClientsReport, FreedReport, KeyReport, KeysReport, ListReport, Seen, SlowReport, TopReport,
};
use schema::rows::{FreedRow, LimitRow, LockRow};
use schema::words::{HIDDEN, LockState};
use serde::Serialize;

/// As [`ROWS_BYTES_MAX`], for holders and for waiters of each kind: three lists, behind the longest
/// key.
const QUEUE_BYTES_MAX: usize = 12 << 10;

/// How many rows each of the two lists of `STATS TOP` has.
const TOP_ROWS: usize = 20;

/// A wait of this length means for ever.
const UNLIMITED_NS: u64 = UNLIMITED as u64 * 1_000_000_000;

/// A report in JSON, as one line, and the blank line that ends it.
pub fn written(report: &impl Serialize) -> String {
    // Can't fail: plain data with text keys and finite numbers, written to memory.
    serde_json::to_string(report).unwrap_or_default() + "\n\n"
}

/// The first rows, as many as fit.
pub(super) fn bounded<T: Serialize>(rows: impl Iterator<Item = T>, bytes_max: usize) -> Vec<T> {
    let mut left = bytes_max;
    let fits = |row: &T| {
        // With the comma behind it.
        let len = serde_json::to_string(row).map_or(0, |text| text.len() + 1);
        let rest = left.checked_sub(len);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    rows.take_while(fits).collect()
}

fn rows_shown(asked: u32) -> usize {
    (asked as usize).min(ROWS_MAX)
}

/// A list.
pub fn list(list: &List, view: &ReportView<'_>, scan: &Scan) -> ListReport {
    match list {
        List::Keys(rows) => ListReport::Keys(keys(view, scan, *rows)),
        List::Key(key) => ListReport::Key(key_report(view, key)),
        List::Clients(rows) => ListReport::Clients(clients(view, scan, *rows)),
        List::Slow(rows) => ListReport::Slow(slow(view, *rows)),
        List::Top(span, subject) => {
            let top = view.engine.observer.top(*span, *subject, view.now);
            ListReport::Top(TopReport {
                top: subject.word().to_owned(),
                span: span.word().to_owned(),
                requests_total: top.by_requests.len(),
                time_total: top.by_time.len(),
                lists: json::top(view, *subject, &top, TOP_ROWS),
            })
        }
    }
}

pub(super) fn seen(view: &ReportView<'_>, scan: &Scan) -> Seen {
    Seen { turns: scan.turns, took_s: seconds(view.age_ns(scan.began)) }
}

fn keys(view: &ReportView<'_>, scan: &Scan, rows: u32) -> KeysReport {
    KeysReport {
        keys_total: scan.keys_seen,
        matching: None,
        left_out: None,
        seen: seen(view, scan),
        keys: bounded(json::keys(view, scan).take(rows_shown(rows)), ROWS_BYTES_MAX),
    }
}

/// The keys that match the pattern of `scan`, which is that of `query`.
pub fn matching_keys(query: &MatchingKeys, view: &ReportView<'_>, scan: &Scan) -> ListReport {
    let found = scan.found();
    let row = |row: &&Row| {
        let text = if view.is_private { HIDDEN.to_owned() } else { key_text(&row.key) };
        json::key(view, row, text)
    };
    let rows = found.rows.iter().take(rows_shown(query.rows)).map(row);
    let keys = bounded(rows, ROWS_BYTES_MAX);
    ListReport::Keys(KeysReport {
        keys_total: scan.keys_seen,
        matching: Some(found.matching),
        left_out: Some(found.matching - keys.len() as u64),
        seen: seen(view, scan),
        keys,
    })
}

fn key_report(view: &ReportView<'_>, key: &[u8]) -> KeyReport {
    let rules = view.engine.rules();
    let matches = rules.matching(key);
    let pool = view.engine.pool(key);
    let [holders, for_me, for_anyone] =
        pool.map_or([0; 3], |pool| Phase::QUEUED.map(|phase| pool.count(phase)));
    let locks = pool.into_iter().flat_map(|pool| {
        let shown = |phase| {
            let locks = pool.locks(phase);
            bounded(locks.map(|lock| lock_row(view, lock)), QUEUE_BYTES_MAX)
        };
        Phase::QUEUED.map(shown)
    });
    KeyReport {
        key: key_text(key),
        group: view.group(rules.group_of(matches)),
        holders,
        for_me,
        for_anyone,
        max_hold_s: rules.max_hold_s(matches),
        denied_by: rules.behind(matches, None).denied_by,
        limits: limits_of(rules, matches),
        locks: locks.flatten().collect(),
    }
}

/// For each rule that limits keys that have these matches one, and one for a rule that denies
/// them: at most six, because there are six limits.
fn limits_of(rules: &Rules, matches: Matches) -> Vec<LimitRow> {
    let mut limits = Vec::new();
    for n in rules.limiting(matches).iter() {
        let RuleInForce { rule, holders, .. } = &rules.in_force()[n];
        let holders = rules.total(matches).filter(|(of, _)| *of == n).map(|_| (*holders).into());
        for (effect, holders) in [(Effect::Limits, holders), (Effect::Denies, None)] {
            let of_rule = rules.settings(matches, n).filter(|(of, _)| *of == effect);
            let settings: Vec<String> = of_rule.map(|(_, word)| word).collect();
            if !settings.is_empty() {
                limits.push(LimitRow { rule: rule.shown_name().to_owned(), settings, holders });
            }
        }
    }
    limits
}

fn lock_row(view: &ReportView<'_>, lock: LockView<'_>) -> LockRow {
    let is_endless = |deadline: &Time| deadline.ns_since(lock.since()) >= UNLIMITED_NS;
    let deadline = lock.deadline().filter(|deadline| !is_endless(deadline));
    LockRow {
        what: if lock.is_held() { LockState::Holder } else { LockState::Waiter },
        kind: kind_of(lock.mode()),
        since: view.wall(lock.since()),
        for_s: seconds(view.age_ns(lock.since())),
        left_s: deadline.map(|deadline| seconds(deadline.ns_since(view.now))),
        client: Some(lock.client().serial),
        address: view.peer(lock.client()),
    }
}

fn clients(view: &ReportView<'_>, scan: &Scan, rows: u32) -> ClientsReport {
    let rows = json::clients(view, scan, rows_shown(rows));
    ClientsReport {
        addresses: scan.addresses().addresses,
        connections: scan.addresses().connections,
        seen: seen(view, scan),
        clients: bounded(rows.into_iter(), ROWS_BYTES_MAX),
    }
}

fn slow(view: &ReportView<'_>, rows: u32) -> SlowReport {
    let all = view.engine.observer.slow_log();
    SlowReport {
        slow_total: all.len(),
        over_s: view.engine.observer.slow_ns().map(seconds),
        slow: bounded(
            all.take(rows_shown(rows)).map(|entry| json::slow(view, entry)),
            ROWS_BYTES_MAX,
        ),
    }
}

/// The locks of `clients`, which are closed, or would be.
pub fn freed(view: &ReportView<'_>, clients: &[ClientId], is_dry_run: bool) -> FreedReport {
    let locks: Vec<LockView<'_>> =
        clients.iter().flat_map(|client| view.engine.locks_of(*client)).collect();
    let holds = locks.iter().filter(|lock| lock.is_held()).count();
    let row =
        |lock: &LockView<'_>| FreedRow { lock: lock_row(view, *lock), key: key_text(lock.key()) };
    FreedReport {
        freed: clients.len(),
        dry_run: is_dry_run,
        holds,
        waits: locks.len() - holds,
        locks: bounded(locks.iter().take(ROWS_MAX).map(row), ROWS_BYTES_MAX),
    }
}
