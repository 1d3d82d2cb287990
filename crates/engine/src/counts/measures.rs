//! Statistics of more than one number: waits and holds by kind and outcome, replies by command,
//! turns, restarts. Declared once, like [`crate::counts::statistics`], and kept through
//! a hot restart.

use crate::counts::histogram::{Histogram, LOCK_TIMES, TURN_EVENTS, TURN_TIMES};
use alloc::string::String;
use alloc::vec::Vec;
use protocol::{Mode, Reply};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares an enumeration, each variant with its word, which counts are kept under.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            const ALL: &[$name] = &[$($name::$variant,)*];

            /// As reports and snapshots spell it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }
    };
}

/// All measures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measures {
    /// How long waits and holds took.
    pub locks: LockMeasures,
    /// The longest ones since the caller last took them.
    pub longest: Longest,
    /// Answers by command.
    pub replies: Replies,
    /// The turns of the caller's loop.
    pub turns: Turns,
    /// Hot restarts.
    pub restarts: Restarts,
}

impl Measures {
    /// Counts a hold or a wait of `ns` nanoseconds.
    #[inline(always)]
    pub(crate) fn count_lock(&mut self, mode: Mode, outcome: LockOutcome, ns: u64) {
        self.locks.count(mode, outcome, ns);
        let Longest { wait_ns, hold_ns } = &mut self.longest;
        let longest = if outcome.is_of_hold() { hold_ns } else { wait_ns };
        *longest = ns.max(*longest);
    }
}

/// The longest wait and the longest hold, in nanoseconds: what is estimated from buckets is no
/// longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Longest {
    /// Of all waits that have ended.
    pub wait_ns: u64,
    /// Of all holds that have ended.
    pub hold_ns: u64,
}

/// How long waits and holds took, by kind and outcome: nanoseconds, on the scale
/// [`LOCK_TIMES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockMeasures([[Histogram; LockOutcome::ALL.len()]; 2]);

impl LockMeasures {
    #[inline(always)]
    fn count(&mut self, mode: Mode, outcome: LockOutcome, ns: u64) {
        self.0[mode as usize][outcome as usize].add(&LOCK_TIMES, ns);
    }

    /// Each possible kind and outcome: `ACQ4ME` is never answered with `DONE`.
    pub fn iter(&self) -> impl Iterator<Item = (Mode, LockOutcome, &Histogram)> {
        let of = |mode| {
            let own = LockOutcome::ALL.iter().zip(&self.0[mode as usize]);
            own.map(move |(&outcome, histogram)| (mode, outcome, histogram))
        };
        let all = of(Mode::ForMe).chain(of(Mode::ForAnyone));
        all.filter(|&(mode, outcome, _)| (mode, outcome) != (Mode::ForMe, LockOutcome::Done))
    }
}

/// As `(for anyone, outcome, histogram)`, so that an outcome added later moves no other.
impl Serialize for LockMeasures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.iter().map(|(mode, outcome, histogram)| {
                (mode == Mode::ForAnyone, outcome.word(), histogram)
            }),
        )
    }
}

impl<'de> Deserialize<'de> for LockMeasures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut measures = LockMeasures::default();
        let all = Vec::<(bool, String, Histogram)>::deserialize(deserializer)?;
        for (for_anyone, word, histogram) in all {
            if let Some(n) = LockOutcome::ALL.iter().position(|outcome| outcome.word() == word) {
                measures.0[usize::from(for_anyone)][n] = histogram;
            }
        }
        Ok(measures)
    }
}

/// The turns of the loop, which the caller counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Turns {
    /// How long they took, without waiting for events: nanoseconds, on the scale
    /// [`TURN_TIMES`].
    pub times: Histogram,
    /// How many events they handled, on the scale [`TURN_EVENTS`].
    pub events: Histogram,
}

impl Turns {
    /// Counts a turn.
    pub fn count(&mut self, took_ns: u64, events: usize) {
        self.times.add(&TURN_TIMES, took_ns);
        self.events.add(&TURN_EVENTS, events as u64);
    }
}

/// Hot restarts since the daemon was started, which the caller counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Restarts {
    /// Completed restarts.
    pub done: u64,
    /// Refused restarts: the old image continued.
    pub refused: u64,
    /// How long clients were not served, in nanoseconds, in all restarts.
    pub pause_ns: u64,
    /// The same, in the last restart.
    pub last_pause_ns: u64,
}

words! {
    /// How a hold or a wait ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    LockOutcome {
        /// The wait got the lock.
        Locked = "locked",
        /// Another client's work was enough for the wait.
        Done = "done",
        /// The wait timed out.
        Timeout = "timeout",
        /// The wait ended by `RELEASE` or disconnect.
        Cancelled = "cancelled",
        /// The hold ended by `RELEASE`.
        Released = "released",
        /// The hold ended by disconnect.
        Disconnected = "disconnected",
        /// The hold lasted for longer than `--max-hold`.
        Expired = "expired",
    }
}

impl LockOutcome {
    /// Whether a hold ended like this, not a wait.
    pub fn is_of_hold(self) -> bool {
        matches!(self, LockOutcome::Released | LockOutcome::Disconnected | LockOutcome::Expired)
    }
}

words! {
    /// A kind of command, by which answers are counted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    CommandKind {
        /// `ACQ4ME`.
        ForMe = "ACQ4ME",
        /// `ACQ4ANY`.
        ForAnyone = "ACQ4ANY",
        /// `RELEASE`.
        Release = "RELEASE",
        /// `STATS`.
        Stats = "STATS",
        /// Anything else.
        Other = "other",
    }
}

impl From<Mode> for CommandKind {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::ForMe => CommandKind::ForMe,
            Mode::ForAnyone => CommandKind::ForAnyone,
        }
    }
}

/// How often each command got each answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replies([[u64; ANSWERS]; CommandKind::ALL.len()]);

/// Every reply, and last, the text of a statistic.
const ANSWERS: usize = Reply::ALL.len() + 1;
const TEXT: &str = "text";

impl Replies {
    /// Counts an answer; `None` is the text of a statistic.
    #[inline(always)]
    pub fn count(&mut self, asked: CommandKind, reply: Option<Reply>) {
        let answer = reply.map_or(ANSWERS - 1, |reply| reply as usize);
        self.0[asked as usize][answer] += 1;
    }

    /// Each command, each answer it ever got, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let rows = CommandKind::ALL.iter().zip(self.0);
        let all = rows.flat_map(|(asked, row)| {
            row.into_iter().enumerate().map(|(n, count)| (asked.word(), answer_name(n), count))
        });
        all.filter(|&(_, _, count)| count > 0)
    }

    /// How many requests for a lock got one of these answers.
    pub fn to_requests(&self, replies: &[Reply]) -> u64 {
        let [me, anyone] = [CommandKind::ForMe, CommandKind::ForAnyone].map(|n| self.0[n as usize]);
        replies.iter().map(|&reply| me[reply as usize] + anyone[reply as usize]).sum()
    }
}

/// A reply up to the code of an error: the text behind the code may change.
fn answer_name(n: usize) -> &'static str {
    let line = Reply::ALL.get(n).map(|reply| reply.as_bytes().trim_ascii_end());
    let line = line.and_then(|line| core::str::from_utf8(line).ok()).unwrap_or(TEXT);
    let code = line.match_indices(' ').nth(1).map(|(end, _)| &line[..end]);
    code.unwrap_or(line)
}

/// As `(command, answer, count)`, so that an answer added later moves no other.
impl Serialize for Replies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Replies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut replies = Replies::default();
        for (asked, answer, count) in Vec::<(String, String, u64)>::deserialize(deserializer)? {
            let row = CommandKind::ALL.iter().position(|other| other.word() == asked);
            let column = (0..ANSWERS).find(|&n| answer_name(n) == answer);
            if let (Some(row), Some(column)) = (row, column) {
                replies.0[row][column] = count;
            }
        }
        Ok(replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reply_is_counted_separately() {
        let mut replies = Replies::default();
        for &asked in CommandKind::ALL {
            for &reply in Reply::ALL {
                replies.count(asked, Some(reply));
            }
        }
        replies.count(CommandKind::Stats, None);
        replies.count(CommandKind::ForMe, Some(Reply::Locked));
        let counted: Vec<_> = replies.iter().collect();
        assert_eq!(counted.len(), 5 * Reply::ALL.len() + 1);
        assert_eq!(counted[0], ("ACQ4ME", "LOCKED", 2));
        assert!(counted.contains(&("STATS", "text", 1)));
        assert!(counted.contains(&("RELEASE", "ERROR WRONG_STAT", 1)));
        assert!(counted.contains(&("other", "ERROR LINE_TOO_LONG", 1)));
    }
}
