//! Who holds the lock: printed during a wait, and told after one that timed out.

use crate::output::print_error;
use crate::parsed_report::ParsedReport;
use crate::table::seconds;
use crate::unsafe_calls::with_signals_blocked;
use connect::{ServerName, StatsConnection};
use protocol::{key_on_the_wire, key_text};
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
        // Signals are for the thread that passes them on. If no thread can be started,
        // nothing is printed.
        let _ = with_signals_blocked(|| std::thread::Builder::new().spawn(print_holder));
        WaitNotice { _is_over: is_over }
    }
}

/// Who holds the lock, as ` by 10.1.2.9 for 3 min`, if the server reports it.
pub(super) fn holders(server: &ServerName, key: &[u8]) -> Option<String> {
    let question = format!("KEY {}", key_text(&key_on_the_wire(key)));
    let connection = StatsConnection::connect(server).ok();
    let report = connection.and_then(|mut connection| connection.query(&question).ok());
    in_words(&ParsedReport::read(&report?))
}

/// The client that has held the key for longest, and the number of other holders.
fn in_words(key: &ParsedReport) -> Option<String> {
    let table = key.tables.first()?;
    let holders = table.rows.iter().filter(|row| row[0] == "holder");
    let holders = holders
        .filter_map(|row| Some((seconds(table.cell(row, "for")?)?, table.cell(row, "address")?)));
    let (held_s, address) = holders.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let who = match address.rsplit_once(':') {
        _ if address == "hidden" => String::new(),
        Some((host, port)) if port.parse::<u16>().is_ok() => format!(" by {host}"),
        _ => format!(" by {address}"),
    };
    let others = match key.number("holders").map_or(0, |count| count as u64) {
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

    #[test]
    fn the_oldest_holder_is_named() {
        let head = "what mode since for left client address\n";
        let row = |time: &str, address: &str| format!("holder me - {time} - #1 {address}\n");
        let words = |text: String| in_words(&ParsedReport::read(&text));
        let report = format!("holders: 1\n{head}{}", row("190.5s", "[2001:db8::1]:4711"));
        assert_eq!(words(report).unwrap(), " by [2001:db8::1] for 3 min");
        let (young, old) = (row("1.5s", "10.1.2.8:1"), row("7200s", "unix"));
        let report = format!("holders: 130\n{head}{young}{old}holder and 128 more\n");
        assert_eq!(words(report).unwrap(), " by unix for 2 h and by 129 others");
        let waiter = format!("holders: 0\n{head}waiter me - 1s - #1 10.1.2.8:1\n");
        assert_eq!(words(waiter), None);
        assert_eq!(words("ERROR\n".to_owned()), None);
    }

    #[test]
    fn times_are_rounded_down() {
        let times = [(0.9, "0 s"), (119.9, "119 s"), (120.0, "2 min"), (7199.0, "119 min")];
        for (time_s, text) in times.into_iter().chain([(7200.0, "2 h"), (200_000.0, "2 days")]) {
            assert_eq!(rounded(time_s), text);
        }
    }
}
