//! Counters, each declared with its name, kind and sentence; sums of time with the names of
//! their lines. `STATS`, the state that survives a hot restart, and any other list derive from
//! the declarations. The engine changes them where it does what they count.

use protocol::{Mode, Reply};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares the whole-number statistics: each becomes a field, a constant and an entry of
/// [`Counters::ALL`] under the name that `STATS` uses.
macro_rules! counters {
    ($($name:ident: $kind:ident, $help:literal;)*) => {
        /// The whole-number statistics.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counters {
            $(#[doc = $help] pub $name: u64,)*
        }

        #[allow(non_upper_case_globals, reason = "they have the names of `STATS`")]
        impl Counters {
            $(#[doc = $help] pub const $name: Counter = Counter {
                name: stringify!($name),
                kind: CounterKind::$kind,
                help: $help,
                get: |counters| counters.$name,
            };)*

            /// Every counter: those of `STATS FULL` in its order, then those that
            /// `STATS` answers by name alone.
            pub const ALL: &[Counter] = &[$(Counters::$name,)*];
        }
    };
}

/// How many of [`Counters::ALL`], from its start, `STATS FULL` shows. This part never
/// changes: existing scrapers depend on it.
pub const COUNTERS_IN_FULL: usize = 12;

/// One whole-number statistic.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// As `STATS` spells it.
    pub name: &'static str,
    /// Whether it only increases.
    pub kind: CounterKind,
    /// Its meaning, in one sentence.
    pub help: &'static str,
    /// Reads it.
    pub get: fn(&Counters) -> u64,
}

/// Whether a statistic only increases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Counted since the daemon started; never decreases.
    Total,
    /// The current value.
    Gauge,
}

counters! {
    total_acquired: Total, "Locks given: at once, or handed on to a waiter.";
    total_releases: Total, "RELEASE commands that gave back a lock or a wait.";
    hashtable_entries: Gauge, "Keys that clients hold or wait for.";
    processing_workers: Gauge, "Locks that are held.";
    waiting_workers: Gauge, "Clients that wait for a lock.";
    connect_errors: Total, "Failures to accept connections; one episode of running out of descriptors counts once.";
    failed_sends: Total, "Replies that could not be sent: the client had gone, or had left too much unread.";
    full_queues: Total, "Requests answered with QUEUE_FULL.";
    lock_mismatch: Total, "Requests answered with LOCK_HELD.";
    lock_while_waiting: Total, "Requests by clients that were still waiting for an earlier one.";
    release_mismatch: Total, "RELEASE commands of clients that held nothing.";
    processed_count: Total, "Locks that ended: by RELEASE, by disconnect, by --max-hold or by FREE.";
    rejected_connections: Total, "Connections closed at once because there were --max-connections already.";
    rejected_connections_per_ip: Total, "Connections closed at once because their address had --max-connections-per-ip already.";
    denied_connections: Total, "Connections closed at once because no --allow admits their address.";
    accepted_connections: Total, "Connections that were admitted.";
    closed_connections: Total, "Connections that their clients closed.";
    lost_connections: Total, "Connections that broke: reset, timed out, or lost by a failed call or a hot restart.";
    unread_connections: Total, "Connections closed because too many answers were left unread.";
    freed_connections: Total, "Connections that the daemon closed: by FREE, by --max-hold, or because they spoke HTTP.";
    expired_locks: Total, "Locks that ended because they were held for longer than --max-hold.";
}

/// Declares the sums of time: each becomes a field and a line of [`Times::LINES`]. A value that
/// `STATS FULL` computes from the sums is declared with the sum that it follows there.
macro_rules! times {
    ($($name:ident: $label:literal, $help:literal
        $(, then $computed:ident: $computed_label:literal = $compute:expr)?;)*) => {
        /// Sums of time, in nanoseconds. A sum has 128 bits: a thousand locks held at
        /// a time would overflow 64 bits within seven months.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Times {
            $(#[doc = $help] #[serde(with = "seconds_and_ns")] pub $name: u128,)*
        }

        impl Times {
            /// The lines of `STATS FULL` that show times, in its order.
            pub const LINES: &[TimeLine] = &[
                $(
                    TimeLine {
                        name: stringify!($name),
                        label: $label,
                        help: Some($help),
                        ns: |_, times| times.$name,
                    },
                    $(TimeLine {
                        name: stringify!($computed),
                        label: $computed_label,
                        help: None,
                        ns: $compute,
                    },)?
                )*
            ];
        }
    };
}

/// A line of `STATS FULL` that shows a time.
#[derive(Clone, Copy, Debug)]
pub struct TimeLine {
    /// With its unit.
    pub name: &'static str,
    /// The text before the colon: scrapers in use expect it.
    pub label: &'static str,
    /// The meaning of a sum, in one sentence; none if the time is computed from others.
    pub help: Option<&'static str>,
    /// The time, in nanoseconds.
    pub ns: fn(&Counters, &Times) -> u128,
}

times! {
    processing_ns: "total processing time", "From LOCKED to RELEASE, disconnect or expiry.",
        then average_processing_ns: "average processing time" =
            |counters, times| times.processing_ns.checked_div(counters.processed_count.into()).unwrap_or(0);
    gained_ns: "gained time", "Work saved: at each DONE, for how long the releaser had held the lock.",
        then waiting_ns: "waiting time" = |_, times| times.waiting_for_me_ns + times.waiting_for_anyone_ns;
    waiting_for_me_ns: "waiting time for me", "Waits by ACQ4ME that ended with LOCKED.";
    waiting_for_anyone_ns: "waiting time for anyone", "Waits by ACQ4ANY that ended with LOCKED.";
    waiting_for_good_ns: "waiting time for good", "Waits that ended with DONE.";
    wasted_timeout_ns: "wasted timeout time", "Waits that ended with TIMEOUT.";
}

impl Times {
    /// The sum of waits that ended with `LOCKED`.
    #[inline(always)]
    pub(crate) fn of_waits(&mut self, mode: Mode) -> &mut u128 {
        match mode {
            Mode::ForMe => &mut self.waiting_for_me_ns,
            Mode::ForAnyone => &mut self.waiting_for_anyone_ns,
        }
    }
}

impl Counters {
    /// Counts a request that was answered with this refusal.
    #[inline(always)]
    pub(crate) fn refused(&mut self, reply: Reply) {
        match reply {
            Reply::LockHeld => self.lock_mismatch += 1,
            Reply::WaitForResponse => self.lock_while_waiting += 1,
            Reply::QueueFull => self.full_queues += 1,
            Reply::NotLocked => self.release_mismatch += 1,
            _ => {}
        }
    }
}

/// Writes a sum as `[seconds, nanoseconds]`: serde supports u128, but few formats do.
/// 64 bits of seconds outlast every daemon.
mod seconds_and_ns {
    use super::*;

    const SECOND_NS: u128 = 1_000_000_000;

    pub(crate) fn serialize<S: Serializer>(ns: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = u64::try_from(ns / SECOND_NS).unwrap_or(u64::MAX);
        (seconds, (ns % SECOND_NS) as u32).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<u128, D::Error> {
        let (seconds, ns) = <(u64, u32)>::deserialize(deserializer)?;
        Ok(u128::from(seconds) * SECOND_NS + u128::from(ns))
    }
}
