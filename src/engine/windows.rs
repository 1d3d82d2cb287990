//! What was most frequent in the last full minute and in the last full hour: tumbling
//! windows of a minute, which are merged into windows of ten minutes.

use super::summary::{Columns, Ranked, Ranking, Summary, SummaryState};
use super::time::Time;
use crate::protocol::Span;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

const MINUTE_NS: u64 = 60_000_000_000;
const MINUTES_PER_TEN: u8 = 10;
const TENS_PER_HOUR: usize = 6;

/// How many rows of a closed window are kept.
const ROWS_KEPT: usize = 250;

/// Without requests for so long nothing of the past is left.
const FORGOTTEN_AFTER_NS: u64 = 80 * MINUTE_NS;

/// The windows of keys, or of addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    minute: Window,
    ten_minutes: Window,
    /// How many minutes `ten_minutes` has.
    minutes: u8,
    last_minute: Option<Closed>,
    /// The newest last.
    last_tens: VecDeque<Closed>,
    in_force: InForce,
}

/// How exactly things are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct InForce {
    /// How many requests a sampled one stands for.
    pub(super) weight: u64,
    /// Times from so many nanoseconds on are counted whether sampled or not.
    pub(super) long_ns: u64,
    /// Until when, if nothing is counted before.
    #[serde(rename = "until_ns")]
    pub(super) until: Time,
}

/// What is being counted.
#[derive(Clone, Debug, Default)]
struct Window {
    began: Time,
    by_requests: Summary,
    by_time: Summary,
    /// The highest that was in force.
    weight: u64,
    long_ns: u64,
}

/// What was counted in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Closed {
    /// Its first moment.
    #[serde(rename = "began_ns")]
    pub began: Time,
    /// The moment after it.
    #[serde(rename = "ended_ns")]
    pub ended: Time,
    /// Counts are requests.
    pub by_requests: Ranking,
    /// Counts are nanoseconds waited and held.
    pub by_time: Ranking,
    /// How many requests a sampled one stood for, at most; 1 if all were counted.
    pub weight: u64,
    /// Holds and waits of at least so many nanoseconds were all counted. Of shorter
    /// ones, those of sampled requests.
    pub long_ns: u64,
}

impl Closed {
    /// The most that one sample adds to a count of requests, and to a count of short
    /// times; 0 if nothing was sampled.
    pub fn sampled_units(&self) -> (u64, u64) {
        match self.weight {
            0 | 1 => (0, 0),
            weight => (weight, weight.saturating_mul(self.long_ns)),
        }
    }
}

impl Windows {
    pub(super) fn new(now: Time) -> Self {
        let window = || Window { began: now, ..Window::default() };
        Windows { minute: window(), ten_minutes: window(), ..Windows::default() }
    }

    /// Counts for a name, which has this hash.
    pub(super) fn add(
        &mut self,
        now: Time,
        (name, hash): (&[u8], u64),
        columns: &Columns,
        in_force: InForce,
    ) {
        self.roll(now);
        self.in_force = in_force;
        self.minute.note(in_force);
        self.minute.by_requests.add(name, hash, columns.requests, columns);
        self.minute.by_time.add(name, hash, columns.time_ns(), columns);
    }

    /// Notes that something can't be counted.
    #[cold]
    pub(super) fn note_missed(&mut self, now: Time, columns: &Columns) {
        self.roll(now);
        self.minute.by_requests.note_missed(columns.requests);
        self.minute.by_time.note_missed(columns.time_ns());
    }

    /// Closes the windows that have ended by `now`.
    pub(super) fn roll(&mut self, now: Time) {
        if now.ns_since(self.minute.began) >= FORGOTTEN_AFTER_NS {
            *self = Windows::new(now);
        }
        while now.ns_since(self.minute.began) >= MINUTE_NS {
            self.close_minute();
        }
    }

    #[cold]
    fn close_minute(&mut self) {
        let ended = self.minute.began.plus_ns(MINUTE_NS);
        let mut next = Window { began: ended, ..Window::default() };
        if self.in_force.until > ended {
            next.note(self.in_force);
        }
        let minute = std::mem::replace(&mut self.minute, next);
        self.ten_minutes.merge(&minute);
        self.last_minute = Some(minute.closed(ended));
        self.minutes += 1;
        if self.minutes >= MINUTES_PER_TEN {
            let next = Window { began: ended, ..Window::default() };
            let ten_minutes = std::mem::replace(&mut self.ten_minutes, next);
            self.minutes = 0;
            self.last_tens.push_back(ten_minutes.closed(ended));
            if self.last_tens.len() > TENS_PER_HOUR {
                self.last_tens.pop_front();
            }
        }
    }

    /// The last full minute or hour. Before there is one, what has been counted so far.
    pub(super) fn closed(&self, span: Span, now: Time) -> Closed {
        match (span, &self.last_minute) {
            (Span::Minute, Some(minute)) => minute.clone(),
            (Span::Minute, None) => self.minute.closed(now),
            (Span::Hour, _) if !self.last_tens.is_empty() => sum(&self.last_tens),
            (Span::Hour, Some(minute)) => self.ten_minutes.closed(minute.ended),
            (Span::Hour, None) => self.minute.closed(now),
        }
    }
}

impl Window {
    fn note(&mut self, in_force: InForce) {
        self.weight = self.weight.max(in_force.weight);
        self.long_ns = self.long_ns.max(in_force.long_ns);
    }

    fn merge(&mut self, other: &Window) {
        self.by_requests.merge(&other.by_requests);
        self.by_time.merge(&other.by_time);
        self.weight = self.weight.max(other.weight);
        self.long_ns = self.long_ns.max(other.long_ns);
    }

    fn closed(&self, ended: Time) -> Closed {
        Closed {
            began: self.began,
            ended,
            by_requests: self.by_requests.ranking(ROWS_KEPT, &self.by_time),
            by_time: self.by_time.ranking(ROWS_KEPT, &self.by_requests),
            weight: self.weight,
            long_ns: self.long_ns,
        }
    }
}

/// The sum of windows that follow each other.
fn sum(windows: &VecDeque<Closed>) -> Closed {
    let rankings = |of: fn(&Closed) -> &Ranking| sum_of_rankings(windows.iter().map(of));
    Closed {
        began: windows.front().map_or_else(Time::default, |first| first.began),
        ended: windows.back().map_or_else(Time::default, |last| last.ended),
        by_requests: rankings(|window| &window.by_requests),
        by_time: rankings(|window| &window.by_time),
        weight: windows.iter().map(|window| window.weight).max().unwrap_or(0),
        long_ns: windows.iter().map(|window| window.long_ns).max().unwrap_or(0),
    }
}

/// A name may be missing in some of them, although it was frequent there: by as much
/// its sum may be too low.
fn sum_of_rankings<'a>(rankings: impl Iterator<Item = &'a Ranking>) -> Ranking {
    let mut sums: HashMap<&[u8], Ranked> = HashMap::new();
    let mut lost: u64 = 0;
    for ranking in rankings {
        lost = lost.saturating_add(ranking.lost);
        for row in &ranking.rows {
            let sum = sums.entry(&row.name).or_default();
            sum.count = sum.count.saturating_add(row.count);
            sum.error = sum.error.saturating_add(row.error);
            sum.columns.add(&row.columns);
        }
    }
    let named = |(name, row): (&[u8], Ranked)| Ranked { name: name.to_vec(), ..row };
    let mut rows: Vec<Ranked> = sums.into_iter().map(named).collect();
    rows.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    // A row that is cut off may stand for its count and all that may be missing.
    let cut = rows.get(ROWS_KEPT).map_or(0, |next| next.count);
    rows.truncate(ROWS_KEPT);
    Ranking { rows, too_low: lost, lost: lost.saturating_add(cut) }
}

/// What a hot restart carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowsState {
    minute: WindowState,
    ten_minutes: WindowState,
    minutes: u8,
    last_minute: Option<Closed>,
    last_tens: Vec<Closed>,
    in_force: InForce,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct WindowState {
    #[serde(rename = "began_ns")]
    began: Time,
    by_requests: SummaryState,
    by_time: SummaryState,
    weight: u64,
    long_ns: u64,
}

impl Windows {
    pub(super) fn state(&self) -> WindowsState {
        let state = |window: &Window| WindowState {
            began: window.began,
            by_requests: window.by_requests.state(),
            by_time: window.by_time.state(),
            weight: window.weight,
            long_ns: window.long_ns,
        };
        WindowsState {
            minute: state(&self.minute),
            ten_minutes: state(&self.ten_minutes),
            minutes: self.minutes,
            last_minute: self.last_minute.clone(),
            last_tens: self.last_tens.iter().cloned().collect(),
            in_force: self.in_force,
        }
    }

    /// Goes on from the state of other windows. Never fails: times that can't be make
    /// empty windows.
    pub(super) fn resume(state: WindowsState, now: Time, hash: impl Fn(&[u8]) -> u64) -> Self {
        let is_possible = state.minute.began <= now && state.ten_minutes.began <= now;
        if !is_possible {
            return Windows::new(now);
        }
        let window = |state: WindowState| Window {
            began: state.began,
            by_requests: Summary::resume(state.by_requests, &hash),
            by_time: Summary::resume(state.by_time, &hash),
            weight: state.weight,
            long_ns: state.long_ns,
        };
        let mut last_tens: VecDeque<Closed> = state.last_tens.into();
        last_tens.truncate(TENS_PER_HOUR);
        Windows {
            minute: window(state.minute),
            ten_minutes: window(state.ten_minutes),
            minutes: state.minutes.min(MINUTES_PER_TEN),
            last_minute: state.last_minute,
            last_tens,
            in_force: state.in_force,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(name: &[u8]) -> u64 {
        name.iter().map(|&byte| u64::from(byte)).sum()
    }

    fn at_minute(minute: u64) -> Time {
        Time::from_ns(1_000 + minute * MINUTE_NS)
    }

    fn add(windows: &mut Windows, minute: u64, name: &str, requests: u64) {
        let columns = Columns { requests, held_ns: 10, ..Columns::default() };
        let (name, now) = (name.as_bytes(), at_minute(minute).plus_ns(5));
        windows.add(now, (name, hash(name)), &columns, InForce::default());
    }

    fn rows(closed: &Closed) -> Vec<(String, u64)> {
        let row = |r: &Ranked| (String::from_utf8(r.name.clone()).expect("text"), r.count);
        closed.by_requests.rows.iter().map(row).collect()
    }

    fn row(name: &str, count: u64) -> (String, u64) {
        (name.to_owned(), count)
    }

    #[test]
    fn the_last_full_minute_is_shown_until_the_next_one_is_full() {
        let mut windows = Windows::new(at_minute(0));
        add(&mut windows, 0, "a", 3);
        let so_far = windows.closed(Span::Minute, at_minute(0).plus_ns(7));
        assert_eq!((rows(&so_far), so_far.ended), (vec![row("a", 3)], at_minute(0).plus_ns(7)));
        add(&mut windows, 1, "b", 1);
        add(&mut windows, 1, "b", 1);
        let full = windows.closed(Span::Minute, at_minute(1));
        assert_eq!((rows(&full), full.began), (vec![row("a", 3)], at_minute(0)));
        assert_eq!(full.by_time.rows[0].count, 10);
        windows.roll(at_minute(2));
        assert_eq!(rows(&windows.closed(Span::Minute, at_minute(2))), [row("b", 2)]);
        windows.roll(at_minute(3));
        assert_eq!(rows(&windows.closed(Span::Minute, at_minute(3))), []);
    }

    #[test]
    fn an_hour_is_the_sum_of_its_minutes() {
        let mut windows = Windows::new(at_minute(0));
        for minute in 0..75 {
            add(&mut windows, minute, "always", 1);
            add(&mut windows, minute, &format!("in the {minute}th"), 2);
        }
        let hour = windows.closed(Span::Hour, at_minute(75));
        assert_eq!((hour.began, hour.ended), (at_minute(10), at_minute(70)));
        assert_eq!(rows(&hour)[0], row("always", 60));
        assert_eq!(rows(&hour).len(), 61);
        assert_eq!((hour.by_requests.lost, hour.by_requests.too_low), (0, 0));
    }

    #[test]
    fn before_an_hour_is_full_its_beginning_is_shown() {
        let mut windows = Windows::new(at_minute(0));
        add(&mut windows, 0, "a", 1);
        assert_eq!(rows(&windows.closed(Span::Hour, at_minute(0))), [row("a", 1)]);
        windows.roll(at_minute(2));
        let hour = windows.closed(Span::Hour, at_minute(2));
        assert_eq!((rows(&hour), hour.ended), (vec![row("a", 1)], at_minute(2)));
        windows.roll(at_minute(11));
        assert_eq!(windows.closed(Span::Hour, at_minute(11)).ended, at_minute(10));
    }

    #[test]
    fn after_a_long_silence_nothing_is_left() {
        let mut windows = Windows::new(at_minute(0));
        for minute in 0..20 {
            add(&mut windows, minute, "a", 1);
        }
        windows.roll(at_minute(1_000_000));
        assert_eq!(rows(&windows.closed(Span::Hour, at_minute(1_000_000))), []);
        assert_eq!(rows(&windows.closed(Span::Minute, at_minute(1_000_000))), []);
    }

    #[test]
    fn windows_survive_a_restart() {
        let mut windows = Windows::new(at_minute(0));
        for minute in 0..25 {
            add(&mut windows, minute, &format!("{minute}"), 1 + minute);
        }
        let bytes = rmp_serde::to_vec_named(&windows.state()).expect("bytes");
        let state = rmp_serde::from_slice(&bytes).expect("a state");
        let resumed = Windows::resume(state, at_minute(25), hash);
        assert_eq!(resumed.state(), windows.state());
        let future = Windows::resume(windows.state(), at_minute(1), hash);
        assert_eq!(rows(&future.closed(Span::Hour, at_minute(1))), []);
    }
}
