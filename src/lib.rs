//! The lock daemon for MediaWiki's PoolCounter, as a library for its executable
//! and its tests. This page is the map.
//!
//! | where | what | may know |
//! |---|---|---|
//! | [`protocol`] | bytes ⇄ commands and replies | nothing else |
//! | [`engine`] | pools, queues, locks, timer wheel, statistics: all decisions | `protocol` |
//! | `server` | mio, sockets, signals, the clock, logs, reports | both |
//! | `src/bin` | the command line and the exit status | `server` |
//!
//! `protocol` and `engine` name no I/O and no clock (`tests/purity.rs` holds
//! that), so that a test can drive them with any bytes at any time.
//!
//! The way of a command:
//!
//! ```text
//! socket → server::connection → protocol::lines (bytes → lines)
//!        → protocol::Command::parse → engine.acquire / release(client, …, now)
//!        → the engine's outbox of (client, reply)
//!        → server::connection (replies → bytes) → socket
//! ```
//!
//! A command of one client may answer others (`DONE`, `LOCKED`): therefore the
//! outbox. Each turn of the loop in `server` ends by sending every client that
//! is owed something all of it at once.

pub mod engine;
pub mod protocol;
#[cfg(feature = "daemon")]
pub mod server;
