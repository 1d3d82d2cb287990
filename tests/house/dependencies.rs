//! Each dependency has a comment with its reason, and all of them may be shipped.

use crate::files::top;
use crate::source::{cargo, packages};
use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};
use std::collections::BTreeSet;

/// Licences that a binary under MIT or Apache-2.0 may contain. Ask before adding one:
/// a passing test is not a reason.
const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Unicode-3.0",
    // libFuzzer, which no shipped binary contains.
    "NCSA",
];

/// What ships, and what does not.
const WORKSPACES: [&str; 3] = ["", "bench", "fuzz"];

/// Every problem with the dependencies of a workspace.
fn trouble_with_packages(workspace: &str) -> Vec<String> {
    let packages = packages(workspace);
    assert!(packages.len() > 3, "only {} packages", packages.len());
    packages.iter().filter_map(trouble_with_package).collect()
}

fn trouble_with_package(package: &Value) -> Option<String> {
    let name = package["name"].as_str().expect("a name");
    // A package without a source is part of this repository.
    let source = package["source"].as_str()?;
    let licence = package["license"].as_str().unwrap_or("no named licence");
    if !may_be_shipped(licence) {
        return Some(format!("{name} is under {licence}"));
    }
    (!source.starts_with("registry+")).then(|| format!("{name} comes from {source}"))
}

/// Whether an SPDX expression has a choice that is entirely in [`ALLOWED`]. Old packages
/// write `/` for `OR`. An exception (`WITH`) only ever permits more.
fn may_be_shipped(expression: &str) -> bool {
    let is_allowed = |required: &LicenseReq| {
        let licence = required.license.id();
        licence.is_some_and(|id| ALLOWED.contains(&id.name))
    };
    let parsed = Expression::parse_mode(expression, ParseMode::LAX);
    parsed.is_ok_and(|expression| expression.evaluate(is_allowed))
}

/// Dependencies without a comment right above them.
fn without_reason(manifest: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut among_dependencies = false;
    let mut line_before = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            among_dependencies = line.ends_with("dependencies]");
        } else if among_dependencies && line.contains('=') && !line.starts_with('#') {
            let name = line.split_once('=').map_or(line, |(name, _)| name.trim());
            if !line_before.starts_with('#') {
                found.push(name);
            }
        }
        line_before = line;
    }
    found
}

#[test]
fn each_dependency_has_its_reason() {
    for crate_name in [
        ".",
        "crates/protocol",
        "crates/engine",
        "crates/reports",
        "crates/connect",
        "crates/client",
        "crates/command",
        "bench",
        "fuzz",
    ] {
        let manifest = std::fs::read_to_string(top().join(crate_name).join("Cargo.toml"));
        let manifest = manifest.expect("Cargo.toml");
        assert_eq!(without_reason(&manifest), [""; 0], "in {crate_name}/Cargo.toml");
    }
}

#[test]
fn each_dependency_may_be_shipped() {
    for workspace in WORKSPACES {
        assert_eq!(trouble_with_packages(workspace), [""; 0], "{workspace}");
    }
}

/// `make locks` sees to it.
#[test]
fn what_is_measured_and_fuzzed_has_the_crates_that_ship() {
    let tree = ["tree", "--locked", "--prefix", "none", "-e", "normal", "-p", "poolcounterd"];
    let [ships, measured, fuzzed] = WORKSPACES.map(|workspace| {
        let printed = String::from_utf8(cargo(workspace, &tree)).expect("text");
        printed.lines().map(|line| line.replace(" (*)", "")).collect::<BTreeSet<_>>()
    });
    assert!(ships.len() > 30, "only {} crates", ships.len());
    assert_eq!(ships, measured);
    assert_eq!(ships, fuzzed);
}

#[test]
fn licences_are_understood() {
    for good in ["Unlicense/MIT", "(MIT OR GPL-3.0-only) AND Apache-2.0 WITH LLVM-exception"] {
        assert!(may_be_shipped(good), "{good}");
    }
    for bad in ["", "GPL-2.0-or-later", "MIT AND GPL-3.0-only", "(MIT", "MIT MIT"] {
        assert!(!may_be_shipped(bad), "{bad}");
    }
}

#[test]
fn a_dependency_without_reason_is_found() {
    let manifest =
        "[dependencies]\n# why\na = \"1\"\nb = { version = \"2\" }\n\n[features]\nc = []\n";
    assert_eq!(without_reason(manifest), ["b"]);
}
