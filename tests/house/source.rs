//! Reads sources and manifests for these tests.

use crate::files::top;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What cargo says of each package of the workspace in `folder` and of those that they depend on.
pub(crate) fn packages(folder: &str) -> Vec<Value> {
    // Not --offline: a fresh clone has yet to fetch what other systems would need.
    let printed = cargo(folder, &["metadata", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_slice(&printed).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// What cargo prints in `folder`.
pub(crate) fn cargo(folder: &str, arguments: &[&str]) -> Vec<u8> {
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(arguments).current_dir(top().join(folder)).output().expect("run cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The names and keywords of a line.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty())
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What follows a name that is not the end or the middle of a longer path.
pub(crate) fn after_root<'a>(line: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(name).filter_map(move |(at, _)| {
        let (before, rest) = (&line[..at], &line[at + name.len()..]);
        let before = before.strip_suffix("::").unwrap_or(before);
        let is_root = !before.ends_with(is_of_word) && !rest.starts_with(is_of_word);
        is_root.then_some(rest)
    })
}

/// The lines of a source without comments and tests.
pub(crate) fn shipped_lines(file: &Path) -> Vec<String> {
    let source = fs::read_to_string(file).expect("a source");
    let shipped = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut is_of_tests = file.ends_with("tests.rs");
    let mut kept = Vec::new();
    for line in lines {
        if !is_of_tests {
            kept.push(line.to_owned());
        }
        // One line, such as `use`.
        is_of_tests = file.ends_with("tests.rs") || line.trim() == "#[cfg(test)]";
    }
    kept
}
