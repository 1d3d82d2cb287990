//! What clients, operators and monitoring connect to: which addresses are wanted, how they
//! open, drain and close, and when the daemon accepts.
//!
//! Called by the event loop and by hot restarts; independent of what connections carry.

pub(crate) mod accepting;
pub(crate) mod addresses;
pub(crate) mod listener;
pub(crate) mod listeners;
pub(crate) mod opening;
pub(crate) mod unix_socket;
