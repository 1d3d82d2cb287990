//! The documents about the command agree with it: the man page, written by hand, and
//! the generated shell completions, which `UPDATE=1 cargo test -p poolcounter-command` writes
//! again.

use clap::{Arg, Command};
use clap_complete::{Shell, generate};
use std::path::{Path, PathBuf};

fn document(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(path)
}

/// The command without the options that --help hides, which clap_complete would offer. A
/// hidden option replaces an option of all subcommands; the other subcommands get that
/// option here.
fn shown_command() -> Command {
    let all = poolcounter_command::command();
    let shown = all.get_subcommands().map(|subcommand| {
        let is_replaced =
            |option: &&Arg| subcommand.get_arguments().any(|own| own.get_id() == option.get_id());
        let of_all = all.get_arguments().filter(|option| !is_replaced(option));
        let options = subcommand.get_arguments().chain(of_all);
        let options = options.filter(|option| !option.is_hide_set()).cloned();
        let name: &str = subcommand.get_name().to_owned().leak();
        let about = subcommand.get_about().cloned().unwrap_or_default();
        let options: Vec<Arg> = options.map(|option| option.global(false)).collect();
        // Such as `rule set`: the options may stand behind it too.
        let inner = subcommand.get_subcommands().cloned().map(|inner| inner.args(&options));
        Command::new(name).about(about).args(&options).subcommands(inner.collect::<Vec<_>>())
    });
    let options = all.get_arguments().cloned().map(|option| option.global(false));
    let version = env!("CARGO_PKG_VERSION");
    Command::new("poolcounter").version(version).args(options).subcommands(shown)
}

fn is_current(shell: Shell, path: &str) {
    let path = document(path);
    let mut generated = Vec::new();
    generate(shell, &mut shown_command(), "poolcounter", &mut generated);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read(&path).unwrap();
    let how = "UPDATE=1 cargo test -p poolcounter-command";
    assert!(committed == generated, "{} does not match the command; {how}", path.display());
}

#[test]
fn bash_completion_is_current() {
    is_current(Shell::Bash, "completions/poolcounter.bash");
}

#[test]
fn zsh_completion_is_current() {
    is_current(Shell::Zsh, "completions/_poolcounter");
}

#[test]
fn fish_completion_is_current() {
    is_current(Shell::Fish, "completions/poolcounter.fish");
}

/// The entry of an option in mdoc(7), in clap's order.
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

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|option| !option.is_positional() && !option.is_hide_set())
}

/// Each subcommand and its own options, after those of all subcommands.
fn options(command: &mut Command) -> Vec<(String, Vec<Arg>)> {
    command.build();
    let all: Vec<Arg> = shown(command).cloned().collect();
    let is_own = |option: &&Arg| all.iter().all(|other| other.get_id() != option.get_id());
    let own = |command: &Command| shown(command).filter(is_own).cloned().collect();
    let subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    let subcommands = subcommands.map(|sub| (sub.get_name().to_owned(), own(sub)));
    [("Options of all".to_owned(), all.clone())].into_iter().chain(subcommands).collect()
}

#[test]
fn man_page_has_every_subcommand_and_option_and_no_other() {
    let page = std::fs::read_to_string(document("man/poolcounter.1")).unwrap();
    let sections = page.lines().filter_map(|line| line.strip_prefix(".Ss "));
    let all = options(&mut poolcounter_command::command());
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(sections.collect::<Vec<_>>(), names);
    for (name, options) in &all {
        let (_, section) = page.split_once(&format!("\n.Ss {name}\n")).unwrap();
        let section = section.split("\n.Ss ").flat_map(|part| part.split("\n.Sh ")).next().unwrap();
        let in_page: Vec<&str> =
            section.lines().filter(|line| line.starts_with(".It Fl")).collect();
        let expected: Vec<String> = options.iter().map(item_of).collect();
        assert_eq!(in_page, expected, "of {name}");
        for option in options {
            for default in option.get_default_values().iter().filter_map(|value| value.to_str()) {
                let is_flag = !option.get_action().takes_values();
                let (_, text) = section.split_once(&item_of(option)).unwrap();
                let text = text.split("\n.It ").next().unwrap();
                assert!(is_flag || text.contains(default), "{name}: default {default}");
            }
        }
    }
}
