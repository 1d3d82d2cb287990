//! Tables, rows and cells by column: merges, sorts by the order of each list, aligns; cells as
//! JSON, times as numbers.

use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Rows under the names of their columns. The last column may have spaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// By which columns a list is sorted, the first one first, with the largest on top. Columns
/// that stand together count as their sum.
pub(super) type ListOrder = &'static [&'static [&'static str]];

/// Keys: most waiters first, then held for longest.
pub(super) const KEYS_ORDER: ListOrder = &[&["for_me", "for_anyone"], &["oldest_hold"]];

/// Clients: most connections first.
pub(super) const CLIENTS_ORDER: ListOrder = &[&["connections"]];

/// Slow holds and waits: the last first.
pub(super) const SLOW_ORDER: ListOrder = &[&["when"]];

/// Cells that are longer than this are not aligned: no server's numbers are.
const COLUMN_WIDTH_MAX: usize = 40;

impl Table {
    /// Adds a line that a server has sent. `holder and 10 more` is no row: the values
    /// count all of them.
    pub(super) fn push(&mut self, line: &str) {
        if let ["holder" | "waiter", "and", _, "more"] =
            *line.split_whitespace().collect::<Vec<_>>()
        {
            return;
        }
        let mut rest = line.trim();
        let mut row = Vec::new();
        for _ in 1..self.columns.len() {
            let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            row.push(word.to_owned());
            rest = after.trim_start();
        }
        row.push(rest.to_owned());
        self.rows.push(row);
    }

    /// The rows of all servers' tables in this order, each behind the name of its server.
    /// A newer server may have more columns: the others have a dash there.
    pub(super) fn merged(tables: &[(&str, &Table)], order: ListOrder) -> Table {
        let widest = tables.iter().map(|(_, table)| *table).max_by_key(|t| t.columns.len());
        let mut merged = Table::default();
        merged.columns.push("server".to_owned());
        merged.columns.extend(widest.into_iter().flat_map(|table| table.columns.clone()));
        for (server, table) in tables {
            merged.rows.extend(table.rows.iter().map(|row| {
                let cell = |name| table.cell(row, name).unwrap_or("-").to_owned();
                let cells = merged.columns[1..].iter().map(|name| cell(name));
                std::iter::once((*server).to_owned()).chain(cells).collect()
            }));
        }
        merged.sort(order);
        merged
    }

    /// The cell of a row under the name of its column.
    pub(super) fn cell<'a>(&self, row: &'a [String], column: &str) -> Option<&'a str> {
        let number = self.columns.iter().position(|name| name == column)?;
        row.get(number).map(String::as_str)
    }

    /// Rows that are equal in this order stay as they are.
    fn sort(&mut self, order: ListOrder) {
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
        self.rows.sort_by(|a, b| compare(&a[column], &b[column]));
    }

    /// The sum of these columns, or the text of the first, which is behind all numbers.
    fn rank<'a>(&self, row: &'a [String], columns: &[&str]) -> (f64, &'a str) {
        let cells = || columns.iter().filter_map(|column| self.cell(row, column));
        match cells().map(seconds).sum() {
            Some(sum) => (sum, ""),
            None => (f64::NEG_INFINITY, cells().next().unwrap_or_default()),
        }
    }

    /// How wide each column is.
    pub(super) fn widths(&self) -> Vec<usize> {
        let width = |(column, name): (usize, &String)| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(name.chars().count()).min(COLUMN_WIDTH_MAX)
        };
        self.columns.iter().enumerate().map(width).collect()
    }

    /// The names of the columns and the rows, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let all: Vec<usize> = (0..widths.len()).collect();
        let lines = std::iter::once(&self.columns).chain(&self.rows);
        lines.map(|cells| aligned(cells, &all, &widths)).collect()
    }

    /// The last column has names, which stay text even if they look like numbers.
    pub(super) fn json_row(&self, row: &[String]) -> Value {
        let last = self.columns.len().saturating_sub(1);
        let cells = self.columns.iter().zip(row).enumerate().map(|(number, (column, cell))| {
            let value = if number == last { cell.as_str().into() } else { json_of(cell) };
            (column.clone(), value)
        });
        cells.collect::<Map<_, _>>().into()
    }
}

/// The columns that are shown: numbers to the right, the name in the last one to the left.
pub(super) fn aligned(cells: &[String], shown: &[usize], widths: &[usize]) -> String {
    let last = widths.len().saturating_sub(1);
    let cell = |&number: &usize| match (number == last, &cells[number]) {
        (true, text) => text.clone(),
        (false, text) => format!("{text:>width$}", width = widths[number]),
    };
    shown.iter().map(cell).collect::<Vec<_>>().join(" ")
}

/// Large numbers and long times first, then names by the alphabet.
fn compare(a: &str, b: &str) -> Ordering {
    match (seconds(a), seconds(b)) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Whole numbers and times become numbers; `-` and `unlimited` become null.
pub(super) fn json_of(text: &str) -> Value {
    match (text.parse::<u64>(), seconds(text)) {
        (Ok(number), _) => number.into(),
        (Err(_), Some(seconds)) => seconds.into(),
        (Err(_), None) if text == "-" || text == "unlimited" => Value::Null,
        (Err(_), None) => text.into(),
    }
}

/// `4 days 3h 0m 37.062500s`, `1.5ms`, or a plain number.
pub(super) fn seconds(text: &str) -> Option<f64> {
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

    fn table(text: &str) -> Table {
        let mut lines = text.lines();
        let columns = lines.next().expect("names").split_whitespace().map(str::to_owned).collect();
        let mut table = Table { columns, rows: Vec::new() };
        lines.for_each(|line| table.push(line));
        table
    }

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

    #[test]
    fn merged_rows_have_the_order_of_one_server() {
        let merged = |tables: [&str; 2], order| {
            let [a, b] = tables.map(table);
            Table::merged(&[("a", &a), ("b", &b)], order).lines().join("\n")
        };
        let keys = [
            "for_me for_anyone oldest_hold key\n4 5 9.000s p\n2 0 12.500s q\n",
            "for_me for_anyone oldest_hold key\n10 0 0.100s r\n0 2 1.500s s t\n0 2 - u\n",
        ];
        assert_eq!(
            merged(keys, KEYS_ORDER),
            "server for_me for_anyone oldest_hold key\n\
             \x20    b     10          0      0.100s r\n\
             \x20    a      4          5      9.000s p\n\
             \x20    a      2          0     12.500s q\n\
             \x20    b      0          2      1.500s s t\n\
             \x20    b      0          2           - u"
        );
        let slow = ["when key\n2026-11-21T18:03:07.250Z p\n", "when key\n2026-11-21T18:03:07.9Z q"];
        let slow = merged(slow, SLOW_ORDER);
        assert!(slow.find(" q") < slow.find(" p"), "{slow}");
        let groups = merged(["waiters name\n1 x\n0 x  k\n", "waiters name\n2 x\n"], &[]);
        assert!(groups.ends_with("1 x\n     a       0 x  k\n     b       2 x"), "{groups}");
    }

    #[test]
    fn servers_of_different_versions_are_merged() {
        let (old, new) = (table("connections address\n3 p\n"), table("connections new address\n"));
        let merged = Table::merged(&[("a", &old), ("b", &new)], CLIENTS_ORDER);
        assert_eq!(merged.columns, ["server", "connections", "new", "address"]);
        assert_eq!(merged.rows, [["a", "3", "-", "p"]]);
    }
}
