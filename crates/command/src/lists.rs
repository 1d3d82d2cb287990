//! The lists of `STATS JSON` as tables: their questions, columns and order; those of several
//! servers as one.

use super::reported_rules::limiting_rules;
use super::shown_key::shown;
use super::table::{Cell, ListOrder, Row, Table, seconds_text};
use serde_json::Value;
use std::fmt::{self, Display, Formatter};

/// A list with a subcommand of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    Keys,
    /// Those that match a pattern.
    MatchingKeys,
    Clients,
    Slow,
}

impl ListKind {
    /// What to ask, after `STATS `; a pattern follows.
    pub(super) fn question(self, rows: u32) -> String {
        match self {
            ListKind::Keys | ListKind::MatchingKeys => format!("JSON KEYS {rows}"),
            ListKind::Clients => format!("JSON CLIENTS {rows}"),
            ListKind::Slow => format!("JSON SLOW {rows}"),
        }
    }

    /// How a server sorts it.
    pub(super) fn order(self) -> ListOrder {
        match self {
            // Most waiters first, then held for longest.
            ListKind::Keys => &[&["for_me", "for_anyone"], &["oldest_hold"]],
            ListKind::MatchingKeys => &[&["oldest_hold"], &["for_me", "for_anyone"]],
            ListKind::Clients => &[&["connections"]],
            ListKind::Slow => &[&["when"]],
        }
    }

    /// The member that has the rows.
    pub(super) fn member(self) -> &'static str {
        match self {
            ListKind::Keys | ListKind::MatchingKeys => "keys",
            ListKind::Clients => "clients",
            ListKind::Slow => "slow",
        }
    }

    /// How many there are in all.
    pub(super) fn total(self, answer: &Value) -> u64 {
        let member = match self {
            ListKind::Keys => "keys_total",
            ListKind::MatchingKeys => "matching",
            ListKind::Clients => "addresses",
            ListKind::Slow => "slow_total",
        };
        answer[member].as_u64().unwrap_or(0)
    }

    /// The list in an answer.
    pub(super) fn read(self, answer: &Value) -> List {
        let rows = rows_of(&answer[self.member()]);
        let (name, table) = match self {
            ListKind::Keys | ListKind::MatchingKeys => ("keys", keys(rows)),
            ListKind::Clients => ("addresses", clients(rows)),
            ListKind::Slow => ("slow", slow(rows)),
        };
        let mut list = List { name, total: self.total(answer), values: Vec::new(), table };
        match self {
            ListKind::Clients => {
                let connections = answer["connections"].as_u64().unwrap_or(0);
                list.values.push(("connections", ListValue::Count(connections)));
            }
            ListKind::Slow => {
                list.values.push(("over", ListValue::Text(Cell::time(&answer["over_s"]).text)));
            }
            ListKind::Keys | ListKind::MatchingKeys => {}
        }
        list.values.extend(seen(answer).map(|text| ("seen", ListValue::Text(text))));
        list
    }
}

fn rows_of(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// In how many turns of its loop the server has seen the rows, if not at one moment.
fn seen(answer: &Value) -> Option<String> {
    let turns = answer["turns"].as_u64().filter(|&turns| turns > 1)?;
    let took = Cell::time(&answer["took_s"]).text;
    Some(format!("in {turns} turns of the loop, over {took}"))
}

/// A list of a server, or of several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct List {
    /// What is counted.
    pub(super) name: &'static str,
    /// How many there are: more than are listed.
    pub(super) total: u64,
    pub(super) values: Vec<(&'static str, ListValue)>,
    pub(super) table: Table,
}

/// A value above a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ListValue {
    /// The counts of several servers are added up.
    Count(u64),
    /// Of several servers the shortest and the longest.
    Seconds(f64, f64),
    Text(String),
}

impl ListValue {
    /// What is said of servers that say this and `other`, if they can be one.
    fn and(self, other: &ListValue) -> Option<ListValue> {
        match (self, other) {
            (ListValue::Count(one), ListValue::Count(other)) => Some(ListValue::Count(one + other)),
            (ListValue::Seconds(least, most), ListValue::Seconds(other_least, other_most)) => {
                Some(ListValue::Seconds(least.min(*other_least), most.max(*other_most)))
            }
            _ => None,
        }
    }
}

impl Display for ListValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ListValue::Count(count) => write!(f, "{count}"),
            ListValue::Seconds(least, most) if least == most => f.write_str(&seconds_text(*least)),
            ListValue::Seconds(least, most) => {
                write!(f, "{} to {}", seconds_text(*least), seconds_text(*most))
            }
            ListValue::Text(text) => f.write_str(text),
        }
    }
}

impl List {
    /// How many rows are listed, and of how many.
    pub(super) fn listed(&self) -> (u64, u64) {
        (self.table.rows.len() as u64, self.total)
    }

    /// A value by its name.
    pub(super) fn value(&self, name: &str) -> Option<&ListValue> {
        let found = self.values.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value)
    }

    /// The lists of several servers as one of `rows_max` rows at most, with a column for the
    /// server. Of the values, counts are added up, and texts are left out. `None` without any.
    pub(super) fn merged(
        lists: &[(&str, &List)],
        order: ListOrder,
        rows_max: usize,
    ) -> Option<List> {
        let tables: Vec<_> = lists.iter().map(|(server, list)| (*server, &list.table)).collect();
        let mut table = Table::merged(&tables, order);
        table.rows.truncate(rows_max);
        let (_, first) = lists.first()?;
        let of_all = |name: &str| {
            let mut values = lists.iter().filter_map(|(_, list)| list.value(name));
            let first = values.next().filter(|value| !matches!(value, ListValue::Text(_)))?.clone();
            values.try_fold(first, ListValue::and)
        };
        let names = first.values.iter().map(|(name, _)| *name);
        Some(List {
            name: first.name,
            total: lists.iter().map(|(_, list)| list.total).sum(),
            values: names.filter_map(|name| Some((name, of_all(name)?))).collect(),
            table,
        })
    }

    /// As lines.
    pub(super) fn text(&self) -> String {
        let (listed, total) = self.listed();
        let first = format!("{}: {listed} of {total}", self.name);
        let values = self.values.iter().map(|(name, value)| format!("{name}: {value}"));
        let head = std::iter::once(first).chain(values);
        head.chain(self.table.lines()).collect::<Vec<_>>().join("\n")
    }
}

/// A row about a key, which is in its last cell.
fn row_of_key(cells: Vec<Cell>, row: &Value, name: &str) -> Row {
    let key = row[name].as_str().unwrap_or_default();
    let cells = cells.into_iter().chain([Cell::text(shown(key))]).collect();
    Row { cells, key: (key != HIDDEN).then(|| key.to_owned()) }
}

/// A key that only operators may see.
const HIDDEN: &str = "hidden";

fn keys(rows: &[Value]) -> Table {
    let columns = ["holders", "for_me", "for_anyone", "oldest_hold", "oldest_wait", "rule", "key"];
    Table::new(&columns, rows.iter().map(key_row))
}

fn key_row(row: &Value) -> Row {
    let counts = ["holders", "for_me", "for_anyone"].map(|name| Cell::count(&row[name]));
    let times = ["oldest_hold_s", "oldest_wait_s"].map(|name| Cell::time(&row[name]));
    let rule = Cell::text(limiting_rules(row));
    row_of_key(counts.into_iter().chain(times).chain([rule]).collect(), row, "key")
}

fn clients(rows: &[Value]) -> Table {
    let columns = ["connections", "holds", "waits", "address"];
    let row = |row: &Value| {
        let counts = ["connections", "holds", "waits"].map(|name| Cell::count(&row[name]));
        let cells = counts.into_iter().chain([Cell::word(&row["address"])]).collect();
        Row { cells, key: None }
    };
    Table::new(&columns, rows.iter().map(row))
}

fn slow(rows: &[Value]) -> Table {
    let columns = ["when", "what", "mode", "ended", "took", "client", "address", "rule", "key"];
    let row = |row: &Value| {
        let words = ["time", "what", "kind", "outcome"].map(|name| Cell::word(&row[name]));
        let rule = protocol::rules_text(row["rule"].as_str(), row["denied_by"].as_str());
        let others = [
            Cell::time(&row["took_s"]),
            Cell::client(&row["client"]),
            Cell::word(&row["address"]),
            Cell::text(rule),
        ];
        row_of_key(words.into_iter().chain(others).collect(), row, "key")
    };
    Table::new(&columns, rows.iter().map(row))
}

/// The value that says how much time the counts of hot keys cover.
pub(super) const COVERED: &str = "covers";

/// The keys that were asked for most in the last minute: `STATS JSON TOP`.
pub(super) fn hot_keys(answer: &Value) -> List {
    let columns = [
        "count",
        "error",
        "requests",
        "acquired",
        "done",
        "refused",
        "timed_out",
        "waited",
        "held",
        "key",
    ];
    let row = |row: &Value| {
        let counts = columns[..7].iter().map(|name| Cell::count(&row[*name]));
        let times = ["waited_s", "held_s"].map(|name| Cell::time(&row[name]));
        row_of_key(counts.chain(times).collect(), row, "name")
    };
    let table = Table::new(&columns, rows_of(&answer["by_requests"]).iter().map(row));
    let total = answer["requests_total"].as_u64().unwrap_or(0);
    let covered = answer["covered_s"].as_f64().map(|s| (COVERED, ListValue::Seconds(s, s)));
    List { name: "keys", total, values: covered.into_iter().collect(), table }
}

/// The groups of `STATS JSON`, each with its keys behind it.
pub(super) fn groups(report: &Value) -> List {
    let columns = [
        "requests",
        "acquired",
        "refused",
        "denied",
        "timed_out",
        "holders",
        "waiters",
        "oldest_hold",
        "stuck",
        "rule",
        "name",
    ];
    let groups = rows_of(&report["groups"]);
    let mut rows = Vec::new();
    for group in groups {
        let count = |name: &str| Cell::count(&group[name]);
        let name = group["group"].as_str().unwrap_or_default();
        let cells = vec![
            count("requests"),
            count("acquired"),
            count("queue_full"),
            count("denied"),
            count("timeouts"),
            count("holders"),
            count("waiters"),
            Cell::time(&group["oldest_hold_s"]),
            count("stuck_keys"),
            Cell::none(),
            Cell::text(name),
        ];
        rows.push(Row { cells, key: None });
        let keys = rows_of(&report["keys"]).iter().filter(|key| key["group"] == name);
        rows.extend(keys.map(|key| row_in_group(name, key)));
    }
    let table = Table::new(&columns, rows);
    List { name: "groups", total: groups.len() as u64, values: Vec::new(), table }
}

fn row_in_group(group: &str, key: &Value) -> Row {
    let waiters = ["for_me", "for_anyone"].map(|name| key[name].as_u64().unwrap_or(0));
    let counts = [
        Cell::count(&key["holders"]),
        Cell::count(&waiters.iter().sum::<u64>().into()),
        Cell::time(&key["oldest_hold_s"]),
        Cell::none(),
        Cell::text(limiting_rules(key)),
    ];
    let nothing = std::iter::repeat_with(Cell::none).take(5);
    let mut row = row_of_key(nothing.chain(counts).collect(), key, "key");
    if let Some(last) = row.cells.last_mut() {
        last.text = format!("{group}  {}", last.text);
    }
    row
}

/// The oldest holds of `STATS JSON`.
pub(super) fn oldest_holds(report: &Value) -> List {
    let columns = ["held", "mode", "waiters", "client", "address", "rule", "key"];
    let row = |hold: &Value| {
        let cells = vec![
            Cell::time(&hold["held_s"]),
            Cell::word(&hold["kind"]),
            Cell::count(&hold["waiters"]),
            Cell::client(&hold["client"]),
            Cell::word(&hold["address"]),
            Cell::text(limiting_rules(hold)),
        ];
        row_of_key(cells, hold, "key")
    };
    let table = Table::new(&columns, rows_of(&report["oldest_holds"]).iter().map(row));
    let total = report["counters"]["hashtable_entries"].as_u64().unwrap_or(0);
    List { name: "keys", total, values: Vec::new(), table }
}

/// What `STATS JSON KEY` says above the locks: names and values.
pub(super) fn values_of_key(answer: &Value) -> Vec<(String, String)> {
    let mut values =
        vec![("key".to_owned(), shown(answer["key"].as_str().unwrap_or_default()).into())];
    for name in ["holders", "for_me", "for_anyone"] {
        values.push((name.to_owned(), Cell::count(&answer[name]).text));
    }
    if !answer["max_hold_s"].is_null() {
        values.push(("max_hold".to_owned(), Cell::time(&answer["max_hold_s"]).text));
    }
    for limit in rows_of(&answer["limits"]) {
        let settings: Vec<&str> =
            rows_of(&limit["settings"]).iter().filter_map(Value::as_str).collect();
        let how = if settings == ["deny"] { "denied" } else { "limited" };
        let rule = limit["rule"].as_str().unwrap_or_default();
        values.push((format!("{how} by rule {rule}"), settings.join(" ")));
    }
    values
}

/// The holders and waiters of `STATS JSON KEY`.
pub(super) fn locks_of_key(answer: &Value) -> Table {
    let columns = ["what", "mode", "since", "for", "left", "client", "address"];
    let row = |lock: &Value| {
        let is_endless_wait = lock["what"] == "waiter" && lock["left_s"].is_null();
        let left =
            if is_endless_wait { Cell::text("unlimited") } else { Cell::time(&lock["left_s"]) };
        let words = ["what", "kind", "since"].map(|name| Cell::word(&lock[name]));
        let others = [
            Cell::time(&lock["for_s"]),
            left,
            Cell::client(&lock["client"]),
            Cell::word(&lock["address"]),
        ];
        Row { cells: words.into_iter().chain(others).collect(), key: None }
    };
    Table::new(&columns, rows_of(&answer["locks"]).iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keys_of(rows: &[(&str, u64)], total: u64) -> List {
        let row = |(key, for_me): &(&str, u64)| json!({ "key": key, "holders": 1, "for_me": for_me, "for_anyone": 0, "oldest_hold_s": 0.5 });
        let rows: Vec<Value> = rows.iter().map(row).collect();
        ListKind::Keys
            .read(&json!({ "keys_total": total, "turns": 1, "took_s": 0.0, "keys": rows }))
    }

    /// Keys of all families, as text and whole.
    #[test]
    fn rows_have_keys_as_the_daemon_writes_them() {
        let long = "x".repeat(300);
        let names = ["7", "-", "-x", "a%20b", "1.5s", "\\xff", "unlimited", "", &long];
        let rows: Vec<(&str, u64)> = names.iter().map(|name| (*name, 0)).collect();
        let list = keys_of(&rows, 9);
        let found: Vec<Option<&str>> =
            list.table.rows.iter().map(|row| row.key.as_deref()).collect();
        assert_eq!(found, names.map(Some));
        let last = list.table.rows[0].cells.last().expect("a cell");
        assert_eq!(last, &Cell::text("7"), "a key is no number");
        assert_eq!(keys_of(&[("hidden", 0)], 1).table.rows[0].key, None);
    }

    #[test]
    fn lists_of_several_servers_are_added_up() {
        let (a, b) = (keys_of(&[("p", 5), ("q", 1)], 9), keys_of(&[("r", 2)], 1));
        let merged =
            List::merged(&[("a", &a), ("b", &b)], ListKind::Keys.order(), 2).expect("a list");
        assert_eq!(merged.listed(), (2, 10));
        assert_eq!(
            merged.text(),
            "keys: 2 of 10\n\
             server holders for_me for_anyone oldest_hold oldest_wait rule key\n\
             \x20    a       1      5          0      0.500s           -    - p\n\
             \x20    b       1      2          0      0.500s           -    - r"
        );
        assert!(List::merged(&[], &[], 9).is_none());
    }

    /// Each server's minute has another age.
    #[test]
    fn hot_keys_say_how_much_time_they_cover() {
        let hot = |covered_s: f64| hot_keys(&json!({ "covered_s": covered_s, "by_requests": [] }));
        let lists = [("a", &hot(10.25)), ("b", &hot(60.0)), ("c", &hot(12.0))];
        let covered = |lists| {
            let merged = List::merged(lists, &[], 9).expect("a list");
            merged.value(COVERED).map(ToString::to_string)
        };
        assert_eq!(covered(&lists[..1]).as_deref(), Some("10.250s"));
        assert_eq!(covered(&lists).as_deref(), Some("10.250s to 60.000s"));
        let older = ("d", &hot_keys(&Value::Null));
        assert_eq!(covered(&[lists[1], older]).as_deref(), Some("60.000s"));
    }

    #[test]
    fn a_list_of_several_moments_says_so() {
        let text = |turns: u64| {
            let answer = json!({ "keys_total": 0, "turns": turns, "took_s": 0.25, "keys": [] });
            ListKind::Keys.read(&answer).text()
        };
        assert!(text(3).contains("\nseen: in 3 turns of the loop, over 0.250s\n"));
        assert!(!text(1).contains("seen"));
    }

    #[test]
    fn an_empty_answer_is_an_empty_list() {
        for kind in [ListKind::Keys, ListKind::Clients, ListKind::Slow] {
            let list = kind.read(&json!({}));
            assert_eq!(list.listed(), (0, 0));
            assert!(!list.text().contains("seen"));
        }
        for list in [groups(&Value::Null), oldest_holds(&json!(7)), hot_keys(&json!([]))] {
            assert_eq!(list.table.rows, []);
        }
        assert_eq!(values_of_key(&Value::Null)[0], ("key".to_owned(), String::new()));
        assert_eq!(locks_of_key(&Value::Null).rows, []);
    }
}
