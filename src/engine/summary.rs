//! The most frequent names of a stream, in bounded memory: Space-Saving (A. Metwally,
//! D. Agrawal, A. El Abbadi, "Efficient Computation of Frequent and Top-k Elements in
//! Data Streams", 2005). A name that is not among the counted ones takes the place of
//! the least frequent of these, with its count: no count is too low, and each knows by
//! how much it may be too high.

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

/// How many names are counted at a time.
pub(super) const CAPACITY: usize = 1_000;

/// A longer key is counted under its start and a digest of the whole.
pub const NAME_BYTES_MAX: usize = 128;

/// What a sampled request or its end adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Columns {
    /// Requests for a lock.
    pub requests: u64,
    /// Locks given.
    pub acquired: u64,
    /// Waits that ended with `DONE`.
    pub done: u64,
    /// Requests answered with `QUEUE_FULL`.
    pub refused: u64,
    /// Requests and waits answered with `TIMEOUT`.
    pub timed_out: u64,
    /// Time waited, in nanoseconds.
    pub waited_ns: u64,
    /// Time held, in nanoseconds.
    pub held_ns: u64,
}

impl Columns {
    pub(super) fn add(&mut self, other: &Columns) {
        self.requests = self.requests.saturating_add(other.requests);
        self.acquired = self.acquired.saturating_add(other.acquired);
        self.done = self.done.saturating_add(other.done);
        self.refused = self.refused.saturating_add(other.refused);
        self.timed_out = self.timed_out.saturating_add(other.timed_out);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.held_ns = self.held_ns.saturating_add(other.held_ns);
    }

    /// The larger of each column, for two counts that overlap.
    fn or(&self, other: &Columns) -> Columns {
        Columns {
            requests: self.requests.max(other.requests),
            acquired: self.acquired.max(other.acquired),
            done: self.done.max(other.done),
            refused: self.refused.max(other.refused),
            timed_out: self.timed_out.max(other.timed_out),
            waited_ns: self.waited_ns.max(other.waited_ns),
            held_ns: self.held_ns.max(other.held_ns),
        }
    }

    /// Time waited and held, in nanoseconds.
    pub fn time_ns(&self) -> u64 {
        self.waited_ns.saturating_add(self.held_ns)
    }
}

/// A counted name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ranked {
    /// A key or an address. Longer than [`NAME_BYTES_MAX`] if it is the start of a
    /// longer key and a digest.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// By which it is ranked: requests, or nanoseconds.
    pub count: u64,
    /// By how much the count may be too high.
    pub error: u64,
    /// Counted since the name took its place, here or where the same events are ranked.
    pub columns: Columns,
}

#[derive(Clone, Debug)]
struct Entry {
    hash: u64,
    /// Its place in the heap.
    at: u32,
    ranked: Ranked,
}

/// The most frequent names so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    entries: Vec<Entry>,
    /// Numbers of entries, the least frequent first.
    heap: Vec<u32>,
    /// Its type differs from that of the table of pools, so that the compiler inlines the
    /// functions of both.
    by_name: HashTable<u16>,
    /// By how much a count may be too low: lost by merged summaries, or never seen.
    too_low: u64,
}

impl Summary {
    /// Adds to the count and the columns of `name`. With a `weight` of 0 it takes no
    /// place.
    pub(super) fn add(&mut self, name: &[u8], hash: u64, weight: u64, columns: &Columns) {
        self.add_inexact(name, hash, weight, 0, columns);
    }

    fn add_inexact(&mut self, name: &[u8], hash: u64, weight: u64, error: u64, columns: &Columns) {
        let id = match self.find(name, hash) {
            Some(id) => id,
            None if weight == 0 => return,
            None if self.entries.len() < CAPACITY => {
                self.insert(Ranked { name: name.to_vec(), ..Ranked::default() }, hash)
            }
            None => self.replace_least(name, hash),
        };
        let Ranked { count, error: errors, columns: sums, .. } =
            &mut self.entries[id as usize].ranked;
        *count = count.saturating_add(weight);
        *errors = errors.saturating_add(error);
        sums.add(columns);
        self.sink(id);
    }

    fn find(&self, name: &[u8], hash: u64) -> Option<u32> {
        let is_it = |&id: &u16| {
            let entry = &self.entries[usize::from(id)];
            entry.hash == hash && entry.ranked.name == name
        };
        self.by_name.find(hash, is_it).map(|&id| id.into())
    }

    fn insert(&mut self, ranked: Ranked, hash: u64) -> u32 {
        let id = self.entries.len() as u32;
        let at = self.heap.len();
        self.entries.push(Entry { hash, at: at as u32, ranked });
        self.heap.push(id);
        self.note_name(id, hash);
        self.rise(at);
        id
    }

    fn replace_least(&mut self, name: &[u8], hash: u64) -> u32 {
        let id = self.heap[0];
        let before = self.entries[id as usize].hash;
        if let Ok(entry) = self.by_name.find_entry(before, |&other| u32::from(other) == id) {
            entry.remove();
        }
        let entry = &mut self.entries[id as usize];
        entry.hash = hash;
        let Ranked { name: old, count, error, columns } = &mut entry.ranked;
        old.clear();
        old.extend_from_slice(name);
        (*error, *columns) = (*count, Columns::default());
        self.note_name(id, hash);
        id
    }

    fn note_name(&mut self, id: u32, hash: u64) {
        let entries = &self.entries;
        // Numbers of entries are below CAPACITY.
        self.by_name.insert_unique(hash, id as u16, |&id| entries[usize::from(id)].hash);
    }

    fn count_at(&self, at: usize) -> u64 {
        self.entries[self.heap[at] as usize].ranked.count
    }

    /// Moves an entry whose count has grown away from the front of the heap.
    fn sink(&mut self, id: u32) {
        let mut at = self.entries[id as usize].at as usize;
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|&c| c < self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.count_at(child)) else {
                return;
            };
            if self.count_at(at) <= self.count_at(least) {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    /// Moves a new entry towards the front of the heap.
    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.count_at((at - 1) / 2) > self.count_at(at) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            self.entries[self.heap[at] as usize].at = at as u32;
        }
    }

    /// Notes that somebody's count lacks so much.
    pub(super) fn note_missed(&mut self, weight: u64) {
        self.too_low = self.too_low.saturating_add(weight);
    }

    /// The most that a name which has no place may have come to.
    fn lost_max(&self) -> u64 {
        if self.entries.len() < CAPACITY { 0 } else { self.count_at(0) }
    }

    /// Adds the counts of `other`, whose hashes must come from the same hasher.
    pub(super) fn merge(&mut self, other: &Summary) {
        for &id in &other.heap {
            let Entry { hash, ranked, .. } = &other.entries[id as usize];
            let Ranked { name, count, error, columns } = ranked;
            self.add_inexact(name, *hash, *count, *error, columns);
        }
        self.too_low = self.too_low.saturating_add(other.lost_max()).saturating_add(other.too_low);
    }

    /// The most frequent names, first, at most `rows`. `other` ranks the same events by
    /// something else: a name may have its place there for longer.
    pub(super) fn ranking(&self, rows: usize, other: &Summary) -> Ranking {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        let order =
            |a: &Ranked, b: &Ranked| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name));
        entries.sort_unstable_by(|a, b| order(&a.ranked, &b.ranked));
        let lost = entries.get(rows).map_or(self.lost_max(), |next| next.ranked.count);
        let row = |entry: &Entry| {
            let mut ranked = entry.ranked.clone();
            if let Some(id) = other.find(&ranked.name, entry.hash) {
                ranked.columns = ranked.columns.or(&other.entries[id as usize].ranked.columns);
            }
            ranked
        };
        let rows = entries.into_iter().take(rows).map(row).collect();
        Ranking { rows, too_low: self.too_low, lost: lost.saturating_add(self.too_low) }
    }

    /// Everything, in the order of the heap.
    pub(super) fn state(&self) -> SummaryState {
        let ranked = self.heap.iter().map(|&id| self.entries[id as usize].ranked.clone());
        SummaryState { entries: ranked.collect(), too_low: self.too_low }
    }

    /// Continues from the state of another summary. Never fails: it leaves out surplus
    /// entries and makes a heap of any order.
    pub(super) fn resume(state: SummaryState, hash: impl Fn(&[u8]) -> u64) -> Self {
        let mut summary = Summary { too_low: state.too_low, ..Summary::default() };
        for ranked in state.entries.into_iter().take(CAPACITY) {
            let hash = hash(&ranked.name);
            if summary.find(&ranked.name, hash).is_none() {
                summary.insert(ranked, hash);
            }
        }
        summary
    }
}

/// The most frequent names of some time, first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ranking {
    /// With their counts.
    pub rows: Vec<Ranked>,
    /// By how much a count may be too low.
    pub too_low: u64,
    /// The most that a name which is not listed may have come to.
    pub lost: u64,
}

impl Ranking {
    /// The most that a name may have come to which is not among the first `shown` rows.
    /// `sampled_unit` is what a sample adds ([`super::windows::Closed::sampled_units`]):
    /// then a list in a hundred may have missed more.
    pub fn not_listed(&self, shown: usize, sampled_unit: u64) -> u64 {
        let next = self.rows.get(shown).map_or(0, |next| next.count.saturating_add(self.too_low));
        let seen = next.max(self.lost);
        if sampled_unit == 0 {
            return seen;
        }
        // By the Chernoff bound, the probability that a name with a larger count was
        // sampled so rarely is below exp(-16): never, even among a million names.
        let (seen, unit) = (seen as f64, sampled_unit as f64);
        (seen + 16.0 * unit + (32.0 * unit * seen).sqrt()) as u64
    }
}

/// What a hot restart carries over of a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SummaryState {
    /// In the order of the heap.
    pub entries: Vec<Ranked>,
    /// By how much a count may be too low.
    pub too_low: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn hash(name: &[u8]) -> u64 {
        // Few values, so that names share them.
        name.iter().map(|&byte| u64::from(byte)).sum::<u64>() % 64
    }

    fn add(summary: &mut Summary, name: &str, weight: u64) {
        let columns = Columns { requests: weight, ..Columns::default() };
        summary.add(name.as_bytes(), hash(name.as_bytes()), weight, &columns);
    }

    /// A stream of 200,000 requests for 5,000 names, the more frequent the smaller
    /// their number, in a mixed order.
    fn stream() -> impl Iterator<Item = (String, u64)> {
        let mut seed = 1_u64;
        (0..200_000).map(move |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = (seed >> 40) as f64 / (1_u64 << 24) as f64;
            let name = (5_000_f64.powf(uniform)) as u64;
            (format!("key:{name}"), 1 + (seed >> 33) % 3)
        })
    }

    fn check(ranking: &Ranking, truth: &HashMap<String, u64>) {
        for ranked in &ranking.rows {
            let name = String::from_utf8(ranked.name.clone()).expect("text");
            let true_count = truth.get(&name).copied().unwrap_or(0);
            assert!(ranked.count + ranking.too_low >= true_count, "{ranked:?}: {true_count}");
            assert!(ranked.count - ranked.error <= true_count, "{ranked:?}: {true_count}");
        }
        let listed = |name: &str| ranking.rows.iter().any(|r| r.name == name.as_bytes());
        let lost = truth.iter().filter(|(name, _)| !listed(name)).map(|(_, &count)| count).max();
        assert!(lost.unwrap_or(0) <= ranking.lost, "{lost:?} of {}", ranking.lost);
    }

    #[test]
    fn counts_are_as_exact_as_they_say() {
        let (mut summary, mut truth) = (Summary::default(), HashMap::new());
        for (name, weight) in stream() {
            add(&mut summary, &name, weight);
            *truth.entry(name).or_default() += weight;
        }
        let ranking = summary.ranking(250, &Summary::default());
        assert_eq!(ranking.rows.len(), 250);
        check(&ranking, &truth);
        let mut most: Vec<_> = truth.iter().collect();
        most.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (ranked, (name, count)) in ranking.rows.iter().zip(&most[..20]) {
            assert_eq!(ranked.name, name.as_bytes());
            assert!(ranked.count.abs_diff(**count) * 1_000 <= **count, "{ranked:?}, not {count}");
        }
        // A name without weight takes no place, but its columns count.
        summary.add(b"idle", 1, 0, &Columns { held_ns: 5, ..Columns::default() });
        assert_eq!(summary.find(b"idle", 1), None);
    }

    #[test]
    fn merged_summaries_bound_what_they_lost() {
        let mut truth: HashMap<String, u64> = HashMap::new();
        let mut whole = Summary::default();
        for part in stream().collect::<Vec<_>>().chunks(40_000) {
            let mut minute = Summary::default();
            for (name, weight) in part {
                add(&mut minute, name, *weight);
                *truth.entry(name.clone()).or_default() += weight;
            }
            whole.merge(&minute);
        }
        check(&whole.ranking(250, &Summary::default()), &truth);
    }

    #[test]
    fn a_summary_that_was_handed_over_goes_on_the_same() {
        let (mut summary, mut stream) = (Summary::default(), stream());
        for (name, weight) in stream.by_ref().take(100_000) {
            add(&mut summary, &name, weight);
        }
        let mut other = Summary::resume(summary.state(), hash);
        assert_eq!(other.state(), summary.state());
        for (name, weight) in stream {
            add(&mut summary, &name, weight);
            add(&mut other, &name, weight);
        }
        assert_eq!(other.state(), summary.state());
    }

    #[test]
    fn a_state_that_is_no_summary_becomes_one() {
        let ranked = |name: &str, count| Ranked { name: name.into(), count, ..Ranked::default() };
        let mut entries = vec![ranked("a", 9), ranked("b", 1), ranked("a", 3)];
        entries.extend((0..2_000).map(|n| ranked(&format!("{n}"), n)));
        let summary = Summary::resume(SummaryState { entries, too_low: 0 }, hash);
        assert_eq!(summary.entries.len(), CAPACITY - 1);
        assert_eq!(summary.lost_max(), 0);
        assert_eq!(summary.ranking(1, &Summary::default()).rows[0].count, 996);
    }
}
