//! Tests that read instead of running: sources, dependencies, documents.

mod dependencies;
mod documents;
mod gate;
mod keys;
mod links;
mod map;
mod platform;
mod pure_crates;
mod source;
