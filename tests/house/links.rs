//! Links in documents lead to files that exist, and to headings that they contain. Commands that
//! run tests name tests that exist.

use crate::source::{source_files, top};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders with documents, searched recursively; of the top folder, only its own files.
const FOLDERS: [&str; 6] = ["bench", "client", "docs", "fuzz", "monitoring", "tests"];

#[test]
fn each_link_leads_to_a_file_and_a_heading() {
    let mut dead = Vec::new();
    let mut found = 0;
    for document in documents() {
        let text = read(&document);
        for link in links_in(&text).filter(|link| !link.contains("://")) {
            found += 1;
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => document.clone(),
                path => document.parent().expect("a folder").join(path),
            };
            let has_heading = || headings_in(&read(&target)).any(|it| anchor_of(it) == heading);
            if !target.exists() || !heading.is_empty() && !has_heading() {
                dead.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(found > 50, "only {found} were found");
    assert_eq!(dead, [""; 0]);
}

#[test]
fn each_command_that_runs_tests_finds_some() {
    let mut empty = Vec::new();
    let mut found = 0;
    for document in documents() {
        for (test_crate, filters) in commands_in(&read(&document)) {
            let names = names_of_tests(&test_crate);
            let is_one = |filter: &&String| names.iter().any(|name| name.contains(filter.as_str()));
            found += filters.len();
            let unknown = filters.iter().filter(|filter| !is_one(filter));
            let places = unknown.map(|it| format!("{}: {test_crate} {it}", document.display()));
            empty.extend(places);
        }
    }
    assert!(found > 20, "only {found} were found");
    assert_eq!(empty, [""; 0]);
}

fn documents() -> Vec<PathBuf> {
    let below = FOLDERS.iter().flat_map(|folder| markdown_in(&top().join(folder), true));
    markdown_in(top(), false).into_iter().chain(below).collect()
}

fn markdown_in(folder: &Path, is_deep: bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let files = paths.flat_map(|path| match path.is_dir() {
        true if is_deep => markdown_in(&path, true),
        true => Vec::new(),
        false => vec![path],
    });
    files.filter(|path| path.extension().is_some_and(|it| it == "md")).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// What is in `](…)`.
fn links_in(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

fn headings_in(text: &str) -> impl Iterator<Item = &str> {
    let outside = text.split("```").step_by(2).flat_map(str::lines);
    outside.filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim())
}

/// As the sites that show Markdown make it.
fn anchor_of(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The crate and the filters of each `cargo test … --test CRATE …`.
fn commands_in(text: &str) -> Vec<(String, Vec<String>)> {
    let mut commands = Vec::new();
    for (at, _) in text.match_indices("cargo test ") {
        let line_start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        // Only a command in backticks continues in the next line.
        let is_block = text[line_start..].starts_with("    ");
        let end = text[at..].find(|c| c == '`' || is_block && c == '\n');
        let command = &text[at..end.map_or(text.len(), |end| at + end)];
        let Some((_, rest)) = command.split_once("--test ") else { continue };
        let mut words = rest.split_whitespace();
        let test_crate = words.next().unwrap_or_default();
        let mut filters = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "--test-threads" => drop(words.next()),
                option if option.starts_with('-') => {}
                filter => filters.push(filter.to_owned()),
            }
        }
        if test_crate.starts_with(|c: char| c.is_ascii_lowercase()) {
            commands.push((test_crate.to_owned(), filters));
        }
    }
    commands
}

/// `module::function` of every function of a crate of tests.
fn names_of_tests(test_crate: &str) -> Vec<String> {
    let folder = top().join("tests").join(test_crate);
    let mut names = Vec::new();
    for file in source_files(&folder) {
        let module = file.strip_prefix(&folder).expect("it is below").with_extension("");
        let module = module.display().to_string().replace('/', "::");
        let text = read(&file);
        let functions = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
        names.extend(functions.map(|function| format!("{module}::{function}")));
    }
    names
}

#[test]
fn links_headings_and_commands_are_found() {
    let text = "# One `two`, three\n[a](b.md#c-d), [e](f).\n```\n# none\n```\n## Under_score\n";
    assert_eq!(links_in(text).collect::<Vec<_>>(), ["b.md#c-d", "f"]);
    let anchors: Vec<String> = headings_in(text).map(anchor_of).collect();
    assert_eq!(anchors, ["one-two-three", "under_score"]);
    let text = "`cargo test --release\n--test load a::b -- --nocapture --test-threads 1` and\n    \
        X=1 cargo test --test daemon -- one two\nwords\n`cargo test --test CRATE x`";
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        commands_in(text),
        [("load".to_owned(), words(&["a::b"])), ("daemon".to_owned(), words(&["one", "two"]))]
    );
}
