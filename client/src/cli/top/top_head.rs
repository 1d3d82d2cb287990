//! What `top` shows above its list: the figures of one server, or a line for each of several.
//! Pure.

use super::screen_data::ScreenData;
use crate::cli::table::{Table, aligned};

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Reversed,
    Alarming,
}

/// From what age on it is shown: between two looks, numbers are a second old.
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
        format!("poolcounter top  {}{}  up {}", age(data), data.server, told(data, "uptime"));
    let mut lines = vec![(Style::Bold, title), (Style::Plain, state(data))];
    lines.push((Style::Plain, rates(data)));
    if let Some(trouble) = &data.trouble {
        lines.push((Style::Alarming, format!("{}: {}", data.server, trouble.why)));
    }
    lines
}

fn head_of_several(servers: &[&ScreenData]) -> Vec<(Style, String)> {
    let columns = ["server", "keys", "locks", "waiting", "acquired/s", "full/s", "state"];
    let row = |data: &&ScreenData| {
        let told = |name| told(data, name).to_owned();
        let rate = |name| rate(data, name);
        vec![
            data.server.clone(),
            told("hashtable_entries"),
            told("processing_workers"),
            told("waiting_workers"),
            rate("total_acquired"),
            rate("full_queues"),
            format!("{}{}", age(data), state_of_several(data)),
        ]
    };
    let rows = servers.iter().map(row).collect();
    let table = Table { columns: columns.map(str::to_owned).to_vec(), rows };
    let widths = table.widths();
    let all: Vec<usize> = (0..widths.len()).collect();
    // What a server in trouble told before has no room beside the reason.
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
        None if !data.has_lists => format!("has no lists, up {}", told(data, "uptime")),
        None => format!("up {}", told(data, "uptime")),
    }
}

/// A value of `STATS FULL`.
fn told<'a>(data: &'a ScreenData, name: &str) -> &'a str {
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
        told(data, "hashtable_entries"),
        told(data, "processing_workers"),
        told(data, "waiting_workers"),
        told(data, "average processing time"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::parsed_report::ParsedReport;
    use crate::cli::top::screen_data::{TopList, Trouble};

    fn told_by(server: &str, full: &str) -> ScreenData {
        let nothing = ScreenData::nothing_yet(server, TopList::Keys);
        ScreenData { full: Some(ParsedReport::read(full)), ..nothing }
    }

    #[test]
    fn rates_are_changes_per_second() {
        let before = Some((ParsedReport::read("total_acquired: 10\n"), 2.0));
        let data = ScreenData { before, ..told_by("wiki1", "total_acquired: 30\n") };
        let rates = rates(&data);
        assert!(rates.contains("acquired 10.0 ") && rates.contains("queue full -"), "{rates}");
    }

    #[test]
    fn each_of_several_servers_has_a_line() {
        let well = told_by("pc1", "uptime: 0 days\nhashtable_entries: 12\nwaiting_workers: 3\n");
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
