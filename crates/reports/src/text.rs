//! Lists as text, for `nc`: some lines with a name and a value, then a table: a line with the names
//! of columns, then the rows. Spaces separate columns; the one of unbounded length is the last.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{Display, Write as _};
use schema::reports::{ListReport, Seen};
use schema::rows::{CellOf, Row};
use schema::table::{Cell, Width, aligned};

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

impl Text {
    fn value(&mut self, name: &str, value: impl Display) {
        line!(self.0, "{name}: {value}");
    }

    fn seconds(&mut self, name: &str, seconds: Option<f64>) {
        self.value(name, Cell::option(seconds.map(Cell::Seconds)));
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

    /// Numbers to the right, words to the left.
    fn table<R: Row>(&mut self, rows: &[R]) {
        let column = |&(column, cell_of): &CellOf<R>| {
            let cells: Vec<Cell<'_>> = rows.iter().map(cell_of).collect();
            let is_number = !cells.iter().any(|cell| matches!(cell, Cell::Text(_)));
            let name = core::iter::once(column.name().to_owned());
            let texts: Vec<String> = name.chain(cells.iter().map(Cell::to_string)).collect();
            let lens = texts.iter().map(String::len).filter(|&len| len <= WIDTH_MAX);
            let width = Width { columns: lens.max().unwrap_or(0), is_number };
            (texts, width)
        };
        let columns: Vec<(Vec<String>, Width)> = R::COLUMNS.iter().map(column).collect();
        for line in 0..=rows.len() {
            let cells = columns.iter().map(|(texts, width)| (texts[line].as_str(), *width));
            line!(self.0, "{}", aligned(cells, |text| text.chars().count()));
        }
    }
}
