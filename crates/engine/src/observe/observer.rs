//! What is observed of single keys and clients: samples for `STATS TOP`, and the slow log of
//! long holds and waits. Nothing here decides anything.

use crate::counts::measures::LockOutcome;
use crate::hash::HashSeed;
use crate::lock::{ClientId, Lock};
use crate::observe::heavy_hitters::{Columns, NAME_BYTES_MAX};
use crate::observe::sampler::Sampler;
use crate::observe::windows::{Counted, WindowState, Windows};
use crate::pool::Pool;
use crate::rules::behind::RulesBehind;
use crate::time::Time;
use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use protocol::{Mode, Reply, Span, Subject};
use serde::{Deserialize, Serialize};

/// How many slow holds and waits are remembered.
const SLOW_MAX: usize = 128;

/// Everything that is observed.
#[derive(Clone, Debug)]
pub struct Observer {
    pub(crate) sampler: Sampler,
    /// When a request was last left out or stood for others, or when the hold or wait of such
    /// a request last ended.
    pub(crate) left_out: Time,
    /// That of the pools: a key has the same hash here.
    seed: HashSeed,
    keys: Windows,
    /// By address, which the caller finds for each [`Sample`].
    clients: Windows,
    /// When the running minute of keys or clients is over: one comparison for both.
    minute_ends: Time,
    pub(crate) samples: Vec<Sample>,
    /// Holds and waits that take longer are slow; in nanoseconds.
    slow_ns: u64,
    /// The engine looks at the ends of holds and waits that took at least this long, in
    /// nanoseconds: at all if there are rules, else at the slow ones. One comparison for both.
    pub(crate) watched_ns: u64,
    watches_all: bool,
    /// Slow holds and waits that the caller has not taken yet.
    slow: VecDeque<SlowLock>,
    /// The newest last.
    slow_log: VecDeque<SlowLogEntry>,
}

/// What a hot restart carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObserverState {
    #[serde(rename = "left_out_ns")]
    left_out: Time,
    keys: [WindowState; 2],
    clients: [WindowState; 2],
    slow_log: VecDeque<SlowLogEntry>,
}

/// A request that is followed.
pub(crate) struct FollowedRequest<'a> {
    pub(crate) client: ClientId,
    pub(crate) key: &'a [u8],
    /// The hash of the key.
    pub(crate) hash: u64,
    /// How many requests it stands for.
    pub(crate) weight: u8,
}

/// What a client did, to be counted for its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The client.
    pub client: ClientId,
    columns: Columns,
}

/// A hold or a wait that took long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowLock {
    /// When it ended.
    #[serde(rename = "at_ns")]
    pub at: Time,
    /// Its client.
    pub client: ClientId,
    /// The start of its key, one byte more than reports show.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// Whether it was for anyone.
    pub for_anyone: bool,
    /// How it ended, which distinguishes holds from waits.
    pub outcome: LockOutcome,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// The rules of its key when it ended.
    #[serde(default)]
    pub rules: RulesBehind,
}

/// A slow hold or wait, with its client's address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowLogEntry {
    /// The hold or wait.
    pub slow: SlowLock,
    /// The client's address.
    pub peer: String,
}

/// For the caller.
impl Observer {
    /// What was most frequent in the last minute or hour: the running one, unless it is young. To
    /// be called after [`crate::Engine::expire`] with the same time, which ends minutes and hours.
    pub fn top(&self, span: Span, subject: Subject, now: Time) -> Counted {
        let windows = match subject {
            Subject::Keys => &self.keys,
            Subject::Clients => &self.clients,
        };
        windows.shown(span, now, self.left_out)
    }

    /// The keys of the last full minute, for series, which need equal times.
    pub fn top_keys_of_full_minute(&self, now: Time) -> Counted {
        self.keys.full_minute(now, self.left_out)
    }

    /// Removes and returns a sample, for [`Observer::count_sample`].
    pub fn take_sample(&mut self) -> Option<Sample> {
        self.samples.pop()
    }

    /// Counts what a client did for its address.
    pub fn count_sample(&mut self, sample: &Sample, address: &[u8], now: Time) {
        self.roll(now);
        self.clients.add(address, self.seed.hash_aside(address), &sample.columns);
    }

    /// Holds and waits that take longer than this many nanoseconds are slow.
    pub fn set_slow(&mut self, slow_ns: Option<u64>) {
        self.slow_ns = slow_ns.unwrap_or(u64::MAX);
        self.watch_all(self.watches_all);
    }

    /// From how many nanoseconds on a hold or a wait is slow, if any is.
    pub fn slow_ns(&self) -> Option<u64> {
        Some(self.slow_ns).filter(|&ns| ns < u64::MAX)
    }

    pub(crate) fn is_slow(&self, ns: u64) -> bool {
        ns > self.slow_ns
    }

    /// Takes the next slow hold or wait.
    pub fn take_slow(&mut self) -> Option<SlowLock> {
        self.slow.pop_front()
    }

    /// Remembers a slow hold or wait.
    pub fn log_slow(&mut self, slow: SlowLock, peer: String) {
        push_bounded(&mut self.slow_log, SlowLogEntry { slow, peer });
    }

    /// The last slow holds and waits, the newest first.
    pub fn slow_log(&self) -> impl ExactSizeIterator<Item = &SlowLogEntry> {
        self.slow_log.iter().rev()
    }
}

/// For the engine.
impl Observer {
    pub(crate) fn new(seed: HashSeed, now: Time) -> Self {
        Observer {
            sampler: Sampler::new(seed.hash_aside(b"")),
            left_out: Time::default(),
            seed,
            keys: Windows::new(now),
            clients: Windows::new(now),
            minute_ends: now,
            samples: Vec::new(),
            slow_ns: u64::MAX,
            watched_ns: u64::MAX,
            watches_all: false,
            slow: VecDeque::new(),
            slow_log: VecDeque::new(),
        }
    }

    /// Ends the minutes and hours that are over.
    #[inline]
    pub(crate) fn roll(&mut self, now: Time) {
        if now >= self.minute_ends {
            self.roll_windows(now);
        }
    }

    #[cold]
    fn roll_windows(&mut self, now: Time) {
        self.keys.roll(now, self.left_out);
        self.clients.roll(now, self.left_out);
        self.minute_ends = self.keys.minute_ends().min(self.clients.minute_ends());
    }

    /// Whether the engine looks at the ends of all holds and waits, not only of slow ones.
    pub(crate) fn watch_all(&mut self, watches_all: bool) {
        self.watches_all = watches_all;
        self.watched_ns = if watches_all { 0 } else { self.slow_ns };
    }

    /// What a hot restart carries over. The caller has taken all samples.
    pub(crate) fn state(&self) -> ObserverState {
        ObserverState {
            left_out: self.left_out,
            keys: self.keys.state(),
            clients: self.clients.state(),
            slow_log: self.slow_log.clone(),
        }
    }

    pub(crate) fn resume(state: ObserverState, seed: HashSeed, now: Time) -> Self {
        let ObserverState { left_out, keys, clients, slow_log } = state;
        let [keys, clients] =
            [keys, clients].map(|state| Windows::resume(state, |name| seed.hash_aside(name)));
        Observer { left_out, keys, clients, slow_log, ..Observer::new(seed, now) }
    }

    /// Counts a decided request. No answer means that it waits.
    pub(crate) fn count_request(
        &mut self,
        request: &FollowedRequest<'_>,
        answer: Option<Reply>,
        now: Time,
    ) {
        let FollowedRequest { client, key, hash, weight } = *request;
        let requests = weight.into();
        let mut columns = Columns { requests, ..Columns::default() };
        match answer {
            Some(Reply::Locked) => columns.acquired = requests,
            Some(Reply::QueueFull) => columns.refused = requests,
            Some(Reply::Timeout) => columns.timed_out = requests,
            _ => {}
        }
        self.count(Sample { client, columns }, (key, hash), now);
    }

    /// A hold or a wait has ended: that of a followed request, or a slow one, whose rules count.
    pub(crate) fn count_end(
        &mut self,
        lock: &Lock,
        pool: &Pool,
        (outcome, ns): (LockOutcome, u64),
        rules: RulesBehind,
        now: Time,
    ) {
        let Lock { client, mode, weight, .. } = *lock;
        if self.is_slow(ns) {
            let key = pool.key();
            let key = key[..key.len().min(NAME_BYTES_MAX + 1)].to_vec();
            let for_anyone = mode == Mode::ForAnyone;
            push_bounded(
                &mut self.slow,
                SlowLock { at: now, client, key, for_anyone, outcome, took_ns: ns, rules },
            );
        }
        if weight > 0 {
            let columns = columns_of_end(outcome, weight.into(), ns);
            self.count(Sample { client, columns }, (pool.key(), pool.hash()), now);
        }
    }

    fn count(&mut self, sample: Sample, (key, hash): (&[u8], u64), now: Time) {
        self.roll(now);
        match short_name(key) {
            Cow::Borrowed(key) => self.keys.add(key, hash, &sample.columns),
            Cow::Owned(name) => {
                self.keys.add(&name, self.seed.hash_aside(&name), &sample.columns);
            }
        }
        self.samples.push(sample);
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, newest: T) {
    while queue.len() >= SLOW_MAX {
        queue.pop_front();
    }
    queue.push_back(newest);
}

/// The name under which a key is counted: short, to bound memory.
fn short_name(key: &[u8]) -> Cow<'_, [u8]> {
    if key.len() <= NAME_BYTES_MAX {
        return Cow::Borrowed(key);
    }
    // FNV-1a: a client that makes two keys collide only sees them counted as one.
    let mix = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let digest = key.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    Cow::Owned([&key[..NAME_BYTES_MAX], &digest.to_be_bytes()].concat())
}

/// What the end of a hold or wait adds to the columns, if it stands for `requests` requests.
fn columns_of_end(outcome: LockOutcome, requests: u64, ns: u64) -> Columns {
    let time_ns = ns.saturating_mul(requests);
    let mut columns = Columns::default();
    match outcome {
        LockOutcome::Locked => columns.acquired = requests,
        LockOutcome::Done => columns.done = requests,
        LockOutcome::Timeout => columns.timed_out = requests,
        LockOutcome::Cancelled
        | LockOutcome::Released
        | LockOutcome::Disconnected
        | LockOutcome::Expired => {}
    }
    if outcome.is_of_hold() {
        columns.held_ns = time_ns;
    } else {
        columns.waited_ns = time_ns;
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use protocol::Acquire;

    #[test]
    fn requests_are_counted_by_their_answer() {
        let now = Time::default();
        let mut engine = Engine::new(HashSeed::new([1, 2]), now);
        // Locked, waiting, QUEUE_FULL, TIMEOUT.
        for (slot, max_queue, timeout_s) in [(0, 9, 9), (1, 9, 9), (2, 1, 9), (3, 9, 0)] {
            let request =
                Acquire { mode: Mode::ForMe, key: b"a", workers: 1, max_queue, timeout_s };
            engine.acquire(ClientId { slot, serial: 1 }, &request, now);
        }
        let counted = engine.observer.top(Span::Minute, Subject::Keys, now);
        let expected =
            Columns { requests: 4, acquired: 1, refused: 1, timed_out: 1, ..Columns::default() };
        assert_eq!(counted.by_requests[0].columns, expected);
    }
}
