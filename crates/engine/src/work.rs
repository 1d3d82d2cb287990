//! How much was done for keys, counted where it is done: the simulation bounds what a turn does.

use crate::Engine;

/// Work on keys since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyWork {
    /// How many places of keys were looked at, one after the other.
    pub visited: u64,
    /// How many bytes of keys were compared with rules.
    pub matched_bytes: u64,
}

impl Engine {
    /// How much was done for keys since the engine was made. Writing its state does not count.
    pub fn key_work(&self) -> KeyWork {
        KeyWork { visited: self.pools.visited(), matched_bytes: self.rules.matcher.matched_bytes() }
    }
}
