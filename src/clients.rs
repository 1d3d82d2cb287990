//! Clients' connections: what they receive and are owed, in bytes; whom the daemon admits; how much
//! of a turn each client gets. `serving` calls it step by step, takes lines out of the bytes and
//! hands them to the engine. It may know what is below it (options, sockets, the log), the
//! protocol's lines, ids of clients and their counters, but no lock, and no address on which the
//! daemon listens.

pub(crate) mod admission;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod input;
pub(crate) mod input_queues;
mod known_ends;
mod losses;
