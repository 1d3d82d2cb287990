//! A drain: no new clients, until the last one has left or it is undone; its log.

use crate::listening::addresses::ListenError;
use crate::platform::clock;
use engine::Time;
use log::info;

/// How often it logs how many clients are left.
const LOG_INTERVAL_NS: u64 = 10_000_000_000;

/// The state of a drain.
#[derive(Debug, Default)]
pub(super) struct Drain {
    is_on: bool,
    /// Inherited sockets that are closed and can't be opened again, by name.
    pub(super) lost: Vec<String>,
    /// When to log next how many clients are left.
    next_log: Time,
}

impl Drain {
    /// Continues an old image's.
    pub(super) fn resume(is_on: bool, lost: Vec<String>) -> Self {
        Drain { is_on, lost, next_log: clock::now() }
    }

    /// When to log next.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.is_on.then_some(self.next_log)
    }
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn begin(&mut self) {
        self.is_on = true;
        self.next_log = clock::now().plus_ns(LOG_INTERVAL_NS);
    }

    pub(super) fn end(&mut self) {
        self.is_on = false;
    }

    /// Checks that all that it has closed can be opened again.
    pub(super) fn check_undoable(&self) -> Result<(), ListenError> {
        if self.lost.is_empty() { Ok(()) } else { Err(ListenError::Lost(self.lost.join(", "))) }
    }

    /// Logs, every ten seconds, how many `clients` are left.
    pub(super) fn log(&mut self, clients: usize, now: Time) {
        if now >= self.next_log {
            info!("draining: connections left: {clients}");
            self.next_log = now.plus_ns(LOG_INTERVAL_NS);
        }
    }
}
