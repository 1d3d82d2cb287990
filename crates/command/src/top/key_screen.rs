//! One key on the screen of `top`: the whole key, its rules, holders and waiters, and how to free
//! it. Pure.

use super::choices::ChosenKey;
use super::server_data::{KeyAnswer, ScreenData};
use super::terminal::Style;
use crate::ask::key_from_user;
use crate::lists::{lines_of_key, locks_of_key};
use crate::shown_key::beginning;
use protocol::key_text;
use schema::reports::KeyReport;

/// The lines about the key, without the head and the help: as many as there are.
pub(super) fn key_lines(
    chosen: &ChosenKey,
    data: Option<&ScreenData>,
    width: usize,
) -> Vec<(Style, String)> {
    let server = format!("server: {}", chosen.server);
    let mut lines = vec![(Style::Plain, server)];
    match data.and_then(|data| data.key.as_ref()) {
        None => lines.push((Style::Plain, format!("key: {}", chosen.key))),
        Some(KeyAnswer::Key(report)) => lines.extend(lines_of(report, width)),
        Some(KeyAnswer::Several(count)) => {
            let why = format!("{count} keys begin with {}", chosen.key);
            lines.push((Style::Plain, format!("{why}: poolcounter keys PATTERN lists them")));
        }
        Some(KeyAnswer::Gone) => {
            let why = format!("no key begins with {} any more", chosen.key);
            lines.push((Style::Plain, why));
        }
        Some(KeyAnswer::Refused(why)) => lines.push((Style::Alarming, why.clone())),
    }
    let wrapped = lines
        .into_iter()
        .flat_map(|(style, line)| wrapped(&line, width).into_iter().map(move |part| (style, part)));
    wrapped.collect()
}

fn lines_of(report: &KeyReport, width: usize) -> Vec<(Style, String)> {
    let free = format!("on its host: {}", free_command(&report.key));
    let lines = lines_of_key(report).into_iter().chain([free]);
    let mut lines: Vec<(Style, String)> = lines.map(|line| (Style::Plain, line)).collect();
    let mut rows = locks_of_key(report).table.lines().into_iter();
    lines.extend(rows.next().map(|names| (Style::Reversed, beginning(&names, width).to_owned())));
    lines.extend(rows.map(|row| (Style::Plain, beginning(&row, width).to_owned())));
    lines
}

/// The command that frees the key, for any shell and any locale.
fn free_command(key: &str) -> String {
    let key = key_text(&key_from_user(key.as_bytes()));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,%+@=".contains(c);
    let word = if !key.is_empty() && key.chars().all(is_plain) {
        key.clone()
    } else {
        format!("'{}'", key.replace('\'', r"'\''"))
    };
    let between = if key.starts_with('-') { "=" } else { " " };
    format!("poolcounter free --key{between}{word}")
}

/// A line in parts that fit.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let (mut parts, mut rest) = (Vec::new(), line);
    loop {
        let part = beginning(rest, width.max(2));
        rest = &rest[part.len()..];
        parts.push(part.to_owned());
        // A mark alone may be wider than nothing, but fits.
        if rest.is_empty() || part.is_empty() {
            return parts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::server_data::Asked;
    use crate::top::top_lists::TopList;
    use schema::rows::{LimitRow, LockRow};
    use schema::words::LockState;

    #[test]
    fn the_command_to_free_a_key_can_be_copied() {
        for (key, command) in [
            ("page:one%20a", "poolcounter free --key page:one%20a"),
            ("a!canonical", "poolcounter free --key 'a!canonical'"),
            ("caf\\xc3\\xa9", "poolcounter free --key 'caf\\xc3\\xa9'"),
            ("café", "poolcounter free --key 'caf\\xc3\\xa9'"),
            ("it's", r"poolcounter free --key 'it'\''s'"),
            ("-x", "poolcounter free --key=-x"),
            ("$(reboot);", "poolcounter free --key '$(reboot);'"),
            ("7", "poolcounter free --key 7"),
        ] {
            assert_eq!(free_command(key), command);
        }
    }

    #[test]
    fn the_whole_key_is_shown_however_long_it_is() {
        let key = format!("{}\\x5cend", "x".repeat(300));
        let lock = LockRow {
            what: LockState::Holder,
            client: Some(7),
            address: "10.0.0.9:1".to_owned(),
            ..LockRow::default()
        };
        let limit =
            LimitRow { rule: "bots".to_owned(), settings: vec!["deny".to_owned()], holders: None };
        let answer = KeyReport {
            key: key.clone(),
            holders: 1,
            limits: vec![limit],
            locks: vec![lock],
            ..KeyReport::default()
        };
        let chosen = ChosenKey { server: "a".into(), key: "xx\\...".into(), skipped: 0 };
        let asked = Asked { list: TopList::Keys, key: Some(chosen.key.clone()) };
        let mut data = ScreenData::nothing_yet("a", asked);
        data.key = Some(KeyAnswer::Key(answer));
        let lines = key_lines(&chosen, Some(&data), 80);
        let text: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        assert!(text.iter().all(|line| line.len() <= 80), "{text:#?}");
        let all = text.concat();
        assert!(all.contains(&format!("key: {key}")), "{all}");
        assert!(all.contains(&format!("free --key '{key}'")), "{all}");
        assert!(all.contains("denied by rule bots: deny"), "{all}");
        assert!(text.last().expect("a row").contains("#7 10.0.0.9:1"), "{text:#?}");
        for (answer, words) in [
            (Some(KeyAnswer::Several(3)), "3 keys begin with xx\\..."),
            (Some(KeyAnswer::Gone), "no key begins with xx\\... any more"),
            (Some(KeyAnswer::Refused("too long".to_owned())), "too long"),
            (None, "key: xx\\..."),
        ] {
            data.key = answer;
            let lines = key_lines(&chosen, Some(&data), 80);
            assert!(lines[1].1.starts_with(words), "{lines:?}");
        }
        // However narrow, and if its server is not shown any more.
        for width in [0, 1, 2, 3] {
            assert!(!key_lines(&chosen, None, width).is_empty());
        }
    }
}
