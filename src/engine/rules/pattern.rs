//! Patterns of keys: which keys match (`*` stands for anything).

use crate::protocol::{key_from_text, key_text};
use std::fmt;

/// Which keys a rule is for. Each `*` stands for any bytes, and `\xNN` for one, as lists
/// print keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The bytes before the first star, between two, and behind the last one.
    pieces: Vec<Vec<u8>>,
}

/// Keeps the longest list of rules within what is sent to an operator at once.
const PATTERN_BYTES_MAX: usize = 256;

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Why it is not a pattern.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let pieces = text.split(|&b| b == b'*').map(key_from_text).collect::<Option<Vec<_>>>();
        let pieces =
            pieces.ok_or("a backslash begins \\xNN, a byte of the key; itself is \\x5c")?;
        let pattern = Pattern { pieces };
        // As printed: the snapshot of a hot restart contains it in this form.
        match pattern.to_string().len() > PATTERN_BYTES_MAX {
            true => Err(
                "a pattern has at most 256 characters, four for each byte that is written as \\xNN; \
                 a star stands for the rest of a key",
            ),
            false => Ok(pattern),
        }
    }

    /// The piece before the first star, those between stars, and the one behind the last star,
    /// if there is a star.
    pub(super) fn parts(&self) -> (&[u8], impl Iterator<Item = &[u8]>, Option<&[u8]>) {
        let (first, others) = self.pieces.split_first().expect("a split text has a piece");
        let (last, between) = match others.split_last() {
            Some((last, between)) => (Some(&last[..]), between),
            None => (None, others),
        };
        (first, between.iter().map(Vec::as_slice), last)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |piece: &Vec<u8>| key_text(piece).replace('*', "\\x2a");
        let pieces: Vec<String> = self.pieces.iter().map(text).collect();
        f.write_str(&pieces.join("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_printed_as_it_is_read() {
        for pattern in
            ["k", "*", "enwiki:*", "a**a", "caf\\xc3\\xa9", "caf\u{e9}", "\\x2a*", "\\x5C"]
        {
            let parsed = Pattern::parse(pattern.as_bytes()).unwrap();
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
