//! Compares Debian's daemon with ours.

mod differential;
#[path = "../support/mod.rs"]
mod support;
mod transcripts;
