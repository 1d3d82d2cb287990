//! The only door to system calls, and small things around them. All `unsafe` code is in `sys`.
//!
//! Called from everywhere; uses no other room of the server. In the tests, a simulated
//! kernel replaces `sys` and `world` (tests/simulation).

pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod hash_seed;
#[cfg(not(test))]
pub(crate) mod os;
pub(crate) mod socket_name;
pub(crate) mod supervisor;
#[cfg(not(test))]
pub(crate) mod sys;

#[cfg(test)]
pub(crate) use crate::simulation::{os, sys};
