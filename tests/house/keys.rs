//! Keys and patterns in documents, examples, help texts, tests and fuzz seeds are those of
//! real clients: tests/support/keys.txt. Keys that claim nothing about others, such as `k`, and
//! those of one's own jobs (`job:…`) are free.

#[path = "../support/keys.rs"]
mod support;

use crate::source::top;
use poolcounterd::engine::rules::pattern::Pattern;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use support::real_keys;

/// What operators read: each pattern in it matches a real key. The shells' completions have
/// the help texts.
const FOR_OPERATORS: [&str; 6] =
    ["README.md", "SECURITY.md", "debian/README.Debian", "docs", "monitoring", "systemd"];

/// What else names keys.
const OTHERS: [&str; 5] = ["Makefile", "client", "fuzz/seeds", "src", "tests"];

/// Parts of keys that only one client's keys have: a word with one of them claims to be such a
/// key, or a pattern for it.
const MARKS: [&str; 9] = [
    "ApiParse:",
    "CirrusSearch",
    "DPL:",
    "FileRender",
    "TranslateFetch",
    "cache:",
    "contributions:",
    "thumbor",
    "wiki:",
];

#[test]
fn each_real_key_has_a_pool_and_a_source() {
    let keys = real_keys();
    assert!(keys.len() > 60, "only {} keys", keys.len());
    let unique: BTreeSet<_> = keys.iter().map(|key| (key.pool, key.key)).collect();
    assert_eq!(unique.len(), keys.len(), "a pool has a key twice");
    for key in keys {
        // The daemon would read another key than the one that stands here.
        assert!(!key.key.contains(' ') && key.source.len() > 10, "{key:?}");
    }
}

#[test]
fn each_pattern_for_operators_matches_a_real_key() {
    let mut unmatched = Vec::new();
    let mut found = 0;
    for file in FOR_OPERATORS.iter().flat_map(|path| files_in(&top().join(path))) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let patterns: Vec<&str> = words_in(&text).filter(|word| is_pattern(word)).collect();
        found += patterns.len();
        let wrong = patterns.into_iter().filter(|pattern| !matches_a_real_key(pattern));
        unmatched.extend(wrong.map(|pattern| format!("{}: {pattern}", file.display())));
    }
    assert!(found > 20, "only {found} were found");
    assert_eq!(unmatched, [""; 0]);
}

#[test]
fn each_word_that_claims_to_be_a_clients_key_is_one() {
    let shapes: BTreeSet<String> = real_keys().iter().map(|key| shape_of(key.key)).collect();
    let mut invented = Vec::new();
    let mut found = 0;
    for file in FOR_OPERATORS.iter().chain(&OTHERS).flat_map(|path| files_in(&top().join(path))) {
        // This file has invented ones.
        let is_exempt = file.ends_with("house/keys.rs") || file.ends_with("support/keys.txt");
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for word in words_in(&text).filter(|word| !is_exempt && claims_to_be_real(word)) {
            found += 1;
            let is_real = match word.contains('*') {
                true => matches_a_real_key(word),
                false => shapes.contains(&shape_of(word)),
            };
            if !is_real {
                invented.push(format!("{}: {word}", file.display()));
            }
        }
    }
    assert!(found > 50, "only {found} were found");
    assert_eq!(invented, [""; 0]);
}

/// The words of a text, without the punctuation around them.
fn words_in(text: &str) -> impl Iterator<Item = &str> {
    let is_between = |c: char| c.is_whitespace() || "\"'`|(),;<>".contains(c);
    let words = text.split(is_between);
    // In a program, `\t` and `\n` end a word, too.
    let words = words.flat_map(|word| word.split("\\n")).flat_map(|word| word.split("\\t"));
    words.map(|word| without_seconds(word.trim_end_matches(['.', ':'])))
}

/// The pattern of `--max-hold PATTERN=SECONDS`.
fn without_seconds(word: &str) -> &str {
    let option = word.rsplit_once('=').filter(|(pattern, _)| pattern.ends_with('*'));
    option.filter(|(_, seconds)| seconds.parse::<u32>().is_ok()).map_or(word, |(it, _)| it)
}

/// Whether it is a pattern rather than Markdown's emphasis, a file's name or arithmetic.
fn is_pattern(word: &str) -> bool {
    let is_of_keys = |c: char| c.is_ascii_alphanumeric() || "*:_.-!?%~\\".contains(c);
    let has_word = |text: &str| {
        text.split(|c: char| !c.is_ascii_alphabetic()).any(|letters| letters.len() > 2)
    };
    word.contains('*')
        && !word.contains("**")
        && word.contains([':', '-'])
        && has_word(word)
        && word.chars().all(is_of_keys)
        && !word.starts_with(['-', '.'])
        // In zsh's completions.
        && !word.starts_with("*::")
}

fn matches_a_real_key(pattern: &str) -> bool {
    let pattern = Pattern::parse(pattern.as_bytes()).expect(pattern);
    let is_of_own_jobs = pattern.to_string().starts_with("job:");
    is_of_own_jobs || real_keys().iter().any(|key| pattern.matches(key.key.as_bytes()))
}

fn claims_to_be_real(word: &str) -> bool {
    let is_pool = real_keys().iter().any(|key| key.pool == word);
    MARKS.iter().any(|mark| word.contains(mark)) && !is_pool && !word.contains(['/', '…', '$', '['])
}

/// What all keys of one form have in common: any wiki's id is `W`, any options of a parser `O`,
/// any number `N`, any digest `H`.
fn shape_of(key: &str) -> String {
    let after_wiki = key.split_once(':').filter(|(id, _)| id.contains("wiki"));
    let mut shape = after_wiki.map_or(key.to_owned(), |(_, rest)| format!("W:{rest}"));
    if let Some(start) = shape.find('!') {
        let end = shape.find(":revid:").unwrap_or(shape.len());
        shape.replace_range(start..end, "!O");
    }
    let mut result = String::new();
    for part in shape.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_digest = digits.len() >= 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        result += match is_digest {
            true => "H",
            false => digits,
        };
        result += &part[digits.len()..];
    }
    numbers_as_n(&result)
}

/// `{n}` and `{}` in a program stand for a number.
fn numbers_as_n(text: &str) -> String {
    let mut result = String::new();
    for c in text.replace("{n}", "0").replace("{}", "0").chars() {
        match c.is_ascii_digit() {
            true if result.ends_with('N') => {}
            true => result.push('N'),
            false => result.push(c),
        }
    }
    result
}

/// The file itself, or every file in the folder and below it.
fn files_in(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    paths.filter(|path| !path.is_symlink()).flat_map(|path| files_in(&path)).collect()
}

#[test]
fn invented_keys_and_patterns_are_found() {
    assert!(is_pattern("*:CirrusSearch-Search*") && !matches_a_real_key("*:CirrusSearch-Search*"));
    assert!(matches_a_real_key("CirrusSearch-Search:*") && matches_a_real_key("job:dumps*"));
    for word in ["**bold**", "*emphasis*", "n*64*4e-3", "target/x-*.deb", "-*", "*"] {
        assert!(!is_pattern(word), "{word}");
    }
    let is_real = |word: &str| {
        let shapes: BTreeSet<String> = real_keys().iter().map(|key| shape_of(key.key)).collect();
        shapes.contains(&shape_of(word))
    };
    for real in ["dewiki:pcache:idhash:1-0!userlang=de:revid:9", "enwiki:rcache:1:canonical"] {
        assert!(claims_to_be_real(real) && is_real(real), "{real}");
    }
    for invented in
        ["enwiki:CirrusSearch-Search:x", "enwiki:page:1", "enwiki:pcache:1", "thumbor:ip:1"]
    {
        assert!(claims_to_be_real(invented) && !is_real(invented), "{invented}");
    }
}
