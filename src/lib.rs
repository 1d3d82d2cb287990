//! The lock daemon for MediaWiki's PoolCounter, as a library for its executable
//! and its tests. This page is the map.
//!
//! | where | what | may know |
//! |---|---|---|
//! | [`protocol`] | bytes ⇄ commands and replies: the crate `poolcounter`, in `client/` | nothing else |
//! | [`engine`] | pools, queues, locks, timer wheel, statistics: all decisions | `protocol` |
//! | [`reports`] | what operators see: `STATS`, JSON, Prometheus's text, from read-only views | `engine` |
//! | `server` | mio, sockets, signals, the clock, logs | all of them |
//! | `src/bin` | the command line and the exit status | `server` |
//!
//! `protocol`, `engine` and `reports` name no I/O and no clock (`tests/house/purity.rs` checks
//! it), so a test can drive them with any bytes at any time.
//!
//! The path of a command:
//!
//! ```text
//! socket → server::clients, input (bytes) → server::dispatch, protocol::lines (lines)
//!        → protocol::Command::parse → engine.acquire / release(client, …, now)
//!        → the engine's outbox of (client, reply)
//!        → server::clients, stream (replies → bytes) → socket
//! ```
//!
//! What takes time to answer, such as `STATS KEYS` or a scrape, goes another way:
//!
//! ```text
//! server::dispatch or http → server::reporting (a queue; a few steps each turn)
//!        → reports::survey (walks keys and connections) → reports (text)
//!        → server::clients, http or operator → socket
//! ```
//!
//! The rooms of `engine` that decide nothing: `statistics`, `measures` and `histogram` count
//! each event; `watch`, `sampler`, `summary` and `windows` follow single keys and addresses;
//! `view` shows everything, read-only.
//!
//! The rooms of `server`, from the top:
//!
//! | where | what |
//! |---|---|
//! | `event_loop`, `start` | the daemon's parts, and one turn of the loop; a cold start |
//! | `operator`, `control`, `hangup`, `obeying` | signals and the control socket → orders, and what these do |
//! | `restart`, `trial`, `launcher`, `resume`, `snapshot` | hot restart: its two phases, what it starts, how the new image continues, what is handed over |
//! | `dispatch` | line → engine → answers |
//! | `clients`, `connection`, `input`, `stream`, `admission` | the clients' connections, and who may have one |
//! | `reporting`, `asking`, `for_reports`, `usage` | reports: who asks, what for, and what the server adds |
//! | `http` | the same over HTTP |
//! | `listeners`, `listener`, `accepting`, `addresses`, `opening`, `inherited`, `unix_socket` | what clients and operators connect to: what is wanted, how it opens, drains and closes |
//! | `logging`, `systemd` | what the daemon tells others; none of it blocks |
//! | `options`, `advice` | the command line, and what else it can ask for |
//! | `tokens`, `socket`, `sys`, `clock`, `memory` | the small things, all `unsafe` in `sys` |
//! | `world` | the names of the kernel's calls; the tests put a simulated kernel in its place |
//!
//! The outbox exists because one client's command may answer others (`DONE`,
//! `LOCKED`). Each turn of the loop in `server::event_loop` ends by sending each client all
//! that it is owed at once.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub use poolcounter::protocol;

pub mod engine;
pub mod reports;
pub mod server;

// tests/simulation shares the model with tests/engine, where this crate has its name.
#[cfg(test)]
extern crate self as poolcounterd;
