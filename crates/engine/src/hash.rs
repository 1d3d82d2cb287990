//! Hashes of keys and other names: SipHash with a seed that clients do not know, so they cannot
//! choose names that collide.

use siphasher::sip::SipHasher13;

/// The seed of all hashes of an engine. The caller draws it.
#[derive(Clone, Copy, Debug)]
pub struct HashSeed([u64; 2]);

impl HashSeed {
    /// A seed of two numbers.
    pub const fn new(numbers: [u64; 2]) -> Self {
        HashSeed(numbers)
    }

    /// Inlined into the path of a request, where it and its constants are a tenth of
    /// all instructions.
    #[inline(always)]
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        let HashSeed([first, second]) = *self;
        SipHasher13::new_with_keys(first, second).hash(name)
    }

    /// As [`HashSeed::hash`], where speed does not matter.
    #[cold]
    #[inline(never)]
    pub(crate) fn hash_aside(&self, name: &[u8]) -> u64 {
        self.hash(name)
    }
}
