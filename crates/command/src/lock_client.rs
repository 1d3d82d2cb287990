//! Takes locks, waits for them, gives them back. It knows the protocol and connections; it prints
//! nothing, and starts a thread only to look a name up.

mod attempt;
mod client;
mod connection;
mod error;
mod lock;
mod order;
mod request;
mod still_runs;

pub(super) use attempt::{Progress, lock};
pub(super) use client::Client;
pub(super) use error::Error;
pub(super) use lock::{Lock, Outcome};
pub(super) use order::order;
pub(super) use request::LockRequest;
