//! What systemd is told: sd_notify(3). Without systemd nothing happens.

use super::clock;
use crate::engine::{Engine, Time};
use sd_notify::NotifyState;

/// How often `systemctl status` and the log of a drain get new numbers.
pub(super) const STATUS_INTERVAL_NS: u64 = 10_000_000_000;

/// Our side of systemd's notification protocol.
#[derive(Debug)]
pub(super) struct ServiceManager {
    present: bool,
    /// How often the watchdog is told that the loop turns: half of what it
    /// allows (sd_watchdog_enabled(3)).
    watchdog_interval_ns: Option<u64>,
    next_watchdog: Time,
    next_status: Time,
}

impl ServiceManager {
    pub(super) fn find() -> Self {
        let now = clock::now();
        let watchdog = sd_notify::watchdog_enabled();
        ServiceManager {
            present: std::env::var_os("NOTIFY_SOCKET").is_some(),
            watchdog_interval_ns: watchdog.map(|timeout| timeout.as_nanos() as u64 / 2),
            next_watchdog: now,
            next_status: now,
        }
    }

    pub(super) fn ready(&self) {
        self.notify(&[NotifyState::Ready]);
    }

    pub(super) fn stopping(&self) {
        self.notify(&[NotifyState::Stopping]);
    }

    /// When [`ServiceManager::keep_informed`] has something to say next.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let watchdog = self.watchdog_interval_ns.map(|_| self.next_watchdog);
        let status = self.present.then_some(self.next_status);
        [watchdog, status].into_iter().flatten().min()
    }

    /// Says what is due at `now`.
    pub(super) fn keep_informed(&mut self, connections: usize, engine: &Engine, now: Time) {
        if let Some(interval_ns) = self.watchdog_interval_ns {
            if now >= self.next_watchdog {
                self.next_watchdog = now.plus_ns(interval_ns);
                self.notify(&[NotifyState::Watchdog]);
            }
        }
        if self.present && now >= self.next_status {
            self.next_status = now.plus_ns(STATUS_INTERVAL_NS);
            let counters = &engine.counters;
            self.notify(&[NotifyState::Status(&format!(
                "{connections} connections, {} locks held, {} waiting, {} keys",
                counters.processing_workers, counters.waiting_workers, counters.hashtable_entries,
            ))]);
        }
    }

    /// A service manager that does not listen is no reason to stop serving.
    fn notify(&self, states: &[NotifyState]) {
        if self.present {
            if let Err(e) = sd_notify::notify(states) {
                log::debug!("the service manager could not be told: {e}");
            }
        }
    }
}
