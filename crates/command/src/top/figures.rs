//! A server's statistics, of `STATS JSON` or from an older server of `STATS FULL`, and those of
//! before: rates, and the average of the last minute.

use schema::reports::Report;
use schema::table::Uptime;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Of which time the average is.
const MINUTE: Duration = Duration::from_secs(60);

/// The statistics at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    uptime_s: f64,
    counters: BTreeMap<String, u64>,
    times_s: BTreeMap<String, f64>,
}

impl Figures {
    pub(super) fn of(report: &Report) -> Figures {
        let (counters, times_s) = (report.counters.clone(), report.times_s.clone());
        Figures { uptime_s: report.uptime_s, counters, times_s }
    }

    /// A whole number by its name.
    pub(super) fn counter(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    pub(super) fn uptime(&self) -> String {
        Uptime(self.uptime_s as u64).to_string()
    }

    /// How long locks were held that were released, all together.
    fn held_s(&self) -> Option<f64> {
        self.times_s.get("processing").copied()
    }

    /// By how much a counter has grown.
    pub(super) fn growth(&self, before: &Figures, name: &str) -> Option<f64> {
        Some(self.counter(name)? as f64 - before.counter(name)? as f64)
    }

    /// How long the locks were held on average that were released since `before`; `None` if there
    /// were none.
    pub(super) fn average_hold_s(&self, before: &Figures) -> Option<f64> {
        let (count, held_s) = (self.growth(before, RELEASED)?, self.held_s()? - before.held_s()?);
        // A server that was started again has counted less.
        (count > 0.0 && held_s >= 0.0).then(|| held_s / count)
    }

    /// The same since the start of the server.
    pub(super) fn average_hold_since_start_s(&self) -> Option<f64> {
        let count = self.counter(RELEASED).filter(|&count| count > 0)?;
        Some(self.held_s()? / count as f64)
    }
}

/// How many locks were released.
const RELEASED: &str = "processed_count";

/// Earlier statistics of a server, of a minute at least once it was watched for so long.
#[derive(Debug, Default)]
pub(super) struct PastFigures(VecDeque<(Figures, Duration)>);

/// Earlier statistics, and how many seconds ago they were read.
pub(super) type Before = (Figures, f64);

impl PastFigures {
    /// Adds those of `now`, a time since any moment; returns the ones before, and the youngest that are a minute old, or the
    /// oldest.
    pub(super) fn add(&mut self, figures: &Figures, now: Duration) -> [Option<Before>; 2] {
        let is_older = |second: &(Figures, Duration)| now - second.1 >= MINUTE;
        while self.0.get(1).is_some_and(is_older) {
            self.0.pop_front();
        }
        let before = |past: Option<&(Figures, Duration)>| {
            past.map(|(figures, at)| (figures.clone(), (now - *at).as_secs_f64().max(1e-3)))
        };
        let found = [before(self.0.back()), before(self.0.front())];
        self.0.push_back((figures.clone(), now));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::stats_full::StatsFull;

    fn figures(released: u64, held_s: f64) -> Figures {
        Figures {
            uptime_s: 90_061.9,
            counters: [("processed_count".to_owned(), released)].into(),
            times_s: [("processing".to_owned(), held_s)].into(),
        }
    }

    #[test]
    fn both_kinds_of_servers_have_the_same_figures() {
        let full =
            "uptime: 1 days, 1h 1m 1s\ntotal processing time: 9.000000s\nprocessed_count: 3\n";
        let report = serde_json::from_value(StatsFull::read(full).as_json());
        let old = Figures::of(&report.expect("statistics"));
        assert_eq!(old.uptime(), "1 days, 1h 1m 1s");
        assert_eq!(old.uptime(), figures(3, 9.0).uptime());
        assert_eq!(old.average_hold_since_start_s(), Some(3.0));
        assert_eq!(figures(3, 9.0).average_hold_since_start_s(), Some(3.0));
        assert_eq!(Figures::default().counter("processed_count"), None);
    }

    #[test]
    fn an_average_is_of_what_came_since() {
        let before = figures(10, 1_000.0);
        assert_eq!(figures(14, 1_002.0).average_hold_s(&before), Some(0.5));
        assert_eq!(before.average_hold_s(&before), None, "nothing was released");
        assert_eq!(figures(2, 1.0).average_hold_s(&before), None, "it was started again");
    }

    #[test]
    fn figures_of_a_minute_ago_are_kept() {
        let mut past = PastFigures::default();
        let ages = |past: &mut PastFigures, s: u64| {
            let found = past.add(&figures(s, 0.0), Duration::from_secs(s));
            found.map(|before| before.map(|(_, s)| s as u64))
        };
        assert_eq!(ages(&mut past, 0), [None, None]);
        assert_eq!(ages(&mut past, 10), [Some(10), Some(10)]);
        assert_eq!(ages(&mut past, 50), [Some(40), Some(50)]);
        assert_eq!(ages(&mut past, 69), [Some(19), Some(69)]);
        assert_eq!(ages(&mut past, 70), [Some(1), Some(60)]);
        assert_eq!(ages(&mut past, 4_000), [Some(3_930), Some(3_930)]);
    }
}
