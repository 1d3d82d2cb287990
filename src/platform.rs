//! The only way to system calls: safe ones are in `os`, the others, with all `unsafe` code, in
//! `sys`; and small things around them. Everybody calls it; it may know no other folder, and of
//! the pure crates only plain values: a time, a seed, how much a turn may do. In the tests a
//! simulated kernel replaces both, and the engine by one that records its calls
//! (tests/simulation).

pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod failed_call;
pub(crate) mod hash_seed;
pub(crate) mod needed_calls;
#[cfg(not(test))]
pub(crate) mod os;
pub(crate) mod supervisor;
#[cfg(not(test))]
pub(crate) mod sys;
pub(crate) mod terminal;

#[cfg(test)]
pub(crate) use crate::simulation::{os, sys};
