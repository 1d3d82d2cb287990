//! Patterns of keys: which keys match (`*` stands for anything).

use crate::protocol::{key_from_text, key_text};
use std::fmt;

/// Which keys a rule is for. Each `*` stands for any bytes, and `\xNN` for one, as lists
/// print keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The bytes before the first star, between two, and behind the last one.
    pieces: Vec<Vec<u8>>,
    /// The bytes in the pieces.
    bytes: ByteSet,
}

/// Keeps the longest list of rules within what is sent to an operator at once.
const PATTERN_BYTES_MAX: usize = 256;

/// A set of bytes. Several bytes share a bit, so it may contain more than were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteSet(u64);

impl ByteSet {
    pub(super) const ALL: ByteSet = ByteSet(u64::MAX);

    #[inline(always)]
    pub(super) fn of(bytes: &[u8]) -> Self {
        ByteSet(bytes.iter().fold(0, |set, byte| set | 1 << (byte & 63)))
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Why it is not a pattern.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let pieces = text.split(|&b| b == b'*').map(key_from_text).collect::<Option<Vec<_>>>();
        let pieces =
            pieces.ok_or("a backslash begins \\xNN, a byte of the key; itself is \\x5c")?;
        let bytes = ByteSet::of(&pieces.concat());
        let pattern = Pattern { pieces, bytes };
        // As printed: the snapshot of a hot restart contains it in this form.
        match pattern.to_string().len() > PATTERN_BYTES_MAX {
            true => Err(
                "a pattern has at most 256 characters, four for each byte that is written as \\xNN; \
                 a star stands for the rest of a key",
            ),
            false => Ok(pattern),
        }
    }

    /// Whether a key with these bytes may match.
    #[inline(always)]
    pub(super) fn may_match(&self, bytes: ByteSet) -> bool {
        self.bytes.0 & !bytes.0 == 0
    }

    /// Whether it matches `key`. Finds each piece between stars at its first place after the
    /// previous one. There is no backtracking: at most pattern length times key length steps.
    pub fn matches(&self, key: &[u8]) -> bool {
        let Some((first, pieces)) = self.pieces.split_first() else {
            return false;
        };
        if !begins_with(key, first) {
            return false;
        }
        let mut rest = &key[first.len()..];
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
        last.is_empty() || rest.ends_with(last)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |piece: &Vec<u8>| key_text(piece).replace('*', "\\x2a");
        let pieces: Vec<String> = self.pieces.iter().map(text).collect();
        f.write_str(&pieces.join("*"))
    }
}

/// Most keys differ in the first byte.
#[inline(always)]
fn begins_with(text: &[u8], piece: &[u8]) -> bool {
    piece.is_empty() || text.first() == piece.first() && text.starts_with(piece)
}

fn find(text: &[u8], piece: &[u8]) -> Option<usize> {
    let Some((&first, rest)) = piece.split_first() else {
        return Some(0);
    };
    memchr::memchr_iter(first, text).find(|&at| text[at + 1..].starts_with(rest))
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
            ("enwiki:*", "enwiki:rcache:1234567:canonical", true),
            ("enwiki:*", "dewiki:pcache:idhash:9-0!canonical:revid:41", false),
            ("*:thumb", "x:thumb", true),
            ("*:thumb", "x:thumb:", false),
            ("a*b*c", "a--b--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("*:page:*", "w:pag:page:1", true),
            ("*cache:*", "enwiki:parsoid-rcache:1234567:useParsoid=1", true),
            ("a*a", "a", false),
            ("a**a", "aa", true),
            ("caf\\xc3\\xa9", "caf\u{e9}", true),
            ("caf\u{e9}", "caf\u{e9}", true),
            ("\\x2a*", "*k", true),
            ("\\x2a*", "k*k", false),
            ("\\x5C", "\\", true),
        ] {
            let parsed = Pattern::parse(pattern.as_bytes()).unwrap();
            assert_eq!(parsed.matches(key.as_bytes()), expected, "{pattern} {key}");
            assert_eq!(Pattern::parse(parsed.to_string().as_bytes()), Ok(parsed), "{pattern}");
        }
        // How a list ends a key that is too long for it.
        assert!(Pattern::parse(b"abc\\...").is_err());
        assert!(Pattern::parse(&[b'*'; 256]).is_ok());
        assert!(Pattern::parse(&[b'*'; 257]).is_err());
        // Whatever is accepted can be read again as printed.
        assert!(Pattern::parse("\u{e9}".repeat(32).as_bytes()).is_ok());
        assert!(Pattern::parse("\u{e9}".repeat(33).as_bytes()).is_err());
    }
}
