//! The most frequent names of a stream, in a table of bounded size: when too many have a place,
//! the least frequent ones lose theirs. A name that gets a place may have had one before, so
//! its count begins with the largest count that was lost: no count is too low, and each has a
//! bound on how much it is too high (J. Misra, D. Gries, "Finding Repeated Elements", 1982;
//! here many names lose their place at a time).

use alloc::vec::Vec;
use core::cmp::Reverse;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

/// How many names have a place at a time.
const PLACES: usize = 1_750;

/// When all places are taken, this many of the most frequent names keep theirs, and this many
/// of the names with the longest times.
const KEPT: usize = 500;

/// How many rows of a ranking are shown, at most.
const ROWS_MAX: usize = 100;

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

/// What names are ranked by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Requests,
    Time,
}

impl Columns {
    fn add(&mut self, other: &Columns) {
        self.requests = self.requests.saturating_add(other.requests);
        self.acquired = self.acquired.saturating_add(other.acquired);
        self.done = self.done.saturating_add(other.done);
        self.refused = self.refused.saturating_add(other.refused);
        self.timed_out = self.timed_out.saturating_add(other.timed_out);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.held_ns = self.held_ns.saturating_add(other.held_ns);
    }

    fn by(&self, by: By) -> u64 {
        match by {
            By::Requests => self.requests,
            By::Time => self.waited_ns.saturating_add(self.held_ns),
        }
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
    /// What it is ranked by: requests, or nanoseconds waited and held.
    pub count: u64,
    /// By how much the count may be too high.
    pub error: u64,
    /// Counted since the name got its place.
    pub columns: Columns,
}

/// What has been counted so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeavyHitters {
    /// With the hashes of their names.
    places: HashTable<(u64, Place)>,
    lost: [u64; 2],
}

/// What a hot restart carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HeavyHittersState {
    /// In the order of their names.
    places: Vec<Place>,
    /// The largest counts that were lost, by requests and by time.
    lost: [u64; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Place {
    #[serde(with = "serde_bytes")]
    name: Vec<u8>,
    columns: Columns,
    /// What may have been lost before, by requests and by time.
    errors: [u64; 2],
}

impl Place {
    fn count(&self, by: By) -> u64 {
        self.errors[by as usize].saturating_add(self.columns.by(by))
    }
}

impl HeavyHitters {
    /// Counts for a name, which has this hash.
    pub(crate) fn add(&mut self, name: &[u8], hash: u64, columns: &Columns) {
        self.place_of(name, hash).columns.add(columns);
    }

    /// Adds the counts of `other`. What a name had there before it lost its place is missing.
    pub(crate) fn merge(&mut self, other: &HeavyHitters) {
        for (hash, Place { name, columns, errors }) in &other.places {
            let place = self.place_of(name, *hash);
            place.columns.add(columns);
            for (error, more) in place.errors.iter_mut().zip(errors) {
                *error = error.saturating_add(*more);
            }
        }
    }

    fn place_of(&mut self, name: &[u8], hash: u64) -> &mut Place {
        if self.places.len() >= PLACES {
            self.make_room();
        }
        let is_it = |(other, place): &(u64, Place)| *other == hash && place.name == name;
        let entry = self.places.entry(hash, is_it, |(hash, _)| *hash);
        let lost = self.lost;
        let new =
            || (hash, Place { name: name.to_vec(), columns: Columns::default(), errors: lost });
        &mut entry.or_insert_with(new).into_mut().1
    }

    /// When a count of `n` is lost, [`KEPT`] names have counted at least as much: no error
    /// exceeds a 500th of the total.
    #[cold]
    fn make_room(&mut self) {
        // Among equal counts, the hash decides.
        let rank = |(hash, place): &(u64, Place), by| Reverse((place.count(by), *hash));
        let last_kept = [By::Requests, By::Time].map(|by| {
            let mut ranks: Vec<_> = self.places.iter().map(|place| rank(place, by)).collect();
            *ranks.select_nth_unstable(KEPT - 1).1
        });
        self.lost = last_kept.map(|Reverse((count, _))| count);
        let [requests, time] = last_kept;
        self.places
            .retain(|place| rank(place, By::Requests) <= requests || rank(place, By::Time) <= time);
    }

    /// The most frequent names, first.
    pub(crate) fn ranking(&self, by: By) -> Vec<Ranked> {
        let places = self.places.iter().map(|(_, place)| place);
        let mut places: Vec<&Place> = places.filter(|place| place.columns.by(by) > 0).collect();
        places.sort_unstable_by_key(|place| (Reverse(place.count(by)), &place.name));
        let row = |place: &Place| Ranked {
            name: place.name.clone(),
            count: place.count(by),
            error: place.errors[by as usize],
            columns: place.columns,
        };
        places.into_iter().take(ROWS_MAX).map(row).collect()
    }

    pub(crate) fn state(&self) -> HeavyHittersState {
        let mut places: Vec<Place> = self.places.iter().map(|(_, place)| place.clone()).collect();
        places.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        HeavyHittersState { places, lost: self.lost }
    }

    pub(crate) fn resume(state: HeavyHittersState, hash: impl Fn(&[u8]) -> u64) -> Self {
        let mut summary = HeavyHitters { places: HashTable::new(), lost: state.lost };
        for place in state.places {
            let own = summary.place_of(&place.name, hash(&place.name));
            *own = place;
        }
        summary
    }
}
