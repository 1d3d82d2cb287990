//! What the log says: whole lines, who it is about, and how much was left out.

use super::kernel::kernel;
use super::oracle::{Oracle, Violation};

/// What the log has said so far.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// The beginning of a line.
    unfinished: Vec<u8>,
}

impl Logged {
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
        Ok(())
    }

    fn check_line(&mut self, line: &str, oracle: &Oracle) -> Result<(), Violation> {
        let text = text_of(line).ok_or("not one line of the log")?;
        if let Some(text) = text.strip_prefix("--max-hold: lock on ") {
            if !is_taken_away(text, oracle) {
                return Err(format!("nobody lost it, but {:?}", oracle.taken_away));
            }
        }
        Ok(())
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
