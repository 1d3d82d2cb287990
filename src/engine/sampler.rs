//! Which requests are followed for `STATS TOP`: the first of each second, and of the
//! others one in some.

use super::time::Time;
use serde::{Deserialize, Serialize};

const SECOND_NS: u64 = 1_000_000_000;

/// This many requests in each second are all followed. Each costs some 1,200 instructions
/// (`make bench-instructions`).
const ALL_PER_SECOND: u32 = 2_500;

/// Of the other requests, one in this many is followed.
pub(super) const ONE_IN: u64 = 64;

/// Whether a request is followed, and the lock that it got or waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Followed {
    /// It counts in no list.
    #[default]
    No,
    /// It counts once.
    Alone,
    /// It also stands for requests that are not followed.
    ForMany,
}

impl Followed {
    /// Whether it is not.
    #[inline(always)]
    pub fn is_no(&self) -> bool {
        *self == Followed::No
    }

    /// The number of requests that it stands for.
    pub(super) fn requests(self) -> u64 {
        match self {
            Followed::No => 0,
            Followed::Alone => 1,
            Followed::ForMany => ONE_IN,
        }
    }
}

/// Chooses the requests. The gaps between those that stand for many are random, so that
/// no rhythm of the clients escapes.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    second_ends: Time,
    /// How many more requests of this second are all followed.
    all_left: u32,
    /// How many other requests to count until one is followed, that one included.
    gap: u32,
    /// The state of the random gaps; never 0.
    seed: u64,
    /// When a request was last left out, or the hold or wait of such a request last ended.
    pub(super) left_out: Time,
}

impl Sampler {
    pub(super) fn new(seed: u64) -> Self {
        let (second_ends, left_out) = (Time::default(), Time::default());
        let mut sampler = Sampler { second_ends, all_left: 0, gap: 0, seed: seed.max(1), left_out };
        sampler.begin_gap();
        sampler
    }

    /// Whether the next request is followed.
    #[inline(always)]
    pub(super) fn next(&mut self, now: Time) -> Followed {
        if now >= self.second_ends {
            (self.second_ends, self.all_left) = (now.plus_ns(SECOND_NS), ALL_PER_SECOND);
        }
        if self.all_left > 0 {
            self.all_left -= 1;
            return Followed::Alone;
        }
        self.gap -= 1;
        if self.gap == 0 {
            self.begin_gap();
            return Followed::ForMany;
        }
        self.left_out = now;
        Followed::No
    }

    /// Draws a gap from 1 to `2 * ONE_IN - 1`: on average, `ONE_IN`.
    #[cold]
    fn begin_gap(&mut self) {
        // xorshift64 (G. Marsaglia, "Xorshift RNGs", 2003).
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.gap = 1 + (self.seed % (2 * ONE_IN - 1)) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests that those followed stand for, and how many are followed, of
    /// `per_second` requests a second for `seconds`.
    fn followed(sampler: &mut Sampler, from_s: u64, per_second: u64, seconds: u64) -> (u64, u64) {
        let mut sum = (0, 0);
        for n in 0..per_second * seconds {
            let now = Time::from_ns(from_s * SECOND_NS + n * SECOND_NS / per_second);
            let followed = sampler.next(now);
            sum = (sum.0 + followed.requests(), sum.1 + u64::from(!followed.is_no()));
        }
        sum
    }

    #[test]
    fn above_it_some_stand_for_all() {
        for per_second in [2_600_u64, 5_000, 40_000, 200_000] {
            let mut sampler = Sampler::new(per_second);
            let (counted, followed_) = followed(&mut sampler, 1, per_second, 20);
            let (requests, beyond) = (20 * per_second, 20 * (per_second - 2_500));
            let bound = 4.0 * ((ONE_IN * beyond) as f64).sqrt();
            let off = counted.abs_diff(requests) as f64;
            assert!(off < bound, "{per_second} a second: {counted} for {requests}");
            assert_eq!(followed_, 50_000 + (counted - 50_000) / ONE_IN);
            assert!(sampler.left_out > Time::from_ns(20 * SECOND_NS));
            // And in the next quiet second, each one.
            assert_eq!(followed(&mut sampler, 21, 1_000, 1), (1_000, 1_000));
        }
    }

    /// Clients may ask for one key at each second, tenth or hundredth request.
    #[test]
    fn no_rhythm_escapes() {
        for period in [2, 10, 64, 100, 127, 128] {
            let mut sampler = Sampler::new(period);
            let now = Time::from_ns(SECOND_NS);
            let mut counted = 0;
            for n in 0..period * 20_000 {
                let requests = sampler.next(now).requests();
                counted += if n % period == 0 { requests } else { 0 };
            }
            let bound = 4.0 * ((ONE_IN * 20_000) as f64).sqrt();
            assert!(f64::from(20_000_i32 - counted as i32).abs() < bound, "{period}: {counted}");
        }
    }
}
