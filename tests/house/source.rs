//! Reads sources for these tests.

use std::fs;
use std::path::Path;

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
