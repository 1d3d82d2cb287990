//! The rules of the rooms, held over the source: what decides names no I/O, no
//! clock and no log; arrows go down only; `unsafe` stands in one module.

use proc_macro2::{Punct, TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};

/// Input, output, clocks and logs, wherever they stand in a path.
const IMPURE: &[&str] = &[
    "mio",
    "libc",
    "rustix",
    "sd_notify",
    "log",
    "env_logger",
    "clap",
    "serde",
    "serde_json",
    "Instant",
    "SystemTime",
    "clock_gettime",
    "UNIX_EPOCH",
    "println",
    "eprintln",
    "print",
    "eprint",
    "dbg",
    "include_bytes",
    "include_str",
];

/// Modules of the standard library that do the same.
const IMPURE_IN_STD: &[&str] = &["net", "fs", "io", "env", "process", "thread", "os"];

/// Who may not name whom, as modules of this crate.
const ARROWS_UP: &[(&str, &[&str])] =
    &[("engine", &["server"]), ("protocol", &["engine", "server"])];

const MAY_BE_UNSAFE: &str = "server/sys.rs";
const THE_CLOCK: &str = "server/clock.rs";

#[test]
fn what_decides_does_no_input_and_output() {
    assert_none(&["engine", "protocol"], impurities);
}

#[test]
fn arrows_go_down_only() {
    for (room, above) in ARROWS_UP {
        assert_none(&[room], |paths| segments_among(paths, above));
    }
}

#[test]
fn unsafe_stands_in_one_module() {
    let mut files = source_files(&source());
    files.retain(|file| !file.ends_with(MAY_BE_UNSAFE));
    assert!(files.len() > 10, "only {files:?} were found");
    assert_none_in(&files, |paths| segments_among(paths, &["unsafe", "unsafe_code"]));
    let sys = paths_in(&fs::read_to_string(source().join(MAY_BE_UNSAFE)).unwrap());
    assert!(!segments_among(&sys, &["unsafe"]).is_empty(), "{MAY_BE_UNSAFE} is not the one");
}

/// A jump of the wall clock changes nothing: nobody reads it.
#[test]
fn the_wall_clock_is_not_read() {
    let names = ["SystemTime", "UNIX_EPOCH", "CLOCK_REALTIME", "Realtime", "RealtimeCoarse"];
    assert_none_in(&source_files(&source()), |paths| segments_among(paths, &names));
}

/// Nor does anybody but the one place read any other clock.
#[test]
fn one_module_reads_the_clock() {
    let clocks = ["Instant", "clock_gettime", "ClockId", "gettimeofday", "timerfd_create"];
    let mut files = source_files(&source());
    files.retain(|file| !file.ends_with(THE_CLOCK));
    assert_none_in(&files, |paths| segments_among(paths, &clocks));
    let clock = paths_in(&fs::read_to_string(source().join(THE_CLOCK)).unwrap());
    let read = segments_among(&clock, &["ClockId"]);
    assert!(read.contains(&"ClockId::Monotonic".to_owned()), "{read:?}");
}

/// A path like `std::io::Read` in the source, or a single name.
type NamePath = Vec<String>;

fn impurities(paths: &[NamePath]) -> Vec<String> {
    let is_std = |name: &str| matches!(name, "std" | "core" | "alloc");
    let is_impure = |path: &&NamePath| {
        // A path that begins with colons may have a keyword in front.
        path.windows(2).any(|pair| is_std(&pair[0]) && IMPURE_IN_STD.contains(&&*pair[1]))
            // `use std as s`, `use std::{self as s}`, `use std::*`: who knows what comes of it.
            || is_std(&path[0]) && path.get(1).is_none_or(|name| name == "self")
    };
    let from_std = paths.iter().filter(is_impure).map(|path| path.join("::"));
    segments_among(paths, IMPURE).into_iter().chain(from_std).collect()
}

/// The paths in which one of `names` stands.
fn segments_among(paths: &[NamePath], names: &[&str]) -> Vec<String> {
    let has_one = |path: &&NamePath| path.iter().any(|name| names.contains(&name.as_str()));
    paths.iter().filter(has_one).map(|path| path.join("::")).collect()
}

/// All names in Rust source, with `a::{b, c::d}` as `a::b` and `a::c::d`.
/// Comments and literals are none: the tokenizer drops the former.
fn paths_in(source: &str) -> Vec<NamePath> {
    let tokens: TokenStream = source.parse().expect("the compiler has accepted it");
    let mut paths = Vec::new();
    collect_paths(tokens, &[], &mut paths);
    paths
}

/// `prefix` stands in front of all of them: what a list in braces belongs to.
fn collect_paths(tokens: TokenStream, prefix: &[String], paths: &mut Vec<NamePath>) {
    let mut path: NamePath = Vec::new();
    let mut finish = |path: &mut NamePath| {
        if !path.is_empty() {
            paths.push([prefix, path].concat());
            path.clear();
        }
    };
    let mut lists: Vec<(TokenStream, NamePath)> = Vec::new();
    let mut after_colons = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let goes_on = std::mem::take(&mut after_colons);
        match token {
            TokenTree::Punct(first)
                if is_colon(&first) && tokens.peek().is_some_and(is_colon_token) =>
            {
                tokens.next();
                after_colons = true;
            }
            TokenTree::Ident(name) => {
                if !goes_on {
                    finish(&mut path);
                }
                path.push(name.to_string().trim_start_matches("r#").to_string());
            }
            TokenTree::Group(group) if goes_on => {
                lists.push((group.stream(), [prefix, &path].concat()));
                path.clear();
            }
            TokenTree::Group(group) => {
                finish(&mut path);
                lists.push((group.stream(), Vec::new()));
            }
            _ => finish(&mut path),
        }
    }
    finish(&mut path);
    for (tokens, prefix) in lists {
        collect_paths(tokens, &prefix, paths);
    }
}

fn is_colon(punct: &Punct) -> bool {
    punct.as_char() == ':'
}

fn is_colon_token(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if is_colon(punct))
}

/// `find` finds nothing in the modules `rooms` and all below them.
fn assert_none(rooms: &[&str], find: impl Fn(&[NamePath]) -> Vec<String>) {
    for room in rooms {
        let mut files = vec![source().join(format!("{room}.rs"))];
        files.extend(source_files(&source().join(room)));
        assert!(files.len() > 1, "nothing was found below {room}");
        assert_none_in(&files, &find);
    }
}

fn assert_none_in(files: &[PathBuf], find: impl Fn(&[NamePath]) -> Vec<String>) {
    for file in files {
        let found = find(&paths_in(&fs::read_to_string(file).expect("the source can be read")));
        assert!(found.is_empty(), "{} names {}", file.display(), found.join(", "));
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every .rs file in `dir` and below it.
fn source_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("the source can be read") {
        let path = entry.expect("the source can be read").path();
        if path.is_dir() {
            files.extend(source_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn impurities_are_caught() {
    for (bad, name) in [
        ("use std::net::TcpStream;", "std::net::TcpStream"),
        ("use std::{collections::HashMap, io};", "std::io"),
        ("use std::{collections::HashMap, io::{self}};", "std::io::self"),
        ("use ::std::fs;", "use::std::fs"),
        ("fn f() { return ::std::fs::read(p) }", "return::std::fs::read"),
        ("fn f() { let x = std :: env :: var(\"A\"); }", "std::env::var"),
        ("fn f() { if a { std::thread::yield_now() } }", "std::thread::yield_now"),
        ("use std::process as p;", "std::process"),
        ("use std::os::fd::OwnedFd;", "std::os::fd::OwnedFd"),
        ("use core::net::IpAddr;", "core::net::IpAddr"),
        ("use std as s;", "std"),
        ("use std::{self as s};", "std::self"),
        ("use std::*;", "std"),
        ("use std::time::Instant;", "std::time::Instant"),
        ("fn f(t: Instant) {}", "Instant"),
        ("fn f() -> std::time::SystemTime { a::<u8>::now() }", "std::time::SystemTime"),
        ("fn f() { rustix::time::clock_gettime(id) }", "rustix::time::clock_gettime"),
        ("fn f() { log::debug!(\"x\"); }", "log::debug"),
        ("use log::debug;", "log::debug"),
        ("fn f() { println!(\"x\") }", "println"),
        ("macro_rules! m { ($x:expr) => { eprintln!($x) } }", "eprintln"),
        ("fn f() { r#mio::Poll::new(); }", "mio::Poll::new"),
        ("fn f() -> &'static str { let c = '\"'; libc::X /* \" */ }", "libc::X"),
    ] {
        assert_eq!(impurities(&paths_in(bad)), [name], "{bad}");
    }
}

#[test]
fn what_is_pure_is_let_be() {
    for good in [
        "use std::collections::{HashMap, hash_map}; use std::hash::RandomState;",
        "// use std::io;\n/* mio::Poll /* std::net */ libc */ fn f() {}",
        "//! std::time::Instant, as rustix has it\n/// `println!`\nfn f() {}",
        "fn f() -> &'static str { \"use std::io; // mio\" }",
        "fn f() -> &'static str { r#\"\" log::debug!() \"# }",
        "fn f(a: u32) -> u32 { a.ilog2() + std::mem::take(&mut login) }",
        "use std::time::Duration; use crate::protocol::{Reply, lines};",
    ] {
        assert_eq!(impurities(&paths_in(good)), [""; 0], "{good}");
    }
}

#[test]
fn arrows_up_and_unsafe_are_caught() {
    let caught = |source, names: &[&str]| segments_among(&paths_in(source), names);
    assert_eq!(
        caught("use crate::{protocol, server::reports};", &["server"]),
        ["crate::server::reports"]
    );
    assert_eq!(caught("use super::super::engine;", &["engine"]), ["super::super::engine"]);
    assert_eq!(caught("/// the server\nfn f() { \"server\"; }", &["server"]), [""; 0]);
    assert_eq!(caught("fn f() { unsafe { g() } }", &["unsafe"]), ["unsafe"]);
    assert_eq!(caught("#![allow(unsafe_code)]", &["unsafe_code"]), ["unsafe_code"]);
    assert_eq!(caught("// unsafe\nfn f() { not_unsafe() }", &["unsafe"]), [""; 0]);
}
