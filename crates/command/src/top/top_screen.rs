//! All lines of the screen of `top`: head, rates, tabs, the list, which columns fit. Pure.

use super::choices::{Choices, ChosenKey, Mode};
use super::figures::Figures;
use super::key_screen::key_lines;
use super::server_data::{ScreenData, View};
use super::terminal::Style;
use super::top_lists::TopList;
use crate::lists::{COVERED, List};
use crate::output::{is_control, one_line};
use crate::shown_key::{beginning, cut, is_utf8_output};
use crate::table::{Cell, Row, Table, aligned, duration_text, line, widths};
use schema::table::{Column, Width};
use std::borrow::Cow;

/// The last line.
const HELP: &str =
    "q quit  ? help  Enter key  / filter  g k h o c s lists  < > sort  n next server";

/// The same for a key.
const KEY_HELP: &str = "q quit  Enter back  arrows scroll";

/// All keyboard commands.
pub(super) const COMMANDS: [&str; 16] = [
    "g        groups of the daemon's rules, and their keys",
    "k        keys that exist now",
    "h        hot keys of the last minute",
    "o        oldest holders",
    "c        clients",
    "s        slow holds and waits",
    "arrows, Page Up, Page Down, Home, End, G   choose a row",
    "Enter    all about the key of this row, and how to free it; Enter again: back",
    "/        filter: only rows that contain this text; Enter ends it, Esc clears it",
    "<  >     sort by another column (also arrows left and right)",
    "r        reverse the order",
    "n        of several servers, each alone, then all again",
    "[  ]     scroll the servers, if they are many",
    "?        this",
    "Ctrl-Z   stop",
    "q        quit",
];

/// At least so many of several servers are shown, and at most a third of the lines.
const SERVERS_MIN: usize = 3;

/// The lines of the screen, at most `height` of them, each at most `width` wide.
pub(super) fn screen(
    view: &View<'_>,
    chosen: &Choices,
    width: usize,
    height: usize,
) -> Vec<(Style, String)> {
    let mut lines = head(&view.servers, chosen.servers_skipped, height);
    let help = match &chosen.mode {
        Mode::Help => {
            lines.push((Style::Reversed, "Keyboard commands".to_owned()));
            lines.extend(COMMANDS.map(|line| (Style::Plain, line.to_owned())));
            "any key: back".to_owned()
        }
        Mode::Key(key) => {
            let all = lines_of_key(view, key, width);
            lines.extend(all.into_iter().skip(key.skipped));
            KEY_HELP.to_owned()
        }
        Mode::List | Mode::Filter => {
            lines.push((Style::Plain, tabs(view, chosen, width)));
            match (view.table(), &view.servers[..]) {
                (Some(table), _) => lines.extend(list(table, chosen, width)),
                (None, [alone]) => lines.extend(all_of(alone)),
                (None, _) => {}
            }
            if chosen.mode == Mode::Filter {
                format!("filter: {}_  Enter ends it, Esc clears it", chosen.filter)
            } else {
                HELP.to_owned()
            }
        }
    };
    lines.truncate(height.saturating_sub(1));
    lines.push((Style::Reversed, help));
    for (_, line) in &mut lines {
        let shown = |c: char| if is_control(c) || c == '\t' { '?' } else { c };
        *line = beginning(&line.chars().map(shown).collect::<String>(), width).to_owned();
    }
    lines
}

/// How many rows of a list a screen of this height shows, besides the names of columns
/// and the help; at least one, so that each key moves something.
pub(super) fn rows_that_fit(view: &View<'_>, height: usize) -> usize {
    height.saturating_sub(head(&view.servers, 0, height).len() + 3).max(1)
}

/// Scrolls so that what is chosen is on the screen.
pub(super) fn keep_in_view(view: &View<'_>, chosen: &mut Choices, width: usize, height: usize) {
    let fitting = rows_that_fit(view, height);
    let rows = view.table().map_or(0, |table| chosen.apply(table).rows.len());
    chosen.keep_in_view(rows, fitting);
    let servers = view.servers.len();
    let hidden = servers.saturating_sub(servers_that_fit(servers, height));
    chosen.servers_skipped = chosen.servers_skipped.min(hidden);
    if let Mode::Key(key) = &chosen.mode {
        let lines = lines_of_key(view, key, width).len();
        // Below the head there is only the help.
        let skipped = key.skipped.min(lines.saturating_sub(fitting + 2));
        chosen.mode = Mode::Key(ChosenKey { skipped, ..key.clone() });
    }
}

fn lines_of_key(view: &View<'_>, key: &ChosenKey, width: usize) -> Vec<(Style, String)> {
    let data = view.servers.iter().find(|data| data.server == key.server);
    key_lines(key, data.copied(), width)
}

/// The lists. If there is no room for all titles, only the chosen one.
fn tabs(view: &View<'_>, chosen: &Choices, width: usize) -> String {
    let listed = view.list.as_deref().map(List::listed).filter(|(listed, all)| listed < all);
    let mut count = listed.map_or(String::new(), |(listed, all)| format!(": {listed} of {all}"));
    if let Some(covered) = view.list.as_deref().and_then(|list| list.value(COVERED)) {
        count += &format!(" in {covered}");
    }
    if !chosen.filter.is_empty() {
        count += &format!(" with {}", chosen.filter);
    }
    let tabs = |has_titles: bool| -> String {
        let tab = |list: &TopList| match *list == chosen.list {
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
    let listed = chosen.apply(table);
    let mut names = listed.names().iter().map(ToString::to_string).collect::<Vec<_>>();
    let column = chosen.column.filter(|&column| column < table.columns.len());
    if let Some(column) = column {
        names[column] += if chosen.is_reversed { "^" } else { "v" };
    }
    let widths = widths(&names, &listed.rows);
    let shown = columns_that_fit(table, column, &widths, width);
    let mut lines = vec![(Style::Reversed, aligned(&names, &shown, &widths))];
    let rows = listed.rows.iter().enumerate().skip(chosen.skipped);
    lines.extend(rows.map(|(number, row)| {
        let style = if number == chosen.selected { Style::Selected } else { Style::Plain };
        (style, row_line(row, &shown, &widths, width))
    }));
    lines
}

/// A row whose name, in its last column, is cut to what the others leave.
fn row_line(row: &Row, shown: &[usize], widths: &[Width], width: usize) -> String {
    let mut cells: Vec<Cow<'_, str>> = row.texts().into_iter().map(Cow::Borrowed).collect();
    let others: usize = shown.iter().rev().skip(1).map(|&number| widths[number].columns + 1).sum();
    if let Some(last) = cells.last_mut() {
        *last = cut(last, width.saturating_sub(others), is_utf8_output()).into_owned().into();
    }
    aligned(&cells, shown, widths)
}

/// The last column, which has half of the width at least, and of the others the chosen one
/// and the most important ones.
fn columns_that_fit(
    table: &Table,
    chosen: Option<usize>,
    widths: &[Width],
    width: usize,
) -> Vec<usize> {
    let importance = |&number: &usize| {
        // Without rules, it would only take room: no column is less important than the key's.
        let is_empty = table.rows.iter().all(|row| row.cells[number].text == "-");
        (chosen != Some(number), if is_empty { Column::Key } else { table.columns[number] })
    };
    let last = widths.len().saturating_sub(1);
    let mut columns: Vec<usize> = (0..last).collect();
    columns.sort_by_key(importance);
    let mut room = width / 2;
    columns.retain(|&number| {
        let left = room.checked_sub(widths[number].columns + 1);
        room = left.unwrap_or(room);
        left.is_some()
    });
    columns.extend((last < widths.len()).then_some(last));
    columns.sort_unstable();
    columns
}

/// The statistics of a server that has no lists.
fn all_of(data: &ScreenData) -> Vec<(Style, String)> {
    let Some(full) = &data.full else { return Vec::new() };
    let note = "This server has no lists; its statistics:".to_owned();
    let values = full.values.iter().map(|(name, value)| format!("{name:24} {value:>26}"));
    std::iter::once(note).chain(values).map(|line| (Style::Plain, line)).collect()
}

/// The age is shown from here on: between two polls, numbers are a second old anyway.
const AGE_S_MIN: u64 = 2;

/// The lines above the list, without those that choose it.
fn head(servers: &[&ScreenData], skipped: usize, height: usize) -> Vec<(Style, String)> {
    match servers {
        [alone] => head_of_one(alone),
        _ => head_of_several(servers, skipped, height),
    }
}

fn head_of_one(data: &ScreenData) -> Vec<(Style, String)> {
    // The age precedes the name, which may be too long for a narrow terminal.
    let title = format!("poolcounter top  {}{}  up {}", age(data), data.server, uptime(data));
    let mut lines = vec![(Style::Bold, title), (Style::Plain, state(data))];
    lines.push((Style::Plain, rates(data)));
    lines.extend(data.rules_by_orders.iter().map(|words| (Style::Plain, words.clone())));
    if let Some(trouble) = &data.trouble {
        lines.push((Style::Alarming, format!("{}: {}", data.server, trouble.why)));
    }
    lines
}

/// How many of several servers a screen of this height shows.
fn servers_that_fit(servers: usize, height: usize) -> usize {
    servers.min((height / 3).max(SERVERS_MIN))
}

fn head_of_several(servers: &[&ScreenData], skipped: usize, height: usize) -> Vec<(Style, String)> {
    let columns = ["server", "keys", "locks", "waiting", "acquired/s", "full/s", "state"];
    let row = |data: &&ScreenData| {
        let stat = |name| stat(data, name);
        let rate = |name| rate(data, name);
        let state = format!("{}{}", age(data), state_of_several(data));
        let cells = [
            data.server.clone(),
            stat("hashtable_entries"),
            stat("processing_workers"),
            stat("waiting_workers"),
            rate("total_acquired"),
            rate("full_queues"),
            state,
        ];
        let cell = |text: String| Cell { number: text.parse().ok(), text: one_line(&text) };
        Row { cells: cells.map(cell).into(), key: None }
    };
    let fitting = servers_that_fit(servers.len(), height);
    let skipped = skipped.min(servers.len() - fitting);
    let rows: Vec<Row> = servers.iter().map(row).collect();
    let widths = widths(&columns, &rows);
    // A server in trouble shows the reason, which leaves no room for old values.
    let in_trouble = [0, widths.len() - 1];
    let lines = servers.iter().zip(&rows).map(|(data, row)| match data.trouble {
        None => (Style::Plain, line(&row.texts(), &widths)),
        Some(_) => (Style::Alarming, aligned(&row.texts(), &in_trouble, &widths)),
    });
    let mut title = format!("poolcounter top  {} servers", servers.len());
    if fitting < servers.len() {
        title += &format!(", {} to {}: [ ] scrolls", skipped + 1, skipped + fitting);
    }
    let names = (Style::Plain, line(&columns, &widths));
    let lines = lines.skip(skipped).take(fitting);
    [(Style::Bold, title), names].into_iter().chain(lines).collect()
}

fn state_of_several(data: &ScreenData) -> String {
    match &data.trouble {
        Some(trouble) if trouble.is_closed => format!("down or draining: {}", trouble.why),
        Some(trouble) => trouble.why.clone(),
        None if data.figures.is_none() => "-".to_owned(),
        None if data.full.is_some() => format!("has no lists, up {}", uptime(data)),
        None => {
            let orders = data.rules_by_orders.iter().map(|words| format!(", {words}"));
            format!("up {}{}", uptime(data), orders.collect::<String>())
        }
    }
}

/// A whole number of the statistics.
fn stat(data: &ScreenData, name: &str) -> String {
    let number = data.figures.as_ref().and_then(|figures| figures.counter(name));
    number.map_or("-".to_owned(), |number| number.to_string())
}

fn uptime(data: &ScreenData) -> String {
    data.figures.as_ref().map_or("-".to_owned(), Figures::uptime)
}

fn age(data: &ScreenData) -> String {
    match data.age_s {
        age_s if age_s >= AGE_S_MIN && data.figures.is_some() => format!("{age_s} s ago: "),
        _ => String::new(),
    }
}

fn state(data: &ScreenData) -> String {
    format!(
        "keys {}   locks {}   waiting {}   average hold {}",
        stat(data, "hashtable_entries"),
        stat(data, "processing_workers"),
        stat(data, "waiting_workers"),
        average_hold(data),
    )
}

/// Of the last minute, or of the time since the first look; before a second one, of all.
fn average_hold(data: &ScreenData) -> String {
    let average = |hold_s: Option<f64>, of: String| {
        hold_s.map_or("-".to_owned(), |hold_s| format!("{} ({of})", duration_text(hold_s)))
    };
    match (&data.figures, &data.minute) {
        (None, _) => "-".to_owned(),
        (Some(now), Some((before, s))) => {
            average(now.average_hold_s(before), format!("last {s:.0} s"))
        }
        (Some(now), None) => average(now.average_hold_since_start_s(), "since the start".into()),
    }
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
        Some(data.figures.as_ref()?.growth(before, name)? / seconds)
    };
    rate().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats_full::StatsFull;
    use crate::table::Cell;
    use crate::top::server_data::{Asked, Trouble};
    use schema::reports::Report;

    fn nothing(server: &str) -> ScreenData {
        ScreenData::nothing_yet(server, Asked { list: TopList::Keys, key: None })
    }

    /// With a list: the names of its columns, and its rows in words.
    fn data(columns: &[Column], rows: &[&[&str]]) -> ScreenData {
        let cell = |text: &&str| Cell {
            text: (*text).to_owned(),
            number: text.trim_end_matches('s').parse().ok(),
        };
        let rows = rows.iter().map(|row| Row { cells: row.iter().map(cell).collect(), key: None });
        let table = Table { columns: columns.to_vec(), rows: rows.collect() };
        let list = List::new("keys", 0, table);
        ScreenData { list: Some(list), ..nothing("wiki1") }
    }

    fn trouble(why: &str) -> Trouble {
        Trouble { why: why.to_owned(), is_closed: false, status: 75 }
    }

    fn head_of(servers: &[&ScreenData]) -> Vec<(Style, String)> {
        head(servers, 0, usize::MAX)
    }

    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_most_important_columns_have_half_of_the_width() {
        let data = data(
            &[Column::Kind, Column::Held, Column::Waiters, Column::Error, Column::Key],
            &[&["me", "1.000s", "12", "3", "abc"]],
        );
        let names = |column, width| {
            let chosen = Choices { column, ..Choices::all_of(TopList::Keys) };
            let lines = screen(&View::of(vec![&data]), &chosen, width, 20);
            words(&lines[lines.len() - 3].1)
        };
        assert_eq!(names(None, 52), "kind held waiters error key");
        assert_eq!(names(None, 51), "kind held waiters key", "an unknown one goes first");
        assert_eq!(names(None, 16), "held key");
        assert_eq!(names(Some(3), 16), "errorv key", "the one to sort by stays");
        assert_eq!(names(None, 1), "k");
    }

    #[test]
    fn rules_are_shown_where_there_are_any() {
        let names = |limited_by: &str| {
            let columns = [
                Column::ForMe,
                Column::ForAnyone,
                Column::OldestHold,
                Column::LimitedBy,
                Column::DeniedBy,
                Column::Key,
            ];
            let data = data(&columns, &[&["1", "0", "0.1s", limited_by, "-", "a"]]);
            let lines = screen(&View::of(vec![&data]), &Choices::all_of(TopList::Keys), 64, 9);
            words(&lines[lines.len() - 3].1)
        };
        assert_eq!(names("-"), "for_me for_anyone oldest_hold key");
        assert_eq!(names("articles,bots"), "for_me for_anyone limited_by key");
        let said = "rules set by orders: 2, since 2026-11-21T18:03:07.250Z";
        let ordered =
            |server| ScreenData { rules_by_orders: Some(said.to_owned()), ..data_of(server, &[]) };
        let (one, other) = (ordered("pc1"), data_of("pc2", &[]));
        assert_eq!(head_of(&[&one])[3], (Style::Plain, said.to_owned()));
        assert_eq!(head_of(&[&other]).len(), 3);
        let both = head_of(&[&one, &other]);
        assert!(both[2].1.ends_with(&format!("up 0 days, 0h 0m 0s, {said}")), "{both:?}");
        assert!(both[3].1.ends_with("up 0 days, 0h 0m 0s"), "{both:?}");
    }

    #[test]
    fn a_screen_is_never_exceeded() {
        let long =
            data(&[Column::For, Column::Rule, Column::Key], &[&["1", &"x".repeat(70_000), "3"]]);
        let odd = ScreenData { trouble: Some(trouble(&"\x1b[31mx".repeat(50))), ..long };
        let many: Vec<ScreenData> = (0..50).map(|n| nothing(&format!("server{n}"))).collect();
        let key = ChosenKey { server: "wiki1".into(), key: "k".repeat(500), skipped: 1 };
        for (width, height) in [(0, 0), (1, 1), (5, 3), (200, 100)] {
            for mode in [Mode::List, Mode::Filter, Mode::Help, Mode::Key(key.clone())] {
                for servers in [vec![&odd], many.iter().collect(), Vec::new()] {
                    let view = View::of(servers);
                    let mut chosen = Choices {
                        column: Some(9),
                        is_reversed: true,
                        skipped: 7,
                        mode: mode.clone(),
                        ..Choices::all_of(TopList::Hot)
                    };
                    keep_in_view(&view, &mut chosen, width, height);
                    let lines = screen(&view, &chosen, width, height);
                    assert!(lines.len() <= height.max(1));
                    assert!(lines.iter().all(|(_, line)| line.chars().count() <= width));
                    assert!(lines.iter().all(|(_, line)| !line.contains('\x1b')));
                }
            }
        }
    }

    #[test]
    fn rows_are_scrolled_so_that_the_selected_one_is_shown() {
        let two_rows = data(
            &[Column::Holders, Column::OldestHold, Column::Key],
            &[&["1", "0.232s", "a"], &["2", "1.5s", "b"]],
        );
        let healthy = View::of(vec![&two_rows]);
        // Above and below the rows: four lines, the names of columns, the help.
        for (height, fits, skipped) in [(20, 14, 0), (8, 2, 0), (7, 1, 1), (2, 1, 1)] {
            assert_eq!(rows_that_fit(&healthy, height), fits);
            let mut chosen = Choices { selected: 9, ..Choices::all_of(TopList::Keys) };
            keep_in_view(&healthy, &mut chosen, 80, height);
            assert_eq!((chosen.selected, chosen.skipped), (1, skipped), "{height}");
        }
        let troubled = ScreenData { trouble: Some(trouble("silent")), ..two_rows.clone() };
        let troubled = View::of(vec![&troubled]);
        let mut chosen = Choices { selected: 1, ..Choices::all_of(TopList::Keys) };
        keep_in_view(&troubled, &mut chosen, 60, 8);
        let lines = screen(&troubled, &chosen, 60, 8);
        assert!(lines[6].1.ends_with(" b") && lines[6].0 == Style::Selected, "{lines:#?}");
    }

    /// Keys that differ at their ends only, in the middle of a small terminal.
    #[test]
    fn keys_without_room_are_cut_in_the_middle() {
        let key = |n: u32| format!("page:{}:part:{n}", "7-0!canonical".repeat(4));
        let keys: Vec<String> = (100..120).map(key).collect();
        let rows: Vec<[&str; 3]> = keys.iter().map(|key| ["1", "0.232s", key.as_str()]).collect();
        let rows: Vec<&[&str]> = rows.iter().map(|row| &row[..]).collect();
        let data = data(&[Column::Holders, Column::OldestHold, Column::Key], &rows);
        let mut chosen = Choices::all_of(TopList::Keys);
        let view = View::of(vec![&data]);
        keep_in_view(&view, &mut chosen, 80, 30);
        let lines = screen(&view, &chosen, 80, 30);
        let rows: Vec<&str> = lines[5..25].iter().map(|(_, line)| line.as_str()).collect();
        let mut apart = rows.clone();
        apart.dedup();
        assert_eq!(apart.len(), 20);
        let mark = if is_utf8_output() { "…" } else { "\\..." };
        for (row, n) in rows.iter().zip(100..) {
            assert!(row.contains(" page:7-0") && row.contains(mark), "{row}");
            assert!(row.ends_with(&format!(":part:{n}")), "{row}");
        }
    }

    #[test]
    fn several_servers_are_one_list() {
        let columns = [Column::ForMe, Column::ForAnyone, Column::OldestHold, Column::Key];
        let of = |server: &str, total, rows: &[&[&str]]| {
            let mut of = ScreenData { server: server.to_owned(), ..data(&columns, rows) };
            of.list.as_mut().expect("a list").total = total;
            of
        };
        let a = of("a", 9, &[&["5", "0", "1s", "p"], &["1", "0", "9s", "q"]]);
        let b = of("b", 1, &[&["2", "0", "9s", "r"]]);
        let c = ScreenData {
            trouble: Some(trouble("silent")),
            ..of("c", 1, &[&["8", "0", "1s", "s"]])
        };
        let lines = screen(&View::of(vec![&a, &b, &c]), &Choices::all_of(TopList::Keys), 80, 20);
        let lines: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        assert!(lines[5].contains("[k keys now: 3 of 10]"), "{lines:#?}");
        assert_eq!(
            lines[6..10],
            [
                "server for_me for_anyone oldest_hold key",
                "a           5          0          1s p",
                "b           2          0          9s r",
                "a           1          0          9s q",
            ],
        );
        assert_eq!(lines.len(), 11, "{lines:#?}");
        assert!(View::of(vec![&c, &c]).table().is_none());
    }

    fn figures(counters: &[(&str, u64)], held_s: f64) -> Figures {
        let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let times_s = [("processing".to_owned(), held_s)].into();
        Figures::of(&Report { counters, times_s, ..Report::default() })
    }

    fn data_of(server: &str, counters: &[(&str, u64)]) -> ScreenData {
        ScreenData { figures: Some(figures(counters, 30.0)), ..nothing(server) }
    }

    #[test]
    fn rates_are_changes_per_second() {
        let before = Some((figures(&[("total_acquired", 10)], 30.0), 2.0));
        let data = ScreenData { before, ..data_of("wiki1", &[("total_acquired", 30)]) };
        let rates = rates(&data);
        assert!(rates.contains("acquired 10.0 ") && rates.contains("queue full -"), "{rates}");
    }

    #[test]
    fn the_average_hold_is_of_the_last_minute() {
        let data = data_of("wiki1", &[("processed_count", 60)]);
        assert!(state(&data).ends_with("average hold 0.500s (since the start)"));
        let none =
            ScreenData { minute: Some((figures(&[("processed_count", 60)], 30.0), 60.2)), ..data };
        assert!(state(&none).ends_with("average hold -"));
        let before = figures(&[("processed_count", 50)], 27.5);
        let some = ScreenData { minute: Some((before, 60.2)), ..none };
        assert!(state(&some).ends_with("average hold 0.250s (last 60 s)"), "{}", state(&some));
    }

    #[test]
    fn each_of_several_servers_has_a_line() {
        let well = data_of("pc1", &[("hashtable_entries", 12), ("waiting_workers", 3)]);
        let trouble =
            |why: &str, is_closed| Some(Trouble { why: why.to_owned(), is_closed, status: 75 });
        let silent = ScreenData { age_s: 9, trouble: trouble("silent", false), ..well.clone() };
        let down = ScreenData { trouble: trouble("refused", true), ..nothing("pc10") };
        let full = StatsFull::read("uptime: 0 days\n");
        let old = ScreenData { full: Some(full), ..data_of("pc2", &[]) };
        let lines = head_of(&[&well, &silent, &down, &old]);
        let text: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(
            text,
            [
                "poolcounter top  4 servers",
                "server keys locks waiting acquired/s full/s state",
                "pc1      12     -       3          -      - up 0 days, 0h 0m 0s",
                "pc1    9 s ago: silent",
                "pc10   down or draining: refused",
                "pc2       -     -       -          -      - has no lists, up 0 days, 0h 0m 0s",
            ]
        );
        assert_eq!((lines[2].0, lines[3].0), (Style::Plain, Style::Alarming));
    }

    #[test]
    fn many_servers_are_scrolled() {
        let servers: Vec<ScreenData> = (1..=30).map(|n| nothing(&format!("pc{n:02}"))).collect();
        let view = View::of(servers.iter().collect());
        let mut chosen = Choices { servers_skipped: 99, ..Choices::all_of(TopList::Keys) };
        keep_in_view(&view, &mut chosen, 80, 24);
        assert_eq!(chosen.servers_skipped, 22);
        let lines = screen(&view, &chosen, 80, 24);
        assert_eq!(lines[0].1, "poolcounter top  30 servers, 23 to 30: [ ] scrolls");
        assert!(lines[2].1.contains("pc23") && lines[9].1.contains("pc30"), "{lines:#?}");
        assert!(lines[10].1.contains("[k keys now]"), "{lines:#?}");
    }

    #[test]
    fn help_names_every_list() {
        for list in TopList::ALL {
            assert!(COMMANDS.iter().any(|line| line.starts_with(list.key())), "{list:?}");
        }
        let data = nothing("a");
        let chosen = Choices { mode: Mode::Help, ..Choices::all_of(TopList::Keys) };
        let lines = screen(&View::of(vec![&data]), &chosen, 80, 24);
        assert!(lines.iter().any(|(_, line)| line.starts_with("q        quit")), "{lines:#?}");
        // On a terminal of the usual size.
        assert!(COMMANDS.iter().chain([&HELP, &KEY_HELP]).all(|line| line.len() <= 80));
    }
}
