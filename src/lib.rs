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
//! # Index
//!
//! | file | what it is for | its largest items |
//! |---|---|---|
//! | `engine` | All decisions about locks: pools, wait queues, timeouts, statistics | `ExpiredLock`, `Engine`, `FormerClient`, `try_acquire`, `decide`, `follow`, `end_locks`, `hand_to` |
//! | `engine/counts` | Counts every event: counters, sums of time, histograms |  |
//! | `engine/counts/histogram` | Histograms: how often a value fell between two bounds, and the sum of all values | `Scale`, `MS_NS`, `US_NS`, `LOCK_TIMES`, `TURN_TIMES`, `TURN_EVENTS`, `BUCKETS_MAX`, `Histogram` |
//! | `engine/counts/measures` | Statistics that have more than one number: how long waits and holds took, by kind and outcome, and how often each command got each answer | `Measures`, `LockMeasures`, `Turns`, `Restarts`, `LockOutcome`, `CommandKind`, `Replies`, `answer_name` |
//! | `engine/counts/statistics` | Statistics: each counter and each sum of time is declared once, with its name, its kind and its meaning | `Counter`, `CounterKind`, `SumOfTime`, `TimeLine`, `Event`, `Counters`, `Times`, `LINES` |
//! | `engine/enforcement` | How rules change decisions: verdicts, holders of a total, overdue holds; applies changed rules pool by pool | `apply_rules`, `is_overdue_by_new_rules`, `apply_rules_to`, `matches_of`, `decide_by_rules`, `begin_hold_by_rules`, `count_end_by_rules`, `may_inherit` |
//! | `engine/invariants` | What is true after every call: counts, stacks, the order of queues, timers | `check_counts`, `check_stacks`, `check_order`, `needs_timer` |
//! | `engine/lock` | Locks, held or waited for; the queues of a pool and the stacks of clients that link them; how the caller identifies clients | `Phase`, `LockQueue`, `Stack`, `ClientId`, `first`, `join`, `last_first`, `oldest_first` |
//! | `engine/observe` | Observes single keys and addresses: the most frequent ones of a minute and of an hour, and slow holds and waits |  |
//! | `engine/observe/heavy_hitters` | The most frequent names of a stream, in bounded memory: when too many have a place, the least frequent ones lose theirs | `Columns`, `By`, `Ranked`, `HeavyHitters`, `HeavyHittersState`, `Place`, `place_of`, `ranking` |
//! | `engine/observe/observer` | What is observed of single keys and clients, besides the statistics: which keys were requested most, and which holds and waits took long | `Observer`, `ObserverState`, `Sample`, `SlowLock`, `SlowLogEntry`, `push_bounded`, `short_name`, `columns_of_end` |
//! | `engine/observe/sampler` | Which requests are followed for `STATS TOP`: the first of each second, and a random sample of the others | `ALL_PER_SECOND`, `ONE_IN`, `Sampler`, `begin_gap` |
//! | `engine/observe/windows` | What was most frequent in a minute and in an hour | `MINUTE_NS`, `HOUR_NS`, `SHOWN_FROM_NS`, `Windows`, `Window`, `WindowState`, `Counted`, `roll` |
//! | `engine/pool` | Pools, each with the holders and waiters of one key; and the map from keys to pools | `StoredKey`, `Pool`, `Pools`, `hash_aside`, `hash`, `queue`, `queue_mut`, `remove_if_empty` |
//! | `engine/rules` | Operators' rules: numbers that the daemon uses instead of the clients' | `Matches`, `RuleInForce`, `RulesState`, `Having`, `Rules`, `Limited`, `QueueLen`, `replace` |
//! | `engine/rules/groups` | What is counted for each group of keys | `Group`, `GroupCounts`, `renewed` |
//! | `engine/rules/pattern` | Patterns of keys: which keys match (`*` stands for anything) | `Pattern`, `PATTERN_BYTES_MAX`, `ByteSet`, `begins_with`, `may_match` |
//! | `engine/rules/rule` | Rules as operators write them, `NAME PATTERN SETTING…`, and files with a rule on each line | `Rule`, `RuleSettings`, `StuckAfter`, `check_name`, `parse_file`, `parse_line`, `parse_max_hold`, `try_from` |
//! | `engine/spare_capacity` | How much memory a slab could give back | `SpareCapacity`, `PLACES_MIN` |
//! | `engine/state` | Converts the engine to plain data and back: the state that survives a hot restart | `EngineState`, `PoolState`, `LockState`, `BadState`, `Resumed`, `check_pool`, `resume_pool`, `resume_stacks` |
//! | `engine/time` | The engine's time: a number that the caller passes in | `Time`, `from_ns`, `as_ns`, `plus_seconds`, `plus_ns`, `ns_since` |
//! | `engine/view` | Read-only views of the engine, borrowed from it: pools, locks and clients | `PoolView`, `LockView`, `ClientView`, `pools_in`, `pool_places`, `pool`, `holders`, `phase` |
//! | `engine/wheel` | The timer wheel: finds the timer that expires next | `Timer`, `Timers`, `Slot`, `WheelLevel`, `Wheel`, `pop_expired`, `link`, `unlink` |
//! | `reports` | What operators see, as text: pure functions of read-only views of the engine, and of the server's figures (`ServerFigures`) | `StatsAnswer`, `wants_of`, `full` |
//! | `reports/json` | `STATS JSON` and `/stats.json`: everything, for machines | `Measurement`, `Values`, `RepliesJson`, `RestartsJson`, `GroupJson`, `Key`, `OldHoldJson`, `Top` |
//! | `reports/lists` | Lists as text: those of `STATS KEYS`, `KEY`, `CLIENTS`, `TOP` and `SLOW`, and `RULES` | `LOCK_COLUMNS`, `limited`, `seen`, `list_locks`, `described`, `list_top`, `RuleSource`, `explain` |
//! | `reports/metrics` | What Prometheus scrapes: `/metrics` has everything, under the kind of names that it advises today; `/prometheus` has the names of older exporters | `metrics`, `write_counters`, `write_measures`, `write_groups`, `write_group_counts`, `write_daemon`, `write_top`, `legacy` |
//! | `reports/metrics_text` | Prometheus's text format | `MetricsText`, `COUNTER`, `GAUGE`, `HISTOGRAM`, `escaped`, `into_text`, `metric`, `single` |
//! | `reports/report_view` | What reports look at, and how times, durations, modes, keys and addresses become text | `ReportView`, `Peers`, `Uptime`, `Seconds`, `ShortDuration`, `mode_word`, `iso_8601`, `ServerFigures` |
//! | `reports/scan` | A walk over all keys and all connections, in steps, so that a million of them do not hold up the loop: several turns see a part each | `ScanParts`, `Scan`, `RankedAddresses`, `Row`, `OldHold`, `GroupGauges`, `Address`, `add_key` |
//! | `server` | Sockets, signals and the clock around the engine |  |
//! | `server/advice` | Why the daemon could not start, and what to do about it | `StartError`, `about`, `right_address`, `bindable_address`, `taken_port`, `socket_path`, `advice` |
//! | `server/clients` | Clients' connections: bytes → lines → commands → answers → bytes, and admission |  |
//! | `server/clients/admission` | Which clients are admitted: `--max-connections`, `--allow` and `--max-connections-per-ip` | `Admission`, `admits`, `count_opened`, `count_closed` |
//! | `server/clients/connection` | One client's connection: its stream, its unfinished line, its stage of life | `ConnectionStage`, `Connection`, `Origin`, `ConnectionState`, `is_false`, `record_origin`, `ip` |
//! | `server/clients/connections` | The clients' connections: which are ready to read, are owed output, or have gone; their addresses, for reports | `Clients`, `Fate`, `record_received`, `next_owed`, `watch_writable`, `close_after_output`, `schedule_close`, `close_scheduled` |
//! | `server/clients/dispatch` | Handles lines: parses each, lets the engine decide, answers the clients concerned | `Dispatch`, `beginning_of`, `handle_received`, `handle_lines`, `handle_share`, `handle_next_line`, `record_observed`, `handle_end_of_input` |
//! | `server/clients/input` | What all clients sent in a turn, in one buffer, between receiving and handling | `SHARE_BYTES`, `Input`, `InputEnd`, `Received`, `record_unhandled` |
//! | `server/clients/stream` | A socket and its pending output: what a client and a control connection share | `Output`, `Flushed`, `bytes`, `buffer`, `socket`, `unsent`, `output_bytes`, `exceeds_bound` |
//! | `server/event_loop` | The daemon's parts, and one turn of the loop around them | `Server`, `Ended`, `assemble`, `turn`, `time_until_next_work`, `record_events`, `handle_input`, `make_reports` |
//! | `server/kernel` | The only door to system calls, and small things around them |  |
//! | `server/kernel/clock` | The one place where time is read | `now`, `wall_ns`, `cpu_ns` |
//! | `server/kernel/memory_release` | When to return memory to the system | `MemoryRelease`, `DELAY_S` |
//! | `server/kernel/process_usage` | CPU time, memory and descriptors of the process, as the kernel counts them | `bytes_of`, `descriptors_max`, `descriptors_open`, `DIRECTORY` |
//! | `server/kernel/slots` | Connections by slot, and the tokens by which epoll names their slots and other sources of events | `Slots`, `FIRST_LISTENER`, `FIRST_OPERATOR`, `SIGNALS`, `TRIAL`, `FIRST_HTTP`, `Source`, `insert` |
//! | `server/kernel/socket` | A connection's socket, options of sockets, and their addresses as numbers and as text | `PASSED_MAX`, `PASSED_BYTES`, `Socket`, `set_options`, `set_keepalive`, `UNIX_PREFIX`, `UNIX_NAME`, `peer_address` |
//! | `server/kernel/sys` | The only unsafe code: signals, fork, exec, mapped files, inherited descriptors, for which the dependencies have no safe wrapper | `take_over_signals`, `Peer`, `peer_credentials`, `fork_apart`, `unshare_descriptors`, `MappedFile`, `Signal`, `next_signal` |
//! | `server/kernel/world` | The system calls that the server makes, under one roof | `CONNECTIONS_PER_TURN`, `is_file`, `is_same_file` |
//! | `server/listening` | What clients, operators and monitoring connect to: which addresses are wanted, how they open, drain and close, and when the daemon accepts |  |
//! | `server/listening/accepting` | Accepts connections: which listener is next, how many in a turn, and when to pause because descriptors are scarce | `NewConnection`, `record_room_for_http`, `count_descriptors`, `start_turn`, `next_ready`, `give_up_for_now`, `wait_for_descriptor`, `somebody_waits` |
//! | `server/listening/addresses` | Which listeners the options ask for, and which of them cover or contradict each other | `ListenError`, `Purpose`, `Wanted`, `wanted`, `check_purposes`, `without_served`, `clients_addresses`, `failed` |
//! | `server/listening/listener` | One listening socket, the daemon's own or an inherited one: adopts, accepts, closes | `SocketSettings`, `Listener`, `Earlier`, `ListenerStage`, `ListenerState`, `Accepted`, `with`, `is` |
//! | `server/listening/listeners` | All listeners: opens, registers, closes and drains them | `Listeners`, `AcceptBudget`, `Drain`, `ListenersState`, `report_closed`, `is_held_elsewhere`, `close_finished`, `has_drained` |
//! | `server/listening/opening` | Opens listeners for a cold start, a reload and UNDRAIN: all or none | `bind_missing`, `bind_one`, `bind_tcp`, `listen_on_all`, `ReusePort`, `changed`, `from_standard_input`, `from_service_manager` |
//! | `server/listening/unix_socket` | Unix sockets that this daemon binds to a path: their files, mode and group | `SocketFile`, `bind`, `is_at`, `is_same`, `new_socket`, `remove_stale`, `is_listened_on`, `group_id` |
//! | `server/operator` | Signals and the control socket: what an operator orders, and what that does |  |
//! | `server/operator/control_socket` | The control socket: connections of operators and of `--reload`, their lines and answers | `ControlSocket`, `ControlConnection`, `credentials_of`, `record_gone`, `await_report`, `close_if_done`, `read_line`, `has_input` |
//! | `server/operator/control_socket/requests` | Parses what operators ask for: a line of bytes each, since keys are bytes | `Request`, `Free`, `FreeTarget`, `RequestKind`, `KINDS`, `parse_free`, `parse_rule`, `parse_duration` |
//! | `server/operator/execute_orders` | Executes the orders of operators: drain, `FREE`, `RULE`, `LOG`, `STATS`, a hot restart | `clients_of`, `obey_operators`, `serve_request`, `list_rules`, `update_rules`, `begin_restart`, `finish_restart`, `restart_with_parts` |
//! | `server/operator/orders` | Operators' orders, by signal or on the control socket; the two meanings of SIGHUP: the terminal hung up, or an operator wants a hot restart | `Operators`, `Order`, `order_of`, `take_orders`, `wait_for_end`, `answer_waiting`, `put_off`, `record_ended` |
//! | `server/operator/rule_book` | Which rules are in force: those of the file, with what `RULE` orders have changed, and those of `--max-hold` | `RulesFile`, `read_text`, `RuleOrder`, `RuleChange`, `RuleBook`, `turn_off`, `sources`, `as_order` |
//! | `server/operator/run_time_settings` | What operators can change at run time: the log filter (`LOG`) and the rules (`RULE`) | `RunTimeSettings`, `set_log`, `apply_log` |
//! | `server/options` | The command line: options, their limits, and the new ones of `--reload` | `Options`, `parse_count`, `parse_keys`, `parse_socket`, `parse_net`, `parse_group`, `parse_mode`, `arguments_after_reload` |
//! | `server/reporting` | Statistics, lists and metrics on request: HTTP, and the queue of requests, of which each turn of the loop does a part |  |
//! | `server/reporting/http` | HTTP for monitoring and for people, read-only: one request a connection | `Http`, `Exchange`, `ExchangeStage`, `Next`, `advance`, `may_yield`, `discard_input`, `has_time` |
//! | `server/reporting/http/head` | The head of an HTTP request: bytes → what is requested, or why it is refused | `HEAD_BYTES_MAX`, `HEADERS_MAX`, `Head`, `path_of` |
//! | `server/reporting/http/pages` | What is served under which path, and what an answer looks like | `Page`, `Response`, `HTML`, `EXPOSITION`, `PAGE`, `PAGE_POLICY`, `NOTHING`, `reason` |
//! | `server/reporting/report_queue` | Makes the reports of `STATS` and HTTP, which take time | `Reporting`, `ReportQueue`, `RunningScan`, `Answers`, `Maker`, `Requester`, `ReportRequest`, `walk` |
//! | `server/restart` | Hot restart: the old image hands everything to a new one |  |
//! | `server/restart/launcher` | Starts a new binary: keeps its path and the two files that it is handed, and executes it, in a trial and in the restart itself | `Launcher`, `LauncherState`, `TrialFiles`, `BinaryIdentity`, `inherited_snapshot`, `hand_over`, `execute_trial`, `renew` |
//! | `server/restart/new_image` | The new image's side of a hot restart: continues from a snapshot, and in the trial answers whether it could | `answer_requester`, `Restored`, `restore`, `retry_for_a_while`, `rehearse`, `take_over`, `read_standard_input`, `count_restart` |
//! | `server/restart/old_image` | The old image's side of a hot restart: collects everything and hands it to a new binary in the same process | `Restart`, `Parts`, `RunningRestart`, `Handover`, `is_under_way`, `record_trial_end`, `start_trial`, `state_of` |
//! | `server/restart/snapshot` | The snapshot: writes, reads and checks everything that the old image hands to the new one | `Header`, `ServerState`, `Gist`, `SnapshotError`, `Reader`, `check_connection`, `Snapshot`, `next_connection` |
//! | `server/restart/trial` | The trial: the old image asks the new binary, in a forked child, whether it can take over | `TRIAL_LIMIT_S`, `REAP_RETRY_NS`, `EXIT_NOT_ASKED`, `TrialAnswer`, `Consent`, `Trial`, `quoted`, `end` |
//! | `server/start` | Assembles the daemon: a cold start, or the continuation of an old image | `start_logging`, `start_empty` |
//! | `server/telling` | What the daemon reports unasked: the log and systemd |  |
//! | `server/telling/logging` | Log lines: which are logged, in which format, how often (`limited`) | `LoggingState`, `Logger`, `LogWriter`, `Filter`, `Limit`, `LimitState`, `log_dropped`, `allow` |
//! | `server/telling/stderr` | Writes to standard error without ever blocking: lines that it does not accept are dropped and counted | `Written`, `write_line`, `left`, `goes_to_journal`, `Way`, `Stderr`, `choose_way`, `write_once` |
//! | `server/telling/systemd` | Notifies systemd: sd_notify(3) | `EXIT_WAIT_NS`, `STOPPING`, `ServiceManager`, `Channel`, `notify`, `stopping`, `stopping_at_last` |

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub use poolcounter::protocol;

pub mod engine;
pub mod reports;
pub mod server;

// tests/simulation shares the model with tests/engine, where this crate has its name.
#[cfg(test)]
extern crate self as poolcounterd;
