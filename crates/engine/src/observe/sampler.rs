//! Which requests are followed for `STATS TOP`: the first of each second, and a random
//! sample of the others.

use crate::time::Time;

const SECOND_NS: u64 = 1_000_000_000;

/// This many requests in each second are all followed. Each costs some 1,000 instructions
/// (`make bench-instructions`).
const ALL_PER_SECOND: u32 = 2_500;

/// Of the other requests, one in this many is followed, and it counts for all of them.
pub(crate) const ONE_IN: u8 = 64;

/// Chooses the requests. The gaps between sampled requests are random, so that clients with
/// a fixed rhythm are sampled too.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    second_ends: Time,
    /// How many more requests of this second are all followed.
    all_left: u32,
    /// How many other requests to count up to and including the next followed one.
    gap: u32,
    /// The state of the random gaps; never 0.
    seed: u64,
}

impl Sampler {
    pub(crate) fn new(seed: u64) -> Self {
        Sampler { second_ends: Time::default(), all_left: 0, gap: 1, seed: seed.max(1) }
    }

    /// The weight of the next request: how many it stands for; 0 if it is not followed.
    #[inline(always)]
    pub(crate) fn next(&mut self, now: Time) -> u8 {
        if now >= self.second_ends {
            (self.second_ends, self.all_left) = (now.plus_ns(SECOND_NS), ALL_PER_SECOND);
        }
        if self.all_left > 0 {
            self.all_left -= 1;
            return 1;
        }
        self.gap -= 1;
        if self.gap == 0 {
            self.begin_gap();
            return ONE_IN;
        }
        0
    }

    /// Draws a gap from 1 to `2 * ONE_IN - 1`: on average, `ONE_IN`.
    #[cold]
    fn begin_gap(&mut self) {
        // xorshift64 (G. Marsaglia, "Xorshift RNGs", 2003).
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.gap = 1 + (self.seed % (2 * u64::from(ONE_IN) - 1)) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    /// Each followed request stands for `ONE_IN`: with longer gaps `STATS TOP` shows too little.
    #[test]
    fn gaps_are_around_what_a_request_stands_for() {
        let mut sampler = Sampler::new(1);
        let gaps = core::iter::repeat_with(|| {
            sampler.begin_gap();
            sampler.gap
        });
        let gaps: BTreeSet<u32> = gaps.take(100_000).collect();
        assert!(gaps.into_iter().eq(1..2 * u32::from(ONE_IN)));
    }
}
