//! What a page for readers must not have: tables without headers, cells that make sense only below
//! another one, and names of tests, which belong in docs/development. Each fault is named with its
//! file and line.

use crate::files::top;
use crate::texts;

/// Pages for those who install, operate and use the daemon.
const PAGES: [&str; 4] = ["README.md", "docs/guide", "docs/operate", "docs/reference"];

/// What refers to the cell above.
const BEGINNINGS: [&str; 5] = ["the same", "as above", "ditto", "… of", "... of"];

/// README has the two commands that are enough to start.
const TESTS: [&str; 3] = ["cargo test", "make test", "tests/"];
const OF_README: &str = "make test";

#[test]
fn each_cell_makes_sense_alone_and_no_page_names_a_test() {
    let mut faults = Vec::new();
    let mut read = 0;
    for (file, text) in texts(&PAGES) {
        let name = file.strip_prefix(top()).expect("it is below").display().to_string();
        if file.extension().is_some_and(|it| it == "md") {
            read += 1;
            faults.extend(faults_in(&name, &text));
        }
    }
    assert!(read > 15, "only {read} pages were found");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn faults_in(name: &str, page: &str) -> Vec<String> {
    // mandoc writes these, and makes tables of its own.
    let is_generated = [".1.md", ".5.md", ".8.md"].iter().any(|end| name.ends_with(end));
    let text = without_comments(page);
    let lines: Vec<&str> = text.lines().collect();
    let mut faults = Vec::new();
    let mut is_code = false;
    for (number, &line) in lines.iter().enumerate() {
        let mut fault = |what: String| faults.push(format!("{name}:{}: {what}", number + 1));
        is_code ^= line.trim_start().starts_with("```");
        let is_allowed = |test: &str| name == "README.md" && test == OF_README;
        let tests = TESTS.iter().filter(|test| line.contains(*test) && !is_allowed(test));
        tests.for_each(|test| fault(format!("names a test: {test}")));
        if is_code || is_generated || !line.starts_with('|') {
            continue;
        }
        let is_header = lines.get(number + 1).is_some_and(|next| next.starts_with("|--"));
        if is_header && cells_of(line).any(str::is_empty) {
            fault("a column has no header".to_owned());
        }
        let unclear = cells_of(line).filter(|cell| needs_another(cell));
        unclear.for_each(|cell| fault(format!("this cell needs another one: {cell}")));
    }
    faults
}

/// With as many lines as before.
fn without_comments(page: &str) -> String {
    let mut parts = page.split("<!--");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (comment, rest) = part.split_once("-->").unwrap_or((part, ""));
        text.extend(comment.matches('\n'));
        text += rest;
    }
    text
}

/// An escaped bar splits a cell, too, which does no harm here.
fn cells_of(row: &str) -> impl Iterator<Item = &str> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    row.split('|').map(str::trim)
}

fn needs_another(cell: &str) -> bool {
    let words = cell.trim_start_matches(['*', '_']).to_lowercase();
    let is_or_begins = BEGINNINGS.iter().any(|beginning| words.starts_with(beginning));
    is_or_begins || words == "same" || words.ends_with("as above")
}

#[test]
fn faults_are_found() {
    let page = "| | b |\n|---|---|\n| *The same* | nothing, as above |\n\n<!--\nmake test\n-->\n\
        | a | b |\n|---|---|\n| the sum | same key |\n```text\n| | same |\n|---|---|\n```\n\
        `make test-load`\n| … of both | same |\n";
    let lines = |name: &str| -> Vec<String> {
        let faults = faults_in(name, page);
        faults.iter().filter_map(|it| Some(it.split(':').nth(1)?.to_owned())).collect()
    };
    assert_eq!(lines("docs/guide/install.md"), ["1", "3", "3", "15", "16", "16"]);
    assert_eq!(lines("README.md"), ["1", "3", "3", "16", "16"]);
    assert_eq!(lines("docs/reference/poolcounterd.8.md"), ["15"]);
    assert_eq!(cells_of("| a | |b|").collect::<Vec<_>>(), ["a", "", "b"]);
}
