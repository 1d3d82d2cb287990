//! Tests that read instead of running: sources, dependencies, documents.

mod crates;
mod dependencies;
mod documents;
mod gate;
mod keys;
mod links;
mod map;
mod platform;
mod source;
