//! The index in each `lib.rs` matches the sources: each file with the first sentence of its
//! page and its largest items. `UPDATE=1 cargo test --test house index` writes it again.

use crate::source::{SOURCES, is_brace, is_punct, source_files, tokens_of, top, without_tests};
use proc_macro2::{TokenStream, TokenTree};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;

/// How many items of a file the index names. Names that two files have are left out.
const ITEMS_MAX: usize = 8;

/// The last line in front of the rows, behind the marker of a comment.
const HEAD: &str = " |---|---|---|\n";

struct IndexedFile {
    /// Without `.rs`, so that a page precedes its folder.
    path: String,
    sentence: String,
    items: Vec<Item>,
}

struct Item {
    name: String,
    is_type: bool,
    lines: usize,
}

#[test]
fn the_index_is_what_the_sources_say() {
    let mut crates = SOURCES.map(files_of);
    keep_unique_names(&mut crates);
    for (source, files) in SOURCES.iter().zip(&crates) {
        assert!(files.len() > 30, "{source}: {}", files.len());
        let path = top().join(source).join("lib.rs");
        let text = fs::read_to_string(&path).expect("the source can be read");
        let (before, rows) = text.rsplit_once(HEAD).expect("an index");
        let comment = before.rsplit('\n').next().expect("a split has a part");
        let after = rows.split_inclusive('\n').skip_while(|line| line.starts_with("//"));
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
    let names: Vec<String> = file.items.iter().map(|item| format!("`{}`", item.name)).collect();
    format!("{comment} | `{}` | {} | {} |\n", file.path, file.sentence, names.join(", "))
}

/// All files of a crate but `lib.rs`, programs and tests.
fn files_of(source: &str) -> Vec<IndexedFile> {
    let folder = top().join(source);
    let is_indexed =
        |path: &str| path != "lib" && !path.starts_with("bin/") && !path.ends_with("tests");
    let mut files: Vec<IndexedFile> = Vec::new();
    for file in source_files(&folder) {
        let path = file.strip_prefix(&folder).expect("a file of the folder").with_extension("");
        let path = path.to_str().expect("text").to_owned();
        if is_indexed(&path) {
            let text = fs::read_to_string(&file).expect("the source can be read");
            let items = items_in(without_tests(tokens_of(&text)));
            files.push(IndexedFile { path, sentence: first_sentence(&text), items });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// Of each file, keeps the largest items that no other file has.
fn keep_unique_names(crates: &mut [Vec<IndexedFile>]) {
    let mut files_by_name = BTreeMap::<String, usize>::new();
    for item in crates.iter().flatten().flat_map(|file| &file.items) {
        *files_by_name.entry(item.name.clone()).or_default() += 1;
    }
    for file in crates.iter_mut().flatten() {
        file.items.retain(|item| files_by_name[&item.name] == 1);
        let mut largest: Vec<usize> = (0..file.items.len()).collect();
        largest.sort_by_key(|&at| Reverse(size(&file.items[at])));
        largest.truncate(ITEMS_MAX);
        let mut places = 0..;
        file.items.retain(|_| places.next().is_some_and(|at| largest.contains(&at)));
    }
}

/// Types are larger than functions and constants: they are what the file is about.
fn size(item: &Item) -> (bool, usize) {
    (item.is_type, item.lines)
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

/// The items that `tokens` declare, each name once; the outer ones first.
fn items_in(tokens: TokenStream) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    collect_items(tokens, &mut items);
    let mut merged: Vec<Item> = Vec::new();
    for item in items {
        match merged.iter_mut().find(|known| known.name == item.name) {
            Some(known) => known.lines += item.lines,
            None => merged.push(item),
        }
    }
    merged
}

fn collect_items(tokens: TokenStream, items: &mut Vec<Item>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, pair) in tokens.windows(2).enumerate() {
        // `*const T` and `'static str` declare nothing.
        let follows_punct =
            at > 0 && matches!(&tokens[at - 1], TokenTree::Punct(p) if p.as_char() != ';');
        if let ([TokenTree::Ident(kind), TokenTree::Ident(name)], false) = (pair, follows_punct) {
            let (kind, first) = (kind.to_string(), name.span().start().line);
            let is_type = ["struct", "enum", "trait"].contains(&kind.as_str());
            let is_item = is_type || ["fn", "const", "static"].contains(&kind.as_str());
            let name = name.to_string();
            if is_item && !["fn", "unsafe", "mut", "_"].contains(&name.as_str()) {
                let end = tokens[at..].iter().find(|token| is_brace(token) || is_punct(token, ';'));
                let last = end.map_or(first, |end| end.span().end().line);
                items.push(Item { name, is_type, lines: last - first + 1 });
            }
        }
    }
    for token in tokens {
        if let TokenTree::Group(group) = token {
            collect_items(group.stream(), items);
        }
    }
}

#[test]
fn items_are_found() {
    let source = "pub(crate) struct A {\n    b: *const u8,\n}\nimpl A {\n    pub const fn c() {}\n}\n\
                  const D: &'static str = \"\";\nfn f<const N: usize>() {\n}\nconst _: () = ();\n";
    let found: Vec<(String, bool, usize)> = items_in(tokens_of(source))
        .into_iter()
        .map(|item| (item.name, item.is_type, item.lines))
        .collect();
    let expected = [("A", true, 3), ("D", false, 1), ("f", false, 2), ("c", false, 1)];
    assert_eq!(found, expected.map(|(name, is_type, lines)| (name.to_owned(), is_type, lines)));
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
