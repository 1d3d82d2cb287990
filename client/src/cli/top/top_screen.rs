//! What `top` shows: lines for a screen of a given size. Pure.

use crate::cli::output::is_control;
use crate::cli::parsed_report::ParsedReport;
use crate::cli::table::{Table, aligned, compare};

/// The lists of `top`, with the key that chooses each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopList {
    Groups,
    Keys,
    Hot,
    Holders,
    Clients,
    Slow,
}

impl TopList {
    pub(super) const ALL: [TopList; 6] = [
        TopList::Groups,
        TopList::Keys,
        TopList::Hot,
        TopList::Holders,
        TopList::Clients,
        TopList::Slow,
    ];

    pub(super) fn key(self) -> char {
        match self {
            TopList::Groups => 'g',
            TopList::Keys => 'k',
            TopList::Hot => 'h',
            TopList::Holders => 'o',
            TopList::Clients => 'c',
            TopList::Slow => 's',
        }
    }

    fn title(self) -> &'static str {
        match self {
            TopList::Groups => "groups",
            TopList::Keys => "keys now",
            TopList::Hot => "hot keys",
            TopList::Holders => "oldest holders",
            TopList::Clients => "clients",
            TopList::Slow => "slow",
        }
    }

    /// What to ask, after `STATS `. No list has more than 200 rows.
    pub(super) fn question(self) -> &'static str {
        match self {
            TopList::Keys => "KEYS 200",
            TopList::Hot => "TOP minute keys",
            // `KEYS` has the keys with the most waiters, but not their holders.
            TopList::Holders | TopList::Groups => "JSON",
            TopList::Clients => "CLIENTS 200",
            TopList::Slow => "SLOW 200",
        }
    }
}

/// What a server data.
#[derive(Clone, Debug)]
pub(super) struct ScreenData {
    pub(super) server: String,
    /// `STATS FULL`, and the one before it with the seconds between them.
    pub(super) full: Option<ParsedReport>,
    pub(super) before: Option<(ParsedReport, f64)>,
    pub(super) list_asked: TopList,
    /// `None` until it is there.
    pub(super) list: Option<ParsedReport>,
    /// Older servers have none.
    pub(super) has_lists: bool,
    /// Why there is nothing newer.
    pub(super) trouble: Option<String>,
    /// How old all this is.
    pub(super) age_s: u64,
}

impl ScreenData {
    pub(super) fn nothing_yet(server: &str, list_asked: TopList) -> ScreenData {
        ScreenData {
            server: server.to_owned(),
            full: None,
            before: None,
            list_asked,
            list: None,
            has_lists: true,
            trouble: None,
            age_s: 0,
        }
    }

    pub(super) fn table(&self) -> Option<&Table> {
        self.list.as_ref().and_then(|list| list.tables.first())
    }
}

/// What the user has chosen.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    pub(super) list: TopList,
    /// By which column, counted from 0. `None` is as the server sorts.
    pub(super) column: Option<usize>,
    pub(super) is_reversed: bool,
    /// How many rows are scrolled off.
    pub(super) skipped: usize,
}

impl Choices {
    pub(super) fn all_of(list: TopList) -> Choices {
        Choices { list, column: None, is_reversed: false, skipped: 0 }
    }
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Reversed,
    Alarming,
}

const COLUMN_WIDTH_MAX: usize = 40;

/// From what age on it is shown: between two looks, numbers are a second old.
const AGE_S_MIN: u64 = 2;

/// The columns of all lists; where not all fit, those that stand first here are shown.
const COLUMNS: &str = "took when what ended count refused timed_out waited held waiters acquired requests done \
    for_anyone for_me oldest_hold stuck holders oldest_wait connections waits holds address client";

const HELP: &str = "q quit  g k h o c s lists  < > sort  r reverse  arrows scroll  n next server";

/// The lines of the screen, at most `height` of them, each at most `width` wide.
pub(super) fn screen(
    data: &ScreenData,
    chosen: &Choices,
    width: usize,
    height: usize,
) -> Vec<(Style, String)> {
    let mut lines = head(data, chosen.list, width);
    match data.table() {
        Some(table) => lines.extend(list(table, chosen, width)),
        None if data.has_lists => {}
        None => lines.extend(all_of(data)),
    }
    lines.truncate(height.saturating_sub(1));
    lines.push((Style::Reversed, HELP.to_owned()));
    for (_, line) in &mut lines {
        let shown = |c: char| if is_control(c) || c == '\t' { '?' } else { c };
        *line = line.chars().take(width).map(shown).collect();
    }
    lines
}

/// What stands above the list.
fn head(data: &ScreenData, list: TopList, width: usize) -> Vec<(Style, String)> {
    let mut lines = vec![(Style::Bold, title(data)), (Style::Plain, state(data))];
    lines.push((Style::Plain, rates(data)));
    if let Some(trouble) = &data.trouble {
        lines.push((Style::Alarming, trouble.clone()));
    }
    lines.push((Style::Plain, tabs(data, list, width)));
    lines
}

/// How many rows of a list a screen of this height shows, besides the names of columns
/// and the help; at least one, so that each key moves something.
pub(super) fn rows_that_fit(data: &ScreenData, height: usize) -> usize {
    height.saturating_sub(head(data, data.list_asked, 0).len() + 2).max(1)
}

/// How many rows can be scrolled off before the last one is shown.
pub(super) fn rows_beyond(data: &ScreenData, height: usize) -> usize {
    let rows = data.table().map_or(0, |table| table.rows.len());
    rows.saturating_sub(rows_that_fit(data, height))
}

fn title(data: &ScreenData) -> String {
    let uptime = data.full.as_ref().and_then(|full| full.value("uptime")).unwrap_or("-");
    let age = match data.age_s {
        age_s if age_s >= AGE_S_MIN && data.full.is_some() => format!("{age_s} s ago: "),
        _ => String::new(),
    };
    // The age precedes the name, which may be too long for a narrow terminal.
    format!("poolcounter top  {age}{}  up {uptime}", data.server)
}

fn state(data: &ScreenData) -> String {
    let value = |name| data.full.as_ref().and_then(|full| full.value(name)).unwrap_or("-");
    format!(
        "keys {}   locks {}   waiting {}   average hold {}",
        value("hashtable_entries"),
        value("processing_workers"),
        value("waiting_workers"),
        value("average processing time"),
    )
}

fn rates(data: &ScreenData) -> String {
    let rate = |name| {
        let (before, seconds) = data.before.as_ref()?;
        let change = data.full.as_ref()?.number(name)? - before.number(name)?;
        Some(format!("{:.1}", change / seconds))
    };
    let shown = |name| rate(name).unwrap_or_else(|| "-".to_owned());
    format!(
        "per second: acquired {}   released {}   queue full {}   errors {}",
        shown("total_acquired"),
        shown("total_releases"),
        shown("full_queues"),
        shown("connect_errors"),
    )
}

/// The lists. Where there is no room for all titles, only that of the chosen one.
fn tabs(data: &ScreenData, chosen: TopList, width: usize) -> String {
    let listed =
        data.list.as_ref().and_then(ParsedReport::listed).filter(|(listed, all)| listed < all);
    let count = listed.map_or(String::new(), |(listed, all)| format!(": {listed} of {all}"));
    let tabs = |has_titles: bool| -> String {
        let tab = |list: &TopList| match *list == chosen {
            true => format!("[{} {}{count}]", list.key(), list.title()),
            false if has_titles => format!(" {} {} ", list.key(), list.title()),
            false => format!(" {} ", list.key()),
        };
        TopList::ALL.iter().map(tab).collect()
    };
    let all = tabs(true);
    if all.trim_end().len() <= width { all } else { tabs(false) }
}

fn list(table: &Table, chosen: &Choices, width: usize) -> Vec<(Style, String)> {
    let mut rows: Vec<&Vec<String>> = table.rows.iter().collect();
    let column = chosen.column.filter(|&column| column < table.columns.len());
    if let Some(column) = column {
        rows.sort_by(|a, b| compare(&a[column], &b[column]));
    }
    if chosen.is_reversed {
        rows.reverse();
    }
    let mark = if chosen.is_reversed { "^" } else { "v" };
    let names = table.columns.iter().enumerate().map(|(number, name)| match column {
        Some(column) if column == number => format!("{name}{mark}"),
        _ => name.clone(),
    });
    let names: Vec<String> = names.collect();
    let width_of = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(names[column].len()).min(COLUMN_WIDTH_MAX)
    };
    let widths: Vec<usize> = (0..names.len()).map(width_of).collect();
    let shown = columns_that_fit(table, column, &widths, width);
    let mut lines = vec![(Style::Reversed, aligned(&names, &shown, &widths))];
    let rows = rows.into_iter().skip(chosen.skipped);
    lines.extend(rows.map(|row| (Style::Plain, aligned(row, &shown, &widths))));
    lines
}

/// The last column, which has half of the width at least, and of the others the chosen one
/// and the most important ones.
fn columns_that_fit(
    table: &Table,
    chosen: Option<usize>,
    widths: &[usize],
    width: usize,
) -> Vec<usize> {
    let importance = |&number: &usize| {
        let place = COLUMNS.split(' ').position(|name| name == table.columns[number]);
        (chosen != Some(number), place.unwrap_or(usize::MAX))
    };
    let last = widths.len().saturating_sub(1);
    let mut columns: Vec<usize> = (0..last).collect();
    columns.sort_by_key(importance);
    let mut room = width / 2;
    columns.retain(|&number| {
        let left = room.checked_sub(widths[number] + 1);
        room = left.unwrap_or(room);
        left.is_some()
    });
    columns.extend((last < widths.len()).then_some(last));
    columns.sort_unstable();
    columns
}

fn all_of(data: &ScreenData) -> Vec<(Style, String)> {
    let Some(full) = &data.full else { return Vec::new() };
    let note = "This server has no lists; all that it tells:".to_owned();
    let values = full.values.iter().map(|(name, value)| format!("{name:24} {value:>26}"));
    std::iter::once(note).chain(values).map(|line| (Style::Plain, line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(list: &str) -> ScreenData {
        ScreenData {
            list: Some(ParsedReport::read(list)),
            ..ScreenData::nothing_yet("wiki1", TopList::Keys)
        }
    }

    #[test]
    fn rates_are_changes_per_second() {
        let full = |acquired| ParsedReport::read(&format!("total_acquired: {acquired}\n"));
        let data = ScreenData { full: Some(full(30)), before: Some((full(10), 2.0)), ..data("") };
        let rates = rates(&data);
        assert!(rates.contains("acquired 10.0 ") && rates.contains("queue full -"), "{rates}");
    }

    #[test]
    fn the_most_important_columns_have_half_of_the_width() {
        let data = data("mode held waiters other key\nme 1.000s 12 3 abc\n");
        let names = |column, width| {
            let chosen = Choices { column, ..Choices::all_of(TopList::Keys) };
            let lines = screen(&data, &chosen, width, 20);
            let (_, names) = lines[lines.len() - 3].clone();
            names.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(None, 52), "mode held waiters other key");
        assert_eq!(names(None, 51), "mode held waiters key", "an unknown one goes first");
        assert_eq!(names(None, 16), "held key");
        assert_eq!(names(Some(3), 16), "otherv key", "the one to sort by stays");
        assert_eq!(names(None, 1), "k");
    }

    #[test]
    fn a_screen_is_never_exceeded() {
        let long = format!("a {} c\n1 {} 3\n", "b".repeat(70_000), "x".repeat(70_000));
        let odd = ScreenData { trouble: Some("\x1b[31mx".repeat(50)), ..data(&long) };
        for (width, height) in [(0, 0), (1, 1), (5, 3), (200, 100)] {
            let chosen =
                Choices { list: TopList::Hot, column: Some(9), is_reversed: true, skipped: 7 };
            let lines = screen(&odd, &chosen, width, height);
            assert!(lines.len() <= height.max(1));
            assert!(lines.iter().all(|(_, line)| line.chars().count() <= width));
            assert!(lines.iter().all(|(_, line)| !line.contains('\x1b')));
        }
    }

    #[test]
    fn the_last_row_stays_at_the_end_of_the_screen() {
        let two_rows = || data("holders oldest_hold key\n1 0.232s a\n2 1.5s b\n");
        // Above and below the rows: four lines, the names of columns, the help.
        for (height, fits, beyond) in [(20, 14, 0), (8, 2, 0), (7, 1, 1), (2, 1, 1)] {
            assert_eq!(rows_that_fit(&two_rows(), height), fits);
            assert_eq!(rows_beyond(&two_rows(), height), beyond, "{height}");
        }
        let troubled = ScreenData { trouble: Some("silent".to_owned()), ..two_rows() };
        assert_eq!(rows_beyond(&troubled, 8), 1);
        let chosen = Choices { skipped: 1, ..Choices::all_of(TopList::Keys) };
        let lines = screen(&troubled, &chosen, 60, 8);
        assert!(lines[6].1.ends_with(" b"), "{lines:#?}");
    }
}
