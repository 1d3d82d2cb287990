//! The rule of the gate: chance decides nothing. In tests that `make test` runs, an upper
//! bound on time is `PATIENCE` and nothing else, no memory, CPU time or rate of the machine
//! is measured, and seeds are fixed. What measures is in tests/load.
//!
//! This finds what tokens show: times compared in one function, deadlines, names. It does
//! not see that a wait of a daemon must not run out before a test continues.

use crate::source::{is_cfg_test, is_punct, source_files, tokens_of, top};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Not in the gate, or of the rule itself.
const LEFT_OUT: [&str; 3] = ["tests/load", "tests/browser", "tests/house/gate.rs"];

/// The one upper bound.
const PATIENCE: [&str; 2] = ["PATIENCE", "PATIENCE_S"];

/// What measures the machine, or differs each day.
const MEASURES: [&str; 13] = [
    "RssAnon",
    "VmRSS",
    "VmHWM",
    "Private_Dirty",
    "private_bytes",
    "smaps",
    "schedstat",
    "cpu_time",
    "ThreadCPUTime",
    "getrusage",
    "seed_of_the_day",
    "SystemTime",
    "UNIX_EPOCH",
];

/// Methods that give up when their time is over.
const GIVE_UP: [&str; 7] = [
    "set_read_timeout",
    "set_write_timeout",
    "connect_timeout",
    "next_line",
    "recv_timeout",
    "wait_timeout",
    "poll",
];

/// File, part of the finding, and the reason why it is allowed.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("src/server/kernel/process_usage.rs", "VmRSS", "a line that the test itself has written"),
    ("tests/daemon/command_line.rs", "from_millis (500)", "how often a server sends something"),
    ("tests/simulation/explore.rs", "seed_of_the_day", "only with SERVER_SIM_SEEDS"),
    ("tests/simulation/world/files.rs", "VmRSS", "a file of the simulated kernel"),
    ("tests/support/crowd.rs", "smaps", "tests/load measures"),
    ("tests/support/crowd.rs", "Private_Dirty", "tests/load measures"),
    ("tests/support/crowd.rs", "private_bytes", "tests/load measures"),
    ("tests/support/mod.rs", "cpu_time", "tests/load and the browser's tests measure"),
    ("tests/support/random.rs", "seed_of_the_day", "`make simulate` asks for it"),
    ("tests/support/random.rs", "SystemTime", "seed_of_the_day"),
    ("tests/support/random.rs", "UNIX_EPOCH", "seed_of_the_day"),
];

#[test]
fn chance_decides_nothing_in_the_gate() {
    let mut used = BTreeSet::new();
    let mut found = Vec::new();
    for file in files() {
        let path = file.strip_prefix(top()).expect("a file of the workspace").to_owned();
        let path = path.to_str().expect("text");
        for (line, what) in findings_in(&fs::read_to_string(&file).expect("a source"), path) {
            let excepted =
                EXCEPTIONS.iter().position(|(file, part, _)| *file == path && what.contains(part));
            match excepted {
                Some(exception) => drop(used.insert(exception)),
                None => found.push(format!("{path}:{line}: {what}")),
            }
        }
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
    let unused: Vec<_> = (0..EXCEPTIONS.len()).filter(|n| !used.contains(n)).collect();
    assert!(unused.is_empty(), "no longer needed: {:?}", unused.iter().map(|&n| EXCEPTIONS[n]));
}

/// Test sources, and sources with tests in them.
fn files() -> Vec<PathBuf> {
    let folders = ["tests", "client/tests", "src", "client/src"];
    let mut files: Vec<PathBuf> =
        folders.iter().flat_map(|folder| source_files(&top().join(folder))).collect();
    files.retain(|file| !LEFT_OUT.iter().any(|path| file.starts_with(top().join(path))));
    files.sort();
    assert!(files.len() > 100, "only {files:?} were found");
    files
}

/// Lines and what is wrong with them. Of a source of the daemon or the command, only what
/// is under `#[cfg(test)]` counts.
fn findings_in(source: &str, path: &str) -> Vec<(usize, String)> {
    let all = tokens_of(source);
    let is_shipped = path.starts_with("src/") || path.starts_with("client/src/");
    let is_of_tests = Path::new(path).file_stem().is_some_and(|name| name == "tests");
    let judged = if is_shipped && !is_of_tests { only_tests(all) } else { all };
    let mut found = Vec::new();
    find_names(judged.clone(), &mut found);
    find_bounds(judged.clone(), &mut Timed::of(judged), &mut found);
    found.sort();
    found.dedup();
    found
}

/// Items under `#[cfg(test)]`, at any depth.
fn only_tests(tokens: TokenStream) -> TokenStream {
    let mut tests = Vec::new();
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(attribute) if is_cfg_test(&attribute) => {
                for token in tokens.by_ref() {
                    let ends = is_braces(&token) || is_punct(&token, ';');
                    tests.push(token);
                    if ends {
                        break;
                    }
                }
            }
            TokenTree::Group(group) => tests.extend(only_tests(group.stream())),
            _ => {}
        }
    }
    tests.into_iter().collect()
}

fn is_braces(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

fn line_of(token: &TokenTree) -> usize {
    token.span().start().line
}

/// Whether any token, at any depth, is one of these names.
fn names_one(tokens: &[TokenTree], is_it: &dyn Fn(&str) -> bool) -> bool {
    tokens.iter().any(|token| match token {
        TokenTree::Ident(ident) => is_it(&ident.to_string()),
        TokenTree::Group(group) => names_one(&tokens_in(group.stream()), is_it),
        _ => false,
    })
}

fn tokens_in(stream: TokenStream) -> Vec<TokenTree> {
    stream.into_iter().collect()
}

fn find_names(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    for token in tokens {
        let text = match &token {
            TokenTree::Group(group) if is_comment(group) => continue,
            TokenTree::Group(group) => {
                find_names(group.stream(), found);
                continue;
            }
            TokenTree::Ident(ident) => ident.to_string(),
            // Names in /proc occur in text; those of Rust do not.
            TokenTree::Literal(literal) => {
                literal.to_string().replace("SystemTime", "").replace("UNIX_EPOCH", "")
            }
            TokenTree::Punct(_) => continue,
        };
        for name in MEASURES.iter().filter(|name| text.contains(*name)) {
            found.push((line_of(&token), format!("measures with {name}")));
        }
    }
}

/// `[doc = "…"]`, which a doc comment becomes.
fn is_comment(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket
        && group.stream().into_iter().next().is_some_and(|first| is_ident(&first, "doc"))
}

/// Names in one file for how long something took.
struct Timed {
    names: BTreeSet<String>,
    /// Functions that return such a time.
    functions: BTreeSet<String>,
}

impl Timed {
    fn of(tokens: TokenStream) -> Self {
        let mut timed = Timed { names: BTreeSet::new(), functions: BTreeSet::new() };
        timed.collect_functions(&tokens_in(tokens));
        timed
    }

    /// `fn took(…) -> Duration { … elapsed() … }`
    fn collect_functions(&mut self, tokens: &[TokenTree]) {
        for (n, token) in tokens.iter().enumerate() {
            if let TokenTree::Group(group) = token {
                self.collect_functions(&tokens_in(group.stream()));
            }
            let [TokenTree::Ident(keyword), TokenTree::Ident(name), rest @ ..] = &tokens[n..]
            else {
                continue;
            };
            let Some(body) = rest.iter().position(|t| is_braces(t) || is_punct(t, ';')) else {
                continue;
            };
            let returns_time = names_one(&rest[..body], &|name| name == "Duration");
            let measures = names_one(&rest[body..=body], &|name| name == "elapsed");
            if keyword == "fn" && returns_time && measures {
                self.functions.insert(name.to_string());
            }
        }
    }

    fn is_in(&self, tokens: &[TokenTree]) -> bool {
        let is_it = |name: &str| {
            matches!(name, "elapsed" | "duration_since")
                || self.names.contains(name)
                || self.functions.contains(name)
        };
        // A closure or a block that uses a time need not be one itself.
        let plain = tokens.iter().take_while(|token| !is_punct(token, '|') && !is_braces(token));
        plain.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => is_it(&ident.to_string()),
            TokenTree::Group(group) => self.is_in(&tokens_in(group.stream())),
            _ => false,
        })
    }

    /// `let ms = began.elapsed().as_millis();`
    fn note_variable(&mut self, tokens: &[TokenTree]) {
        let end = tokens.iter().position(|token| is_punct(token, ';')).unwrap_or(tokens.len());
        let Some(equals) = tokens[..end].iter().position(|token| is_punct(token, '=')) else {
            return;
        };
        let value = &tokens[equals + 1..end];
        if self.is_in(value) {
            let mut names = Vec::new();
            collect_names(&tokens[1..equals], &mut names);
            self.names.extend(names);
        } else {
            for token in &tokens[1..equals] {
                self.names.remove(&token.to_string());
            }
        }
    }
}

fn collect_names(tokens: &[TokenTree], names: &mut Vec<String>) {
    for token in tokens {
        match token {
            // The type follows.
            TokenTree::Punct(punct) if punct.as_char() == ':' => return,
            TokenTree::Ident(name) => names.push(name.to_string()),
            TokenTree::Group(group) => collect_names(&tokens_in(group.stream()), names),
            _ => {}
        }
    }
}

fn find_bounds(stream: TokenStream, timed: &mut Timed, found: &mut Vec<(usize, String)>) {
    let tokens = tokens_in(stream);
    for (n, token) in tokens.iter().enumerate() {
        let rest = &tokens[n..];
        if is_ident(token, "fn") {
            timed.names.clear();
        }
        if is_ident(token, "let") {
            timed.note_variable(rest);
        }
        if let TokenTree::Group(group) = token {
            find_bounds(group.stream(), timed, found);
        }
        let what = bound_by_comparison(&tokens, n, timed)
            .or_else(|| bound_by_range(&tokens, n, timed))
            .or_else(|| deadline(rest))
            .or_else(|| gives_up(rest));
        found.extend(what.map(|what| (line_of(token), what)));
    }
}

/// `began.elapsed() < bound`, or the other way round.
fn bound_by_comparison(tokens: &[TokenTree], n: usize, timed: &Timed) -> Option<String> {
    let less = is_punct(&tokens[n], '<');
    let more = is_punct(&tokens[n], '>');
    let before = tokens[..n].last()?;
    // Arrows, shifts, and types in `::<…>`.
    if !(less || more) || ['-', '=', '<', '>', ':'].iter().any(|&c| is_punct(before, c)) {
        return None;
    }
    let equals = usize::from(tokens.get(n + 1).is_some_and(|token| is_punct(token, '=')));
    let first = (0..n).rev().find(|&n| ends_operand(tokens, n)).map_or(0, |end| end + 1);
    let left = &tokens[first..n];
    let right = n + 1 + equals..tokens.len();
    let end = right.clone().find(|&n| ends_operand(tokens, n)).unwrap_or(tokens.len());
    let right = &tokens[right.start..end];
    let (time, bound) = if less { (left, right) } else { (right, left) };
    let is_bound = timed.is_in(time) && !timed.is_in(bound) && !is_patient(bound);
    is_bound.then(|| format!("elapsed time has the bound {}", text_of(bound)))
}

fn ends_operand(tokens: &[TokenTree], n: usize) -> bool {
    let is = |n: usize, c| tokens.get(n).is_some_and(|token| is_punct(token, c));
    let words = ["let", "if", "while", "return", "match", "in"];
    [',', ';', '=', '&', '|', '!', '<', '>'].iter().any(|&c| is(n, c))
        || is_braces(&tokens[n])
        || words.iter().any(|word| is_ident(&tokens[n], word))
        // One colon, in front of a type.
        || is(n, ':') && !is(n + 1, ':') && !(n > 0 && is(n - 1, ':'))
}

/// `(a..b).contains(&elapsed)`
fn bound_by_range(tokens: &[TokenTree], n: usize, timed: &Timed) -> Option<String> {
    let [TokenTree::Group(range), dot, method, TokenTree::Group(value), ..] = &tokens[n..] else {
        return None;
    };
    let is_contains = is_punct(dot, '.') && is_ident(method, "contains");
    let range = tokens_in(range.stream());
    let dots = range.windows(2).position(|two| two.iter().all(|t| is_punct(t, '.')))?;
    let bound = &range[dots + 2..];
    let is_bound = is_contains
        && timed.is_in(&tokens_in(value.stream()))
        && !bound.is_empty()
        && !is_patient(bound);
    is_bound.then(|| format!("elapsed time has the bound {}", text_of(bound)))
}

/// `Instant::now() + bound`
fn deadline(tokens: &[TokenTree]) -> Option<String> {
    let [instant, c1, c2, now, TokenTree::Group(_), plus, rest @ ..] = tokens else {
        return None;
    };
    let is_sum = is_ident(instant, "Instant")
        && is_punct(c1, ':')
        && is_punct(c2, ':')
        && is_ident(now, "now")
        && is_punct(plus, '+');
    let bound = &rest[..rest.iter().position(ends_sum).unwrap_or(rest.len())];
    let is_bound = is_sum && !is_patient(bound) && is_constant(bound);
    is_bound.then(|| format!("there is a deadline after {}", text_of(bound)))
}

fn ends_sum(token: &TokenTree) -> bool {
    [';', ',', '<', '>', '='].iter().any(|&c| is_punct(token, c)) || is_braces(token)
}

/// `stream.set_read_timeout(Some(bound))`
fn gives_up(tokens: &[TokenTree]) -> Option<String> {
    let [TokenTree::Ident(method), TokenTree::Group(arguments), ..] = tokens else {
        return None;
    };
    let arguments = tokens_in(arguments.stream());
    let is_bound = GIVE_UP.iter().any(|name| method == name)
        && is_constant(&arguments)
        && !is_patient(&arguments)
        && !names_one(&arguments, &|name| name == "ZERO");
    is_bound.then(|| format!("{method} gives up after {}", text_of(&arguments)))
}

/// Not what a caller passes: its own bound is judged where it is made.
fn is_constant(tokens: &[TokenTree]) -> bool {
    let of_duration = ["from_secs", "from_millis", "from_micros", "from_secs_f64", "from_mins"];
    let is_upper = |name: &str| {
        let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        name.len() > 1 && name.chars().all(upper)
    };
    names_one(tokens, &|name| of_duration.contains(&name) || is_upper(name))
}

/// It is `PATIENCE`, or a multiple.
fn is_patient(bound: &[TokenTree]) -> bool {
    let is_less = |name: &str| ["min", "mul_f32", "mul_f64", "div_f32", "div_f64"].contains(&name);
    names_one(bound, &|name| PATIENCE.contains(&name))
        && !names_one(bound, &is_less)
        && !divides(bound)
}

/// Whether anything is divided or subtracted, at any depth.
fn divides(tokens: &[TokenTree]) -> bool {
    tokens.iter().any(|token| match token {
        TokenTree::Group(group) => divides(&tokens_in(group.stream())),
        token => is_punct(token, '/') || is_punct(token, '-'),
    })
}

fn text_of(tokens: &[TokenTree]) -> String {
    tokens.iter().cloned().collect::<TokenStream>().to_string()
}

#[test]
fn bounds_are_caught() {
    for bad in [
        "fn f() { assert!(began.elapsed() < Duration::from_secs(5), \"x\"); }",
        "fn f() { assert!(began.elapsed().as_secs() <= 5); }",
        "fn f() { assert!(5 > began.elapsed().as_secs()); }",
        "fn f() { let took = began.elapsed(); assert!(took < SOON); }",
        "fn f() { let took = began.elapsed(); let ms = took.as_millis(); assert!(ms < 9); }",
        "fn f() { let (a, took) = (1, began.elapsed()); if took < SOON { g() } }",
        "fn f() { let ms = began.elapsed().as_millis(); assert!((700..900).contains(&ms)); }",
        "fn f() { assert!(began.elapsed() < PATIENCE / 10); }",
        "fn f() { assert!(began.elapsed() < (PATIENCE / 10)); }",
        "fn f() { assert!(began.elapsed() < PATIENCE.min(SOON)); }",
        "fn f() { assert!(Instant::now().duration_since(began) < SOON); }",
        "fn f() { stream.set_read_timeout(Some(PATIENCE / 100)) }",
        "fn f() { assert!(private_bytes(&server) < 5_000_000); }",
        "fn took() -> Duration { g(); began.elapsed() } fn f() { assert!(took() < SOON) }",
        "fn f() { while a && began.elapsed() < SECONDS_AT_MOST { g() } }",
        "fn f() { let deadline = Instant::now() + Duration::from_secs(5); }",
        "fn f() { let deadline = std::time::Instant::now() + SOON; }",
        "fn f() { stream.set_read_timeout(Some(Duration::from_millis(300))) }",
        "fn f() { client.next_line(SOON); }",
        "fn f() { status_number(pid, \"VmRSS:\"); }",
        "fn f() { server.cpu_time(); }",
        "fn f() { seed.unwrap_or_else(seed_of_the_day); }",
        "fn f() { SystemTime::now(); }",
        "mod a { fn f() { assert!(2 > 1); assert!(began.elapsed() < SOON); } }",
    ] {
        assert_eq!(findings_in(bad, "client/tests/a.rs").len(), 1, "{bad}");
        assert!(findings_in(bad, "src/a.rs").is_empty(), "{bad}");
        let of_tests = format!("fn a() {{}} #[cfg(test)] mod tests {{ {bad} }}");
        assert_eq!(findings_in(&of_tests, "src/a.rs").len(), 1, "{bad}");
    }
}

#[test]
fn code_without_such_bounds_passes() {
    for good in [
        "fn f() { assert!(began.elapsed() >= Duration::from_secs(1)); }",
        "fn f() { assert!(Duration::from_secs(1) <= began.elapsed()); }",
        "fn f() { assert!(began.elapsed() < PATIENCE); }",
        "fn f() { let s = began.elapsed().as_secs_f64(); (1.0..PATIENCE.as_secs_f64()).contains(&s) }",
        "fn f() { let s = began.elapsed(); assert!((SECOND..).contains(&s)); }",
        "fn f() { let held = began.elapsed(); assert!(ours <= held); }",
        "fn f() { let n = wait_until(|| began.elapsed() > SECOND); assert!(n < 5); }",
        "fn f() { let took = began.elapsed(); } fn g(took: usize) { assert!(took < 5); }",
        "fn f() { let deadline = Instant::now() + PATIENCE; while Instant::now() < deadline {} }",
        "fn f(timeout: Duration) { let deadline = Instant::now() + timeout; }",
        "fn f() { let elapsed: Option<Duration> = None; }",
        "fn f() { stream.set_read_timeout(Some(PATIENCE)); client.next_line(left); }",
        "fn f() { client.receive(Duration::ZERO); let names = [\"SystemTime\"]; }",
        "/// VmRSS\n// began.elapsed() < SOON\nfn f() -> Vec<Duration> { \"elapsed() < SOON\" }",
    ] {
        assert_eq!(findings_in(good, "client/tests/a.rs"), [], "{good}");
    }
}
