//! The documents about the command line agree with it: the man page, written by hand,
//! and the generated shell completions, which `UPDATE=1 cargo test --test
//! documents` writes again.

use clap::{Arg, Command, CommandFactory};
use clap_complete::{Shell, generate};
use poolcounterd::Options;
use std::path::{Path, PathBuf};

const NAME: &str = "poolcounterd";

fn document(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(path)
}

fn is_current(shell: Shell, path: &str) {
    let path = document(path);
    let mut generated = Vec::new();
    generate(shell, &mut shown_command(), NAME, &mut generated);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read(&path).unwrap();
    assert!(
        committed == generated,
        "{} does not match the options; UPDATE=1 cargo test --test documents",
        path.display()
    );
}

/// Without what --help hides, which clap_complete would offer.
fn shown_command() -> Command {
    let command = Options::command();
    let shown = command.get_arguments().filter(|option| !option.is_hide_set()).cloned();
    Command::new(NAME).version(env!("CARGO_PKG_VERSION")).args(shown)
}

#[test]
fn bash_completion_is_current() {
    is_current(Shell::Bash, "completions/poolcounterd.bash");
}

#[test]
fn zsh_completion_is_current() {
    is_current(Shell::Zsh, "completions/_poolcounterd");
}

#[test]
fn fish_completion_is_current() {
    is_current(Shell::Fish, "completions/poolcounterd.fish");
}

/// In mdoc(7): `.It Fl l Ar ADDRESS , Fl -listen Ar ADDRESS`, in clap's order.
fn item_of(option: &Arg) -> String {
    let value = match option.get_value_names() {
        Some([name]) if option.get_action().takes_values() => {
            let optional = option.get_num_args().is_some_and(|n| n.min_values() == 0);
            format!("{} Ar {name}", if optional { " Op" } else { "" })
        }
        _ => String::new(),
    };
    let short = option.get_short().map(|c| format!("Fl {c}{value}"));
    let long = option.get_long().map(|name| format!("Fl -{name}{value}"));
    let names: Vec<String> = [short, long].into_iter().flatten().collect();
    format!(".It {}", names.join(" , "))
}

#[test]
fn man_page_has_every_option_and_no_other() {
    let page = std::fs::read_to_string(document("man/poolcounterd.1")).unwrap();
    let in_page: Vec<&str> = page.lines().filter(|line| line.starts_with(".It Fl")).collect();
    let mut command = Options::command();
    command.build();
    let shown = |option: &&Arg| !option.is_hide_set() && !option.is_positional();
    let expected: Vec<String> = command.get_arguments().filter(shown).map(item_of).collect();
    assert_eq!(in_page, expected);
}

#[test]
fn man_page_names_every_default() {
    let page = std::fs::read_to_string(document("man/poolcounterd.1")).unwrap();
    for option in Options::command().get_arguments() {
        for default in option.get_default_values() {
            let default = default.to_str().unwrap();
            let (_, description) = page.split_once(&item_of(option)).unwrap();
            let description = description.split(".It ").next().unwrap();
            assert!(description.contains(default), "{}: default {default}", option.get_id());
        }
    }
}
