//! What servers answer, read: names with values, and tables.

use super::table::{ListOrder, Table, json_of, seconds};
use serde_json::{Map, Value};

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

    /// The groups of `STATS JSON`, each with its keys behind it, in a table as other lists are.
    pub(super) fn of_groups(report: &Value) -> ParsedReport {
        let columns = [
            "requests",
            "acquired",
            "refused",
            "timed_out",
            "holders",
            "waiters",
            "oldest_hold",
            "stuck",
            "name",
        ];
        let list = |name: &str| report[name].as_array().into_iter().flatten();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let age = |value: &Value| value.as_f64().map_or("-".to_owned(), |s| format!("{s:.3}s"));
        let mut rows = Vec::new();
        for group in list("groups") {
            let count = |name: &str| number(&group[name]).to_string();
            let refused = number(&group["queue_full"]) + number(&group["denied"]);
            let name = group["group"].as_str().unwrap_or_default();
            rows.push(vec![
                count("requests"),
                count("acquired"),
                refused.to_string(),
                count("timeouts"),
                count("holders"),
                count("waiters"),
                age(&group["oldest_hold_s"]),
                count("stuck_keys"),
                name.to_owned(),
            ]);
            for key in list("keys").filter(|key| key["group"] == name) {
                let none = || "-".to_owned();
                let waiters = number(&key["for_me"]) + number(&key["for_anyone"]);
                let held = age(&key["oldest_hold_s"]);
                let text = format!("{name}  {}", key["key"].as_str().unwrap_or_default());
                let counts = [number(&key["holders"]).to_string(), waiters.to_string()];
                let [holders, waiters] = counts;
                rows.push(vec![
                    none(),
                    none(),
                    none(),
                    none(),
                    holders,
                    waiters,
                    held,
                    none(),
                    text,
                ]);
            }
        }
        let values = vec![("groups".to_owned(), list("groups").count().to_string())];
        let table = Table { columns: columns.map(str::to_owned).to_vec(), rows };
        ParsedReport { values, tables: vec![table] }
    }

    /// The oldest holds of `STATS JSON`, in a table as other lists are.
    pub(super) fn of_oldest_holds(report: &Value) -> ParsedReport {
        let columns = ["held", "mode", "waiters", "client", "address", "key"];
        let row = |hold: &Value| {
            let text = |name: &str| match &hold[name] {
                Value::String(text) => text.clone(),
                Value::Null => "-".to_owned(),
                other => other.to_string(),
            };
            let held = hold["held_s"].as_f64().map_or("-".to_owned(), |s| format!("{s:.3}s"));
            let client = format!("#{}", text("client"));
            vec![held, text("kind"), text("waiters"), client, text("address"), text("key")]
        };
        let rows: Vec<_> =
            report["oldest_holds"].as_array().into_iter().flatten().map(row).collect();
        let keys = &report["counters"]["hashtable_entries"];
        let values = vec![("keys".to_owned(), format!("{} of {keys}", rows.len()))];
        let table = Table { columns: columns.map(str::to_owned).to_vec(), rows };
        ParsedReport { values, tables: vec![table] }
    }

    /// The lists of several servers as one of `rows_max` rows at most, with a column for the
    /// server. Of the values remain counts, which are added.
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
            let told = || reports.iter().filter_map(|(_, report)| report.value(name));
            let sum = match told().map(counts).collect::<Option<Vec<_>>>() {
                Some(counts) => {
                    let listed = counts.iter().map(|(listed, _)| listed).sum::<u64>();
                    let all = counts.iter().map(|(_, all)| all).sum::<u64>();
                    format!("{} of {all}", listed.min(rows_max as u64))
                }
                None => {
                    told().map(|value| value.parse::<u64>().ok()).sum::<Option<u64>>()?.to_string()
                }
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
    /// objects. Of `3 of 12` remains the 12: the rows tell how many are listed.
    pub(super) fn json(&self) -> Value {
        // Any text may be the name of a key, also one that looks like a number.
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
}

/// `name: value`. A name is of words in small letters.
fn named_value(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")))?;
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == ' ');
    (is_name && !name.is_empty()).then_some((name, value))
}

/// The two of `3 of 12`.
fn counts(value: &str) -> Option<(u64, u64)> {
    let (listed, all) = value.split_once(" of ")?;
    Some((listed.parse().ok()?, all.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_without_columns_is_no_trouble() {
        let answer = ParsedReport::read(" \nx y\n\n");
        assert_eq!(answer.json()["rows"], json!([{}, {}]));
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
