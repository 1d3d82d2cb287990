//! The documents about the daemon's command line agree with it: the manual page, written by hand,
//! in which options have the groups of --help, and the generated shell completions, which `UPDATE=1 cargo test --test documents` writes again.

use crate::command_line::{OPTIONS, completions_are_current, describes, help_fits, shown_options};
use clap::{Arg, Command};
use engine::counts::statistics::Counters;
use poolcounterd::Task;

#[test]
fn completions_have_the_options() {
    let options = Task::command();
    // Without what --help hides, which clap_complete would offer.
    let shown = options.get_arguments().filter(|option| !option.is_hide_set());
    let version = env!("CARGO_PKG_VERSION");
    let command = Command::new("poolcounterd").version(version).args(shown);
    let mut command = command.disable_help_flag(true).disable_version_flag(true);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/completions");
    completions_are_current(&mut command, folder, "");
}

#[test]
fn man_page_has_the_options_of_help_in_its_groups_and_no_other() {
    let mut command = Task::command();
    command.build();
    let options: Vec<&Arg> = shown_options(&command).collect();
    let page = include_str!("../../docs/man/poolcounterd.8");
    let (before, rest) = page.split_once("\n.Sh OPTIONS\n").unwrap();
    let (part, after) = rest.split_once("\n.Sh ").unwrap();
    assert!(!before.contains(".It Fl") && !after.contains(".It Fl"), "options elsewhere");
    describes(part, OPTIONS, &options);
}

#[test]
fn help_fits_into_80_columns() {
    help_fits(&Task::command());
}

#[test]
fn the_protocol_names_every_counter() {
    let page = include_str!("../../docs/reference/protocol.md");
    let is_missing = |name: &&str| !page.contains(&format!("| `{name}` |"));
    let missing: Vec<&str> = Counters::ALL.iter().map(|counter| counter.name).collect();
    let missing: Vec<&str> = missing.into_iter().filter(is_missing).collect();
    assert_eq!(missing, [""; 0], "docs/reference/protocol.md needs rows for them");
}
