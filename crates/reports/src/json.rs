//! `STATS JSON` and `/stats.json`, for machines: a struct for each object, filled from all
//! counters, times, histograms, rows and figures. `docs/reference/stats.schema.json` derives from these
//! types, comments included. The server writes them.

use super::report_view::{ProcessFigures, ReportView, iso_8601, mode_word, seconds};
use super::scan::{Address, Row, Scan};
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
use serde::Serialize;

/// How many rows a list has.
const ROWS: usize = 20;

/// How many rows each ranking of [`Top`] has: there are eight.
const TOP_ROWS: usize = 10;

/// Times are in seconds; moments are in ISO 8601 on the wall clock (UTC).
///
/// A `kind` is `me` (`ACQ4ME`) or `anyone` (`ACQ4ANY`). In a `key`, other bytes than printable
/// ASCII, and the backslash, are `\xNN`; it is cut at 128 bytes, which `\...` at its end shows. An
/// `address` is an IP address, with a port if it is of one connection; `others`, for those
/// that are not counted apart; or `unknown`, if the client had left before anybody asked. Under
/// `--private` both are `hidden`. A rule is shown by its name, and one of `--max-hold` as
/// `--max-hold`.
///
/// Later versions may add members; they do not change or remove any.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "poolcounterd: STATS JSON and /stats.json"))]
pub struct Report {
    /// Of the daemon.
    version: &'static str,
    time: String,
    /// When the daemon was started. Hot restarts keep it, and so does a wall clock that is set.
    started: String,
    /// Since the daemon was started, hot restarts included.
    uptime_s: f64,
    /// New clients are refused.
    draining: bool,
    /// Clients that are connected.
    connections: usize,
    /// The whole-number statistics, under the names of `STATS`.
    counters: BTreeMap<&'static str, u64>,
    /// The times of `STATS FULL`: sums, and the average of processing.
    times_s: BTreeMap<&'static str, f64>,
    /// How long clients waited, without those that got an answer at once.
    waits: Vec<Measurement>,
    /// How long locks were held, without those that are held now.
    holds: Vec<Measurement>,
    /// Answers by command.
    replies: Vec<RepliesJson>,
    hot_restarts: RestartsJson,
    /// Turns of the loop.
    turns: TurnsJson,
    process: ProcessFigures,
    oldest_hold_s: Option<f64>,
    oldest_wait_s: Option<f64>,
    /// How many keys have waiters.
    keys_waited_for: u64,
    rules: RulesJson,
    /// The groups that the file of rules names, in its order, after `other`; none while there are no
    /// rules, since nothing is counted for groups then.
    groups: Vec<GroupJson>,
    /// The keys with the most waiters, at most 20.
    keys: Vec<Key>,
    /// The oldest hold of each key, those of the keys held for longest first, at most 20.
    oldest_holds: Vec<OldHoldJson>,
    /// From how many addresses clients are connected; of more than 10,000, one may count twice.
    addresses: usize,
    /// The addresses with the most connections, at most 20; then `others`, if there are more
    /// than 10,000.
    clients: Vec<ClientJson>,
    /// What was asked for most.
    top: TopLists,
    /// What `--slow` says; null without it.
    slow_over_s: Option<f64>,
    /// How many holds and waits `STATS SLOW` has.
    slow_kept: usize,
    /// The last holds and waits over `--slow`, the newest first, at most 20.
    slow: Vec<SlowJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Measurement {
    kind: &'static str,
    /// `locked`, `done`, `timeout`, `cancelled`, `released`, `disconnected` or `expired`.
    outcome: &'static str,
    #[serde(flatten)]
    values: Values,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Values {
    count: u64,
    sum: f64,
    /// The largest value of each bucket; the last bucket has none.
    bounds: Vec<f64>,
    /// One more than bounds; not cumulative.
    buckets: Vec<u64>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RepliesJson {
    /// `ACQ4ME`, `ACQ4ANY`, `RELEASE`, `STATS` or `other`.
    command: &'static str,
    /// The line, or `text` for statistics.
    answer: &'static str,
    count: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RestartsJson {
    done: u64,
    refused: u64,
    /// All of them together.
    pause_s: f64,
    last_pause_s: f64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TurnsJson {
    seconds: Values,
    events: Values,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RulesJson {
    in_force: usize,
    /// How many rules operators' orders have set or turned off.
    by_orders: usize,
    /// When the oldest of these orders was given.
    orders_since: Option<String>,
    /// How many of these orders have no end: `RULE SET` without `FOR`, and `RULE OFF`.
    endless: usize,
    /// When the oldest of those was given.
    endless_since: Option<String>,
}

/// The counts begin when the daemon gets its first rule, and lack what came while it had none.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GroupJson {
    group: String,
    /// Requests for a lock that were decided.
    requests: u64,
    /// Locks that clients got, at once or after a wait.
    acquired: u64,
    /// Requests refused because the queue was full or the rule's `total` was reached.
    queue_full: u64,
    /// Requests and waits that were answered with `TIMEOUT`.
    timeouts: u64,
    /// Requests refused by `deny`.
    denied: u64,
    keys: u64,
    holders: u64,
    waiters: u64,
    oldest_hold_s: Option<f64>,
    /// How many keys have been held for longer than the `stuck-after` of their rules, or than
    /// 300 s.
    stuck_keys: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Key {
    key: String,
    group: String,
    holders: usize,
    /// Clients that wait after `ACQ4ME`.
    for_me: usize,
    /// Clients that wait after `ACQ4ANY`.
    for_anyone: usize,
    oldest_hold_s: f64,
    oldest_wait_s: Option<f64>,
    /// The rules that limit the key, in the order in which they apply.
    limited_by: Vec<String>,
    /// The rule by which each request for the key is refused.
    denied_by: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OldHoldJson {
    key: String,
    group: String,
    held_s: f64,
    kind: &'static str,
    /// How many wait for the key.
    waiters: usize,
    /// The number of the holder's connection in the log.
    client: u32,
    address: String,
    /// The rules that limit the key, in the order in which they apply.
    limited_by: Vec<String>,
    /// The rule by which each request for the key is refused.
    denied_by: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ClientJson {
    address: String,
    #[serde(flatten)]
    row: Address,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TopLists {
    keys: TopOf,
    clients: TopOf,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TopOf {
    minute: Top,
    hour: Top,
}

/// The current minute once it is 10 s old, and the previous one until then; likewise the current
/// hour once it is ten minutes old. Before the first is full, the time so far.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Top {
    from: String,
    to: String,
    /// How much time that is: what rates are divided by. A daemon that has just started may
    /// have 0.
    covered_s: f64,
    /// At times, only one request in this many was followed; 1 if every request was.
    sampled_one_in: u64,
    /// At most 10; 20 in `STATS JSON TOP`.
    by_requests: Vec<TopRow>,
    /// At most 10; 20 in `STATS JSON TOP`.
    by_time: Vec<TopRow>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TopRow {
    /// A key or an address.
    name: String,
    /// Requests, or seconds waited and held.
    count: f64,
    /// By how much the count may be too high.
    error: f64,
    requests: u64,
    acquired: u64,
    done: u64,
    refused: u64,
    timed_out: u64,
    waited_s: f64,
    held_s: f64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SlowJson {
    time: String,
    /// `hold` or `wait`.
    what: &'static str,
    kind: &'static str,
    outcome: &'static str,
    took_s: f64,
    /// The number of its connection in the log.
    client: u32,
    address: String,
    key: String,
    /// The rule that shortened a wait that timed out, or ended a hold by its `max-hold`;
    /// otherwise the first rule that limits the key.
    rule: Option<String>,
    /// The rule by which each request for the key is refused.
    denied_by: Option<String>,
}

/// Makes the report.
pub fn report(view: &ReportView, scan: &Scan) -> Report {
    let ReportView { engine, figures, .. } = view;
    let age_s = |since: Time| seconds(view.age_ns(since));
    let counters = Counters::ALL.iter().map(|c| (c.name, (c.get)(&engine.counters)));
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
        version: figures.version,
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
            .map(|(command, answer, count)| RepliesJson { command, answer, count })
            .collect(),
        hot_restarts: RestartsJson {
            done: restarts.done,
            refused: restarts.refused,
            pause_s: seconds(restarts.pause_ns),
            last_pause_s: seconds(restarts.last_pause_ns),
        },
        turns: TurnsJson {
            seconds: values(&engine.measures.turns.times, &TURN_TIMES, 1e9),
            events: values(&engine.measures.turns.events, &TURN_EVENTS, 1.0),
        },
        process: figures.process,
        oldest_hold_s: scan.oldest_hold.map(age_s),
        oldest_wait_s: scan.oldest_wait.map(age_s),
        keys_waited_for: scan.keys_waited_for,
        rules: rules(view),
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
fn times_s(counters: &Counters, times: &Times) -> BTreeMap<&'static str, f64> {
    let without_unit = |name: &'static str| name.strip_suffix("_ns").unwrap_or(name);
    let sums = Times::ALL.iter().map(|sum| (without_unit(sum.name), (sum.get)(times)));
    let computed = Times::LINES.iter().filter_map(|line| {
        let name = match line.label {
            "average processing time" => "average_processing",
            "waiting time" => "waiting",
            _ => return None,
        };
        Some((name, (line.ns)(counters, times)))
    });
    sums.chain(computed).map(|(name, ns)| (name, seconds(ns))).collect()
}

/// Of holds, or of waits.
fn measurements(view: &ReportView, of_holds: bool) -> Vec<Measurement> {
    let measures = view.engine.measures.locks.iter();
    let measures = measures.filter(|(_, outcome, _)| outcome.is_of_hold() == of_holds);
    let measurement = |(mode, outcome, histogram): (Mode, LockOutcome, &Histogram)| Measurement {
        kind: mode_word(mode),
        outcome: outcome.word(),
        values: values(histogram, &LOCK_TIMES, 1e9),
    };
    measures.map(measurement).collect()
}

/// `per_unit`: how much of the histogram's unit makes one of the report's.
fn values(histogram: &Histogram, scale: &Scale, per_unit: f64) -> Values {
    Values {
        count: histogram.count(),
        sum: histogram.sum() as f64 / per_unit,
        bounds: scale.bounds.iter().map(|&bound| bound as f64 / per_unit).collect(),
        buckets: histogram.counts(scale).to_vec(),
    }
}

fn rules(view: &ReportView) -> RulesJson {
    let orders = view.figures.rule_orders;
    RulesJson {
        in_force: view.engine.rules().in_force().len(),
        by_orders: orders.rules,
        orders_since: orders.since.map(|at| view.wall(at)),
        endless: orders.endless,
        endless_since: orders.endless_since.map(|at| view.wall(at)),
    }
}

fn groups(view: &ReportView, scan: &Scan) -> Vec<GroupJson> {
    let group = |(n, group): (usize, &Group)| {
        let (counts, gauges) = (&group.counts, scan.of_group(n));
        GroupJson {
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
pub(super) fn keys(view: &ReportView, scan: &Scan) -> impl Iterator<Item = Key> {
    scan.keys().into_iter().map(|row| key(view, row, view.key(&row.key)))
}

/// A key, of which `text` is shown.
pub(super) fn key(view: &ReportView, row: &Row, text: String) -> Key {
    Key {
        key: text,
        group: view.group(row.group),
        holders: row.holders,
        for_me: row.for_me,
        for_anyone: row.for_anyone,
        oldest_hold_s: seconds(view.age_ns(row.oldest_hold())),
        oldest_wait_s: row.oldest_wait.map(|since| seconds(view.age_ns(since))),
        limited_by: row.limiting_rules.names().cloned().collect(),
        denied_by: row.limiting_rules.behind().denied_by,
    }
}

fn old_hold(view: &ReportView, hold: &super::scan::OldHold) -> OldHoldJson {
    OldHoldJson {
        key: view.key(&hold.key),
        group: view.group(hold.group),
        held_s: seconds(view.age_ns(hold.since)),
        kind: mode_word(hold.mode),
        waiters: hold.waiters,
        client: hold.client.serial,
        address: view.peer(hold.client),
        limited_by: hold.limiting_rules.names().cloned().collect(),
        denied_by: hold.limiting_rules.behind().denied_by,
    }
}

/// At most `rows_max` addresses, and the others together.
pub(super) fn clients(view: &ReportView, scan: &Scan, rows_max: usize) -> Vec<ClientJson> {
    let all = scan.addresses();
    let rows = all.rows.iter().take(rows_max);
    let rows = rows.map(|(address, row)| ClientJson { address: view.address(address), row: *row });
    let others = all.others.map(|row| ClientJson { address: "others".to_owned(), row });
    rows.chain(others).collect()
}

/// At most `rows_max` rows of each ranking.
pub(super) fn top(view: &ReportView, subject: Subject, counted: &Counted, rows_max: usize) -> Top {
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
    view: &ReportView,
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

pub(super) fn slow(view: &ReportView, entry: &SlowLogEntry) -> SlowJson {
    let slow = &entry.slow;
    SlowJson {
        time: view.wall(slow.at),
        what: if slow.outcome.is_of_hold() { "hold" } else { "wait" },
        kind: mode_word(if slow.for_anyone { Mode::ForAnyone } else { Mode::ForMe }),
        outcome: slow.outcome.word(),
        took_s: seconds(slow.took_ns),
        client: slow.client.serial,
        address: view.address(&entry.peer),
        key: view.key(&slow.key),
        rule: slow.rules.rule.clone(),
        denied_by: slow.rules.denied_by.clone(),
    }
}
