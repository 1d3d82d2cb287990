//! Tests that read instead of running: sources and dependencies.

mod crates;
mod dependencies;
#[path = "../support/files.rs"]
mod files;
mod gate;
mod map;
mod platform;
mod source;
