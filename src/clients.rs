//! Clients' connections: bytes → lines → commands → answers → bytes, and admission.
//!
//! The event loop calls it step by step; it calls the engine, and uses sockets but no
//! address that the daemon listens on.

pub(crate) mod admission;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod input;
pub(crate) mod input_queues;
