//! Hot restart: its promises, its failures, and what it hands over.

mod failures;
mod promises;
// Not all of it is used here.
#[allow(dead_code)]
#[path = "../../crates/engine/tests/model/simulation/mod.rs"]
mod simulation;
mod snapshot_property;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/snapshot.rs"]
mod whole_snapshot;
mod wrappers;

use support::random;
