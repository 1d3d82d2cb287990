//! The daemon is a stack of folders: each names only folders below it.

use crate::files::{source_files, top};
use crate::source::shipped_lines;

/// From above. Those in one row do not name one another. A file can stand for a folder.
const STACK: &[&[&str]] = &[
    &["serving"],
    &["restart"],
    &["reporting"],
    &["listening", "operator", "clients"],
    &["options"],
    &["logging", "sockets"],
    &["platform"],
];

/// What is not in the stack is above all of it, as the page of the crate is.
fn row(folder: &str) -> Option<usize> {
    STACK.iter().position(|row| row.contains(&folder))
}

#[test]
fn each_folder_names_only_those_below() {
    let src = top().join("src");
    let mut wrong = Vec::new();
    for file in source_files(&src) {
        let path = file.strip_prefix(&src).expect("it is below").with_extension("");
        let from = path.iter().next().and_then(|name| name.to_str()).expect("a name").to_owned();
        for line in shipped_lines(&file) {
            let names = names_in(&line);
            let is_wrong = |to: &String| *to != from && row(to) <= row(&from);
            wrong.extend(
                names
                    .iter()
                    .filter(|to| is_wrong(to))
                    .map(|to| format!("{from} names {to}: {line}")),
            );
        }
    }
    assert!(wrong.is_empty(), "these are not below: {wrong:#?}");
}

/// The folders that a line names from the top of the crate. A list of them, or a path that goes
/// up twice, is a name that is in no row.
fn names_in(line: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let from_top = line.split("crate::").skip(1);
    let names = from_top.map(|path| path.split(|c| !is_name(c)).next().unwrap_or_default());
    let up = line.matches("super::super::");
    names.chain(up).map(str::to_owned).collect()
}

#[test]
fn what_a_line_names_is_found() {
    for (line, names) in [
        ("use crate::platform::clock;", &["platform"][..]),
        ("fn f() { crate::options::g(crate::Server) }", &["options", "Server"]),
        ("use crate::{options, serving};", &[""]),
        ("pub(in crate::clients) fn f() {}", &["clients"]),
        ("use super::super::serving;", &["super::super::"]),
        ("use super::lines; use std::fs;", &[]),
    ] {
        assert_eq!(names_in(line), names, "{line}");
    }
}
