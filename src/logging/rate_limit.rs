//! How often a line is logged: [`limited`] logs one every ten seconds for each place in the
//! source, and counts the rest.

use crate::platform::clock;
use engine::Time;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The limits that were used.
static KNOWN: Mutex<Vec<&'static RateLimit>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<&'static RateLimit>> {
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

/// A line of a format without its arguments, which were not kept.
pub(crate) fn without_arguments(format: &str) -> String {
    let mut line = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        line += before;
        line.push('…');
        rest = after.split_once('}').map_or("", |(_, rest)| rest);
    }
    line + rest
}

/// As in a new process.
#[cfg(test)]
pub(crate) fn forget() {
    known().iter().for_each(|limit| _ = limit.reset());
}

/// The limit of one place in the source, made by [`limited`]: admits a line every ten
/// seconds, and counts the rest.
pub(crate) struct RateLimit {
    /// Logs how many lines were dropped.
    report: fn(u64),
    state: Mutex<RateLimitState>,
}

struct RateLimitState {
    is_known: bool,
    last: Option<Time>,
    suppressed: u64,
}

impl RateLimit {
    const INTERVAL_NS: u64 = 10_000_000_000;

    pub(crate) const fn new(report: fn(u64)) -> Self {
        let state = RateLimitState { is_known: false, last: None, suppressed: 0 };
        RateLimit { report, state: Mutex::new(state) }
    }

    /// Whether a line that follows may be logged; if not, it counts as dropped.
    pub(crate) fn admits(&'static self) -> bool {
        let was_known = std::mem::replace(&mut self.lock().is_known, true);
        if !was_known {
            known().push(self);
        }
        let now = clock::now();
        let mut state = self.lock();
        let is_over = state.last.is_none_or(|last| now.ns_since(last) >= Self::INTERVAL_NS);
        state.suppressed += u64::from(!is_over);
        is_over
    }

    /// `None` if the line must be dropped; otherwise what to append to it about
    /// earlier dropped lines.
    pub(crate) fn allow(&'static self) -> Option<String> {
        if !self.admits() {
            return None;
        }
        let mut state = self.lock();
        state.last = Some(clock::now());
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

    fn lock(&self) -> MutexGuard<'_, RateLimitState> {
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
        static LIMIT: $crate::logging::rate_limit::RateLimit =
            $crate::logging::rate_limit::limit_of!($level, $format);
        if let Some(suppressed) = LIMIT.allow() {
            log::$level!("{}{suppressed}", format_args!($format $($arguments)*));
        }
    }};
}
pub(crate) use limited;

/// The limit of a line of this format.
macro_rules! limit_of {
    ($level:ident, $format:literal) => {
        $crate::logging::rate_limit::RateLimit::new(|count| {
            let line = $crate::logging::rate_limit::without_arguments($format);
            log::$level!("{count} more like this were not logged: {line}")
        })
    };
}
pub(crate) use limit_of;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_was_dropped_is_reported_once_before_a_restart() {
        let _alone = crate::simulation::alone();
        static SAID: AtomicU64 = AtomicU64::new(0);
        static LIMIT: RateLimit =
            RateLimit::new(|count| _ = SAID.fetch_add(count, Ordering::Relaxed));
        (0..4).for_each(|_| drop(LIMIT.allow()));
        (0..2).for_each(|_| report_suppressed());
        assert_eq!(SAID.load(Ordering::Relaxed), 3);
        assert_eq!(LIMIT.allow().as_deref(), Some(""));
    }

    #[test]
    fn a_line_without_its_arguments_has_no_braces() {
        for (format, line) in [
            ("{ip} is not in --allow: closed", "… is not in --allow: closed"),
            ("closed {}, which held {} for {} s", "closed …, which held … for … s"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(without_arguments(format), line);
        }
    }

    #[test]
    fn each_place_has_a_limit_of_its_own() {
        let mut evaluated = 0;
        let mut count = || {
            evaluated += 1;
            evaluated
        };
        let _alone = crate::simulation::alone();
        log::set_max_level(log::LevelFilter::Error);
        for _ in 0..3 {
            limited!(error, "one place: {}", count());
        }
        limited!(error, "another place: {}", count());
        log::set_max_level(log::LevelFilter::Off);
        assert_eq!(evaluated, 2);
    }
}
