//! Compares the documents about a program's command line with the program.

use clap::{Arg, Command};
use clap_complete::{Generator, Shell, generate};
use std::fs;
use std::path::Path;

/// The shell completions in this folder are what clap_complete writes, and `more` behind those of
/// bash. With UPDATE set, it writes them there.
pub(crate) fn completions_are_current(command: &mut Command, folder: &str, more: &str) {
    let name = command.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let path = Path::new(folder).join(shell.file_name(&name));
        let mut generated = Vec::new();
        generate(shell, command, &name, &mut generated);
        if shell == Shell::Bash {
            generated.extend_from_slice(more.as_bytes());
        }
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let how = concat!("UPDATE=1 cargo test -p ", env!("CARGO_PKG_NAME"), " --test documents");
        let is_current = fs::read(&path).unwrap() == generated;
        assert!(is_current, "{} does not match the options; {how}", path.display());
    }
}

/// What a manual page describes.
pub(crate) fn shown_options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|option| !option.is_positional() && !option.is_hide_set())
}

/// A part of a manual page has these options, in this order, and no other; each names its default.
pub(crate) fn describes(part: &str, options: &[Arg]) {
    let in_page: Vec<&str> = part.lines().filter(|line| line.starts_with(".It Fl")).collect();
    let expected: Vec<String> = options.iter().map(item_of).collect();
    assert_eq!(in_page, expected);
    for option in options.iter().filter(|option| option.get_action().takes_values()) {
        let (_, text) = part.split_once(&item_of(option)).unwrap();
        let text = text.split("\n.It ").next().unwrap();
        for default in option.get_default_values().iter().filter_map(|value| value.to_str()) {
            assert!(text.contains(default), "{}: default {default}", option.get_id());
        }
    }
}

/// In mdoc(7): `.It Fl l Ar ADDRESS , Fl -listen Ar ADDRESS`, in clap's order.
fn item_of(option: &Arg) -> String {
    let value = match option.get_value_names() {
        Some([name]) if option.get_action().takes_values() => {
            let is_optional = option.get_num_args().is_some_and(|range| range.min_values() == 0);
            format!("{} Ar {name}", if is_optional { " Op" } else { "" })
        }
        _ => String::new(),
    };
    let short = option.get_short().map(|c| format!("Fl {c}{value}"));
    let long = option.get_long().map(|name| format!("Fl -{name}{value}"));
    let names: Vec<String> = [short, long].into_iter().flatten().collect();
    format!(".It {}", names.join(" , "))
}
