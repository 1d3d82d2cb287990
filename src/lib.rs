//! The lock daemon for MediaWiki's PoolCounter, as a library for its executable and its tests.
//!
//! What decides is in crates that cannot name a socket, a file, a clock or a thread:
//!
//! ```text
//! crates/protocol    bytes ⇄ lines, commands, replies
//! crates/engine      pools, queues, locks, timers, rules, statistics: all decisions about locks
//! crates/schema      reports in JSON, and their rows
//! crates/reports     STATS, JSON and Prometheus's text, from views of the engine
//! ```
//!
//! This crate moves the bytes. It is a stack; a folder names only those below it:
//!
//! ```text
//! serving       the loop: what happens in a turn and in which order; hands lines to the engine,
//!               executes orders, starts, continues after a hot restart
//! restart       hot restarts: the old image, the trial of the new one, the snapshot
//! reporting     the queue of reports that take time; HTTP
//! listening │ operator │ clients    addresses │ signals, control socket, rules │ connections
//! options       the command line
//! logging │ sockets    the log and systemd │ a socket with its unsent output; slots and ids
//! platform      the only way to system calls; the simulation (tests/simulation) replaces it
//! ```
//!
//! The path of a command:
//!
//! ```text
//! socket → clients (bytes) → serving::dispatch (bytes → lines → protocol::Command)
//!        → engine.acquire / release (client, …, now) → the engine's outbox of (client, reply)
//!        → serving::dispatch (replies → bytes) → clients → socket
//! ```
//!
//! The outbox exists because one client's command may answer others (`DONE`, `LOCKED`).
//!
//! The path of an order, on the control socket or by a signal:
//!
//! ```text
//! socket → Operators::record_event → Server::execute_orders, last in the turn → Operators::take_orders
//!        → ControlSocket::read, control_socket::parse (line → Request) │ sys::next_signal (→ Order)
//!        → Server::serve_request: Server::drain, free, change_rules, begin_restart, …
//!        → Operators::answer → ControlSocket::answer → socket
//! ```
//!
//! The path of a report. What takes time, such as `STATS KEYS` or a scrape, is made by parts:
//!
//! ```text
//! Dispatch::handle_next_line (STATS), Server::report (an operator's) → reports::stats: answered at once
//!        │ Dispatch::request_report, which holds the line; Http::handle → head::parse → pages::find
//!        → Reporting::enqueue → Server::make_reports, each turn → Reporting::step
//!        → RunningScan::walk (Scan::step: keys; Clients::for_each_address: connections)
//!        → Maker::report (json::report, lists::list, rules::list, metrics::metrics; text)
//!        → Dispatch::deliver_report │ Http::answer │ Operators::report → socket
//! ```
//!
//! The path of a hot restart. What the trial reads is what the new image will read, by the same code:
//!
//! ```text
//! old    Server::begin_restart → Restart::begin → Trial::start: forks
//! child  run_new_binary (snapshot::write) → Launcher::execute_trial → --read-snapshot: dry_run
//!        → new_image::restore
//! old    Restart::record_trial_end → Server::finish_restart → Restart::finish (Trial::verdict)
//!        → Restart::execute: opens missing listeners → Launcher::hand_over: snapshot::write, execve
//! new    Server::start → inherited_snapshot → Server::resume → new_image::restore
//!        (Engine::resume, RuleBook::apply, Clients::resume) → Listeners::resume → Server::assemble
//!        → Server::answer_requester → the first turn
//! ```
//!
//! A turn: wait → receive from all that are ready → handle their lines → end waits → continue
//! reports and HTTP → send what is owed → close → accept, now that ends are counted → orders last, so
//! that a hot restart always happens between turns.

#[macro_use]
mod errors;

mod clients;
mod free_port;
mod listening;
mod logging;
mod operator;
mod options;
mod platform;
mod reporting;
mod restart;
mod serving;
mod sockets;

pub use free_port::free_port;
pub use listening::addresses::{ListenError, Obstacle, Purpose, Wanted, WantedControl, WantedTcp};
pub use logging::logger::print as print_error;
pub use operator::control_socket::{
    RefusedOrder, Request as ControlRequest, parse as parse_control_request,
};
pub use operator::rule_book::{RuleOrder, check_rules};
pub use options::{Options, Task, arguments_after_reload};
pub use reporting::http::head::{Head as HttpHead, parse as parse_http_head};
pub use restart::dry_run::dry_run;
pub use restart::restart_error::RestartError;
pub use restart::snapshot;
pub use serving::advice::StartError;
#[cfg(test)]
use serving::simulation;
pub use serving::{Ended, Server, check_options, start_logging};

// tests/support/snapshot.rs is shared with tests outside of this crate.
#[cfg(test)]
extern crate self as poolcounterd;
