//! Times as people write them, in options, rules and orders: `90`, `0.5`, `250ms`, `10m`, `1h30m`.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;

/// The units as they are written, largest first, and their nanoseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400 * SECOND_NS),
    ("h", 3_600 * SECOND_NS),
    ("m", 60 * SECOND_NS),
    ("s", SECOND_NS),
    ("ms", 1_000_000),
];

/// Another name of `m`.
const MINUTES: &str = "min";

/// More digits behind the point make no difference of a nanosecond.
const FRACTION_DIGITS_MAX: usize = 20;

/// Reads a number of seconds, or numbers with units, the largest first, such as `1h30m`. Each
/// number may have a fraction. What exceeds a `Duration` becomes the longest one.
///
/// # Errors
/// It is not a time; a few that are.
pub fn time_from_text(text: &str) -> Result<Duration, &'static str> {
    let ns = if text.ends_with(|c: char| c.is_ascii_digit()) {
        number_ns(text, SECOND_NS)
    } else {
        parts_ns(text)
    };
    ns.map(duration).ok_or("not a time such as 90, 10m or 1h30m")
}

/// As [`time_from_text`], for what is counted in whole seconds.
///
/// # Errors
/// It is not a time, or not of whole seconds.
pub fn seconds_from_text(text: &str) -> Result<u64, &'static str> {
    let time = time_from_text(text)?;
    if time.subsec_nanos() == 0 || time == Duration::MAX {
        Ok(time.as_secs())
    } else {
        Err("not a time of whole seconds")
    }
}

/// A time as [`time_from_text`] reads it: `0s`, `250ms`, `1h30m`.
pub fn time_text(time: Duration) -> String {
    let mut rest_ns = time.as_nanos();
    let mut text = String::new();
    for (unit, unit_ns) in UNITS {
        let count = rest_ns / u128::from(unit_ns);
        rest_ns %= u128::from(unit_ns);
        if unit == "ms" && rest_ns > 0 {
            let number = format!("{count}.{rest_ns:06}");
            text += number.trim_end_matches('0');
            text += unit;
        } else if count > 0 {
            text += &format!("{count}{unit}");
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// The sum of numbers with units.
fn parts_ns(mut rest: &str) -> Option<u128> {
    let (mut sum_ns, mut smallest_ns) = (0_u128, u64::MAX);
    loop {
        let (number, behind) = split_before(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, behind) = split_before(behind, |c| !c.is_ascii_lowercase());
        let unit = if unit == MINUTES { "m" } else { unit };
        let (_, unit_ns) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        if unit_ns >= smallest_ns {
            return None;
        }
        sum_ns = sum_ns.saturating_add(number_ns(number, unit_ns)?);
        (rest, smallest_ns) = (behind, unit_ns);
        if rest.is_empty() {
            return Some(sum_ns);
        }
    }
}

fn split_before(text: &str, is_next: fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_next).unwrap_or(text.len()))
}

/// Digits, with a fraction or without, times a unit.
fn number_ns(number: &str, unit_ns: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole_ns = digits(whole)?.saturating_mul(unit_ns.into());
    digits(fraction)?;
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let part_ns = digits(fraction)? * u128::from(unit_ns) / 10_u128.pow(fraction.len() as u32);
    Some(whole_ns.saturating_add(part_ns))
}

/// Digits only: `FromStr` also accepts a sign.
fn digits(text: &str) -> Option<u128> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let add = |sum: u128, byte: u8| sum.saturating_mul(10).saturating_add((byte - b'0').into());
    is_number.then(|| text.bytes().fold(0, add))
}

fn duration(ns: u128) -> Duration {
    let (seconds, rest_ns) = (ns / u128::from(SECOND_NS), ns % u128::from(SECOND_NS));
    u64::try_from(seconds).map_or(Duration::MAX, |s| Duration::new(s, rest_ns as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: &str = "99999999999999999999";

    #[test]
    fn each_form_is_read() {
        for (text, ns) in [
            ("0", 0),
            ("90", 90_000_000_000),
            ("0.5", 500_000_000),
            ("0.0000001", 100),
            ("0.0000000009", 0),
            ("0.123456789012345678901234567890123456789012", 123_456_789),
            ("250ms", 250_000_000),
            ("0.25ms", 250_000),
            ("1.5s", 1_500_000_000),
            ("10m", 600_000_000_000),
            ("10min", 600_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1h30min", 5_400_000_000_000),
            ("1m30s250ms", 90_250_000_000),
            ("0h5m", 300_000_000_000),
            ("7d", 604_800_000_000_000),
            ("1d25h", 176_400_000_000_000),
            ("007", 7_000_000_000),
        ] {
            assert_eq!(time_from_text(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
    }

    #[test]
    fn a_time_that_is_too_long_becomes_the_longest() {
        for unit in ["", "s", "m", "min", "h", "d"] {
            let text = format!("{LONG}{unit}");
            assert_eq!(time_from_text(&text), Ok(Duration::MAX), "{text}");
            assert_eq!(seconds_from_text(&text), Ok(u64::MAX), "{text}");
        }
        for text in [LONG.repeat(9), format!("{LONG}d{LONG}h"), format!("{}.5d", LONG.repeat(9))] {
            assert_eq!(time_from_text(&text), Ok(Duration::MAX), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            " ",
            " 5",
            "5 ",
            "5x",
            "5 m",
            "1h 30m",
            "1h1h",
            "1m1min",
            "30m1h",
            "1h30",
            "5ms1s",
            "1e300",
            "1e-300",
            "1e3",
            "inf",
            "nan",
            "NaN",
            "-1",
            "+1",
            "-1m",
            "1h-1m",
            "s",
            "min",
            "m",
            ".5",
            "5.",
            "5.s",
            ".",
            "..",
            "1.5.5",
            "1.5.5s",
            "0x10",
            "1_000",
            "1,5",
            "1M",
            "5mins",
            "5sec",
            "1w",
            "5\u{b5}s",
            "\u{661}",
            "5m\u{661}",
            "never",
            "soon",
            "1h\0",
        ] {
            assert!(time_from_text(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn seconds_are_whole() {
        for (text, seconds) in [("90", 90), ("1m30s", 90), ("1.5m", 90), ("1000ms", 1), ("0", 0)] {
            assert_eq!(seconds_from_text(text), Ok(seconds), "{text}");
        }
        for bad in ["0.5", "250ms", "1.5s", "0.01m", "x"] {
            assert!(seconds_from_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_written_with_the_largest_units() {
        for (ns, text) in [
            (0, "0s"),
            (1, "0.000001ms"),
            (250_000_000, "250ms"),
            (2_500_000_000, "2s500ms"),
            (600_000_000_000, "10m"),
            (5_400_000_000_000, "1h30m"),
            (90_000_000_000_000, "1d1h"),
        ] {
            assert_eq!(time_text(Duration::from_nanos(ns)), text);
        }
    }

    proptest! {
        #[test]
        fn every_time_is_its_text_read_back(seconds in any::<u64>(), ns in 0..1_000_000_000_u32) {
            for time in [Duration::new(seconds, ns), Duration::from_secs(seconds),
                         Duration::new(seconds % 100_000, ns / 1_000_000 * 1_000_000),
                         Duration::from_nanos(ns.into()), Duration::MAX] {
                prop_assert_eq!(time_from_text(&time_text(time)), Ok(time));
            }
        }

        #[test]
        fn no_text_is_too_odd(text in "[0-9.dhmins -]{0,60}", any_text in any::<String>()) {
            for text in [text, any_text] {
                if let Ok(time) = time_from_text(&text) {
                    prop_assert_eq!(time_from_text(&time_text(time)), Ok(time));
                }
            }
        }
    }
}
