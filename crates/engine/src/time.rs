//! The engine's time: a number that the caller passes in.

use serde::{Deserialize, Serialize};

/// A moment, in nanoseconds of the machine's monotonic clock (CLOCK_MONOTONIC,
/// clock_gettime(2)). That clock is the same before and after an exec, which
/// `core::time::Instant` can't express; and tests choose their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// The moment `ns` nanoseconds after the clock's zero.
    pub const fn from_ns(ns: u64) -> Self {
        Time(ns)
    }

    /// Nanoseconds since the clock's zero.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// `seconds` later, or the end of time (584 years) if that comes first.
    pub const fn plus_seconds(self, seconds: u64) -> Self {
        self.plus_ns(seconds.saturating_mul(1_000_000_000))
    }

    /// `ns` nanoseconds later, or the end of time if that comes first.
    pub const fn plus_ns(self, ns: u64) -> Self {
        Time(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` until this moment; 0 when it is not earlier.
    pub const fn ns_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
