//! What the daemon says unasked: the log, and notifications of systemd. Everybody calls it. It
//! never blocks. It may know the platform, and of the engine its time.
//!
//! | the log | file |
//! |---|---|
//! | which lines | [`filter`] |
//! | how often a line | [`rate_limit`] |
//! | how they look | [`mod@format`] |
//! | how they are written without blocking | [`stderr`] |
//! | sets it up and joins these; panics; messages for the terminal | [`logger`] |

pub(crate) mod filter;
mod format;
pub(crate) mod logger;
pub(crate) mod rate_limit;
mod stderr;
pub(crate) mod systemd;
