//! The engine in virtual time, compared with a model and with snapshots of itself.

mod against_model;
mod explore;
mod new_rules;
// Not all of it is used here.
#[allow(dead_code)]
#[path = "../../../../tests/support/random.rs"]
mod random;
mod shrink;
mod simulation;
