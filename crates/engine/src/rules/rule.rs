//! Rules as operators write them, `NAME PATTERN SETTING…`, a file with a rule on each line, and
//! the error of each wrong line.

use crate::rules::pattern::Pattern;
use crate::rules::settings::{RuleError, RuleSettings, is_setting, seconds};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Display};
use core::num::NonZeroU8;
use serde::{Deserialize, Serialize};

/// The group of the keys that no named rule of the file matches.
pub(crate) const OTHER: &str = "other";

/// A name has at most this many bytes.
pub const NAME_BYTES_MAX: usize = 32;

/// Stands for the name of a rule that has none, in snapshots.
const NO_NAME: &str = "-";

/// What the daemon decides about the keys that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    /// Empty for `--max-hold`, which makes a rule without a name.
    pub name: String,
    /// Which keys.
    pub pattern: Pattern,
    /// What applies to them.
    pub settings: RuleSettings,
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// Why it is not a rule.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut words = text.split_ascii_whitespace();
        let name = words.next().ok_or("a rule needs a name and a pattern")?;
        check_name(name)?;
        let pattern = words.next().ok_or_else(|| format!("rule {name} has no pattern"))?;
        Self::of(name, pattern, words)
    }

    /// The rule with this name, pattern and settings. Does not check the name.
    ///
    /// # Errors
    /// Why it is not a rule.
    pub fn of<'a>(
        name: &str,
        pattern: &str,
        settings: impl Iterator<Item = &'a str>,
    ) -> Result<Self, RuleError> {
        let pattern =
            Pattern::parse(pattern.as_bytes()).map_err(|why| format!("{pattern:.60}: {why}"))?;
        let mut rule = Rule { name: name.to_owned(), pattern, settings: RuleSettings::default() };
        // As printed, in which form it is read again. Without a name the pattern can't be missing.
        if rule.has_name() && is_setting(&rule.pattern.to_string()) {
            return Err(format!("rule {name} has no pattern: {} is a setting", rule.pattern).into());
        }
        for word in settings {
            rule.settings.add(word)?;
        }
        Ok(rule)
    }

    /// Reads `PATTERN=TIME`, the value of `--max-hold`. The last `=` separates them: the
    /// pattern may contain `=` too.
    ///
    /// # Errors
    /// Why it is invalid.
    pub fn parse_max_hold(text: &str) -> Result<Self, RuleError> {
        let (pattern, time) = text.rsplit_once('=').ok_or("not PATTERN=TIME")?;
        let pattern = Pattern::parse(pattern.as_bytes())?;
        let max_hold_s = Some(seconds(time).map_err(|why| format!("TIME is {why}"))?);
        let settings = RuleSettings { max_hold_s, ..RuleSettings::default() };
        Ok(Rule { name: String::new(), pattern, settings })
    }

    /// Its name as reports show it: rules without one come from `--max-hold`.
    pub fn shown_name(&self) -> &str {
        if self.has_name() { &self.name } else { "--max-hold" }
    }

    /// Its name and its pattern. Counts of keys are kept under them, because an order may give the
    /// rule's number to another rule.
    pub fn identity(&self) -> String {
        format!("{} {}", self.shown_name(), self.pattern)
    }

    /// Whether it has a name: rules of `--max-hold` have none.
    pub(crate) fn has_name(&self) -> bool {
        !self.name.is_empty()
    }
}

/// Checks a rule's name.
///
/// # Errors
/// Why no rule can have it.
pub fn check_name(name: &str) -> Result<(), RuleError> {
    if is_setting(name) {
        return Err(format!("the name is missing: {name:?} is a setting").into());
    }
    let mut bytes = name.bytes();
    let begins_well = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if !begins_well || !bytes.all(is_word) || name.len() > NAME_BYTES_MAX {
        return Err(format!(
            "{name:?} is not a name: a letter a to z, then up to 31 letters, digits, _ or -"
        )
        .into());
    }
    if name == OTHER {
        return Err(format!("{OTHER} is the group of the keys that no rule matches").into());
    }
    Ok(())
}

impl Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.has_name() { &self.name } else { NO_NAME };
        write!(f, "{name} {}{}", self.pattern, self.settings)
    }
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.strip_prefix(NO_NAME) {
            Some(rest) => {
                let mut words = rest.split(' ').skip(1);
                Rule::of("", words.next().unwrap_or_default(), words)
            }
            None => Rule::parse(&text),
        }
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

/// The number of a rule in force, kept with each lock: one or none takes a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleNumber(NonZeroU8);

impl RuleNumber {
    /// Numbers begin at 0.
    pub fn new(number: usize) -> Self {
        RuleNumber(NonZeroU8::MIN.saturating_add(number as u8))
    }

    pub(crate) fn get(self) -> usize {
        usize::from(self.0.get() - 1)
    }
}

/// How many rules can be in force, those of `--max-hold` included.
pub const RULES_MAX: usize = 64;

/// The largest file that is read.
pub const FILE_BYTES_MAX: usize = 64 << 10;

/// Reads a whole file of rules. Empty lines, and what follows a `#` that begins a word, are
/// left out.
///
/// # Errors
/// What is wrong, and in which line. Then none of the rules applies.
pub fn parse_file(bytes: &[u8]) -> Result<Vec<Rule>, RuleError> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("{} bytes, more than {FILE_BYTES_MAX}", bytes.len()).into());
    }
    let mut rules = Vec::new();
    let mut lines = BTreeMap::new();
    for (n, line) in (1..).zip(bytes.split(|&b| b == b'\n')) {
        let Some(rule) = parse_line(line).map_err(|why| format!("line {n}: {why}"))? else {
            continue;
        };
        if let Some(first) = lines.insert(rule.name.clone(), n) {
            return Err(format!("line {n}: {} stands in line {first} already", rule.name).into());
        }
        if rules.len() == RULES_MAX {
            return Err(format!("line {n}: more than {RULES_MAX} rules").into());
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn parse_line(line: &[u8]) -> Result<Option<Rule>, RuleError> {
    if let Some(&byte) = line.iter().find(|&&b| b.is_ascii_control() && b != b'\t') {
        let hint = if byte == b'\r' { ": lines end with a line feed alone" } else { "" };
        return Err(format!("the control character \\x{byte:02x}{hint}").into());
    }
    let text = core::str::from_utf8(line).map_err(|_| "not UTF-8; write such bytes as \\xNN")?;
    let words = text.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
    let text = words.collect::<Vec<_>>().join(" ");
    if text.is_empty() { Ok(None) } else { Rule::parse(&text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_printed_as_it_is_written() {
        for text in [
            "articles *cache:*",
            "search CirrusSearch-Search:* workers=180 maxqueue=200",
            "a9_-z caf\\xc3\\xa9* timeout=3s total=400 max-hold=1h30m stuck-after=1d",
            "bots enwiki:ApiParse:a:198.51.100.7 stuck-after=never deny",
        ] {
            let rule = Rule::parse(text).unwrap();
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::try_from(text.to_owned()), Ok(rule));
            for setting in text.split(' ').skip(2) {
                let error = Rule::parse(&format!("a {setting}")).unwrap_err().to_string();
                assert!(error.contains("no pattern"), "{setting}: {error}");
                let error = Rule::parse(&format!("{setting} *")).unwrap_err().to_string();
                assert!(error.contains("the name is missing"), "{setting}: {error}");
            }
        }
        let nameless = Rule::parse_max_hold("a=b*=7").unwrap();
        assert_eq!(nameless.to_string(), "- a=b* max-hold=7s");
        assert_eq!(Rule::try_from(nameless.to_string()), Ok(nameless));
        // The key may be called so.
        let nameless = Rule::parse_max_hold("deny=7").unwrap();
        assert_eq!(Rule::try_from(nameless.to_string()), Ok(nameless));
    }

    #[test]
    fn times_have_the_form_of_all_times() {
        for (text, printed) in [
            ("a * timeout=90", "a * timeout=1m30s"),
            ("a * max-hold=1.5h", "a * max-hold=1h30m"),
            ("a * stuck-after=10min", "a * stuck-after=10m"),
        ] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), printed);
        }
        assert_eq!(Rule::parse_max_hold("a*=10m"), Rule::parse_max_hold("a*=600"));
    }

    #[test]
    fn invalid_rules_are_refused() {
        for (bad, why) in [
            ("", "needs a name"),
            ("articles", "no pattern"),
            ("Articles *", "not a name"),
            ("9 *", "not a name"),
            ("a123456789a123456789a123456789abc *", "not a name"),
            ("other *", "no rule matches"),
            ("a \\x4", "backslash"),
            ("a \"x", "\\x22"),
            ("a total=0", "no pattern: total=0 is a setting"),
            ("a total=3 x*", "no pattern: total=3 is a setting"),
            ("a \\x64eny workers=1", "no pattern: deny is a setting"),
            ("total=3 x* deny", "name is missing"),
            ("a * workers", "needs a value"),
            ("a * workers=", "not a whole number"),
            ("a * workers=0", "not a whole number"),
            ("a * workers=+1", "not a whole number"),
            ("a * workers=1.5", "not a whole number"),
            ("a * total=4294967296", "more than 4294967295"),
            ("a * workers=10m", "not a whole number"),
            ("a * timeout=never", "not a time"),
            ("a * timeout=", "not a time"),
            ("a * timeout=1.5", "whole seconds"),
            ("a * max-hold=250ms", "whole seconds"),
            ("a * stuck-after=0m", "not over 0"),
            ("a * max-hold=49711d", "more than 4294967295 s"),
            ("a * max-hold=99999999999999999999", "more than 4294967295 s"),
            ("a * workers=1 workers=1", "twice"),
            ("a * deny deny", "twice"),
            ("a * stuck-after=never stuck-after=3", "twice"),
            ("a * stuck-after", "needs a value"),
            ("a * deny=1", "not a setting"),
            ("a * Workers=1", "not a setting"),
        ] {
            let error = Rule::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
        for bad in
            ["k", "k=", "k=0", "k=-1", "k=1.5", "k=4294967296", "k=5x", "abc\\...=1", "=5", "'*=5'"]
        {
            assert!(Rule::parse_max_hold(bad).is_err(), "{bad}");
        }
        assert!(Rule::parse_max_hold("k=4294967295").is_ok());
        // Words of a value in quotes: the quote is what is wrong.
        assert!(Rule::parse_max_hold("'a*=600'").unwrap_err().to_string().contains("\\x27"));
    }

    #[test]
    fn a_file_has_one_rule_per_line() {
        let text = b"# all\n\n  articles\t*cache:*  # pages\nbots * deny";
        let rules: Vec<String> =
            parse_file(text).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["articles *cache:*", "bots * deny"]);
        assert_eq!(parse_file(b""), Ok(Vec::new()));
    }

    #[test]
    fn one_bad_line_refuses_the_file_and_is_named() {
        let many = |n: usize| (0..n).map(|n| format!("r{n} *\n")).collect::<String>();
        for (bad, why) in [
            ("a *\nb * deny=2\n", "line 2: \"deny=2\" is not a setting"),
            ("a *\n\na * deny\n", "line 3: a stands in line 1 already"),
            ("a *\nb \"x y\" deny\n", "line 2: \"x: leave out the quotes"),
            ("a *\nb deny\n", "line 2: rule b has no pattern"),
            ("deny x*\n", "line 1: the name is missing"),
            ("a *\r\n", "line 1: the control character \\x0d"),
            ("a *\0\n", "line 1: the control character \\x00"),
            (&many(65), "line 65: more than 64 rules"),
            (&"#".repeat(FILE_BYTES_MAX + 1), "65537 bytes"),
        ] {
            let error = parse_file(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
        assert!(parse_file(b"a \xff").unwrap_err().to_string().contains("not UTF-8"));
        assert_eq!(parse_file(many(64).as_bytes()).unwrap().len(), 64);
        assert_eq!(parse_file(&[b'#'; FILE_BYTES_MAX]), Ok(Vec::new()));
    }
}
