//! Statistics that have more than one number: how long waits and holds took, by kind
//! and outcome, and how often each command got each answer. Declared once, like
//! [`super::statistics`], and kept through a hot restart.

use super::histogram::{Histogram, LOCK_TIMES, TURN_EVENTS, TURN_TIMES};
use crate::protocol::{Mode, Reply};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares the histograms of waits and holds: each becomes a field and an entry of
/// [`Measures::ALL`].
macro_rules! histograms {
    ($($name:ident: $of:ident, $kind:literal, $outcome:literal;)*) => {
        /// How long waits and holds took.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Measures {
            $(#[doc = concat!($kind, ", ", $outcome, ".")] pub $name: Histogram,)*
            /// Answers by command.
            pub replies: Replies,
            /// The turns of the caller's loop.
            pub turns: Turns,
            /// Hot restarts.
            pub restarts: Restarts,
        }

        impl Measures {
            /// Every histogram.
            pub const ALL: &[Measure] = &[
                $(Measure {
                    of: Measured::$of,
                    kind: $kind,
                    outcome: $outcome,
                    get: |measures| &measures.$name,
                },)*
            ];
        }
    };
}

/// One histogram of [`Measures`].
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// What it measures.
    pub of: Measured,
    /// Who waited or held: `me` after `ACQ4ME`, `anyone` after `ACQ4ANY`.
    pub kind: &'static str,
    /// How it ended.
    pub outcome: &'static str,
    /// Reads it. In nanoseconds, on the scale [`LOCK_TIMES`].
    pub get: fn(&Measures) -> &Histogram,
}

/// What a histogram is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// From a request that had to wait to the end of the wait.
    Wait,
    /// From `LOCKED` to the end of the hold.
    Hold,
}

histograms! {
    waits_for_me_locked: Wait, "me", "locked";
    waits_for_me_timed_out: Wait, "me", "timeout";
    waits_for_me_cancelled: Wait, "me", "cancelled";
    waits_for_anyone_locked: Wait, "anyone", "locked";
    waits_for_anyone_done: Wait, "anyone", "done";
    waits_for_anyone_timed_out: Wait, "anyone", "timeout";
    waits_for_anyone_cancelled: Wait, "anyone", "cancelled";
    holds_for_me_released: Hold, "me", "released";
    holds_for_me_disconnected: Hold, "me", "disconnected";
    holds_for_me_expired: Hold, "me", "expired";
    holds_for_anyone_released: Hold, "anyone", "released";
    holds_for_anyone_disconnected: Hold, "anyone", "disconnected";
    holds_for_anyone_expired: Hold, "anyone", "expired";
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
    /// Those that were done.
    pub done: u64,
    /// Those that were refused: the old image went on.
    pub refused: u64,
    /// For how long clients were not served, in nanoseconds, in all of them.
    pub pause_ns: u64,
    /// In the last one.
    pub last_pause_ns: u64,
}

/// How a hold or a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The wait got the lock.
    Locked,
    /// Another client's work was enough for the wait.
    Done,
    /// The wait timed out.
    Timeout,
    /// The wait ended by `RELEASE` or disconnect.
    Cancelled,
    /// The hold ended by `RELEASE`.
    Released,
    /// The hold ended by disconnect.
    Disconnected,
    /// The lock was taken away.
    Expired,
}

impl Outcome {
    /// As reports spell it.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Locked => "locked",
            Outcome::Done => "done",
            Outcome::Timeout => "timeout",
            Outcome::Cancelled => "cancelled",
            Outcome::Released => "released",
            Outcome::Disconnected => "disconnected",
            Outcome::Expired => "expired",
        }
    }

    /// Whether a hold ended like this, not a wait.
    pub fn is_of_hold(self) -> bool {
        matches!(self, Outcome::Released | Outcome::Disconnected | Outcome::Expired)
    }
}

impl Measures {
    /// Counts a hold or a wait of `ns` nanoseconds.
    #[inline(always)]
    pub(super) fn count(&mut self, mode: Mode, outcome: Outcome, ns: u64) {
        let histogram = match (mode, outcome) {
            (Mode::ForMe, Outcome::Locked) => &mut self.waits_for_me_locked,
            (Mode::ForMe, Outcome::Timeout) => &mut self.waits_for_me_timed_out,
            (Mode::ForMe, Outcome::Cancelled) => &mut self.waits_for_me_cancelled,
            (Mode::ForAnyone, Outcome::Locked) => &mut self.waits_for_anyone_locked,
            // `DONE` is no answer to ACQ4ME.
            (_, Outcome::Done) => &mut self.waits_for_anyone_done,
            (Mode::ForAnyone, Outcome::Timeout) => &mut self.waits_for_anyone_timed_out,
            (Mode::ForAnyone, Outcome::Cancelled) => &mut self.waits_for_anyone_cancelled,
            (Mode::ForMe, Outcome::Released) => &mut self.holds_for_me_released,
            (Mode::ForMe, Outcome::Disconnected) => &mut self.holds_for_me_disconnected,
            (Mode::ForMe, Outcome::Expired) => &mut self.holds_for_me_expired,
            (Mode::ForAnyone, Outcome::Released) => &mut self.holds_for_anyone_released,
            (Mode::ForAnyone, Outcome::Disconnected) => &mut self.holds_for_anyone_disconnected,
            (Mode::ForAnyone, Outcome::Expired) => &mut self.holds_for_anyone_expired,
        };
        histogram.add(&LOCK_TIMES, ns);
    }
}

/// A command, as answers are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `ACQ4ME`.
    ForMe,
    /// `ACQ4ANY`.
    ForAnyone,
    /// `RELEASE`.
    Release,
    /// `STATS`.
    Stats,
    /// Anything else.
    Other,
}

impl Asked {
    const ALL: [Asked; 5] =
        [Asked::ForMe, Asked::ForAnyone, Asked::Release, Asked::Stats, Asked::Other];

    fn word(self) -> &'static str {
        match self {
            Asked::ForMe => "ACQ4ME",
            Asked::ForAnyone => "ACQ4ANY",
            Asked::Release => "RELEASE",
            Asked::Stats => "STATS",
            Asked::Other => "other",
        }
    }
}

impl From<Mode> for Asked {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::ForMe => Asked::ForMe,
            Mode::ForAnyone => Asked::ForAnyone,
        }
    }
}

/// How often each command got each answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replies([[u64; ANSWERS]; Asked::ALL.len()]);

/// Every reply, and the text of a statistic, which is the last one.
const ANSWERS: usize = Reply::ALL.len() + 1;
const TEXT: &str = "text";

impl Replies {
    /// Counts an answer; `None` is the text of a statistic.
    #[inline(always)]
    pub fn count(&mut self, asked: Asked, reply: Option<Reply>) {
        let answer = reply.map_or(ANSWERS - 1, |reply| reply as usize);
        self.0[asked as usize][answer] += 1;
    }

    /// Each command and answer that ever came together, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let rows = Asked::ALL.iter().zip(self.0);
        let all = rows.flat_map(|(asked, row)| {
            row.into_iter().enumerate().map(|(n, count)| (asked.word(), answer_name(n), count))
        });
        all.filter(|&(_, _, count)| count > 0)
    }
}

/// A reply up to the code of an error: the text behind the code may change.
fn answer_name(n: usize) -> &'static str {
    let line = Reply::ALL.get(n).map(|reply| reply.as_bytes().trim_ascii_end());
    let line = line.and_then(|line| std::str::from_utf8(line).ok()).unwrap_or(TEXT);
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
            let row = Asked::ALL.iter().position(|other| other.word() == asked);
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
    fn each_reply_is_counted_apart() {
        let mut replies = Replies::default();
        for asked in Asked::ALL {
            for &reply in Reply::ALL {
                replies.count(asked, Some(reply));
            }
        }
        replies.count(Asked::Stats, None);
        replies.count(Asked::ForMe, Some(Reply::Locked));
        let counted: Vec<_> = replies.iter().collect();
        assert_eq!(counted.len(), 5 * Reply::ALL.len() + 1);
        assert_eq!(counted[0], ("ACQ4ME", "LOCKED", 2));
        assert!(counted.contains(&("STATS", "text", 1)));
        assert!(counted.contains(&("RELEASE", "ERROR WRONG_STAT", 1)));
        assert!(counted.contains(&("other", "ERROR LINE_TOO_LONG", 1)));
    }

    #[test]
    fn each_outcome_has_its_histogram() {
        let mut measures = Measures::default();
        for mode in [Mode::ForMe, Mode::ForAnyone] {
            for outcome in [Outcome::Locked, Outcome::Timeout, Outcome::Cancelled] {
                measures.count(mode, outcome, 1);
            }
            for outcome in [Outcome::Released, Outcome::Disconnected, Outcome::Expired] {
                measures.count(mode, outcome, 1);
            }
        }
        measures.count(Mode::ForAnyone, Outcome::Done, 1);
        for measure in Measures::ALL {
            let what = (measure.of, measure.kind, measure.outcome);
            assert_eq!((measure.get)(&measures).count(), 1, "{what:?}");
        }
    }
}
