//! A rate limit for each kind of log line, so that a recurring problem does not fill
//! the log.

use crate::engine::Time;
use crate::server::kernel::clock;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The limits that were used.
static KNOWN: Mutex<Vec<&'static Limit>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<&'static Limit>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs how many lines were dropped and not reported yet, and resets all limits.
pub(crate) fn report_suppressed() {
    for limit in known().iter() {
        match limit.reset() {
            0 => {}
            n => (limit.report)(n),
        }
    }
}

/// As in a new process.
#[cfg(test)]
pub(super) fn forget() {
    known().iter().for_each(|limit| _ = limit.reset());
}

/// The limit of one place in the source, made by [`limited`]: admits a line every ten
/// seconds, and counts the rest.
pub(crate) struct Limit {
    /// Logs how many lines were dropped.
    report: fn(u64),
    state: Mutex<LimitState>,
}

struct LimitState {
    is_known: bool,
    last: Option<Time>,
    suppressed: u64,
}

impl Limit {
    const INTERVAL_NS: u64 = 10_000_000_000;

    pub(crate) const fn new(report: fn(u64)) -> Self {
        let state = LimitState { is_known: false, last: None, suppressed: 0 };
        Limit { report, state: Mutex::new(state) }
    }

    /// `None` if the line must be dropped; otherwise what to append to it about
    /// earlier dropped lines.
    pub(crate) fn allow(&'static self) -> Option<String> {
        let was_known = std::mem::replace(&mut self.lock().is_known, true);
        if !was_known {
            known().push(self);
        }
        let now = clock::now();
        let mut state = self.lock();
        if state.last.is_some_and(|last| now.ns_since(last) < Self::INTERVAL_NS) {
            state.suppressed += 1;
            return None;
        }
        state.last = Some(now);
        Some(match std::mem::take(&mut state.suppressed) {
            0 => String::new(),
            n => format!(" ({n} more like this were not logged)"),
        })
    }

    /// Admits the next line again. Returns how many were dropped.
    fn reset(&self) -> u64 {
        let mut state = self.lock();
        state.last = None;
        std::mem::take(&mut state.suppressed)
    }

    fn lock(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        static LIMIT: $crate::server::telling::logging::limit::Limit =
            $crate::server::telling::logging::limit::Limit::new(|count| {
                log::$level!("{count} more like this were not logged: {}", $format)
            });
        if let Some(suppressed) = LIMIT.allow() {
            log::$level!("{}{suppressed}", format_args!($format $($arguments)*));
        }
    }};
}
pub(crate) use limited;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_was_dropped_is_reported_once_before_a_restart() {
        let _alone = crate::server::simulation::alone();
        static SAID: AtomicU64 = AtomicU64::new(0);
        static LIMIT: Limit = Limit::new(|count| _ = SAID.fetch_add(count, Ordering::Relaxed));
        (0..4).for_each(|_| drop(LIMIT.allow()));
        (0..2).for_each(|_| report_suppressed());
        assert_eq!(SAID.load(Ordering::Relaxed), 3);
        assert_eq!(LIMIT.allow().as_deref(), Some(""));
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
