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

#[cfg(test)]
mod tests {
    use super::*;

    /// Freeing it would cost more than it brings: the next clients take the places again.
    #[test]
    fn little_is_to_spare_while_more_than_a_quarter_is_in_use() {
        let mut slab = Slab::with_capacity(400);
        let places = slab.capacity();
        for _ in 0..=places / 4 {
            slab.insert(());
        }
        assert_eq!(SpareCapacity::of(&slab), SpareCapacity::Little);
        slab.remove(0);
        assert_eq!(SpareCapacity::of(&slab), SpareCapacity::Much);
        let few = Slab::<()>::with_capacity(SpareCapacity::PLACES_MIN - 1);
        assert_eq!(SpareCapacity::of(&few), SpareCapacity::Little);
    }
}
