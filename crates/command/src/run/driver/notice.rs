//! Who holds the lock: printed during a wait.

use super::about_key::{about_key, holders};
use crate::output::print_error;
use crate::unsafe_calls::with_signals_blocked;
use connect::ServerName;
use connect::failed_call::named;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Prints the holder after a moment, unless dropped before.
pub(super) struct WaitNotice {
    _is_over: Sender<()>,
}

impl WaitNotice {
    /// Prints it after this time: a lock that comes sooner was not waited for. `note` is for the
    /// end of the line.
    pub(super) fn begin(
        server: ServerName,
        key: Vec<u8>,
        after: Duration,
        note: &'static str,
    ) -> WaitNotice {
        let (is_over, over) = channel::<()>();
        let shown = String::from_utf8_lossy(&key).into_owned();
        let print_holder = move || {
            if over.recv_timeout(after) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let held = about_key(&server, &key).and_then(|key| holders(&key));
            let held = held.map_or(String::new(), |who| format!("; held{who}"));
            // The question may also have taken a while.
            if over.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Timeout) {
                print_error(&format!("{}: waiting{held}{note}", String::from_utf8_lossy(&key)));
            }
        };
        // Signals are for the thread that passes them on.
        let thread = with_signals_blocked(|| std::thread::Builder::new().spawn(print_holder));
        if let Err(e) = thread {
            let e = named("clone3, clone")(e);
            print_error(&format!("{shown}: who holds it is not asked during the wait: {e}"));
        }
        WaitNotice { _is_over: is_over }
    }
}
