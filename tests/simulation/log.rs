//! Judges the log: whole lines, the clients that they name, and how much was omitted.

use super::clients::oracle::Oracle;
use super::invariants::Violation;
use super::kernel::kernel;
use super::os::SHARES_PER_TURN;
use crate::logging::logger;
use std::collections::BTreeMap;

/// How many slow holds and waits of a turn can be logged.
const SLOW_MAX: usize = 128;

/// Parts of lines that are logged at most once in ten seconds, except across a hot restart.
const RARE: [&str; 14] = [
    "slow: ",
    "max-hold: closed ",
    "accepting a connection failed: ",
    "out of descriptors (",
    "waiting for events failed: ",
    "closing a connection that could not be registered ",
    " can no longer be registered ",
    " can't be served any more ",
    BROKEN,
    "an order can't be received: ",
    " does not read its answers ",
    " is not in --allow",
    "--max-connections is reached",
    "--max-connections-per-ip is reached",
];

/// Of many connections that broke in a turn.
const BROKEN: &str = " connections broke at once: ";

/// Ten seconds, and what a turn may take.
const SILENT_NS: u64 = 11_000_000_000;

/// Ten seconds, less what a turn may take.
const RARE_NS: u64 = 9_000_000_000;

/// What was logged so far.
#[derive(Debug, Default)]
pub(crate) struct LogHistory {
    /// The beginning of a line.
    unfinished: Vec<u8>,
    /// It began in an earlier turn.
    is_old: bool,
    /// The last client that is logged as connected, while every client is.
    last_client: Option<u64>,
    /// Lines that could not be written since then.
    dropped: u64,
    /// Slow holds and waits, and locks that were taken away: of several in ten seconds, the log
    /// shows only the number.
    slow: RareLines,
    taken_away: RareLines,
    /// How many there were of both before this turn.
    before: [usize; 2],
    /// When each kind of [`RARE`] was logged last.
    logged_ns: BTreeMap<&'static str, u64>,
    /// How many hot restarts were done or refused.
    restarts: u64,
    /// How many connections were lost before this turn.
    lost: u64,
    /// At least so many broke in this turn, which the log tells by its end.
    broken: Option<u64>,
    /// When the log last told that lines were dropped.
    dropped_ns: Option<u64>,
    /// When the clients left in a drain were last logged, or the drain began.
    drain_line_ns: Option<u64>,
}

/// Lines of a kind that is logged rarely.
#[derive(Debug, Default)]
struct RareLines {
    /// At least how many were due since the last one; `None` if that one may be lost.
    due: Option<usize>,
    is_logged: bool,
}

impl LogHistory {
    /// Notes how many connections were `lost` until now, of which the log tells if many broke in
    /// this turn, unless the daemon `has_work` for another one at once.
    pub(crate) fn note_lost(&mut self, lost: u64, has_work: bool, oracle: &Oracle) {
        let of_turn = lost.saturating_sub(std::mem::replace(&mut self.lost, lost));
        let is_excused = kernel(|k| !k.calls.failures.is_empty())
            || !logger::filter().contains("debug")
            || oracle.taken_away.len() > self.before[1];
        self.broken =
            Some(of_turn).filter(|&n| n >= SHARES_PER_TURN as u64 && !has_work && !is_excused);
    }

    /// Before the calls of a turn are replayed.
    pub(crate) fn begin_turn(&mut self, oracle: &Oracle) {
        self.before = [oracle.moments.slow.len(), oracle.taken_away.len()];
    }

    /// Invariant: The log agrees with what happened in each turn.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn check_turn(
        &mut self,
        oracle: &Oracle,
        restarts: u64,
        draining: Option<usize>,
    ) -> Result<(), Violation> {
        let has_restarted = std::mem::replace(&mut self.restarts, restarts) != restarts;
        // Both images may have written in this turn: cleared once more below.
        if has_restarted {
            self.logged_ns.clear();
        }
        self.unfinished.extend(kernel(|k| std::mem::take(&mut k.calls.logged)));
        let now_ns = kernel(|k| k.now_ns);
        let since_ns = self.drain_line_ns.filter(|_| !has_restarted);
        self.drain_line_ns = draining.map(|_| since_ns.unwrap_or(now_ns));
        while let Some(end) = self.unfinished.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.unfinished.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            // An order to free clients may follow that to drain.
            let clients = draining.filter(|_| !self.is_old && !oracle.has_freed);
            let checked = self.check_line(line.trim_end_matches('\n'), oracle);
            checked
                .and_then(|()| self.check_drain_line(&line, clients))
                .map_err(|why| format!("{line:?}: {why}"))?;
        }
        self.check_losses(has_restarted)?;
        if has_restarted {
            self.logged_ns.clear();
        }
        self.is_old = !self.unfinished.is_empty();
        let [slow, taken_away] = self.before;
        self.slow.end_turn((oracle.moments.slow.len() - slow).min(SLOW_MAX));
        self.taken_away.end_turn(oracle.taken_away.len() - taken_away);
        if !logger::filter().contains("debug") {
            self.last_client = None;
        }
        Ok(())
    }

    /// Invariant: In a drain the log has the number of remaining clients every ten seconds, until
    /// the daemon ends. A line that can't be written is excused.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn check_drain_interval(&self, clients: usize) -> Result<(), Violation> {
        let now_ns = kernel(|k| k.now_ns);
        let is_due = self.drain_line_ns.is_some_and(|last_ns| now_ns >= last_ns + 10_000_000_000);
        let is_excused =
            kernel(|k| !k.calls.failures.is_empty()) || logger::next_deadline().is_some();
        if is_due && clients > 0 && !is_excused {
            return Err(
                "for ten seconds the log has not shown how many clients are left".to_owned()
            );
        }
        Ok(())
    }

    /// Invariant: The log has whole lines of plain text. With `--max-hold` it names each lock that
    /// was held for too long, and the client whose connection was closed.
    fn check_line(&mut self, line: &str, oracle: &Oracle) -> Result<(), Violation> {
        let text = message_of(line).ok_or("not exactly one log line")?;
        if text.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER) {
            return Err("not plain text".to_owned());
        }
        let is_old = std::mem::take(&mut self.is_old);
        let client = text.strip_prefix('#').and_then(|it| number_before(it, " connected: "));
        if let Some(client) = client {
            self.check_client(client, is_old)?;
        } else if let Some(dropped) = number_before(text, " log lines could not be written") {
            self.dropped += dropped;
            (self.slow.due, self.taken_away.due) = (None, None);
            self.dropped_ns = Some(kernel(|k| k.now_ns));
        } else if let Some((count, kind)) = text.split_once(" more like this were not logged: ") {
            let count = count.parse().map_err(|_| "the count is not a number")?;
            return match kind {
                kind if kind.starts_with("slow: ") => self.slow.check_omitted(count, is_old),
                kind if kind.starts_with("max-hold: ") => {
                    self.taken_away.check_omitted(count, is_old)
                }
                _ => Ok(()),
            };
        } else if text.starts_with("slow: ") {
            self.slow.check_line(text, is_old)?;
        } else if let Some(text) = text.strip_prefix("max-hold: closed ") {
            self.taken_away.check_line(text, is_old)?;
            if !was_taken_away(text, oracle) {
                return Err(format!("no client lost this lock, only {:?}", oracle.taken_away));
            }
        }
        // Logged input and output of clients may look like it.
        if is_old || line.contains(" DEBUG ") { Ok(()) } else { self.check_interval(line) }
    }

    /// Invariant: If four connections break in a turn, ten of a real one, the log has a line of it, unless there was one
    /// less than ten seconds ago, or lines were dropped.
    fn check_losses(&mut self, has_restarted: bool) -> Result<(), Violation> {
        // A line that was dropped counts for the daemon.
        let last_ns = self.logged_ns.get(BROKEN).copied().max(self.dropped_ns);
        let is_told = last_ns.is_some_and(|last_ns| kernel(|k| k.now_ns) < last_ns + SILENT_NS);
        let is_excused = has_restarted || logger::next_deadline().is_some();
        match self.broken.take() {
            Some(broken) if !is_told && !is_excused => {
                Err(format!("{broken} connections broke at once, and the log does not tell"))
            }
            _ => Ok(()),
        }
    }

    /// Invariant: In a drain the log has the number of clients that are left at the end of the
    /// turn.
    fn check_drain_line(&mut self, line: &str, clients: Option<usize>) -> Result<(), Violation> {
        let left = line.trim_end().split_once(" connections left: ");
        if left.is_some() || line.contains(" log lines could not be written") {
            self.drain_line_ns = self.drain_line_ns.map(|_| kernel(|k| k.now_ns));
        }
        match (left, clients) {
            (Some((_, left)), Some(clients)) if left != clients.to_string() => {
                Err(format!("{clients} are left"))
            }
            _ => Ok(()),
        }
    }

    /// Invariant: Lines of each kind in [`RARE`] are logged at most once in ten seconds, except
    /// across a hot restart.
    fn check_interval(&mut self, line: &str) -> Result<(), Violation> {
        let now_ns = kernel(|k| k.now_ns);
        for kind in RARE.into_iter().filter(|kind| line.contains(kind)) {
            let last_ns = self.logged_ns.insert(kind, now_ns);
            if last_ns.is_some_and(|last_ns| now_ns < last_ns + RARE_NS) {
                return Err("such a line was logged less than ten seconds ago".to_owned());
            }
        }
        Ok(())
    }

    /// Invariant: Each client that connects is logged; at most as many are missing as the log
    /// counts as dropped, also after a hot restart.
    fn check_client(&mut self, client: u64, is_old: bool) -> Result<(), Violation> {
        if is_old && self.last_client.is_none() {
            // Others have connected since then, and were not logged.
            return Ok(());
        }
        let dropped = std::mem::take(&mut self.dropped);
        let next = self.last_client.replace(client).map_or(client, |last| last + 1);
        let missing = client.checked_sub(next).ok_or("it has connected before")?;
        if missing > dropped {
            return Err(format!(
                "{missing} clients are missing, but only {dropped} lines were dropped"
            ));
        }
        Ok(())
    }
}

impl RareLines {
    /// Invariant: A rare line that is logged counts those that were not.
    fn check_line(&mut self, text: &str, is_old: bool) -> Result<(), Violation> {
        let left_out = text.split_once(" (").and_then(|(_, more)| number_before(more, " more"));
        self.check_omitted(left_out.unwrap_or(0) as usize, is_old)
    }

    /// Invariant: A line of a rare kind counts those that were left out since the last one, also
    /// after a hot restart: the old image logs the count before it.
    fn check_omitted(&mut self, left_out: usize, is_old: bool) -> Result<(), Violation> {
        self.is_logged = true;
        match self.due.replace(0) {
            Some(due) if left_out < due && !is_old => {
                Err(format!("it counts {left_out} others, not {due}"))
            }
            _ => Ok(()),
        }
    }

    fn end_turn(&mut self, due: usize) {
        // In the turn of the last line, some may have come before it.
        if !std::mem::take(&mut self.is_logged) {
            self.due = self.due.map(|before| before + due);
        }
    }
}

/// What follows time, level and target, if the line has one of each.
fn message_of(line: &str) -> Option<&str> {
    let (head, text) = line.split_once("] ")?;
    let mut words = head.strip_prefix('[')?.split_whitespace();
    let is_time = words.next().is_some_and(|time| time.ends_with('Z') && !time.contains('['));
    let is_level = words.next().is_some_and(|level| level.parse::<log::Level>().is_ok());
    let is_ours = words.next().is_some_and(|target| target.starts_with("poolcounterd"));
    let is_one = !text.contains("Z ") || !text.contains(" poolcounterd::");
    (is_time && is_level && is_ours && is_one).then_some(text)
}

fn number_before(text: &str, word: &str) -> Option<u64> {
    text.split_once(word)?.0.parse().ok()
}

/// Whether a client has lost this lock.
fn was_taken_away(text: &str, oracle: &Oracle) -> bool {
    oracle.taken_away.iter().any(|(client, key, held_ns)| {
        let key = key.escape_ascii();
        let end = format!(", which held {key} for {} s", held_ns / 1_000_000_000);
        text.split_once(&end).is_some_and(|(peer, _)| {
            oracle.moments.addresses.is_address_of(client.serial, peer, false)
        })
    })
}
