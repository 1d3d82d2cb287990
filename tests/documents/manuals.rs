//! The manual pages in docs/man: mandoc finds no mistake in them, docs/reference has what it makes of
//! them as Markdown (`make manuals`), and poolcounter.rules(5) agrees with the program.

use crate::files::{files_in, top};
use crate::skipping::skip;
use crate::text_of;
use engine::rules::rule::{RuleSettings, parse_file};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TO_MARKDOWN: &str = "docs/man/to-markdown";
const RULES: &str = "docs/man/poolcounter.rules.5";

/// Each page with its Markdown.
fn pages() -> Vec<(PathBuf, PathBuf)> {
    let mut pages = files_in(&top().join("docs/man"));
    pages.retain(|page| !page.ends_with(TO_MARKDOWN));
    assert_eq!(pages.len(), 3, "{pages:?}");
    let markdown = |page: &Path| {
        let name = page.file_name().expect("a file").to_str().expect("text");
        top().join("docs/reference").join(format!("{name}.md"))
    };
    pages.into_iter().map(|page| (page.clone(), markdown(&page))).collect()
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(top()).output().expect("the program is there")
}

/// Whether the mandoc that wrote the Markdown is installed. Without it the test is skipped.
fn has_tool() -> bool {
    let asked = run(&top().join(TO_MARKDOWN), &["--tool"]);
    if !asked.status.success() {
        skip(String::from_utf8_lossy(&asked.stdout).trim());
    }
    asked.status.success()
}

#[test]
fn mandoc_finds_no_mistake() {
    if !has_tool() {
        return;
    }
    for (page, _) in pages() {
        let page = page.to_str().expect("text");
        let lint = run(Path::new("mandoc"), &["-T", "lint", "-W", "warning", page]);
        let found = String::from_utf8_lossy(&lint.stdout);
        assert!(lint.status.success() && found.is_empty(), "{found}");
    }
}

#[test]
fn the_reference_has_the_manual_pages() {
    if !has_tool() {
        return;
    }
    for (page, markdown) in pages() {
        let made = run(&top().join(TO_MARKDOWN), &[page.to_str().expect("text")]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let is_current = fs::read(&markdown).is_ok_and(|text| text == made.stdout);
        assert!(is_current, "{} is not what `make manuals` writes", markdown.display());
    }
}

/// mandoc quotes what `.Ql` marks. One that ends too late swallows the words and marks after it.
#[test]
fn quotes_hold_no_quotes() {
    for (_, markdown) in pages() {
        let text = text_of(&markdown);
        let found = text.lines().find(|line| line.contains("'`") || line.contains("`'"));
        assert!(found.is_none(), "{}: {found:?}", markdown.display());
    }
}

/// The display in mdoc(7) that begins with this line.
fn display<'a>(page: &'a str, first: &str) -> &'a str {
    let start = format!(".Bd -literal -offset indent\n{first}");
    let at = page.find(&start).expect(first) + start.len() - first.len();
    page[at..].split_once("\n.Ed").expect("the end of the display").0
}

#[test]
fn the_example_of_rules_is_valid_and_checked_as_shown() {
    let page = text_of(&top().join(RULES));
    let example = display(&page, "# name ");
    let rules = parse_file(example.as_bytes()).expect("the example is valid");
    assert!(rules.iter().all(|rule| page.contains(&format!(".It Ql {}\n", rule.name))));

    let file = std::env::temp_dir().join(format!("rules-of-manual-{}", std::process::id()));
    fs::write(&file, example).expect("write");
    let (command, shown) =
        display(&page, "$ poolcounterd --check-rules").split_once('\n').expect("an answer");
    let keys: Vec<String> = command.split(' ').skip(4).map(str::to_owned).collect();
    let file_name = file.to_str().expect("text");
    let checked = poolcounterd::check_rules(file_name, &keys).expect("the example is valid");
    assert_eq!(checked.replace(file_name, "/etc/poolcounter/rules").trim_end(), shown);
    fs::remove_file(file).expect("remove");
}

#[test]
fn rules_5_has_every_setting() {
    let page = text_of(&top().join(RULES));
    // A setting that is added has to be named here.
    let RuleSettings { workers, max_queue, timeout_s, total, max_hold_s, stuck_after, denies } =
        RuleSettings::default();
    assert!(workers.or(max_queue).or(timeout_s).or(total).or(max_hold_s).is_none());
    assert!(stuck_after.is_none() && !denies);
    let settings = [
        "workers=N",
        "maxqueue=N",
        "timeout=TIME",
        "total=N",
        "max-hold=TIME",
        "stuck-after=TIME",
        "deny",
    ];
    for setting in settings {
        assert!(page.contains(&format!("\n.It Cm {setting}\n")), "{setting}");
    }
}
