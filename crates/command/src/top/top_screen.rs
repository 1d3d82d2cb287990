//! All lines of the screen of `top`: head, rates, tabs, the list, which columns fit; the data
//! of each server. Pure.

use super::top_lists::TopList;
use crate::output::is_control;
use crate::parsed_report::ParsedReport;
use crate::table::{Table, aligned};
use std::borrow::Cow;

/// What the user has chosen.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    pub(super) list: TopList,
    /// The column to sort by, counted from 0. `None` keeps the server's order.
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

/// The columns of all lists; if not all fit, the first ones here are shown.
const COLUMNS: &str = "server took when what ended count refused denied timed_out waited held waiters acquired requests done \
    for_anyone for_me rule oldest_hold stuck holders oldest_wait connections waits holds address client";

const HELP: &str = "q quit  g k h o c s lists  < > sort  r reverse  arrows scroll  n next server";

/// The lines of the screen, at most `height` of them, each at most `width` wide.
pub(super) fn screen(
    view: &View,
    chosen: &Choices,
    width: usize,
    height: usize,
) -> Vec<(Style, String)> {
    let mut lines = head(&view.servers);
    lines.push((Style::Plain, tabs(view, chosen.list, width)));
    match (view.table(), &view.servers[..]) {
        (Some(table), _) => lines.extend(list(table, chosen, width)),
        (None, [alone]) if !alone.has_lists => lines.extend(all_of(alone)),
        (None, _) => {}
    }
    lines.truncate(height.saturating_sub(1));
    lines.push((Style::Reversed, HELP.to_owned()));
    for (_, line) in &mut lines {
        let shown = |c: char| if is_control(c) || c == '\t' { '?' } else { c };
        *line = line.chars().take(width).map(shown).collect();
    }
    lines
}

/// How many rows of a list a screen of this height shows, besides the names of columns
/// and the help; at least one, so that each key moves something.
pub(super) fn rows_that_fit(view: &View, height: usize) -> usize {
    height.saturating_sub(head(&view.servers).len() + 3).max(1)
}

/// How many rows can be scrolled off before the last one is shown.
pub(super) fn rows_beyond(view: &View, height: usize) -> usize {
    let rows = view.table().map_or(0, |table| table.rows.len());
    rows.saturating_sub(rows_that_fit(view, height))
}

/// The lists. If there is no room for all titles, only the chosen one.
fn tabs(view: &View, chosen: TopList, width: usize) -> String {
    let listed =
        view.list.as_deref().and_then(ParsedReport::listed).filter(|(listed, all)| listed < all);
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
    let mut listed = table.clone();
    let column = chosen.column.filter(|&column| column < table.columns.len());
    if let Some(column) = column {
        listed.sort_by_column(column);
        listed.columns[column] += if chosen.is_reversed { "^" } else { "v" };
    }
    if chosen.is_reversed {
        listed.rows.reverse();
    }
    let widths = listed.widths();
    let shown = columns_that_fit(table, column, &widths, width);
    let mut lines = vec![(Style::Reversed, aligned(&listed.columns, &shown, &widths))];
    let rows = listed.rows.iter().skip(chosen.skipped);
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
        let name = &table.columns[number];
        // Without rules, it would only take room.
        let is_empty = name == "rule" && table.rows.iter().all(|row| row[number] == "-");
        let place = COLUMNS.split(' ').position(|other| other == name).filter(|_| !is_empty);
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
    let note = "This server has no lists; its statistics:".to_owned();
    let values = full.values.iter().map(|(name, value)| format!("{name:24} {value:>26}"));
    std::iter::once(note).chain(values).map(|line| (Style::Plain, line)).collect()
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Reversed,
    Alarming,
}

/// The age is shown from here on: between two polls, numbers are a second old anyway.
const AGE_S_MIN: u64 = 2;

/// The lines above the list, without those that choose it.
pub(super) fn head(servers: &[&ScreenData]) -> Vec<(Style, String)> {
    match servers {
        [alone] => head_of_one(alone),
        _ => head_of_several(servers),
    }
}

fn head_of_one(data: &ScreenData) -> Vec<(Style, String)> {
    // The age precedes the name, which may be too long for a narrow terminal.
    let title =
        format!("poolcounter top  {}{}  up {}", age(data), data.server, stat(data, "uptime"));
    let mut lines = vec![(Style::Bold, title), (Style::Plain, state(data))];
    lines.push((Style::Plain, rates(data)));
    lines.extend(data.rules_by_orders.iter().map(|words| (Style::Plain, words.clone())));
    if let Some(trouble) = &data.trouble {
        lines.push((Style::Alarming, format!("{}: {}", data.server, trouble.why)));
    }
    lines
}

fn head_of_several(servers: &[&ScreenData]) -> Vec<(Style, String)> {
    let columns = ["server", "keys", "locks", "waiting", "acquired/s", "full/s", "state"];
    let row = |data: &&ScreenData| {
        let stat = |name| stat(data, name).to_owned();
        let rate = |name| rate(data, name);
        vec![
            data.server.clone(),
            stat("hashtable_entries"),
            stat("processing_workers"),
            stat("waiting_workers"),
            rate("total_acquired"),
            rate("full_queues"),
            format!("{}{}", age(data), state_of_several(data)),
        ]
    };
    let rows = servers.iter().map(row).collect();
    let table = Table { columns: columns.map(str::to_owned).to_vec(), rows };
    let widths = table.widths();
    let all: Vec<usize> = (0..widths.len()).collect();
    // A server in trouble shows the reason, which leaves no room for old values.
    let in_trouble = [0, widths.len() - 1];
    let lines = servers.iter().zip(&table.rows).map(|(data, row)| match data.trouble {
        None => (Style::Plain, aligned(row, &all, &widths)),
        Some(_) => (Style::Alarming, aligned(row, &in_trouble, &widths)),
    });
    let title = format!("poolcounter top  {} servers", servers.len());
    let names = (Style::Plain, aligned(&table.columns, &all, &widths));
    [(Style::Bold, title), names].into_iter().chain(lines).collect()
}

fn state_of_several(data: &ScreenData) -> String {
    match &data.trouble {
        Some(trouble) if trouble.is_closed => format!("down or draining: {}", trouble.why),
        Some(trouble) => trouble.why.clone(),
        None if data.full.is_none() => "-".to_owned(),
        None if !data.has_lists => format!("has no lists, up {}", stat(data, "uptime")),
        None => {
            let orders = data.rules_by_orders.iter().map(|words| format!(", {words}"));
            format!("up {}{}", stat(data, "uptime"), orders.collect::<String>())
        }
    }
}

/// A value of `STATS FULL`.
fn stat<'a>(data: &'a ScreenData, name: &str) -> &'a str {
    data.full.as_ref().and_then(|full| full.value(name)).unwrap_or("-")
}

fn age(data: &ScreenData) -> String {
    match data.age_s {
        age_s if age_s >= AGE_S_MIN && data.full.is_some() => format!("{age_s} s ago: "),
        _ => String::new(),
    }
}

fn state(data: &ScreenData) -> String {
    format!(
        "keys {}   locks {}   waiting {}   average hold {}",
        stat(data, "hashtable_entries"),
        stat(data, "processing_workers"),
        stat(data, "waiting_workers"),
        stat(data, "average processing time"),
    )
}

fn rates(data: &ScreenData) -> String {
    format!(
        "per second: acquired {}   released {}   queue full {}   errors {}",
        rate(data, "total_acquired"),
        rate(data, "total_releases"),
        rate(data, "full_queues"),
        rate(data, "connect_errors"),
    )
}

/// The change of a counter per second.
fn rate(data: &ScreenData, name: &str) -> String {
    let rate = || {
        let (before, seconds) = data.before.as_ref()?;
        Some((data.full.as_ref()?.number(name)? - before.number(name)?) / seconds)
    };
    rate().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}

/// A server's data.
#[derive(Clone, Debug)]
pub(super) struct ScreenData {
    pub(super) server: String,
    /// `STATS FULL`, and the one before it with the seconds between them.
    pub(super) full: Option<ParsedReport>,
    pub(super) before: Option<(ParsedReport, f64)>,
    pub(super) list_asked: TopList,
    /// `None` until it arrives.
    pub(super) list: Option<ParsedReport>,
    /// Older servers have none.
    pub(super) has_lists: bool,
    /// How many rules orders have set, in words, if any.
    pub(super) rules_by_orders: Option<String>,
    /// Why there is nothing newer.
    pub(super) trouble: Option<Trouble>,
    /// How old the data is.
    pub(super) age_s: u64,
}

/// Why a server does not answer.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// Nobody listens there, as with a server that drains.
    pub(super) is_closed: bool,
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
            rules_by_orders: None,
            trouble: None,
            age_s: 0,
        }
    }
}

/// What is to be shown: one server, or several with their lists as one.
pub(super) struct View<'a> {
    pub(super) servers: Vec<&'a ScreenData>,
    pub(super) list: Option<Cow<'a, ParsedReport>>,
}

impl<'a> View<'a> {
    /// A server that does not answer has rows only if it is alone: in a list of several,
    /// old rows would look like new ones.
    pub(super) fn of(servers: Vec<&'a ScreenData>) -> View<'a> {
        let list = match servers[..] {
            [alone] => alone.list.as_ref().map(Cow::Borrowed),
            _ => merged(&servers).map(Cow::Owned),
        };
        View { servers, list }
    }

    pub(super) fn table(&self) -> Option<&Table> {
        self.list.as_ref().and_then(|list| list.tables.first())
    }
}

fn merged(servers: &[&ScreenData]) -> Option<ParsedReport> {
    let healthy = servers.iter().filter(|data| data.trouble.is_none());
    let lists = healthy.filter_map(|data| Some((data.server.as_str(), data.list.as_ref()?)));
    let lists: Vec<_> = lists.collect();
    let order = servers.first()?.list_asked.order();
    (!lists.is_empty()).then(|| ParsedReport::merged(&lists, order, usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed_report::ParsedReport;

    fn data(list: &str) -> ScreenData {
        ScreenData {
            list: Some(ParsedReport::read(list)),
            ..ScreenData::nothing_yet("wiki1", TopList::Keys)
        }
    }

    fn trouble(why: &str) -> Option<Trouble> {
        Some(Trouble { why: why.to_owned(), is_closed: false })
    }

    #[test]
    fn the_most_important_columns_have_half_of_the_width() {
        let data = data("mode held waiters other key\nme 1.000s 12 3 abc\n");
        let names = |column, width| {
            let chosen = Choices { column, ..Choices::all_of(TopList::Keys) };
            let lines = screen(&View::of(vec![&data]), &chosen, width, 20);
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
    fn rules_are_shown_where_there_are_any() {
        let names = |list: &str| {
            let lines =
                screen(&View::of(vec![&data(list)]), &Choices::all_of(TopList::Keys), 64, 9);
            lines[lines.len() - 3].1.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let without = names("for_me for_anyone oldest_hold rule key\n1 0 0.1s - a\n");
        assert_eq!(without, "for_me for_anyone oldest_hold key");
        let with = names("for_me for_anyone oldest_hold rule key\n1 0 0.1s bots(denied) a\n");
        assert_eq!(with, "for_me for_anyone rule key");
        let words = "rules set by orders: 2, since 2026-11-21T18:03:07.250Z";
        let ordered = |server| ScreenData {
            rules_by_orders: Some(words.to_owned()),
            ..data_of(server, "uptime: 0 days\n")
        };
        let (one, other) = (ordered("pc1"), data_of("pc2", "uptime: 0 days\n"));
        assert_eq!(head(&[&one])[3], (Style::Plain, words.to_owned()));
        assert_eq!(head(&[&other]).len(), 3);
        let both = head(&[&one, &other]);
        assert!(both[2].1.ends_with(&format!("up 0 days, {words}")), "{both:?}");
        assert!(both[3].1.ends_with("up 0 days"), "{both:?}");
    }

    #[test]
    fn a_screen_is_never_exceeded() {
        let long = format!("a {} c\n1 {} 3\n", "b".repeat(70_000), "x".repeat(70_000));
        let odd = ScreenData { trouble: trouble(&"\x1b[31mx".repeat(50)), ..data(&long) };
        for (width, height) in [(0, 0), (1, 1), (5, 3), (200, 100)] {
            let chosen =
                Choices { list: TopList::Hot, column: Some(9), is_reversed: true, skipped: 7 };
            let lines = screen(&View::of(vec![&odd]), &chosen, width, height);
            assert!(lines.len() <= height.max(1));
            assert!(lines.iter().all(|(_, line)| line.chars().count() <= width));
            assert!(lines.iter().all(|(_, line)| !line.contains('\x1b')));
        }
    }

    #[test]
    fn the_last_row_stays_at_the_end_of_the_screen() {
        let two_rows = data("holders oldest_hold key\n1 0.232s a\n2 1.5s b\n");
        let healthy = View::of(vec![&two_rows]);
        // Above and below the rows: four lines, the names of columns, the help.
        for (height, fits, beyond) in [(20, 14, 0), (8, 2, 0), (7, 1, 1), (2, 1, 1)] {
            assert_eq!(rows_that_fit(&healthy, height), fits);
            assert_eq!(rows_beyond(&healthy, height), beyond, "{height}");
        }
        let troubled = ScreenData { trouble: trouble("silent"), ..two_rows.clone() };
        let troubled = View::of(vec![&troubled]);
        assert_eq!(rows_beyond(&troubled, 8), 1);
        let chosen = Choices { skipped: 1, ..Choices::all_of(TopList::Keys) };
        let lines = screen(&troubled, &chosen, 60, 8);
        assert!(lines[6].1.ends_with(" b"), "{lines:#?}");
    }

    #[test]
    fn several_servers_are_one_list() {
        let of = |server: &str, list| ScreenData { server: server.to_owned(), ..data(list) };
        let a = of("a", "keys: 2 of 9\nfor_me for_anyone oldest_hold key\n5 0 1s p\n1 0 9s q\n");
        let b = of("b", "keys: 1 of 1\nfor_me for_anyone oldest_hold key\n2 0 9s r\n");
        let c = ScreenData { trouble: trouble("silent"), ..of("c", "for_me key\n8 s\n") };
        let lines = screen(&View::of(vec![&a, &b, &c]), &Choices::all_of(TopList::Keys), 80, 20);
        let lines: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        assert!(lines[5].contains("[k keys now: 3 of 10]"), "{lines:#?}");
        assert_eq!(
            lines[6..10],
            [
                "server for_me for_anyone oldest_hold key",
                "     a      5          0          1s p",
                "     b      2          0          9s r",
                "     a      1          0          9s q",
            ],
        );
        assert_eq!(lines.len(), 11, "{lines:#?}");
        assert!(View::of(vec![&c, &c]).table().is_none());
    }

    fn data_of(server: &str, full: &str) -> ScreenData {
        let nothing = ScreenData::nothing_yet(server, TopList::Keys);
        ScreenData { full: Some(ParsedReport::read(full)), ..nothing }
    }

    #[test]
    fn rates_are_changes_per_second() {
        let before = Some((ParsedReport::read("total_acquired: 10\n"), 2.0));
        let data = ScreenData { before, ..data_of("wiki1", "total_acquired: 30\n") };
        let rates = rates(&data);
        assert!(rates.contains("acquired 10.0 ") && rates.contains("queue full -"), "{rates}");
    }

    #[test]
    fn each_of_several_servers_has_a_line() {
        let well = data_of("pc1", "uptime: 0 days\nhashtable_entries: 12\nwaiting_workers: 3\n");
        let trouble = |why: &str, is_closed| Some(Trouble { why: why.to_owned(), is_closed });
        let silent = ScreenData { age_s: 9, trouble: trouble("silent", false), ..well.clone() };
        let down = ScreenData::nothing_yet("pc10", TopList::Keys);
        let down = ScreenData { trouble: trouble("refused", true), ..down };
        let lines = head(&[&well, &silent, &down]);
        let text: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(
            text,
            [
                "poolcounter top  3 servers",
                "server keys locks waiting acquired/s full/s state",
                "   pc1   12     -       3          -      - up 0 days",
                "   pc1 9 s ago: silent",
                "  pc10 down or draining: refused",
            ]
        );
        assert_eq!((lines[2].0, lines[3].0), (Style::Plain, Style::Alarming));
    }
}
