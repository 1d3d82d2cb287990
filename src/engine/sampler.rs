//! Which requests are looked at more closely: the first of each second, and of the
//! others a sample. And which holds and waits are so long that all are.

use super::time::Time;
use serde::{Deserialize, Serialize};

const SECOND_NS: u64 = 1_000_000_000;

/// So many requests of each second are all looked at. Each costs some 1,500 instructions
/// (`make bench-instructions`).
const COUNTED_PER_SECOND: u64 = 2_500;

/// And about so many of the others.
const SAMPLES_PER_SECOND: u64 = 2_000;

/// After so many, the second has more requests than the last one had.
const SAMPLES_PER_STEP: u64 = 2_500;

const WEIGHT_LOG2_MAX: u8 = 20;

/// How many requests a sampled one stands for: a power of two. Fits into a byte of the
/// lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(u8);

impl Weight {
    /// Whether the request is not sampled.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }

    /// The number of requests that it stands for, 0 if it is not sampled.
    pub fn requests(self) -> u64 {
        1_u64.checked_shl(u32::from(self.0)).unwrap_or(0) >> 1
    }

    /// Whether no sampler gives such a weight.
    pub(super) fn is_impossible(self) -> bool {
        self.0 > WEIGHT_LOG2_MAX + 1
    }
}

/// Chooses the requests. Whether one is chosen does not depend on those before it, so
/// that no rhythm of the clients escapes it, and a second may end at any of them. A hot
/// restart continues the sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Sampler {
    /// Requests until the next sampled one, which counts too. 0 only before a restart
    /// from an old snapshot.
    left: u32,
    /// The weight of the next sample.
    weight_log2: u8,
    /// That of the first sample beyond those that are all looked at.
    first_weight_log2: u8,
    /// Of the random gaps; never 0.
    seed: u64,
    second_ends: Time,
    /// In this second, by weight and by number.
    requests: u64,
    samples: u64,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler::new(1)
    }
}

impl Sampler {
    pub(super) fn new(seed: u64) -> Self {
        Sampler {
            left: 1,
            weight_log2: 0,
            first_weight_log2: 1,
            seed: seed.max(1),
            second_ends: Time::default(),
            requests: 0,
            samples: 0,
        }
    }

    /// Whether the next request is sampled, as its weight.
    #[inline(always)]
    pub(super) fn next(&mut self, now: Time) -> Weight {
        if self.left > 1 && now < self.second_ends {
            self.left -= 1;
            return Weight(0);
        }
        self.take(now)
    }

    #[cold]
    #[inline(never)]
    fn take(&mut self, now: Time) -> Weight {
        if now >= self.second_ends {
            self.begin_second(now);
        }
        let weight = Weight(self.weight_log2 + 1);
        self.samples += 1;
        self.requests += weight.requests();
        match self.samples.saturating_sub(COUNTED_PER_SECOND) {
            0 => {}
            1 => self.weight_log2 = self.first_weight_log2.clamp(1, WEIGHT_LOG2_MAX),
            beyond if beyond % SAMPLES_PER_STEP > 0 => {}
            _ => self.weight_log2 = (self.weight_log2 + 1).min(WEIGHT_LOG2_MAX),
        }
        self.left = self.gap();
        weight
    }

    fn begin_second(&mut self, now: Time) {
        let was_silent = now.ns_since(self.second_ends) >= SECOND_NS;
        let before = if was_silent { 0 } else { self.requests };
        let beyond = before.saturating_sub(COUNTED_PER_SECOND);
        let is_enough = |log2: &u8| beyond >> log2 <= SAMPLES_PER_SECOND;
        self.first_weight_log2 = (1..WEIGHT_LOG2_MAX).find(is_enough).unwrap_or(WEIGHT_LOG2_MAX);
        (self.weight_log2, self.requests, self.samples) = (0, 0, 0);
        self.second_ends = now.plus_ns(SECOND_NS);
    }

    /// The weight of the next sample, and until when no sample weighs less. Requests go
    /// unsampled at this weight whether that sample comes or not.
    pub(super) fn in_force(&self) -> (u64, Time) {
        (1 << self.weight_log2, self.second_ends)
    }

    /// Random, at least 1: as long as each request is sampled with a probability of one
    /// in the weight.
    fn gap(&mut self) -> u32 {
        if self.weight_log2 == 0 {
            return 1;
        }
        // xorshift64 (G. Marsaglia, "Xorshift RNGs", 2003).
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        // Never 0, and of less than 2^53: exact.
        let uniform = ((self.seed >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
        let skipped = uniform.ln() / (-1.0 / (1_u64 << self.weight_log2) as f64).ln_1p();
        // Less than 2^32.
        skipped as u32 + 1
    }

    /// Whether no sampler can have come to this.
    pub(super) fn is_impossible(&self, now: Time) -> bool {
        self.weight_log2.max(self.first_weight_log2) > WEIGHT_LOG2_MAX
            || self.seed == 0
            || self.second_ends > now.plus_ns(SECOND_NS)
            || self.requests.max(self.samples) > u64::MAX / 4
    }
}

/// Which holds and waits are so long that each is counted as it was, whether its request
/// is sampled or not: so the times of sampled requests stand only for short ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LongEnds {
    /// The shortest, in nanoseconds.
    pub(super) from_ns: u64,
    second_ends: Time,
    /// How many ended in this second.
    count: u64,
}

impl LongEnds {
    const FROM_NS_MIN: u64 = 1_000_000;

    /// After so many in a second, only longer ones are.
    const PER_STEP: u64 = 1_000;

    const STEP_LOG2: u32 = 2;

    pub(super) fn new() -> Self {
        LongEnds { from_ns: Self::FROM_NS_MIN, second_ends: Time::default(), count: 0 }
    }

    /// Whether the next hold or wait, which took so long, is one.
    pub(super) fn next(&mut self, ns: u64) -> bool {
        let is_long = ns >= self.from_ns;
        self.count += u64::from(is_long);
        if is_long && self.count % Self::PER_STEP == 0 {
            self.from_ns = self.from_ns.saturating_mul(1 << Self::STEP_LOG2);
        }
        is_long
    }

    /// Begins the next second, if it is time.
    pub(super) fn roll(&mut self, now: Time) {
        if now < self.second_ends {
            return;
        }
        let was_silent = now.ns_since(self.second_ends) >= SECOND_NS;
        let from_ns = if was_silent { 0 } else { self.from_ns >> Self::STEP_LOG2 };
        self.from_ns = from_ns.max(Self::FROM_NS_MIN);
        (self.second_ends, self.count) = (now.plus_ns(SECOND_NS), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of weights and the number of samples of `per_second` requests a second,
    /// for `seconds`.
    fn sampled(sampler: &mut Sampler, from: Time, per_second: u64, seconds: u64) -> (u64, u64) {
        let mut sum = (0, 0);
        for n in 0..per_second * seconds {
            let weight = sampler.next(from.plus_ns(n * 1_000_000_000 / per_second));
            sum = (sum.0 + weight.requests(), sum.1 + u64::from(!weight.is_none()));
        }
        sum
    }

    #[test]
    fn up_to_2500_in_a_second_each_request_is_sampled() {
        let mut sampler = Sampler::new(7);
        for second in 1..5 {
            let now = Time::from_ns(second * SECOND_NS);
            // All at once is as good as spread.
            let all = (0..2_500).map(|_| sampler.next(now).requests());
            assert_eq!(all.sum::<u64>(), 2_500);
        }
        let now = Time::from_ns(9 * SECOND_NS);
        assert_eq!(sampled(&mut sampler, now, 2_500, 3), (7_500, 7_500));
    }

    #[test]
    fn above_it_some_stand_for_all() {
        for per_second in [5_000_u64, 40_000, 200_000, 1_000_000] {
            let mut sampler = Sampler::new(per_second);
            let (weight, samples) = sampled(&mut sampler, Time::from_ns(1), per_second, 3);
            let requests = 3 * per_second;
            let off = weight.abs_diff(requests) as f64 / requests as f64;
            assert!(off < 0.05, "{per_second} a second: {weight} for {requests}");
            // More only in the first second, until the rate is known.
            assert!(samples < 35_000, "{per_second} a second: {samples} samples");
            let later = Time::from_ns(3 * SECOND_NS + 1);
            let (_, samples) = sampled(&mut sampler, later, per_second, 3);
            assert!(samples <= 3 * 5_000, "{per_second} a second: {samples} samples");
            // And in the next quiet second, each one.
            let later = Time::from_ns(6 * SECOND_NS + 1);
            assert_eq!(sampled(&mut sampler, later, 1_000, 1), (1_000, 1_000));
        }
    }

    #[test]
    fn a_second_of_longer_ends_raises_what_is_long_and_the_next_lowers_it() {
        let mut long = LongEnds::new();
        let second = |n: u64| Time::from_ns(n * SECOND_NS);
        long.roll(second(1));
        let counted = (0..10_000).filter(|_| long.next(2_000_000)).count();
        assert_eq!((counted, long.from_ns), (1_000, 4_000_000));
        assert!(!long.next(3_999_999) && long.next(4_000_000));
        long.roll(second(2));
        assert_eq!(long.from_ns, LongEnds::FROM_NS_MIN);
        assert_eq!((0..15_000).filter(|_| long.next(5_000_000_000)).count(), 7_000);
        long.roll(second(3));
        assert_eq!(long.from_ns, 4_096_000_000);
        long.roll(second(5));
        assert_eq!(long.from_ns, LongEnds::FROM_NS_MIN);
    }

    #[test]
    fn a_weight_is_a_power_of_two() {
        assert_eq!(Weight(0).requests(), 0);
        assert_eq!(Weight(1).requests(), 1);
        assert_eq!(Weight(5).requests(), 16);
        assert_eq!(Weight(255).requests(), 0);
    }
}
