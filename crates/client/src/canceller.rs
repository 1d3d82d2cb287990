//! Ends a wait from another thread, on whichever connection it is, or between two.

use connect::Stream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Ends a wait for a lock from another thread: see
/// [`LockAttempt::canceller`](crate::LockAttempt::canceller) and
/// [`Connected::canceller`](crate::Connected::canceller).
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Cancellation>);

impl Canceller {
    /// Closes the connection. A call that waits on it returns
    /// [`Error::Cancelled`](crate::Error::Cancelled), and so does each later one; the server
    /// drops the wait. An attempt that waits for a server to come back ends too; one that
    /// connects, ends when that has succeeded or failed. A lock that was granted before is
    /// given up, with its work undone, whether or not its guard was returned already;
    /// [`Lock::is_lost`](crate::Lock::is_lost) reports it. A release that was sent before may
    /// still take effect, although its call returns `Cancelled`.
    ///
    /// When the lock has been released or dropped, nothing happens.
    pub fn cancel(&self) {
        let mut state = self.0.state();
        state.is_cancelled = true;
        if let Some(stream) = state.stream.upgrade() {
            stream.shutdown();
        }
        self.0.cancelled.notify_all();
    }
}

/// What a canceller shares with the connection that it follows.
#[derive(Debug, Default)]
pub(crate) struct Cancellation {
    state: Mutex<State>,
    cancelled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_cancelled: bool,
    /// Gone when the connection is dropped.
    stream: Weak<Stream>,
}

impl Cancellation {
    pub(crate) fn canceller(self: &Arc<Self>) -> Canceller {
        Canceller(Arc::clone(self))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.state().is_cancelled
    }

    /// From now on this connection is closed by a cancel, or was by an earlier one.
    pub(crate) fn follow(&self, stream: &Arc<Stream>) {
        let mut state = self.state();
        state.stream = Arc::downgrade(stream);
        if state.is_cancelled {
            stream.shutdown();
        }
    }

    /// Waits for this time, or until it is cancelled.
    pub(crate) fn pause(&self, time: Duration) {
        let began = Instant::now();
        let mut state = self.state();
        while !state.is_cancelled {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            let waited = self.cancelled.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// No thread panics while it has the state.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
