//! A file of rules: one on each line.

use crate::engine::rules::RULES_MAX;
use crate::engine::rules::rule::Rule;
use std::collections::BTreeMap;

/// The largest file that is read.
pub const FILE_BYTES_MAX: usize = 64 << 10;

/// Reads a whole file of rules. Empty lines, and what follows a `#` that begins a word, are
/// left out.
///
/// # Errors
/// What is wrong and in which line: none of its rules applies.
pub fn parse_file(bytes: &[u8]) -> Result<Vec<Rule>, String> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("{} bytes, more than {FILE_BYTES_MAX}", bytes.len()));
    }
    let mut rules = Vec::new();
    let mut lines = BTreeMap::new();
    for (n, line) in (1..).zip(bytes.split(|&b| b == b'\n')) {
        let Some(rule) = parse_line(line).map_err(|why| format!("line {n}: {why}"))? else {
            continue;
        };
        if let Some(first) = lines.insert(rule.name.clone(), n) {
            return Err(format!("line {n}: {} stands in line {first} already", rule.name));
        }
        if rules.len() == RULES_MAX {
            return Err(format!("line {n}: more than {RULES_MAX} rules"));
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn parse_line(line: &[u8]) -> Result<Option<Rule>, String> {
    if let Some(&byte) = line.iter().find(|&&b| b.is_ascii_control() && b != b'\t') {
        let hint = if byte == b'\r' { ": lines end with a line feed alone" } else { "" };
        return Err(format!("the control character \\x{byte:02x}{hint}"));
    }
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8; write such bytes as \\xNN")?;
    let words = text.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
    let text = words.collect::<Vec<_>>().join(" ");
    if text.is_empty() { Ok(None) } else { Rule::parse(&text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_rule_a_line() {
        let text = b"# all\n\n  articles\t*:pcache:*  # pages\nbots * deny";
        let rules: Vec<String> =
            parse_file(text).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["articles *:pcache:*", "bots * deny"]);
        assert_eq!(parse_file(b""), Ok(Vec::new()));
    }

    #[test]
    fn a_file_is_refused_as_a_whole_and_the_line_is_named() {
        let many = |n: usize| (0..n).map(|n| format!("r{n} *\n")).collect::<String>();
        for (bad, why) in [
            ("a *\nb * deny=2\n", "line 2: \"deny=2\" is not a setting"),
            ("a *\n\na * deny\n", "line 3: a stands in line 1 already"),
            ("a *\r\n", "line 1: the control character \\x0d"),
            ("a *\0\n", "line 1: the control character \\x00"),
            (&many(65), "line 65: more than 64 rules"),
            (&"#".repeat(FILE_BYTES_MAX + 1), "65537 bytes"),
        ] {
            let error = parse_file(bad.as_bytes()).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        assert!(parse_file(b"a \xff").unwrap_err().contains("not UTF-8"));
        assert_eq!(parse_file(many(64).as_bytes()).unwrap().len(), 64);
    }
}
