//! What the daemon reports unasked: the log and systemd. Never blocks.
//!
//! Called from everywhere; uses no other room of the server except the kernel.

pub(crate) mod logger;
mod stderr;
pub(crate) mod systemd;
