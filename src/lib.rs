//! The lock daemon for MediaWiki's PoolCounter, as a library for its executable
//! and its tests. This page is the map.
//!
//! | where | what | may know |
//! |---|---|---|
//! | [`protocol`] | bytes ⇄ commands and replies: the crate `poolcounter`, in `client/` | nothing else |
//! | [`engine`] | pools, queues, locks, timer wheel, statistics: all decisions | `protocol` |
//! | [`reports`] | what operators see: `STATS`, JSON, Prometheus's text, from read-only views | `engine` |
//! | `server` | mio, sockets, signals, the clock, logs | all of them |
//! | `src/bin` | `main`: serves, checks, reloads; the exit status | `server` |
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
//! The outbox exists because one client's command may answer others (`DONE`,
//! `LOCKED`). Each turn of the loop in `server::event_loop` ends by sending each client all
//! that it is owed at once.
//!
//! # Engine, file by file
//!
//! | file | what it holds |
//! |---|---|
//! | `engine` | `Engine`: acquire, release, disconnect, expire; hands a lock to the next waiter; the outbox; records each event |
//! | `engine/enforcement` | what rules change about these decisions: verdicts, holders of a total, overdue holds; applies changed rules pool by pool |
//! | `engine/pool` | `Pool`: a key (`StoredKey`) with its queues; `Pools`: the map from keys to pools, with the hash; which ids exist |
//! | `engine/lock` | `Lock`, held or waited for, and its `Phase`; `LockQueue`; `Stack`: the locks of a client; `ClientId` |
//! | `engine/wheel`, `engine/time` | the timer wheel, with its levels and slots; `Time`: a number that the caller passes in |
//! | `engine/rules` | `Rules`: those in force, which match a key, their numbers instead of the client's, exhausted totals |
//! | `engine/rules/rule` | a rule and a file of rules as text; the error of each wrong line |
//! | `engine/rules/pattern`, `groups` | matches keys (`*`); counts by group |
//! | `engine/counts/statistics` | `Counters`, each declared with its sentence; sums of time with the names of their lines; how each `Event` changes them |
//! | `engine/counts/measures`, `histogram` | waits and holds by outcome, replies, turns, restarts; buckets and their bounds |
//! | `engine/observe/observer`, `sampler` | `Sample`s for `STATS TOP`, the slow log; which requests are followed |
//! | `engine/observe/heavy_hitters`, `windows` | the bounded table of the most frequent names; those of a minute and an hour |
//! | `engine/view` | read-only views of pools, locks and clients |
//! | `engine/state` | plain data for a hot restart: what is written, the gauges too, and how `Engine` resumes; refuses what no engine can have written (`BadState`) |
//! | `engine/invariants` | what tests assert after every call: counts, stacks, order of queues, timers, rules |
//! | `engine/spare_capacity` | memory that a slab could return |
//!
//! # Reports
//!
//! | file | what it holds |
//! |---|---|
//! | `reports` | which report answers which `STATS`, and what the scan must collect for it; the text of `STATS FULL` |
//! | `reports/lists` | `STATS KEYS`, `KEY`, `CLIENTS`, `TOP`, `SLOW`, `RULES`, `--check-rules` as text: columns, words in cells, the limit on rows |
//! | `reports/json` | `STATS JSON`: a struct for each object, filled from all counters, times, histograms, rows and figures |
//! | `reports/metrics` | the metrics of `/metrics`, and of `/prometheus`, under the names of older exporters |
//! | `reports/metrics_text` | Prometheus's text format |
//! | `reports/scan` | the walk over all keys and connections, in steps: a row for each key and address, the top ones, oldest holds, gauges by group |
//! | `reports/report_view` | `ReportView`: all that a report may look at; times, durations, modes, keys, names and addresses as text; nanoseconds as seconds; `ServerFigures` |
//!
//! # Server, below `src/server`
//!
//! | file | what it holds |
//! |---|---|
//! | `server/event_loop` | `Server` and the steps of a turn |
//! | `server/start`, `options`, `advice` | a cold start; the command line and its limits; what to do about a failed start |
//! | `clients/connections` | `Clients`: ready, unread, owed, scheduled to close; flushes; walks addresses |
//! | `clients/connection` | one `Connection`: its line, its stage, its address; what a hot restart carries of it (`ConnectionState`) |
//! | `clients/input` | one buffer for what all clients sent this turn, and which client's bytes start where |
//! | `clients/dispatch` | lines → engine → answers, a share of a turn for each client; debug lines of both; adds addresses to samples; ended and lost connections |
//! | `clients/stream` | a socket and its unsent output, of clients and operators |
//! | `clients/admission` | `--allow`, `--max-connections`, and the count of connections of each address |
//! | `listening/addresses` | `Wanted`: which addresses the options ask for, and their errors; `Purpose`; which cover or contradict each other |
//! | `listening/opening` | binds what is missing, all or none; changes mode and group of what exists; takes sockets over from systemd or standard input |
//! | `listening/listener` | one `Listener`: checks and adopts a socket, accepts, whose turn it is (`Earlier`), begins to close, its backlog |
//! | `listening/listeners` | `Listeners`: opens and adopts those that are wanted, closes others; registers and deregisters; drain, and its log |
//! | `listening/accepting` | which listener accepts next, how many in a turn; reserved descriptors; pauses after failures, retries |
//! | `listening/unix_socket` | a socket's file: binds, sets mode and group, removes a stale one, whether a process listens on it |
//! | `operator/control_socket` | operators' connections: input, answers in order, the oldest gives way; its log |
//! | `operator/control_socket/requests` | `Request`: parses a line of an operator |
//! | `operator/orders` | `Operators`: events of signals and operators' connections become `Order`s; who waits for the end of a drain; whether SIGHUP is a hangup |
//! | `operator/execute_orders` | what each order does: drain, `FREE`, `RULE`, `LOG`, `STATS`; begins and finishes a hot restart |
//! | `operator/rule_book` | `RuleBook`: the file of rules (read here) with what `RULE` changed, and until when; keys of `--check-rules` |
//! | `operator/run_time_settings` | what `LOG` and `RULE` set, and what of it a hot restart ends |
//! | `reporting/report_queue` | `Reporting`: requests for reports in queues, a few made each turn, given up at a restart |
//! | `reporting/http` | `Http`: its connections, deadlines and stages; who gives way to a new one |
//! | `reporting/http/head`, `pages` | parses the head of a request; paths, responses, the key of `/key?` |
//! | `restart/old_image` | `Restart`: its two phases; collects what is handed over, with all descriptors |
//! | `restart/trial` | `Trial`: forks a child that executes the new binary and asks it; its time limit, answer (`TrialAnswer`) and verdict |
//! | `restart/launcher` | the path of the new binary, the two files that it gets (snapshot, answer), its arguments and environment, exec |
//! | `restart/new_image` | adopts what a snapshot names, and waits for descriptors and memory to do so; what it does in a trial; answers the operator |
//! | `restart/snapshot` | `ServerState`, the snapshot's format and header: writes and reads connections and pools; refuses descriptors, connections and unread input that contradict each other |
//! | `telling/logging`, `stderr` | filter, format, rate limits, counts of dropped lines; writes to standard error without blocking, tries again later |
//! | `telling/systemd` | notifications to systemd over its socket |
//! | `kernel/sys` | all `unsafe` code of the daemon: signals, fork, exec with its arguments, mapped files, inherited descriptors, raising their limit |
//! | `kernel/world`, `clock` | safe calls, which the simulation replaces; the only clock |
//! | `kernel/socket` | `Socket`: receive and peek, without passed descriptors; options, keepalive; addresses as text |
//! | `kernel/slots` | `Slots`: connections by slot and serial; epoll's tokens, and `watch`, which registers a descriptor |
//! | `kernel/process_usage`, `memory_release` | CPU, memory, descriptors and their limit; when to return memory |

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub use poolcounter::protocol;

pub mod engine;
pub mod reports;
pub mod server;

// tests/simulation shares the model with tests/engine, where this crate has its name.
#[cfg(test)]
extern crate self as poolcounterd;
