//! Reads Rust sources for these tests: files, tokens, names.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};

/// A path like `std::io::Read` in the source, or a single name.
pub(crate) type NamePath = Vec<String>;

/// The folder of the workspace.
pub(crate) fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every .rs file in `dir` and below it.
pub(crate) fn source_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = files_in(dir);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files
}

/// The file itself, or every file in the folder and below it.
pub(crate) fn files_in(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    paths.filter(|path| !path.is_symlink()).flat_map(|path| files_in(&path)).collect()
}

/// All names in Rust source, with `a::{b, c::d}` as `a::b` and `a::c::d`. Comments, literals
/// and tests do not count.
pub(crate) fn paths_in(source: &str) -> Vec<NamePath> {
    let mut paths = Vec::new();
    collect_paths(without_tests(tokens_of(source)), &[], &mut paths);
    paths
}

pub(crate) fn tokens_of(source: &str) -> TokenStream {
    source.parse().expect("the compiler has accepted it")
}

/// `prefix` precedes all of them: the path in front of a list in braces.
fn collect_paths(tokens: TokenStream, prefix: &[String], paths: &mut Vec<NamePath>) {
    let mut path = NamePath::new();
    let mut is_after_colons = false;
    for token in tokens {
        let continues = std::mem::take(&mut is_after_colons);
        match token {
            // The first colon of `::` is joined to the second one.
            TokenTree::Punct(punct)
                if punct.as_char() == ':' && (continues || punct.spacing() == Spacing::Joint) =>
            {
                is_after_colons = true;
            }
            TokenTree::Ident(name) => {
                if !continues {
                    finish(&mut path, prefix, paths);
                }
                path.push(name.to_string().trim_start_matches("r#").to_owned());
            }
            TokenTree::Group(list) if continues => {
                let prefix = [prefix, &std::mem::take(&mut path)].concat();
                collect_paths(list.stream(), &prefix, paths);
            }
            TokenTree::Group(group) => {
                // `pub(in crate)` names its users, not what it uses.
                let is_visibility = path == ["pub"] && group.delimiter() == Delimiter::Parenthesis;
                finish(&mut path, prefix, paths);
                if !is_visibility {
                    collect_paths(group.stream(), &[], paths);
                }
            }
            _ => finish(&mut path, prefix, paths),
        }
    }
    finish(&mut path, prefix, paths);
}

fn finish(path: &mut NamePath, prefix: &[String], paths: &mut Vec<NamePath>) {
    if !path.is_empty() {
        paths.push([prefix, &std::mem::take(path)].concat());
    }
}

/// The tokens without items under `#[cfg(test)]`.
fn without_tests(tokens: TokenStream) -> TokenStream {
    let mut left = Vec::new();
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(attribute) if is_cfg_test(&attribute) => {
                // The `#` in front of it.
                left.pop();
                let ends = |token: &TokenTree| is_brace(token) || is_punct(token, ';');
                tokens.find(ends);
            }
            token => left.push(token),
        }
    }
    left.into_iter().collect()
}

fn is_cfg_test(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket
        && group.stream().to_string().replace(' ', "") == "cfg(test)"
}

pub(crate) fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_brace(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}
