//! The manual pages in docs/man: mandoc finds no mistake in them, and poolcounter.rules(5) agrees
//! with the program. `run` beside this file executes their examples.

use crate::files::{files_in, top};
use crate::skipping::skip;
use crate::text_of;
use engine::rules::rule::parse_file;
use engine::rules::settings::SETTINGS;
use std::fs;
use std::io::ErrorKind;
use std::process::Command;

const RULES: &str = "docs/man/poolcounter.rules.5";

#[test]
fn mandoc_finds_no_mistake() {
    let pages = files_in(&top().join("docs/man"));
    assert_eq!(pages.len(), 3, "{pages:?}");
    for page in pages {
        let lint = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(page).output();
        if lint.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return skip("no mandoc: sudo apt-get install mandoc");
        }
        let lint = lint.expect("mandoc runs");
        let found = String::from_utf8_lossy(&lint.stdout);
        assert!(lint.status.success() && found.is_empty(), "{found}");
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
fn rules_5_and_the_help_of_rule_set_have_every_setting() {
    let page = text_of(&top().join(RULES));
    let help = text_of(&top().join("crates/command/src/control.rs"));
    for setting in SETTINGS {
        assert!(help.contains(setting.form), "{}", setting.form);
        let first = setting.form.split('|').next().expect("a form");
        assert!(page.contains(&format!("\n.It Cm {first}\n")), "{first}");
    }
}
