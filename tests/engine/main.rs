//! The engine in virtual time, compared with a model and with snapshots of itself,
//! and run on the inputs that fuzzing found; what reports show of it.

mod against_model;
mod explore;
mod fuzz_seeds;
mod new_rules;
mod reports;
mod shrink;
mod simulation;
mod snapshot_property;
#[path = "../support/mod.rs"]
mod support;
mod top;
#[path = "../support/snapshot.rs"]
mod whole_snapshot;

use simulation::script::Choices;
use support::random::Random;

impl Choices for Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn is_empty(&self) -> bool {
        false
    }
}
