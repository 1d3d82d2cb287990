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
//! | file | what it holds | names declared only there |
//! |---|---|---|
//! | `engine` | All decisions about locks: acquire, release, disconnect, expire; which waiter gets a lock next; the outbox of replies; records every event | `ExpiredLock`, `Engine`, `take_answer`, `take_expired`, `times`, `started`, `HEIRS`, `FormerClient`, `acquire`, `refuse_more`, `try_acquire`, `decide`, `follow`, `observe_end`, `release`, `end_hold`, `cancel_wait`, `disconnect`, `end_locks`, `disconnect_all`, `top_lock`, `change_owner`, `expire_lock`, `expire_hold`, `answer_done`, `hand_on`, `hand_to`, `refuse`, `add_pool`, `drop_pool_if_empty`, `add_lock`, `next_sequence`, `queue_lock`, `push_lock`, `remove_lock`, `begin_hold` |
//! | `engine/counts` | Counts every event: counters, sums of time, histograms |  |
//! | `engine/counts/histogram` | Histograms: buckets with their bounds, how often a value fell into each, and the sum of all values | `Scale`, `MS_NS`, `US_NS`, `LOCK_TIMES`, `TURN_TIMES`, `TURN_EVENTS`, `BUCKETS_MAX`, `bucket_of`, `Histogram`, `counts`, `sum`, `HistogramState` |
//! | `engine/counts/measures` | Statistics of more than one number: waits and holds by kind and outcome, replies by command, turns, restarts | `Measures`, `LockMeasures`, `Turns`, `Restarts`, `LockOutcome`, `is_of_hold`, `CommandKind`, `Replies`, `ANSWERS`, `answer_name` |
//! | `engine/counts/statistics` | Counters, each declared with its name, kind and sentence; sums of time with the names of their lines; how each event changes them | `Counters`, `COUNTERS_IN_FULL`, `Counter`, `CounterKind`, `Times`, `LINES`, `SumOfTime`, `TimeLine`, `Event`, `of_waits`, `hold_began`, `hold_ended` |
//! | `engine/enforcement` | How rules change decisions: verdicts, holders of a total, limits of holds, free slots | `decide_by_rules`, `fill_from_the_front`, `record_wait`, `begin_hold_by_rules`, `matches_of`, `hold_deadline`, `count_end_by_rules`, `has_room_for`, `may_inherit` |
//! | `engine/invariants` | What is true after every call: counts, stacks, the order of queues, timers, rules | `check_counts`, `check_stacks`, `check_order`, `needs_timer` |
//! | `engine/lock` | Locks, held or waited for; the queues of a pool and the stacks of clients that link them; how the caller identifies clients | `Phase`, `QUEUED`, `Lock`, `set_workers`, `LockQueue`, `join`, `leave`, `LOCKS_PER_CLIENT_MAX`, `Stack`, `last_first`, `oldest_first`, `pop`, `ClientId`, `came_after` |
//! | `engine/observe` | Observes single keys and addresses: the most frequent ones of a minute and of an hour, and slow holds and waits |  |
//! | `engine/observe/heavy_hitters` | The most frequent names of a stream, in a table of bounded size: when too many have a place, the least frequent ones lose theirs | `PLACES`, `KEPT`, `Columns`, `By`, `by`, `Ranked`, `HeavyHitters`, `HeavyHittersState`, `Place`, `merge`, `place_of`, `ranking` |
//! | `engine/observe/observer` | What is observed of single keys and clients: samples for `STATS TOP`, and the slow log of long holds and waits | `SLOW_MAX`, `Observer`, `ObserverState`, `Sample`, `SlowLock`, `SlowLogEntry`, `take_sample`, `count_sample`, `set_slow`, `slow_ns`, `is_slow`, `take_slow`, `log_slow`, `slow_log`, `watch_all`, `push_bounded`, `short_name`, `columns_of_end` |
//! | `engine/observe/sampler` | Which requests are followed for `STATS TOP`: the first of each second, and a random sample of the others | `ALL_PER_SECOND`, `ONE_IN`, `Sampler`, `begin_gap` |
//! | `engine/observe/windows` | The most frequent names of a minute and of an hour | `MINUTE_NS`, `HOUR_NS`, `SHOWN_FROM_NS`, `Windows`, `Window`, `WindowState`, `Counted`, `roll`, `shown`, `counted` |
//! | `engine/pool` | Pools, each with the queues of holders and waiters of one key; the map from keys to pools, with the hash; which numbers of pools are in use | `SHORT_KEY_BYTES_MAX`, `StoredKey`, `as_bytes`, `Pool`, `hash`, `queue`, `queue_mut`, `Pools`, `hash_aside`, `remove_if_empty`, `places`, `in_places` |
//! | `engine/rule_change` | A change of rules, at once for all live keys: which rules match them, the holders of each total, the timers of holds, and locks for waiters in the room that it makes | `KEYS_PER_REPORT`, `Rematch`, `Reached`, `rename_shortened_waits`, `reach_keys`, `reach_key`, `restart_timers`, `fill` |
//! | `engine/rules` | Operators' rules in force: which match a key, their numbers instead of the client's, exhausted totals | `STUCK_AFTER_S`, `RuleInForce`, `RulesState`, `Rules`, `Limited`, `Verdict`, `QueueLen`, `continues_as`, `continue_counts`, `continuation`, `are`, `limit_holds`, `have_max_hold`, `are_active`, `has_groups`, `matching`, `group_of`, `max_hold_s`, `max_hold`, `total`, `exhausted_total`, `stuck_after_s`, `settings_of`, `limit`, `limit_room`, `count_holders`, `uncount_holder`, `record_changed` |
//! | `engine/rules/groups` | What is counted for each group of keys | `Group`, `GroupCounts`, `named` |
//! | `engine/rules/matcher` | Compares a key with the patterns of all rules at once, in time linear in the key | `Matches`, `Matcher`, `PatternParts`, `has_ends_of`, `last_bytes`, `Pieces`, `number_of`, `automaton`, `search`, `Search` |
//! | `engine/rules/pattern` | Patterns of keys: which keys match (`*` stands for anything) | `Pattern`, `PATTERN_BYTES_MAX`, `parts`, `check_text`, `check_bytes`, `NO_SPACE`, `is_quote` |
//! | `engine/rules/rule` | Rules as operators write them, `NAME PATTERN SETTING…`, a file with a rule on each line, and the error of each wrong line | `OTHER`, `NO_NAME`, `Rule`, `RuleSettings`, `StuckAfter`, `parse_max_hold`, `has_name`, `check_name`, `is_setting`, `WITH_VALUE`, `number`, `NO_NUMBER`, `try_from`, `RULES_MAX`, `FILE_BYTES_MAX`, `parse_file`, `parse_line` |
//! | `engine/spare_capacity` | How much memory a slab could give back | `SpareCapacity`, `PLACES_MIN` |
//! | `engine/state` | The engine as plain data for a hot restart: what is written, gauges too, how it resumes, and what it refuses because no engine can have written it | `EngineState`, `PoolState`, `LockState`, `SLOTS_MAX`, `BadState`, `pool_states`, `timer_places`, `resume_pool`, `check_rules_of`, `start_timers`, `resume_stacks`, `Resumed`, `check_pool`, `check_lock`, `check_wait` |
//! | `engine/time` | The engine's time: a number that the caller passes in | `Time`, `from_ns`, `as_ns`, `plus_seconds`, `plus_ns`, `ns_since` |
//! | `engine/view` | Read-only views of the engine, borrowed from it: pools, locks and clients | `pools_in`, `pool_places`, `pool`, `PoolView`, `holders`, `locks`, `LockView`, `id`, `phase`, `is_held`, `since`, `mode`, `requests`, `shortened_by`, `sequence`, `ClientView` |
//! | `engine/wheel` | The timer wheel, with its levels and slots: finds the timer that expires next | `TICK_BITS`, `DIGIT_BITS`, `SLOTS`, `LEVELS`, `NO_SLOT`, `Timer`, `Timers`, `Slot`, `WheelLevel`, `Wheel`, `pop_expired`, `first_slot`, `move_down`, `link`, `unlink`, `tick_before`, `tick_after` |
//! | `engine/work` | How much is done for keys, counted where it is done: the simulation bounds what a turn does | `count_visited`, `count_matched` |
//! | `reports` | Which report answers which `STATS`, and what the scan must collect for it; the text of `STATS FULL` | `StatsAnswer`, `stats`, `wants_of`, `full` |
//! | `reports/json` | `STATS JSON` and `/stats.json`, for machines: a struct for each object, filled from all counters, times, histograms, rows and figures | `ROWS`, `Report`, `Measurement`, `Values`, `RepliesJson`, `RestartsJson`, `TurnsJson`, `GroupJson`, `Key`, `OldHoldJson`, `ClientJson`, `TopLists`, `TopOf`, `Top`, `TopRow`, `SlowJson`, `Tops`, `times_s`, `measurements`, `values`, `old_hold`, `top_rows` |
//! | `reports/lists` | Lists as text (`STATS KEYS`, `KEY`, `CLIENTS`, `TOP`, `SLOW`, `RULES`, `--check-rules`): columns, words in cells, the limit on rows | `LOCKS_MAX`, `LOCKS_BYTES_MAX`, `FREED_BYTES_MAX`, `LOCK_COLUMNS`, `UNLIMITED_NS`, `limited`, `seen`, `list_locks`, `described`, `list_top`, `RuleSource`, `explain` |
//! | `reports/metrics` | What Prometheus scrapes: the metrics of `/metrics`, and of `/prometheus` under the names of older exporters | `NS_PER_S`, `FATES`, `metrics`, `write_counters`, `write_measures`, `write_ages`, `write_groups`, `write_group_counts`, `write_connections`, `write_daemon`, `write_safety`, `started_s`, `write_process`, `write_top`, `by_label`, `LEFT_OUT`, `legacy`, `type_of` |
//! | `reports/metrics_text` | Prometheus's text format | `MetricsText`, `COUNTER`, `GAUGE`, `HISTOGRAM`, `into_text`, `metric`, `single`, `sample`, `histogram`, `escaped` |
//! | `reports/report_view` | `ReportView`, all that a report may look at; times, durations, modes, keys, names and addresses as text; nanoseconds as seconds | `ReportView`, `Peers`, `KEY_BYTES_MAX`, `HIDDEN`, `Uptime`, `Seconds`, `ShortDuration`, `mode_word`, `brief_or_dash`, `iso_8601`, `wall`, `age_ns`, `group`, `name`, `address`, `ServerFigures`, `ProcessFigures`, `seconds` |
//! | `reports/scan` | A walk over all keys and connections, in steps: a row for each key and address, the top ones, the oldest holds, gauges by group | `PLACES_PER_TURN`, `ADDRESSES_MAX`, `OLD_HOLDS`, `KEY_BYTES_KEPT`, `ScanParts`, `and`, `Scan`, `RankedAddresses`, `Row`, `oldest_hold`, `OldHold`, `GroupGauges`, `Address`, `count_turn`, `add_key`, `add_groups`, `of_rule`, `of_group`, `add_holder`, `old_holds`, `add_connection`, `make_room_for_address`, `addresses`, `earlier` |
//! | `server` | Sockets, signals and the clock around the engine |  |
//! | `server/advice` | Why the daemon could not start, and what to do about it | `StartError`, `advice`, `about`, `right_address`, `bindable_address`, `taken_port`, `socket_path` |
//! | `server/clients` | Clients' connections: bytes → lines → commands → answers → bytes, and admission |  |
//! | `server/clients/admission` | Which clients are admitted: `--allow`, `--max-connections`, `--max-connections-per-ip`, and the count of connections of each address | `Admission`, `admits`, `count_opened`, `count_closed` |
//! | `server/clients/connection` | One client's connection: its stream, its unfinished line, its stage, its address; what a hot restart carries of it | `ConnectionStage`, `Connection`, `EndOfInput`, `Origin`, `ConnectionState`, `is_false`, `end_behind_held_line`, `is_held_line_last`, `owes_answers`, `record_origin`, `ip` |
//! | `server/clients/connections` | All clients' connections: ready, unread, owed output, scheduled to close; flushes them; walks their addresses for reports | `READABLE`, `Clients`, `Fate`, `OutputFailure`, `open_mut`, `look_behind_held_line`, `awaits_report`, `record_received`, `record_drained`, `record_unread`, `has_much_to_send`, `record_owed`, `next_owed`, `record_output_failure`, `watch_writable`, `close_after_output`, `schedule_close`, `close_scheduled`, `for_each_address` |
//! | `server/clients/dispatch` | Handles lines: parses each, lets the engine decide, answers, a share of a turn for each client; debug lines of both; adds addresses to samples; ended and lost connections | `ANSWER_BYTES`, `LOGGED_KEY_BYTES`, `Dispatch`, `handle_received`, `handle_lines`, `handle_share`, `put_back`, `handle_next_line`, `request_report`, `deliver_report`, `owe_text`, `record_observed`, `deliver_answers`, `reply`, `handle_end_of_input`, `handle_lost_connection`, `beginning_of` |
//! | `server/clients/input` | What all clients sent in a turn, in one buffer, and where each client's bytes start | `SHARE_BYTES`, `Input`, `InputEnd`, `Received`, `record_end`, `record_unhandled` |
//! | `server/clients/input_queues` | Whose input is received and handled next, and how much of it in a turn: two queues of clients, and the turn's budget of work | `SHARE_WORK`, `CLIENT_WORK`, `END_WORK`, `TURN_WORK`, `InputQueues`, `push_fresh`, `push_rest` |
//! | `server/clients/stream` | A socket and its unsent output, of clients and operators | `OUTPUT_BYTES_MAX`, `OUTPUT_STEP_BYTES`, `ROOM_BYTES`, `Stream`, `Output`, `bytes`, `keep_from`, `memory_bytes`, `buffer`, `Flushed`, `socket`, `unsent`, `output_bytes`, `exceeds_bound`, `receive_line`, `is_hung_up`, `is_shut_there`, `discard_output` |
//! | `server/event_loop` | The daemon's parts, and the steps of one turn of the loop around them | `VERSION`, `EVENTS_PER_TURN`, `Server`, `Ended`, `assemble`, `run`, `turn`, `wait`, `time_until_next_work`, `record_events`, `handle_input`, `make_reports`, `dispatch`, `finish_turn`, `close_freed`, `close_ended`, `tidy` |
//! | `server/kernel` | The only door to system calls, and small things around them |  |
//! | `server/kernel/clock` | The one place where time is read | `now`, `wall_ns`, `cpu_ns` |
//! | `server/kernel/memory_release` | When to return memory to the system | `MemoryRelease`, `DELAY_S` |
//! | `server/kernel/process_usage` | CPU time, memory, descriptors and their limit, as the kernel counts them for the process | `bytes_of`, `descriptors_max`, `descriptors_open`, `DIRECTORY` |
//! | `server/kernel/slots` | Connections by slot and serial number; epoll's tokens, and `watch`, which registers a descriptor | `Slots`, `insert`, `at`, `iter_mut`, `FIRST_LISTENER`, `FIRST_OPERATOR`, `SIGNALS`, `TRIAL`, `FIRST_HTTP`, `Source` |
//! | `server/kernel/socket` | A connection's socket: receives and peeks, without passed descriptors; options, keepalive; the client's name and address | `PASSED_MAX`, `PASSED_BYTES`, `Socket`, `has_state`, `receive_without_passed`, `set_options`, `set_keepalive`, `peer_address`, `peer_ip` |
//! | `server/kernel/socket_name` | The name of a socket, from the bytes that the kernel reports: an address, a path, an abstract name or none; as text for logs and lists | `UNIX_PREFIX`, `FAMILY_BYTES`, `BRIEF_BYTES_MAX`, `SocketName`, `unix`, `brief`, `unix_bytes`, `ipv4`, `ipv6` |
//! | `server/kernel/supervisor` | What a supervisor such as systemd passes in variables of the environment: the time of its watchdog, and how many descriptors are sockets to serve | `FIRST_PASSED`, `watchdog_ns`, `passed_descriptors`, `text_of`, `is_ours`, `digits` |
//! | `server/kernel/sys` | All `unsafe` code of the daemon: signals, fork, exec with its arguments, mapped files, peer credentials, descriptors that are inherited, passed or refused, and their limit | `HANDLED`, `IGNORED`, `take_over_signals`, `raise_descriptor_limit`, `is_ignored`, `ignore`, `is_session_leader`, `Peer`, `peer_credentials`, `own_name`, `NameBytes`, `accept_queue_len`, `refuse_passed`, `SO_PASSPIDFD`, `SO_PASSRIGHTS`, `no`, `reset_waits`, `no_linger`, `one`, `fork_apart`, `EXIT_PANICKED`, `unshare_descriptors`, `put_descriptor`, `c_strings`, `pointers`, `MappedFile`, `give_memory_back`, `Signal`, `next_signal`, `INFO_BYTES`, `inherited_descriptor`, `inherited_connection`, `check_inherited`, `epoll_of`, `take_over_epoll` |
//! | `server/kernel/world` | The safe system calls of the server, which the simulation replaces: tests/simulation has the same names | `CONNECTIONS_PER_TURN`, `SHARES_PER_TURN`, `is_file`, `read_regular_file`, `is_same_file`, `executed_path`, `is_running_file` |
//! | `server/listening` | What clients, operators and monitoring connect to: which addresses are wanted, how they open, drain and close, and when the daemon accepts |  |
//! | `server/listening/accepting` | Which listener accepts next, and how many connections in a turn; reserved descriptors; pauses after failures, and retries | `ACCEPTS_PER_TURN`, `DESCRIPTORS_RESERVED`, `DESCRIPTORS_FOR_HTTP`, `DESCRIPTORS_FOR_PASSED`, `RETRY_MS`, `NewConnection`, `record_ready`, `record_closed`, `record_room_for_http`, `count_descriptors`, `start_turn`, `next_ready`, `record_failure`, `give_up_for_now`, `pause`, `wait_for_descriptor`, `somebody_waits` |
//! | `server/listening/addresses` | Which addresses the options ask for, for which purpose, and their errors; which of them cover or contradict each other | `Obstacle`, `ListenError`, `obstacle_of`, `Purpose`, `Wanted`, `is_tcp`, `gives_way`, `on_port`, `contradicts`, `failed`, `wanted`, `check_purposes`, `without_served`, `clients_addresses`, `overlap` |
//! | `server/listening/listener` | One listening socket: checks it, adopts it, accepts from it, begins to close it; whose turn it is; its backlog | `is_servable`, `IPPROTO_MPTCP`, `SocketSettings`, `ABORTED_MAX`, `Listener`, `Earlier`, `ListenerStage`, `ListenerState`, `Accepted`, `inherit`, `with`, `purpose_of_next`, `is_v6_only`, `is_inherited`, `is`, `can_be_found`, `remove_file`, `is_ready`, `record_accepted`, `record_aborted`, `record_none_left`, `begin_to_close`, `restore_backlog`, `queued`, `set_backlog`, `apply` |
//! | `server/listening/listeners` | All listeners: opens and adopts those that are wanted, closes others; registers and deregisters them; drain, and its log | `DRAIN_LOG_INTERVAL_NS`, `Listeners`, `AcceptBudget`, `Drain`, `ListenersState`, `none`, `names`, `log_http`, `names_for`, `remove_files`, `record_free_port`, `clients_port`, `to_be_open`, `applicable`, `keep`, `close_tcp`, `refuse_queued`, `close_finished`, `is_draining`, `has_drained`, `report_closed`, `is_held_elsewhere` |
//! | `server/listening/opening` | Binds what is missing, for a cold start, a reload and UNDRAIN, all or none; changes mode and group of what exists; takes sockets over from systemd or standard input | `exists`, `bind_missing`, `bind_one`, `bind_tcp`, `is_excused`, `listen_on_all`, `ReusePort`, `changed`, `take`, `from_standard_input`, `from_service_manager` |
//! | `server/listening/unix_socket` | The file of a Unix socket of this daemon: binds it, sets mode and group, removes a stale one, finds whether a process listens on it | `SocketFile`, `bind`, `LOCK_ATTEMPTS`, `LOCK_PAUSE`, `lock_directories`, `directory_of`, `is_at`, `is_same`, `new_socket`, `remove_stale`, `is_listened_on`, `ACCEPTS_CONNECTIONS`, `group_id` |
//! | `server/operator` | Signals and the control socket: what an operator orders, and what that does |  |
//! | `server/operator/control_socket` | The control socket: operators' connections, their input, answers in order; which connection it closes if there are too many; its log; what a hot restart carries over | `REQUEST_BYTES_MAX`, `REQUESTS_LOGGED`, `TOO_MANY`, `ControlSocket`, `ControlConnection`, `ControlConnectionState`, `awaits_answer`, `ended`, `close_if_done`, `unanswered`, `log_late`, `read_line`, `has_input`, `credentials_of` |
//! | `server/operator/control_socket/requests` | Parses a line of an operator, in bytes, since keys are bytes | `PRINTED_CHARS`, `Request`, `Free`, `FreeTarget`, `RequestKind`, `KINDS`, `help`, `has_empty_word`, `EMPTY_WORD`, `NO_SUCH_REQUEST`, `alone`, `parse_restart`, `parse_log`, `parse_stats`, `FREED_MAX`, `parse_free`, `EXPECTED`, `parse_number`, `parse_key`, `parse_host`, `parse_rule`, `parse_duration`, `printable` |
//! | `server/operator/execute_orders` | What each order does: `DRAIN`, `UNDRAIN`, `FREE`, `RULE`, `LOG`, `STATS`; begins and finishes a hot restart | `obey_operators`, `serve_request`, `list_rules`, `change_rules`, `end_expired_rules`, `begin_restart`, `finish_restart`, `restart_with_parts`, `refuse_restart`, `close`, `one_line`, `clients_of` |
//! | `server/operator/orders` | Turns events of signals and of operators' connections into orders; operators that wait for the end of a drain; whether SIGHUP is a hangup or asks for a hot restart | `Operators`, `Order`, `restart_again`, `take_orders`, `wait_for_end`, `answer_waiting`, `record_ended`, `resume_input`, `order_of`, `TERMINAL_VARIABLE`, `IS_UNDER_SHELL`, `record_terminal`, `is_meant_by`, `for_next_image`, `was_under_shell`, `has_terminal` |
//! | `server/operator/rule_book` | Which rules are in force: those of the file, read here, and of `--max-hold`, with what `RULE` changed, and until when; checks keys for `--check-rules` | `read_rules`, `read_file`, `RulesError`, `RuleOrder`, `RuleChange`, `RuleBook`, `check`, `in_file`, `change`, `obey`, `turn_off`, `check_known`, `sources`, `as_order` |
//! | `server/operator/run_time_settings` | What `LOG` and `RULE` set at run time, and what of it a hot restart ends | `RunTimeSettings`, `set_log`, `apply_log` |
//! | `server/options` | The command line: options, their limits and errors, and the arguments of a reload | `PORT`, `HTTP_KEYS_MAX`, `ABOUT`, `AFTER_HELP`, `Options`, `are_for_serving`, `warn_of_likely_mistakes`, `has_several`, `parse_port`, `parse_count`, `parse_keys`, `parse_seconds`, `SECONDS_MAX`, `parse_socket`, `parse_net`, `MAPPED_PREFIX_LEN`, `parse_group`, `parse_mode`, `arguments_after_reload` |
//! | `server/reporting` | Statistics, lists and metrics on request: HTTP, and the queue of requests, of which each turn of the loop does a part |  |
//! | `server/reporting/http` | HTTP for monitoring and for people, read-only: connections, deadlines and stages; which connection it closes for a new client | `REQUEST_S`, `ANSWER_S`, `CLOSE_S`, `PROMPT_S`, `REPORT_S`, `Http`, `Exchange`, `ExchangeStage`, `has_room_again`, `advance`, `Next`, `may_yield`, `discard_input`, `has_time` |
//! | `server/reporting/http/head` | Parses the head of an HTTP request: what is requested, or why it is refused | `HEAD_BYTES_MAX`, `HEADERS_MAX`, `Head`, `AnswerPart`, `path_of` |
//! | `server/reporting/http/pages` | What is served under which path, what a response looks like, and the key of `/key?` | `Page`, `Response`, `HTML`, `EXPOSITION`, `PAGE`, `PAGE_POLICY`, `NOTHING`, `text`, `of_report`, `into_bytes`, `reason`, `key_in` |
//! | `server/reporting/report_queue` | Makes the reports of `STATS` and HTTP, which take time: requests in queues, a few steps each turn, given up at a restart | `COST_PER_TURN`, `Reporting`, `ReportQueue`, `RunningScan`, `enqueue`, `Answers`, `scan`, `end_scan`, `cost`, `started_wall_ns`, `walk`, `Maker`, `json`, `view`, `Requester`, `ReportRequest`, `wants` |
//! | `server/restart` | Hot restart: the old image hands everything to a new one |  |
//! | `server/restart/launcher` | Starts a new binary, in a trial and in the restart itself: its path, the two files that it gets (snapshot, answer), its arguments and environment, exec | `HANDOFF_VARIABLE`, `DESCRIPTORS_NEEDED`, `ANSWER_BYTES_MAX`, `SNAPSHOT_NAME`, `ANSWER_NAME`, `Launcher`, `LauncherState`, `binary`, `hand_over`, `execute_trial`, `words`, `environment`, `TrialFiles`, `reserve`, `both`, `numbers`, `renew`, `write_snapshot`, `file_in_memory`, `UNKNOWN_PROGRAM`, `program_path`, `BinaryIdentity`, `spare_descriptors`, `keep_on_exec`, `close_on_exec`, `inherited_snapshot` |
//! | `server/restart/new_image` | The new image's side of a hot restart: adopts what a snapshot names, waits for descriptors and memory to do so, answers in the trial, answers the operator | `disconnect_lost`, `answer_requester`, `count_restart`, `Restored`, `restore`, `gist`, `retry_for_a_while`, `ATTEMPTS`, `PAUSE`, `lacks_resources`, `HEAP_MARGIN_BYTES`, `STACK_MARGIN_BYTES`, `rehearse`, `take_over`, `read_standard_input`, `build_the_rest`, `touch_stack` |
//! | `server/restart/old_image` | The old image's side of a hot restart, in two phases: collects what is handed over, with all descriptors | `Restart`, `Parts`, `RunningRestart`, `RefusedRestart`, `is_under_way`, `repeat`, `record_trial_end`, `begin`, `start_trial`, `finish`, `state_of`, `Handover` |
//! | `server/restart/snapshot` | The snapshot of a hot restart: its format and header, writes and reads connections and pools, refuses descriptors, connections and unread input that contradict each other | `NEWEST`, `Header`, `ServerState`, `Gist`, `SnapshotError`, `impossible`, `Reader`, `connections`, `next_connection`, `next_pool`, `check_end`, `check_clients`, `check_descriptors`, `check_operators`, `check_connection`, `kept_descriptors` |
//! | `server/restart/trial` | The trial: forks a child that executes the new binary and asks it; its time limit, answer and verdict | `TRIAL_LIMIT_S`, `REAP_RETRY_NS`, `EXIT_NOT_ASKED`, `TrialAnswer`, `Consent`, `Trial`, `judge`, `quoted`, `CHARS_MAX`, `end`, `kill_all`, `run_new_binary` |
//! | `server/start` | Starts the daemon: assembles it from its options, or continues an old image | `start_logging`, `start_empty` |
//! | `server/telling` | What the daemon reports unasked: the log and systemd |  |
//! | `server/telling/logging` | Log lines: filter, format, rate limits (`limited`), counts of dropped lines | `DEFAULT_FILTER`, `FILTER_VARIABLE`, `LOGGER`, `check_filter`, `set_filter`, `filter`, `LoggingState`, `retry`, `flush_briefly`, `log_suppressed`, `print`, `Logger`, `read_filter`, `replace_filter`, `log_dropped`, `enabled`, `LogWriter`, `write_for_journal`, `log_panic`, `Filter`, `is_directive`, `KNOWN`, `known`, `report_suppressed`, `Limit`, `LimitState`, `allow`, `LIMIT` |
//! | `server/telling/stderr` | Writes to standard error without ever blocking: lines that it does not accept are tried again later, or dropped and counted | `RETRY_NS`, `MOMENT_NS`, `POLLED_BYTES`, `STDERR`, `Written`, `write_line`, `count_dropped`, `take_dropped`, `left`, `goes_to_journal`, `Way`, `Stderr`, `write_once`, `choose_way` |
//! | `server/telling/systemd` | Notifies systemd: sd_notify(3) | `INTERVAL_NS_MIN`, `EXIT_WAIT_NS`, `STOPPING`, `ServiceManager`, `Reload`, `begin_reload`, `end_reload`, `notify`, `notify_watchdog`, `stopping`, `stopping_at_last`, `reloading`, `Channel` |

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub use poolcounter::protocol;

pub mod engine;
pub mod reports;
pub mod server;

// tests/simulation shares the model with tests/engine, where this crate has its name.
#[cfg(test)]
extern crate self as poolcounterd;
