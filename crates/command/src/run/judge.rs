//! Walks the schedules of several `run`s of a key, with the engine itself as their server, and
//! judges each step: two commands run at once for a known cause only; each line and status is true;
//! no wait is longer than its promise. Once all is well, every run goes on.

mod breadth;
mod checks;
mod grants;
mod process;
mod steps;
mod world;

use self::breadth::{Scope, explore};
use self::grants::Cause;
use self::steps::{Choices, start};
use crate::run::plan::{NoServer, OnLost};
use std::collections::BTreeSet;
use std::time::Duration;

/// Two seconds' worth. `RUN_WALK_SEEDS` tries more; `RUN_WALK_SEED` repeats one.
const SEEDS: u64 = 20_000;
const STEPS_MAX: u64 = 400;

/// States from each beginning, breadth first: ten seconds' worth in all. `RUN_STATES` visits more.
const STATES: usize = 60_000;

/// Walks once; returns the causes for which two commands ran at once.
///
/// # Errors
/// What was wrong, and the steps that led there.
fn walk(seed: u64) -> Result<BTreeSet<Cause>, String> {
    let mut choices = Choices::new(seed);
    let mut world = start(&mut choices);
    let mut causes = BTreeSet::new();
    let mut path = String::new();
    // It may stop in the midst of anything.
    let steps = choices.below(STEPS_MAX);
    let mut taken = 0;
    let result = loop {
        let step = world.choose(&mut choices).filter(|_| taken < steps);
        let Some(step) = step else { break world.check_progress() };
        taken += 1;
        path += &format!("  {step:?}\n");
        match world.take(step).and_then(|()| world.check_overlaps()) {
            Ok(found) => causes.extend(found),
            Err(why) => break Err(why),
        }
    };
    result.map(|()| causes).map_err(|why| {
        let options: String = world.runs.iter().map(|run| format!("{:?}\n", run.options)).collect();
        let at = world.now;
        format!("RUN_WALK_SEED={seed}, step {taken}, at {at:?}: {why}\n{options}{path}")
    })
}

/// "Can two run at once?"
fn table() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/scripts.md");
    let text = std::fs::read_to_string(path).expect("the page");
    let (_, behind) = text.split_once("### Can two run at once?").expect("the section");
    behind.split_once("###").expect("the next one").0.to_owned()
}

/// The first column of a table, without its head.
fn rows(table: &str) -> BTreeSet<&str> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(" | ").next()).skip(1).collect()
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn no_walk_finds_a_second_command_a_lie_or_an_endless_wait() {
    let first = number("RUN_WALK_SEED");
    let seeds = number("RUN_WALK_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let mut causes = BTreeSet::new();
    for seed in first.unwrap_or(0)..first.unwrap_or(0) + seeds {
        causes.extend(walk(seed).unwrap_or_else(|why| panic!("{why}")));
    }
    let reached: BTreeSet<&str> = causes.into_iter().filter_map(Cause::row).collect();
    let table = table();
    assert!(first.is_some() || reached == rows(&table), "{reached:#?}");
}

#[test]
fn no_schedule_of_a_small_scope_has_a_second_command_a_lie_or_an_endless_wait() {
    let states_max = number("RUN_STATES").map_or(STATES, |states| states as usize);
    let kill = OnLost::Kill { after: Duration::from_secs(1) };
    let mut causes = BTreeSet::new();
    for (on_lost, wait_s, no_server, is_waiting) in [
        (OnLost::Warn, None, NoServer::Fail, false),
        (OnLost::Warn, Some(5), NoServer::Run, true),
        (kill, None, NoServer::Fail, true),
    ] {
        let scope = Scope { on_lost, wait_s, no_server, is_waiting };
        let explored = explore(scope, states_max).unwrap_or_else(|why| panic!("{why}"));
        println!("{scope:?}: {} states, depth {}", explored.states, explored.depth);
        causes.extend(explored.causes);
    }
    assert!(causes.contains(&Cause::LostBeforeStart), "{causes:?}");
}
