//! Asks a server since when its process runs, and finds whether that is long enough.

use crate::ask::read_answer;
use crate::run::act::Uptime;
use crate::stats_full::StatsFull;
use connect::{NoAnswer, StatsConnection};
use schema::reports::Report;
use std::time::Duration;

/// How often to ask for an exact uptime, if answers are too slow to decide by.
const EXACT_QUERIES_MAX: u32 = 5;

/// Asks whether the server's process runs for as long as `passed` tells, at least, when it is called.
/// If only the fraction of a second decides it, and the server does not tell that, it does not.
///
/// # Errors
/// Why there is no answer. [`NoAnswer::Refused`] also if it is no uptime.
pub(super) fn ask_uptime(
    connection: &mut StatsConnection,
    passed: impl Fn() -> Duration,
) -> Result<Uptime, NoAnswer> {
    let line = connection.query("UPTIME")?;
    let uptime = whole_seconds(&line).ok_or(NoAnswer::Refused(line))?;
    let passed_by_then = passed();
    // It is rounded down to whole seconds.
    if uptime >= passed_by_then || uptime + Duration::from_secs(1) <= passed_by_then {
        return Ok(since(uptime, passed_by_then));
    }
    for _ in 0..EXACT_QUERIES_MAX {
        let passed_before = passed();
        let exact = match connection.query("JSON") {
            Ok(json) => exact(&json),
            Err(NoAnswer::Unknown) => None,
            Err(e) => return Err(e),
        };
        let Some(uptime) = exact else { break };
        // The uptime is that of a moment between the question and the answer.
        if uptime < passed_before || uptime >= passed() {
            return Ok(since(uptime, passed_before));
        }
    }
    Ok(Uptime::HasEnded)
}

fn since(uptime: Duration, passed: Duration) -> Uptime {
    if uptime >= passed { Uptime::RunsSince } else { Uptime::HasEnded }
}

/// Reads `uptime: 0 days, 0h 3m 10s`.
fn whole_seconds(line: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(StatsFull::read(line).number("uptime")?).ok()
}

/// Reads `STATS JSON`.
fn exact(json: &str) -> Option<Duration> {
    let report = read_answer::<Report>(json).ok()?.report;
    Duration::try_from_secs_f64(report.uptime_s).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_are_read() {
        let seconds = |line| whole_seconds(line).map(|uptime| uptime.as_secs_f64());
        assert_eq!(seconds("uptime: 0 days, 0h 3m 10s\n"), Some(190.0));
        assert_eq!(seconds("uptime: 2 days, 1h 0m 5s\n\n"), Some(176_405.0));
        for wrong in ["", "uptime: ", "uptime: -1", "uptime: x days, 0h 3m 10s", "up: 1s"] {
            assert_eq!(seconds(wrong), None, "{wrong:?}");
        }
        let json = r#"{"counters": {"\"uptime_s\":7": 1}, "uptime_s": 1.25}"#;
        assert_eq!(exact(json), Some(Duration::from_millis(1250)));
        assert_eq!(exact("{}"), None);
    }
}
