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
//! let request = LockRequest::new("article:1").any().workers(2).max_queue(100);
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

#![warn(clippy::disallowed_types)]

// | file | what it is for | its largest items |
// |---|---|---|
// | `blocking` | The blocking client: its choice of a server, timeouts, locks that are given back when dropped, waits and cancels on one connection; its errors | `Client`, `Connected`, `Outcome`, `NestedLock`, `Session`, `Link`, `Shared`, `Error` |
// | `cli` | The command `poolcounter`: subcommands, the list of servers, the hint for a wrong command line | `Arguments`, `Action`, `Rows`, `main`, `wrong_usage`, `subcommand`, `hint_at_hyphens`, `servers` |
// | `cli/check` | `check`, a plugin of Nagios and Icinga: figures, thresholds, verdicts, the plugin's line | `Limits`, `answered`, `oldest_hold_s`, `Severity`, `Thresholds`, `Figure`, `status`, `level` |
// | `cli/control` | Orders to the daemon of this host: `drain` and its wait, line by line, until the process has ended; `undrain`, `free`, `rules`, `rule`, `restart`, `control` | `OrderOptions`, `DrainOptions`, `DrainEnd`, `DrainWait`, `DrainEvent`, `FreeOptions`, `Target`, `RuleAction` |
// | `cli/every_server` | Asks several servers at the same time | `ask_each`, `distinct` |
// | `cli/output` | Prints text and JSON to standard output, errors to standard error, with controls escaped | `print_error`, `print_json`, `report_output_error`, `escape_controls`, `is_control` |
// | `cli/parsed_report` | The text of an answer as values and tables; merges the lists of servers; all of it as JSON | `TIMES`, `ParsedReport`, `named_value`, `value`, `listed`, `full_as_json` |
// | `cli/run` | `run`, a command under a lock: options, the request, the command's environment, what happens without a server or when it does not admit this host; the notice of who holds the lock | `NoServer`, `RunOptions`, `RunEnd`, `under_lock`, `is_still_there`, `NoLock`, `WaitNotice`, `in_words` |
// | `cli/run/descendants` | All processes that the command has started, by /proc: terminates and kills them | `Descendants`, `Signalled`, `send_all`, `ProcessStat`, `processes`, `process`, `terminate`, `running` |
// | `cli/run/job` | The command as a job while a lock is held: starts it, passes signals on, a lost connection, its end | `OnLost`, `JobEnd`, `Surroundings`, `Job`, `wait_for_events`, `lose`, `stop_the_command`, `pass_on` |
// | `cli/run/signals` | Signals of `run`: blocks and reads them, starts the command without them, ends by one; all `unsafe` code of this crate | `Signals`, `Arrived`, `is_for_this_process`, `end_as_first_process`, `with_signals_blocked`, `block`, `spawn`, `die_by` |
// | `cli/run/stderr_thread` | Prints to standard error in a thread that may block, so that `run` never does | `PATIENCE`, `StderrThread`, `Thread` |
// | `cli/stats` | `stats`, `keys`, `key`, `clients`, `slow`: asks, prints text or JSON for each server; the exit status of a failure | `cut_note`, `print_merged`, `show_key`, `key_from_user`, `everything`, `print_each`, `print_note` |
// | `cli/status` | The numbers of exit statuses | `CONFLICT`, `USAGE`, `NOT_EXECUTED`, `LOST`, `NO_SERVER`, `PROTOCOL` |
// | `cli/table` | Tables, rows and cells by column: merges, sorts by the order of each list, aligns; cells as JSON, times as numbers | `Table`, `aligned`, `compare`, `json_of`, `sort`, `rank`, `widths`, `json_row` |
// | `cli/top` | `top`: asks servers again and again; keys pressed, when to draw, the session | `TICK`, `print_once`, `TopSession`, `interact`, `Reaction`, `react`, `draw_line`, `show_next` |
// | `cli/top/terminal` | The terminal of `top`: whether standard output is one, takes colours, takes output now; raw mode; signals that stop, continue or end `top`; restores it | `stdout_is_terminal`, `wants_colour`, `Owner`, `Terminal`, `Keeper`, `catch_signals`, `let_go`, `end_by` |
// | `cli/top/top_lists` | The lists of `top`: the key and title of each, its question, its order; its rows, also of groups and oldest holds from JSON | `TopList`, `oldest_holds`, `title`, `question` |
// | `cli/top/top_screen` | All lines of the screen of `top`: head, rates, tabs, the list, which columns fit; the data of each server | `Choices`, `screen`, `columns_that_fit`, `Style`, `head_of_several`, `ScreenData`, `Trouble`, `View` |
// | `cli/top/watched_server` | Asks one server again and again in a thread; whether nobody listens | `poll_server`, `nobody_listens`, `fill`, `WatchedServer`, `data` |
// | `cli/which` | `which`: the servers of a key, in the order in which clients try them, also with `--hash-slots` | `which`, `key_in_slots` |
// | `conversation` | The client without I/O, for any runtime: bytes to send and bytes received, and which answer belongs to which command | `Conversation`, `PendingCommand`, `Answer`, `UnexpectedAnswer`, `unexpected`, `answer_to`, `released`, `take_output` |
// | `operate` | What operators ask of a daemon: statistics, of any server; orders, of the one on this host |  |
// | `operate/send_order` | Sends an order to the control socket of this host and reads the answer, again after a hot restart, unless the socket's file is another one by now; the words of a restart, for the daemon's `--reload` | `DEFAULT_PATH`, `ORDER_TIMEOUT`, `restart_with`, `send_order`, `file_at` |
// | `operate/stats_connection` | Asks any server `STATS`; for the daemon's `--check`: its uptime, the addresses to ask for a port | `StatsConnection`, `NoAnswer`, `beginning`, `cut_off`, `is_complete`, `uptime`, `query`, `answer_within` |
// | `protocol` | Bytes → lines → commands, and replies in both directions: what a line asks, and the numbers of an ACQ | `UNLIMITED`, `Mode`, `Acquire`, `Command`, `parse_acquire` |
// | `protocol/key_text` | Keys as text, for people and machines: printable ASCII except the backslash stands for itself, every other byte is `\xNN` | `CUT`, `key_text`, `key_text_cut`, `key_from_text`, `digit` |
// | `protocol/lines` | Bytes → lines: assembles them from the pieces in which TCP delivers them; keeps the end of a line that is unfinished or not answered yet | `Line`, `Lines`, `Kept`, `next_line`, `hold_line`, `finish_line`, `take_unhandled`, `drop_rest_of_line` |
// | `protocol/numbers` | Numbers as clients write them | `next_number`, `saturating_u32` |
// | `protocol/query` | The words behind `STATS`: what it can be asked for | `Query`, `Span`, `Subject`, `parse_rows`, `parse_top`, `parse_known` |
// | `protocol/reply` | What a server answers, except statistics | `Reply` |
// | `request` | A client's request: a key and its limits → a line, or why it is refused; how a key is sent | `LockRequest`, `Refusal`, `key_on_the_wire`, `workers`, `max_queue`, `timeout`, `any`, `timeout_s` |
// | `server_name` | Names of servers, read from text with a port, and the order of servers for a key | `ServerName`, `Endpoint`, `BadServerName`, `parse_endpoint`, `as_str`, `endpoint` |
// | `transport` | A blocking connection over TCP or a Unix socket: reads and writes, keepalive, whether the other side has closed | `PROBES`, `connect_unix`, `is_closed`, `set_read_timeout`, `watch_the_host`, `shutdown` |

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
