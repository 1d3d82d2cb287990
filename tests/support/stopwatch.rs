//! The tests of `make test` read the clock and sleep here alone. Nothing here tells a test how
//! long something took, so that none depends on the speed of the machine.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// How long any step may take before a test fails: longer than a busy machine ever needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The longest pause between two questions.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// Started where a time begins of which a test asserts a bound.
pub(crate) struct Stopwatch {
    started: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { started: now() }
    }

    /// Asserts that at least this much time has passed: what has happened since was not early.
    #[track_caller]
    pub(crate) fn at_least(&self, time: Duration) {
        let passed = self.passed();
        assert!(passed >= time, "{passed:?} have passed, less than {time:?}");
    }

    /// Asserts that [`PATIENCE`], the only upper bound, is not over.
    #[track_caller]
    pub(crate) fn within_patience(&self) {
        let passed = self.passed();
        assert!(passed < PATIENCE, "{passed:?} have passed");
    }

    /// Asserts that a time of CLOCK_MONOTONIC, which the daemon tells, is not before the start.
    #[track_caller]
    pub(crate) fn started_by(&self, monotonic: Duration) {
        assert!(monotonic >= self.started, "{monotonic:?}, started at {:?}", self.started);
    }

    fn passed(&self) -> Duration {
        now() - self.started
    }
}

#[expect(clippy::disallowed_methods, reason = "the test does not see the time")]
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// For a server of the test that is slow; otherwise a test waits for what it needs.
#[expect(clippy::disallowed_methods, reason = "nothing tells when to ask or to answer")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Asks again and again, for a state without an event; `None` if there is no answer within
/// [`PATIENCE`].
pub(crate) fn ask_until_answered<T>(ask: impl FnMut() -> Option<T>) -> Option<T> {
    ask_within(PATIENCE, ask)
}

/// The same for a shorter time, after which a test tries something else. The pauses grow: most
/// answers come soon.
pub(crate) fn ask_within<T>(time: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let asking = Stopwatch::start();
    let mut time_to_next = Duration::from_micros(20);
    loop {
        let answer = ask();
        if answer.is_some() || asking.passed() > time {
            return answer;
        }
        pause(time_to_next);
        time_to_next = PAUSE_MAX.min(2 * time_to_next);
    }
}
