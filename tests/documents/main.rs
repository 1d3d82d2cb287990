//! Tests that read documents: whether they agree with the program, with the clients and with
//! each other. `run` beside this file executes their commands.

#[path = "../support/command_line.rs"]
mod command_line;
#[path = "../support/files.rs"]
mod files;
mod keys;
mod links;
mod log;
mod manuals;
mod options;
#[path = "../support/keys.rs"]
mod real_keys;
#[path = "../support/skipping.rs"]
mod skipping;

use files::{files_in, top};
use std::fs;
use std::path::{Path, PathBuf};

/// Where documents are, and what names keys and tests. Not `vendor`, of a tarball.
const READ: [&str; 15] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "bench",
    "crates",
    "debian",
    "docs",
    "fuzz",
    "monitoring",
    "src",
    "systemd",
    "tests",
];

/// Each of these files, or of those in these folders, with its text.
fn texts(paths: &[&str]) -> impl Iterator<Item = (PathBuf, String)> {
    let files = paths.iter().flat_map(|path| files_in(&top().join(path)));
    files.map(|file| (file.clone(), text_of(&file)))
}

/// Some seeds of the fuzzers are not text.
fn text_of(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).expect("the file can be read")).into_owned()
}
