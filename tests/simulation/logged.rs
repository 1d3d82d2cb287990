//! What the log says: whole lines, who it is about, and how much was left out.

use super::kernel::kernel;
use super::oracle::{Oracle, Violation};
use crate::server::logging;

/// So many slow holds and waits of a turn can be logged.
const SLOW_MAX: usize = 128;

/// What the log has said so far.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// The beginning of a line.
    unfinished: Vec<u8>,
    /// It began in an earlier turn.
    is_old: bool,
    /// The last client that it says has connected, while it says that of each.
    last_client: Option<u64>,
    /// Lines that could not be written since then.
    dropped: u64,
    /// Slow holds and waits, and locks that were taken away: of several in ten seconds,
    /// the log has only a number.
    slow: Rare,
    taken_away: Rare,
    /// How many there were of both before this turn.
    before: [usize; 2],
}

/// Lines of a kind that is logged rarely.
#[derive(Debug, Default)]
struct Rare {
    /// How many were due since the last one, at least; `None` if that one may be lost.
    due: Option<usize>,
    is_said: bool,
}

impl Logged {
    /// A turn is followed.
    pub(crate) fn begin(&mut self, oracle: &Oracle) {
        self.before = [oracle.moments.slow.len(), oracle.taken_away.len()];
    }

    /// What was logged in a turn must follow from it.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn follow(&mut self, oracle: &Oracle) -> Result<(), Violation> {
        self.unfinished.extend(kernel(|k| std::mem::take(&mut k.calls.logged)));
        while let Some(end) = self.unfinished.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.unfinished.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            self.check_line(line.trim_end(), oracle).map_err(|why| format!("{line:?}: {why}"))?;
        }
        self.is_old = !self.unfinished.is_empty();
        let [slow, taken_away] = self.before;
        self.slow.end_turn((oracle.moments.slow.len() - slow).min(SLOW_MAX));
        self.taken_away.end_turn(oracle.taken_away.len() - taken_away);
        if !logging::filter().contains("debug") {
            self.last_client = None;
        }
        Ok(())
    }

    fn check_line(&mut self, line: &str, oracle: &Oracle) -> Result<(), Violation> {
        let text = text_of(line).ok_or("not one line of the log")?;
        let is_old = std::mem::take(&mut self.is_old);
        let client = text.strip_prefix('#').and_then(|it| number_before(it, " connected: "));
        if let Some(client) = client {
            self.check_client(client, is_old)?;
        } else if let Some(dropped) = number_before(text, " log lines could not be written") {
            self.dropped += dropped;
            (self.slow.due, self.taken_away.due) = (None, None);
        } else if let Some((count, kind)) = text.split_once(" more like this were not logged: ") {
            let count = count.parse().map_err(|_| "no number")?;
            match kind {
                kind if kind.starts_with("slow: ") => self.slow.hear(count, is_old)?,
                kind if kind.starts_with("--max-hold: ") => self.taken_away.hear(count, is_old)?,
                _ => {}
            }
        } else if text.starts_with("slow: ") {
            self.slow.check(text, is_old)?;
        } else if let Some(text) = text.strip_prefix("--max-hold: lock on ") {
            self.taken_away.check(text, is_old)?;
            if !is_taken_away(text, oracle) {
                return Err(format!("nobody lost it, but {:?}", oracle.taken_away));
            }
        }
        Ok(())
    }

    /// Each client connects, and each line that is missing is counted.
    fn check_client(&mut self, client: u64, is_old: bool) -> Result<(), Violation> {
        if is_old && self.last_client.is_none() {
            // Since it connected, others did that the log says nothing of.
            return Ok(());
        }
        let dropped = std::mem::take(&mut self.dropped);
        let next = self.last_client.replace(client).map_or(client, |last| last + 1);
        let missing = client.checked_sub(next).ok_or("it has connected before")?;
        if missing > dropped {
            return Err(format!("{missing} clients are missing, of {dropped} lines dropped"));
        }
        Ok(())
    }
}

impl Rare {
    /// One of them is logged, and says how many others were not.
    fn check(&mut self, text: &str, is_old: bool) -> Result<(), Violation> {
        let left_out = text.split_once(" (").and_then(|(_, more)| number_before(more, " more"));
        self.hear(left_out.unwrap_or(0) as usize, is_old)
    }

    /// So many were not logged: the old image says so before a hot restart.
    fn hear(&mut self, left_out: usize, is_old: bool) -> Result<(), Violation> {
        self.is_said = true;
        match self.due.replace(0) {
            Some(due) if left_out < due && !is_old => Err(format!("{due} others are due")),
            _ => Ok(()),
        }
    }

    fn end_turn(&mut self, due: usize) {
        // In the turn of the last line, some may have come before it.
        if !std::mem::take(&mut self.is_said) {
            self.due = self.due.map(|before| before + due);
        }
    }
}

/// What follows time, level and target, of which there is one in each line.
fn text_of(line: &str) -> Option<&str> {
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
fn is_taken_away(text: &str, oracle: &Oracle) -> bool {
    oracle.taken_away.iter().any(|(client, key, held_ns)| {
        let key = key.escape_ascii();
        let begin = format!("{key} taken away from ");
        let end = format!(" after {} s", held_ns / 1_000_000_000);
        let rest = text.strip_prefix(&begin).and_then(|rest| rest.split_once(&end));
        rest.is_some_and(|(peer, _)| oracle.moments.origins.is_of(client.serial, peer, false))
    })
}
