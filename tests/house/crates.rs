//! What each crate may know: four are without std, so they can name no socket, file, clock or
//! thread; and each depends on what stands here.

use crate::files::{source_files, top};
use crate::source::{packages, shipped_lines, words};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

const WITHOUT_STD: [&str; 4] = ["protocol", "engine", "schema", "reports"];

/// What these may ask of a dependency: nothing that needs std.
const FEATURES: [&str; 3] = ["alloc", "derive", "inline-more"];

/// All that each depends on. The command may have more.
const DEPENDENCIES: [(&str, &[&str]); 5] = [
    ("protocol", &["memchr"]),
    (
        "engine",
        &[
            "poolcounter-protocol",
            "slab",
            "hashbrown",
            "siphasher",
            "aho-corasick",
            "serde",
            "serde_bytes",
        ],
    ),
    ("schema", &["serde"]),
    (
        "reports",
        &[
            "poolcounter-engine",
            "poolcounter-protocol",
            "poolcounter-schema",
            "jiff",
            "serde",
            "serde_json",
        ],
    ),
    ("connect", &["rustix", "nix"]),
];

#[test]
fn pure_crates_are_without_std() {
    for name in WITHOUT_STD {
        let folder = top().join("crates").join(name).join("src");
        let page = fs::read_to_string(folder.join("lib.rs")).expect("lib.rs");
        assert!(page.contains("\n#![no_std]\n"), "{name}");
        for file in source_files(&folder) {
            let lines = shipped_lines(&file);
            // A source from elsewhere would be one that this test does not read.
            let is_wrong =
                |line: &&String| words(line).any(|word| word == "std") || line.contains("#[path");
            assert_eq!(lines.iter().find(is_wrong), None, "{}", file.display());
        }
    }
}

/// As cargo understands them: renamed ones, and those of one platform or of a build script.
#[test]
fn each_crate_depends_on_what_it_may_know() {
    let packages = packages("");
    for (name, allowed) in DEPENDENCIES {
        let manifest = top().join("crates").join(name).join("Cargo.toml");
        let is_it = |package: &&Value| package["manifest_path"].as_str() == manifest.to_str();
        let package = packages.iter().find(is_it).expect("a crate of the workspace");
        let dependencies = package["dependencies"].as_array().expect("a list");
        let shipped = dependencies.iter().filter(|dependency| dependency["kind"] != "dev");
        let names: BTreeSet<_> = shipped.clone().filter_map(|d| d["name"].as_str()).collect();
        assert_eq!(names, allowed.iter().copied().collect(), "{name}");
        if WITHOUT_STD.contains(&name) {
            assert_eq!(package["features"].as_object().map(|all| all.len()), Some(0), "{name}");
            let with_std: Vec<_> = shipped.filter(|dependency| may_need_std(dependency)).collect();
            assert!(with_std.is_empty(), "{name}: {with_std:#?}");
        }
    }
}

fn may_need_std(dependency: &Value) -> bool {
    let features = dependency["features"].as_array().expect("a list");
    let is_allowed = |feature: &Value| FEATURES.iter().any(|allowed| feature == allowed);
    let is_ours = dependency["path"].is_string();
    !features.iter().all(is_allowed) || (!is_ours && dependency["uses_default_features"] != false)
}
