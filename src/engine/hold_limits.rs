//! How long keys may be held: `--max-hold PATTERN=SECONDS`. The engine takes away a
//! lock that is held for longer.

use super::client::ClientId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{IntErrorKind, NonZeroU32, ParseIntError};
use std::str::FromStr;

/// A limit for the keys that match a pattern. Each `*` in it stands for any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldLimit {
    pattern: String,
    seconds: NonZeroU32,
}

impl FromStr for HoldLimit {
    type Err = &'static str;

    /// `PATTERN=SECONDS`. The last `=` separates them: the pattern may contain `=`
    /// too.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pattern, seconds) = text.rsplit_once('=').ok_or("not PATTERN=SECONDS")?;
        let seconds = seconds.parse().map_err(|e: ParseIntError| match e.kind() {
            IntErrorKind::PosOverflow => "more than 4294967295 seconds",
            _ => "not a whole number of seconds over 0",
        })?;
        Ok(HoldLimit { pattern: pattern.into(), seconds })
    }
}

impl fmt::Display for HoldLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.seconds)
    }
}

/// A lock that was held for longer than its key allows, and taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredLock {
    /// Its holder.
    pub client: ClientId,
    /// Its key.
    pub key: Vec<u8>,
    /// How long it was held, in nanoseconds.
    pub held_ns: u64,
}

/// The limit of `key` in seconds, from the first pattern that matches; 0 if none
/// does.
#[inline(always)]
pub(super) fn hold_s_max(limits: &[HoldLimit], key: &[u8]) -> u32 {
    if limits.is_empty() { 0 } else { first_match(limits, key) }
}

#[inline(never)]
fn first_match(limits: &[HoldLimit], key: &[u8]) -> u32 {
    let limit = limits.iter().find(|limit| matches(limit.pattern.as_bytes(), key));
    limit.map_or(0, |limit| limit.seconds.get())
}

/// Finds each piece between stars at its first place after the previous piece. There
/// is no backtracking: at most pattern length times key length steps.
fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let mut pieces = pattern.split(|&b| b == b'*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = key.strip_prefix(first) else {
        return false;
    };
    let Some(last) = pieces.next_back() else {
        // No star at all.
        return rest.is_empty();
    };
    for piece in pieces {
        match find(rest, piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn find(text: &[u8], piece: &[u8]) -> Option<usize> {
    if piece.is_empty() {
        return Some(0);
    }
    text.windows(piece.len()).position(|window| window == piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_bytes() {
        for (pattern, key, expected) in [
            ("k", "k", true),
            ("k", "kk", false),
            ("*", "", true),
            ("*", "anything", true),
            ("enwiki:*", "enwiki:Main Page", true),
            ("enwiki:*", "dewiki:enwiki:", false),
            ("*:thumb", "x:thumb", true),
            ("*:thumb", "x:thumb:", false),
            ("a*b*c", "a--b--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("a*a", "a", false),
            ("a**a", "aa", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), key.as_bytes()), expected, "{pattern} {key}");
        }
    }

    #[test]
    fn the_first_limit_that_matches_counts() {
        let limits = ["a=b*=7".parse().unwrap(), "*=9".parse().unwrap()];
        assert_eq!(hold_s_max(&limits, b"a=bc"), 7);
        assert_eq!(hold_s_max(&limits, b"x"), 9);
        assert_eq!(hold_s_max(&limits[..1], b"x"), 0);
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        let (no_number, too_many) =
            ("not a whole number of seconds over 0", "more than 4294967295 seconds");
        for (bad, why) in [
            ("k", "not PATTERN=SECONDS"),
            ("k=", no_number),
            ("k=0", no_number),
            ("k=-1", no_number),
            ("k=1.5", no_number),
            ("k=4294967296", too_many),
            ("k=99999999999999999999999", too_many),
        ] {
            assert_eq!(bad.parse::<HoldLimit>(), Err(why), "{bad}");
        }
        assert!("k=4294967295".parse::<HoldLimit>().is_ok());
    }
}
