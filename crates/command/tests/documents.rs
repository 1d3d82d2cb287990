//! The documents about the command agree with it: the man page, written by hand, and
//! the generated shell completions, which `UPDATE=1 cargo test -p poolcounter-command` writes
//! again.

#[path = "../../../tests/support/command_line.rs"]
mod command_line;

use clap::{Arg, Command};
use command_line::{completions_are_current, describes, shown_options};

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

#[test]
fn completions_have_the_subcommands_and_options() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/completions");
    completions_are_current(&mut shown_command(), folder, include_str!("run-command.bash"));
}

/// As if the cursor were behind the last word. `OFFSET n`: bash-completion completes the command
/// that begins with the nth word.
fn completed(words: &[&str], function: &str) -> String {
    let script = format!(
        r#"{function}() {{ echo "OFFSET $1${{words+ in words}}"; }}
        words=(of the shell)
        source "$0"
        COMP_WORDS=(poolcounter "$@"); COMP_CWORD=$#
        _poolcounter_or_command poolcounter "${{!#}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
        echo "${{COMPREPLY[*]}}""#
    );
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/completions/poolcounter.bash");
    let mut bash = std::process::Command::new("bash");
    let output = bash.args(["-c", &script, file]).args(words).output().expect("bash");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[test]
fn bash_completes_the_command_behind_run() {
    for function in ["_command_offset", "_comp_command_offset"] {
        for (words, offset) in [
            (&["run", "k", "--", ""][..], "OFFSET 4"),
            (&["run", "k", "--", "git", "checkout", "--", "f"], "OFFSET 4"),
            (&["-s", "a", "run", "-t", "5", "k", "--", "ls", "-"], "OFFSET 8"),
            (&["run", "--", "k", "--", "l"], "OFFSET 5"),
        ] {
            assert_eq!(completed(words, function), offset, "{words:?}");
        }
    }
    assert!(completed(&["run", "--ti"], "_command_offset").contains("--timeout"));
    assert!(completed(&["st"], "_command_offset").contains("stats"));
    // Without bash-completion, the name of the command.
    assert!(completed(&["run", "k", "--", "bas"], "another").contains("bash"));
    assert_eq!(completed(&["run", "k", "--", "ls", "--ti"], "another"), "");
}

/// Each subcommand and its own options, after those of all subcommands.
fn options(command: &mut Command) -> Vec<(String, Vec<Arg>)> {
    command.build();
    let all: Vec<Arg> = shown_options(command).cloned().collect();
    let is_own = |option: &&Arg| all.iter().all(|other| other.get_id() != option.get_id());
    let own = |command: &Command| shown_options(command).filter(is_own).cloned().collect();
    let subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    let subcommands = subcommands.map(|sub| (sub.get_name().to_owned(), own(sub)));
    [("Options of all".to_owned(), all.clone())].into_iter().chain(subcommands).collect()
}

#[test]
fn man_page_has_every_subcommand_and_option_and_no_other() {
    let page = include_str!("../../../docs/man/poolcounter.1");
    let sections = page.lines().filter_map(|line| line.strip_prefix(".Ss "));
    let all = options(&mut poolcounter_command::command());
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(sections.collect::<Vec<_>>(), names);
    for (name, options) in &all {
        let (_, section) = page.split_once(&format!("\n.Ss {name}\n")).unwrap();
        let section = section.split("\n.Ss ").flat_map(|part| part.split("\n.Sh ")).next().unwrap();
        describes(section, options);
    }
}
