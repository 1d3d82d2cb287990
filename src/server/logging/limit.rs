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

/// How many lines of a kind were dropped and not reported yet. The kind is the text of
/// its line, before arguments are put in.
pub(in crate::server) type Suppressed = (String, u64);

/// The limits that this image has used, and the counts that the old image left to the
/// others.
struct Known {
    limits: Vec<&'static Limit>,
    inherited: Vec<Suppressed>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { limits: Vec::new(), inherited: Vec::new() });

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a hot restart carries over.
pub(super) fn suppressed() -> Vec<Suppressed> {
    let (limits, inherited) = {
        let known = known();
        (known.limits.clone(), known.inherited.clone())
    };
    let own = limits.into_iter().map(|limit| (limit.kind.to_owned(), limit.lock().suppressed));
    own.chain(inherited).filter(|(_, count)| *count > 0).collect()
}

/// Leaves these counts to the limits, each of which takes its own at its first use.
pub(super) fn inherit(suppressed: Vec<Suppressed>) {
    let mut known = known();
    // A simulated image has the limits of the one before it.
    for limit in known.limits.drain(..) {
        *limit.lock() = RateLimit::new();
        limit.is_known.store(false, Ordering::Relaxed);
    }
    known.inherited = suppressed;
}

/// The limit of one place in the source, made by [`limited`].
pub(in crate::server) struct Limit {
    kind: &'static str,
    is_known: AtomicBool,
    limit: Mutex<RateLimit>,
}

impl Limit {
    pub(in crate::server) const fn new(kind: &'static str) -> Self {
        Limit { kind, is_known: AtomicBool::new(false), limit: Mutex::new(RateLimit::new()) }
    }

    /// See [`RateLimit::admit`].
    pub(in crate::server) fn admit(&'static self) -> Option<String> {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            let inherited = self.register();
            self.lock().suppressed += inherited;
        }
        self.lock().admit()
    }

    /// Returns how many lines the old image dropped and did not report.
    fn register(&'static self) -> u64 {
        let mut known = known();
        known.limits.push(self);
        let at = known.inherited.iter().position(|(kind, _)| kind == self.kind);
        at.map_or(0, |at| known.inherited.swap_remove(at).1)
    }

    fn lock(&self) -> MutexGuard<'_, RateLimit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs like `warn!` or `error!`, but at most one line every ten seconds for each
/// place of use; the next line says how many were omitted, also after a hot restart.
/// Arguments are evaluated only for a written line.
///
/// ```text
/// limited!(warn, "{} does not read its answers and is disconnected", peer_of(&socket));
/// ```
macro_rules! limited {
    ($level:ident, $format:literal $($arguments:tt)*) => {{
        static LIMIT: $crate::server::logging::limit::Limit =
            $crate::server::logging::limit::Limit::new($format);
        if let Some(suppressed) = LIMIT.admit() {
            log::$level!("{}{suppressed}", format_args!($format $($arguments)*));
        }
    }};
}
pub(in crate::server) use limited;

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_was_dropped_is_handed_over() {
        let _alone = crate::server::simulation::alone();
        static LIMIT: Limit = Limit::new("a line");
        (0..4).for_each(|_| drop(LIMIT.admit()));
        assert!(suppressed().contains(&("a line".to_owned(), 3)));
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
