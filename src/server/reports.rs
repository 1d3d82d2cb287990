//! What `STATS` shows, as text.

use crate::engine::statistics::{COUNTERS_IN_FULL, Counters, Durations};
use crate::engine::{Engine, Time};
use std::fmt::{self, Display, Formatter};

/// The answer to `STATS <what>`. `None` when there is no such statistic.
pub fn stats(what: &[u8], engine: &Engine, now: Time) -> Option<Vec<u8>> {
    let uptime = Uptime(now.ns_since(engine.started()));
    if what.eq_ignore_ascii_case(b"FULL") {
        return Some(Full { engine, uptime }.to_string().into_bytes());
    }
    if what.eq_ignore_ascii_case(b"UPTIME") {
        return Some(format!("uptime: {uptime}\n").into_bytes());
    }
    let named = |name: &str| what.eq_ignore_ascii_case(name.as_bytes());
    let counter = Counters::ALL.iter().find(|counter| named(counter.name))?;
    let value = (counter.get)(&engine.counters);
    Some(format!("{}: {value}\n", counter.name).into_bytes())
}

struct Full<'a> {
    engine: &'a Engine,
    uptime: Uptime,
}

impl Display for Full<'_> {
    /// Order and wording are what scrapers in use expect, and the blank line at
    /// the end is what they wait for.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let d: &Durations = self.engine.durations();
        let processed = u128::from(self.engine.counters.processed_count);
        let average_ns = d.processing_ns.checked_div(processed).unwrap_or(0);
        let waiting_ns = d.waiting_for_me_ns + d.waiting_for_anyone_ns;
        writeln!(f, "uptime: {}", self.uptime)?;
        for (name, ns) in [
            ("total processing time", d.processing_ns),
            ("average processing time", average_ns),
            ("gained time", d.gained_ns),
            ("waiting time", waiting_ns),
            ("waiting time for me", d.waiting_for_me_ns),
            ("waiting time for anyone", d.waiting_for_anyone_ns),
            ("waiting time for good", d.waiting_for_good_ns),
            ("wasted timeout time", d.wasted_timeout_ns),
        ] {
            writeln!(f, "{name}: {}", Duration(ns))?;
        }
        for counter in &Counters::ALL[..COUNTERS_IN_FULL] {
            writeln!(f, "{}: {}", counter.name, (counter.get)(&self.engine.counters))?;
        }
        writeln!(f)
    }
}

/// Nanoseconds, shown as `0 days, 0h 3m 10s`.
struct Uptime(u64);

impl Display for Uptime {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let s = self.0 / 1_000_000_000;
        let (days, hours, minutes) = (s / 86_400, s / 3_600 % 24, s / 60 % 60);
        write!(f, "{days} days, {hours}h {minutes}m {}s", s % 60)
    }
}

/// Nanoseconds, shown as `2.500000s`, from one minute on `1m 2.500000s`, from one
/// hour on `1h 0m 2.500000s`, from one day on `1 days 0h 0m 2.500000s`.
struct Duration(u128);

impl Display for Duration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let us = self.0 / 1_000;
        let s = us / 1_000_000;
        if s >= 86_400 {
            write!(f, "{} days ", s / 86_400)?;
        }
        if s >= 3_600 {
            write!(f, "{}h ", s / 3_600 % 24)?;
        }
        if s >= 60 {
            write!(f, "{}m ", s / 60 % 60)?;
        }
        write!(f, "{}.{:06}s", s % 60, us % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_grow_a_unit_at_a_time() {
        const S: u128 = 1_000_000_000;
        for (ns, shown) in [
            (0, "0.000000s"),
            (1_999, "0.000001s"),
            (59 * S + 999_999_999, "59.999999s"),
            (60 * S, "1m 0.000000s"),
            (3_600 * S + 500_000_000, "1h 0m 0.500000s"),
            (84_553 * S + 609_375_000, "23h 29m 13.609375s"),
            (86_400 * S, "1 days 0h 0m 0.000000s"),
            (356_437 * S + 62_500_000, "4 days 3h 0m 37.062500s"),
        ] {
            assert_eq!(Duration(ns).to_string(), shown);
        }
    }

    #[test]
    fn uptime_shows_all_four_parts() {
        assert_eq!(Uptime(190_000_000_000).to_string(), "0 days, 0h 3m 10s");
        assert_eq!(Uptime(90_061_999_999_999).to_string(), "1 days, 1h 1m 1s");
    }
}
