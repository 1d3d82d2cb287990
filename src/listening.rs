//! What clients, operators and monitoring connect to: which addresses are wanted, how they open,
//! drain and close, and when the daemon accepts. `serving` calls it, and hot restarts hand its
//! sockets over. It may know what is below it (options, sockets, the log), and nothing of what the
//! connections carry.

pub(crate) mod accepting;
pub(crate) mod addresses;
mod drain;
pub(crate) mod listener;
pub(crate) mod listeners;
pub(crate) mod opening;
pub(crate) mod unix_socket;
