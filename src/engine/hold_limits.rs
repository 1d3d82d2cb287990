//! How long keys may be held: `--max-hold PATTERN=SECONDS`. A client that holds one for
//! longer is disconnected.

use crate::engine::client::ClientId;
use crate::protocol::{key_from_text, key_text};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{IntErrorKind, NonZeroU32, ParseIntError};
use std::str::FromStr;

/// A limit for the keys that match a pattern. Each `*` in it stands for any bytes, and
/// `\xNN` for one, as lists print keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HoldLimit {
    /// The bytes before the first star, between two, and behind the last one.
    pieces: Vec<Vec<u8>>,
    seconds: NonZeroU32,
}

impl HoldLimit {
    /// Reads `PATTERN=SECONDS`. The last `=` separates them: the pattern may contain `=`
    /// too.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let end = text.iter().rposition(|&b| b == b'=').ok_or("not PATTERN=SECONDS")?;
        let seconds = String::from_utf8_lossy(&text[end + 1..]);
        let seconds = seconds.parse().map_err(|e: ParseIntError| match e.kind() {
            IntErrorKind::PosOverflow => "more than 4294967295 seconds",
            _ => "not a whole number of seconds over 0",
        })?;
        let pieces = text[..end].split(|&b| b == b'*').map(key_from_text).collect::<Option<_>>();
        let pieces =
            pieces.ok_or("a backslash begins \\xNN, a byte of the key; itself is \\x5c")?;
        Ok(HoldLimit { pieces, seconds })
    }

    /// Whether this limits `key`. Finds each piece between stars at its first place after the
    /// previous one. There is no backtracking: at most pattern length times key length steps.
    pub fn matches(&self, key: &[u8]) -> bool {
        let Some((first, pieces)) = self.pieces.split_first() else {
            return false;
        };
        let Some(mut rest) = key.strip_prefix(&first[..]) else {
            return false;
        };
        let Some((last, pieces)) = pieces.split_last() else {
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
}

impl FromStr for HoldLimit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        HoldLimit::parse(text.as_bytes())
    }
}

impl TryFrom<String> for HoldLimit {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HoldLimit> for String {
    fn from(limit: HoldLimit) -> Self {
        limit.to_string()
    }
}

impl fmt::Display for HoldLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |piece: &Vec<u8>| key_text(piece).replace('*', "\\x2a");
        let pieces: Vec<String> = self.pieces.iter().map(text).collect();
        write!(f, "{}={}", pieces.join("*"), self.seconds)
    }
}

/// A lock that was held for longer than its key allows.
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
    let limit = limits.iter().find(|limit| limit.matches(key));
    limit.map_or(0, |limit| limit.seconds.get())
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
            ("caf\\xc3\\xa9", "caf\u{e9}", true),
            ("caf\u{e9}", "caf\u{e9}", true),
            ("\\x2a*", "*k", true),
            ("\\x2a*", "k*k", false),
            ("\\x5C", "\\", true),
        ] {
            let limit: HoldLimit = format!("{pattern}=1").parse().unwrap();
            assert_eq!(limit.matches(key.as_bytes()), expected, "{pattern} {key}");
            assert_eq!(limit.to_string().parse(), Ok(limit), "{pattern}");
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
            // As a list ends a key that is too long for it.
            ("abc\\...=1", "a backslash begins \\xNN, a byte of the key; itself is \\x5c"),
        ] {
            assert_eq!(bad.parse::<HoldLimit>(), Err(why), "{bad}");
        }
        assert!("k=4294967295".parse::<HoldLimit>().is_ok());
    }
}
