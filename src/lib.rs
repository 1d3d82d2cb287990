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
//! socket → clients (bytes → lines) → protocol::Command::parse
//!        → serving::dispatch → engine.acquire / release(client, …, now)
//!        → the engine's outbox of (client, reply)
//!        → clients (replies → bytes) → socket
//! ```
//!
//! What takes time to answer, such as `STATS KEYS` or a scrape, goes another way:
//!
//! ```text
//! serving (lines, orders) or reporting::http
//!        → reporting (a queue; a few steps each turn)
//!        → reports::scan (walks keys and connections) → reports (text)
//!        → clients, operator or reporting::http → socket
//! ```
//!
//! The outbox exists because one client's command may answer others (`DONE`,
//! `LOCKED`). Each turn of the loop in `serving` sends each client all that it is owed
//! at once; `src/serving.rs` begins with the steps of a turn.

mod clients;
mod listening;
mod logging;
mod operator;
mod options;
mod platform;
mod reporting;
mod restart;
mod serving;
mod sockets;

pub use listening::addresses::{ListenError, Obstacle, Purpose, Wanted};
pub use logging::logger::print as print_error;
pub use operator::control_socket::{Request as ControlRequest, parse as parse_control_request};
pub use operator::rule_book::{RuleOrder, check_rules};
pub use options::{Options, PORT, arguments_after_reload};
pub use reporting::http::head::{Head as HttpHead, parse as parse_http_head};
pub use restart::new_image::dry_run;
pub use restart::snapshot;
pub use serving::advice::StartError;
#[cfg(test)]
use serving::simulation;
pub use serving::{Ended, Server, start_logging};

// tests/support/snapshot.rs is shared with tests outside of this crate.
#[cfg(test)]
extern crate self as poolcounterd;
