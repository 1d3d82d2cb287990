//! Keys for people: visible characters of UTF-8 stand for themselves, in JSON always and on a
//! terminal or in a pipe if the locale is one of UTF-8. Every other byte is `\xNN`, as the daemon
//! writes it; every command that takes a key reads both.

use serde_json::Value;
use std::borrow::Cow;
use std::sync::OnceLock;

/// Stands for the middle of a text that was cut. [`readable`] leaves it out, so that no key that is
/// shown whole contains it.
const CUT: char = '\u{2026}';

/// The same without UTF-8: every other backslash has an `x` behind it.
const CUT_IN_ASCII: &str = "\\...";

/// Members of JSON that have keys, or parts of them.
const KEY_MEMBERS: [&str; 3] = ["key", "name", "pattern"];

/// Whether the locale is one of UTF-8, as `locale charmap` says.
pub(super) fn is_utf8_output() -> bool {
    static IS_UTF8: OnceLock<bool> = OnceLock::new();
    *IS_UTF8.get_or_init(|| names_utf8(|name| std::env::var(name).ok()))
}

fn names_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.into_iter().find_map(|name| variable(name).filter(|text| !text.is_empty()));
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// A text that contains keys, and is no report, as it is printed.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    if is_utf8_output() { readable(text) } else { text.into() }
}

/// With visible characters in place of their escapes.
pub(super) fn readable(text: &str) -> Cow<'_, str> {
    let mut readable = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        let (before, escapes) = rest.split_at(at);
        readable += before;
        let bytes: Vec<u8> = escaped_bytes(escapes).collect();
        // At least the backslash, if no escape of other bytes than ASCII begins here.
        let len = (4 * bytes.len()).max(1);
        if bytes.is_empty() {
            readable += &escapes[..len];
        }
        for chunk in bytes.utf8_chunks() {
            chunk.valid().chars().for_each(|c| push(&mut readable, c));
            chunk.invalid().iter().for_each(|byte| readable += &format!("\\x{byte:02x}"));
        }
        rest = &escapes[len..];
    }
    if readable.is_empty() { text.into() } else { (readable + rest).into() }
}

/// The bytes of the escapes that begin here, up to the first that is one of ASCII: that stays.
fn escaped_bytes(text: &str) -> impl Iterator<Item = u8> {
    let escapes = text.as_bytes().chunks(4).map_while(|escape| {
        let digits = escape.strip_prefix(b"\\x").filter(|digits| digits.len() == 2)?;
        u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    });
    escapes.take_while(|byte| !byte.is_ascii())
}

fn push(text: &mut String, c: char) {
    if is_visible(c) {
        text.push(c);
    } else {
        let mut bytes = [0; 4];
        c.encode_utf8(&mut bytes).bytes().for_each(|byte| *text += &format!("\\x{byte:02x}"));
    }
}

/// Letters, marks, digits, punctuation and symbols; nothing that is invisible, changes the
/// direction of the text, or stands for a cut.
fn is_visible(c: char) -> bool {
    // Assigned, but without a glyph of their own (Default_Ignorable_Code_Point). std escapes the
    // others of them, controls, separators, and what is not assigned.
    let is_ignorable = matches!(c, '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}'
        | '\u{e0100}'..='\u{e01ef}');
    !is_ignorable && c != CUT && !is_escaped_behind_a_letter(c)
}

/// Marks are escaped only where a text begins.
fn is_escaped_behind_a_letter(c: char) -> bool {
    let mut text = String::from("a");
    text.push(c);
    text.escape_debug().count() > 2
}

/// Makes the keys in an answer readable.
pub(super) fn make_readable(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if KEY_MEMBERS.contains(&name.as_str()) => {
                        if let Cow::Owned(readable) = readable(text) {
                            *text = readable;
                        }
                    }
                    other => make_readable(other),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_readable),
        _ => {}
    }
}

/// How many columns of a terminal a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    if c.is_ascii() {
        return 1;
    }
    let is_wide = matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{a4cf}' | '\u{a960}'..='\u{a97f}' | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}' | '\u{1f300}'..='\u{1f64f}' | '\u{1f900}'..='\u{1f9ff}'
        | '\u{20000}'..='\u{3fffd}');
    // A mark stands on the character before it: alone, std escapes it.
    let is_mark = !is_escaped_behind_a_letter(c) && c.escape_debug().count() > 1;
    match (is_wide, is_mark) {
        (_, true) => 0,
        (true, false) => 2,
        (false, false) => 1,
    }
}

/// The beginning of a text, at most so many columns wide.
pub(super) fn beginning(text: &str, columns: usize) -> &str {
    &text[..prefix_len(text.chars(), columns)]
}

fn prefix_len(chars: impl Iterator<Item = char>, columns: usize) -> usize {
    let mut left = columns;
    let fits = |c: &char| {
        let rest = left.checked_sub(char_width(*c));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    chars.take_while(fits).map(char::len_utf8).sum()
}

/// A text of at most so many columns: of a longer one the middle is replaced by a mark. Keys often
/// differ at their ends only.
pub(super) fn cut(text: &str, columns: usize, in_utf8: bool) -> Cow<'_, str> {
    if width(text) <= columns {
        return text.into();
    }
    let mark = if in_utf8 { CUT.to_string() } else { CUT_IN_ASCII.to_owned() };
    let Some(room) = columns.checked_sub(width(&mark)) else {
        return beginning(&mark, columns).to_owned().into();
    };
    let head = beginning(text, room.div_ceil(2));
    let tail_len = prefix_len(text.chars().rev(), room - width(head));
    format!("{head}{mark}{}", &text[text.len() - tail_len..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{key_from_text, key_text};

    /// Families of keys, and how they are shown.
    #[test]
    fn visible_characters_stand_for_themselves_and_nothing_else_does() {
        for (key, expected) in [
            ("page:7", "page:7"),
            ("café", "café"),
            ("cafe\u{301}", "cafe\u{301}"),
            ("日本語:鍵", "日本語:鍵"),
            ("מפתח", "מפתח"),
            ("300", "300"),
            ("-x", "-x"),
            ("a%20b", "a%20b"),
            ("\\x41", "\\x5cx41"),
            ("é\\é", "é\\x5cé"),
            ("a\tb", "a\\x09b"),
            ("a\u{85}b", "a\\xc2\\x85b"),
            ("a\u{202e}b\u{200f}c\u{2066}", "a\\xe2\\x80\\xaeb\\xe2\\x80\\x8fc\\xe2\\x81\\xa6"),
            ("a\u{200b}\u{feff}", "a\\xe2\\x80\\x8b\\xef\\xbb\\xbf"),
            ("\u{3164}\u{fe0f}\u{ad}", "\\xe3\\x85\\xa4\\xef\\xb8\\x8f\\xc2\\xad"),
            ("\u{a0}\u{2028}\u{e000}", "\\xc2\\xa0\\xe2\\x80\\xa8\\xee\\x80\\x80"),
            ("a\u{2026}b", "a\\xe2\\x80\\xa6b"),
        ] {
            let text = key_text(key.as_bytes());
            assert_eq!(readable(&text), expected);
            assert_eq!(key_from_text(readable(&text).as_bytes()).as_deref(), Some(key.as_bytes()));
        }
        let invalid = key_text(b"\xff\xc3\xa9\xc3\xe2\x82");
        assert_eq!(readable(&invalid), "\\xff\u{e9}\\xc3\\xe2\\x82");
        for odd in ["", "\\", "\\x", "\\xc", "\\xzz", "\\xc3\\...", "a\\...", "\\xc3\\x", "\\xé"] {
            assert_eq!(readable(odd), odd);
        }
    }

    #[test]
    fn the_locale_is_that_of_the_first_variable_that_is_set() {
        for (all, ctype, lang, is_utf8) in [
            ("", "", "", false),
            ("", "", "C", false),
            ("", "", "de_DE.UTF-8", true),
            ("", "", "C.utf8", true),
            ("C", "C.UTF-8", "C.UTF-8", false),
            ("", "POSIX", "C.UTF-8", false),
            ("C.UTF-8", "C", "C", true),
        ] {
            let variable = |name: &str| match name {
                "LC_ALL" => Some(all.to_owned()),
                "LC_CTYPE" => Some(ctype.to_owned()),
                _ => Some(lang.to_owned()),
            };
            assert_eq!(names_utf8(variable), is_utf8, "{all} {ctype} {lang}");
        }
        assert!(!names_utf8(|_| None));
    }

    #[test]
    fn keys_in_json_are_text() {
        let mut value = serde_json::json!({
            "key": "caf\\xc3\\xa9", "address": "\\xc3\\xa9", "rows": [{ "name": "\\xff" }, 7],
        });
        make_readable(&mut value);
        let expected = serde_json::json!({
            "key": "café", "address": "\\xc3\\xa9", "rows": [{ "name": "\\xff" }, 7],
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn a_text_is_cut_in_the_middle_with_a_mark() {
        for (text, columns, in_utf8, in_ascii) in [
            ("abcdefgh", 8, "abcdefgh", "abcdefgh"),
            ("abcdefgh", 7, "abc…fgh", "ab\\...h"),
            ("abcdefgh", 6, "abc…gh", "a\\...h"),
            ("abcdefgh", 1, "…", "\\"),
            ("abcdefgh", 0, "", ""),
            ("日本語日本語", 7, "日…本語", "日\\..."),
            ("ab\u{301}cdefgh", 6, "ab\u{301}c…gh", "a\\...h"),
        ] {
            assert_eq!(cut(text, columns, true), in_utf8, "{columns}");
            assert_eq!(cut(text, columns, false), in_ascii, "{columns}");
            assert!(width(&cut(text, columns, true)) <= columns);
        }
    }
}
