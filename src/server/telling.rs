//! What the daemon tells others unasked: the log and systemd. None of it blocks.
//!
//! Called from everywhere; of the server, it knows only the kernel.

pub(crate) mod logging;
mod stderr;
pub(crate) mod systemd;
