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
//! socket → server::clients (bytes → lines) → protocol::Command::parse
//!        → server::clients::dispatch → engine.acquire / release(client, …, now)
//!        → the engine's outbox of (client, reply)
//!        → server::clients (replies → bytes) → socket
//! ```
//!
//! What takes time to answer, such as `STATS KEYS` or a scrape, goes another way:
//!
//! ```text
//! server::clients::dispatch, operator or reporting::http
//!        → server::reporting (a queue; a few steps each turn)
//!        → reports::scan (walks keys and connections) → reports (text)
//!        → server::clients, operator or reporting::http → socket
//! ```
//!
//! The rooms of `engine`:
//!
//! | where | what |
//! |---|---|
//! | `engine.rs`, `decisions` | the data, and what happens to locks: acquire, release, disconnect, expire |
//! | `pool`, `lock`, `stack`, `wheel`, `hold_limits` | a key's queues, a lock, a client's locks, timers, `--max-hold` |
//! | `counts` | what counts each event: counters, sums, histograms |
//! | `observe` | what follows single keys and addresses, and slow holds |
//! | `view`, `state` | everything read-only; what a hot restart carries over |
//!
//! The rooms of `server`, from the top; the first page of each says more:
//!
//! | where | what |
//! |---|---|
//! | `event_loop`, `start` | the daemon's parts, and one turn of the loop; a cold start |
//! | `options`, `advice` | the command line, and what to do about a failed start |
//! | `operator` | signals and the control socket → orders, and what these do |
//! | `restart` | hot restart: the old image, the new one, what is handed over |
//! | `clients` | the clients' connections: input, lines, answers, who may connect |
//! | `reporting` | who asks for reports, when they are made; HTTP |
//! | `listening` | what clients and operators connect to: which addresses, how they open, drain and close |
//! | `telling` | the log and systemd; none of it blocks |
//! | `kernel` | the only door to system calls, and all `unsafe` code; the tests put a simulated kernel behind it |
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
