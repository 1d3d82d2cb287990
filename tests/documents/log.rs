//! Each line that the daemon logs at level info, warn or error has a row in
//! docs/reference/log.md, and each row a line. Reads the calls of the macros in the sources.

use crate::files::{source_files, top};
use crate::text_of;

const LEVELS: [&str; 3] = ["error", "warn", "info"];

/// Calls whose format has no words, each with the file and the words that it logs.
const BARE: [(&str, &str, &[&str]); 2] = [
    ("src/serving/execute_orders.rs", "{why}", &["a hot restart is already under way"]),
    // The sentences of that file: what is lost without an option.
    ("src/sockets/options.rs", "{}: {text}", &[]),
];

/// What the logger writes itself.
const OF_THE_LOGGER: [(&str, &str); 3] = [
    ("warn", "more like this were not logged"),
    ("warn", "log lines could not be written and were dropped"),
    ("error", "panicked at"),
];

#[test]
fn each_line_of_the_log_has_a_row() {
    let page = text_of(&top().join("docs/reference/log.md"));
    let rows: Vec<(&str, &str)> = page.lines().filter_map(row_of).collect();
    let mut lines = OF_THE_LOGGER.map(|(level, text)| (level.to_owned(), text.to_owned())).to_vec();
    for file in source_files(&top().join("src")) {
        let text = text_of(&file);
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (level, format) in calls_in(text) {
            let bare = BARE.iter().find(|(path, bare, _)| file.ends_with(path) && *bare == format);
            match bare {
                None => lines.push((level, format)),
                Some((_, _, [])) => {
                    lines.extend(sentences_in(text).map(|words| (level.clone(), words)));
                }
                Some((_, _, texts)) => {
                    lines.extend(texts.iter().map(|&text| (level.clone(), text.to_owned())));
                }
            }
        }
    }
    assert!(lines.len() > 50, "only {} were found", lines.len());
    let belong = |(level, text): (&str, &str), (line_level, line): &(String, String)| {
        level == line_level && says(text, line)
    };
    let missing = lines.iter().filter(|&line| !rows.iter().any(|&row| belong(row, line)));
    let missing: Vec<String> = missing
        .map(|(level, line)| format!("| {level} | `{line}` | what it means, and what to do |"))
        .collect();
    assert_eq!(
        missing, [""; 0],
        "add these rows to docs/reference/log.md, with <word> for each {{}}; the words of a \
         format that has none come from BARE"
    );
    let is_old = |row: &(&str, &str)| !lines.iter().any(|line| belong(*row, line));
    let old: Vec<_> = rows.into_iter().filter(is_old).collect();
    assert_eq!(
        old,
        [("", ""); 0],
        "no line of the sources has these rows of docs/reference/log.md"
    );
}

/// The level and the text of a row `| level | text | …`.
fn row_of(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let (level, text) = (cells.next()?, cells.next()?);
    LEVELS.contains(&level).then_some((level, text.trim_matches(['`', ' '])))
}

/// Whether the text of a row has the words of a format, in order.
fn says(mut text: &str, format: &str) -> bool {
    let mut words = 0;
    for piece in format.split('{').map(|piece| piece.split_once('}').map_or(piece, |it| it.1)) {
        let piece = piece.trim_matches([' ', '`']);
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
        words += piece.chars().filter(|c| c.is_alphabetic()).count();
    }
    words > 3
}

/// Level and format of each call.
fn calls_in(text: &str) -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for (at, _) in text.match_indices("!(") {
        let name = text[..at].rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let rest = text[at + 2..].trim_start();
        // The first argument of `limited!` is the level.
        let limited = rest.split_once(',').filter(|_| name == "limited");
        let (level, rest) =
            limited.map_or((name, rest), |(level, rest)| (level, rest.trim_start()));
        if let Some(format) = literal(rest).filter(|_| LEVELS.contains(&level)) {
            calls.push((level.to_owned(), format));
        }
    }
    calls
}

/// The string literal at the start of a text.
fn literal(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix('"')?.chars();
    let mut string = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(string),
            '\\' => match rest.next()? {
                '\n' => rest = rest.as_str().trim_start().chars(),
                c => string.push(c),
            },
            c => string.push(c),
        }
    }
}

/// The string literals of a text that have five words or more.
fn sentences_in(text: &str) -> impl Iterator<Item = String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let literals = code.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    literals.into_iter().filter(|words| words.split_whitespace().count() > 4)
}

#[test]
fn calls_rows_and_words_are_found() {
    let text = "limited!(\n    warn,\n    \"a {} \\\n     b\", 1); limited!(debug, \"c\");\n    log::info!(\"d\")";
    let calls = [("warn", "a {} b"), ("info", "d")];
    assert_eq!(calls_in(text), calls.map(|(level, format)| (level.to_owned(), format.to_owned())));
    assert_eq!(row_of("| warn | `<n> lines` | x | y |"), Some(("warn", "<n> lines")));
    assert!(says("the <name> was lost: <why>", "{name} was lost: {e}"));
    assert!(
        !says("was <name> lost: <why>", "{name} was lost: {e}") && !says("any: text", "{}: {text}")
    );
}
