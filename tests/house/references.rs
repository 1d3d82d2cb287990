//! Documents and comments name tests that exist: files as `tests/…`, crates as
//! `--test …`.

use crate::source::top;
use std::fs;
use std::path::{Path, PathBuf};

/// Where tests are named.
const NAMING: [&str; 11] = [
    "CONTRIBUTING.md",
    "Cargo.toml",
    "Makefile",
    "README.md",
    "bench/src",
    "client",
    "docs",
    "fuzz/checks",
    "fuzz/targets",
    "src",
    "tests",
];

#[test]
fn each_test_that_is_named_exists() {
    let mut missing = Vec::new();
    let mut named = 0;
    for file in NAMING.iter().flat_map(|path| files_in(&top().join(path))) {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        // This file has examples of names.
        if file.ends_with("references.rs") {
            continue;
        }
        let paths = paths_named_in(&text);
        named += paths.len();
        let lost = paths.into_iter().filter(|path| !top().join(path).exists());
        missing.extend(lost.map(|path| format!("{}: {path}", file.display())));
    }
    assert!(named > 20, "only {named} were found");
    assert_eq!(missing, [""; 0]);
}

/// Test paths in the text, relative to the top folder.
fn paths_named_in(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in text.match_indices("tests/") {
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let is_inside_a_path = before.is_alphanumeric() || "/_.-".contains(before);
        let path = name_at_start(&text[at..]);
        // `tests/…/` and `tests/*.rs` are patterns.
        let after = text[at + path.len()..].chars().next().unwrap_or(' ');
        if !is_inside_a_path && !"…*<{".contains(after) {
            paths.push(path.trim_end_matches(['.', '/']).to_owned());
        }
    }
    for (at, option) in text.match_indices("--test ") {
        let name = name_at_start(&text[at + option.len()..]);
        if name.starts_with(|c: char| c.is_ascii_lowercase()) {
            paths.push(format!("tests/{}/main.rs", name.trim_end_matches('.')));
        }
    }
    paths
}

fn name_at_start(text: &str) -> &str {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || "_./-".contains(c));
    &text[..text.find(is_end).unwrap_or(text.len())]
}

/// The file itself, or every file in the folder and below it.
fn files_in(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    paths.flat_map(|path| files_in(&path)).collect()
}

#[test]
fn names_of_tests_are_found() {
    let text = "See (tests/load/memory.rs), `tests/README.md`. debian/tests/smoke ../tests/x\n\
        tests/support: cargo test --test house map; --test CRATE; tests/*.rs";
    assert_eq!(
        paths_named_in(text),
        ["tests/load/memory.rs", "tests/README.md", "tests/support", "tests/house/main.rs"]
    );
}
