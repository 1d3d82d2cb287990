//! What was most frequent in the last minute and in the last hour: each minute is counted
//! on its own, and added to its hour when it ends.

use super::sampler::ONE_IN;
use super::summary::{CAPACITY, Columns, Ranked, Summary};
use super::time::Time;
use crate::protocol::Span;
use serde::{Deserialize, Serialize};

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;

/// From this age on the running hour is shown.
const HOUR_SHOWN_FROM_NS: u64 = 10 * MINUTE_NS;

/// How many rows of a window are shown, at most, and kept once it has ended.
const ROWS_MAX: usize = 100;

/// Without requests for so long nothing of the past is left.
const FORGOTTEN_AFTER_NS: u64 = 2 * HOUR_NS;

/// The windows of keys, or of addresses.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    minute: Window,
    last_minute: Option<Counted>,
    /// Without the running minute.
    hour: Window,
    last_hour: Option<Counted>,
}

/// What is being counted.
#[derive(Clone, Debug)]
struct Window {
    began: Time,
    is_sampled: bool,
    by_requests: Summary,
    by_time: Summary,
}

/// What was counted in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// Its first moment.
    #[serde(rename = "began_ns")]
    pub began: Time,
    /// The moment after it.
    #[serde(rename = "ended_ns")]
    pub ended: Time,
    /// Whether some requests stood for others.
    is_sampled: bool,
    /// The most frequent first; counts are requests.
    pub by_requests: Vec<Ranked>,
    /// The same; counts are nanoseconds waited and held.
    pub by_time: Vec<Ranked>,
}

impl Counted {
    /// One request in so many was followed, at times; 1 if all were.
    pub fn sampled_one_in(&self) -> u64 {
        if self.is_sampled { ONE_IN } else { 1 }
    }
}

impl Windows {
    pub(super) fn new(now: Time) -> Self {
        let (minute, hour) = (Window::new(now), Window::new(now));
        Windows { minute, last_minute: None, hour, last_hour: None }
    }

    /// Counts for a name, which has this hash, in the running minute ([`Windows::roll`]).
    pub(super) fn add(&mut self, name: &[u8], hash: u64, columns: &Columns) {
        self.minute.by_requests.add(name, hash, columns.requests, columns);
        self.minute.by_time.add(name, hash, columns.time_ns(), columns);
    }

    /// Ends the windows that have ended by `now`. At `left_out` something was last not
    /// counted, because other requests stood for it.
    pub(super) fn roll(&mut self, now: Time, left_out: Time) {
        self.minute.is_sampled |= left_out >= self.minute.began;
        if now.ns_since(self.minute.began) >= MINUTE_NS {
            self.end_minutes(now, left_out);
        }
    }

    #[cold]
    fn end_minutes(&mut self, now: Time, left_out: Time) {
        if now.ns_since(self.minute.began) >= FORGOTTEN_AFTER_NS {
            *self = Windows::new(now);
        }
        while now.ns_since(self.minute.began) >= MINUTE_NS {
            self.end_minute();
            self.minute.is_sampled = left_out >= self.minute.began;
        }
    }

    fn end_minute(&mut self) {
        let ended = self.minute.began.plus_ns(MINUTE_NS);
        let minute = std::mem::replace(&mut self.minute, Window::new(ended));
        self.hour.merge(&minute);
        self.last_minute = Some(minute.counted(ended));
        if ended.ns_since(self.hour.began) >= HOUR_NS {
            let hour = std::mem::replace(&mut self.hour, Window::new(ended));
            self.last_hour = Some(hour.counted(ended));
        }
    }

    /// The last full minute; the running hour, or the last full one while that is young.
    /// Before there is one, what has been counted so far.
    pub(super) fn shown(&self, span: Span, now: Time) -> Counted {
        let minutes_end = self.minute.began;
        let is_young = minutes_end.ns_since(self.hour.began) < HOUR_SHOWN_FROM_NS;
        match (span, &self.last_minute, &self.last_hour) {
            (_, None, _) => self.minute.counted(now),
            (Span::Minute, Some(minute), _) => minute.clone(),
            (Span::Hour, _, Some(hour)) if is_young => hour.clone(),
            (Span::Hour, ..) => self.hour.counted(minutes_end),
        }
    }
}

impl Window {
    fn new(began: Time) -> Self {
        let (by_requests, by_time) = (Summary::default(), Summary::default());
        Window { began, is_sampled: false, by_requests, by_time }
    }

    fn merge(&mut self, other: &Window) {
        self.is_sampled |= other.is_sampled;
        self.by_requests.merge(&other.by_requests);
        self.by_time.merge(&other.by_time);
    }

    fn counted(&self, ended: Time) -> Counted {
        Counted {
            began: self.began,
            ended,
            is_sampled: self.is_sampled,
            by_requests: self.by_requests.ranking(ROWS_MAX, &self.by_time),
            by_time: self.by_time.ranking(ROWS_MAX, &self.by_requests),
        }
    }

    /// All rows, as they are.
    fn state(&self) -> Counted {
        let nothing = Summary::default();
        Counted {
            began: self.began,
            ended: self.began,
            is_sampled: self.is_sampled,
            by_requests: self.by_requests.ranking(CAPACITY, &nothing),
            by_time: self.by_time.ranking(CAPACITY, &nothing),
        }
    }

    fn resume(state: Counted, hash: impl Fn(&[u8]) -> u64) -> Self {
        Window {
            began: state.began,
            is_sampled: state.is_sampled,
            by_requests: Summary::resume(state.by_requests, &hash),
            by_time: Summary::resume(state.by_time, &hash),
        }
    }
}

/// What a hot restart carries over. The windows that are running have all their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowsState {
    minute: Counted,
    last_minute: Option<Counted>,
    hour: Counted,
    last_hour: Option<Counted>,
}

impl Windows {
    pub(super) fn state(&self) -> WindowsState {
        WindowsState {
            minute: self.minute.state(),
            last_minute: self.last_minute.clone(),
            hour: self.hour.state(),
            last_hour: self.last_hour.clone(),
        }
    }

    /// Goes on from the state of other windows. Never fails: times that can't be make
    /// empty windows.
    pub(super) fn resume(state: WindowsState, now: Time, hash: impl Fn(&[u8]) -> u64) -> Self {
        let WindowsState { minute, last_minute, hour, last_hour } = state;
        if minute.began > now || hour.began > minute.began {
            return Windows::new(now);
        }
        let (minute, hour) = (Window::resume(minute, &hash), Window::resume(hour, &hash));
        Windows { minute, last_minute, hour, last_hour }
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

    fn roll(windows: &mut Windows, minute: u64) {
        windows.roll(at_minute(minute), Time::default());
    }

    fn add(windows: &mut Windows, minute: u64, name: &str, requests: u64) {
        let columns = Columns { requests, held_ns: 10, ..Columns::default() };
        roll(windows, minute);
        windows.add(name.as_bytes(), hash(name.as_bytes()), &columns);
    }

    fn rows(counted: &Counted) -> Vec<(&str, u64)> {
        let rows = counted.by_requests.iter();
        rows.map(|row| (std::str::from_utf8(&row.name).expect("text"), row.count)).collect()
    }

    fn minutes(counted: &Counted) -> (u64, u64) {
        let minute = |time: Time| (time.as_ns() - 1_000) / MINUTE_NS;
        (minute(counted.began), minute(counted.ended))
    }

    #[test]
    fn the_last_full_minute_is_shown_until_the_next_one_is_full() {
        let mut windows = Windows::new(at_minute(0));
        add(&mut windows, 0, "a", 3);
        let so_far = windows.shown(Span::Minute, at_minute(0).plus_ns(7));
        assert_eq!((rows(&so_far), so_far.ended), (vec![("a", 3)], at_minute(0).plus_ns(7)));
        add(&mut windows, 1, "b", 1);
        add(&mut windows, 1, "b", 1);
        let full = windows.shown(Span::Minute, at_minute(1));
        assert_eq!((rows(&full), minutes(&full)), (vec![("a", 3)], (0, 1)));
        assert_eq!(full.by_time[0].count, 10);
        roll(&mut windows, 2);
        assert_eq!(rows(&windows.shown(Span::Minute, at_minute(2))), [("b", 2)]);
        roll(&mut windows, 3);
        assert_eq!(rows(&windows.shown(Span::Minute, at_minute(3))), []);
    }

    #[test]
    fn the_running_hour_is_shown_once_it_is_ten_minutes_old() {
        let mut windows = Windows::new(at_minute(0));
        let mut shown = Vec::new();
        for minute in 0..=131 {
            add(&mut windows, minute, "always", 1);
            add(&mut windows, minute, &format!("in the {minute}th"), 2);
            let hour = windows.shown(Span::Hour, at_minute(minute));
            let always = hour.by_requests.iter().find(|row| row.name == b"always");
            shown.push((minutes(&hour), always.map_or(0, |row| row.count)));
        }
        // In the first minute, what there is.
        assert_eq!(shown[0], ((0, 0), 1));
        for (minute, window) in [
            (1, (0, 1)),
            (59, (0, 59)),
            (60, (0, 60)),
            (69, (0, 60)),
            (70, (60, 70)),
            (119, (60, 119)),
            (129, (60, 120)),
            (131, (120, 131)),
        ] {
            assert_eq!(shown[minute], (window, window.1 - window.0), "in minute {minute}");
        }
    }

    #[test]
    fn a_window_tells_whether_something_was_left_out() {
        let mut windows = Windows::new(at_minute(0));
        for minute in 0..=3 {
            let left_out = if minute < 2 { Time::default() } else { at_minute(1).plus_ns(5) };
            windows.roll(at_minute(minute), left_out);
            let shown = windows.shown(Span::Minute, at_minute(minute));
            assert_eq!(shown.sampled_one_in() > 1, minute == 2, "{minute}");
        }
        assert_eq!(windows.shown(Span::Hour, at_minute(3)).sampled_one_in(), ONE_IN);
    }

    #[test]
    fn after_a_long_silence_nothing_is_left() {
        let mut windows = Windows::new(at_minute(0));
        for minute in 0..80 {
            add(&mut windows, minute, "a", 1);
        }
        roll(&mut windows, 1_000_000);
        assert_eq!(rows(&windows.shown(Span::Hour, at_minute(1_000_000))), []);
        assert_eq!(rows(&windows.shown(Span::Minute, at_minute(1_000_000))), []);
    }

    #[test]
    fn windows_survive_a_restart() {
        let mut windows = Windows::new(at_minute(0));
        for minute in 0..75 {
            add(&mut windows, minute, &format!("{minute}"), 1 + minute);
        }
        let bytes = rmp_serde::to_vec_named(&windows.state()).expect("bytes");
        let state = rmp_serde::from_slice(&bytes).expect("a state");
        let resumed = Windows::resume(state, at_minute(75), hash);
        assert_eq!(resumed.state(), windows.state());
        let future = Windows::resume(windows.state(), at_minute(1), hash);
        assert_eq!(rows(&future.shown(Span::Hour, at_minute(1))), []);
    }
}
