//! What the log says: whole lines, who it is about, and how much was left out.

use super::kernel::kernel;
use super::oracle::Violation;

/// What the log has said so far.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// The beginning of a line.
    unfinished: Vec<u8>,
}

impl Logged {
    /// What was logged in a turn must be right.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn follow(&mut self) -> Result<(), Violation> {
        self.unfinished.extend(kernel(|k| std::mem::take(&mut k.calls.logged)));
        while let Some(end) = self.unfinished.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.unfinished.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            Self::check_line(line.trim_end()).map_err(|why| format!("{line:?}: {why}"))?;
        }
        Ok(())
    }

    fn check_line(line: &str) -> Result<(), Violation> {
        text_of(line).map(drop).ok_or_else(|| "not one line of the log".to_owned())
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
