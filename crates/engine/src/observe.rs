//! Observes single keys and addresses: the most frequent ones of a minute and of an hour,
//! and slow holds and waits.
//!
//! Called by the engine's decisions; decides nothing, and forgets what is old.

pub mod heavy_hitters;
pub mod observer;
pub(crate) mod sampler;
pub mod windows;
