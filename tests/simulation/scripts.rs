//! Scripts: what happens to the daemon, and when its loop turns. A seed makes one, and one that
//! fails is printed as Rust.
//!
//! The driver plays them. Scripts know no rule, and nothing about the daemon except what clients
//! and operators know: its command line, its protocol and its addresses.

mod generate;
mod printing;
mod scenes;
pub(crate) mod steps;
mod vocabulary;
