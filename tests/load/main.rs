//! Tests that use the whole machine for a while: crowds, floods, memory filled to its
//! limits, restarts under load, torture. They are a separate crate, so that no other
//! test runs at the same time; the heaviest ones run one at a time
//! (`have_the_machine`).

mod crowds;
mod memory;
mod overload;
mod reports;
mod restart_pauses;
mod restarts;
mod shares;
#[path = "../support/mod.rs"]
mod support;
mod torture;
