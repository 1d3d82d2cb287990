//! `STATS JSON` and `/stats.json`: everything, for machines. `docs/stats.schema.json`
//! describes it. The types derive serde; the server writes them.

use super::exposition::seconds;
use super::lists::{name_of, word};
use super::shown::{View, WallTime};
use super::survey::Survey;
use crate::engine::Time;
use crate::engine::histogram::{Histogram, LOCK_TIMES, Scale, TURN_EVENTS, TURN_TIMES};
use crate::engine::measures::{Measured, Measures};
use crate::engine::statistics::{Counters, Times};
use crate::engine::summary::Ranked;
use crate::engine::watch::SlowEntry;
use crate::engine::windows::Counted;
use crate::protocol::{Mode, Subject};
use serde::Serialize;
use std::collections::BTreeMap;

/// How many rows a list has.
const ROWS: usize = 20;

/// How many rows each ranking of [`Top`] has: there are eight.
const TOP_ROWS: usize = 10;

/// Everything. Times are in seconds.
#[derive(Debug, Serialize)]
pub struct Report {
    version: &'static str,
    time: String,
    started: String,
    uptime_s: f64,
    draining: bool,
    connections: usize,
    counters: BTreeMap<&'static str, u64>,
    times_s: BTreeMap<&'static str, f64>,
    waits: Vec<Measurement>,
    holds: Vec<Measurement>,
    replies: Vec<Replies>,
    hot_restarts: Restarts,
    turns: Turns,
    process: Process,
    oldest_hold_s: Option<f64>,
    oldest_wait_s: Option<f64>,
    keys_waited_for: u64,
    keys: Vec<Key>,
    oldest_holds: Vec<OldHold>,
    addresses: usize,
    clients: Vec<Client>,
    top: TopLists,
    slow_over_s: Option<f64>,
    slow_kept: usize,
    slow: Vec<Slow>,
}

#[derive(Debug, Serialize)]
struct Measurement {
    kind: &'static str,
    outcome: &'static str,
    #[serde(flatten)]
    values: Values,
}

/// A histogram. `buckets` has a count more than `bounds`, for larger values.
#[derive(Debug, Serialize)]
struct Values {
    count: u64,
    sum: f64,
    bounds: Vec<f64>,
    buckets: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Replies {
    command: &'static str,
    answer: &'static str,
    count: u64,
}

#[derive(Debug, Serialize)]
struct Restarts {
    done: u64,
    refused: u64,
    pause_s: f64,
    last_pause_s: f64,
}

#[derive(Debug, Serialize)]
struct Turns {
    seconds: Values,
    events: Values,
}

#[derive(Debug, Serialize)]
struct Process {
    cpu_s: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_descriptors: u64,
    descriptors_max: u64,
}

#[derive(Debug, Serialize)]
struct Key {
    key: String,
    holders: usize,
    for_me: usize,
    for_anyone: usize,
    oldest_hold_s: f64,
    oldest_wait_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct OldHold {
    key: String,
    held_s: f64,
    kind: &'static str,
    waiters: usize,
    client: u32,
    address: String,
}

#[derive(Debug, Serialize)]
struct Client {
    address: String,
    connections: u64,
    holds: u64,
    waits: u64,
}

#[derive(Debug, Serialize)]
struct TopLists {
    keys: TopOf,
    clients: TopOf,
}

#[derive(Debug, Serialize)]
struct TopOf {
    minute: Top,
    hour: Top,
}

#[derive(Debug, Serialize)]
struct Top {
    from: String,
    to: String,
    sampled_one_in: u64,
    by_requests: Vec<TopRow>,
    by_time: Vec<TopRow>,
}

#[derive(Debug, Serialize)]
struct TopRow {
    name: String,
    count: f64,
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
struct Slow {
    time: String,
    what: &'static str,
    kind: &'static str,
    outcome: &'static str,
    took_s: f64,
    client: u32,
    address: String,
    key: String,
}

/// What was asked for most, of keys and of clients: the last minute and the last hour.
pub struct Tops {
    /// Of keys.
    pub keys: [Counted; 2],
    /// Of addresses.
    pub clients: [Counted; 2],
}

/// Makes the report.
pub fn report(view: &View, survey: &Survey, tops: &Tops) -> Report {
    let View { engine, figures, .. } = view;
    let age_s = |since: Time| seconds(view.age_ns(since));
    let counters = Counters::ALL.iter().map(|c| (c.name, (c.get)(&engine.counters)));
    let replies = engine.measures.replies.iter();
    let restarts = &engine.measures.restarts;
    Report {
        version: figures.version,
        time: view.wall(view.now).to_string(),
        started: WallTime(figures.started_wall_ns).to_string(),
        uptime_s: age_s(engine.started()),
        draining: figures.is_draining,
        connections: figures.connections,
        counters: counters.collect(),
        times_s: times_s(&engine.counters, engine.times()),
        waits: measurements(view, Measured::Wait),
        holds: measurements(view, Measured::Hold),
        replies: replies
            .map(|(command, answer, count)| Replies { command, answer, count })
            .collect(),
        hot_restarts: Restarts {
            done: restarts.done,
            refused: restarts.refused,
            pause_s: seconds(restarts.pause_ns),
            last_pause_s: seconds(restarts.last_pause_ns),
        },
        turns: Turns {
            seconds: values(&engine.measures.turns.times, &TURN_TIMES, 1e9),
            events: values(&engine.measures.turns.events, &TURN_EVENTS, 1.0),
        },
        process: process(view),
        oldest_hold_s: survey.oldest_hold.map(age_s),
        oldest_wait_s: survey.oldest_wait.map(age_s),
        keys_waited_for: survey.keys_waited_for,
        keys: keys(view, survey),
        oldest_holds: survey.old_holds().map(|hold| old_hold(view, hold)).collect(),
        addresses: survey.addresses().addresses,
        clients: clients(view, survey),
        top: TopLists {
            keys: top_of(view, Subject::Keys, &tops.keys),
            clients: top_of(view, Subject::Clients, &tops.clients),
        },
        slow_over_s: engine.watch.slow_ns().map(seconds),
        slow_kept: engine.watch.slow_log().len(),
        slow: engine.watch.slow_log().take(ROWS).map(|entry| slow(view, entry)).collect(),
    }
}

/// The times of `STATS FULL`: the sums, and what is computed of them.
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

fn measurements(view: &View, of: Measured) -> Vec<Measurement> {
    let measures = Measures::ALL.iter().filter(|measure| measure.of == of);
    let measurement = |measure: &crate::engine::measures::Measure| Measurement {
        kind: measure.kind,
        outcome: measure.outcome,
        values: values((measure.get)(&view.engine.measures), &LOCK_TIMES, 1e9),
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

fn process(view: &View) -> Process {
    let process = &view.figures.process;
    Process {
        cpu_s: seconds(process.cpu_ns),
        resident_bytes: process.resident_bytes,
        virtual_bytes: process.virtual_bytes,
        open_descriptors: process.open_descriptors,
        descriptors_max: process.descriptors_max,
    }
}

fn keys(view: &View, survey: &Survey) -> Vec<Key> {
    let rows = survey.keys().into_iter().take(ROWS);
    let key = |row: &super::survey::Row| Key {
        key: view.key(&row.key),
        holders: row.holders,
        for_me: row.for_me,
        for_anyone: row.for_anyone,
        oldest_hold_s: seconds(view.age_ns(row.oldest_hold())),
        oldest_wait_s: row.oldest_wait.map(|since| seconds(view.age_ns(since))),
    };
    rows.map(key).collect()
}

fn old_hold(view: &View, hold: &super::survey::OldHold) -> OldHold {
    OldHold {
        key: view.key(&hold.key),
        held_s: seconds(view.age_ns(hold.since)),
        kind: word(hold.mode),
        waiters: hold.waiters,
        client: hold.client.serial,
        address: view.peer(hold.client),
    }
}

fn clients(view: &View, survey: &Survey) -> Vec<Client> {
    let all = survey.addresses();
    let client = |address: String, row: &super::survey::Address| Client {
        address,
        connections: row.connections,
        holds: row.holds,
        waits: row.waits,
    };
    let rows = all.rows.iter().take(ROWS);
    let rows = rows.map(|(address, row)| client(view.address(address), row));
    rows.chain(all.others.iter().map(|row| client("others".to_owned(), row))).collect()
}

fn top_of(view: &View, subject: Subject, [minute, hour]: &[Counted; 2]) -> TopOf {
    TopOf { minute: top(view, subject, minute), hour: top(view, subject, hour) }
}

fn top(view: &View, subject: Subject, counted: &Counted) -> Top {
    Top {
        from: view.wall(counted.began).to_string(),
        to: view.wall(counted.ended).to_string(),
        sampled_one_in: counted.sampled_one_in(),
        by_requests: top_rows(view, subject, &counted.by_requests, 1.0),
        by_time: top_rows(view, subject, &counted.by_time, 1e9),
    }
}

/// `per_unit`: how much of a count makes one of the report's.
fn top_rows(view: &View, subject: Subject, ranking: &[Ranked], per_unit: f64) -> Vec<TopRow> {
    let number = |count: u64| count as f64 / per_unit;
    let row = |ranked: &Ranked| TopRow {
        name: name_of(view, subject, &ranked.name),
        count: number(ranked.count),
        error: number(ranked.error),
        requests: ranked.columns.requests,
        acquired: ranked.columns.acquired,
        done: ranked.columns.done,
        refused: ranked.columns.refused,
        timed_out: ranked.columns.timed_out,
        waited_s: seconds(ranked.columns.waited_ns),
        held_s: seconds(ranked.columns.held_ns),
    };
    ranking.iter().take(TOP_ROWS).map(row).collect()
}

fn slow(view: &View, entry: &SlowEntry) -> Slow {
    let slow = &entry.slow;
    Slow {
        time: view.wall(slow.at).to_string(),
        what: if slow.outcome.is_of_hold() { "hold" } else { "wait" },
        kind: word(if slow.for_anyone { Mode::ForAnyone } else { Mode::ForMe }),
        outcome: slow.outcome.word(),
        took_s: seconds(slow.took_ns),
        client: slow.client.serial,
        address: view.address(&entry.peer),
        key: view.key(&slow.key),
    }
}
