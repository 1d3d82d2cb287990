//! Tests that read instead of running: sources and dependencies.

mod crates;
#[path = "../support/files.rs"]
mod files;
mod map;
mod platform;
mod source;
