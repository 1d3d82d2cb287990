//! Patterns of keys: which keys match (`*` stands for anything).

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use protocol::{key_from_text, key_text};

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
    /// Why it is not a pattern, or why no client's key matches it.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        check_text(text)?;
        let pieces = text.split(|&b| b == b'*').map(key_from_text).collect::<Option<Vec<_>>>();
        let pieces =
            pieces.ok_or("a backslash begins \\xNN, a byte of the key; itself is \\x5c")?;
        check_bytes(&pieces)?;
        let pattern = Pattern { pieces };
        // As printed: the snapshot of a hot restart contains it in this form.
        if pattern.to_string().len() > PATTERN_BYTES_MAX {
            Err(
                "a pattern has at most 256 characters, four for each byte that is written as \\xNN; \
                 a star stands for the rest of a key",
            )
        } else {
            Ok(pattern)
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
        let mut text = self.pieces.iter().map(text).collect::<Vec<_>>().join("*");
        for at in [text.len().saturating_sub(1), 0] {
            if let Some(&quote) = text.as_bytes().get(at).filter(|&&byte| is_quote(byte)) {
                text.replace_range(at..=at, &format!("\\x{quote:02x}"));
            }
        }
        f.write_str(&text)
    }
}

/// Refuses what is hardly meant: quotes that a shell would have removed, in a file that no
/// shell reads, and invisible characters.
fn check_text(text: &[u8]) -> Result<(), &'static str> {
    match text {
        [] => Err("an empty pattern matches no key; * matches all"),
        [quote, ..] | [.., quote] if is_quote(*quote) => {
            Err("leave out the quotes; if keys have them there, write \\x22 for \" and \\x27 for '")
        }
        _ if TYPOGRAPHIC_QUOTES.iter().any(|quote| is_at_an_end(quote.as_bytes(), text)) => {
            Err("leave out the quotes; if keys have them there, write their bytes as \\xNN")
        }
        _ if text.contains(&b' ') => Err(NO_SPACE),
        _ if text.iter().any(u8::is_ascii_control) => {
            Err("a control character; write such bytes as \\xNN")
        }
        _ => Ok(()),
    }
}

/// Refuses bytes that no key has: they end the key in a command (docs/reference/protocol.md).
fn check_bytes(pieces: &[Vec<u8>]) -> Result<(), &'static str> {
    let has = |byte| pieces.iter().any(|piece| piece.contains(&byte));
    if has(b' ') {
        Err(NO_SPACE)
    } else if has(b'\n') {
        Err("no key contains a line feed")
    } else {
        Ok(())
    }
}

/// `PoolCounterClient::sendCommand` of MediaWiki replaces it
/// (includes/poolcounter/PoolCounterClient.php).
const NO_SPACE: &str = "no key contains a space; write %20, as clients send it";

/// What word processors and wikis make of quotes.
const TYPOGRAPHIC_QUOTES: [&str; 5] = ["\u{201c}", "\u{201d}", "\u{201e}", "\u{2018}", "\u{2019}"];

fn is_at_an_end(piece: &[u8], text: &[u8]) -> bool {
    text.starts_with(piece) || text.ends_with(piece)
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::matcher::Matcher;
    use protocol::Command;

    #[test]
    fn a_pattern_is_printed_as_it_is_read() {
        for pattern in [
            "k",
            "*",
            "enwiki:*",
            "a**a",
            "caf\\xc3\\xa9",
            "caf\u{e9}",
            "\\x2a*",
            "\\x5C",
            "a%20b*",
            "\\x22a\\x22*",
            "*\\x27",
            "\\x27",
            "it's*",
            "\\x0d\\x09\\x00",
        ] {
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

    #[test]
    fn a_pattern_that_no_key_is_meant_to_match_is_refused() {
        for (texts, why) in [
            (&[""][..], "empty"),
            (&[" ", "a b*", "* *", "*\\x20*", "a\\x20", "\\X20b"], "write %20"),
            (&["\\x0a", "a*\\x0A*"], "line feed"),
            (&["a\tb", "a\n", "\r", "\0*", "\x7f", "\x1b[31m"], "\\xNN"),
            // A shell's quotes, and what is left of them around a space.
            (&["\u{201c}x*\u{201d}", "\u{2018}foo", "bar*\u{2019}", "\u{201e}x"], "bytes"),
            (&["\"x*\"", "'x*'", "\"foo", "'foo", "bar*\"", "bar*'", "\"", "''"], "\\x22"),
        ] {
            for text in texts {
                let error = Pattern::parse(text.as_bytes()).unwrap_err();
                assert!(error.contains(why), "{text:?}: {error}");
            }
        }
    }

    /// Every pattern of up to three parts.
    #[test]
    fn a_client_can_send_a_key_that_matches() {
        const PARTS: [&str; 21] = [
            "", "a", "*", " ", "%20", "\"", "'", "\t", "\n", "\r", "\0", "\u{e9}", "#", "\\",
            "\\x20", "\\x0a", "\\x0d", "\\x22", "\\x27", "\\x2a", "\\xff",
        ];
        let texts = PARTS.iter().flat_map(|a| PARTS.iter().map(move |b| [*a, b].concat()));
        let texts = texts.flat_map(|ab| PARTS.iter().map(move |c| [&ab, *c].concat()));
        for text in texts {
            let Ok(pattern) = Pattern::parse(text.as_bytes()) else { continue };
            let again = Pattern::parse(pattern.to_string().as_bytes());
            assert_eq!(again.as_ref(), Ok(&pattern), "{text:?}");
            // Its own bytes are such a key.
            let bytes = pattern.pieces.concat();
            let key = if bytes.is_empty() { b"k".to_vec() } else { bytes };
            let matches = Matcher::new(core::iter::once(&pattern)).matches(&key);
            assert!(!matches.is_empty(), "{text:?}");
            let line = [b"ACQ4ME ", &key[..], b" 1 1 0"].concat();
            let Command::Acquire(acquire) = Command::parse(&line) else { panic!("{text:?}") };
            assert!(acquire.key == key && !key.contains(&b'\n'), "{text:?}");
        }
    }
}
