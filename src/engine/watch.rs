//! What is observed of single keys and clients, beside the statistics: which were asked
//! for most, and which holds and waits took long. Nothing here decides anything.

use super::client::ClientId;
use super::measures::Outcome;
use super::sampler::{LongEnds, Sampler, Weight};
use super::summary::{Columns, NAME_BYTES_MAX};
use super::time::Time;
use super::windows::{InForce, Windows, WindowsState};
use crate::protocol::Mode;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How many slow holds and waits are remembered.
pub const SLOW_MAX: usize = 128;

/// How many samples may wait for the caller. Only one answer to a crowd makes so many.
const SAMPLES_MAX: usize = 8_192;

/// Everything that is observed.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) sampler: Sampler,
    pub(super) long: LongEnds,
    /// An end that took so long is looked at even if its request is not sampled: it is
    /// long or slow.
    pub(super) notable_ns: u64,
    pub(super) keys: Windows,
    /// By address: the caller knows whose [`Sample`] it is.
    pub(super) clients: Windows,
    pub(super) samples: Vec<Sample>,
    /// Holds and waits that take longer are slow; in nanoseconds.
    pub(super) slow_ns: u64,
    /// Slow ones that the caller has not been told of.
    pub(super) slow: VecDeque<Slow>,
    /// The newest last.
    pub(super) slow_log: VecDeque<SlowEntry>,
}

/// What a client did, to be counted for its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Who.
    pub client: ClientId,
    pub(super) columns: Columns,
    pub(super) weight: Weight,
}

/// A hold or a wait that took long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slow {
    /// When it ended.
    #[serde(rename = "at_ns")]
    pub at: Time,
    /// Whose it was.
    pub client: ClientId,
    /// The start of its key, one byte more than reports show.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// Whether it was for anyone.
    pub for_anyone: bool,
    /// How it ended, which tells holds from waits.
    pub outcome: Outcome,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
}

/// A slow hold or wait, with what the caller knows of its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowEntry {
    /// What the engine knows.
    pub slow: Slow,
    /// The client's address.
    pub peer: String,
}

/// What a hot restart carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchState {
    pub(super) sampler: Sampler,
    keys: Option<WindowsState>,
    clients: Option<WindowsState>,
    slow_log: Vec<SlowEntry>,
}

impl WatchState {
    /// Whether no watch can have come to this.
    pub(super) fn is_impossible(&self, now: Time) -> bool {
        self.sampler.is_impossible(now)
    }
}

impl Watch {
    pub(super) fn new(seed: u64, now: Time) -> Self {
        Watch {
            sampler: Sampler::new(seed),
            long: LongEnds::new(),
            notable_ns: LongEnds::new().from_ns,
            keys: Windows::new(now),
            clients: Windows::new(now),
            samples: Vec::new(),
            slow_ns: u64::MAX,
            slow: VecDeque::new(),
            slow_log: VecDeque::new(),
        }
    }

    /// What a hot restart carries over. The caller has taken all samples.
    pub(super) fn state(&self) -> WatchState {
        WatchState {
            sampler: self.sampler.clone(),
            keys: Some(self.keys.state()),
            clients: Some(self.clients.state()),
            slow_log: self.slow_log.iter().cloned().collect(),
        }
    }

    /// Goes on from the state of another watch. `hash` is that of keys.
    pub(super) fn resume(state: WatchState, now: Time, hash: impl Fn(&[u8]) -> u64) -> Self {
        let resumed = |windows: Option<WindowsState>| match windows {
            Some(windows) => Windows::resume(windows, now, |name| hash_of_name(name, &hash)),
            None => Windows::new(now),
        };
        let mut slow_log: VecDeque<SlowEntry> = state.slow_log.into();
        slow_log.truncate(SLOW_MAX);
        Watch {
            sampler: state.sampler,
            keys: resumed(state.keys),
            clients: resumed(state.clients),
            slow_log,
            ..Watch::new(1, now)
        }
    }

    /// Counts what a client did with a key that has this name and hash.
    pub(super) fn note(&mut self, sample: Sample, name: &[u8], hash: u64, now: Time) {
        self.long.roll(now);
        self.set_slow(self.slow_ns);
        let in_force = self.in_force(sample.weight);
        self.keys.add(now, (name, hash), &sample.columns, in_force);
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(sample);
        } else {
            self.clients.note_missed(now, &sample.columns);
        }
    }

    /// How exact counts are now, if they include a sample of this weight.
    pub(super) fn in_force(&self, weight: Weight) -> InForce {
        let (weight_in_force, second_ends) = self.sampler.in_force();
        let long_ns = self.long.from_ns;
        // For so long, a request that is not sampled may wait and hold unseen.
        let until = second_ends.plus_ns(long_ns.saturating_mul(2));
        InForce { weight: weight.requests().max(weight_in_force), long_ns, until }
    }

    pub(super) fn set_slow(&mut self, slow_ns: u64) {
        self.slow_ns = slow_ns;
        self.notable_ns = slow_ns.saturating_add(1).min(self.long.from_ns);
    }

    pub(super) fn note_slow(&mut self, slow: Slow) {
        if self.slow.len() == SLOW_MAX {
            self.slow.pop_front();
        }
        self.slow.push_back(slow);
    }

    pub(super) fn log_slow(&mut self, entry: SlowEntry) {
        if self.slow_log.len() == SLOW_MAX {
            self.slow_log.pop_front();
        }
        self.slow_log.push_back(entry);
    }
}

impl Slow {
    pub(super) fn new(
        (at, took_ns): (Time, u64),
        client: ClientId,
        key: &[u8],
        mode: Mode,
        outcome: Outcome,
    ) -> Self {
        let key = key[..key.len().min(NAME_BYTES_MAX + 1)].to_vec();
        Slow { at, client, key, for_anyone: mode == Mode::ForAnyone, outcome, took_ns }
    }
}

/// The name under which a long key is counted, and its hash: the key's start and a
/// digest, so that memory is bounded. `None` if a key is counted under itself. The digest
/// is the same after a hot restart.
pub(super) fn short_name(key: &[u8]) -> Option<(Vec<u8>, u64)> {
    if key.len() <= NAME_BYTES_MAX {
        return None;
    }
    // FNV-1a: a client that makes two keys collide only sees them counted as one.
    let mix = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let digest = key.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    let mut name = key[..NAME_BYTES_MAX].to_vec();
    name.extend_from_slice(&digest.to_be_bytes());
    Some((name, digest))
}

/// The hash of the name of a key; `hash` is that of a key.
pub(super) fn hash_of_name(name: &[u8], hash: impl Fn(&[u8]) -> u64) -> u64 {
    match name.split_last_chunk() {
        Some((_, digest)) if name.len() > NAME_BYTES_MAX => u64::from_be_bytes(*digest),
        _ => hash(name),
    }
}

/// What an end adds to the columns. A long one stands for itself, whether its request was
/// sampled or not.
pub(super) fn columns_of_end(
    outcome: Outcome,
    weight: Weight,
    (ns, is_long): (u64, bool),
) -> Columns {
    let weight = weight.requests();
    let time_ns = if is_long { ns } else { ns.saturating_mul(weight) };
    let mut columns = Columns::default();
    match outcome {
        Outcome::Locked => columns.acquired = weight,
        Outcome::Done => columns.done = weight,
        Outcome::Timeout => columns.timed_out = weight,
        Outcome::Cancelled | Outcome::Released | Outcome::Disconnected | Outcome::Expired => {}
    }
    if outcome.is_of_hold() {
        columns.held_ns = time_ns;
    } else {
        columns.waited_ns = time_ns;
    }
    columns
}
