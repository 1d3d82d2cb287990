//! Hot restart: its promises, its failures, and what it hands over.

mod failures;
mod promises;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;
mod wrappers;
