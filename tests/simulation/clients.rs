//! Judges what clients get: which of them are served, the answers, their shares of a turn, and how
//! connections end.
//!
//! The driver and the rules call it. It knows the plain model of the engine, the protocol and what
//! the kernel saw; it leaves reports to [`super::reports`].

pub(crate) mod connections;
pub(crate) mod disconnections;
pub(crate) mod oracle;
pub(crate) mod shares;
