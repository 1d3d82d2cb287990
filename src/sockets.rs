//! Connections of any kind: a socket with its unsent output; all of one kind, by slot and serial
//! number. Clients, operators and HTTP use it. It may know the platform, and of the engine its ids
//! of clients; nothing of what connections carry.

pub(crate) mod ids;
pub(crate) mod options;
pub(crate) mod slots;
pub(crate) mod socket;
pub(crate) mod stream;
