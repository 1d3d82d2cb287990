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

// | module | what |
// |---|---|
// | `protocol` | commands and replies, both directions: `lines` (bytes → lines), `query` (`STATS`), `reply`, `key_text` (`\xNN`), `numbers` |
// | `blocking` | `Client`: chooses a server, connects, asks for a lock |
// | `guard` | `Lock`, `NestedLock`: give the lock back |
// | `link` | one blocking connection, its deadlines, `Canceller` |
// | `conversation` | the client without I/O |
// | `request`, `error` | `LockRequest` → a line, why it is refused; what can go wrong |
// | `server_name`, `choice`, `transport` | names and ports; which server guards a key; TCP and Unix sockets |
// | `stats_connection`, `uptime` | asks a server for statistics; `poolcounterd --check` |
// | `control_client` | sends orders to the control socket |
// | `cli` | the command line; `run` (job, child and its signals, descendants, wait_notice, hash_slots, stderr_thread), `top` (top_screen: lines and columns; terminal: raw mode), `stats` (lists), `check` with `health` (thresholds, verdicts), `control`, `drain`, `free`, `rule_orders`, `parsed_report` (reads what servers answer), `output`, `status` |

pub mod protocol;

#[cfg(feature = "client")]
mod blocking;
#[cfg(feature = "client")]
mod choice;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "operate")]
#[doc(hidden)]
pub mod control_client;
#[cfg(feature = "client")]
mod conversation;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "client")]
mod guard;
#[cfg(feature = "client")]
mod link;
#[cfg(feature = "client")]
mod request;
#[cfg(any(feature = "client", feature = "operate"))]
mod server_name;
#[cfg(feature = "operate")]
mod stats_connection;
#[cfg(any(feature = "client", feature = "operate"))]
mod transport;
#[cfg(feature = "operate")]
#[doc(hidden)]
pub mod uptime;

#[cfg(any(feature = "client", feature = "operate"))]
pub use server_name::{BadServerName, PORT, ServerName};
#[cfg(feature = "client")]
pub use {
    blocking::{Client, Connected},
    choice::order,
    conversation::{Answer, Conversation, LOCKS_MAX, UnexpectedAnswer},
    error::Error,
    guard::{Lock, NestedLock, Outcome},
    link::Canceller,
    request::{LockRequest, Refusal},
};
