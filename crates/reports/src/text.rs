//! Lists as text, for `nc`: some lines with a name and a value, then a table: a line with the names
//! of columns, then the rows. Spaces separate columns; the one of unbounded length is the last.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{Display, Write as _};
use schema::reports::{ListReport, Seen};
use schema::rows::{Row, cell_text};
use serde_json::{Value, json};

/// Longer cells are not aligned, so that a table takes no more room than its rows in JSON, which
/// are bounded.
const WIDTH_MAX: usize = 24;

/// A list as text. The caller ends it with a blank line.
pub fn text(report: &ListReport) -> String {
    let mut text = Text(String::new());
    match report {
        ListReport::Keys(report) => {
            text.count("keys", report.keys.len(), report.keys_total as usize);
            text.seen(&report.seen);
            text.table(&report.keys);
        }
        ListReport::Key(report) => {
            text.value("key", &report.key);
            text.value("group", &report.group);
            text.value("holders", report.holders);
            text.value("for_me", report.for_me);
            text.value("for_anyone", report.for_anyone);
            if let Some(max_hold_s) = report.max_hold_s {
                text.value("max_hold_s", max_hold_s);
            }
            for limit in &report.limits {
                line!(text.0, "{limit}");
            }
            let all = report.holders + report.for_me + report.for_anyone;
            text.count("locks", report.locks.len(), all);
            text.table(&report.locks);
        }
        ListReport::Clients(report) => {
            text.count("addresses", report.clients.len(), report.addresses);
            text.value("connections", report.connections);
            text.seen(&report.seen);
            text.table(&report.clients);
        }
        ListReport::Top(report) => {
            text.value("top", format!("{} of the last {}", report.top, report.span));
            text.value("from", &report.lists.from);
            text.value("to", &report.lists.to);
            text.seconds("covered_s", Some(report.lists.covered_s));
            text.value("sampled_one_in", report.lists.sampled_one_in);
            text.count("by_requests", report.lists.by_requests.len(), report.requests_total);
            text.table(&report.lists.by_requests);
            text.count("by_time", report.lists.by_time.len(), report.time_total);
            text.table(&report.lists.by_time);
        }
        ListReport::Slow(report) => {
            text.count("slow", report.slow.len(), report.slow_total);
            text.seconds("over_s", report.over_s);
            text.table(&report.slow);
        }
        ListReport::Rules(report) => {
            text.count("rules", report.rules.len(), report.rules_total);
            text.value("rules_max", report.rules_max);
            text.seen(&report.seen);
            text.table(&report.rules);
        }
        ListReport::Freed(report) => {
            text.count("locks", report.locks.len(), report.holds + report.waits);
            text.table(&report.locks);
        }
    }
    text.0
}

struct Text(String);

struct Column {
    width: usize,
    is_number: bool,
}

impl Text {
    fn value(&mut self, name: &str, value: impl Display) {
        line!(self.0, "{name}: {value}");
    }

    fn seconds(&mut self, name: &str, seconds: Option<f64>) {
        self.value(name, cell_text(name, &json!(seconds)));
    }

    /// How many rows there are, and of how many they are the first.
    fn count(&mut self, name: &str, listed: usize, all: usize) {
        self.value(name, format!("{listed} of {all}"));
    }

    /// If not all rows were seen at one moment.
    fn seen(&mut self, seen: &Seen) {
        if seen.turns > 1 {
            self.value("turns", seen.turns);
            self.seconds("took_s", Some(seen.took_s));
        }
    }

    fn table<R: Row>(&mut self, rows: &[R]) {
        let rows: Vec<Vec<Value>> = rows.iter().map(Row::values).collect();
        let column = |(number, name): (usize, &&str)| {
            let cells = rows.iter().map(|row| cell_text(name, &row[number]).len());
            let width = cells.filter(|&len| len <= WIDTH_MAX).fold(name.len(), usize::max);
            let has_words = |row: &Vec<Value>| row[number].is_string() || row[number].is_array();
            Column { width, is_number: !rows.iter().any(has_words) }
        };
        let columns: Vec<Column> = R::COLUMNS.iter().enumerate().map(column).collect();
        let names: Vec<String> = R::COLUMNS.iter().map(|name| (*name).to_owned()).collect();
        self.row(&names, &columns);
        for row in rows {
            let cells = R::COLUMNS.iter().zip(&row).map(|(name, value)| cell_text(name, value));
            self.row(&cells.collect::<Vec<_>>(), &columns);
        }
    }

    /// Numbers to the right, words to the left.
    fn row(&mut self, cells: &[String], columns: &[Column]) {
        let Some((last, others)) = cells.split_last() else { return };
        let mut row = String::new();
        for (cell, Column { width, is_number }) in others.iter().zip(columns) {
            row += &if *is_number { format!("{cell:>width$} ") } else { format!("{cell:width$} ") };
        }
        // The last one may be empty.
        line!(self.0, "{}", (row + last).trim_end());
    }
}
