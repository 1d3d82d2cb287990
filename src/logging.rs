//! What the daemon says unasked: the log, and notifications of systemd. Everybody calls it. It
//! never blocks and may know the platform only.

pub(crate) mod filter;
mod format;
pub(crate) mod logger;
pub(crate) mod rate_limit;
mod stderr;
pub(crate) mod systemd;
