//! The daemon reaches the kernel by one way, `platform/os.rs` and `platform/sys.rs`, which the
//! simulation replaces; two files may be unsafe.

use crate::files::{source_files, top};
use crate::source::shipped_lines;
use std::fs;

const WAYS: [&str; 13] = [
    "rustix::",
    "mio::",
    "libc::",
    "std::fs",
    "std::env",
    "std::thread",
    "std::os::",
    "std::process::",
    "std::net::Tcp",
    "std::net::Udp",
    "io::stdin",
    "io::stdout",
    "io::stderr",
];

/// The ways themselves, and what runs before the daemon starts or when it can't.
const MAY: [&str; 4] = ["os.rs", "sys.rs", "advice.rs", "poolcounterd.rs"];

/// Plain data; `--reload`; a snapshot that an operator pipes in.
const EXCEPTIONS: [&str; 6] = [
    "libc::AF_",
    "std::os::unix::ffi::",
    "std::os::unix::process::ExitStatusExt",
    "std::process::ExitStatus",
    "std::os::unix::net::UnixStream",
    "io::stdin().lock().read_to_end",
];

#[test]
fn the_daemon_reaches_the_kernel_by_one_way() {
    let mut found = Vec::new();
    for file in source_files(&top().join("src")) {
        if MAY.iter().any(|name| file.ends_with(name)) {
            continue;
        }
        for line in shipped_lines(&file) {
            let is_excepted = EXCEPTIONS.iter().any(|exception| line.contains(exception));
            if WAYS.iter().any(|way| is_way(&line, way)) && !is_excepted {
                found.push(format!("{}: {line}", file.display()));
            }
        }
    }
    assert_eq!(found, [""; 0]);
}

/// A path of this crate that ends like `way` is none.
fn is_way(line: &str, way: &str) -> bool {
    line.match_indices(way).any(|(at, _)| {
        let before = line[..at].trim_start_matches("use ::");
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

/// The compiler refuses it, unless a file allows it.
#[test]
fn two_files_may_be_unsafe() {
    let folders = ["src", "crates"];
    let mut files: Vec<_> = folders.iter().flat_map(|f| source_files(&top().join(f))).collect();
    files.retain(|file| fs::read_to_string(file).is_ok_and(|s| s.contains("allow(unsafe_code")));
    files.sort();
    let allowed = ["crates/command/src/unsafe_calls.rs", "src/platform/sys.rs"];
    assert_eq!(files, allowed.map(|path| top().join(path)));
}
