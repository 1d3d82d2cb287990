//! The client of `poolcounter`: takes locks, waits for them, gives them back. It may know the
//! protocol and connections, but nothing of the daemon; it prints nothing, and starts a thread only
//! to look a name up.

#![forbid(unsafe_code)]

mod attempt;
mod client;
mod connection;
mod environment;
mod error;
mod lock;
mod order;
mod request;
mod still_runs;

pub use attempt::Progress;
pub use client::Client;
pub use environment::servers_of_environment;
pub use error::Error;
pub use lock::{Lock, Outcome};
pub use order::order;
pub use request::{LockRequest, Refusal};
