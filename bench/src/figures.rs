//! Computes figures from samples: medians, their intervals, ratios.

/// The median of one figure over all rounds, and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The lower end of the interval.
    pub low: f64,
    /// Half of the samples are below.
    pub median: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// The spread of `samples`; `None` without samples.
pub fn spread(samples: &[f64]) -> Option<Spread> {
    let samples = finite_and_sorted(samples);
    let median = sorted_quantile(&samples, 0.5)?;
    let medians = resampled_medians(&samples);
    Some(Spread {
        low: sorted_quantile(&medians, 0.025)?,
        median,
        high: sorted_quantile(&medians, 0.975)?,
    })
}

/// The spread of `a / b`, each pair from one round: whatever slowed a whole round
/// down is in both and cancels out.
pub fn ratio(a: &[Option<f64>], b: &[Option<f64>]) -> Option<Spread> {
    let pairs = a.iter().zip(b).filter_map(|(a, b)| Some((*a)? / (*b)?));
    spread(&pairs.collect::<Vec<_>>())
}

/// Quantile `q` of `samples`, interpolated; `None` without samples.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    sorted_quantile(&finite_and_sorted(samples), q)
}

fn finite_and_sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn sorted_quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = q * last as f64;
    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    Some(below + (above - below) * place.fract())
}

/// The medians of 2,000 samples, sorted, each drawn from `samples` with replacement
/// (bootstrap).
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
        let drawn: Vec<f64> = samples.iter().map(|_| draw()).collect();
        quantile(&drawn, 0.5)
    });
    finite_and_sorted(&medians.collect::<Vec<_>>())
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
    fn quantiles_do_not_depend_on_the_order() {
        assert_eq!(quantile(&[9.0, 1.0, 5.0, 3.0, 7.0], 0.25), Some(3.0));
        assert_eq!(quantile(&[4.0, 1.0, f64::NAN, 2.0, 3.0], 0.75), Some(3.25));
        assert_eq!(quantile(&[], 0.5), None);
    }

    /// Of 21 different samples, the 6th and the 16th enclose the median with 97 %, the 7th
    /// and the 15th with 92 % (by the binomial distribution).
    #[test]
    fn interval_of_the_median_matches_theory() {
        let samples: Vec<f64> = (1..=21).rev().map(f64::from).collect();
        let s = spread(&samples).unwrap();
        assert_eq!(s.median, 11.0);
        assert!((6.0..=7.0).contains(&s.low), "{s:?}");
        assert!((15.0..=16.0).contains(&s.high), "{s:?}");
        assert_eq!(spread(&samples), Some(s));
        assert_eq!(spread(&[2.5]), Some(Spread { low: 2.5, median: 2.5, high: 2.5 }));
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
