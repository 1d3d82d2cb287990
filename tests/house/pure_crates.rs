//! The pure crates can name no socket, file, clock or thread: they are without std, and depend on
//! nothing else that could.

use crate::source::{source_files, top};
use std::fs;

/// Each pure crate, and all that it depends on.
const PURE: [(&str, &[&str]); 3] = [
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
];

#[test]
fn pure_crates_are_without_std() {
    for (name, allowed) in PURE {
        let folder = top().join("crates").join(name);
        let read = |file: &str| fs::read_to_string(folder.join(file)).expect(file);
        assert!(read("src/lib.rs").contains("\n#![no_std]\n"), "{name}");
        for file in source_files(&folder.join("src")) {
            let source = fs::read_to_string(&file).expect("a source");
            let shipped = source.split("#[cfg(test)]").next().unwrap_or_default();
            assert!(!shipped.contains("extern crate std"), "{}", file.display());
        }
        let manifest = read("Cargo.toml");
        let (_, section) = manifest.split_once("\n[dependencies]\n").expect("dependencies");
        let lines = section.lines().take_while(|line| !line.starts_with('['));
        let names = lines.filter_map(|line| Some(line.split_once(" = ")?.0));
        let names: Vec<&str> = names.filter(|name| !name.starts_with('#')).collect();
        assert_eq!(names, allowed, "{name}");
    }
}
