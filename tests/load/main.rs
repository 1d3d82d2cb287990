//! Tests that measure, or that use the whole machine for a while: crowds, floods, memory
//! filled to its limits, restarts under load. `make test-load` runs them with an optimized
//! daemon, one at a time, and each prints its figure and its bound. `cargo test` leaves
//! them out: their result depends on the load of the machine.

#![allow(clippy::disallowed_methods, reason = "they measure")]

mod command;
mod crowds;
mod long_turns;
mod memory;
mod page;
mod pipelines;
mod reports;
mod restart_memory;
mod restart_pauses;
mod restarts;
mod rule_changes;
mod shares;
#[path = "../support/mod.rs"]
mod support;
mod timely;
