//! What operators have in monitoring/, and the page at `/`: alert rules and a dashboard
//! with Debian's Prometheus, the page in Debian's Chromium.

mod alerts;
mod browser;
mod dashboard;
mod metrics;
mod page;
mod prometheus;
#[path = "../support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::http::Daemon;
use support::{PATIENCE, skip};

/// The body that answers a GET, and the head before it.
#[track_caller]
fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    // 1.0: nothing is sent in chunks.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("send");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer and the end");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// A file of the project.
fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// A program of the Prometheus that `tests/support/fetch-tools.sh` has fetched of a suite
/// of Debian.
fn tool(suite: &str, name: &str) -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/prometheus");
    let path = fetched.join(suite).join("usr/bin").join(name);
    let ran = Command::new(&path).arg("--version").output();
    if ran.is_ok_and(|output| output.status.success()) {
        return Some(path);
    }
    skip(&format!("no {name} of {suite}: run tests/support/fetch-tools.sh first"));
    None
}

/// Those of both Debians: each finds other mistakes.
fn promtools() -> impl Iterator<Item = PathBuf> {
    ["bookworm", "trixie"].into_iter().filter_map(|suite| tool(suite, "promtool"))
}
