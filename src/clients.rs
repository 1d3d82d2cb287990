//! Clients' connections: whom to admit, bytes → lines, answers → bytes.
//!
//! The loop calls it step by step and handles the lines. It uses sockets, and knows neither
//! what the engine decides nor an address that the daemon listens on.

pub(crate) mod admission;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod input;
pub(crate) mod input_queues;
