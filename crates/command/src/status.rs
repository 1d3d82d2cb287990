//! Exit statuses as numbers. As flock(1): those of sysexits.h, and 1 for a lock that is not
//! given.

/// The wait timed out, or the queue is full (`-E` sets another).
pub(super) const CONFLICT: u8 = 1;
/// EX_USAGE: the command line is not valid.
pub(super) const USAGE: u8 = 64;
/// EX_UNAVAILABLE: the command can't be executed.
pub(super) const NOT_EXECUTED: u8 = 69;
/// EX_IOERR: the lock was lost, and the command stopped for that (`--on-lost kill`).
pub(super) const LOST: u8 = 74;
/// EX_TEMPFAIL: no server answers.
pub(super) const NO_SERVER: u8 = 75;
/// EX_PROTOCOL: the server sends an unexpected answer.
pub(super) const PROTOCOL: u8 = 76;
