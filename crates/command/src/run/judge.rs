//! Walks the schedules of several `run`s of a key, with the engine itself as their server, and
//! judges each step: two commands run at once for a known cause only; each line and status is true;
//! no wait is longer than its promise.

mod checks;
mod grants;
mod process;
mod steps;
mod world;

use self::grants::Cause;
use self::steps::{Choices, start};
use std::collections::BTreeSet;

/// Two seconds' worth. `RUN_WALK_SEEDS` tries more; `RUN_WALK_SEED` repeats one.
const SEEDS: u64 = 20_000;
const STEPS_MAX: usize = 400;

/// Walks once; returns the causes for which two commands ran at once.
///
/// # Errors
/// What was wrong, and the steps that led there.
fn walk(seed: u64) -> Result<BTreeSet<Cause>, String> {
    let mut choices = Choices::new(seed);
    let mut world = start(&mut choices);
    let mut causes = BTreeSet::new();
    let mut path = String::new();
    for number in 1..=STEPS_MAX {
        let Some(step) = world.choose(&mut choices) else { break };
        path += &format!("  {step:?}\n");
        match world.take(step).and_then(|()| world.check_overlaps()) {
            Ok(found) => causes.extend(found),
            Err(why) => {
                let options: String =
                    world.runs.iter().map(|run| format!("{:?}\n", run.options)).collect();
                let at = world.now;
                return Err(format!(
                    "RUN_WALK_SEED={seed}, step {number}, at {at:?}: {why}\n{options}{path}"
                ));
            }
        }
    }
    Ok(causes)
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
    let expected = [
        Cause::DaemonEnded,
        Cause::HostCrashed,
        Cause::Vanished,
        Cause::Freed,
        Cause::MaxHold,
        Cause::WorkersDiffer,
        Cause::OtherServer,
        Cause::WithoutLock,
        Cause::LostBeforeStart,
        Cause::RunWasStopped,
    ];
    assert!(first.is_some() || causes == BTreeSet::from(expected), "{causes:?}");
}
