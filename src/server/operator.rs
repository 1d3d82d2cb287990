//! Signals and the control socket: what an operator orders, and what that does.
//!
//! Orders are obeyed last in a turn; only [`obeying`] knows the other rooms.

pub(crate) mod control;
pub(crate) mod hangup;
pub(crate) mod inbox;
pub(crate) mod obeying;
