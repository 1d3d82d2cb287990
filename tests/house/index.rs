//! The index in each `lib.rs` matches the sources: each file with the first sentence of its
//! page and its names. `UPDATE=1 cargo test --test house index` writes it again.

use crate::source::{SOURCES, source_files, tokens_of, top, without_tests};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::fs;

/// The last line in front of the rows, behind the marker of a comment.
const HEAD: &str = " |---|---|---|\n";

struct IndexedFile {
    /// Without `.rs`, so that a page precedes its folder.
    path: String,
    sentence: String,
    names: Vec<String>,
}

#[test]
fn the_index_is_what_the_sources_say() {
    for source in SOURCES {
        let mut files = files_of(source);
        keep_unique_names(&mut files);
        assert!(files.len() > 30, "{source}: {}", files.len());
        let path = top().join(source).join("lib.rs");
        let text = fs::read_to_string(&path).expect("the source can be read");
        let (before, rows) = text.rsplit_once(HEAD).expect("an index");
        let comment = before.rsplit('\n').next().expect("a split has a part");
        let is_row = |line: &&str| line.starts_with(&format!("{comment} |"));
        let after = rows.split_inclusive('\n').skip_while(is_row);
        let index: String = files.iter().map(|file| row(comment, file)).collect();
        let written = format!("{before}{HEAD}{index}{}", after.collect::<String>());
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, written).expect("write the index");
        } else {
            let how = "UPDATE=1 cargo test --test house index";
            assert!(text == written, "{}: {how} writes the index as\n\n{index}", path.display());
        }
    }
}

fn row(comment: &str, file: &IndexedFile) -> String {
    let names: Vec<String> = file.names.iter().map(|name| format!("`{name}`")).collect();
    format!("{comment} | `{}` | {} | {} |\n", file.path, file.sentence, names.join(", "))
}

/// All files of a crate but `lib.rs`, programs and tests.
fn files_of(source: &str) -> Vec<IndexedFile> {
    let folder = top().join(source);
    let is_indexed =
        |path: &str| path != "lib" && !path.starts_with("bin/") && !path.ends_with("/tests");
    let mut files: Vec<IndexedFile> = Vec::new();
    for file in source_files(&folder) {
        let path = file.strip_prefix(&folder).expect("a file of the folder").with_extension("");
        let path = path.to_str().expect("text").to_owned();
        if is_indexed(&path) {
            let text = fs::read_to_string(&file).expect("the source can be read");
            let names = names_in(without_tests(tokens_of(&text)));
            files.push(IndexedFile { path, sentence: first_sentence(&text), names });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// Leaves out the names that several files of the crate have.
fn keep_unique_names(files: &mut [IndexedFile]) {
    let mut files_by_name = BTreeMap::<String, usize>::new();
    for name in files.iter().flat_map(|file| &file.names) {
        *files_by_name.entry(name.clone()).or_default() += 1;
    }
    for file in files {
        file.names.retain(|name| files_by_name[name] == 1);
    }
}

/// The first sentence of a file's page, without its full stop.
fn first_sentence(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//! "));
    let page = lines.collect::<Vec<_>>().join(" ");
    let begins = |rest: &str| rest.starts_with(|c: char| c.is_uppercase() || "`[<".contains(c));
    let end = page.match_indices(". ").find(|(at, stop)| begins(&page[at + stop.len()..]));
    let sentence = page[..end.map_or(page.len(), |(at, _)| at)].trim_end_matches('.');
    // The link would mean another item where the index stands.
    sentence.replace("[`", "`").replace("`]", "`")
}

/// The names of the types, functions and constants that `tokens` declare, each once.
fn names_in(tokens: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    collect_names(tokens, &mut names);
    names
}

fn collect_names(tokens: TokenStream, names: &mut Vec<String>) {
    const KINDS: [&str; 6] = ["struct", "enum", "trait", "fn", "const", "static"];
    let mut is_after_kind = false;
    let mut may_begin = true;
    for token in tokens {
        if let TokenTree::Ident(word) = &token {
            let word = word.to_string();
            let is_kind = KINDS.contains(&word.as_str());
            let is_name = is_after_kind && !is_kind && !["unsafe", "mut", "_"].contains(&&*word);
            if is_name && !names.contains(&word) {
                names.push(word);
            }
            is_after_kind = is_kind && may_begin;
        } else {
            is_after_kind = false;
        }
        // `*const T` and `'static str` declare nothing.
        may_begin = !matches!(&token, TokenTree::Punct(punct) if punct.as_char() != ';');
        if let TokenTree::Group(group) = token {
            collect_names(group.stream(), names);
        }
    }
}

#[test]
fn declared_names_are_found() {
    let source = "pub(crate) struct A {\n    b: *const u8,\n}\nimpl A {\n    pub const fn c() {}\n}\n\
                  const D: &'static str = \"\";\nfn f<const N: usize>() {\n    const E: u8 = 0;\n}\n\
                  impl C {\n    fn c() {}\n}\nconst _: () = ();\n";
    assert_eq!(names_in(tokens_of(source)), ["A", "c", "D", "f", "E"]);
}

#[test]
fn the_first_sentence_ends_before_the_next_one() {
    for (text, expected) in [
        ("//! One. Two.\n", "One"),
        (
            "//! As flock(1):\n//! e. g. this. `This` not.\n//!\n//! Nor this.\n",
            "As flock(1): e. g. this",
        ),
        ("use a;\n", ""),
    ] {
        assert_eq!(first_sentence(text), expected);
    }
}
