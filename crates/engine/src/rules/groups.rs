//! What is counted for each group of keys.

use crate::counts::histogram::{Histogram, LOCK_TIMES};
use crate::counts::measures::LockOutcome;
use crate::rules::rule::OTHER;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use protocol::Reply;
use serde::{Deserialize, Serialize};

/// The keys whose first matching rule of the file is this one, or that match none of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The name of the rule, or `other`.
    pub name: String,
    /// What was counted.
    #[serde(default)]
    pub counts: GroupCounts,
}

/// What is counted for a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupCounts {
    /// Requests for a lock that were decided.
    pub requests: u64,
    /// Locks that clients got, at once or after a wait.
    pub acquired: u64,
    /// Requests refused because the queue was full or the rule's `total` was reached.
    pub queue_full: u64,
    /// Requests and waits that were answered with `TIMEOUT`.
    pub timeouts: u64,
    /// Requests refused by `deny`.
    pub denied: u64,
    /// How long waits took, however they ended, on the scale of [`LOCK_TIMES`].
    pub waits: Histogram,
    /// How long holds took, however they ended, on the scale of [`LOCK_TIMES`].
    pub holds: Histogram,
}

impl GroupCounts {
    /// Counts a decided request. No answer means that it waits.
    pub(crate) fn count_request(&mut self, answer: Option<Reply>, is_denied: bool) {
        self.requests += 1;
        match answer {
            Some(Reply::Locked) => self.acquired += 1,
            Some(Reply::QueueFull) if is_denied => self.denied += 1,
            Some(Reply::QueueFull) => self.queue_full += 1,
            Some(Reply::Timeout) => self.timeouts += 1,
            _ => {}
        }
    }

    /// Counts the end of a hold or a wait of `ns` nanoseconds.
    pub(crate) fn count_end(&mut self, outcome: LockOutcome, ns: u64) {
        match outcome {
            LockOutcome::Locked => self.acquired += 1,
            LockOutcome::Timeout => self.timeouts += 1,
            _ => {}
        }
        let times = if outcome.is_of_hold() { &mut self.holds } else { &mut self.waits };
        times.add(&LOCK_TIMES, ns);
    }
}

/// Groups with these names, after the group of all other keys.
pub(super) fn named(names: &[String]) -> Vec<Group> {
    let names = core::iter::once(OTHER).chain(names.iter().map(String::as_str));
    let group = |name: &str| Group { name: name.to_owned(), counts: GroupCounts::default() };
    names.map(group).collect()
}
