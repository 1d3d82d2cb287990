//! Connections, of whomever: a socket, with its unsent output; all of one kind, by slot and
//! serial number.
//!
//! Called by everybody who has connections: clients, operators, HTTP. Knows the kernel, and
//! nothing of what connections carry.

pub(crate) mod ids;
pub(crate) mod slots;
pub(crate) mod socket;
pub(crate) mod stream;
