//! Keys and patterns in documents, examples, help texts, tests and fuzz seeds are those of
//! real clients: tests/support/keys.txt. Keys that claim nothing about others, such as `k` or
//! `page:1`, and those of one's own jobs (`job:…`) are free.

use crate::files::top;
use crate::real_keys::real_keys;
use crate::{READ, text_of, texts};
use engine::rules::Rules;
use engine::rules::rule::Rule;
use std::collections::BTreeSet;

/// What operators read: each pattern in it matches a real key. The shells' completions have
/// the help texts.
const FOR_OPERATORS: [&str; 8] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "debian",
    "docs",
    "monitoring",
    "systemd",
];

/// Keys of a chosen length, the real ones, and the invented ones of this file.
const EXEMPT: [&str; 3] = ["bench", "tests/support/keys.txt", file!()];

/// Words with a star that are no patterns of keys.
const OTHER_STARS: [&str; 4] = ["*runbook_url:/s", "^ARGS.*[=", "abort-*", "poolcounter=1.*"];

/// Names in keys that anybody may use.
const FREE_NAMES: [&str; 3] = ["nowait", "test", "user_123"];

/// The names that begin keys, and those behind a wiki's id: a word with one of them and a
/// separator behind it claims to be such a key, or a pattern for it. In lower case.
fn names_in_keys() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for key in real_keys() {
        let mut parts = key.key.split([':', '-']);
        let first = parts.next().unwrap_or_default();
        let name = if is_wiki(first) { parts.next().unwrap_or_default() } else { first };
        let is_name = name.len() > 3 && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
        if is_name && !FREE_NAMES.contains(&name) {
            names.insert(name.to_lowercase());
        }
    }
    names
}

fn is_wiki(id: &str) -> bool {
    id.ends_with("wiki") || id.contains("wiki_") || id.contains("wiki?")
}

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
    for (file, text) in texts(&FOR_OPERATORS) {
        if file.extension().is_some_and(|it| it == "png" || it == "py" || it == "lintian-overrides")
        {
            continue;
        }
        let is_markdown = file.extension().is_some_and(|it| it == "md");
        let code = if is_markdown { code_in(&text) } else { text };
        let patterns: Vec<&str> = words_in(&code).filter(|word| is_pattern(word)).collect();
        found += patterns.len();
        let wrong = patterns.into_iter().filter(|pattern| !matches_a_real_key(pattern));
        unmatched.extend(wrong.map(|pattern| format!("{}: {pattern}", file.display())));
    }
    assert!(found > 20, "only {found} were found");
    assert_eq!(unmatched, [""; 0]);
}

#[test]
fn each_word_that_claims_to_be_a_clients_key_is_one() {
    let shapes = shapes();
    let names = names_in_keys();
    let mut invented = Vec::new();
    let mut found = 0;
    for (file, text) in texts(&READ) {
        if EXEMPT.iter().any(|path| file.starts_with(top().join(path))) {
            continue;
        }
        for word in words_in(&text).filter(|word| claims_to_be_real(word, &names)) {
            found += 1;
            let is_real = if word.contains('*') {
                matches_a_real_key(word)
            } else {
                shapes.contains(&shape_of(word))
            };
            if !is_real {
                invented.push(format!("{}: {word}", file.display()));
            }
        }
    }
    assert!(found > 50, "only {found} were found");
    assert_eq!(invented, [""; 0]);
}

/// What Markdown has in backticks, in blocks and in comments: its prose has stars, too.
fn code_in(markdown: &str) -> String {
    let mut code = String::new();
    let mut is_fenced = false;
    for line in markdown.lines() {
        is_fenced ^= line.starts_with("```");
        if is_fenced || line.starts_with("    ") || line.starts_with("<!--") {
            code += line;
        } else {
            code.extend(line.split('`').skip(1).step_by(2).flat_map(|part| [part, " "]));
        }
        code.push('\n');
    }
    code
}

/// The words of a text, without the punctuation around them.
fn words_in(text: &str) -> impl Iterator<Item = &str> {
    let is_between = |c: char| c.is_whitespace() || "\"'`|(),;<>".contains(c);
    let words = text.split(is_between);
    // In a program, `\t` and `\n` end a word, too.
    let words = words.flat_map(|word| word.split("\\n")).flat_map(|word| word.split("\\t"));
    let words = words.map(|word| word.trim_start_matches("--max-hold="));
    words.map(|word| without_seconds(word.trim_end_matches(['.', ':'])))
}

/// The pattern of `--max-hold PATTERN=TIME`.
fn without_seconds(word: &str) -> &str {
    let option = word.rsplit_once('=').filter(|(pattern, _)| pattern.ends_with('*'));
    option.filter(|(_, seconds)| seconds.parse::<u32>().is_ok()).map_or(word, |(it, _)| it)
}

/// Whether it is a pattern rather than an option, a file's name, arithmetic or a word of a shell.
fn is_pattern(word: &str) -> bool {
    let has_word = word.split(|c: char| !c.is_ascii_alphabetic()).any(|letters| letters.len() > 2);
    word.contains('*')
        && has_word
        && !word.contains(['$', '{', '\\'])
        && !word.starts_with(['-', '.', '/'])
        && !["**", "*::", "*/", "/*", "*.", "*-"].iter().any(|other| word.contains(other))
        && !OTHER_STARS.contains(&word)
}

fn matches_a_real_key(pattern: &str) -> bool {
    let rule = Rule::parse(&format!("rule {pattern}")).expect(pattern);
    let rules = Rules::new(vec![rule], &[]);
    let is_of_own_jobs = pattern.starts_with("job:");
    is_of_own_jobs || real_keys().iter().any(|key| !rules.matching(key.key.as_bytes()).is_empty())
}

fn claims_to_be_real(word: &str, names: &BTreeSet<String>) -> bool {
    let lower = word.to_lowercase();
    let has_name = |name: &String| {
        lower.match_indices(name.as_str()).any(|(at, name)| {
            let (before, after) = (&lower[..at], &lower[at + name.len()..]);
            let begins = before.is_empty() || before.ends_with([':', '*']);
            begins && after.starts_with([':', '-'])
        })
    };
    let is_of_wiki = lower.split_once(':').is_some_and(|(id, _)| is_wiki(id));
    let is_claim = is_of_wiki || names.iter().any(has_name);
    let is_other = lower.contains("::") || word.contains(['/', '…', '$', '[']);
    is_claim && !is_other && real_keys().iter().all(|key| key.pool != word)
}

/// Of all real keys. A word in a text has lost the colon at its end.
fn shapes() -> BTreeSet<String> {
    real_keys().iter().map(|key| shape_of(key.key.trim_end_matches(':'))).collect()
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
    // `{n}` and `{}` in a program stand for a number.
    let shape = shape.replace("{n}", "0").replace("{}", "0");
    let mut result = String::new();
    for part in shape.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_digest = word.len() >= 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
        result += if is_digest { "H" } else { word };
        result += &part[word.len()..];
    }
    numbers_as_n(&result)
}

fn numbers_as_n(text: &str) -> String {
    let mut result = String::new();
    for c in text.chars() {
        if !c.is_ascii_digit() {
            result.push(c);
        } else if !result.ends_with('N') {
            result.push('N');
        }
    }
    result
}

#[test]
fn invented_keys_and_patterns_are_found() {
    assert!(is_pattern("*:CirrusSearch-Search*") && !matches_a_real_key("*:CirrusSearch-Search*"));
    assert!(matches_a_real_key("CirrusSearch-Search:*") && matches_a_real_key("job:dumps*"));
    for word in ["**bold**", "n*64*4e-3", "target/x-*.deb", "-*", "*", "/tmp/abc*"] {
        assert!(!is_pattern(word), "{word}");
    }
    for line in
        ["a `thumbs*` b", "    x page* deny", "<!-- rules: x page* -->", "`--max-hold=page*=6`"]
    {
        let code = code_in(line);
        let patterns: Vec<&str> = words_in(&code).filter(|word| is_pattern(word)).collect();
        assert_eq!(patterns.len(), 1, "{line}");
        assert!(!matches_a_real_key(patterns[0]), "{line}");
    }
    assert_eq!(code_in("*prose* and **more**").trim(), "");
    let is_real = |word: &str| shapes().contains(&shape_of(word));
    let names = names_in_keys();
    for real in ["dewiki:pcache:idhash:1-0!userlang=de:revid:9", "enwiki:rcache:1:canonical"] {
        assert!(claims_to_be_real(real, &names) && is_real(real), "{real}");
    }
    for invented in [
        "enwiki:CirrusSearch-Search:x",
        "enwiki:page:1",
        "enwiki:pcache:1",
        "Thumbor:ip:192.0.2.1",
        "WikiLambdaFunctionCall:user:1",
        "_tmh:thumb:x",
        "ArticleView:Foo",
        "x:SpecialContributions:ip:1",
        "QueryBuildDocument:enwiki",
    ] {
        assert!(claims_to_be_real(invented, &names) && !is_real(invented), "{invented}");
    }
}

/// The table of docs/reference/keys.md.
#[test]
fn each_pool_is_in_the_table_of_patterns() {
    let table = text_of(&top().join("docs/reference/keys.md")).to_lowercase();
    // What tests send, and what each installation names itself.
    let others = ["python-poolcounter", "the C daemon's own tests"];
    for key in real_keys().iter().filter(|key| !others.contains(&key.pool)) {
        let pool = key.pool.to_lowercase();
        assert!(table.contains(&pool), "{pool} is missing");
    }
}
