//! The documents about the command agree with it: the manual page, written by hand, in which
//! options have the groups of --help, and the generated shell completions, which `UPDATE=1 cargo test -p poolcounter-command` writes
//! again.

#[path = "../../../tests/support/command_line.rs"]
mod command_line;

use clap::{Arg, Command};
use clap_complete::Shell;
use command_line::{
    OPTIONS, completions, completions_are_current, describes, help_fits, shown_options,
};
use std::io::Write;
use std::process::Stdio;

/// The command without the options that --help hides, which clap_complete would offer. A
/// hidden option replaces an option of all subcommands; the other subcommands get that
/// option here.
fn shown_command() -> Command {
    let all = poolcounter_command::command();
    let shown = all.get_subcommands().map(|subcommand| {
        let is_replaced =
            |option: &&Arg| subcommand.get_arguments().any(|own| own.get_id() == option.get_id());
        let of_all =
            all.get_arguments().filter(|option| option.is_global_set() && !is_replaced(option));
        let options = subcommand.get_arguments().chain(of_all);
        let options = options.filter(|option| !option.is_hide_set()).cloned();
        let name: &str = subcommand.get_name().to_owned().leak();
        let about = subcommand.get_about().cloned().unwrap_or_default();
        let options: Vec<Arg> = options.map(|option| option.global(false)).collect();
        // Such as `rule set`: the options may stand behind it too.
        let inner = subcommand.get_subcommands().cloned().map(|inner| inner.args(&options));
        Command::new(name).about(about).args(&options).subcommands(inner.collect::<Vec<_>>())
    });
    // Its own help and version have a heading, and so they are among the options.
    let options = all.get_arguments().cloned().map(|option| option.global(false));
    let version = env!("CARGO_PKG_VERSION");
    let command = Command::new("poolcounter").version(version).args(options).subcommands(shown);
    command.disable_help_flag(true).disable_version_flag(true)
}

/// Completes the command behind `run`.
const BEHIND_RUN: &str = include_str!("run-command.bash");

#[test]
fn completions_have_the_subcommands_and_options() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/completions");
    completions_are_current(&mut shown_command(), folder, BEHIND_RUN);
}

/// As if the cursor were behind the last word. `OFFSET n`: bash-completion completes the command
/// that begins with the nth word.
fn completed(words: &[&str], function: &str) -> String {
    let script = format!(
        r#"{function}() {{ echo "OFFSET $1${{words+ in words}}"; }}
        words=(of the shell)
        source /dev/stdin
        COMP_WORDS=(poolcounter "$@"); COMP_CWORD=$#
        _poolcounter_or_command poolcounter "${{!#}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
        echo "${{COMPREPLY[*]}}""#
    );
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", &script, "bash"]).args(words);
    let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bash");
    // Another test may be writing the file.
    let completions = completions(&mut shown_command(), Shell::Bash, BEHIND_RUN);
    bash.stdin.take().expect("a pipe").write_all(&completions).expect("bash reads them");
    let output = bash.wait_with_output().expect("bash ends");
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

const COMMON: &str = "Common options";
const OF_ORDERS: &str = "Options of orders";

fn has_heading(option: &Arg, heading: &str) -> bool {
    option.get_help_heading() == Some(heading)
}

/// The options of a subcommand and of what is below it, such as `rule set`.
fn options_below(command: &Command) -> Vec<&Arg> {
    let inner = command.get_subcommands().filter(|inner| inner.get_name() != "help");
    let inner = inner
        .flat_map(shown_options)
        .filter(|option| command.get_arguments().all(|outer| outer.get_id() != option.get_id()));
    shown_options(command).chain(inner).collect()
}

/// The text of a section, or of the subsection of a subcommand.
fn part<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).expect(heading);
    let is_end = |line: &&str| {
        line.starts_with(".Sh ") || (heading.starts_with(".Ss ") && line.starts_with(".Ss "))
    };
    let end = rest.lines().find(is_end).map_or(rest.len(), |line| {
        rest.find(&format!("\n{line}\n")).expect("the line stands there") + 1
    });
    &rest[..end]
}

#[test]
fn man_page_has_every_subcommand_and_the_options_of_help_in_its_groups() {
    let page = include_str!("../../../docs/man/poolcounter.1");
    let mut command = poolcounter_command::command();
    command.build();
    let common: Vec<&Arg> = shown_options(&command).collect();
    describes(part(page, ".Sh COMMON OPTIONS"), COMMON, &common);

    let subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    let subcommands: Vec<&Command> = subcommands.collect();
    let sections = [".Sh LOCKS", ".Sh REPORTS", ".Sh ORDERS"].map(|name| part(page, name));
    let described = sections.iter().flat_map(|part| part.lines());
    let described = described.filter_map(|line| line.strip_prefix(".Ss "));
    let names = subcommands.iter().map(|sub| sub.get_name());
    assert_eq!(described.collect::<Vec<_>>(), names.collect::<Vec<_>>());

    for subcommand in subcommands {
        let name = subcommand.get_name();
        let options = options_below(subcommand);
        assert!(options.iter().any(|option| option.get_id() == "help"), "{name}");
        let of_orders: Vec<&Arg> =
            options.iter().copied().filter(|option| has_heading(option, OF_ORDERS)).collect();
        let is_order = sections[2].contains(&format!(".Ss {name}\n"));
        assert_eq!(!of_orders.is_empty(), is_order, "{name} gives an order");
        if is_order {
            describes(part(page, ".Sh OPTIONS OF ORDERS"), OF_ORDERS, &of_orders);
        }
        let is_own = |option: &&Arg| ![COMMON, OF_ORDERS].iter().any(|it| has_heading(option, it));
        let own: Vec<&Arg> = options.into_iter().filter(is_own).collect();
        describes(part(page, &format!(".Ss {name}")), OPTIONS, &own);
    }
}

#[test]
fn help_fits_into_80_columns() {
    let mut command = poolcounter_command::command();
    command.build();
    help_fits(&command);
}
