//! All decisions about locks: pools, wait queues, timeouts, statistics.
//!
//! Pure: no I/O, no clock, no randomness but a hash seed. The caller passes the
//! time in, and the same calls with the same times give the same answers;
//! simulation, fuzzing and hot restart rely on that. A command of one client may
//! answer others, so the engine appends answers to an outbox
//! ([`Engine::take_answer`]): it never writes, and knows no peer.
//!
//! Every operation is O(1), with 10 waiters or 1,000,000. An operation that answers
//! several clients costs O(1) for each answer.

mod bookkeeping;
mod client;
mod decisions;
pub mod histogram;
mod hold_limits;
mod invariants;
mod lock;
pub mod measures;
mod pool;
mod sampler;
mod spare;
mod stack;
pub mod state;
pub mod statistics;
pub mod summary;
mod time;
pub mod view;
pub mod watch;
mod wheel;
pub mod windows;

pub use bookkeeping::Engine;
pub use client::ClientId;
pub use hold_limits::{ExpiredLock, HoldLimit};
pub use spare::Spare;
pub use stack::LOCKS_PER_CLIENT_MAX;
pub use time::Time;
