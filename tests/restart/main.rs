//! Hot restart: its promises, its failures, and what it hands over.

mod failures;
mod promises;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/snapshot.rs"]
mod whole_snapshot;
mod wrappers;
