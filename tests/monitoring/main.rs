//! The files in monitoring/ (alert rules and dashboard, with Debian's Prometheus), and
//! the page at `/` as it is served.

mod alerts;
mod dashboard;
mod metrics;
mod page;
mod prometheus;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::skip;

/// A program of the Prometheus that `tests/support/fetch-tools.sh` has fetched from a
/// Debian suite.
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

/// A file with operators' rules, which add counters by group.
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/monitoring/rules.txt");

/// The promtool of both Debians: each finds different mistakes.
fn promtools() -> impl Iterator<Item = PathBuf> {
    ["bookworm", "trixie"].into_iter().filter_map(|suite| tool(suite, "promtool"))
}
