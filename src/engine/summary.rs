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

/// What a followed request or its end adds.
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
}

impl Summary {
    /// Adds to the count and the columns of `name`, and returns its entry. With a `weight`
    /// of 0 it takes no place.
    pub(super) fn add(
        &mut self,
        name: &[u8],
        hash: u64,
        weight: u64,
        columns: &Columns,
    ) -> Option<&mut Ranked> {
        let id = match self.find(name, hash) {
            Some(id) => id,
            None if weight == 0 => return None,
            None if self.entries.len() < CAPACITY => {
                self.insert(Ranked { name: name.to_vec(), ..Ranked::default() }, hash)
            }
            None => self.replace_least(name, hash),
        };
        let Ranked { count, columns: sums, .. } = &mut self.entries[id as usize].ranked;
        *count = count.saturating_add(weight);
        sums.add(columns);
        self.sink(id);
        Some(&mut self.entries[id as usize].ranked)
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

    /// Adds the counts of `other`, whose hashes must come from the same hasher. What a name
    /// had there before it lost its place is missing.
    pub(super) fn merge(&mut self, other: &Summary) {
        for &id in &other.heap {
            let Entry { hash, ranked, .. } = &other.entries[id as usize];
            let sum = self.add(&ranked.name, *hash, ranked.count, &ranked.columns);
            if let Some(sum) = sum {
                sum.error = sum.error.saturating_add(ranked.error);
            }
        }
    }

    /// The most frequent names, first, at most `rows`. `other` ranks the same events by
    /// something else: a name may have its place there for longer.
    pub(super) fn ranking(&self, rows: usize, other: &Summary) -> Vec<Ranked> {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        let order =
            |a: &Ranked, b: &Ranked| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name));
        entries.sort_unstable_by(|a, b| order(&a.ranked, &b.ranked));
        let row = |entry: &Entry| {
            let mut ranked = entry.ranked.clone();
            if let Some(id) = other.find(&ranked.name, entry.hash) {
                ranked.columns = ranked.columns.or(&other.entries[id as usize].ranked.columns);
            }
            ranked
        };
        entries.into_iter().take(rows).map(row).collect()
    }

    /// Goes on from the ranking of another summary. Never fails: it leaves out surplus
    /// entries.
    pub(super) fn resume(ranking: Vec<Ranked>, hash: impl Fn(&[u8]) -> u64) -> Self {
        let mut summary = Summary::default();
        for ranked in ranking.into_iter().take(CAPACITY) {
            let hash = hash(&ranked.name);
            if summary.find(&ranked.name, hash).is_none() {
                summary.insert(ranked, hash);
            }
        }
        summary
    }
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

    /// The first twenty are the first twenty in truth, and their counts are almost right.
    fn check_first(ranking: &[Ranked], truth: &HashMap<String, u64>) {
        let mut most: Vec<_> = truth.iter().collect();
        most.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (ranked, (name, count)) in ranking.iter().zip(&most[..20]) {
            assert_eq!(ranked.name, name.as_bytes());
            assert!(ranked.count.abs_diff(**count) * 1_000 <= **count, "{ranked:?}, not {count}");
        }
    }

    #[test]
    fn counts_are_as_exact_as_they_say() {
        let (mut summary, mut truth) = (Summary::default(), HashMap::new());
        for (name, weight) in stream() {
            add(&mut summary, &name, weight);
            *truth.entry(name).or_default() += weight;
        }
        let ranking = summary.ranking(250, &Summary::default());
        assert_eq!(ranking.len(), 250);
        for ranked in &ranking {
            let name = String::from_utf8(ranked.name.clone()).expect("text");
            let true_count = truth.get(&name).copied().unwrap_or(0);
            assert!(ranked.count >= true_count, "{ranked:?}: {true_count}");
            assert!(ranked.count - ranked.error <= true_count, "{ranked:?}: {true_count}");
        }
        check_first(&ranking, &truth);
        // A name without weight takes no place, but its columns count.
        summary.add(b"idle", 1, 0, &Columns { held_ns: 5, ..Columns::default() });
        assert_eq!(summary.find(b"idle", 1), None);
    }

    #[test]
    fn merged_summaries_rank_as_the_whole() {
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
        check_first(&whole.ranking(250, &Summary::default()), &truth);
    }

    #[test]
    fn a_summary_that_was_handed_over_has_all_its_counts() {
        let mut summary = Summary::default();
        for (name, weight) in stream().take(100_000) {
            add(&mut summary, &name, weight);
        }
        let ranking = |summary: &Summary| summary.ranking(CAPACITY, &Summary::default());
        let mut other = Summary::resume(ranking(&summary), hash);
        assert_eq!(ranking(&other), ranking(&summary));
        // The least frequent one still gives its place away.
        let least = ranking(&summary)[CAPACITY - 1].count;
        add(&mut other, "new", 1);
        let new = ranking(&other).into_iter().find(|ranked| ranked.name == b"new");
        assert_eq!(new.map(|ranked| (ranked.count, ranked.error)), Some((least + 1, least)));
    }

    #[test]
    fn a_ranking_that_is_none_becomes_a_summary() {
        let ranked = |name: &str, count| Ranked { name: name.into(), count, ..Ranked::default() };
        let mut entries = vec![ranked("a", 9), ranked("b", 1), ranked("a", 3)];
        entries.extend((0..2_000).map(|n| ranked(&format!("{n}"), n)));
        let summary = Summary::resume(entries, hash);
        assert_eq!(summary.entries.len(), CAPACITY - 1);
        assert_eq!(summary.count_at(0), 0);
        assert_eq!(summary.ranking(1, &Summary::default())[0].count, 996);
    }
}
