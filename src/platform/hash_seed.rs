//! Draws the seed of the engine's hashes.

use engine::HashSeed;
use std::hash::{BuildHasher, RandomState};

/// Clients do not know it, so they cannot choose keys whose hashes collide.
pub(crate) fn random_seed() -> HashSeed {
    let random = RandomState::new();
    HashSeed::new([0, 1].map(|n: u64| random.hash_one(n)))
}
