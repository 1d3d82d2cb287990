//! A type name means one thing within a crate.

use crate::source::{SOURCES, source_files, top};
use std::collections::BTreeMap;
use std::fs;

#[test]
fn type_names_are_unique_in_a_crate() {
    for source in SOURCES {
        let mut files_by_name = BTreeMap::<String, Vec<String>>::new();
        for file in source_files(&top().join(source)) {
            let text = fs::read_to_string(&file).expect("the source can be read");
            for name in types_in(&text) {
                files_by_name.entry(name).or_default().push(file.display().to_string());
            }
        }
        assert!(files_by_name.len() > 30, "{files_by_name:?}");
        files_by_name.retain(|_, files| files.len() > 1);
        assert!(files_by_name.is_empty(), "{files_by_name:#?}");
    }
}

/// The types that a formatted source declares outside of functions and test modules.
fn types_in(text: &str) -> Vec<String> {
    let declared = |line: &str| {
        let item = match line.strip_prefix("pub") {
            Some(rest) => match rest.strip_prefix('(') {
                Some(restricted) => restricted.split_once(") ")?.1,
                None => rest.trim_start(),
            },
            None => line,
        };
        let (kind, rest) = item.split_once(' ')?;
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        ["struct", "enum", "trait", "type", "union"].contains(&kind).then(|| name.to_owned())
    };
    text.lines().filter_map(declared).collect()
}

#[test]
fn declarations_are_found() {
    let text = "struct A;\npub enum B<T> {\n    struct C;\npub(crate) type D = u32;\n\
                pub(in crate::engine) struct E(u8);\n/// struct F\nuse struct_g;\npub fn h() {}\n";
    assert_eq!(types_in(text), ["A", "B", "D", "E"]);
}
