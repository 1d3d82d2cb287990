//! What the page's plots show, every ten seconds of the last hour, and marks of what happened to
//! the daemon: for an operator who opens the page in the middle of an incident. Nothing is
//! counted for it in a request: each point is the difference of two states of the statistics.

use crate::report_view::{HIDDEN, ReportView, seconds};
use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use engine::counts::histogram::LOCK_TIMES;
use engine::{Engine, Time};
use serde::{Deserialize, Serialize};

/// The time between two points, in nanoseconds.
pub const PERIOD_NS: u64 = 10_000_000_000;

/// An hour.
const POINTS_MAX: usize = 360;

/// More than an hour of an operator's work.
const MARKS_MAX: usize = 64;

/// Of these, the oldest goes first.
const FREQUENT: [&str; 3] = ["rule", "log", "free"];

/// What happened is cut to this length.
const DETAIL_CHARS_MAX: usize = 160;

/// What a point contains: the name of each value, and how many of the unit in which it is kept
/// make one of the unit in which it is shown.
const COLUMNS: [(&str, f64); 11] = [
    ("requests_per_s", 10.0),
    ("acquired_per_s", 10.0),
    ("queue_full_per_s", 10.0),
    ("timeouts_per_s", 10.0),
    ("held", 1.0),
    ("waiting", 1.0),
    ("wait_median_s", 1e6),
    ("wait_p95_s", 1e6),
    ("hold_median_s", 1e6),
    ("hold_p95_s", 1e6),
    ("cpu", 1e7),
];

/// A value of each of [`COLUMNS`]; `None` if there was nothing to measure.
type Point = [Option<u32>; COLUMNS.len()];

/// The last hour. It needs some 40 kB, and goes along in hot restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// The newest last.
    points: VecDeque<Point>,
    /// When the newest point was taken, or the history began.
    #[serde(rename = "last_ns")]
    last: Time,
    /// The totals at that time.
    totals: Totals,
    /// The newest last.
    marks: VecDeque<Mark>,
}

/// Totals of which a point shows the growth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Totals {
    requests: u64,
    acquired: u64,
    queue_full: u64,
    timeouts: u64,
    /// How many waits took as long as each bucket of [`LOCK_TIMES`] says.
    waits: Vec<u64>,
    holds: Vec<u64>,
    cpu_ns: u64,
}

/// Something that happened to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    #[serde(rename = "at_ns")]
    at: Time,
    what: String,
    detail: String,
}

/// `/history.json` and `STATS JSON HISTORY`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "poolcounterd: STATS JSON HISTORY and /history.json"))]
pub struct HistoryReport {
    /// When the report was made.
    time: String,
    /// The time between two points.
    period_s: f64,
    /// How long ago the last point was taken.
    last_age_s: f64,
    /// The name of each value of a point. Medians and 95th percentiles are estimated from the
    /// buckets of the histograms, whose bounds `STATS JSON` has: 33 s may show as 45.
    columns: Vec<&'static str>,
    /// The newest last; null if there was nothing to measure.
    points: Vec<Vec<Option<f64>>>,
    /// What happened to the daemon, the newest last.
    marks: Vec<MarkJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MarkJson {
    /// When it happened.
    time: String,
    /// How long ago.
    age_s: f64,
    /// start, hot restart, restart refused, drain, undrain, free, log, or rule.
    what: String,
    /// More about it; "hidden" with --private.
    detail: String,
}

impl History {
    /// Begins now.
    pub fn new(now: Time) -> Self {
        History { last: now, ..History::default() }
    }

    /// Continues after a hot restart. An older daemon has left no history.
    pub fn resume(self, now: Time) -> Self {
        if self == History::default() { History::new(now) } else { self }
    }

    /// Whether a point is due.
    pub fn is_due(&self, now: Time) -> bool {
        now.ns_since(self.last) >= PERIOD_NS
    }

    /// Adds the points that are due. To be called when a daemon that slept wakes, before it does
    /// anything: whatever happened since the last point did so in the first period after it.
    /// `cpu_ns` is the CPU time of the process.
    pub fn add_points(&mut self, engine: &Engine, cpu_ns: u64, now: Time) {
        let due = now.ns_since(self.last) / PERIOD_NS;
        // Older ones would be removed at once.
        for _ in 0..due.min(POINTS_MAX as u64) {
            let totals = Totals::of(engine, cpu_ns);
            self.points.push_back(point(engine, &self.totals, &totals));
            self.totals = totals;
        }
        self.last = self.last.plus_ns(due * PERIOD_NS);
        while self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
    }

    /// Notes what happened to the daemon: in a word or two, and in detail.
    pub fn mark(&mut self, what: &str, detail: &str, now: Time) {
        let detail = detail.chars().take(DETAIL_CHARS_MAX).collect();
        self.marks.push_back(Mark { at: now, what: what.to_owned(), detail });
        while self.marks.len() > MARKS_MAX {
            // A script that sets a rule every minute must not push a restart out.
            let frequent = self.marks.iter().position(|mark| FREQUENT.contains(&&*mark.what));
            self.marks.remove(frequent.unwrap_or(0));
        }
    }

    /// What is served.
    pub fn report(&self, view: &ReportView) -> HistoryReport {
        let is_recent = |mark: &&Mark| view.age_ns(mark.at) <= POINTS_MAX as u64 * PERIOD_NS;
        let mark = |mark: &Mark| MarkJson {
            time: view.wall(mark.at),
            age_s: seconds(view.age_ns(mark.at)),
            what: mark.what.clone(),
            detail: if view.is_private { HIDDEN.to_owned() } else { mark.detail.clone() },
        };
        HistoryReport {
            time: view.wall(view.now),
            period_s: seconds(PERIOD_NS),
            last_age_s: seconds(view.age_ns(self.last)),
            columns: COLUMNS.map(|(name, _)| name).to_vec(),
            points: self.points.iter().map(shown).collect(),
            marks: self.marks.iter().filter(is_recent).map(mark).collect(),
        }
    }
}

fn shown(point: &Point) -> Vec<Option<f64>> {
    let values = point.iter().zip(COLUMNS);
    values.map(|(value, (_, per_unit))| value.map(|value| f64::from(value) / per_unit)).collect()
}

impl Totals {
    fn of(engine: &Engine, cpu_ns: u64) -> Self {
        let answers = |wanted: Option<&str>| {
            let of_locks = engine.measures.replies.iter().filter(|(command, answer, _)| {
                command.starts_with("ACQ") && wanted.is_none_or(|wanted| *answer == wanted)
            });
            of_locks.map(|(_, _, count)| count).sum()
        };
        Totals {
            requests: answers(None),
            acquired: engine.counters.total_acquired,
            queue_full: answers(Some("QUEUE_FULL")),
            timeouts: answers(Some("TIMEOUT")),
            waits: buckets(engine, false),
            holds: buckets(engine, true),
            cpu_ns,
        }
    }
}

/// All waits, or all holds, by how long they took.
fn buckets(engine: &Engine, of_holds: bool) -> Vec<u64> {
    let mut buckets = alloc::vec![0; LOCK_TIMES.bounds.len() + 1];
    for (_, outcome, histogram) in engine.measures.locks.iter() {
        if outcome.is_of_hold() == of_holds {
            let counts = histogram.counts(&LOCK_TIMES).iter();
            buckets.iter_mut().zip(counts).for_each(|(bucket, count)| *bucket += count);
        }
    }
    buckets
}

fn point(engine: &Engine, before: &Totals, after: &Totals) -> Point {
    let growth = |before: u64, after: u64| Some(after.saturating_sub(before));
    let waits = grown(&before.waits, &after.waits);
    let holds = grown(&before.holds, &after.holds);
    let values = [
        growth(before.requests, after.requests),
        growth(before.acquired, after.acquired),
        growth(before.queue_full, after.queue_full),
        growth(before.timeouts, after.timeouts),
        Some(engine.counters.processing_workers),
        Some(engine.counters.waiting_workers),
        quantile_us(50, &waits),
        quantile_us(95, &waits),
        quantile_us(50, &holds),
        quantile_us(95, &holds),
        growth(before.cpu_ns / 1_000, after.cpu_ns / 1_000),
    ];
    values.map(|value| value.map(|value| u32::try_from(value).unwrap_or(u32::MAX)))
}

fn grown(before: &[u64], after: &[u64]) -> Vec<u64> {
    let before = before.iter().copied().chain(core::iter::repeat(0));
    after.iter().zip(before).map(|(after, before)| after.saturating_sub(before)).collect()
}

/// How long `percent` of the waits took at most, in microseconds, as if those of a bucket were
/// spread evenly over it.
fn quantile_us(percent: u64, counts: &[u64]) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    // In hundredths of a wait.
    let rank = percent * total;
    let (mut below, mut low_us) = (0, 0);
    for (&count, &bound_ns) in counts.iter().zip(LOCK_TIMES.bounds) {
        let bound_us = bound_ns / 1_000;
        let all = 100 * count;
        if count > 0 && below + all >= rank {
            return Some(low_us + (bound_us - low_us) * (rank - below) / all);
        }
        below += all;
        low_us = bound_us;
    }
    // Longer than the last bound.
    (total > 0).then_some(low_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::HashSeed;

    const S: u64 = 1_000_000_000;

    #[test]
    fn quantiles_lie_between_the_bounds_of_their_bucket() {
        let mut counts = alloc::vec![0; LOCK_TIMES.bounds.len() + 1];
        assert_eq!(quantile_us(50, &counts), None);
        // Up to 1 ms, and from 1 to 2.5 ms.
        (counts[0], counts[1]) = (1, 3);
        assert_eq!(quantile_us(25, &counts), Some(1_000));
        assert_eq!(quantile_us(50, &counts), Some(1_500));
        *counts.last_mut().expect("a bucket") = 96;
        assert_eq!(quantile_us(95, &counts), Some(300_000_000));
    }

    #[test]
    fn a_daemon_that_slept_fills_the_gap_when_it_wakes() {
        let engine = Engine::new(HashSeed::new([1, 2]), Time::default());
        let mut history = History::new(Time::default());
        let at = |s: u64| Time::default().plus_ns(s * S);
        assert!(!history.is_due(at(9)));
        history.add_points(&engine, 5 * S, at(25));
        assert_eq!(history.points.len(), 2);
        // All its work was done before it slept.
        let cpu: Vec<_> = history.points.iter().map(|point| point[10]).collect();
        assert_eq!(cpu, [Some(5_000_000), Some(0)]);
        assert!(!history.is_due(at(29)) && history.is_due(at(30)));
        history.add_points(&engine, 5 * S, at(365 * 86_400));
        assert_eq!(history.points.len(), POINTS_MAX);
        assert!(!history.is_due(at(365 * 86_400)));
    }

    #[test]
    fn few_marks_are_kept_and_each_is_short() {
        let mut history = History::default();
        for n in 0..100_u64 {
            history.mark("rule", &"é".repeat(1000), Time::default().plus_ns(n));
        }
        assert_eq!(history.marks.len(), MARKS_MAX);
        assert_eq!(history.marks[0].detail.chars().count(), DETAIL_CHARS_MAX);
        assert_eq!(history.marks[0].at, Time::default().plus_ns(36));
        history.mark("hot restart", "", Time::default());
        (0..100).for_each(|_| history.mark("log", "info", Time::default()));
        let kept: Vec<&str> = history.marks.iter().map(|mark| mark.what.as_str()).collect();
        assert_eq!(kept.iter().filter(|what| **what == "hot restart").count(), 1);
        assert!(kept[1..].iter().all(|what| *what == "log"), "{kept:?}");
    }
}
