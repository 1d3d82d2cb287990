//! The client of `poolcounter`: takes locks, waits for them, gives them back. It may know the
//! protocol and connections, but nothing of the daemon; it prints nothing, and starts a thread only
//! to look a name up.

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
