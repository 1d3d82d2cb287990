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
//! | `engine.rs` | `struct Engine`: adds and removes pools and locks, counts each event |
//! | `decisions` | acquire, release, disconnect, expire: who gets a lock, waits, is refused |
//! | `pool`, `lock`, `stack` | a key's queues and the map of keys; one lock and its phase; the locks of a client |
//! | `wheel`, `time` | the timer wheel; time as a number that callers pass in |
//! | `rules`, `enforcement` | operators' rules: in force, their matches, groups of keys (in `rules/`: `rule`, `pattern`, `file`, `groups`); what they change about decisions |
//! | `counts` | `statistics` (counters, sums of time, events), `measures` (by outcome, by reply, by turn), `histogram` |
//! | `observe` | `observer` (hot keys and slow holds), `sampler` (which requests it follows), `heavy_hitters` (the table of names), `windows` (minute and hour) |
//! | `view`, `state` | read-only views; what a hot restart carries over, and its checks |
//! | `client`, `spare_capacity`, `invariants` | a client's id; memory that could be returned; what tests assert after every call |
//!
//! The rooms of `reports`:
//!
//! | where | what |
//! |---|---|
//! | `lists`, `json` | `STATS KEYS`, `KEY`, `CLIENTS`, `TOP`, `SLOW` as tables; `STATS JSON` |
//! | `metrics`, `legacy_metrics`, `metrics_text` | `/metrics`; `/prometheus` with the names of older exporters; Prometheus's text format |
//! | `rule_list` | `RULES`; what `--check-rules` prints of a key |
//! | `scan` | the walk over all keys and connections, in steps |
//! | `report_view`, `server_figures` | what reports look at, durations and keys as text; what only the server knows |
//!
//! The rooms of `server`, from the top:
//!
//! | where | what |
//! |---|---|
//! | `event_loop`, `start` | `struct Server` and the steps of a turn; a cold start |
//! | `options`, `advice` | the command line; what to do about a failed start |
//! | `operator` | `control_socket` and its `requests` (the lines of operators), `hangup` (SIGHUP), `orders` (signals and requests → orders), `execute_orders` (what they do), `run_time_settings` (the log filter, the rules), `rule_book` (the rules' file, and what `RULE` changes), `free_connections` (`FREE`) |
//! | `restart` | old image: `phases` (the sequence), `trial` (asks the new binary), `launcher` (files, exec); new image: `rehearsal` (answers), `resume` (continues, why no step can fail); both: `snapshot` (format, checks) |
//! | `clients` | `connections` (all of them: ready, unread, owed, closing), `connection` (one), `input` (the shared receive buffer), `stream` (socket and unsent output), `dispatch` (lines → engine → answers), `admission` (`--allow`, limits), `peer_addresses` |
//! | `reporting` | `report_queue` (requests, when they are made), `report_request`, `http` (connections, deadlines) with `head` (parses) and `pages` (paths, responses) |
//! | `listening` | `addresses` (which are wanted), `opening` (bind, listen), `listener` (one), `listeners` (all: which one accepts next, and whether; drain, keep, close), `inherited` (systemd, standard input), `unix_socket` (files) |
//! | `telling` | `logging` (filter, format) with `limit` (rate) and `stderr` (never blocks); `systemd` (notifications) |
//! | `kernel` | the only door to system calls: `sys` (all `unsafe` code), `world` (safe ones, replaced in tests), `clock`, `socket` (options, receive), `socket_address` (names), `slots` (connections by slot and serial), `tokens` (epoll), `process_usage`, `memory_release` |
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
