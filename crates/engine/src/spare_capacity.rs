//! How much memory a slab could give back.

use slab::Slab;

/// How much [`Slab::shrink_to_fit`] would free: all places behind the last one in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpareCapacity {
    /// Little: it is small, or well used.
    Little,
    /// Most places are free, but the last one is in use.
    Kept,
    /// Most places are free, including the last one.
    Much,
}

impl SpareCapacity {
    /// Below this there is too little to free.
    const PLACES_MIN: usize = 100;

    /// Of one slab. O(1).
    pub fn of<T>(slab: &Slab<T>) -> Self {
        let places = slab.capacity();
        if places < Self::PLACES_MIN || slab.len() > places / 4 {
            return SpareCapacity::Little;
        }
        if slab.contains(places - 1) { SpareCapacity::Kept } else { SpareCapacity::Much }
    }
}
