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
//! The rooms of `engine`, file by file:
//!
//! | where | what |
//! |---|---|
//! | `engine.rs` | `struct Engine`: acquire, release, disconnect, expire: who gets a lock, waits, is refused; the outbox; counts each event |
//! | `enforcement` | what rules change about decisions: verdicts, limits on totals, holds that are too long, a change of rules applied pool by pool |
//! | `pool` | a key (`StoredKey`) with its queues of holders and waiters; the map from keys to pools |
//! | `lock` | one lock, held or waited for; the queue that it is in; the stack of a client's locks; a client's id |
//! | `wheel`, `time` | the timer wheel with its levels and slots; time as a number that callers pass in |
//! | `rules.rs`, `rules/` | which rules are in force and match a key; `rule`: a rule and a file of them as text; `pattern`: matches keys; `groups`: counts by group |
//! | `counts/` | `statistics`: counters, sums of time, events; `measures`: waits and holds by outcome, replies, turns, restarts; `histogram`: buckets |
//! | `observe/` | `observer`: hot keys and the slow log; `sampler`: which requests it follows; `heavy_hitters`: the bounded table of names; `windows`: minute and hour |
//! | `view`, `state` | read-only views of pools, locks, clients; what a hot restart carries over, and what no engine can have written (`BadState`) |
//! | `spare_capacity`, `invariants` | memory that could be returned; what tests assert after every call |
//!
//! The rooms of `reports`:
//!
//! | where | what |
//! |---|---|
//! | `reports.rs` | which report answers which `STATS`; the text of `STATS FULL` |
//! | `lists` | as tables: `STATS KEYS`, `KEY`, `CLIENTS`, `TOP`, `SLOW`, `RULES`, the locks that `FREE` ends, `--check-rules` |
//! | `json` | `STATS JSON`: a struct for each object |
//! | `metrics`, `legacy_metrics`, `metrics_text` | the families of `/metrics`; `/prometheus` with the names of older exporters; Prometheus's text format |
//! | `scan` | the walk over all keys and connections, in steps: top rows, oldest holds, gauges by group, addresses |
//! | `report_view` | what reports look at; durations, times, keys and addresses as text; what only the server knows |
//!
//! The rooms of `server`, from the top:
//!
//! | where | what |
//! |---|---|
//! | `event_loop`, `start` | `struct Server` and the steps of a turn, such as closing the clients whose locks were freed; a cold start |
//! | `options`, `advice` | the command line; what to do about a failed start |
//! | `operator/` | `control_socket`: its connections, answers in order; `control_socket/requests`: parses an operator's line; `orders`: signals and requests → orders, and whether SIGHUP is a hangup; `execute_orders`: what each order does, `FREE` too; `rule_book`: the file of rules with what `RULE` changed; `run_time_settings`: log filter and rules set by hand |
//! | `restart/` | `old_image`: the sequence and the trial; `launcher`: the binary's path, files handed over, exec; `new_image`: continues, waits for descriptors and memory to do so, and answers in a trial; `snapshot`: its format, checks of descriptors and connections |
//! | `clients/` | `connections`: all of them: ready, unread, owed, closing, and by address; `connection`: one, and what a restart carries of it; `stream`: a socket and its unsent output; `input`: the shared receive buffer; `dispatch`: lines → engine → answers, and the debug log of both; `admission`: `--allow`, limits on connections |
//! | `reporting/` | `report_queue`: requests for reports, a few made each turn; `http`: connections and their deadlines, `http/head`: parses a request, `http/pages`: paths and responses |
//! | `listening/` | `addresses`: which are wanted, for whom, as the kernel reports them; `opening`: bind, listen, or take over from systemd and standard input; `listener`: one: accept and its errors, adopt, begin to close; `listeners`: all: who accepts next, reserved descriptors, retries, drain; `unix_socket`: their files |
//! | `telling/` | `logging`: filter, format, rate limits; `stderr`: writes without blocking; `systemd`: notifications |
//! | `kernel/` | the only door to system calls: `sys` (all `unsafe` code: signals, fork, exec, descriptors, raising their limit), `world` (safe ones, replaced in tests), `clock`, `socket` (options, receive, addresses as text), `slots` (connections by slot and serial, epoll's tokens), `process_usage` (CPU, memory, descriptors and their limit), `memory_release` |
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
