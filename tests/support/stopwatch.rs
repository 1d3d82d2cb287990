//! The tests of `make test` read the clock and sleep here alone. Nothing here tells a test how
//! long something took, so that none depends on the speed of the machine.

use crate::support::PATIENCE;
use std::time::{Duration, Instant};

/// The longest pause between two questions.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// Started where a time begins of which a test asserts a bound.
pub(crate) struct Stopwatch {
    started: Instant,
}

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "the test does not see the time")]
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { started: Instant::now() }
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

    #[expect(clippy::disallowed_methods, reason = "the test does not see the time")]
    fn passed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Asks again and again, for a state without an event; `None` if there is no answer within
/// [`PATIENCE`]. The pauses grow: most answers come soon.
#[expect(clippy::disallowed_methods, reason = "nothing tells when to ask again")]
pub(crate) fn ask_until_answered<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let asking = Stopwatch::start();
    let mut pause = Duration::from_micros(20);
    loop {
        let answer = ask();
        if answer.is_some() || asking.passed() > PATIENCE {
            return answer;
        }
        std::thread::sleep(pause);
        pause = PAUSE_MAX.min(2 * pause);
    }
}
