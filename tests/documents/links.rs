//! Links in documents lead to files and headings that exist. Tests and documents that documents,
//! comments and scripts name exist: files as `tests/…` or `docs/…`, other tests as `cargo test …
//! --test CRATE FILTER …`.

use crate::files::{source_files, top};
use crate::{READ, text_of, texts};
use std::path::Path;

#[test]
fn each_link_leads_to_a_file_and_a_heading() {
    let mut dead = Vec::new();
    let mut found = 0;
    let is_document = |path: &Path| path.extension() == Some("md".as_ref());
    for (document, text) in texts(&READ).filter(|(path, _)| is_document(path)) {
        for link in links_in(&text).filter(|link| !link.contains("://")) {
            found += 1;
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => document.clone(),
                path => document.parent().expect("a folder").join(path),
            };
            let has_heading = || headings_in(&text_of(&target)).any(|it| anchor_of(it) == heading);
            if !target.exists() || !heading.is_empty() && !has_heading() {
                dead.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(found > 50, "only {found} were found");
    assert_eq!(dead, [""; 0]);
}

#[test]
fn each_test_and_document_that_is_named_exists() {
    let mut missing = Vec::new();
    let mut found = 0;
    // This file has examples.
    for (file, text) in texts(&READ).filter(|(file, _)| !file.ends_with(file!())) {
        let paths = paths_in(&text).into_iter().filter(|path| !top().join(path).exists());
        missing.extend(paths.map(|path| format!("{}: {path}", file.display())));
        for (test_crate, filter) in filters_in(&text) {
            found += 1;
            if !names_of_tests(&test_crate).iter().any(|name| name.contains(&filter)) {
                missing.push(format!("{}: {test_crate} {filter}", file.display()));
            }
        }
    }
    assert!(found > 60, "only {found} were found");
    assert_eq!(missing, [""; 0]);
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

/// The paths of tests and documents in a text, relative to the top folder.
fn paths_in(text: &str) -> Vec<&str> {
    let mut paths = Vec::new();
    for (at, _) in text.match_indices("tests/").chain(text.match_indices("docs/")) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
        let path = text[at..].split(|c| !is_part(c)).next().unwrap_or_default();
        // `tests/…/` and `tests/*.rs` are patterns.
        let is_pattern = text[at + path.len()..].starts_with(['…', '*', '<', '{']);
        if !text[..at].ends_with(is_part) && !is_pattern {
            paths.push(path.trim_end_matches(['.', '/']));
        }
    }
    paths
}

/// The crate and each filter of the commands that run tests; without a filter, all of the crate.
fn filters_in(text: &str) -> Vec<(String, String)> {
    let mut filters = Vec::new();
    let text = text.replace("```", "").replace("--test\n", "--test ");
    for (at, option) in text.match_indices("--test ") {
        // Only a command in backticks continues in the next line.
        let paragraph = text[..at].rfind("\n\n").unwrap_or(0);
        let is_quoted = text[paragraph..at].matches('`').count() % 2 == 1;
        let rest = &text[at + option.len()..];
        let command = rest.split(if is_quoted { '`' } else { '\n' }).next().unwrap_or_default();
        // `-D warnings` is for clippy.
        let words = command.split_whitespace().filter(|word| !word.starts_with("//"));
        let words = words.take_while(|word| !["--test", "-D"].contains(word));
        let mut words = words.map(|word| word.trim_end_matches(['.', ',', ';', ')', '"']));
        let Some(test_crate) = words.next().filter(|word| is_name(word)) else { continue };
        let named: Vec<&str> = words.filter(|word| is_name(word)).collect();
        let named = if named.is_empty() { vec![""] } else { named };
        filters.extend(named.iter().map(|filter| (test_crate.to_owned(), (*filter).to_owned())));
    }
    filters
}

fn is_name(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(is_part)
}

/// `module::function` of every function of a crate of tests.
fn names_of_tests(test_crate: &str) -> Vec<String> {
    let packages = ["", "crates/engine", "crates/reports"].map(|package| top().join(package));
    let mut folders = packages.iter().map(|package| package.join("tests").join(test_crate));
    let Some(folder) = folders.find(|folder| folder.exists()) else { return Vec::new() };
    let mut names = Vec::new();
    for file in source_files(&folder) {
        let module = file.strip_prefix(&folder).expect("it is below").with_extension("");
        let module = module.display().to_string().replace('/', "::");
        let text = text_of(&file);
        let functions = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
        names.extend(functions.map(|function| format!("{module}::{function}")));
    }
    names
}

#[test]
fn links_headings_and_names_are_found() {
    let text = "# One `two`, three\n[a](b.md#c-d), [e](f).\n```\n# none\n```\n## Under_score\n";
    assert_eq!(links_in(text).collect::<Vec<_>>(), ["b.md#c-d", "f"]);
    let anchors: Vec<String> = headings_in(text).map(anchor_of).collect();
    assert_eq!(anchors, ["one-two-three", "under_score"]);
    let text = "(tests/load/memory.rs), `tests/README.md`. debian/tests/x ../tests/y tests/*.rs";
    assert_eq!(paths_in(text), ["tests/load/memory.rs", "tests/README.md"]);
    let text = "`cargo test --test\n//! load a::b -- --nocapture --test-threads=1` and\n\n    \
        --test daemon -- one two\nwords\n`--test CRATE x`; --test house --test browser";
    let names =
        [("load", "a::b"), ("daemon", "one"), ("daemon", "two"), ("house", ""), ("browser", "")];
    assert_eq!(filters_in(text), names.map(|(name, filter)| (name.to_owned(), filter.to_owned())));
}
