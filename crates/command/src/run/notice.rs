//! Who holds the lock: printed during a wait, and told after one that timed out.

use crate::ask::{ask, key_question};
use crate::output::print_error;
use crate::table::duration_text;
use crate::unsafe_calls::with_signals_blocked;
use connect::failed_call::named;
use connect::{ServerName, StatsConnection};
use protocol::key_on_the_wire;
use protocol::reports::KeyReport;
use protocol::rows::LimitRow;
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

/// What the server says of a key, if it does.
pub(super) fn about_key(server: &ServerName, key: &[u8]) -> Option<KeyReport> {
    let question = key_question(&key_on_the_wire(key));
    let connection = StatsConnection::connect(server).ok();
    let answer = connection.and_then(|mut connection| ask(&mut connection, &question).ok());
    Some(answer?.report)
}

/// What a rule sets for a key, the first of these settings, as `total=1`; and the rule.
pub(super) fn limiting_rule<'a>(
    key: &'a KeyReport,
    settings: &[&str],
) -> Option<(&'a str, &'a str)> {
    key.limits.iter().find_map(|LimitRow { rule, settings: set }| {
        let is_it = |text: &&String| settings.iter().any(|name| text.starts_with(name));
        Some((set.iter().find(is_it)?.as_str(), rule.as_str()))
    })
}

/// The client that has held the key for longest, as ` by 10.1.2.9 for 3m 10s`, and the number of
/// other holders.
pub(super) fn holders(key: &KeyReport) -> Option<String> {
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
        let words = |count: usize, locks: &[LockRow]| {
            holders(&KeyReport { holders: count, locks: locks.to_vec(), ..KeyReport::default() })
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
