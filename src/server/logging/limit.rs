//! A rate limit for each kind of log line, so that a recurring problem does not fill
//! the log.

use crate::engine::Time;
use crate::server::clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Admits one log line of a kind every ten seconds and counts the rest.
#[derive(Debug, Default)]
pub(in crate::server) struct RateLimit {
    last: Option<Time>,
    suppressed: u64,
}

impl RateLimit {
    const INTERVAL_NS: u64 = 10_000_000_000;

    const fn new() -> Self {
        RateLimit { last: None, suppressed: 0 }
    }

    /// `None` if the line must be dropped; otherwise what to append to it about
    /// earlier dropped lines.
    pub(in crate::server) fn admit(&mut self) -> Option<String> {
        self.admit_at(clock::now())
    }

    fn admit_at(&mut self, now: Time) -> Option<String> {
        if self.last.is_some_and(|last| now.ns_since(last) < Self::INTERVAL_NS) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(match std::mem::take(&mut self.suppressed) {
            0 => String::new(),
            n => format!(" ({n} more like this were not logged)"),
        })
    }
}

/// The limits that were used.
static KNOWN: Mutex<Vec<&'static Limit>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<&'static Limit>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs how many lines were dropped and not reported yet, and resets all limits.
pub(in crate::server) fn report_suppressed() {
    for limit in known().iter() {
        match std::mem::take(&mut *limit.lock()).suppressed {
            0 => {}
            n => (limit.report)(n),
        }
    }
}

/// As in a new process.
#[cfg(test)]
pub(super) fn forget() {
    known().iter().for_each(|limit| *limit.lock() = RateLimit::new());
}

/// The limit of one place in the source, made by [`limited`].
pub(in crate::server) struct Limit {
    /// Logs how many lines were dropped.
    report: fn(u64),
    is_known: AtomicBool,
    limit: Mutex<RateLimit>,
}

impl Limit {
    pub(in crate::server) const fn new(report: fn(u64)) -> Self {
        Limit { report, is_known: AtomicBool::new(false), limit: Mutex::new(RateLimit::new()) }
    }

    /// See [`RateLimit::admit`].
    pub(in crate::server) fn admit(&'static self) -> Option<String> {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            known().push(self);
        }
        self.lock().admit()
    }

    fn lock(&self) -> MutexGuard<'_, RateLimit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs like `warn!` or `error!`, but at most one line every ten seconds for each
/// place of use. The next line, or a line before a hot restart, reports how many were omitted.
/// Arguments are evaluated only for a written line.
///
/// ```text
/// limited!(warn, "{} does not read its answers and is disconnected", peer_of(&socket));
/// ```
macro_rules! limited {
    ($level:ident, $format:literal $($arguments:tt)*) => {{
        static LIMIT: $crate::server::logging::limit::Limit =
            $crate::server::logging::limit::Limit::new(|count| {
                log::$level!("{count} more like this were not logged: {}", $format)
            });
        if let Some(suppressed) = LIMIT.admit() {
            log::$level!("{}{suppressed}", format_args!($format $($arguments)*));
        }
    }};
}
pub(in crate::server) use limited;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn one_line_every_ten_seconds_and_the_number_of_the_rest() {
        let mut limit = RateLimit::new();
        let at = |seconds: u64| Time::from_ns(seconds * 1_000_000_000);
        assert_eq!(limit.admit_at(at(100)).as_deref(), Some(""));
        for second in 100..110 {
            assert_eq!(limit.admit_at(at(second)), None);
        }
        let next = limit.admit_at(at(110));
        assert_eq!(next.as_deref(), Some(" (10 more like this were not logged)"));
        assert_eq!(limit.admit_at(at(120)).as_deref(), Some(""));
    }

    #[test]
    fn what_was_dropped_is_reported_once_before_a_restart() {
        let _alone = crate::server::simulation::alone();
        static SAID: AtomicU64 = AtomicU64::new(0);
        static LIMIT: Limit = Limit::new(|count| _ = SAID.fetch_add(count, Ordering::Relaxed));
        (0..4).for_each(|_| drop(LIMIT.admit()));
        (0..2).for_each(|_| report_suppressed());
        assert_eq!(SAID.load(Ordering::Relaxed), 3);
        assert_eq!(LIMIT.admit().as_deref(), Some(""));
    }

    #[test]
    fn each_place_has_a_limit_of_its_own() {
        let mut evaluated = 0;
        let mut count = || {
            evaluated += 1;
            evaluated
        };
        let _alone = crate::server::simulation::alone();
        log::set_max_level(log::LevelFilter::Error);
        for _ in 0..3 {
            limited!(error, "one place: {}", count());
        }
        limited!(error, "another place: {}", count());
        log::set_max_level(log::LevelFilter::Off);
        assert_eq!(evaluated, 2);
    }
}
