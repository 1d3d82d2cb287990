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
//! | `engine` | All decisions about locks: acquire, release, disconnect, expire; hands a lock to the next waiter; the outbox of replies; records each event | `ExpiredLock`, `Engine`, `FormerClient`, `try_acquire`, `decide`, `follow`, `end_locks`, `hand_to` |
//! | `engine/counts` | Counts every event: counters, sums of time, histograms |  |
//! | `engine/counts/histogram` | Histograms: buckets with their bounds, how often a value fell into each, and the sum of all values | `Scale`, `MS_NS`, `LOCK_TIMES`, `TURN_TIMES`, `Histogram`, `HistogramState`, `bucket_of`, `sum` |
//! | `engine/counts/measures` | Statistics of more than one number: waits and holds by kind and outcome, replies by command, turns, restarts | `Measures`, `LockMeasures`, `Turns`, `Restarts`, `LockOutcome`, `CommandKind`, `Replies`, `answer_name` |
//! | `engine/counts/statistics` | Counters, each declared with its name, kind and sentence; sums of time with the names of their lines; how each event changes them | `Counter`, `CounterKind`, `SumOfTime`, `TimeLine`, `Event`, `Counters`, `Times`, `LINES` |
//! | `engine/enforcement` | How rules change decisions: verdicts, holders of a total, overdue holds; applies changed rules pool by pool | `apply_rules`, `is_overdue_by_new_rules`, `apply_rules_to`, `matches_of`, `decide_by_rules`, `begin_hold_by_rules`, `count_end_by_rules`, `may_inherit` |
//! | `engine/invariants` | What is true after every call: counts, stacks, the order of queues, timers, rules | `check_counts`, `check_stacks`, `check_order`, `needs_timer` |
//! | `engine/lock` | Locks, held or waited for; the queues of a pool and the stacks of clients that link them; how the caller identifies clients | `Phase`, `LockQueue`, `Stack`, `ClientId`, `first`, `join`, `last_first`, `oldest_first` |
//! | `engine/observe` | Observes single keys and addresses: the most frequent ones of a minute and of an hour, and slow holds and waits |  |
//! | `engine/observe/heavy_hitters` | The most frequent names of a stream, in a table of bounded size: when too many have a place, the least frequent ones lose theirs | `Columns`, `By`, `Ranked`, `HeavyHitters`, `HeavyHittersState`, `Place`, `place_of`, `ranking` |
//! | `engine/observe/observer` | What is observed of single keys and clients: samples for `STATS TOP`, and the slow log of long holds and waits | `Observer`, `ObserverState`, `Sample`, `SlowLock`, `SlowLogEntry`, `push_bounded`, `short_name`, `columns_of_end` |
//! | `engine/observe/sampler` | Which requests are followed for `STATS TOP`: the first of each second, and a random sample of the others | `ALL_PER_SECOND`, `ONE_IN`, `Sampler`, `begin_gap` |
//! | `engine/observe/windows` | The most frequent names of a minute and of an hour | `MINUTE_NS`, `Windows`, `Window`, `WindowState`, `Counted`, `roll`, `shown`, `counted` |
//! | `engine/pool` | Pools, each with the queues of holders and waiters of one key; the map from keys to pools, with the hash; which ids exist | `StoredKey`, `Pool`, `Pools`, `hash_aside`, `hash`, `queue`, `queue_mut`, `remove_if_empty` |
//! | `engine/rules` | Operators' rules in force: which match a key, their numbers instead of the client's, exhausted totals | `Matches`, `RuleInForce`, `RulesState`, `Having`, `Rules`, `Limited`, `QueueLen`, `replace` |
//! | `engine/rules/groups` | What is counted for each group of keys | `Group`, `GroupCounts`, `renewed` |
//! | `engine/rules/pattern` | Patterns of keys: which keys match (`*` stands for anything) | `Pattern`, `PATTERN_BYTES_MAX`, `ByteSet`, `begins_with`, `may_match` |
//! | `engine/rules/rule` | Rules as operators write them, `NAME PATTERN SETTING…`, a file with a rule on each line, and the error of each wrong line | `Rule`, `RuleSettings`, `StuckAfter`, `check_name`, `parse_file`, `parse_line`, `parse_max_hold`, `try_from` |
//! | `engine/spare_capacity` | How much memory a slab could give back | `SpareCapacity`, `PLACES_MIN` |
//! | `engine/state` | The engine as plain data for a hot restart: what is written, gauges too, how it resumes, and what it refuses because no engine can have written it | `EngineState`, `PoolState`, `LockState`, `BadState`, `Resumed`, `check_pool`, `resume_pool`, `resume_stacks` |
//! | `engine/time` | The engine's time: a number that the caller passes in | `Time`, `from_ns`, `as_ns`, `plus_seconds`, `plus_ns`, `ns_since` |
//! | `engine/view` | Read-only views of the engine, borrowed from it: pools, locks and clients | `PoolView`, `LockView`, `ClientView`, `pools_in`, `pool_places`, `pool`, `holders`, `phase` |
//! | `engine/wheel` | The timer wheel, with its levels and slots: finds the timer that expires next | `Timer`, `Timers`, `Slot`, `WheelLevel`, `Wheel`, `pop_expired`, `link`, `unlink` |
//! | `reports` | Which report answers which `STATS`, and what the scan must collect for it; the text of `STATS FULL` | `StatsAnswer`, `wants_of`, `full` |
//! | `reports/json` | `STATS JSON` and `/stats.json`, for machines: a struct for each object, filled from all counters, times, histograms, rows and figures | `Measurement`, `Values`, `GroupJson`, `Key`, `OldHoldJson`, `Top`, `TopRow`, `SlowJson` |
//! | `reports/lists` | Lists as text, `STATS KEYS`, `KEY`, `CLIENTS`, `TOP`, `SLOW`, `RULES` and `--check-rules`: columns, words in cells, the limit on rows | `LOCK_COLUMNS`, `limited`, `seen`, `list_locks`, `described`, `list_top`, `RuleSource`, `explain` |
//! | `reports/metrics` | What Prometheus scrapes: the metrics of `/metrics`, and of `/prometheus` under the names of older exporters | `metrics`, `write_counters`, `write_measures`, `write_groups`, `write_group_counts`, `write_daemon`, `write_top`, `legacy` |
//! | `reports/metrics_text` | Prometheus's text format | `MetricsText`, `COUNTER`, `escaped`, `into_text`, `metric`, `single`, `sample`, `histogram` |
//! | `reports/report_view` | `ReportView`, all that a report may look at; times, durations, modes, keys, names and addresses as text; nanoseconds as seconds | `ReportView`, `Peers`, `Uptime`, `Seconds`, `ShortDuration`, `mode_word`, `ServerFigures`, `ProcessFigures` |
//! | `reports/scan` | A walk over all keys and connections, in steps: a row for each key and address, the top ones, the oldest holds, gauges by group | `ScanParts`, `Scan`, `RankedAddresses`, `Row`, `OldHold`, `GroupGauges`, `Address`, `add_key` |
//! | `server` | Sockets, signals and the clock around the engine |  |
//! | `server/advice` | Why the daemon could not start, and what to do about it | `StartError`, `about`, `right_address`, `bindable_address`, `taken_port`, `socket_path`, `advice` |
//! | `server/clients` | Clients' connections: bytes → lines → commands → answers → bytes, and admission |  |
//! | `server/clients/admission` | Which clients are admitted: `--allow`, `--max-connections`, `--max-connections-per-ip`, and the count of connections of each address | `Admission`, `admits`, `count_opened`, `count_closed` |
//! | `server/clients/connection` | One client's connection: its stream, its unfinished line, its stage, its address; what a hot restart carries of it | `ConnectionStage`, `Connection`, `Origin`, `ConnectionState`, `is_false`, `record_origin`, `ip` |
//! | `server/clients/connections` | All clients' connections: ready, unread, owed output, scheduled to close; flushes them; walks their addresses for reports | `Clients`, `Fate`, `record_received`, `next_owed`, `watch_writable`, `close_after_output`, `close_scheduled`, `for_each_address` |
//! | `server/clients/dispatch` | Handles lines: parses each, lets the engine decide, answers, a share of a turn for each client; debug lines of both; adds addresses to samples; ended and lost connections | `Dispatch`, `beginning_of`, `handle_received`, `handle_lines`, `handle_share`, `handle_next_line`, `record_observed`, `handle_end_of_input` |
//! | `server/clients/input` | What all clients sent in a turn, in one buffer, and which client's bytes start where | `SHARE_BYTES`, `Input`, `InputEnd`, `Received`, `record_unhandled` |
//! | `server/clients/stream` | A socket and its unsent output, of clients and operators | `Output`, `Flushed`, `bytes`, `buffer`, `socket`, `output_bytes`, `receive_line`, `keep_unsent` |
//! | `server/event_loop` | The daemon's parts, and the steps of one turn of the loop around them | `Server`, `Ended`, `assemble`, `turn`, `time_until_next_work`, `record_events`, `handle_input`, `make_reports` |
//! | `server/kernel` | The only door to system calls, and small things around them |  |
//! | `server/kernel/clock` | The one place where time is read | `now`, `wall_ns`, `cpu_ns` |
//! | `server/kernel/memory_release` | When to return memory to the system | `MemoryRelease`, `DELAY_S` |
//! | `server/kernel/process_usage` | CPU time, memory, descriptors and their limit, as the kernel counts them for the process | `bytes_of`, `descriptors_max`, `descriptors_open`, `DIRECTORY` |
//! | `server/kernel/slots` | Connections by slot and serial number; epoll's tokens, and `watch`, which registers a descriptor | `Slots`, `FIRST_LISTENER`, `FIRST_OPERATOR`, `SIGNALS`, `Source`, `insert`, `at`, `iter_mut` |
//! | `server/kernel/socket` | A connection's socket: receives and peeks, without passed descriptors; options, keepalive; addresses as text | `PASSED_MAX`, `Socket`, `set_options`, `set_keepalive`, `peer_address`, `peer_ip`, `socket_name`, `receive_without_passed` |
//! | `server/kernel/sys` | All `unsafe` code of the daemon: signals, fork, exec with its arguments, mapped files, inherited descriptors, raising their limit | `take_over_signals`, `Peer`, `peer_credentials`, `fork_apart`, `unshare_descriptors`, `MappedFile`, `Signal`, `next_signal` |
//! | `server/kernel/world` | The safe system calls of the server, which the simulation replaces: tests/simulation has the same names | `CONNECTIONS_PER_TURN`, `is_file`, `is_same_file` |
//! | `server/listening` | What clients, operators and monitoring connect to: which addresses are wanted, how they open, drain and close, and when the daemon accepts |  |
//! | `server/listening/accepting` | Which listener accepts next, and how many connections in a turn; reserved descriptors; pauses after failures, and retries | `NewConnection`, `record_room_for_http`, `count_descriptors`, `start_turn`, `next_ready`, `give_up_for_now`, `wait_for_descriptor`, `somebody_waits` |
//! | `server/listening/addresses` | Which addresses the options ask for, for which purpose, and their errors; which of them cover or contradict each other | `ListenError`, `Purpose`, `Wanted`, `wanted`, `check_purposes`, `without_served`, `clients_addresses`, `failed` |
//! | `server/listening/listener` | One listening socket: checks and adopts it, accepts, whose turn it is, begins to close, its backlog | `SocketSettings`, `Listener`, `Earlier`, `ListenerStage`, `ListenerState`, `Accepted`, `with`, `is` |
//! | `server/listening/listeners` | All listeners: opens and adopts those that are wanted, closes others; registers and deregisters them; drain, and its log | `Listeners`, `AcceptBudget`, `Drain`, `ListenersState`, `report_closed`, `is_held_elsewhere`, `close_finished`, `has_drained` |
//! | `server/listening/opening` | Binds what is missing, for a cold start, a reload and UNDRAIN, all or none; changes mode and group of what exists; takes sockets over from systemd or standard input | `bind_missing`, `bind_one`, `bind_tcp`, `listen_on_all`, `ReusePort`, `changed`, `from_standard_input`, `from_service_manager` |
//! | `server/listening/unix_socket` | The file of a Unix socket of this daemon: binds it, sets mode and group, removes a stale one, finds whether a process listens on it | `SocketFile`, `bind`, `is_at`, `is_same`, `new_socket`, `remove_stale`, `is_listened_on`, `group_id` |
//! | `server/operator` | Signals and the control socket: what an operator orders, and what that does |  |
//! | `server/operator/control_socket` | The control socket: operators' connections, their input, answers in order, the oldest of which gives way; its log | `ControlSocket`, `ControlConnection`, `credentials_of`, `record_gone`, `await_report`, `close_if_done`, `read_line`, `has_input` |
//! | `server/operator/control_socket/requests` | Parses a line of an operator, in bytes, since keys are bytes | `Request`, `Free`, `FreeTarget`, `RequestKind`, `KINDS`, `parse_free`, `parse_rule`, `parse_duration` |
//! | `server/operator/execute_orders` | What each order does: drain, `FREE`, `RULE`, `LOG`, `STATS`; begins and finishes a hot restart | `clients_of`, `obey_operators`, `serve_request`, `list_rules`, `update_rules`, `begin_restart`, `finish_restart`, `restart_with_parts` |
//! | `server/operator/orders` | Turns events of signals and of operators' connections into orders; who waits for the end of a drain; whether SIGHUP is a hangup or asks for a hot restart | `Operators`, `Order`, `order_of`, `take_orders`, `wait_for_end`, `answer_waiting`, `put_off`, `record_ended` |
//! | `server/operator/rule_book` | Which rules are in force: the file of rules, read here, with what `RULE` changed, and until when; checks keys for `--check-rules` | `RulesFile`, `read_text`, `RuleOrder`, `RuleChange`, `RuleBook`, `turn_off`, `sources`, `as_order` |
//! | `server/operator/run_time_settings` | What `LOG` and `RULE` set at run time, and what of it a hot restart ends | `RunTimeSettings`, `set_log`, `apply_log` |
//! | `server/options` | The command line: options, their limits and errors, and the arguments of a reload | `Options`, `parse_count`, `parse_keys`, `parse_socket`, `parse_net`, `parse_group`, `arguments_after_reload`, `warn_of_ignored` |
//! | `server/reporting` | Statistics, lists and metrics on request: HTTP, and the queue of requests, of which each turn of the loop does a part |  |
//! | `server/reporting/http` | HTTP for monitoring and for people, read-only: connections, deadlines and stages; which one gives way to a new one | `Http`, `Exchange`, `ExchangeStage`, `Next`, `advance`, `may_yield`, `discard_input`, `has_time` |
//! | `server/reporting/http/head` | Parses the head of an HTTP request: what is requested, or why it is refused | `HEAD_BYTES_MAX`, `HEADERS_MAX`, `Head`, `path_of` |
//! | `server/reporting/http/pages` | What is served under which path, what a response looks like, and the key of `/key?` | `Page`, `Response`, `HTML`, `NOTHING`, `reason`, `key_in`, `of_report`, `into_bytes` |
//! | `server/reporting/report_queue` | Makes the reports of `STATS` and HTTP, which take time: requests in queues, a few steps each turn, given up at a restart | `Reporting`, `ReportQueue`, `RunningScan`, `Answers`, `Maker`, `Requester`, `ReportRequest`, `walk` |
//! | `server/restart` | Hot restart: the old image hands everything to a new one |  |
//! | `server/restart/launcher` | Starts a new binary, in a trial and in the restart itself: its path, the two files that it gets (snapshot, answer), its arguments and environment, exec | `Launcher`, `LauncherState`, `TrialFiles`, `BinaryIdentity`, `inherited_snapshot`, `hand_over`, `execute_trial`, `renew` |
//! | `server/restart/new_image` | The new image's side of a hot restart: adopts what a snapshot names, waits for descriptors and memory to do so, answers in the trial, answers the operator | `answer_requester`, `Restored`, `restore`, `retry_for_a_while`, `rehearse`, `take_over`, `read_standard_input`, `count_restart` |
//! | `server/restart/old_image` | The old image's side of a hot restart, in two phases: collects what is handed over, with all descriptors | `Restart`, `Parts`, `RunningRestart`, `Handover`, `is_under_way`, `record_trial_end`, `start_trial`, `state_of` |
//! | `server/restart/snapshot` | The snapshot of a hot restart: its format and header, writes and reads connections and pools, refuses descriptors, connections and unread input that contradict each other | `Header`, `ServerState`, `Gist`, `SnapshotError`, `Reader`, `check_connection`, `Snapshot`, `next_connection` |
//! | `server/restart/trial` | The trial: forks a child that executes the new binary and asks it; its time limit, answer and verdict | `TRIAL_LIMIT_S`, `TrialAnswer`, `Consent`, `Trial`, `quoted`, `end`, `kill_all`, `run_new_binary` |
//! | `server/start` | A cold start: assembles the daemon from its options, or continues an old image | `start_logging`, `start_empty` |
//! | `server/telling` | What the daemon reports unasked: the log and systemd |  |
//! | `server/telling/logging` | Log lines: filter, format, rate limits (`limited`), counts of dropped lines | `LoggingState`, `Logger`, `LogWriter`, `Filter`, `Limit`, `LimitState`, `log_dropped`, `allow` |
//! | `server/telling/stderr` | Writes to standard error without ever blocking: lines that it does not accept are tried again later, or dropped and counted | `Written`, `write_line`, `left`, `goes_to_journal`, `Way`, `Stderr`, `choose_way`, `write_once` |
//! | `server/telling/systemd` | Notifies systemd: sd_notify(3) | `EXIT_WAIT_NS`, `STOPPING`, `ServiceManager`, `Channel`, `notify`, `stopping`, `stopping_at_last` |

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub use poolcounter::protocol;

pub mod engine;
pub mod reports;
pub mod server;

// tests/simulation shares the model with tests/engine, where this crate has its name.
#[cfg(test)]
extern crate self as poolcounterd;
