//! The daemon reaches the kernel by one way, `platform/os.rs` and `platform/sys.rs`, which the
//! simulation replaces; two files may be unsafe.

use crate::files::{source_files, top};
use crate::source::{after_root, shipped_lines, words};
use std::fs;

/// Crates that make system calls.
const CRATES: [&str; 4] = ["rustix", "mio", "libc", "connect"];

/// What the daemon may name of std; the rest makes system calls.
const OF_STD: [&str; 26] = [
    "array",
    "backtrace",
    "borrow",
    "cell",
    "cmp",
    "collections",
    "convert",
    "error",
    "ffi",
    "fmt",
    "hash",
    "hint",
    "io",
    "iter",
    "marker",
    "mem",
    "net",
    "num",
    "ops",
    "panic",
    "path",
    "ptr",
    "slice",
    "str",
    "sync",
    "time",
];

/// What they have that makes system calls all the same, by any path. (clippy.toml refuses
/// standard input and output.)
const OTHERS: [&str; 11] = [
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "to_socket_addrs",
    ".exists()",
    ".try_exists()",
    ".is_dir()",
    ".canonicalize()",
    "print!",
    "println!",
    "dbg!",
];

/// The ways themselves, and what runs before the daemon starts or when it can't.
const MAY: [&str; 5] = [
    "platform/os.rs",
    "platform/sys.rs",
    "serving/advice.rs",
    "free_port.rs",
    "bin/poolcounterd.rs",
];

/// Plain data.
const EXCEPTIONS: [&str; 6] = [
    "connect::PORT",
    "connect::failed_call",
    "libc::AF_",
    "std::os::unix::ffi::OsStringExt",
    "std::os::unix::process::ExitStatusExt",
    "std::process::ExitStatus;",
];

#[test]
fn the_daemon_reaches_the_kernel_by_one_way() {
    let src = top().join("src");
    let may = MAY.map(|path| src.join(path));
    let mut found = Vec::new();
    for file in source_files(&src).into_iter().filter(|file| !may.contains(file)) {
        let ways = shipped_lines(&file).into_iter().filter(|line| is_way(line));
        found.extend(ways.map(|line| format!("{}: {line}", file.display())));
    }
    assert_eq!(found, [""; 0]);
}

fn is_way(line: &str) -> bool {
    let line = EXCEPTIONS.iter().fold(line.to_owned(), |line, data| line.replace(data, ""));
    let is_allowed = |path: &str| {
        let module = path.strip_prefix("::").unwrap_or_default();
        OF_STD.contains(&words(module).next().unwrap_or_default()) && !module.starts_with('{')
    };
    let is_path = |rest: &str| rest.starts_with("::") || rest.starts_with(" as ");
    OTHERS.iter().any(|other| line.contains(other))
        || CRATES.iter().any(|name| after_root(&line, name).any(is_path))
        || after_root(&line, "std").any(|path| !is_allowed(path))
}

#[test]
fn a_way_is_found() {
    for way in [
        "use std::{fs, thread};",
        "use std::fs;",
        "let x = ::std::env::var(name);",
        "use std as lib;",
        "use std::net::{Ipv4Addr, TcpStream};",
        "use rustix as r;",
        "connect::send_order(path, order, timeout)",
    ] {
        assert!(is_way(way), "{way}");
    }
    for other in [
        "use std::io::{self, Read};",
        "use crate::platform::os::mio::Poll;",
        "use crate::platform::os::net::{connect, send};",
        "libc::AF_INET => ipv4(rest),",
    ] {
        assert!(!is_way(other), "{other}");
    }
}

/// The compiler refuses it, unless a file allows it.
#[test]
fn two_files_may_be_unsafe() {
    let folders = ["src", "crates", "bench", "fuzz"];
    let mut files: Vec<_> = folders.iter().flat_map(|f| source_files(&top().join(f))).collect();
    let forbids = "#![forbid(unsafe_code)]";
    files.retain(|file| {
        let source = fs::read_to_string(file).expect("a source");
        source.replace(forbids, "").contains("unsafe_code")
    });
    files.sort();
    let allowed = ["crates/command/src/unsafe_calls.rs", "src/platform/sys.rs"];
    assert_eq!(files, allowed.map(|path| top().join(path)));
}
