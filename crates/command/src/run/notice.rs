//! Who holds the lock: printed during a wait, and told after one that timed out.

use crate::ask::{ask, key_question};
use crate::output::print_error;
use crate::table::duration_text;
use crate::unsafe_calls::with_signals_blocked;
use connect::failed_call::named;
use connect::{ServerName, StatsConnection};
use protocol::key_on_the_wire;
use protocol::reports::KeyReport;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A lock that comes sooner was not waited for.
const NOTICED_AFTER: Duration = Duration::from_millis(300);

/// Prints the holder after a moment, unless dropped before.
pub(super) struct WaitNotice {
    _is_over: Sender<()>,
}

impl WaitNotice {
    /// `note` is for the end of the line.
    pub(super) fn begin(server: ServerName, key: Vec<u8>, note: &'static str) -> WaitNotice {
        let (is_over, over) = channel::<()>();
        let shown = String::from_utf8_lossy(&key).into_owned();
        let print_holder = move || {
            if over.recv_timeout(NOTICED_AFTER) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let held = holders(&server, &key).map_or(String::new(), |who| format!("; held{who}"));
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

/// Who holds the lock, as ` by 10.1.2.9 for 3m 10s`, if the server reports it.
pub(super) fn holders(server: &ServerName, key: &[u8]) -> Option<String> {
    let question = key_question(&key_on_the_wire(key));
    let connection = StatsConnection::connect(server).ok();
    let answer = connection.and_then(|mut connection| ask(&mut connection, &question).ok());
    in_words(&answer?.report)
}

/// The client that has held the key for longest, and the number of other holders.
fn in_words(key: &KeyReport) -> Option<String> {
    let holders = key.locks.iter().filter(|lock| lock.what == "holder");
    let oldest = holders.max_by(|one, other| one.for_s.total_cmp(&other.for_s))?;
    let address = oldest.address.as_str();
    let who = match address.rsplit_once(':') {
        _ if address == "hidden" => String::new(),
        Some((host, port)) if port.parse::<u16>().is_ok() => format!(" by {host}"),
        _ => format!(" by {address}"),
    };
    let others = match key.holders {
        0 | 1 => String::new(),
        2 => " and by another".to_owned(),
        count => format!(" and by {} others", count - 1),
    };
    Some(format!("{who} for {}{others}", duration_text(oldest.for_s)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::rows::LockRow;

    #[test]
    fn the_oldest_holder_is_named() {
        let lock = |what: &str, for_s: f64, address: &str| LockRow {
            what: what.to_owned(),
            for_s,
            address: address.to_owned(),
            ..LockRow::default()
        };
        let words = |holders: usize, locks: &[LockRow]| {
            in_words(&KeyReport { holders, locks: locks.to_vec(), ..KeyReport::default() })
        };
        let alone = lock("holder", 190.5, "[2001:db8::1]:4711");
        assert_eq!(words(1, &[alone]).unwrap(), " by [2001:db8::1] for 3m 10s");
        let (young, old) =
            (lock("holder", 1.5, "10.1.2.8:1"), lock("holder", 7200.0, "10.1.2.9:1"));
        let both = words(130, &[young, old]).unwrap();
        assert_eq!(both, " by 10.1.2.9 for 2h 0m and by 129 others");
        assert_eq!(words(1, &[lock("holder", 1.0, "hidden")]).unwrap(), " for 1.000s");
        assert_eq!(words(0, &[lock("waiter", 1.0, "10.1.2.8:1")]), None);
    }
}
