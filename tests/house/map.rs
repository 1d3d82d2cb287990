//! The daemon is a stack of folders: each names only folders below it.

use crate::files::{source_files, top};
use crate::source::{after_root, shipped_lines, words};

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
        let is_at_top = path.components().count() == 1;
        for line in shipped_lines(&file) {
            let names = names_in(&line, is_at_top);
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

/// The folders that a line names from the top of the crate. A list of them, another name for the
/// crate or a module, and a path that goes up twice are names that are in no row.
fn names_in(line: &str, is_at_top: bool) -> Vec<String> {
    let line = line.replace("pub(crate)", "").replace("pub(super)", "");
    // A file at the top of `src` is a child of the crate.
    let parent = is_at_top.then(|| after_root(&line, "super")).into_iter().flatten();
    let names = after_root(&line, "crate").chain(parent).map(|rest| {
        let path = rest.strip_prefix("::").filter(|path| !path.starts_with('{'));
        path.and_then(|path| words(path).next()).unwrap_or_default()
    });
    let hidden = ["super::super", "super as", "self as"];
    let hidden = hidden.into_iter().filter(|hidden| line.contains(hidden));
    names.chain(hidden).map(str::to_owned).collect()
}

#[test]
fn what_a_line_names_is_found() {
    for (line, names) in [
        ("use crate::platform::clock;", &["platform"][..]),
        ("fn f() { crate::options::g(crate::Server) }", &["options", "Server"]),
        ("use crate::{options, serving};", &[""]),
        ("use crate as house;", &[""]),
        ("pub(in crate::clients) fn f() {}", &["clients"]),
        ("pub(crate) fn f() {}", &[]),
        ("use super::super::serving;", &["super::super"]),
        ("use super as house;", &["super as"]),
        ("use super::lines; use std::fs;", &[]),
    ] {
        assert_eq!(names_in(line, false), names, "{line}");
    }
    assert_eq!(names_in("use super::serving::Server;", true), ["serving"]);
}
