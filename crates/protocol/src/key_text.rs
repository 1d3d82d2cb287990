//! Keys as text, for people and machines: printable ASCII except the backslash stands
//! for itself, every other byte is `\xNN`. The text has no spaces and is valid in any
//! encoding, and it can be turned back into the key.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// Follows a text that was cut. No key's text contains it: every backslash there is
/// followed by an `x`.
const CUT: &str = "\\...";

/// The whole key as text.
pub fn key_text(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        if byte.is_ascii_graphic() && byte != b'\\' {
            text.push(byte.into());
        } else {
            write!(text, "\\x{byte:02x}").expect("a String");
        }
    }
    text
}

/// The key as text of at most `bytes_max` bytes. What does not fit is replaced by
/// `CUT`, which is not counted.
pub fn key_text_cut(key: &[u8], bytes_max: usize) -> String {
    // A text is at least as long as its key.
    let mut text = key_text(&key[..key.len().min(bytes_max + 1)]);
    if text.len() > bytes_max {
        let is_inside_escape = |end: usize| text[..end].rfind('\\').is_some_and(|at| at + 4 > end);
        let end = (0..=bytes_max).rev().find(|&end| !is_inside_escape(end));
        text.truncate(end.unwrap_or(0));
        text.push_str(CUT);
    }
    text
}

/// The key that `text` stands for. Bytes that are not escaped stand for themselves,
/// printable or not, so that a key can be pasted as it is. `None` if a backslash is not
/// followed by `x` and two hexadecimal digits.
pub fn key_from_text(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    while let Some((&byte, rest)) = text.split_first() {
        text = rest;
        if byte != b'\\' {
            key.push(byte);
            continue;
        }
        let ([b'x' | b'X', high, low], rest) = text.split_first_chunk()? else {
            return None;
        };
        text = rest;
        key.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(key)
}

/// A key as clients send it: a space, which would end it, as `%20`.
pub fn key_on_the_wire(key: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(key.len());
    for &byte in key {
        match byte {
            b' ' => text.extend_from_slice(b"%20"),
            other => text.push(other),
        }
    }
    text
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_bytes_are_escaped() {
        for (key, text) in [
            (&b"enwiki:rcache:1234567:userlang=fr"[..], "enwiki:rcache:1234567:userlang=fr"),
            (b"a\tb\0\xff", "a\\tb\\0\\xff"),
            ("\u{e4}".as_bytes(), "\\xc3\\xa4"),
            (b"back\\slash", "back\\x5cslash"),
            (b"<b>\"&'", "<b>\"&'"),
            (b"", ""),
        ] {
            let text = text.replace("\\t", "\\x09").replace("\\0", "\\x00");
            assert_eq!(key_text(key), text);
            assert_eq!(key_from_text(text.as_bytes()).as_deref(), Some(key));
        }
    }

    #[test]
    fn invalid_texts_of_keys_are_refused() {
        for bad in ["\\", "\\x", "\\x4", "a\\y41", "\\x4g", "ab\\..."] {
            assert_eq!(key_from_text(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(key_from_text("\u{e4}\\X4A\\x4a".as_bytes()), Some("\u{e4}JJ".into()));
    }

    #[test]
    fn a_long_text_is_cut_between_bytes_of_the_key() {
        for (key, bytes_max, text) in [
            (&b"abcd"[..], 4, "abcd"),
            (b"abcde", 4, "abcd\\..."),
            (b"a\xffb", 4, "a\\..."),
            (b"a\xff", 5, "a\\xff"),
            (b"a\xffb", 5, "a\\xff\\..."),
            (b"\xff\xff", 7, "\\xff\\..."),
            (b"\xff", 3, "\\..."),
            (b"\xff", 0, "\\..."),
        ] {
            assert_eq!(key_text_cut(key, bytes_max), text, "{bytes_max}");
        }
    }

    proptest! {
        #[test]
        fn every_key_is_its_text_read_back(key in prop::collection::vec(any::<u8>(), 0..40)) {
            let text = key_text(&key);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(key_from_text(text.as_bytes()), Some(key));
        }

        #[test]
        fn a_cut_text_is_the_start_of_the_whole(
            key in prop::collection::vec(any::<u8>(), 0..40),
            bytes_max in 0_usize..60,
        ) {
            let (whole, cut) = (key_text(&key), key_text_cut(&key, bytes_max));
            match cut.strip_suffix(CUT) {
                None => prop_assert_eq!(cut, whole),
                Some(start) => {
                    prop_assert!(start.len() <= bytes_max && whole.starts_with(start));
                    prop_assert!(key_from_text(start.as_bytes()).is_some());
                    prop_assert!(key_from_text(cut.as_bytes()).is_none());
                }
            }
        }
    }
}
