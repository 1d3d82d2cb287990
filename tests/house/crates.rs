//! What each crate may know: three are without std, so they can name no socket, file, clock or
//! thread; and each depends on what stands here.

use crate::files::{source_files, top};
use crate::source::shipped_lines;
use std::fs;

const WITHOUT_STD: [&str; 3] = ["protocol", "engine", "reports"];

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
    ("reports", &["poolcounter-engine", "poolcounter-protocol", "jiff", "serde", "serde_json"]),
    ("connect", &["rustix", "serde_json"]),
    ("client", &["poolcounter-protocol", "poolcounter-connect", "md5"]),
];

#[test]
fn pure_crates_are_without_std() {
    for name in WITHOUT_STD {
        let folder = top().join("crates").join(name).join("src");
        let page = fs::read_to_string(folder.join("lib.rs")).expect("lib.rs");
        assert!(page.contains("\n#![no_std]\n"), "{name}");
        for file in source_files(&folder) {
            let names_std = |line: &String| line.contains("extern crate std");
            assert!(!shipped_lines(&file).iter().any(names_std), "{}", file.display());
        }
    }
}

#[test]
fn each_crate_depends_on_what_it_may_know() {
    for (name, allowed) in DEPENDENCIES {
        let manifest = top().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("Cargo.toml");
        let (_, section) = manifest.split_once("\n[dependencies]\n").expect("dependencies");
        let lines = section.lines().take_while(|line| !line.starts_with('['));
        let names = lines.filter_map(|line| Some(line.split_once(" = ")?.0));
        let names: Vec<&str> = names.filter(|name| !name.starts_with('#')).collect();
        assert_eq!(names, allowed, "{name}");
    }
}
