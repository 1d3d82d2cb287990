//! The daemon is a stack of folders: each names only folders below it.

use crate::source::{NamePath, paths_in, source_files, top};
use std::collections::BTreeMap;

/// From above. Those in one row do not name one another. A file can stand for a folder.
const STACK: &[&[&str]] = &[
    &["serving"],
    &["restart"],
    &["reporting"],
    &["listening", "operator", "clients"],
    &["options"],
    &["telling", "sockets"],
    &["kernel"],
];

/// A folder, and those that it still names without being above them.
const EXCEPTIONS: &[(&str, &[&str])] = &[];

#[test]
fn each_folder_names_only_those_below() {
    let top = top().join("src");
    // What the stack lacks is above all of it, as `server.rs` is: nothing in it may name that.
    let row = |folder: &str| STACK.iter().position(|row| row.contains(&folder));
    let mut wrong = BTreeMap::new();
    for file in source_files(&top).iter().filter(|file| !file.ends_with("tests.rs")) {
        let path = file.strip_prefix(&top).expect("it is below").with_extension("");
        let module: Vec<&str> = path.iter().map(|name| name.to_str().expect("text")).collect();
        let from = folder(&module);
        for named in paths_in(&std::fs::read_to_string(file).expect("the source can be read")) {
            let to = named_folder(&named, &module).unwrap_or(from.clone());
            if to != from && row(&to) <= row(&from) {
                wrong.insert(format!("{from} names {to}"), path.clone());
            }
        }
    }
    for (from, named) in EXCEPTIONS {
        for to in *named {
            let found = wrong.remove(&format!("{from} names {to}"));
            assert!(found.is_some(), "remove the exception: {from} no longer names {to}");
        }
    }
    assert!(wrong.is_empty(), "these are not below: {wrong:#?}");
}

/// The one that a module is in; `server` has the stack.
fn folder(module: &[&str]) -> String {
    (*module.iter().find(|name| **name != "server").unwrap_or(&"server")).to_owned()
}

/// The folder that a path names from the top or by going up, in the source of `module`.
fn named_folder(path: &[String], module: &[&str]) -> Option<String> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let ups = path.iter().take_while(|name| **name == "super").count();
    match path[0] {
        "crate" => Some(folder(&path[1..])),
        "super" => Some(folder(&[&module[..module.len() - ups], &path[ups..]].concat())),
        _ => None,
    }
}

#[test]
fn what_a_module_names_is_found() {
    let source = "use crate::{engine::Engine, server::{Server, kernel::clock}}; use super::start;
        use std::fs; fn f() { super::super::reports::g(); stream::h() } use crate::*;
        #[cfg(test)] use crate::options; // crate::restart";
    let named = |path: NamePath| named_folder(&path, &["server", "a"]);
    let found: Vec<String> = paths_in(source).into_iter().filter_map(named).collect();
    assert_eq!(found, ["engine", "Server", "kernel", "start", "reports", "server"]);
}
