//! Parses the text of an answer into values and tables; merges the lists of several servers;
//! converts all of it to JSON.

use super::table::{ListOrder, Table, json_of, seconds};
use serde_json::{Map, Value, json};

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

/// An answer: lines with a name and a value, and tables between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ParsedReport {
    pub(super) values: Vec<(String, String)>,
    pub(super) tables: Vec<Table>,
}

impl ParsedReport {
    /// Reads the answer to any question but JSON. A table begins with a line of names,
    /// and ends at a line with a name and a value.
    pub(super) fn read(text: &str) -> ParsedReport {
        let mut answer = ParsedReport::default();
        let mut is_in_table = false;
        for line in text.lines() {
            if let Some((name, value)) = named_value(line) {
                answer.values.push((name.to_owned(), value.to_owned()));
                is_in_table = false;
            } else if is_in_table {
                answer.tables.last_mut().expect("in a table").push(line);
            } else {
                let columns = line.split_whitespace().map(str::to_owned).collect();
                answer.tables.push(Table { columns, rows: Vec::new() });
                is_in_table = true;
            }
        }
        answer
    }

    /// The lists of several servers as one of `rows_max` rows at most, with a column for the
    /// server. Of the values, only counts remain, added up.
    pub(super) fn merged(
        reports: &[(&str, &ParsedReport)],
        order: ListOrder,
        rows_max: usize,
    ) -> ParsedReport {
        let tables =
            reports.iter().filter_map(|(name, report)| Some((*name, report.tables.first()?)));
        let mut table = Table::merged(&tables.collect::<Vec<_>>(), order);
        table.rows.truncate(rows_max);
        let names = reports.first().into_iter().flat_map(|(_, report)| &report.values);
        let values = names.filter_map(|(name, _)| {
            let answers = || reports.iter().filter_map(|(_, report)| report.value(name));
            let sum = match answers().map(counts).collect::<Option<Vec<_>>>() {
                Some(counts) => {
                    let listed = counts.iter().map(|(listed, _)| listed).sum::<u64>();
                    let all = counts.iter().map(|(_, all)| all).sum::<u64>();
                    format!("{} of {all}", listed.min(rows_max as u64))
                }
                None => answers()
                    .map(|value| value.parse::<u64>().ok())
                    .sum::<Option<u64>>()?
                    .to_string(),
            };
            Some((name.clone(), sum))
        });
        ParsedReport { values: values.collect(), tables: vec![table] }
    }

    /// As lines: what [`ParsedReport::read`] reads.
    pub(super) fn text(&self) -> String {
        let values = self.values.iter().map(|(name, value)| format!("{name}: {value}"));
        let tables = self.tables.iter().flat_map(Table::lines);
        values.chain(tables).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A whole number, or a time in seconds.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        seconds(self.value(name)?)
    }

    /// How many rows are listed, and of how many.
    pub(super) fn listed(&self) -> Option<(u64, u64)> {
        self.values.iter().find_map(|(_, value)| counts(value))
    }

    /// As an object: the values by their names, and the rows of each table as a list of
    /// objects. Of `3 of 12`, only the 12 remains: the rows show how many are listed.
    pub(super) fn json(&self) -> Value {
        // Any text may be the name of a key, even one that looks like a number.
        let json_of = |name: &str, value: &str| match counts(value) {
            _ if name == "key" => value.into(),
            Some((_, all)) => all.into(),
            None => json_of(value),
        };
        let values = self.values.iter().map(|(name, value)| (name.clone(), json_of(name, value)));
        let mut object: Map<String, Value> = values.collect();
        for (number, table) in self.tables.iter().enumerate() {
            let name = if number == 0 { "rows".to_owned() } else { format!("rows_{}", number + 1) };
            object.insert(name, table.rows.iter().map(|row| table.json_row(row)).collect());
        }
        Value::Object(object)
    }

    /// `STATS FULL` under the names of `STATS JSON`.
    pub(super) fn full_as_json(&self) -> Value {
        let times = TIMES.iter().filter_map(|(name, short)| Some((*short, self.number(name)?)));
        let times: Map<String, Value> =
            times.map(|(name, s)| (name.to_owned(), s.into())).collect();
        let counters = self.values.iter().filter(|(name, _)| !name.contains(' '));
        let counters =
            counters.filter_map(|(name, value)| Some((name.clone(), value.parse::<u64>().ok()?)));
        let counters: Map<String, Value> = counters.map(|(name, n)| (name, n.into())).collect();
        json!({ "uptime_s": self.number("uptime"), "counters": counters, "times_s": times })
    }
}

/// `name: value`. A name consists of lowercase words, the last of which may be a rule's name.
fn named_value(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")))?;
    let has_rule = name.starts_with("limited by rule ") || name.starts_with("denied by rule ");
    let is_word = |c: char| c.is_ascii_lowercase() || c == '_' || c == ' ';
    let is_name = has_rule || name.chars().all(is_word);
    (is_name && !name.is_empty()).then_some((name, value))
}

/// Both numbers of `3 of 12`.
fn counts(value: &str) -> Option<(u64, u64)> {
    let (listed, all) = value.split_once(" of ")?;
    Some((listed.parse().ok()?, all.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_columns_is_no_trouble() {
        let answer = ParsedReport::read(" \nx y\n\n");
        assert_eq!(answer.json()["rows"], json!([{}, {}]));
    }

    #[test]
    fn rules_that_limit_a_key_are_values_whatever_their_names() {
        let text = "key: k\nlimited by rule no-1: workers=1\n\
            limited by rule --max-hold: max-hold=60\ndenied by rule no-2: deny\n\
            what client address\nholder #7 unix\n";
        let json = ParsedReport::read(text).json();
        assert_eq!(json["limited by rule no-1"], "workers=1");
        assert_eq!(json["limited by rule --max-hold"], "max-hold=60");
        assert_eq!(json["denied by rule no-2"], "deny");
        assert_eq!(json["rows"][0]["client"], "#7");
    }

    #[test]
    fn how_many_more_there_are_is_no_row() {
        let text = "holders: 12\nwhat mode since for left client address\n\
            holder me 2026-11-21T18:03:07.250Z 1.019s - #150 10.0.0.9:1\nholder and 11 more\n\
            waiter me 2026-11-21T18:03:07.250Z 1.019s 2.000s #7 and 3 more\n";
        let json = ParsedReport::read(text).json();
        let clients: Vec<&Value> =
            json["rows"].as_array().expect("rows").iter().map(|row| &row["client"]).collect();
        assert_eq!(clients, ["#150", "#7"]);
    }
}
