//! Tables: rows of cells under the names of their columns; merges the rows of several servers,
//! sorts, aligns.

use super::output::one_line;
use super::shown_key::width;
use serde_json::Value;
use std::cmp::Ordering;

/// A cell: what is shown, and the number by which it is sorted, if it is one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) number: Option<f64>,
}

impl Cell {
    pub(super) fn text(text: impl AsRef<str>) -> Cell {
        Cell { text: one_line(text.as_ref()), number: None }
    }

    /// A dash: there is no value.
    pub(super) fn none() -> Cell {
        Cell::text("-")
    }

    /// A whole number of JSON.
    pub(super) fn count(value: &Value) -> Cell {
        match value.as_f64() {
            Some(number) => Cell { text: format!("{number:.0}"), number: Some(number) },
            None => Cell::none(),
        }
    }

    /// Seconds of JSON, as the daemon writes them.
    pub(super) fn time(value: &Value) -> Cell {
        match value.as_f64() {
            Some(s) => Cell { text: seconds_text(s), number: Some(s) },
            None => Cell::none(),
        }
    }

    /// A word of JSON.
    pub(super) fn word(value: &Value) -> Cell {
        value.as_str().map_or_else(Cell::none, Cell::text)
    }

    /// The number of a connection.
    pub(super) fn client(value: &Value) -> Cell {
        let Cell { text, number } = Cell::count(value);
        Cell { text: format!("#{text}"), number }
    }
}

/// Milliseconds are cut off, not rounded.
pub(super) fn seconds_text(s: f64) -> String {
    // Nanoseconds as a float may be a little less.
    let ms = (s * 1e9).round() as u64 / 1_000_000;
    format!("{}.{:03}s", ms / 1_000, ms % 1_000)
}

/// An uptime of JSON, as `STATS FULL` has it.
pub(super) fn uptime_text(value: &Value) -> String {
    let Some(s) = value.as_f64().map(|s| s as u64) else { return "-".to_owned() };
    let (days, hours, minutes) = (s / 86_400, s / 3_600 % 24, s / 60 % 60);
    format!("{days} days, {hours}h {minutes}m {}s", s % 60)
}

/// A row, and the key that it is about, as the daemon writes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    pub(super) key: Option<String>,
}

/// Rows under the names of their columns. The last column has names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// By which columns a list is sorted, the first one first, with the largest on top. Columns
/// that stand together count as their sum.
pub(super) type ListOrder = &'static [&'static [&'static str]];

/// Cells that are longer than this are not aligned: no server's numbers are.
const COLUMN_WIDTH_MAX: usize = 40;

impl Table {
    pub(super) fn new(columns: &[&str], rows: impl IntoIterator<Item = Row>) -> Table {
        let columns = columns.iter().copied().map(str::to_owned).collect();
        Table { columns, rows: rows.into_iter().collect() }
    }

    /// The rows of all servers' tables in this order, each behind the name of its server.
    pub(super) fn merged(tables: &[(&str, &Table)], order: ListOrder) -> Table {
        let mut merged = Table::default();
        merged.columns.push("server".to_owned());
        merged.columns.extend(tables.iter().take(1).flat_map(|(_, table)| table.columns.clone()));
        for (server, table) in tables {
            merged.rows.extend(table.rows.iter().map(|row| {
                let server = std::iter::once(Cell::text(*server));
                Row { cells: server.chain(row.cells.clone()).collect(), key: row.key.clone() }
            }));
        }
        merged.sort(order);
        merged
    }

    /// The cell of a row under the name of its column.
    pub(super) fn cell<'a>(&self, row: &'a Row, column: &str) -> Option<&'a Cell> {
        let number = self.columns.iter().position(|name| name == column)?;
        row.cells.get(number)
    }

    /// Rows that are equal in this order stay as they are.
    pub(super) fn sort(&mut self, order: ListOrder) {
        let mut rows = std::mem::take(&mut self.rows);
        for columns in order.iter().rev() {
            rows.sort_by(|a, b| {
                let ((a, a_text), (b, b_text)) = (self.rank(a, columns), self.rank(b, columns));
                b.total_cmp(&a).then(b_text.cmp(a_text))
            });
        }
        self.rows = rows;
    }

    /// Sorts by one column: large numbers and long times first, then names.
    pub(super) fn sort_by_column(&mut self, column: usize) {
        self.rows.sort_by(|a, b| compare(&a.cells[column], &b.cells[column]));
    }

    /// The sum of these columns, or the text of the first, which is behind all numbers.
    fn rank<'a>(&self, row: &'a Row, columns: &[&str]) -> (f64, &'a str) {
        let cells = || columns.iter().filter_map(|column| self.cell(row, column));
        match cells().map(|cell| cell.number).sum() {
            Some(sum) => (sum, ""),
            None => (f64::NEG_INFINITY, cells().next().map_or("", |cell| &cell.text)),
        }
    }

    /// How wide each column is.
    pub(super) fn widths(&self) -> Vec<usize> {
        let width = |(column, name): (usize, &String)| {
            let cells = self.rows.iter().map(|row| width(&row.cells[column].text));
            cells.max().unwrap_or(0).max(width(name)).min(COLUMN_WIDTH_MAX)
        };
        self.columns.iter().enumerate().map(width).collect()
    }

    /// The names of the columns and the rows, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let names = self.header(&widths);
        std::iter::once(names).chain(self.rows.iter().map(|row| row.line(&widths))).collect()
    }

    /// The names of the columns.
    pub(super) fn header(&self, widths: &[usize]) -> String {
        aligned(&self.columns, &all_of(widths), widths)
    }
}

impl Row {
    pub(super) fn line(&self, widths: &[usize]) -> String {
        aligned(&self.texts(), &all_of(widths), widths)
    }

    pub(super) fn texts(&self) -> Vec<&str> {
        self.cells.iter().map(|cell| cell.text.as_str()).collect()
    }
}

fn all_of(widths: &[usize]) -> Vec<usize> {
    (0..widths.len()).collect()
}

/// The columns that are shown: numbers to the right, the name in the last one to the left.
pub(super) fn aligned(cells: &[impl AsRef<str>], shown: &[usize], widths: &[usize]) -> String {
    let last = widths.len().saturating_sub(1);
    let cell = |&number: &usize| {
        let text = cells[number].as_ref();
        let room = if number == last { 0 } else { widths[number].saturating_sub(width(text)) };
        format!("{}{text}", " ".repeat(room))
    };
    shown.iter().map(cell).collect::<Vec<_>>().join(" ")
}

/// Large numbers and long times first, then names by the alphabet.
fn compare(a: &Cell, b: &Cell) -> Ordering {
    match (a.number, b.number) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.text.cmp(&b.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_cut_off_to_milliseconds() {
        for (s, text) in [
            (0.0, "0.000s"),
            (0.232, "0.232s"),
            (62.500_999_999, "62.500s"),
            (0.000_999, "0.000s"),
            (1e6, "1000000.000s"),
        ] {
            assert_eq!(Cell::time(&json!(s)).text, text);
        }
        assert_eq!(Cell::time(&Value::Null), Cell::none());
    }

    #[test]
    fn merged_rows_have_the_order_of_one_server() {
        let row = |for_me: u64, for_anyone: u64, held: Option<f64>, key: &str| Row {
            cells: vec![
                Cell::count(&json!(for_me)),
                Cell::count(&json!(for_anyone)),
                Cell::time(&json!(held)),
                Cell::text(key),
            ],
            key: None,
        };
        let columns = ["for_me", "for_anyone", "oldest_hold", "key"];
        let a = Table::new(&columns, [row(4, 5, Some(9.0), "p"), row(2, 0, Some(12.5), "q")]);
        let b = [row(10, 0, Some(0.1), "r"), row(0, 2, Some(1.5), "s t"), row(0, 2, None, "u")];
        let b = Table::new(&columns, b);
        const ORDER: ListOrder = &[&["for_me", "for_anyone"], &["oldest_hold"]];
        assert_eq!(
            Table::merged(&[("a", &a), ("b", &b)], ORDER).lines().join("\n"),
            "server for_me for_anyone oldest_hold key\n\
             \x20    b     10          0      0.100s r\n\
             \x20    a      4          5      9.000s p\n\
             \x20    a      2          0     12.500s q\n\
             \x20    b      0          2      1.500s s t\n\
             \x20    b      0          2           - u"
        );
        let slow = |when: &str| Row { cells: vec![Cell::text(when)], key: None };
        let [early, late] = ["2026-11-21T18:03:07.250Z", "2026-11-21T18:03:07.900Z"].map(slow);
        let tables = [early, late].map(|row| Table::new(&["when"], [row]));
        let merged = Table::merged(&[("a", &tables[0]), ("b", &tables[1])], &[&["when"]]);
        assert_eq!(merged.rows[0].texts()[0], "b", "the newest first");
        let merged = Table::merged(&[("b", &tables[1]), ("a", &tables[0])], &[]);
        assert_eq!(merged.rows[0].texts()[0], "b", "as they are");
        assert!(Table::merged(&[], &[]).lines() == ["server"]);
    }
}
