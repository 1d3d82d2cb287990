//! Lists for people: the rows of a server, or of several as one; how many there are, and what else
//! there is to say about them.

use super::ask::{Answer, ask};
use super::output::one_line;
use super::table::{ListOrder, Row, Table, duration_text};
use connect::{NoAnswer, StatsConnection};
use schema::reports::{
    ClientsReport, FreedReport, KeyReport, KeysReport, Report, RulesReport, Seen, SlowReport,
    TopReport,
};
use schema::rows::KeyRow;
use schema::table::{Cell, Column};
use serde::de::DeserializeOwned;
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
    /// How a server sorts it.
    pub(super) fn order(self) -> ListOrder {
        match self {
            // Most waiters first, then held for longest.
            ListKind::Keys => &[&[Column::ForMe, Column::ForAnyone], &[Column::OldestHold]],
            ListKind::MatchingKeys => &[&[Column::OldestHold], &[Column::ForMe, Column::ForAnyone]],
            ListKind::Clients => &[&[Column::Connections]],
            ListKind::Slow => &[&[Column::Time]],
        }
    }

    /// Asks for so many rows; of keys, for those that match `pattern`, if there is one.
    pub(super) fn ask(
        self,
        connection: &mut StatsConnection,
        rows: u32,
        pattern: &str,
    ) -> Result<Answer<List>, NoAnswer> {
        match self {
            ListKind::Keys | ListKind::MatchingKeys => {
                ask_list::<KeysReport>(connection, format!("JSON KEYS {rows} {pattern}").trim_end())
            }
            ListKind::Clients => {
                ask_list::<ClientsReport>(connection, &format!("JSON CLIENTS {rows}"))
            }
            ListKind::Slow => ask_list::<SlowReport>(connection, &format!("JSON SLOW {rows}")),
        }
    }
}

/// Asks for a report that is a list.
pub(super) fn ask_list<R: DeserializeOwned + Into<List>>(
    connection: &mut StatsConnection,
    question: &str,
) -> Result<Answer<List>, NoAnswer> {
    let Answer { json, report } = ask::<R>(connection, question)?;
    Ok(Answer { json, report: report.into() })
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
    /// What is to be said about it on standard error.
    pub(super) note: Option<String>,
    /// Zeros say something: that a rule matches no key.
    shows_zeros: bool,
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
            (ListValue::Count(one), ListValue::Count(other)) => {
                Some(ListValue::Count(one.saturating_add(*other)))
            }
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
            ListValue::Seconds(least, most) if least == most => f.write_str(&duration_text(*least)),
            ListValue::Seconds(least, most) => {
                write!(f, "{} to {}", duration_text(*least), duration_text(*most))
            }
            ListValue::Text(text) => f.write_str(text),
        }
    }
}

impl List {
    pub(super) fn new(name: &'static str, total: u64, table: Table) -> List {
        List { name, total, values: Vec::new(), table, note: None, shows_zeros: false }
    }

    /// With the number of turns of its loop in which the server has seen the rows, if that was not
    /// one moment.
    fn seen(mut self, seen: &Seen) -> List {
        if seen.turns > 1 {
            let took = duration_text(seen.took_s);
            let text = format!("in {} turns of the loop, over {took}", seen.turns);
            self.values.push(("seen", ListValue::Text(text)));
        }
        self
    }

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
        let total = lists.iter().fold(0, |sum: u64, (_, list)| sum.saturating_add(list.total));
        let values = names.filter_map(|name| Some((name, of_all(name)?))).collect();
        Some(List { values, ..List::new(first.name, total, table) })
    }

    /// As lines.
    pub(super) fn text(&self) -> String {
        let (listed, total) = self.listed();
        let first = format!("{}: {listed} of {total}", self.name);
        let values = self.values.iter().map(|(name, value)| format!("{name}: {value}"));
        let head = std::iter::once(first).chain(values);
        let table = self.table.without_empty_columns(self.shows_zeros);
        head.chain(table.lines()).collect::<Vec<_>>().join("\n")
    }
}

impl From<KeysReport> for List {
    fn from(report: KeysReport) -> List {
        let total = report.matching.unwrap_or(report.keys_total);
        let left_out = report.left_out.filter(|&left_out| left_out > 0);
        let note =
            left_out.map(|left_out| format!("{left_out} of {total} keys that match are left out"));
        let list = List { note, ..List::new("keys", total, Table::of(&report.keys)) };
        list.seen(&report.seen)
    }
}

impl From<ClientsReport> for List {
    fn from(report: ClientsReport) -> List {
        let mut list = List::new("addresses", report.addresses as u64, Table::of(&report.clients));
        list.values.push(("connections", ListValue::Count(report.connections)));
        list.seen(&report.seen)
    }
}

impl From<SlowReport> for List {
    fn from(report: SlowReport) -> List {
        let mut list = List::new("slow", report.slow_total as u64, Table::of(&report.slow));
        match report.over_s {
            Some(s) => list.values.push(("over", ListValue::Text(duration_text(s)))),
            None => list.note = Some("records nothing: it runs without --slow".to_owned()),
        }
        list
    }
}

/// The value that says how much time the counts of hot keys cover.
pub(super) const COVERED: &str = "covers";

/// What was asked for most in the last minute.
impl From<TopReport> for List {
    fn from(report: TopReport) -> List {
        let table = Table::of(&report.lists.by_requests);
        let mut list = List::new("keys", report.requests_total as u64, table);
        let covered_s = report.lists.covered_s;
        list.values.push((COVERED, ListValue::Seconds(covered_s, covered_s)));
        list
    }
}

impl From<RulesReport> for List {
    fn from(report: RulesReport) -> List {
        let list = List::new("rules", report.rules_total as u64, Table::of(&report.rules));
        List { shows_zeros: true, ..list }.seen(&report.seen)
    }
}

impl From<FreedReport> for List {
    fn from(report: FreedReport) -> List {
        let total = report.holds.saturating_add(report.waits);
        List::new("locks", total as u64, Table::of(&report.locks))
    }
}

/// The oldest holds of `STATS JSON`.
pub(super) fn oldest_holds(report: &Report) -> List {
    let total = report.counters.get("hashtable_entries").copied().unwrap_or(0);
    List::new("keys", total, Table::of(&report.oldest_holds))
}

/// The groups of `STATS JSON`, each with its keys behind it.
pub(super) fn groups(report: &Report) -> List {
    let mut table = Table::of(&report.groups);
    let last = table.columns.len() - 1;
    table.columns.splice(last..last, RULES);
    let groups = std::mem::take(&mut table.rows).into_iter().zip(&report.groups);
    table.rows = groups
        .flat_map(|(mut row, group)| {
            row.cells.splice(last..last, RULES.map(|_| Cell::None.into()));
            let keys = report.keys.iter().filter(|key| key.group == group.group);
            let keys = keys.map(|key| row_in_group(&table.columns, key));
            std::iter::once(row).chain(keys)
        })
        .collect();
    List::new("groups", report.groups.len() as u64, table)
}

/// What a key in a group has besides the columns of the group.
const RULES: [Column; 2] = [Column::LimitedBy, Column::DeniedBy];

fn row_in_group(columns: &[Column], key: &KeyRow) -> Row {
    let cell = |column: &Column| match column {
        Column::Holders => Cell::Count(key.holders as u64),
        Column::Waiters => Cell::Count(key.for_me.saturating_add(key.for_anyone) as u64),
        Column::OldestHold => Cell::Seconds(key.oldest_hold_s),
        Column::Group => Cell::text(format!("{}  {}", key.group, key.key)),
        Column::LimitedBy => Cell::text(key.limited_by.join(",")),
        Column::DeniedBy => Cell::option(key.denied_by.as_deref().map(Cell::text)),
        // What is counted for groups only.
        _ => Cell::None,
    };
    Row::about(columns.iter().map(|column| cell(column).into()).collect(), Some(&key.key))
}

/// What `STATS JSON KEY` says above the locks: names and values, each in a line.
pub(super) fn lines_of_key(report: &KeyReport) -> Vec<String> {
    let KeyReport { key, holders, for_me, for_anyone, .. } = report;
    let mut lines = vec![
        format!("key: {key}"),
        format!("holders: {holders}"),
        format!("for_me: {for_me}"),
        format!("for_anyone: {for_anyone}"),
    ];
    if let Some(max_hold_s) = report.max_hold_s {
        lines.push(format!("max_hold: {}", duration_text(max_hold_s.into())));
    }
    lines.extend(report.limits.iter().map(ToString::to_string));
    lines.iter().map(|line| one_line(line)).collect()
}

/// The holders and waiters of `STATS JSON KEY`.
pub(super) fn locks_of_key(report: &KeyReport) -> List {
    let waiters = report.for_me.saturating_add(report.for_anyone);
    let total = report.holders.saturating_add(waiters);
    List::new("locks", total as u64, Table::of(&report.locks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::reports::Top;
    use schema::rows::GroupRow;

    fn keys_of(rows: &[(&str, usize)], total: u64) -> List {
        let row = |&(key, for_me): &(&str, usize)| KeyRow {
            key: key.to_owned(),
            holders: 1,
            for_me,
            oldest_hold_s: 0.5,
            ..KeyRow::default()
        };
        let keys = rows.iter().map(row).collect();
        KeysReport { keys_total: total, keys, ..KeysReport::default() }.into()
    }

    /// Keys of all families, as text and whole.
    #[test]
    fn rows_have_keys_as_the_daemon_writes_them() {
        let long = "x".repeat(300);
        let names = ["7", "-", "-x", "a%20b", "1.5s", "\\xff", "unlimited", "", &long];
        let rows: Vec<(&str, usize)> = names.iter().map(|name| (*name, 0)).collect();
        let list = keys_of(&rows, 9);
        let found: Vec<Option<&str>> =
            list.table.rows.iter().map(|row| row.key.as_deref()).collect();
        assert_eq!(found, names.map(Some));
        let last = list.table.rows[0].cells.last().expect("a cell");
        assert_eq!(last, &Cell::text("7").into(), "a key is no number");
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
             server holders for_me oldest_hold key\n\
             a            1      5      0.500s p\n\
             b            1      2      0.500s r"
        );
        assert!(List::merged(&[], &[], 9).is_none());
        assert_eq!(keys_of(&[], 0).text(), "keys: 0 of 0");
    }

    /// Each server's minute has another age.
    #[test]
    fn hot_keys_say_how_much_time_they_cover() {
        let hot = |covered_s: f64| {
            let lists = Top { covered_s, ..Top::default() };
            List::from(TopReport { lists, ..TopReport::default() })
        };
        let lists = [("a", &hot(10.25)), ("b", &hot(60.0)), ("c", &hot(12.0))];
        let covered = |lists| {
            let merged = List::merged(lists, &[], 9).expect("a list");
            merged.value(COVERED).map(ToString::to_string)
        };
        assert_eq!(covered(&lists[..1]).as_deref(), Some("10.250s"));
        assert_eq!(covered(&lists).as_deref(), Some("10.250s to 1m 0s"));
    }

    #[test]
    fn a_list_of_several_moments_says_so() {
        let text = |turns: u32| {
            let seen = Seen { turns, took_s: 0.25 };
            List::from(KeysReport { seen, ..KeysReport::default() }).text()
        };
        assert!(text(3).ends_with("\nseen: in 3 turns of the loop, over 0.250s"));
        assert!(!text(1).contains("seen"));
    }

    /// What is counted for a group only has no zeros at its keys.
    #[test]
    fn keys_stand_behind_their_group() {
        let group = |name: &str, requests| GroupRow {
            group: name.to_owned(),
            requests,
            ..GroupRow::default()
        };
        let key = |key: &str, group: &str| KeyRow {
            key: key.to_owned(),
            group: group.to_owned(),
            holders: 1,
            for_me: 2,
            for_anyone: 3,
            oldest_hold_s: 61.0,
            ..KeyRow::default()
        };
        let report = Report {
            groups: vec![group("other", 7), group("bots", 0)],
            keys: vec![key("b", "bots"), key("a", "other")],
            ..Report::default()
        };
        let list = groups(&report);
        let keys: Vec<_> = list.table.rows.iter().map(|row| row.key.as_deref()).collect();
        assert_eq!(keys, [None, Some("a"), None, Some("b")]);
        assert_eq!(
            list.table.rows[1].texts(),
            ["-", "-", "-", "-", "-", "1", "5", "1m 1s", "-", "-", "-", "other  a"]
        );
    }
}
