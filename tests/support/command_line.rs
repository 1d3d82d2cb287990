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
        let more = if shell == Shell::Bash { more } else { "" };
        let generated = completions(command, shell, more);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let how = concat!("UPDATE=1 cargo test -p ", env!("CARGO_PKG_NAME"), " --test documents");
        let is_current = fs::read(&path).unwrap() == generated;
        assert!(is_current, "{} does not match the options; {how}", path.display());
    }
}

/// The completions of a shell, and `more` behind them.
pub(crate) fn completions(command: &mut Command, shell: Shell, more: &str) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let mut generated = Vec::new();
    generate(shell, command, name, &mut generated);
    generated.extend_from_slice(more.as_bytes());
    generated
}

/// What a manual page describes.
pub(crate) fn shown_options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|option| !option.is_positional() && !option.is_hide_set())
}

/// Options by purpose: each group's heading, and its options as in mdoc(7).
type Groups = Vec<(String, Vec<String>)>;

/// The heading of options that have none of their own.
pub(crate) const OPTIONS: &str = "Options";

/// A part of a manual page has the groups of --help, with these options, in this order, and no
/// other; each option names its default. Options before any heading belong to `first`.
pub(crate) fn describes(part: &str, first: &str, options: &[&Arg]) {
    assert_eq!(groups_in(part, first), groups_of(options), "the manual page, and --help");
    for option in options.iter().filter(|option| option.get_action().takes_values()) {
        let (_, text) = part.split_once(&item_of(option)).unwrap();
        let text = text.split("\n.It ").next().unwrap();
        for default in option.get_default_values().iter().filter_map(|value| value.to_str()) {
            assert!(text.contains(default), "{}: default {default}", option.get_id());
        }
    }
}

/// A heading is a subsection, or a line of its own in bold.
fn groups_in(part: &str, first: &str) -> Groups {
    let mut groups = vec![(first.to_owned(), Vec::new())];
    for line in part.lines() {
        if let Some(name) = line.strip_prefix(".Ss ").or_else(|| line.strip_prefix(".Sy ")) {
            groups.push((name.to_owned(), Vec::new()));
        } else if line.starts_with(".It Fl") {
            groups.last_mut().unwrap().1.push(line.to_owned());
        }
    }
    groups.retain(|(_, items)| !items.is_empty());
    groups
}

/// As clap prints them: first the options without a heading.
fn groups_of(options: &[&Arg]) -> Groups {
    let mut groups = vec![(OPTIONS.to_owned(), Vec::new())];
    let mut options = options.to_vec();
    options.sort_by_key(|option| option.get_display_order());
    for option in options {
        let heading = option.get_help_heading().unwrap_or(OPTIONS);
        match groups.iter_mut().find(|(name, _)| name == heading) {
            Some((_, items)) => items.push(item_of(option)),
            None => groups.push((heading.to_owned(), vec![item_of(option)])),
        }
    }
    groups.retain(|(_, items)| !items.is_empty());
    groups
}

/// In a terminal of 80 columns no line of --help is longer, and what follows the options stands as it
/// is written. Of subcommands, too.
pub(crate) fn help_fits(command: &Command) {
    let mut built = command.clone().term_width(80);
    let help = built.render_long_help().to_string();
    let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
    assert_eq!(long, [""; 0], "{}", command.get_name());
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    assert!(help.contains(&after), "{}: lines below the options are too long", command.get_name());
    command.get_subcommands().for_each(help_fits);
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
