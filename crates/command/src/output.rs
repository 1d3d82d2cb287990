//! Prints text and JSON to standard output, errors to standard error, with controls escaped. A
//! closed stream is no reason to panic, and text from servers, such as keys, does not control
//! the terminal.

use serde_json::Value;
use std::io::{self, Write};

/// Prints a line to standard error, in one write: several processes may share the log.
pub(super) fn print_error(line: &str) {
    let line = format!("poolcounter: {}\n", escape_controls(&line.replace('\n', "\\n")));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Prints `text` and a newline. Returns false on failure, and reports any failure but a closed
/// pipe.
pub(super) fn print(text: &str) -> bool {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    write(&format!("{}{end}", escape_controls(text)))
}

/// Prints a line of JSON.
pub(super) fn print_json(value: &Value) -> bool {
    // serde_json leaves DEL and C1 as they are; outside of strings there is neither.
    let escape = |c: char| format!("\\u{:04x}", u32::from(c));
    write(&(replaced(&value.to_string(), is_control, escape) + "\n"))
}

fn write(text: &str) -> bool {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(report_output_error).is_ok()
}

/// Reports a failure to write standard output, unless it is a closed pipe.
pub(super) fn report_output_error(why: io::Error) {
    if why.kind() != io::ErrorKind::BrokenPipe {
        print_error(&format!("standard output: {why}"));
    }
}

/// A text in one line: a server's text does not begin another row.
pub(super) fn one_line(text: &str) -> String {
    text.replace('\n', "\\u{a}")
}

/// Replaces control characters, such as escape by `\u{1b}`, but no line ends.
fn escape_controls(text: &str) -> String {
    replaced(text, |c| is_control(c) && c != '\n', |c| c.escape_unicode().to_string())
}

/// The text with what `escape` writes for some of its characters.
fn replaced(text: &str, is_it: impl Fn(char) -> bool, escape: impl Fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_it(c) { shown += &escape(c) } else { shown.push(c) }
    }
    shown
}

/// Whether a terminal executes this character instead of showing it: control characters,
/// those that turn the direction of what follows, and the ends of lines and paragraphs.
pub(super) fn is_control(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}');
    turns || matches!(c, '\u{2028}' | '\u{2029}') || c.is_control() && c != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_controls("a\tb\nZürich"), "a\tb\nZürich");
        assert_eq!(
            escape_controls("\x1b[2J\u{9b}1m\u{202e}\x7f"),
            "\\u{1b}[2J\\u{9b}1m\\u{202e}\\u{7f}"
        );
        assert_eq!(escape_controls("a\u{61c}b\u{2028}c\u{2029}"), "a\\u{61c}b\\u{2028}c\\u{2029}");
    }
}
