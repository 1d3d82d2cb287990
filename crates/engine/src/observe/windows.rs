//! The most frequent names of a minute and of an hour. Each minute is counted on its own, and
//! added to its hour when it ends, or when the hour is shown.

use crate::observe::heavy_hitters::{By, Columns, HeavyHitters, HeavyHittersState, Ranked};
use crate::observe::sampler::ONE_IN;
use crate::time::Time;
use alloc::vec::Vec;
use protocol::Span;
use serde::{Deserialize, Serialize};

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;

/// A running minute or hour is shown from this age on; before, the last ended one, if any.
const MINUTE_SHOWN_FROM_NS: u64 = 10_000_000_000;
const HOUR_SHOWN_FROM_NS: u64 = 10 * MINUTE_NS;

/// The windows of keys, or of addresses.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    minute: Window,
    /// Without the running minute.
    hour: Window,
}

/// What is being counted, and what was counted last.
#[derive(Clone, Debug)]
struct Window {
    began: Time,
    running: HeavyHitters,
    last: Option<Counted>,
}

/// A window as a hot restart carries it over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WindowState {
    #[serde(rename = "began_ns")]
    began: Time,
    running: HeavyHittersState,
    last: Option<Counted>,
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
    /// One request in this many was followed when requests were sampled; 1 if all were
    /// followed.
    pub sampled_one_in: u64,
    /// The most frequent first; counts are requests.
    pub by_requests: Vec<Ranked>,
    /// The same; counts are nanoseconds waited and held.
    pub by_time: Vec<Ranked>,
}

impl Counted {
    /// How much time the counts cover, in nanoseconds.
    pub fn covered_ns(&self) -> u64 {
        self.ended.ns_since(self.began)
    }
}

impl Windows {
    pub(crate) fn new(now: Time) -> Self {
        let window = Window { began: now, running: HeavyHitters::default(), last: None };
        Windows { minute: window.clone(), hour: window }
    }

    /// Counts for a name, which has this hash, in the running minute ([`Windows::roll`]).
    pub(crate) fn add(&mut self, name: &[u8], hash: u64, columns: &Columns) {
        self.minute.running.add(name, hash, columns);
    }

    /// Closes the windows that have ended by `now`. `left_out` is when something was last not
    /// counted because another request stood for it.
    pub(crate) fn roll(&mut self, now: Time, left_out: Time) {
        if now.ns_since(self.minute.began) >= MINUTE_NS {
            self.hour.running.merge(&self.minute.running);
            self.minute.roll(MINUTE_NS, now, left_out);
            self.hour.roll(HOUR_NS, now, left_out);
        }
    }

    /// When the running minute is over.
    pub(crate) fn minute_ends(&self) -> Time {
        self.minute.began.plus_ns(MINUTE_NS)
    }

    /// What there is to show of the last minute or hour.
    pub(crate) fn shown(&self, span: Span, now: Time, left_out: Time) -> Counted {
        let (window, shown_from_ns) = match span {
            Span::Minute => (&self.minute, MINUTE_SHOWN_FROM_NS),
            Span::Hour => (&self.hour, HOUR_SHOWN_FROM_NS),
        };
        let is_young = now.ns_since(window.began) < shown_from_ns;
        match &window.last {
            Some(last) if is_young => last.clone(),
            _ if span == Span::Minute => window.counted(now, left_out),
            _ => {
                let mut hour = window.clone();
                hour.running.merge(&self.minute.running);
                hour.counted(now, left_out)
            }
        }
    }

    /// The last full minute; before there is one, the time so far.
    pub(crate) fn full_minute(&self, now: Time, left_out: Time) -> Counted {
        let last = self.minute.last.clone();
        last.unwrap_or_else(|| self.minute.counted(now, left_out))
    }

    pub(crate) fn state(&self) -> [WindowState; 2] {
        [&self.minute, &self.hour].map(|window| WindowState {
            began: window.began,
            running: window.running.state(),
            last: window.last.clone(),
        })
    }

    pub(crate) fn resume(state: [WindowState; 2], hash: impl Fn(&[u8]) -> u64) -> Self {
        let [minute, hour] = state.map(|WindowState { began, running, last }| Window {
            began,
            running: HeavyHitters::resume(running, &hash),
            last,
        });
        Windows { minute, hour }
    }
}

impl Window {
    fn roll(&mut self, length_ns: u64, now: Time, left_out: Time) {
        let ended = now.ns_since(self.began) / length_ns;
        if ended == 0 {
            return;
        }
        if ended > 1 {
            // Several have ended: nothing was counted in the last one.
            self.began = self.began.plus_ns((ended - 1) * length_ns);
            self.running = HeavyHitters::default();
        }
        let next = self.began.plus_ns(length_ns);
        self.last = Some(self.counted(next, left_out));
        (self.began, self.running) = (next, HeavyHitters::default());
    }

    fn counted(&self, ended: Time, left_out: Time) -> Counted {
        Counted {
            began: self.began,
            ended,
            sampled_one_in: if left_out < self.began { 1 } else { ONE_IN.into() },
            by_requests: self.running.ranking(By::Requests),
            by_time: self.running.ranking(By::Time),
        }
    }
}
