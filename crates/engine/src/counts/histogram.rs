//! Histograms: buckets with their bounds, how often a value fell into each, and the sum of all
//! values.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The bounds of a histogram: each is the largest value of its bucket.
#[derive(Debug)]
pub struct Scale {
    /// Ascending; the last bucket, for larger values, has none.
    pub bounds: &'static [u64],
    /// For each number of binary digits, the first bucket that a value of that length can be
    /// in: the search begins there and ends after one or two steps.
    starts: [u8; 65],
}

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
const US_NS: u64 = 1_000;

/// Waits and holds, in nanoseconds: from 1 ms to 5 minutes.
pub static LOCK_TIMES: Scale = Scale::new(&[
    MS_NS,
    5 * MS_NS / 2,
    5 * MS_NS,
    10 * MS_NS,
    25 * MS_NS,
    50 * MS_NS,
    100 * MS_NS,
    250 * MS_NS,
    500 * MS_NS,
    SECOND_NS,
    5 * SECOND_NS / 2,
    5 * SECOND_NS,
    10 * SECOND_NS,
    30 * SECOND_NS,
    60 * SECOND_NS,
    120 * SECOND_NS,
    300 * SECOND_NS,
]);

/// Turns of the loop, in nanoseconds: from 10 µs to 100 ms.
pub static TURN_TIMES: Scale = Scale::new(&[
    10 * US_NS,
    25 * US_NS,
    50 * US_NS,
    100 * US_NS,
    250 * US_NS,
    500 * US_NS,
    MS_NS,
    5 * MS_NS / 2,
    5 * MS_NS,
    10 * MS_NS,
    25 * MS_NS,
    100 * MS_NS,
]);

/// Events that one turn of the loop handles.
pub static TURN_EVENTS: Scale = Scale::new(&[0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000]);

const BUCKETS_MAX: usize = 18;

impl Scale {
    const fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() < BUCKETS_MAX);
        let mut starts = [0; 65];
        let mut digits = 1;
        while digits <= 64 {
            let smallest = 1 << (digits - 1);
            let mut bucket = 0;
            while bucket < bounds.len() && bounds[bucket] < smallest {
                bucket += 1;
            }
            starts[digits] = bucket as u8;
            digits += 1;
        }
        Scale { bounds, starts }
    }

    #[inline(always)]
    fn bucket_of(&self, value: u64) -> usize {
        let mut bucket = usize::from(self.starts[(u64::BITS - value.leading_zeros()) as usize]);
        while self.bounds.get(bucket).is_some_and(|&bound| value > bound) {
            bucket += 1;
        }
        bucket
    }
}

/// Values counted in buckets. Its owner has the [`Scale`] with their bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "HistogramState", into = "HistogramState")]
pub struct Histogram {
    counts: [u64; BUCKETS_MAX],
    sum: u128,
}

impl Histogram {
    /// Counts a value.
    #[inline(always)]
    pub fn add(&mut self, scale: &Scale, value: u64) {
        // A bucket exists for every value: `Scale::new` checks it.
        if let Some(count) = self.counts.get_mut(scale.bucket_of(value)) {
            *count += 1;
        }
        self.sum += u128::from(value);
    }

    /// The number of values in each bucket of `scale`, the last without a bound.
    pub fn counts(&self, scale: &Scale) -> &[u64] {
        &self.counts[..=scale.bounds.len()]
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all values.
    pub fn sum(&self) -> u128 {
        self.sum
    }
}

/// A histogram as a hot restart hands it over: a list may get longer in a later
/// version.
#[derive(Serialize, Deserialize)]
struct HistogramState {
    counts: Vec<u64>,
    /// Few formats have 128 bits.
    sum_high: u64,
    sum_low: u64,
}

impl From<Histogram> for HistogramState {
    fn from(histogram: Histogram) -> Self {
        let used = histogram.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let counts = histogram.counts[..used].to_vec();
        HistogramState {
            counts,
            sum_high: (histogram.sum >> 64) as u64,
            sum_low: histogram.sum as u64,
        }
    }
}

impl From<HistogramState> for Histogram {
    fn from(state: HistogramState) -> Self {
        let mut histogram = Histogram::default();
        for (count, of_state) in histogram.counts.iter_mut().zip(state.counts) {
            *count = of_state;
        }
        histogram.sum = u128::from(state.sum_high) << 64 | u128::from(state.sum_low);
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for scale in [&LOCK_TIMES, &TURN_TIMES, &TURN_EVENTS] {
            let around = scale.bounds.iter().flat_map(|&b| [b.saturating_sub(1), b, b + 1]);
            for value in around.chain([0, 1, 2, 3, 4_095, 4_096, u64::MAX]) {
                let expected = scale.bounds.iter().position(|&bound| value <= bound);
                let expected = expected.unwrap_or(scale.bounds.len());
                assert_eq!(scale.bucket_of(value), expected, "{value}");
                let mut histogram = Histogram::default();
                histogram.add(scale, value);
                assert_eq!(histogram.counts(scale)[expected], 1);
                assert_eq!((histogram.count(), histogram.sum()), (1, value.into()));
            }
        }
    }
}
