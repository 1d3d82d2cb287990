//! `STATS JSON` and `/stats.json`: filled from all counters, times, histograms, rows and figures.

use super::report_view::{ReportView, RuleOrders, ServerFigures, iso_8601, kind_of, seconds};
use super::scan::{Address, OldHold, Row, Scan};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use engine::Time;
use engine::counts::histogram::{Histogram, LOCK_TIMES, Scale, TURN_EVENTS, TURN_TIMES};
use engine::counts::measures::LockOutcome;
use engine::counts::statistics::{Counters, Times};
use engine::observe::heavy_hitters::Ranked;
use engine::observe::observer::SlowLogEntry;
use engine::observe::windows::Counted;
use engine::rules::groups::Group;
use protocol::{Mode, Span, Subject};
use schema::reports::{
    Buckets, HotRestarts, Measurement, ReplyCount, Report, RuleFigures, Top, TopLists, TopOf, Turns,
};
use schema::rows::{ClientRow, GroupRow, HoldRow, KeyRow, SlowRow, TopRow};
use schema::words::{Kind, SlowThing};

/// How many rows a list has.
const ROWS: usize = 20;

/// How many rows each ranking of [`Top`] has: there are eight.
const TOP_ROWS: usize = 10;

/// Makes the report.
pub fn report(view: &ReportView<'_>, figures: &ServerFigures, scan: &Scan) -> Report {
    let engine = view.engine;
    let age_s = |since: Time| seconds(view.age_ns(since));
    let counters = Counters::ALL.iter().map(|c| (c.name.to_owned(), (c.get)(&engine.counters)));
    let replies = engine.measures.replies.iter();
    let restarts = &engine.measures.restarts;
    let top_in = |subject, span| {
        let counted = engine.observer.top(span, subject, view.now);
        top(view, subject, &counted, TOP_ROWS)
    };
    let top_of = |subject| TopOf {
        minute: top_in(subject, Span::Minute),
        hour: top_in(subject, Span::Hour),
    };
    Report {
        version: figures.version.to_owned(),
        time: view.wall(view.now),
        started: iso_8601(figures.started_wall_ns),
        uptime_s: age_s(engine.started()),
        draining: figures.is_draining,
        connections: figures.connections,
        counters: counters.collect(),
        times_s: times_s(&engine.counters, engine.times()),
        waits: measurements(view, false),
        holds: measurements(view, true),
        replies: replies
            .map(|(command, answer, count)| ReplyCount {
                command: command.to_owned(),
                answer: answer.to_owned(),
                count,
            })
            .collect(),
        hot_restarts: HotRestarts {
            done: restarts.done,
            refused: restarts.refused,
            pause_s: seconds(restarts.pause_ns),
            last_pause_s: seconds(restarts.last_pause_ns),
        },
        turns: Turns {
            seconds: values(&engine.measures.turns.times, &TURN_TIMES, 1e9),
            events: values(&engine.measures.turns.events, &TURN_EVENTS, 1.0),
        },
        process: figures.process,
        oldest_hold_s: scan.oldest_hold.map(age_s),
        oldest_wait_s: scan.oldest_wait.map(age_s),
        keys_waited_for: scan.keys_waited_for,
        rules: rules(view, figures.rule_orders),
        groups: groups(view, scan),
        keys: keys(view, scan).take(ROWS).collect(),
        oldest_holds: scan.old_holds().map(|hold| old_hold(view, hold)).collect(),
        addresses: scan.addresses().addresses,
        clients: clients(view, scan, ROWS),
        top: TopLists { keys: top_of(Subject::Keys), clients: top_of(Subject::Clients) },
        slow_over_s: engine.observer.slow_ns().map(seconds),
        slow_kept: engine.observer.slow_log().len(),
        slow: engine.observer.slow_log().take(ROWS).map(|entry| slow(view, entry)).collect(),
    }
}

/// The times of `STATS FULL`: the sums, and what is computed from them.
fn times_s(counters: &Counters, times: &Times) -> BTreeMap<String, f64> {
    let times = Times::LINES.iter().map(|line| (line.name, (line.ns)(counters, times)));
    let without_unit = |name: &'static str| name.strip_suffix("_ns").unwrap_or(name);
    times.map(|(name, ns)| (without_unit(name).to_owned(), seconds(ns))).collect()
}

/// Of holds, or of waits.
fn measurements(view: &ReportView<'_>, of_holds: bool) -> Vec<Measurement> {
    let measures = view.engine.measures.locks.iter();
    let measures = measures.filter(|(_, outcome, _)| outcome.is_of_hold() == of_holds);
    let measurement = |(mode, outcome, histogram): (Mode, LockOutcome, &Histogram)| Measurement {
        kind: kind_of(mode),
        outcome: outcome.word().to_owned().into(),
        values: values(histogram, &LOCK_TIMES, 1e9),
    };
    measures.map(measurement).collect()
}

/// `per_unit`: how much of the histogram's unit makes one of the report's.
fn values(histogram: &Histogram, scale: &Scale, per_unit: f64) -> Buckets {
    Buckets {
        count: histogram.count(),
        sum: histogram.sum() as f64 / per_unit,
        bounds: scale.bounds.iter().map(|&bound| bound as f64 / per_unit).collect(),
        buckets: histogram.counts(scale).to_vec(),
    }
}

fn rules(view: &ReportView<'_>, orders: RuleOrders) -> RuleFigures {
    RuleFigures {
        in_force: view.engine.rules().in_force().len(),
        by_orders: orders.rules,
        orders_since: orders.since.map(|at| view.wall(at)),
        endless: orders.endless,
        endless_since: orders.endless_since.map(|at| view.wall(at)),
    }
}

fn groups(view: &ReportView<'_>, scan: &Scan) -> Vec<GroupRow> {
    let group = |(n, group): (usize, &Group)| {
        let (counts, gauges) = (&group.counts, scan.of_group(n));
        GroupRow {
            group: group.name.clone(),
            requests: counts.requests,
            acquired: counts.acquired,
            queue_full: counts.queue_full,
            timeouts: counts.timeouts,
            denied: counts.denied,
            keys: gauges.keys,
            holders: gauges.holders,
            waiters: gauges.waiters,
            oldest_hold_s: gauges.oldest_hold.map(|since| seconds(view.age_ns(since))),
            stuck_keys: gauges.stuck,
        }
    };
    let rules = view.engine.rules();
    let counted = if rules.are_active() { rules.groups() } else { &[] };
    counted.iter().enumerate().map(group).collect()
}

/// The most important keys, first.
pub(super) fn keys(view: &ReportView<'_>, scan: &Scan) -> impl Iterator<Item = KeyRow> {
    scan.keys().into_iter().map(|row| key(view, row, view.key(&row.key)))
}

/// A key, of which `text` is shown.
pub(super) fn key(view: &ReportView<'_>, row: &Row, text: String) -> KeyRow {
    KeyRow {
        key: text,
        group: view.group(row.group),
        holders: row.figures.holders,
        for_me: row.figures.for_me,
        for_anyone: row.figures.for_anyone,
        oldest_hold_s: seconds(view.age_ns(row.oldest_hold())),
        oldest_wait_s: row.figures.oldest_wait.map(|since| seconds(view.age_ns(since))),
        limited_by: row.limiting_rules.names().cloned().collect(),
        denied_by: row.limiting_rules.denied_by(),
    }
}

fn old_hold(view: &ReportView<'_>, hold: &OldHold) -> HoldRow {
    HoldRow {
        key: view.key(&hold.row.key),
        group: view.group(hold.row.group),
        held_s: seconds(view.age_ns(hold.row.oldest_hold())),
        kind: kind_of(hold.mode),
        waiters: hold.row.figures.waiters(),
        client: Some(hold.client.serial),
        address: view.peer(hold.client),
        limited_by: hold.row.limiting_rules.names().cloned().collect(),
        denied_by: hold.row.limiting_rules.denied_by(),
    }
}

/// At most `rows_max` addresses, and the others together.
pub(super) fn clients(view: &ReportView<'_>, scan: &Scan, rows_max: usize) -> Vec<ClientRow> {
    let all = scan.addresses();
    let rows = all.rows.iter().take(rows_max);
    let rows = rows.map(|(address, row)| (view.address(address), *row));
    let others = all.others.map(|row| ("others".to_owned(), row));
    let row = |(address, row): (String, Address)| ClientRow {
        address,
        connections: row.connections,
        holds: row.holds,
        waits: row.waits,
    };
    rows.chain(others).map(row).collect()
}

/// At most `rows_max` rows of each ranking.
pub(super) fn top(
    view: &ReportView<'_>,
    subject: Subject,
    counted: &Counted,
    rows_max: usize,
) -> Top {
    let rows = |ranking, per_unit| top_rows(view, subject, ranking, per_unit).take(rows_max);
    Top {
        from: view.wall(counted.began),
        to: view.wall(counted.ended),
        covered_s: seconds(counted.covered_ns()),
        sampled_one_in: counted.sampled_one_in,
        by_requests: rows(&counted.by_requests, 1.0).collect(),
        by_time: rows(&counted.by_time, 1e9).collect(),
    }
}

/// `per_unit`: how much of a count makes one of the report's.
fn top_rows(
    view: &ReportView<'_>,
    subject: Subject,
    ranking: &[Ranked],
    per_unit: f64,
) -> impl Iterator<Item = TopRow> {
    let number = move |count: u64| count as f64 / per_unit;
    ranking.iter().map(move |ranked| TopRow {
        name: view.name(subject, &ranked.name),
        count: number(ranked.count),
        error: number(ranked.error),
        requests: ranked.columns.requests,
        acquired: ranked.columns.acquired,
        done: ranked.columns.done,
        refused: ranked.columns.refused,
        timed_out: ranked.columns.timed_out,
        waited_s: seconds(ranked.columns.waited_ns),
        held_s: seconds(ranked.columns.held_ns),
    })
}

pub(super) fn slow(view: &ReportView<'_>, entry: &SlowLogEntry) -> SlowRow {
    let slow = &entry.slow;
    SlowRow {
        time: view.wall(slow.at),
        what: if slow.outcome.is_of_hold() { SlowThing::Hold } else { SlowThing::Wait },
        kind: if slow.for_anyone { Kind::Anyone } else { Kind::Me },
        outcome: slow.outcome.word().to_owned().into(),
        took_s: seconds(slow.took_ns),
        client: Some(slow.client.serial),
        address: view.address(&entry.peer),
        key: view.key(&slow.key),
        rule: slow.rules.rule.clone(),
        denied_by: slow.rules.denied_by.clone(),
    }
}
