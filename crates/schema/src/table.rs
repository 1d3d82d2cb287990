//! Tables: columns and cells with their types, as the daemon shows them, and how a line of them is
//! aligned.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::{self, Display, Formatter, Write as _};

/// Declares the columns of all lists, the most important first, each with the name of its member.
macro_rules! columns {
    ($($column:ident = $name:ident,)*) => {
        /// A column of a list. On a narrow screen the first ones are shown.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Column {
            $(#[doc = concat!("`", stringify!($name), "`.")] $column,)*
        }

        impl Column {
            /// The member of the rows that it shows.
            pub fn name(self) -> &'static str {
                match self {
                    $(Column::$column => stringify!($name),)*
                }
            }
        }
    };
}

columns! {
    Server = server, Took = took_s, Time = time, What = what, Outcome = outcome, Count = count,
    QueueFull = queue_full, Refused = refused, Denied = denied, Timeouts = timeouts,
    TimedOut = timed_out, Waited = waited_s, Held = held_s, Waiters = waiters, Acquired = acquired,
    Requests = requests, Done = done, ForAnyone = for_anyone, ForMe = for_me, DeniedBy = denied_by,
    LimitedBy = limited_by, Rule = rule, OldestHold = oldest_hold_s, StuckKeys = stuck_keys,
    Holders = holders, OldestWait = oldest_wait_s, Connections = connections, Waits = waits,
    Holds = holds, Address = address, Client = client, Kind = kind, Error = error, Since = since,
    For = for_s, Left = left_s, Keys = keys, Changed = changed, From = from, Pattern = pattern,
    Settings = settings, Group = group, Name = name, Key = key,
}

/// What a row has in a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// The row does not have it.
    None,
    /// A whole number.
    Count(u64),
    /// Any number.
    Number(f64),
    /// A time.
    Seconds(f64),
    /// A time that somebody has chosen, as in a rule.
    Term(f64),
    /// The number of a connection in the log.
    Client(u32),
    /// Words.
    Text(Cow<'a, str>),
}

impl<'a> Cell<'a> {
    /// Words, or a dash for none.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Self {
        let text = text.into();
        Cell::Text(if text.is_empty() { "-".into() } else { text })
    }

    /// Of a row that may not have it.
    pub fn option(cell: Option<Self>) -> Self {
        cell.unwrap_or(Cell::None)
    }

    /// The number by which rows are sorted, if it is one.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Cell::None | Cell::Text(_) => None,
            Cell::Count(count) => Some(count as f64),
            Cell::Number(n) | Cell::Seconds(n) | Cell::Term(n) => Some(n),
            Cell::Client(number) => Some(number.into()),
        }
    }
}

/// As the daemon writes it: a time in seconds, to milliseconds; a dash for none.
impl Display for Cell<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Cell::None => f.write_str("-"),
            Cell::Count(count) => count.fmt(f),
            Cell::Number(number) => milliseconds(*number).fmt(f),
            Cell::Seconds(s) | Cell::Term(s) => write!(f, "{:.3}", milliseconds(*s)),
            Cell::Client(number) => write!(f, "#{number}"),
            Cell::Text(text) => f.write_str(text),
        }
    }
}

/// To three decimals. The rest is cut off, not rounded.
pub fn milliseconds(s: f64) -> f64 {
    // Nanoseconds as a float may be a little less.
    ((s * 1e9 + 0.5) as u64 / 1_000_000) as f64 / 1e3
}

/// Seconds, shown as `0 days, 0h 3m 10s`.
#[derive(Clone, Copy, Debug)]
pub struct Uptime(pub u64);

impl Display for Uptime {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Uptime(s) = self;
        let (days, hours, minutes) = (s / 86_400, s / 3_600 % 24, s / 60 % 60);
        write!(f, "{days} days, {hours}h {minutes}m {}s", s % 60)
    }
}

/// The room that a column has in a line.
#[derive(Clone, Copy, Debug)]
pub struct Width {
    /// How wide it is.
    pub columns: usize,
    /// It has numbers, which are to the right; words are to the left.
    pub is_number: bool,
}

/// A line of cells, of which the last one may be of any length, or empty. `width_of` says how wide a text
/// is.
pub fn aligned<'a>(
    cells: impl IntoIterator<Item = (&'a str, Width)>,
    width_of: fn(&str) -> usize,
) -> String {
    let mut line = String::new();
    let mut cells = cells.into_iter().peekable();
    while let Some((text, Width { columns, is_number })) = cells.next() {
        let is_last = cells.peek().is_none();
        let room = if is_last { 0 } else { columns.saturating_sub(width_of(text)) };
        let (left, right) = if is_number { (room, 0) } else { (0, room) };
        write!(line, "{:left$}{text}{:right$} ", "", "").expect("a String");
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn uptime_shows_all_four_parts() {
        assert_eq!(Uptime(190).to_string(), "0 days, 0h 3m 10s");
        assert_eq!(Uptime(90_061).to_string(), "1 days, 1h 1m 1s");
    }

    #[test]
    fn cells_are_words() {
        for (cell, text) in [
            (Cell::Seconds(0.0), "0.000"),
            (Cell::Seconds(0.232), "0.232"),
            (Cell::Seconds(62.500_999_999), "62.500"),
            (Cell::Seconds(0.000_999), "0.000"),
            (Cell::Seconds(1e6), "1000000.000"),
            (Cell::None, "-"),
            (Cell::Number(17.0), "17"),
            (Cell::Number(0.5), "0.5"),
            (Cell::Number(0.123_456), "0.123"),
            (Cell::Count(3), "3"),
            (Cell::Client(7), "#7"),
            (Cell::text("a\\xff"), "a\\xff"),
            (Cell::text(""), "-"),
        ] {
            assert_eq!(cell.to_string(), text, "{cell:?}");
        }
    }
}
