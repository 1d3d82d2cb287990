//! What the page's plots show, every ten seconds of the last hour, and marks of what happened to
//! the daemon: for an operator who opens the page in the middle of an incident. Nothing is
//! counted for it in a request: each point is the difference of two states of the statistics.

use crate::report_view::{ReportView, seconds};
use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use engine::counts::histogram::LOCK_TIMES;
use engine::counts::measures::Longest;
use engine::{Engine, Time};
use protocol::Reply;
use schema::words::{Event, HIDDEN};
use serde::{Deserialize, Serialize};

/// The time between two points, in nanoseconds.
pub const PERIOD_NS: u64 = 10_000_000_000;

/// An hour.
const POINTS_MAX: usize = 360;

/// More than an hour of an operator's work.
const MARKS_MAX: usize = 64;

/// Of these, the oldest goes first.
const FREQUENT: [Event; 3] = [Event::Rule, Event::Log, Event::Free];

/// What happened is cut to this length.
const DETAIL_CHARS_MAX: usize = 160;

/// A value of a point, from what happened since the one before; `None` if there was nothing to measure.
type ValueIn = fn(&Period<'_>) -> Option<u64>;

/// What a point contains: the name of each value, how many of the unit in which it is kept
/// make one of the unit in which it is shown, and the value.
const COLUMNS: [(&str, f64, ValueIn); 11] = [
    ("requests_per_s", 10.0, |period| Some(period.growth(|totals| totals.requests))),
    ("acquired_per_s", 10.0, |period| Some(period.growth(|totals| totals.acquired))),
    ("queue_full_per_s", 10.0, |period| Some(period.growth(|totals| totals.queue_full))),
    ("timeouts_per_s", 10.0, |period| Some(period.growth(|totals| totals.timeouts))),
    ("held", 1.0, |period| Some(period.engine.counters.processing_workers)),
    ("waiting", 1.0, |period| Some(period.engine.counters.waiting_workers)),
    ("wait_median_s", 1e6, |period| period.wait_us(50)),
    ("wait_p95_s", 1e6, |period| period.wait_us(95)),
    ("hold_median_s", 1e6, |period| period.hold_us(50)),
    ("hold_p95_s", 1e6, |period| period.hold_us(95)),
    ("cpu", 1e7, |period| Some(period.growth(|totals| totals.cpu_ns / 1_000))),
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
    what: Event,
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
    /// buckets of the histograms, whose bounds `STATS JSON` has; none is above the longest one.
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
    #[cfg_attr(test, schemars(with = "String"))]
    what: Event,
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
    pub fn add_points(&mut self, engine: &mut Engine, cpu_ns: u64, now: Time) {
        let due = now.ns_since(self.last) / PERIOD_NS;
        // Older ones would be removed at once.
        for _ in 0..due.min(POINTS_MAX as u64) {
            let longest = core::mem::take(&mut engine.measures.longest);
            let totals = Totals::of(engine, cpu_ns);
            let period = Period { engine, longest, before: &self.totals, after: &totals };
            self.points.push_back(period.point());
            self.totals = totals;
        }
        self.last = self.last.plus_ns(due * PERIOD_NS);
        while self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
    }

    /// Notes what happened to the daemon: as one of the events, and in detail.
    pub fn mark(&mut self, what: Event, detail: &str, now: Time) {
        let detail = detail.chars().take(DETAIL_CHARS_MAX).collect();
        self.marks.push_back(Mark { at: now, what, detail });
        while self.marks.len() > MARKS_MAX {
            // A script that sets a rule every minute must not push a restart out.
            let frequent = self.marks.iter().position(|mark| FREQUENT.contains(&mark.what));
            self.marks.remove(frequent.unwrap_or(0));
        }
    }

    /// What is served.
    pub fn report(&self, view: &ReportView<'_>) -> HistoryReport {
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
            columns: COLUMNS.map(|(name, ..)| name).to_vec(),
            points: self.points.iter().map(shown).collect(),
            marks: self.marks.iter().filter(is_recent).map(mark).collect(),
        }
    }
}

fn shown(point: &Point) -> Vec<Option<f64>> {
    let values = point.iter().zip(COLUMNS);
    values.map(|(value, (_, per_unit, _))| value.map(|value| f64::from(value) / per_unit)).collect()
}

impl Totals {
    fn of(engine: &Engine, cpu_ns: u64) -> Self {
        let replies = &engine.measures.replies;
        Totals {
            requests: replies.to_requests(Reply::ALL),
            acquired: engine.counters.total_acquired,
            queue_full: replies.to_requests(&[Reply::QueueFull]),
            timeouts: replies.to_requests(&[Reply::Timeout]),
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

/// The time between two points.
struct Period<'a> {
    /// At its end.
    engine: &'a Engine,
    longest: Longest,
    before: &'a Totals,
    after: &'a Totals,
}

impl Period<'_> {
    fn point(&self) -> Point {
        let value = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        COLUMNS.map(|(_, _, value_in)| value_in(self).map(value))
    }

    fn growth(&self, of: fn(&Totals) -> u64) -> u64 {
        of(self.after).saturating_sub(of(self.before))
    }

    fn wait_us(&self, percent: u64) -> Option<u64> {
        quantile_us(percent, &grown(&self.before.waits, &self.after.waits), self.longest.wait_ns)
    }

    fn hold_us(&self, percent: u64) -> Option<u64> {
        quantile_us(percent, &grown(&self.before.holds, &self.after.holds), self.longest.hold_ns)
    }
}

fn grown(before: &[u64], after: &[u64]) -> Vec<u64> {
    let before = before.iter().copied().chain(core::iter::repeat(0));
    after.iter().zip(before).map(|(after, before)| after.saturating_sub(before)).collect()
}

/// How long `percent` of the waits took at most, in microseconds, as if those of a bucket were
/// spread evenly over it, up to the longest of all.
fn quantile_us(percent: u64, counts: &[u64], longest_ns: u64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    // In hundredths of a wait.
    let rank = percent * total;
    let (mut below, mut low_us) = (0, 0);
    let bounds = LOCK_TIMES.bounds.iter().copied().chain([u64::MAX]);
    for (&count, bound_ns) in counts.iter().zip(bounds) {
        let all = 100 * count;
        if count > 0 && below + all >= rank {
            let high_us = (bound_ns.min(longest_ns) / 1_000).max(low_us);
            let part = u128::from(high_us - low_us) * u128::from(rank - below) / u128::from(all);
            return Some(low_us + part as u64);
        }
        below += all;
        low_us = bound_ns / 1_000;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{ClientId, HashSeed};
    use protocol::{Acquire, Mode};

    const S: u64 = 1_000_000_000;

    #[test]
    fn quantiles_lie_between_the_bounds_of_their_bucket() {
        let mut counts = alloc::vec![0; LOCK_TIMES.bounds.len() + 1];
        assert_eq!(quantile_us(50, &counts, 0), None);
        // Up to 1 ms, and from 1 to 2.5 ms.
        (counts[0], counts[1]) = (1, 3);
        assert_eq!(quantile_us(25, &counts, 2_500_000), Some(1_000));
        assert_eq!(quantile_us(50, &counts, 2_500_000), Some(1_500));
        // Above 300 s.
        *counts.last_mut().expect("a bucket") = 96;
        assert_eq!(quantile_us(52, &counts, 400 * S), Some(350_000_000));
        // A snapshot without the longest one.
        assert_eq!(quantile_us(95, &counts, 0), Some(300_000_000));
    }

    fn client(slot: u32) -> ClientId {
        ClientId { slot, serial: slot }
    }

    fn acquire(engine: &mut Engine, slot: u32, timeout_s: u64, now: Time) {
        let (mode, key) = (Mode::ForMe, &b"k"[..]);
        let request = Acquire { mode, key, workers: 1, max_queue: 99, timeout_s };
        engine.acquire(client(slot), &request, now);
    }

    /// Median and 95th percentile of waits and of holds, in microseconds.
    fn quantiles(history: &History) -> [Option<u32>; 4] {
        let point = history.points.back().expect("a point");
        [point[6], point[7], point[8], point[9]]
    }

    /// Of each window by itself, also if a hot restart or sleep falls into it.
    #[test]
    fn no_quantile_is_above_the_longest_of_its_ten_seconds() {
        let at_ms = |ms: u64| Time::default().plus_ns(ms * 1_000_000);
        // Also just above a bound, and above all.
        for (n, wait_s) in [5_u64, 1, 10, 33, 299, 300, 301, 4_000].into_iter().enumerate() {
            let mut engine = Engine::new(HashSeed::new([1, 2]), at_ms(0));
            let mut history = History::new(at_ms(0));
            acquire(&mut engine, 0, 0, at_ms(0));
            (1..=9).for_each(|slot| acquire(&mut engine, slot, wait_s, at_ms(0)));
            let ended = at_ms(wait_s * 1_000 + 2);
            engine.expire(ended);
            if n % 2 == 0 {
                let state = rmp_serde::to_vec_named(&engine.state()).expect("bytes");
                let state = rmp_serde::from_slice(&state).expect("a state");
                let pools = engine.pool_states().map(Ok::<_, engine::state::BadState>);
                engine = Engine::resume(state, pools, HashSeed::new([1, 2]), ended).expect("one");
            }
            let later = ended.plus_ns(S);
            engine.release(client(0), later);
            history.add_points(&mut engine, 0, ended.plus_ns(10 * S));
            let all: Vec<_> = history.points.iter().map(|point| point[7]).collect();
            let held_us = (later.as_ns() / 1_000) as u32;
            let longest_us = (ended.as_ns() / 1_000) as u32;
            let p95_us = all.iter().flatten().copied().next().expect("waits");
            assert!(p95_us <= longest_us, "{wait_s} s: {p95_us} µs");
            assert_eq!(all.iter().flatten().count(), 1, "{wait_s} s: one window has all");
            let hold_p95_us = history.points.iter().find_map(|point| point[9]).expect("a hold");
            assert!(hold_p95_us <= held_us, "{wait_s} s: {hold_p95_us} µs");

            let next = ended.plus_ns(11 * S);
            acquire(&mut engine, 0, 0, next);
            engine.release(client(0), next.plus_ns(600_000));
            history.add_points(&mut engine, 0, next.plus_ns(10 * S));
            let [no_median, no_p95, median, p95] = quantiles(&history);
            assert_eq!((no_median, no_p95), (None, None), "nobody waited");
            assert!(median <= Some(600) && p95 <= Some(600), "{median:?} {p95:?}");
        }
    }

    #[test]
    fn a_daemon_that_slept_fills_the_gap_when_it_wakes() {
        let mut engine = Engine::new(HashSeed::new([1, 2]), Time::default());
        let mut history = History::new(Time::default());
        let at = |s: u64| Time::default().plus_ns(s * S);
        assert!(!history.is_due(at(9)));
        history.add_points(&mut engine, 5 * S, at(25));
        assert_eq!(history.points.len(), 2);
        // All its work was done before it slept.
        let cpu: Vec<_> = history.points.iter().map(|point| point[10]).collect();
        assert_eq!(cpu, [Some(5_000_000), Some(0)]);
        assert!(!history.is_due(at(29)) && history.is_due(at(30)));
        history.add_points(&mut engine, 5 * S, at(365 * 86_400));
        assert_eq!(history.points.len(), POINTS_MAX);
        assert!(!history.is_due(at(365 * 86_400)));
    }

    #[test]
    fn few_marks_are_kept_and_each_is_short() {
        let mut history = History::default();
        for n in 0..100_u64 {
            history.mark(Event::Rule, &"é".repeat(1000), Time::default().plus_ns(n));
        }
        assert_eq!(history.marks.len(), MARKS_MAX);
        assert_eq!(history.marks[0].detail.chars().count(), DETAIL_CHARS_MAX);
        assert_eq!(history.marks[0].at, Time::default().plus_ns(36));
        history.mark(Event::HotRestart, "", Time::default());
        (0..100).for_each(|_| history.mark(Event::Log, "info", Time::default()));
        let kept: Vec<&Event> = history.marks.iter().map(|mark| &mark.what).collect();
        assert_eq!(kept.iter().filter(|what| ***what == Event::HotRestart).count(), 1);
        assert!(kept[1..].iter().all(|what| **what == Event::Log), "{kept:?}");
    }
}
