//! What is counted, declared once: STATS, metrics and docs read it from here.

/// Declares the whole-number statistics: each becomes a field and an entry of
/// [`Counters::ALL`] under the name by which `STATS` knows it.
macro_rules! counters {
    ($($name:ident: $kind:ident, $help:literal;)*) => {
        /// The whole-number statistics.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $help] pub $name: u64,)*
        }

        impl Counters {
            /// Every one of them: in the order of `STATS FULL`, then those that
            /// `STATS` answers by name alone.
            pub const ALL: &[Counter] = &[
                $(Counter {
                    name: stringify!($name),
                    kind: Kind::$kind,
                    help: $help,
                    get: |counters| counters.$name,
                    get_mut: |counters| &mut counters.$name,
                },)*
            ];
        }
    };
}

/// How many of [`Counters::ALL`], from its start, `STATS FULL` shows. The list
/// is fixed: scrapers in use compare it.
pub const COUNTERS_IN_FULL: usize = 12;

/// One whole-number statistic.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// As `STATS` spells it.
    pub name: &'static str,
    /// Whether it only rises.
    pub kind: Kind,
    /// What it says, in one sentence.
    pub help: &'static str,
    /// Reads it.
    pub get: fn(&Counters) -> u64,
    /// Where it stands.
    pub get_mut: fn(&mut Counters) -> &mut u64,
}

/// Whether a statistic only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Since the daemon started; never falls.
    Total,
    /// How it is now.
    Gauge,
}

counters! {
    total_acquired: Total, "Locks given: at once, or handed on to a waiter.";
    total_releases: Total, "RELEASE commands that gave back a lock or a wait.";
    hashtable_entries: Gauge, "Keys that somebody holds or waits for.";
    processing_workers: Gauge, "Locks that are held.";
    waiting_workers: Gauge, "Clients that wait for a lock.";
    connect_errors: Total, "Failures to accept connections; one episode of running out of descriptors counts once.";
    failed_sends: Total, "Replies that could not be sent: the client had gone, or had left too much unread.";
    full_queues: Total, "Requests answered with QUEUE_FULL.";
    lock_mismatch: Total, "Requests answered with LOCK_HELD.";
    lock_while_waiting: Total, "Requests by clients that still waited for an earlier one.";
    release_mismatch: Total, "RELEASE commands of clients that held nothing.";
    processed_count: Total, "Locks that ended: by RELEASE, by disconnect, or taken away by --max-hold.";
    rejected_connections: Total, "Connections closed at once because there were --max-connections already.";
    rejected_connections_per_ip: Total, "Connections closed at once because their address had --max-connections-per-ip already.";
    denied_connections: Total, "Connections closed at once because no --allow admits their address.";
    expired_locks: Total, "Locks taken away because they were held for longer than --max-hold.";
}

/// Sums of time, in nanoseconds. 128 bits: a thousand locks held at a time
/// would fill 64 of them within seven months.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// From LOCKED to RELEASE or disconnect.
    pub processing_ns: u128,
    /// Work saved: at each DONE, for how long the releaser had held the lock.
    pub gained_ns: u128,
    /// Waits by ACQ4ME that ended with LOCKED.
    pub waiting_for_me_ns: u128,
    /// Waits by ACQ4ANY that ended with LOCKED.
    pub waiting_for_anyone_ns: u128,
    /// Waits that ended with DONE.
    pub waiting_for_good_ns: u128,
    /// Waits that ended with TIMEOUT.
    pub wasted_timeout_ns: u128,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_reads_and_writes_its_own_field() {
        let mut counters = Counters::default();
        for (value, counter) in (1..).zip(Counters::ALL) {
            *(counter.get_mut)(&mut counters) = value;
        }
        for (value, counter) in (1..).zip(Counters::ALL) {
            assert_eq!((counter.get)(&counters), value, "{}", counter.name);
        }
        assert_eq!(counters.processed_count, COUNTERS_IN_FULL as u64);
    }
}
