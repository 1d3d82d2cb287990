//! In shipped sources, no file has more than 400 lines, no function more than 50, no
//! struct of the server more than ten fields. Exceptions are listed; those no longer
//! needed must be removed.

use crate::source::{all_source_files, is_brace, is_punct, tokens_of, top, without_tests};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::fs;

const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 50;
const FIELDS_MAX: usize = 10;

/// Files to shorten.
const LONG_FILES: &[&str] = &[];

/// As file and name: one of each thing that a snapshot can hold.
const LONG_FUNCTIONS: &[&str] = &["src/server/snapshot/tests.rs sample"];

/// As file and name: the command line, which has a field for each option.
const WIDE_STRUCTS: &[&str] = &["src/server/options.rs Options"];

#[test]
fn files_are_short() {
    let long = sources().filter(|(_, text)| text.lines().count() > FILE_LINES_MAX);
    assert_eq!(long.map(|(path, _)| path).collect::<Vec<_>>(), LONG_FILES);
}

#[test]
fn functions_are_short() {
    let long = sources().flat_map(|(path, text)| {
        let functions = functions_in(tokens_of(&text)).into_iter();
        let long = functions.filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        long.map(move |(name, _)| format!("{path} {name}"))
    });
    assert_eq!(long.collect::<Vec<_>>(), LONG_FUNCTIONS);
}

#[test]
fn structs_of_the_server_are_narrow() {
    let wide =
        sources().filter(|(path, _)| path.starts_with("src/server")).flat_map(|(path, text)| {
            let structs = structs_in(without_tests(tokens_of(&text))).into_iter();
            let wide = structs.filter(|(_, fields)| *fields > FIELDS_MAX);
            wide.map(move |(name, _)| format!("{path} {name}"))
        });
    assert_eq!(wide.collect::<Vec<_>>(), WIDE_STRUCTS);
}

/// Sorted paths from the top, and the files' contents.
fn sources() -> impl Iterator<Item = (String, String)> {
    let mut files = all_source_files();
    files.sort();
    files.into_iter().map(|file| {
        let text = fs::read_to_string(&file).expect("the source can be read");
        let path = file.strip_prefix(top()).expect("a file of the workspace");
        (path.to_str().expect("text").to_owned(), text)
    })
}

/// Every function that has a body, and its lines from `fn` to the closing brace.
fn functions_in(tokens: TokenStream) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (n, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            found.extend(functions_in(group.stream()));
        }
        let Some((name, TokenTree::Group(body))) = item(&tokens[n..], "fn") else {
            continue;
        };
        let lines = body.span_close().end().line - token.span().start().line + 1;
        found.push((name, lines));
    }
    found
}

/// Every struct with named fields, and how many.
fn structs_in(tokens: TokenStream) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (n, token) in tokens.iter().enumerate() {
        match (token, item(&tokens[n..], "struct")) {
            (_, Some((name, TokenTree::Group(fields)))) => {
                found.push((name, count_fields(fields.stream())));
            }
            (TokenTree::Group(group), _) if group.delimiter() == Delimiter::Brace => {
                found.extend(structs_in(group.stream()));
            }
            _ => {}
        }
    }
    found
}

/// The name and the braces of the item that begins here with `keyword`. `None` if it
/// ends in a semicolon.
fn item<'a>(tokens: &'a [TokenTree], keyword: &str) -> Option<(String, &'a TokenTree)> {
    let [TokenTree::Ident(first), TokenTree::Ident(name), rest @ ..] = tokens else {
        return None;
    };
    let end = rest.iter().find(|token| is_brace(token) || is_punct(token, ';'))?;
    (first == keyword && is_brace(end)).then(|| (name.to_string(), end))
}

/// Counts single colons: each field has one between its name and its type.
fn count_fields(tokens: TokenStream) -> usize {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_colon = |n: usize| tokens.get(n).is_some_and(|token| is_punct(token, ':'));
    (1..tokens.len()).filter(|&n| is_colon(n) && !is_colon(n - 1) && !is_colon(n + 1)).count()
}

#[test]
fn functions_and_structs_are_measured() {
    let functions = "impl A { fn a(\n) -> B {\n\nif x { }\n}\n fn d(); }\nmod m { fn b() {} }\n";
    let expected = [("a".to_owned(), 5), ("b".to_owned(), 1)];
    let mut found = functions_in(tokens_of(functions));
    found.sort();
    assert_eq!(found, expected);
    let structs = "struct A<T> { pub a: std::io::X, b: Map<C, D>, #[doc = \"x: y\"] c: &'a [u8] }\n\
        struct B(u8);\nmod m { struct C { d: E } }";
    assert_eq!(structs_in(tokens_of(structs)), [("A".to_owned(), 3), ("C".to_owned(), 1)]);
}
