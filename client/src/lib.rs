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

// The map of this crate, file by file.
//
// | file | what it holds |
// |---|---|
// | `protocol` | `Command`: what a line asks; the numbers of an ACQ |
// | `protocol/lines` | `Lines`: bytes → lines; keeps the end of a line that is unfinished or not answered yet |
// | `protocol/query`, `reply` | the words behind `STATS`; the answers |
// | `protocol/key_text`, `numbers` | keys as text (`\xNN`); numbers as clients write them |
// | `blocking` | `Client`: its choice of a server, timeouts; `Lock` and `NestedLock`, given back when dropped; `Link`: asks and waits on one connection; `Canceller`; `Error` |
// | `conversation` | `Conversation`: the client without I/O; which answer belongs to which command |
// | `request` | `LockRequest` → a line, or the `Refusal`; how a key is sent |
// | `server_name` | `ServerName`, read from text with its port; the order of servers for a key |
// | `transport` | `Stream`: reads and writes over TCP or Unix sockets; keepalive; whether the other side has closed |
// | `operate/stats_connection` | `StatsConnection`: asks any server `STATS`; `NoAnswer`; for the daemon's `--check`: its uptime, the addresses to ask for a port |
// | `operate/send_order` | sends an order to the control socket of this host and reads the answer, again after a hot restart, unless the socket's file is another one by now; the words of a restart, for the daemon's `--reload` |
// | `cli` | subcommands, the list of servers, the hint for a wrong command line |
// | `cli/run` | `run`: options, the request, what happens without a server or when it does not admit this host; the notice of who holds the lock |
// | `cli/run/job` | `Job`: the command while a lock is held: start, passes signals on, a lost connection, its end |
// | `cli/run/signals` | `Signals`: blocks and reads them; starts the command without them; ends by one; all `unsafe` code |
// | `cli/run/descendants` | `Descendants`: all processes that the command has started, by /proc; terminates and kills them |
// | `cli/run/stderr_thread` | prints to standard error in a thread that may block |
// | `cli/stats` | `stats`, `keys`, `key`, `clients`, `slow`: asks, prints text or JSON for each server; the exit status of a failure |
// | `cli/parsed_report` | `ParsedReport`: the text of an answer as values and tables; merges the lists of servers; all of it as JSON |
// | `cli/table` | `Table`: rows and cells by column; merges, sorts, aligns; `ListOrder` of each list; cells as JSON, times as numbers |
// | `cli/check` | `check`: figures, thresholds, verdicts, the plugin's line |
// | `cli/control` | `drain` and its wait, line by line, until the process has ended; `free`, `rule`, `control` |
// | `cli/top` | `top`: keys pressed, when to draw, the session |
// | `cli/top/top_lists` | `TopList`: the key and title of each list, its question, its order; its rows, also of groups and oldest holds from JSON |
// | `cli/top/top_screen` | all lines of the screen: head, rates, tabs, the list; which columns fit; `ScreenData` of each server |
// | `cli/top/watched_server` | asks one server again and again in a thread; whether nobody listens |
// | `cli/top/terminal` | whether standard output is a terminal and takes colours; raw mode; signals that stop, continue or end `top`; restores; whether the terminal takes output now |
// | `cli/which`, `every_server` | the servers of a key, `--hash-slots`; asks several servers at once |
// | `cli/output`, `status` | prints text, JSON and errors, escapes controls; the numbers of exit statuses |

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
