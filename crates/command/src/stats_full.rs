//! Reads `STATS FULL`, which every server has: all that servers of version 1 answer.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Times of STATS FULL, and their names in STATS JSON.
const TIMES: [(&str, &str); 8] = [
    ("total processing time", "processing"),
    ("average processing time", "average_processing"),
    ("gained time", "gained"),
    ("waiting time", "waiting"),
    ("waiting time for me", "waiting_for_me"),
    ("waiting time for anyone", "waiting_for_anyone"),
    ("waiting time for good", "waiting_for_good"),
    ("wasted timeout time", "wasted_timeout"),
];

/// Lines with a name and a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StatsFull {
    pub(super) values: Vec<(String, String)>,
}

impl StatsFull {
    pub(super) fn read(text: &str) -> StatsFull {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        let values = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
        StatsFull { values: values.collect() }
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A whole number, or a time in seconds.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        seconds(self.value(name)?)
    }

    /// What `STATS JSON` would say, as far as it is known, under its names.
    pub(super) fn as_json(&self) -> Value {
        let times = TIMES.iter().filter_map(|(name, short)| Some((*short, self.number(name)?)));
        let times: BTreeMap<_, _> = times.collect();
        let counters = self.values.iter().filter(|(name, _)| !name.contains(' '));
        let counters: BTreeMap<_, u64> =
            counters.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect();
        json!({ "uptime_s": self.number("uptime"), "counters": counters, "times_s": times })
    }
}

/// `4 days 3h 0m 37.062500s`, `1.5ms`, or a plain number.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return Some(number).filter(|number| number.is_finite());
    }
    let text = text.replace(" days", "d").replace(',', "");
    let mut sum = None;
    for word in text.split_whitespace() {
        let end = word.find(|c: char| c.is_ascii_alphabetic() || c == '\u{b5}')?;
        let factor = match &word[end..] {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "\u{b5}s" => 1e-6,
            _ => return None,
        };
        sum = Some(sum.unwrap_or(0.0) + word[..end].parse::<f64>().ok()? * factor);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("0.126584s", 0.126_584),
            ("4 days 3h 0m 37.062500s", 4.0 * 86_400.0 + 3.0 * 3_600.0 + 37.0625),
            ("0 days, 0h 3m 10s", 190.0),
            ("12", 12.0),
            ("1.5ms", 0.0015),
        ] {
            assert!((seconds(text).expect(text) - expected).abs() < 1e-9, "{text}");
        }
        assert_eq!(seconds("soon"), None);
        assert_eq!(seconds(""), None);
    }
}
