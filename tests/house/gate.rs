//! The rule of the gate: chance decides nothing. No test that `make test` runs measures the
//! machine or differs each day, apart from what EXCEPTIONS name. clippy.toml keeps the daemon's
//! tests from clocks and pauses; here is who may not heed it.

use crate::files::{source_files, top};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// They measure, or name all of this.
const LEFT_OUT: [&str; 4] =
    ["tests/load", "tests/browser", "tests/house", "crates/client/examples"];

/// What measures the machine, or differs each day; and a lint that would be off.
const MEASURES: [&str; 17] = [
    "clippy::all",
    "clippy::style",
    "disallowed_methods",
    "disallowed_types",
    "RssAnon",
    "VmRSS",
    "VmHWM",
    "Private_Dirty",
    "private_bytes",
    "smaps",
    "statm",
    "schedstat",
    "cpu_time",
    "ThreadCPUTime",
    "getrusage",
    "seed_of_the_day",
    "UNIX_EPOCH",
];

/// The client and the command need these, so crates/clippy.toml can't keep their tests from them.
const CLOCKS: [&str; 2] = ["Instant", "sleep("];

/// File, name, and the reason why it is allowed.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("src/reporting/process_usage.rs", "VmRSS", "a line that the test itself has written"),
    ("tests/simulation/explore.rs", "seed_of_the_day", "only with SERVER_SIM_SEEDS"),
    ("tests/simulation/os/files.rs", "VmRSS", "a file of the simulated kernel"),
    ("tests/support/crowd.rs", "Private_Dirty", "tests/load measures"),
    ("tests/support/crowd.rs", "private_bytes", "tests/load measures"),
    ("tests/support/crowd.rs", "smaps", "tests/load measures"),
    ("tests/support/mod.rs", "cpu_time", "tests/load measures"),
    ("tests/support/random.rs", "UNIX_EPOCH", "seed_of_the_day"),
    ("tests/support/random.rs", "disallowed_types", "seed_of_the_day"),
    ("tests/support/random.rs", "seed_of_the_day", "`make simulate` asks for it"),
    ("tests/support/skipping.rs", "disallowed_methods", "stderr, for SKIPPED"),
    ("tests/support/stopwatch.rs", "disallowed_methods", "tells no test the time"),
];

#[test]
fn no_test_of_the_gate_measures() {
    let folders = ["tests", "src", "crates"];
    let mut found = BTreeSet::new();
    for file in folders.iter().flat_map(|folder| source_files(&top().join(folder))) {
        let path = file.strip_prefix(top()).expect("a file of the workspace");
        let names = MEASURES.iter().chain(CLOCKS.iter().filter(|_| path.starts_with("crates")));
        let text = tests_in(path, &fs::read_to_string(&file).expect("a source"));
        let path = path.to_str().expect("text").to_owned();
        found.extend(names.filter(|name| text.contains(*name)).map(|name| (path.clone(), *name)));
    }
    let excepted = EXCEPTIONS.iter().map(|(path, name, _)| ((*path).to_owned(), *name));
    assert_eq!(found, excepted.collect(), "what measures, and EXCEPTIONS");
}

/// The lines of a source's tests, without comments.
fn tests_in(path: &Path, source: &str) -> String {
    let is_shipped = path.components().any(|folder| folder.as_os_str() == "src");
    let tests = if LEFT_OUT.iter().any(|folder| path.starts_with(folder)) {
        ""
    } else if is_shipped && !path.ends_with("tests.rs") {
        source.split_once("#[cfg(test)]\nmod tests {").map_or("", |(_, tests)| tests)
    } else {
        source
    };
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    tests.lines().filter(|line| !is_comment(line)).collect::<Vec<_>>().join("\n")
}
