//! Computes figures from samples: medians, quartiles, ratios with their intervals.

/// The median and the quartiles of one figure over all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// A quarter of the samples is below.
    pub low: f64,
    /// Half of them.
    pub median: f64,
    /// Three quarters.
    pub high: f64,
}

/// The spread of `samples`; none if there are none.
pub fn spread(samples: &[f64]) -> Option<Spread> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    Some(Spread {
        low: quantile(&sorted, 0.25)?,
        median: quantile(&sorted, 0.5)?,
        high: quantile(&sorted, 0.75)?,
    })
}

/// Quantile `q` of sorted samples, between two of them if need be.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = q * last as f64;
    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    Some(below + (above - below) * place.fract())
}

/// The median of `a / b` between the ends of its 95 % interval, each pair from one round:
/// whatever slowed a whole round down is in both and cancels out.
pub fn ratio(a: &[Option<f64>], b: &[Option<f64>]) -> Option<Spread> {
    let pairs = a.iter().zip(b).filter_map(|(a, b)| Some((*a)? / (*b)?));
    let ratios: Vec<f64> = pairs.filter(|ratio| ratio.is_finite()).collect();
    let median = spread(&ratios)?.median;
    let medians = resampled_medians(&ratios);
    Some(Spread { low: quantile(&medians, 0.025)?, median, high: quantile(&medians, 0.975)? })
}

/// The medians of 2,000 samples, sorted, each drawn from `samples` with replacement
/// (bootstrap): where the median could as well have come to lie.
fn resampled_medians(samples: &[f64]) -> Vec<f64> {
    let mut random = 1_u64;
    let mut draw = || {
        // SplitMix64: the same draws in each run.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        samples[((z ^ (z >> 31)) % samples.len() as u64) as usize]
    };
    let medians = (0..2000).filter_map(|_| {
        let sample: Vec<f64> = samples.iter().map(|_| draw()).collect();
        Some(spread(&sample)?.median)
    });
    let mut medians: Vec<f64> = medians.collect();
    medians.sort_by(f64::total_cmp);
    medians
}

/// Formats a number for people: three significant digits, thousands separated.
pub fn human(x: f64) -> String {
    let decimals = match x.abs() {
        x if x >= 99.95 || x.fract() == 0.0 => 0,
        x if x >= 9.995 => 1,
        _ => 2,
    };
    group(&format!("{x:.decimals$}"))
}

/// Commas between thousands.
fn group(number: &str) -> String {
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (number, String::new()),
    };
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    format!("{sign}{out}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_quartiles_whatever_the_order() {
        let s = spread(&[9.0, 1.0, 5.0, 3.0, 7.0]).unwrap();
        assert_eq!((s.low, s.median, s.high), (3.0, 5.0, 7.0));
        let s = spread(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((s.low, s.median, s.high), (1.75, 2.5, 3.25));
        assert_eq!(spread(&[2.5]).unwrap().low, 2.5);
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn ratios_pair_rounds_and_skip_failed_ones() {
        // Rounds twice as slow for both do not change the ratio.
        let a = [Some(2.0), Some(4.0), None, Some(8.0)];
        let b = [Some(1.0), Some(2.0), Some(1.0), Some(4.0)];
        let r = ratio(&a, &b).unwrap();
        assert_eq!((r.low, r.median, r.high), (2.0, 2.0, 2.0));
        assert_eq!(ratio(&a, &[]), None);
    }

    #[test]
    fn the_interval_of_a_ratio_narrows_with_the_rounds() {
        let noisy = |rounds: usize| -> Vec<Option<f64>> {
            (0..rounds).map(|round| Some(1.0 + (round * 7 % 20) as f64 / 100.0)).collect()
        };
        let width = |rounds| {
            let r = ratio(&noisy(rounds), &vec![Some(1.0); rounds]).unwrap();
            assert!(r.low <= r.median && r.median <= r.high, "{r:?}");
            assert!(r.low > 1.0 && r.high < 1.2, "{r:?}");
            r.high - r.low
        };
        assert!(width(100) < width(10) / 2.0);
        assert_eq!(ratio(&[Some(3.0)], &[Some(2.0)]).map(|r| (r.low, r.high)), Some((1.5, 1.5)));
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(human(4.8123), "4.81");
        assert_eq!(human(29.04), "29.0");
        assert_eq!(human(9.996), "10.0");
        assert_eq!(human(99.96), "100");
        assert_eq!(human(1455.3), "1,455");
        assert_eq!(human(-1234567.8), "-1,234,568");
        assert_eq!(human(0.0), "0");
        assert_eq!(human(20.0), "20");
        assert_eq!(human(0.004), "0.00");
    }
}
