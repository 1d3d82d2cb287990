//! A drain: no new clients, until the last one has left or it is undone; its log.

use crate::listening::addresses::Purpose;
use crate::listening::listener::{Listener, ListenerStage};
use crate::listening::listeners::Listeners;
use crate::options::Options;
use crate::platform::clock;
use crate::platform::os::mio::Registry;
use engine::Time;
use log::info;

/// How often it logs how many clients are left.
const LOG_INTERVAL_NS: u64 = 10_000_000_000;

/// The state of a drain.
#[derive(Debug, Default)]
pub(super) struct Drain {
    pub(super) is_on: bool,
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
}

impl Listeners {
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.is_on
    }

    /// Whether clients may wait in the queues of listeners that close.
    pub(crate) fn is_closing(&self) -> bool {
        self.all.iter().any(|listener| listener.stage != ListenerStage::Open)
    }

    /// Logs during a drain, every ten seconds, how many `clients` are left.
    pub(crate) fn log_drain(&mut self, clients: usize, now: Time) {
        if now >= self.drain.next_log {
            info!("draining: connections left: {clients}");
            self.drain.next_log = now.plus_ns(LOG_INTERVAL_NS);
        }
    }

    /// Stops taking new clients, except those in the queues.
    pub(crate) fn drain(&mut self) {
        self.drain.is_on = true;
        self.drain.next_log = clock::now().plus_ns(LOG_INTERVAL_NS);
        let clients = self.all.iter_mut().filter(|l| l.purpose() == Purpose::Clients);
        clients.for_each(Listener::begin_to_close);
    }

    /// Takes new clients again, on the addresses of the current `options`.
    ///
    /// # Errors
    /// Why it can't; the drain continues then.
    pub(crate) fn undrain(&mut self, options: &Options, registry: &Registry) -> Result<(), String> {
        if !self.drain.lost.is_empty() {
            return Err(format!(
                "{} was passed by systemd or as standard input and is closed: this daemon can't \
                 listen there again, but the next one can; end this one (`systemctl restart \
                 poolcounter.service`, or wait for the last client to leave)",
                self.drain.lost.join(", "),
            ));
        }
        self.drain.is_on = false;
        let result = self.reopen(options, registry);
        self.drain.is_on = result.is_err();
        result
    }
}
