//! What options that take a time allow: how short or long it may be.

use protocol::time_from_text;
use std::time::Duration;

/// The longest time of options where for ever has no meaning, as in rules.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

/// Reads a time that is not zero and has an end.
pub(super) fn parse_bounded_duration(text: &str) -> Result<Duration, String> {
    match time_from_text(text)? {
        Duration::ZERO => Err("must be more than 0".to_owned()),
        time if time > LONGEST => Err(format!("must be at most {} s", LONGEST.as_secs())),
        time => Ok(time),
    }
}

/// As whole seconds, rounded up, for the protocol and for orders.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_with_an_end_is_not_zero_nor_too_long() {
        for (text, ms) in [("1", 1_000), ("250ms", 250), ("49710d", 4_294_944_000_000)] {
            assert_eq!(parse_bounded_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["0", "0ms", "0.0000000001", "4294967296", "99999999999999999999", "inf", "5x"] {
            assert!(parse_bounded_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parts_of_a_second_are_rounded_up() {
        for (ms, seconds) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
