//! The rules of the rooms, checked in the sources: modules that decide name no I/O,
//! clock or log; only one module has `unsafe`.

use crate::source::{NamePath, all_source_files, paths_in, source_files, top};
use std::fs;
use std::path::PathBuf;

/// Input, output, clocks and logs, anywhere in a path.
const IMPURE: &[&str] = &[
    "mio",
    "libc",
    "rustix",
    "sd_notify",
    "log",
    "env_filter",
    "env_logger",
    "clap",
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

/// One module of the daemon, one of the command.
const MAY_BE_UNSAFE: [&str; 2] = ["src/server/sys.rs", "client/src/cli/child.rs"];
/// The client's parts that wait for a time, or show rates. What a jump of the wall clock
/// would change holds for them too.
const CLIENTS_WITH_CLOCK: [&str; 9] = [
    "client/src/cli/draining.rs",
    "client/src/cli/job.rs",
    "client/src/cli/live.rs",
    "client/src/cli/run.rs",
    "client/src/cli/showing.rs",
    "client/src/cli/terminal.rs",
    "client/src/link.rs",
    "client/src/question.rs",
    "client/src/transport.rs",
];
const THE_CLOCK: &str = "src/server/clock.rs";
const SHOWS_THE_WALL_CLOCK: &str = "src/server/reporting.rs";

#[test]
fn what_decides_does_no_input_and_output() {
    let rooms = [
        "src/engine",
        "src/reports",
        "client/src/protocol",
        "client/src/conversation",
        "client/src/request",
        "client/src/cli/health",
        "client/src/cli/screen",
    ];
    assert_none(&rooms, impurities);
}

#[test]
fn unsafe_stands_in_one_module_of_each_crate() {
    let mut files = all_source_files();
    files.retain(|file| MAY_BE_UNSAFE.iter().all(|path| !file.ends_with(path)));
    assert!(files.len() > 10, "only {files:?} were found");
    assert_none_in(&files, |paths| segments_among(paths, &["unsafe", "unsafe_code"]));
    for path in MAY_BE_UNSAFE {
        let module = paths_in(&fs::read_to_string(top().join(path)).unwrap());
        assert!(!segments_among(&module, &["unsafe"]).is_empty(), "{path} is not the one");
    }
}

/// A jump of the wall clock changes nothing but what is shown: one place reads it, and
/// one gives it, to reports.
#[test]
fn the_wall_clock_is_read_in_one_place_and_only_shown() {
    let names = ["SystemTime", "UNIX_EPOCH", "CLOCK_REALTIME", "Realtime", "RealtimeCoarse"];
    let mut files = all_source_files();
    files.retain(|file| !file.ends_with(THE_CLOCK));
    assert_none_in(&files, |paths| segments_among(paths, &names));
    files.retain(|file| !file.ends_with(SHOWS_THE_WALL_CLOCK));
    assert_none_in(&files, |paths| {
        let named = segments_among(paths, &["wall_ns"]);
        named.into_iter().filter(|path| path.contains("clock::")).collect()
    });
}

/// Only one place of the daemon reads any other clock.
#[test]
fn one_module_reads_the_clock() {
    let clocks = ["Instant", "clock_gettime", "ClockId", "gettimeofday", "timerfd_create"];
    let mut files = all_source_files();
    let may = |file: &PathBuf| CLIENTS_WITH_CLOCK.iter().any(|path| file.ends_with(path));
    files.retain(|file| !file.ends_with(THE_CLOCK) && !may(file));
    assert_none_in(&files, |paths| segments_among(paths, &clocks));
    let clock = paths_in(&fs::read_to_string(top().join(THE_CLOCK)).unwrap());
    let read = segments_among(&clock, &["ClockId"]);
    assert!(read.contains(&"ClockId::Monotonic".to_owned()), "{read:?}");
}

/// `world.rs`, which the simulation replaces, is the only way to the kernel. The other
/// modules here are other programs than the daemon, or run once it can't start.
#[test]
fn the_server_reaches_the_kernel_through_one_door() {
    let others = ["world.rs", "sys.rs", "advice.rs"];
    let mut files = source_files(&top().join("src/server"));
    files.retain(|file| !others.iter().any(|other| file.ends_with(other)));
    files.push(top().join("src/server.rs"));
    assert!(files.len() > 20, "only {files:?} were found");
    for file in files {
        let source = fs::read_to_string(&file).expect("the source can be read");
        let mut found = ways_to_the_kernel(&paths_in(&source));
        let is_other =
            |way: &str| OTHER_PROGRAMS.iter().any(|(f, w)| file.ends_with(f) && way == *w);
        found.retain(|way| !is_other(way));
        assert!(found.is_empty(), "{} names {}", file.display(), found.join(", "));
    }
}

/// What runs in the same binary, but is not the daemon: `--reload`, and a snapshot that an
/// operator pipes in.
const OTHER_PROGRAMS: [(&str, &str); 2] =
    [("control.rs", "std::os::unix::net::UnixStream"), ("rehearsal.rs", "io::stdin")];

/// The names of what asks the kernel for something, but for those of plain data.
fn ways_to_the_kernel(paths: &[NamePath]) -> Vec<String> {
    const MODULES: [&str; 6] = ["fs", "net", "env", "process", "thread", "os"];
    const DATA: [&str; 7] = [
        "IpAddr",
        "Ipv4Addr",
        "Ipv6Addr",
        "SocketAddr",
        "ExitStatus",
        "ExitStatusExt",
        "OsStringExt",
    ];
    const METHODS: [&str; 5] = ["is_file", "is_dir", "canonicalize", "read_link", "try_exists"];
    let is_way = |path: &&NamePath| {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        match names[..] {
            ["mio" | "rustix" | "libc", ..] => true,
            ["io", "stdin" | "stdout" | "stderr", ..]
            | ["std", "io", "stdin" | "stdout" | "stderr", ..] => true,
            ["std", "path", "absolute"] | ["std", "path", "self" | "Path", "absolute"] => true,
            ["std", "self"] | ["std"] => true,
            ["std", module, .., last] if MODULES.contains(&module) => !DATA.contains(&last),
            ["std", module] => MODULES.contains(&module),
            [name] => METHODS.contains(&name),
            _ => false,
        }
    };
    paths.iter().filter(is_way).map(|path| path.join("::")).collect()
}

#[test]
fn ways_to_the_kernel_are_caught() {
    for bad in [
        "use std::fs;",
        "use std::fs as files;",
        "use std::net::{SocketAddr, TcpStream};",
        "use std::os::unix::net::UnixListener;",
        "fn f() { std::env::var(\"A\"); }",
        "fn f(path: &Path) -> bool { path.is_file() }",
        "fn f() { std::path::absolute(path); }",
        "fn f() { io::stdout().flush(); }",
        "use rustix::net::bind;",
    ] {
        assert_eq!(ways_to_the_kernel(&paths_in(bad)).len(), 1, "{bad}");
    }
    for good in [
        "use std::net::{IpAddr, SocketAddr}; use std::process::ExitStatus;",
        "use super::world::{env, fs}; fn f() { fs::metadata(path); }",
        "use std::io::{self, Write}; use std::os::unix::ffi::OsStringExt;",
        "use std::path::{Path, PathBuf};",
    ] {
        assert_eq!(ways_to_the_kernel(&paths_in(good)), [""; 0], "{good}");
    }
}

fn impurities(paths: &[NamePath]) -> Vec<String> {
    let is_std = |name: &str| matches!(name, "std" | "core" | "alloc");
    let is_impure = |path: &&NamePath| {
        // A keyword may precede a path that begins with colons.
        path.windows(2).any(|pair| is_std(&pair[0]) && IMPURE_IN_STD.contains(&&*pair[1]))
            // `use std as s`, `use std::{self as s}`, `use std::*`: could import anything.
            || is_std(&path[0]) && path.get(1).is_none_or(|name| name == "self")
    };
    let from_std = paths.iter().filter(is_impure).map(|path| path.join("::"));
    segments_among(paths, IMPURE).into_iter().chain(from_std).collect()
}

/// The paths that contain one of `names`.
fn segments_among(paths: &[NamePath], names: &[&str]) -> Vec<String> {
    let has_one = |path: &&NamePath| path.iter().any(|name| names.contains(&name.as_str()));
    paths.iter().filter(has_one).map(|path| path.join("::")).collect()
}

/// Checks that `find` finds nothing in the modules `rooms` and below.
fn assert_none(rooms: &[&str], find: impl Fn(&[NamePath]) -> Vec<String>) {
    for room in rooms {
        let mut files = vec![top().join(format!("{room}.rs"))];
        // A room of one file has no folder.
        let folder = top().join(room);
        if folder.exists() {
            files.extend(source_files(&folder));
        }
        assert_none_in(&files, &find);
    }
}

fn assert_none_in(files: &[PathBuf], find: impl Fn(&[NamePath]) -> Vec<String>) {
    for file in files {
        let found = find(&paths_in(&fs::read_to_string(file).expect("the source can be read")));
        assert!(found.is_empty(), "{} names {}", file.display(), found.join(", "));
    }
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
fn unsafe_is_caught() {
    let caught = |source, names: &[&str]| segments_among(&paths_in(source), names);
    assert_eq!(caught("fn f() { unsafe { g() } }", &["unsafe"]), ["unsafe"]);
    assert_eq!(caught("#![allow(unsafe_code)]", &["unsafe_code"]), ["unsafe_code"]);
    assert_eq!(caught("// unsafe\nfn f() { not_unsafe() }", &["unsafe"]), [""; 0]);
}
