//! A client of [PoolCounter](https://www.mediawiki.org/wiki/PoolCounter): locks shared by
//! programs on many machines, kept by the daemon poolcounterd.
//!
//! A lock belongs to a connection. It ends at the latest when the connection does: a
//! program that crashes leaves none behind.
//!
//! # One lock
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support/server.rs"));
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use poolcounter::{Client, LockRequest, Outcome};
//! use std::time::Duration;
//!
//! # let server = serve();
//! # let _: &str = stringify!(
//! let server = "10.1.2.3";
//! # );
//! let client = Client::new([server.parse()?]);
//! let request = LockRequest::new("nightly-report").timeout(Duration::from_secs(60));
//! match client.lock(&request)? {
//!     Outcome::Locked(lock) => {
//!         // The work. If it returns early, as by `?`, the lock is given up.
//!         lock.release()?;
//!     }
//!     Outcome::TimedOut => println!("another host has it for over a minute"),
//!     Outcome::QueueFull => println!("too many wait"),
//!     Outcome::Done => println!("another host did the work"), // only after .any()
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Work that anyone may do
//! With [`LockRequest::any`], those that wait get `Done` as soon as a holder has released
//! the lock. When its guard is dropped, the next one gets the lock.
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support/server.rs"));
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use poolcounter::{Client, LockRequest, Outcome};
//!
//! # let client = Client::new([serve().parse()?]);
//! # fn render() -> std::io::Result<()> { Ok(()) }
//! let request = LockRequest::new("job:report").any().workers(2).max_queue(100);
//! if let Outcome::Locked(lock) = client.lock(&request)? {
//!     render()?;
//!     lock.release()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Several servers
//! [`order`] says which one guards a key. So does MediaWiki's client: give all clients the
//! same list, and PHP, scripts and services agree. [`Lock`] says what that means for nested
//! locks.
//!
//! # Waiting, and noticing a loss
//! A wait ends when the request's timeout says so, or when a [`Canceller`] does, from
//! another thread. A lock ends with its connection: work that takes long asks
//! [`Lock::is_lost`] now and then, or polls the guard's descriptor. A host that vanishes is
//! noticed after [`Client::keepalive`].
//!
//! # Without I/O
//! A [`Conversation`] takes and gives bytes; `examples/tokio.rs` is an async client of
//! thirty lines on it.
//!
//! # Features
//! `client`, the default, is this library; it needs `std`, `md5` and `rustix`. `cli` builds
//! the command `poolcounter` too. Without features, only [`protocol`] is left, which names
//! no I/O and no clock.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

// | file | what it holds | names declared only there |
// |---|---|---|
// | `blocking` | The blocking client: its choice of a server, timeouts, locks that are given back when dropped, waits and cancels on one connection; its errors | `CONNECT_TIMEOUT`, `ATTEMPTS`, `KEEPALIVE`, `Client`, `connect_timeout`, `answer_timeout`, `keepalive`, `no_fallback`, `connect_to`, `Connected`, `server`, `canceller`, `is_lost`, `Outcome`, `Lock`, `NestedLock`, `Session`, `OUTERMOST`, `nested`, `SHORTEST_READ`, `Link`, `Shared`, `Canceller`, `cancel`, `close`, `must_be_open`, `is_cancelled`, `answer`, `Error` |
// | `cli` | The command `poolcounter`: subcommands, the list of servers, the hint for a wrong command line | `LOCALHOST`, `Arguments`, `Action`, `Rows`, `command`, `main`, `empty_argument`, `wrong_usage`, `subcommand`, `hint_at_hyphens`, `obey`, `servers`, `parsed` |
// | `cli/check` | `check`, a plugin of Nagios and Icinga: figures, thresholds, verdicts, the plugin's line | `Limits`, `check`, `judge`, `answered`, `json_report`, `oldest_hold_s`, `Severity`, `status`, `Thresholds`, `Figure`, `level`, `performance`, `Verdict`, `with_forgotten_rules`, `critical`, `report`, `in_label` |
// | `cli/control` | Orders to the daemon of this host: `drain` and its wait, line by line, until the process has ended; `undrain`, `free`, `rules`, `rule`, `restart`, `control` | `OrderOptions`, `is_obeyed`, `print_answer`, `DRAIN_AFTER_HELP`, `PAUSE`, `DrainOptions`, `DrainEnd`, `drain`, `drain_and_wait`, `DrainWait`, `DrainEvent`, `reconnect`, `pause`, `next_event`, `wait_for_process_end`, `wait_for_any`, `FreeOptions`, `Target`, `parse_client`, `free`, `RuleAction`, `rule` |
// | `cli/every_server` | Asks several servers at the same time | `ask_each`, `distinct` |
// | `cli/output` | Prints text and JSON to standard output, errors to standard error, with controls escaped | `print_error`, `print_json`, `report_output_error`, `escape_controls`, `is_control` |
// | `cli/parsed_report` | Parses the text of an answer into values and tables; merges the lists of several servers; converts all of it to JSON | `TIMES`, `ParsedReport`, `text`, `value`, `number`, `listed`, `json`, `full_as_json`, `named_value`, `counts` |
// | `cli/reported_rules` | What `STATS JSON` says about rules: those that orders have set, in words, for `top` and `check`; the rules that limit a key, for lists | `by_orders`, `without_end`, `counted`, `limiting` |
// | `cli/run` | `run`, a command under a lock: options, the request, the command's environment, what happens without a server or when it does not admit this host; the notice that names the holder | `LOOKS`, `KEY_VARIABLE`, `SERVER_VARIABLE`, `NoServer`, `RunOptions`, `with_key`, `parse_seconds`, `parse_some_seconds`, `run`, `RunEnd`, `code`, `client`, `under_lock`, `is_still_there`, `NoLock`, `without_lock`, `execute`, `NOTICED_AFTER`, `WaitNotice`, `begin`, `held`, `in_words` |
// | `cli/run/descendants` | All processes that the command has started, found in /proc: terminates and kills them | `LOOKS_MAX`, `Descendants`, `Signalled`, `adopt`, `forget`, `terminate`, `kill`, `are_gone`, `signalable`, `running`, `send_all`, `ProcessStat`, `processes`, `process` |
// | `cli/run/job` | The command as a job while a lock is held: starts it, passes signals on, notices a lost connection, waits for its end | `OnLost`, `JobEnd`, `Surroundings`, `Job`, `reap`, `wait_for_events`, `lose`, `stop_the_command`, `pass_on`, `ends_a_process`, `ended` |
// | `cli/run/stderr_thread` | Prints to standard error in a thread that may block, so that `run` never does | `PATIENCE`, `StderrThread`, `Thread`, `finish` |
// | `cli/stats` | `stats`, `keys`, `key`, `clients`, `slow`: asks; prints text, with the lists of several servers as one, or JSON for each server; the exit status of a failure | `cut_note`, `print_merged`, `show_key`, `key_from_user`, `stats`, `everything`, `Report`, `print_each`, `print_note` |
// | `cli/status` | Exit statuses as numbers | `CONFLICT`, `USAGE`, `NOT_EXECUTED`, `LOST`, `NO_SERVER`, `PROTOCOL` |
// | `cli/table` | Tables, rows and cells by column: merges, sorts by the order of each list, aligns; cells as JSON, times as numbers | `Table`, `KEYS_ORDER`, `CLIENTS_ORDER`, `SLOW_ORDER`, `COLUMN_WIDTH_MAX`, `push`, `cell`, `sort`, `sort_by_column`, `rank`, `widths`, `lines`, `json_row`, `aligned`, `compare`, `json_of`, `seconds` |
// | `cli/top` | `top`: the session, the keys pressed, when to ask the servers again and when to draw | `TICK`, `top`, `print_once`, `TopSession`, `view`, `show_next`, `interact`, `Reaction`, `react`, `draw_line` |
// | `cli/top/terminal` | The terminal of `top`: whether standard output is one, has colours, and takes output now; sets raw mode, and restores the terminal when `top` ends, is stopped or goes to the background | `DRAWN_WITHIN`, `stdout_is_terminal`, `wants_colour`, `Owner`, `Terminal`, `is_to_be_drawn`, `locked`, `Keeper`, `catch_signals`, `let_go`, `end_by`, `stop` |
// | `cli/top/top_lists` | The lists of `top`: the key and title of each, its question, its order; its rows, also of groups and oldest holds from JSON | `TopList`, `title`, `question`, `in_json`, `groups`, `oldest_holds` |
// | `cli/top/top_screen` | All lines of the screen of `top`: head, rates, tabs, the list, which columns fit; the data of each server | `Choices`, `all_of`, `COLUMNS`, `HELP`, `screen`, `rows_that_fit`, `rows_beyond`, `tabs`, `columns_that_fit`, `Style`, `AGE_S_MIN`, `head`, `head_of_one`, `head_of_several`, `state_of_several`, `stat`, `age`, `state`, `rates`, `rate`, `ScreenData`, `Trouble`, `nothing_yet`, `View`, `table` |
// | `cli/top/watched_server` | Polls one server in a thread; notices when nothing listens there | `poll_server`, `nobody_listens`, `fill`, `fill_from_json`, `WatchedServer`, `data` |
// | `cli/unsafe_calls` | All `unsafe` code of this crate | `Signals`, `Arrived`, `block`, `next`, `spawn`, `die_by`, `is_for_this_process`, `is_session_leader`, `may_set_modes`, `process_of`, `end_as_first_process`, `leave`, `with_signals_blocked` |
// | `cli/which` | `which`: the servers of a key, in the order in which clients try them, also with `--hash-slots` | `which`, `key_in_slots` |
// | `conversation` | The client without I/O, for any runtime: bytes to send and bytes received, and which answer belongs to which command | `LOCKS_MAX`, `Conversation`, `SHOWN_BYTES_MAX`, `PendingCommand`, `Answer`, `UnexpectedAnswer`, `released`, `take_output`, `is_waiting`, `may_ask`, `unexpected`, `answer_to` |
// | `operate` | What operators ask of a daemon: statistics, of any server; orders, of the one on this host |  |
// | `operate/send_order` | Sends an order to the control socket of this host and reads the answer; asks once more if the connection is lost, unless the socket's file has been replaced; the words of a restart, for the daemon's `--reload` | `DEFAULT_PATH`, `RESTART_TIMEOUT`, `restart_with`, `send_order`, `file_at` |
// | `operate/stats_connection` | Asks any server `STATS`; for the daemon's `--check` also its uptime, and which addresses to ask if only a port is known | `STATS_TIMEOUT`, `ANSWER_BYTES_MAX`, `SHOWN_CHARS_MAX`, `WRONG_STAT`, `StatsConnection`, `NoAnswer`, `beginning`, `query`, `answer_within`, `cut_off`, `is_complete`, `uptime`, `places` |
// | `protocol` | Bytes → lines → commands, and replies in both directions: what a line asks, and the numbers of an ACQ | `UNLIMITED`, `Mode`, `Acquire`, `Command`, `parse_acquire` |
// | `protocol/key_text` | Keys as text, for people and machines: printable ASCII except the backslash stands for itself, every other byte is `\xNN` | `CUT`, `key_text`, `key_text_cut`, `key_from_text`, `digit` |
// | `protocol/lines` | Bytes → lines: assembles them from the pieces in which TCP delivers them; keeps the end of a line that is unfinished or not answered yet | `LINE_BYTES_MAX`, `Line`, `Lines`, `Kept`, `next_line`, `resume`, `put_back`, `hold_line`, `is_line_held`, `finish_line`, `unhandled`, `take_unhandled`, `is_skipping`, `unfinished`, `drop_rest_of_line`, `without_line_end` |
// | `protocol/numbers` | Numbers as clients write them | `next_number`, `saturating_u32` |
// | `protocol/query` | The words behind `STATS`: what it can be asked for | `ROWS`, `Query`, `Span`, `Subject`, `word`, `parse_known`, `parse_key`, `parse_rows`, `parse_top` |
// | `protocol/reply` | What a server answers, except statistics | `Reply`, `as_bytes` |
// | `request` | A client's request: a key and its limits → a line, or why it is refused; how a key is sent | `LockRequest`, `workers`, `max_queue`, `any`, `timeout_s`, `Refusal`, `key_on_the_wire` |
// | `server_name` | Names of servers, read from text (host, port, Unix socket); the order of servers for a key | `PORT`, `ServerName`, `Endpoint`, `BadServerName`, `as_str`, `on_port`, `endpoint`, `parse_endpoint` |
// | `transport` | A blocking connection over TCP or a Unix socket: reads and writes, keepalive, whether the other side has closed | `PROBES`, `SECONDS_MAX`, `Stream`, `set_read_timeout`, `watch_the_host`, `shutdown`, `connect_unix`, `is_closed`, `flush` |

pub mod protocol;

#[cfg(feature = "client")]
mod blocking;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "client")]
mod conversation;
#[cfg(feature = "operate")]
#[doc(hidden)]
pub mod operate;
#[cfg(feature = "client")]
mod request;
#[cfg(any(feature = "client", feature = "operate"))]
mod server_name;
#[cfg(any(feature = "client", feature = "operate"))]
mod transport;

#[cfg(any(feature = "client", feature = "operate"))]
pub use server_name::{BadServerName, PORT, ServerName};
#[cfg(feature = "client")]
pub use {
    blocking::{Canceller, Client, Connected, Error, Lock, NestedLock, Outcome},
    conversation::{Answer, Conversation, LOCKS_MAX, UnexpectedAnswer},
    request::{LockRequest, Refusal},
    server_name::order,
};
