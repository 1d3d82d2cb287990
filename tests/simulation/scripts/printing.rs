//! A failing script is printed as Rust: printed_steps.txt is both compiled here and compared with
//! its printed form.

use super::steps::{Say, Script, Start, Step};
use crate::simulation::kernel::draws::Choices;
use protocol::Mode;
use std::mem::{Discriminant, discriminant};

/// One step of each kind that is generated. `UPDATE=1` adds missing kinds.
const FILE: &str = "tests/simulation/scripts/printed_steps.txt";

type StepKind = (Discriminant<Step>, Option<Discriminant<Say>>);

fn kind_of(step: &Step) -> StepKind {
    let what = match step {
        Step::Say { what, .. } => Some(discriminant(what)),
        _ => None,
    };
    (discriminant(step), what)
}

#[test]
fn a_printed_script_can_be_pasted_into_a_test() {
    let mut pasted: Script = include!("printed_steps.txt");
    let printed = include_str!("printed_steps.txt");
    assert_eq!(pasted.to_string(), printed.trim_end());
    let (before, mut kinds) =
        (pasted.steps.len(), pasted.steps.iter().map(kind_of).collect::<Vec<_>>());
    for step in (0..300).flat_map(|seed| Script::generate(seed, 100).steps) {
        if !kinds.contains(&kind_of(&step)) {
            kinds.push(kind_of(&step));
            pasted.steps.push(step);
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, format!("{pasted}\n")).expect("it can be written");
    }
    assert_eq!(before, pasted.steps.len(), "UPDATE=1 adds the missing ones to {FILE}");
}
