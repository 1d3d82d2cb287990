//! What `STATS TOP` shows of keys: how often each was asked for in the last full minute,
//! or in the last full hour in steps of ten minutes; before there is one, so far.

use super::observed::Asked;
use crate::engine::ClientId;
use crate::protocol::{Reply, Span};
use std::collections::BTreeMap;
use std::ops::Range;

const MINUTE_NS: u64 = 60_000_000_000;

/// When the daemon starts.
const START_NS: u64 = 1_000_000_000;

/// After a silence of eighty minutes it begins anew, some time.
const SILENCE_NS: u64 = 79 * MINUTE_NS;

/// How many rows are shown.
const ROWS: usize = 20;

/// All requests so far that were decided, each with its minute and its key.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    all: Vec<(u64, Vec<u8>)>,
    last_ns: u64,
    is_unclear: bool,
}

impl Requests {
    /// The engine was asked for this, and gave these answers. What it refuses does not
    /// count.
    pub(crate) fn follow(&mut self, asked: &Asked, answers: &[(ClientId, Reply)]) {
        use Reply::{BadSyntax, LockHeld, WaitForResponse};
        let Asked::Acquire { client, request, now } = asked else { return };
        let is_refused = |(one, reply): &(ClientId, Reply)| {
            one == client && matches!(reply, BadSyntax | LockHeld | WaitForResponse)
        };
        if !answers.iter().any(is_refused) {
            self.all.push((minute_of(now.as_ns()), request.key.clone()));
        }
    }

    /// Time has come to this.
    pub(crate) fn note_time(&mut self, now_ns: u64) {
        self.is_unclear |= now_ns > self.last_ns.max(START_NS) + SILENCE_NS;
        self.last_ns = now_ns;
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether `text` shows them as they were at one of `moments`, each a time and the
    /// number of requests until then. What was sampled is not judged.
    pub(crate) fn are_shown(
        &self,
        text: &str,
        span: Span,
        is_private: bool,
        moments: impl Iterator<Item = (u64, usize)>,
    ) -> bool {
        if self.is_unclear || !text.contains("\nsampled: 1 request in 1\n") {
            return true;
        }
        let shown = rows_of(text);
        let mut counts: BTreeMap<&[u8], u64> = BTreeMap::new();
        let (mut window, mut counted) = (0..0, 0);
        for (now_ns, requests) in moments {
            let next = window_at(span, minute_of(now_ns));
            if next != window {
                (window, counted) = (next, 0);
                counts.clear();
            }
            for (minute, key) in &self.all[counted..requests] {
                if window.contains(minute) {
                    *counts.entry(key).or_default() += 1;
                }
            }
            counted = requests;
            if is_top(&counts, &shown, is_private) {
                return true;
            }
        }
        false
    }
}

fn minute_of(now_ns: u64) -> u64 {
    (now_ns - START_NS) / MINUTE_NS
}

/// The minutes that are shown in a `minute`.
fn window_at(span: Span, minute: u64) -> Range<u64> {
    match (span, minute) {
        (_, 0) => 0..1,
        (Span::Minute, _) => minute - 1..minute,
        (Span::Hour, 1..10) => 0..minute,
        (Span::Hour, _) => (minute / 10).saturating_sub(6) * 10..minute / 10 * 10,
    }
}

/// The list by requests: counts, less what they may be too high, and keys.
fn rows_of(text: &str) -> Vec<(u64, &str)> {
    let list = text.split("\nby_requests: ").nth(1).unwrap_or_default();
    let list = list.split("\nby_time: ").next().unwrap_or_default();
    let rows = list.lines().skip(4).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |n: usize| words.get(n).and_then(|word| word.parse::<u64>().ok());
        let count = number(0).zip(number(1)).map_or(u64::MAX, |(count, error)| count - error);
        (count, words.last().copied().unwrap_or_default())
    });
    rows.collect()
}

/// Whether the rows are the first ones of all, the most frequent first, then by name.
fn is_top(counts: &BTreeMap<&[u8], u64>, shown: &[(u64, &str)], is_private: bool) -> bool {
    let mut rows: Vec<(u64, &[u8])> = counts.iter().map(|(key, count)| (*count, *key)).collect();
    rows.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    rows.truncate(ROWS);
    rows.len() == shown.len()
        && rows.iter().zip(shown).all(|(row, shown)| {
            let is_key = row.1 == shown.1.as_bytes() || is_private && shown.1 == "hidden";
            row.0 == shown.0 && is_key
        })
}
