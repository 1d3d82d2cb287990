//! Who holds the lock: printed during a wait, and told after one that timed out.

use crate::output::print_error;
use crate::stats::{ask_json, key_question};
use crate::unsafe_calls::with_signals_blocked;
use connect::failed_call::named;
use connect::{ServerName, StatsConnection};
use protocol::key_on_the_wire;
use serde_json::Value;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A lock that comes sooner was not waited for.
const NOTICED_AFTER: Duration = Duration::from_millis(300);

/// Prints the holder after a moment, unless dropped before.
pub(super) struct WaitNotice {
    _is_over: Sender<()>,
}

impl WaitNotice {
    pub(super) fn begin(server: ServerName, key: Vec<u8>) -> WaitNotice {
        let (is_over, over) = channel::<()>();
        let shown = String::from_utf8_lossy(&key).into_owned();
        let print_holder = move || {
            if over.recv_timeout(NOTICED_AFTER) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let held = holders(&server, &key).map_or(String::new(), |who| format!("; held{who}"));
            // The question may also have taken a while.
            if over.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Timeout) {
                print_error(&format!("{}: waiting{held}", String::from_utf8_lossy(&key)));
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

/// Who holds the lock, as ` by 10.1.2.9 for 3 min`, if the server reports it.
pub(super) fn holders(server: &ServerName, key: &[u8]) -> Option<String> {
    let question = key_question(&key_on_the_wire(key));
    let connection = StatsConnection::connect(server).ok();
    let report = connection.and_then(|mut connection| ask_json(&mut connection, &question).ok());
    in_words(&report?)
}

/// The client that has held the key for longest, and the number of other holders.
fn in_words(key: &Value) -> Option<String> {
    let holders = key["locks"].as_array()?.iter().filter(|lock| lock["what"] == "holder");
    let holders =
        holders.filter_map(|lock| Some((lock["for_s"].as_f64()?, lock["address"].as_str()?)));
    let (held_s, address) = holders.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let who = match address.rsplit_once(':') {
        _ if address == "hidden" => String::new(),
        Some((host, port)) if port.parse::<u16>().is_ok() => format!(" by {host}"),
        _ => format!(" by {address}"),
    };
    let others = match key["holders"].as_u64().unwrap_or(0) {
        0 | 1 => String::new(),
        2 => " and by another".to_owned(),
        count => format!(" and by {} others", count - 1),
    };
    Some(format!("{who} for {}{others}", rounded(held_s)))
}

fn rounded(time_s: f64) -> String {
    let units = [(2.0 * 86_400.0, 86_400.0, "days"), (7200.0, 3600.0, "h"), (120.0, 60.0, "min")];
    let unit = units.into_iter().find(|(from_s, _, _)| time_s >= *from_s);
    let (_, unit_s, name) = unit.unwrap_or((0.0, 1.0, "s"));
    format!("{:.0} {name}", (time_s / unit_s).floor())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_oldest_holder_is_named() {
        let lock = |what: &str, for_s: f64, address: &str| json!({ "what": what, "for_s": for_s, "address": address });
        let words = |holders: u64, locks: &[Value]| {
            in_words(&json!({ "holders": holders, "locks": locks }))
        };
        let alone = lock("holder", 190.5, "[2001:db8::1]:4711");
        assert_eq!(words(1, &[alone]).unwrap(), " by [2001:db8::1] for 3 min");
        let (young, old) =
            (lock("holder", 1.5, "10.1.2.8:1"), lock("holder", 7200.0, "10.1.2.9:1"));
        assert_eq!(words(130, &[young, old]).unwrap(), " by 10.1.2.9 for 2 h and by 129 others");
        assert_eq!(words(1, &[lock("holder", 1.0, "hidden")]).unwrap(), " for 1 s");
        assert_eq!(words(0, &[lock("waiter", 1.0, "10.1.2.8:1")]), None);
        assert_eq!(in_words(&Value::Null), None);
    }

    #[test]
    fn times_are_rounded_down() {
        let times = [(0.9, "0 s"), (119.9, "119 s"), (120.0, "2 min"), (7199.0, "119 min")];
        for (time_s, text) in times.into_iter().chain([(7200.0, "2 h"), (200_000.0, "2 days")]) {
            assert_eq!(rounded(time_s), text);
        }
    }
}
