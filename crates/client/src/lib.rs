//! A client of [PoolCounter](https://www.mediawiki.org/wiki/PoolCounter): locks shared by
//! programs on many machines, kept by the daemon poolcounterd. Programs in Rust call it, among
//! them the command `poolcounter`. It may know the protocol and connections, but nothing of the
//! daemon; it prints nothing, and starts a thread only to look a name up.
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
//!     other => println!("no lock: {other:?}"), // later versions may know more
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
//! [`Client::with_lock`] ends the lock by the result of a closure: released after `Ok`, given up
//! after an error.
//!
//! # Several servers
//! [`order()`] says which one guards a key. So does MediaWiki's client: give all clients the
//! same list, and PHP, scripts and services agree ([`Client::from_env`]). [`Lock`] says what that
//! means for nested locks.
//!
//! # Waiting, and noticing a loss
//! A wait ends when the request's timeout says so, or when a [`Canceller`] does, from
//! another thread. If its connection ends, as when the daemon is restarted,
//! [`Client::lock`] starts it again with the time that is left. A lock ends with its
//! connection: work that takes long asks [`Lock::is_lost`] now and then, or polls the guard's
//! descriptor. A host that vanishes is noticed after [`Client::keepalive`].
//!
//! # Async programs
//! [`Client`] blocks its thread. A [`Conversation`] takes and gives bytes, for any runtime.
//! `examples/tokio/async_client.rs` is a client for tokio on it, to be copied into a program:
//! dropping its futures and guards closes their connections, so no wait and no lock is left
//! behind.

#![forbid(unsafe_code)]

mod attempt;
mod canceller;
mod client;
mod connection;
mod conversation;
mod environment;
mod error;
mod lock;
mod order;
mod request;
mod still_runs;

pub use attempt::{LockAttempt, Progress};
pub use canceller::Canceller;
pub use client::{Client, Connected};
#[doc(inline)]
pub use connect::{BadServerName, PORT, ServerName, watch_the_host};
pub use conversation::{Answer, Conversation, UnexpectedAnswer};
pub use environment::BadEnvironment;
pub use error::Error;
pub use lock::{Lock, NestedLock, Outcome};
pub use order::order;
#[doc(inline)]
pub use protocol::LOCKS_PER_CONNECTION_MAX;
pub use request::{LockRequest, Refusal};

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
