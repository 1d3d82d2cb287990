//! Passes the engine's events on to [`super::watch`], which observes single keys and
//! clients, and shows callers the results.

use super::bookkeeping::Engine;
use super::client::ClientId;
use super::lock::Lock;
use super::measures::Outcome;
use super::sampler::Weight;
use super::summary::Columns;
use super::time::Time;
use super::watch::{Sample, Slow, SlowEntry, columns_of_end, short_name};
use super::windows::Closed;
use crate::protocol::{Reply, Span, Subject};

impl Engine {
    /// A sampled request was decided; no answer means that it waits.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_request(
        &mut self,
        (client, weight): (ClientId, Weight),
        (key, hash): (&[u8], u64),
        answer: Option<Reply>,
        now: Time,
    ) {
        let mut columns = Columns { requests: weight.requests(), ..Columns::default() };
        match answer {
            Some(Reply::Locked) => columns.acquired = columns.requests,
            Some(Reply::QueueFull) => columns.refused = columns.requests,
            Some(Reply::Timeout) => columns.timed_out = columns.requests,
            _ => {}
        }
        let sample = Sample { client, columns, weight };
        match short_name(key) {
            None => self.watch.note(sample, key, hash, now),
            Some((name, hash)) => self.watch.note(sample, &name, hash, now),
        }
    }

    /// A hold or a wait has ended after `ns` nanoseconds. Its pool must still be there.
    #[inline(always)]
    pub(super) fn observe_end(&mut self, lock: &Lock, outcome: Outcome, ns: u64, now: Time) {
        if !lock.weight.is_none() || ns >= self.watch.notable_ns {
            self.observe_sampled_end(lock, outcome, ns, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn observe_sampled_end(&mut self, lock: &Lock, outcome: Outcome, ns: u64, now: Time) {
        let Lock { client, pool, mode, weight, .. } = *lock;
        let pool = self.pools.get(pool);
        let key = pool.key();
        if ns > self.watch.slow_ns {
            self.watch.note_slow(Slow::new((now, ns), client, key, mode, outcome));
        }
        let is_long = self.watch.long.next(ns);
        if weight.is_none() && !is_long {
            return;
        }
        let columns = columns_of_end(outcome, weight, (ns, is_long));
        let sample = Sample { client, columns, weight };
        match short_name(key) {
            None => self.watch.note(sample, key, pool.hash(), now),
            Some((name, hash)) => self.watch.note(sample, &name, hash, now),
        }
    }

    /// What was asked for most in the last full minute or hour before `now`.
    pub fn top(&mut self, span: Span, subject: Subject, now: Time) -> Closed {
        let windows = match subject {
            Subject::Keys => &mut self.watch.keys,
            Subject::Clients => &mut self.watch.clients,
        };
        windows.roll(now);
        windows.closed(span, now)
    }

    /// Removes and returns something that a client has done, for
    /// [`Engine::note_sample`].
    pub fn take_sample(&mut self) -> Option<Sample> {
        self.watch.samples.pop()
    }

    /// Counts what a client did for its address.
    pub fn note_sample(&mut self, sample: &Sample, address: &[u8], now: Time) {
        let Sample { columns, weight, .. } = sample;
        let hash = self.pools.hash_aside(address);
        let in_force = self.watch.in_force(*weight);
        self.watch.clients.add(now, (address, hash), columns, in_force);
    }

    /// Holds and waits that take longer than this many nanoseconds are slow.
    pub fn set_slow(&mut self, slow_ns: Option<u64>) {
        self.watch.set_slow(slow_ns.unwrap_or(u64::MAX));
    }

    /// From how many nanoseconds on a hold or a wait is slow, if any is.
    pub fn slow_ns(&self) -> Option<u64> {
        Some(self.watch.slow_ns).filter(|&ns| ns < u64::MAX)
    }

    /// The next slow hold or wait that the caller has not been told of.
    pub fn take_slow(&mut self) -> Option<Slow> {
        self.watch.slow.pop_front()
    }

    /// Remembers a slow hold or wait.
    pub fn log_slow(&mut self, slow: Slow, peer: String) {
        self.watch.log_slow(SlowEntry { slow, peer });
    }

    /// The last slow holds and waits, the newest first.
    pub fn slow_log(&self) -> impl ExactSizeIterator<Item = &SlowEntry> {
        self.watch.slow_log.iter().rev()
    }
}
