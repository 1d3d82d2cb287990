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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::rule::Rule;
    use crate::{ClientId, HashSeed, Time};
    use alloc::vec;
    use protocol::{Acquire, Mode};

    /// The simulation has upper bounds only: with a count that stands still it would find nothing.
    #[test]
    fn what_is_done_for_keys_is_counted() {
        let mut engine = Engine::new(HashSeed::new([1, 2]), Time::default());
        let rule = Rule::parse_max_hold("*x=1").expect("a limit");
        engine.set_rules(vec![rule], &[], Time::default(), || {});
        for (slot, key) in [(0, &b"a"[..]), (1, b"bcd"), (2, b"bcd")] {
            let request =
                Acquire { mode: Mode::ForMe, key, workers: 1, max_queue: 9, timeout_s: 9 };
            engine.acquire(ClientId { slot, serial: 1 }, &request, Time::default());
        }
        assert_eq!(engine.key_work(), KeyWork { visited: 0, matched_bytes: 4 });
        assert_eq!(engine.pools().count() + engine.pools_in(0, 2).count(), 4);
        assert_eq!(engine.key_work().visited, 4);
    }
}
