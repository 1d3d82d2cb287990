//! Tables: rows of cells under the names of their columns; merges the rows of several servers,
//! sorts, aligns.

use super::output::one_line;
use super::shown_key::width;
use protocol::time_text;
use schema::rows;
use schema::table::{self, Column, Width, milliseconds};
use schema::words::HIDDEN;
use std::cmp::Ordering;
use std::time::Duration;

/// A cell: what is shown, and the number by which it is sorted, if it is one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) number: Option<f64>,
}

/// A cell of a report, for people.
impl From<table::Cell<'_>> for Cell {
    fn from(cell: table::Cell<'_>) -> Cell {
        let text = match cell {
            table::Cell::Seconds(s) => duration_text(s),
            // As in a rule.
            table::Cell::Term(s) => time_text(Duration::from_secs(s.ceil() as u64)),
            _ => one_line(&cell.to_string()),
        };
        Cell { text, number: cell.number() }
    }
}

/// A time for people: the two largest units, or seconds to three decimals.
pub(super) fn duration_text(s: f64) -> String {
    let whole = s as u64;
    match whole {
        0..60 => format!("{:.3}s", milliseconds(s)),
        60..3_600 => format!("{}m {}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h {}m", whole / 3_600, whole / 60 % 60),
        _ => format!("{}d {}h", whole / 86_400, whole / 3_600 % 24),
    }
}

/// A row, and the key that it is about, as the report has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    pub(super) key: Option<String>,
}

/// Rows under the names of their columns. The last column has names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
}

/// By which columns a list is sorted, the first one first, with the largest on top. Columns
/// that stand together count as their sum.
pub(super) type ListOrder = &'static [&'static [Column]];

/// Cells that are longer than this are not aligned: no server's numbers are.
const COLUMN_WIDTH_MAX: usize = 40;

impl Table {
    /// The rows of a report.
    pub(super) fn of<R: rows::Row>(rows: &[R]) -> Table {
        let columns = R::COLUMNS.iter().map(|(column, _)| *column);
        let row = |row: &R| {
            let cells = R::COLUMNS.iter().map(|(_, cell)| cell(row).into());
            Row::about(cells.collect(), row.key())
        };
        Table { columns: columns.collect(), rows: rows.iter().map(row).collect() }
    }

    /// Without the columns that have nothing but dashes, or zeros, which nobody reads, and without
    /// any if there are no rows.
    pub(super) fn without_empty_columns(&self, shows_zeros: bool) -> Table {
        let last = self.columns.len().saturating_sub(1);
        let is_shown = |column: usize| {
            let mut cells = self.rows.iter().map(|row| &row.cells[column]);
            let is_empty =
                |cell: &Cell| cell.text == "-" || !shows_zeros && cell.number == Some(0.0);
            cells.any(|cell| column == last || !is_empty(cell))
        };
        let shown: Vec<usize> =
            (0..self.columns.len()).filter(|&column| is_shown(column)).collect();
        let columns = shown.iter().map(|&column| self.columns[column]).collect();
        let row = |row: &Row| {
            let cells = shown.iter().map(|&column| row.cells[column].clone());
            Row { cells: cells.collect(), key: row.key.clone() }
        };
        Table { columns, rows: self.rows.iter().map(row).collect() }
    }

    /// The rows of all servers' tables in this order, each behind the name of its server.
    pub(super) fn merged(tables: &[(&str, &Table)], order: ListOrder) -> Table {
        let mut merged = Table { columns: vec![Column::Server], rows: Vec::new() };
        merged.columns.extend(tables.iter().take(1).flat_map(|(_, table)| table.columns.clone()));
        for (server, table) in tables {
            merged.rows.extend(table.rows.iter().map(|row| {
                let server = std::iter::once(table::Cell::text(*server).into());
                Row { cells: server.chain(row.cells.clone()).collect(), key: row.key.clone() }
            }));
        }
        merged.sort(order);
        merged
    }

    /// The cell of a row under the name of its column.
    pub(super) fn cell<'a>(&self, row: &'a Row, column: Column) -> Option<&'a Cell> {
        let number = self.columns.iter().position(|other| *other == column)?;
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
    fn rank<'a>(&self, row: &'a Row, columns: &[Column]) -> (f64, &'a str) {
        let cells = || columns.iter().filter_map(|column| self.cell(row, *column));
        match cells().map(|cell| cell.number).sum() {
            Some(sum) => (sum, ""),
            None => (f64::NEG_INFINITY, cells().next().map_or("", |cell| &cell.text)),
        }
    }

    /// The names of the columns. Cells have the unit of a time, where the member has it in its name.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let names = self.columns.iter().map(|column| column.name());
        names.map(|name| name.strip_suffix("_s").unwrap_or(name)).collect()
    }

    /// The names of the columns and the rows, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        if self.columns.is_empty() {
            return Vec::new();
        }
        let names = self.names();
        let widths = widths(&names, &self.rows);
        let header = line(&names, &widths);
        std::iter::once(header)
            .chain(self.rows.iter().map(|row| line(&row.texts(), &widths)))
            .collect()
    }
}

/// How the columns of these names are aligned.
pub(super) fn widths(names: &[impl AsRef<str>], rows: &[Row]) -> Vec<Width> {
    let width = |(column, name): (usize, &_)| {
        let cells = || rows.iter().map(|row| &row.cells[column]);
        let widest = cells().map(|cell| width(&cell.text)).max().unwrap_or(0);
        Width {
            columns: widest.max(width(AsRef::as_ref(name))).min(COLUMN_WIDTH_MAX),
            is_number: !cells().any(|cell| cell.number.is_none() && cell.text != "-"),
        }
    };
    names.iter().enumerate().map(width).collect()
}

impl Row {
    /// A row about a key, if it is about one.
    pub(super) fn about(cells: Vec<Cell>, key: Option<&str>) -> Row {
        Row { cells, key: key.filter(|key| *key != HIDDEN).map(str::to_owned) }
    }

    pub(super) fn texts(&self) -> Vec<&str> {
        self.cells.iter().map(|cell| cell.text.as_str()).collect()
    }
}

/// Cells in a line.
pub(super) fn line(cells: &[impl AsRef<str>], widths: &[Width]) -> String {
    table::aligned(cells.iter().map(AsRef::as_ref).zip(widths.iter().copied()), width)
}

/// The cells that are shown, in a line.
pub(super) fn aligned(cells: &[impl AsRef<str>], shown: &[usize], widths: &[Width]) -> String {
    table::aligned(shown.iter().map(|&n| (cells[n].as_ref(), widths[n])), width)
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
    use schema::rows::{KeyRow, SlowRow};

    #[test]
    fn times_have_two_units() {
        for (s, text) in [
            (0.0, "0.000s"),
            (0.232, "0.232s"),
            (59.999_9, "59.999s"),
            (60.0, "1m 0s"),
            (181.4, "3m 1s"),
            (3_600.0, "1h 0m"),
            (86_399.0, "23h 59m"),
            (90_000.0, "1d 1h"),
            (1e6, "11d 13h"),
        ] {
            assert_eq!(duration_text(s), text);
        }
    }

    #[test]
    fn merged_rows_have_the_order_of_one_server() {
        let row = |for_me, for_anyone, oldest_hold_s: f64, key: &str| KeyRow {
            key: key.to_owned(),
            holders: 1,
            for_me,
            for_anyone,
            oldest_hold_s,
            ..KeyRow::default()
        };
        let a = Table::of(&[row(4, 5, 9.0, "p"), row(2, 0, 181.0, "q")]);
        let b = Table::of(&[row(10, 0, 0.1, "r"), row(0, 2, 1.5, "s t"), row(0, 2, 0.0, "u")]);
        const ORDER: ListOrder = &[&[Column::ForMe, Column::ForAnyone], &[Column::OldestHold]];
        assert_eq!(
            Table::merged(&[("a", &a), ("b", &b)], ORDER)
                .without_empty_columns(false)
                .lines()
                .join("\n"),
            "server holders for_me for_anyone oldest_hold key\n\
             b            1     10          0      0.100s r\n\
             a            1      4          5      9.000s p\n\
             a            1      2          0       3m 1s q\n\
             b            1      0          2      1.500s s t\n\
             b            1      0          2      0.000s u"
        );
        let slow =
            |time: &str| Table::of(&[SlowRow { time: time.to_owned(), ..SlowRow::default() }]);
        let [early, late] = ["2026-11-21T18:03:07.250Z", "2026-11-21T18:03:07.900Z"].map(slow);
        let merged = Table::merged(&[("a", &early), ("b", &late)], &[&[Column::Time]]);
        assert_eq!(merged.rows[0].texts()[0], "b", "the newest first");
        let merged = Table::merged(&[("b", &late), ("a", &early)], &[]);
        assert_eq!(merged.rows[0].texts()[0], "b", "as they are");
        assert_eq!(Table::of::<KeyRow>(&[]).without_empty_columns(false).lines(), [""; 0]);
    }
}
