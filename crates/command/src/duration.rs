//! Durations on the command line: `90`, `1.5s`, `30m`.

use std::time::Duration;

/// The units, and their seconds.
const UNITS: [(&str, f64); 5] =
    [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// Reads a number of seconds, or of the unit behind it. What exceeds a `Duration` means for ever.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit = UNITS.iter().find(|(unit, _)| {
        let number = text.strip_suffix(unit);
        number.is_some_and(|number| number.ends_with(|c: char| c.is_ascii_digit() || c == '.'))
    });
    let (number, factor) = match unit {
        Some((unit, factor)) => (&text[..text.len() - unit.len()], factor),
        None => (text, &1.0),
    };
    let seconds = number.parse().ok().filter(|&seconds: &f64| seconds >= 0.0);
    let time = seconds.map(|s| Duration::try_from_secs_f64(s * factor).unwrap_or(Duration::MAX));
    time.ok_or_else(|| "must be a time such as 90, 1.5s, 30m, 12h or 7d".to_owned())
}

/// The same, but not zero.
pub(super) fn parse_some_duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time.is_zero() { Err("must be more than 0".to_owned()) } else { Ok(time) }
}

/// The same, and not for ever.
pub(super) fn parse_bounded_duration(text: &str) -> Result<Duration, String> {
    let time = parse_some_duration(text)?;
    if time == Duration::MAX { Err("must have an end".to_owned()) } else { Ok(time) }
}

/// As whole seconds, rounded up, for the protocol and for orders.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_understood() {
        for (text, ms) in [
            ("90", 90_000),
            ("1.5", 1_500),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("30m", 1_800_000),
            ("12h", 43_200_000),
            ("7d", 604_800_000),
            ("0", 0),
            (".5", 500),
            ("1e3", 1_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for endless in ["inf", "1e30", "1e30d"] {
            assert_eq!(parse_duration(endless), Ok(Duration::MAX), "{endless}");
        }
        for bad in ["", "s", "m", "-1", "-1m", "1x", "1 s", "1m30s", "nan", "1M", "5min", "soon"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
        assert!(parse_some_duration("0ms").is_err());
        assert!(parse_bounded_duration("inf").is_err() && parse_bounded_duration("7d").is_ok());
    }

    #[test]
    fn parts_of_a_second_are_rounded_up() {
        for (ms, seconds) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
