//! The lock daemon for MediaWiki's PoolCounter, as a library for its executable
//! and its tests.
//!
//! | where | what | may know |
//! |---|---|---|
//! | [`protocol`] | bytes ⇄ commands and replies | nothing else |
//! | [`engine`] | pools, queues, locks, timer wheel, statistics: all decisions | `protocol` |
//! | [`reports`] | what operators see: `STATS`, JSON, Prometheus's text, from read-only views | `engine` |
//! | `server` | mio, sockets, signals, the clock, logs | all of them |
//! | `src/bin` | `main`: serves, checks, reloads; the exit status | `server` |
//!
//! The first three are crates without std: they can name no socket, file, clock or thread, so a
//! test can drive them with any bytes at any time.
//!
//! `server` is a stack; a folder names only those below it (`tests/house/map.rs`):
//!
//! ```text
//! serving                            what happens in a turn, and in which order; dispatches
//!                                    lines; carries out orders; starts, anew or from an old image
//! restart                            hot restarts: the old image, the trial, what the new image
//!                                    adopts
//! reporting                          the queue of reports, HTTP
//! listening │ operator │ clients     none names another
//! options
//! telling │ sockets                  the log and systemd │ a socket with its unsent output,
//!                                    connections by slot and serial number
//! kernel                             the only door to system calls; the simulation replaces it
//! ```
//!
//! The path of a command:
//!
//! ```text
//! socket → server::clients (bytes → lines) → protocol::Command::parse
//!        → server::serving::dispatch → engine.acquire / release(client, …, now)
//!        → the engine's outbox of (client, reply)
//!        → server::clients (replies → bytes) → socket
//! ```
//!
//! What takes time to answer, such as `STATS KEYS` or a scrape, goes another way:
//!
//! ```text
//! server::serving (lines, orders) or reporting::http
//!        → server::reporting (a queue; a few steps each turn)
//!        → reports::scan (walks keys and connections) → reports (text)
//!        → server::clients, operator or reporting::http → socket
//! ```
//!
//! The outbox exists because one client's command may answer others (`DONE`,
//! `LOCKED`). Each turn of the loop in `server::serving` sends each client all that it is owed
//! at once; `src/server/serving.rs` begins with the steps of a turn.

pub mod server;

// tests/support/snapshot.rs is shared with tests outside of this crate.
#[cfg(test)]
extern crate self as poolcounterd;
