//! The rules of the rooms, checked in the sources: modules that decide name no I/O, clock or log;
//! the server reaches the kernel through one module. Rules for whole crates are in clippy.toml.

use crate::source::{NamePath, all_source_files, paths_in, source_files, top};
use std::fs;
use std::path::Path;

/// Logs, clocks and others that [`ways_to_the_kernel`] does not cover, anywhere in a path.
const IMPURE: &[&str] = &[
    "io",
    "sd_notify",
    "log",
    "env_filter",
    "env_logger",
    "clap",
    "serde_json",
    "Instant",
    "SystemTime",
    "UNIX_EPOCH",
    "println",
    "eprintln",
    "print",
    "eprint",
    "dbg",
    "include_bytes",
    "include_str",
];

/// One module of the daemon, one of the command.
const MAY_BE_UNSAFE: [&str; 2] = ["client/src/cli/unsafe_calls.rs", "src/server/kernel/sys.rs"];

/// What runs in the same binary, but is not the daemon: `--reload`, and a snapshot that an
/// operator pipes in.
const OTHER_PROGRAMS: [(&str, &str); 2] =
    [("control_socket.rs", "std::os::unix::net::UnixStream"), ("new_image.rs", "io::stdin")];

#[test]
fn deciding_modules_do_no_input_and_output() {
    for room in [
        "src/engine",
        "src/reports",
        "client/src/protocol",
        "client/src/conversation",
        "client/src/request",
        "client/src/cli/top/top_screen",
    ] {
        let mut files = vec![top().join(format!("{room}.rs"))];
        // A room of one file has no folder.
        let folder = top().join(room);
        if folder.exists() {
            files.extend(source_files(&folder));
        }
        for file in files {
            let found = impurities(&paths_in(&read(&file)));
            assert!(found.is_empty(), "{} names {}", file.display(), found.join(", "));
        }
    }
}

/// The compiler refuses it, unless a module allows it.
#[test]
fn unsafe_is_allowed_in_one_module_of_each_crate() {
    let mut files = all_source_files();
    files.retain(|file| read(file).contains("unsafe_code"));
    files.sort();
    assert_eq!(files, MAY_BE_UNSAFE.map(|path| top().join(path)));
}

/// `world.rs`, which the simulation replaces, is the only way to the kernel. The exceptions here
/// are of other programs than the daemon, or run only if it can't start.
#[test]
fn the_server_reaches_the_kernel_through_one_door() {
    let others = ["world.rs", "sys.rs", "advice.rs"];
    let mut files = source_files(&top().join("src/server"));
    files.retain(|file| !others.iter().any(|other| file.ends_with(other)));
    files.push(top().join("src/server.rs"));
    assert!(files.len() > 20, "only {files:?} were found");
    for file in files {
        let mut found = ways_to_the_kernel(&paths_in(&read(&file)));
        let is_other =
            |way: &str| OTHER_PROGRAMS.iter().any(|(f, w)| file.ends_with(f) && way == *w);
        found.retain(|way| !is_other(way));
        assert!(found.is_empty(), "{} names {}", file.display(), found.join(", "));
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("the source can be read")
}

/// Names that ask the kernel for something, except those of plain data.
fn ways_to_the_kernel(paths: &[NamePath]) -> Vec<String> {
    const MODULES: [&str; 6] = ["fs", "net", "env", "process", "thread", "os"];
    const DATA: [&str; 9] = [
        "IpAddr",
        "Ipv4Addr",
        "Ipv6Addr",
        "SocketAddr",
        "SocketAddrV4",
        "SocketAddrV6",
        "ExitStatus",
        "ExitStatusExt",
        "OsStringExt",
    ];
    const METHODS: [&str; 5] = ["is_file", "is_dir", "canonicalize", "read_link", "try_exists"];
    let is_way = |path: &&NamePath| {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        // A keyword may precede a path that begins with colons.
        let first = names.iter().position(|name| *name == "std").unwrap_or(0);
        match names[first..] {
            ["libc", "AF_INET" | "AF_INET6" | "AF_UNIX"] => false,
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

/// What rooms that decide must not name.
fn impurities(paths: &[NamePath]) -> Vec<String> {
    let is_impure = |path: &&NamePath| path.iter().any(|name| IMPURE.contains(&name.as_str()));
    let impure = paths.iter().filter(is_impure).map(|path| path.join("::"));
    ways_to_the_kernel(paths).into_iter().chain(impure).collect()
}

#[test]
fn ways_to_the_kernel_are_caught() {
    for bad in [
        "use std::fs;",
        "use std::fs as files;",
        "use ::std::fs;",
        "use std as s;",
        "use std::{self as s};",
        "use std::*;",
        "use std::net::{SocketAddr, TcpStream};",
        "use std::os::unix::net::UnixListener;",
        "fn f() { std :: env::var(\"A\"); }",
        "fn f() { return ::std::thread::yield_now() }",
        "fn f(path: &Path) -> bool { path.is_file() }",
        "fn f() { std::path::absolute(path); }",
        "fn f() { io::stdout().flush(); }",
        "fn f() { r#mio::Poll::new(); }",
        "fn f() -> &'static str { let c = '\"'; libc::X /* \" */ }",
    ] {
        assert_eq!(ways_to_the_kernel(&paths_in(bad)).len(), 1, "{bad}");
    }
    for good in [
        "use std::net::{IpAddr, SocketAddr}; use std::process::ExitStatus;",
        "use super::world::{env, fs}; fn f() { fs::metadata(path); }",
        "use std::io::{self, Write}; use std::os::unix::ffi::OsStringExt;",
        "use std::path::{Path, PathBuf};",
        "// use std::fs;\n/* mio::Poll /* std::net */ libc */ fn f() {}",
        "fn f() -> &'static str { r#\"\" libc::X \"# }",
        "#[cfg(test)]\nfn f() { std::fs::read(path) }",
    ] {
        assert_eq!(ways_to_the_kernel(&paths_in(good)), [""; 0], "{good}");
    }
}

#[test]
fn impurities_are_caught() {
    for bad in [
        "use std::{collections::HashMap, io::{self}};",
        "fn f(t: Instant) {}",
        "fn f() -> std::time::SystemTime { a::<u8>::now() }",
        "fn f() { log::debug!(\"x\"); }",
        "macro_rules! m { ($x:expr) => { eprintln!($x) } }",
        "fn f() { rustix::time::clock_gettime(id) }",
    ] {
        assert_eq!(impurities(&paths_in(bad)).len(), 1, "{bad}");
    }
    for good in [
        "/// `println!`\nuse std::collections::{HashMap, hash_map}; use std::hash::RandomState;",
        "fn f(a: u32) -> u32 { a.ilog2() + std::mem::take(&mut login) }",
        "use std::time::Duration; use crate::protocol::{Reply, lines};",
    ] {
        assert_eq!(impurities(&paths_in(good)), [""; 0], "{good}");
    }
}
