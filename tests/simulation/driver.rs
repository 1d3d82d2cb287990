//! Plays a script: starts the daemon, lets its environment act, runs the turns of its loop,
//! executes its next images, and brings everything to rest.
//!
//! Called by [`super::explore`]. It calls the kernel and the daemon, hands what both did to the
//! judges of clients, reports, operators and the log, and calls the rules.

mod environment;
mod images;
pub(crate) mod play;
mod quiescence;
