//! The engine, and a record of its calls.

use engine::rules::rule::Rule;
use engine::{ClientId, Engine as Real, HashSeed, KeyWork, Time};
use protocol::{Acquire, Mode};
use std::ops::{Deref, DerefMut};

/// A call of the engine, with the time that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineCall {
    Acquire { client: ClientId, request: OwnedAcquire, now: Time },
    Release { client: ClientId, now: Time },
    Disconnect { client: ClientId, now: Time },
    DisconnectAll { clients: Vec<ClientId>, now: Time },
    Expire { now: Time },
    Rules { rules: Vec<String>, groups: Vec<String>, now: Time, keys: KeyWork },
}

impl EngineCall {
    /// The client whose line this is.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match *self {
            EngineCall::Acquire { client, .. } | EngineCall::Release { client, .. } => Some(client),
            _ => None,
        }
    }
}

impl EngineCall {
    /// When it was called.
    pub(crate) fn now(&self) -> Time {
        match *self {
            EngineCall::Acquire { now, .. }
            | EngineCall::Release { now, .. }
            | EngineCall::Disconnect { now, .. }
            | EngineCall::DisconnectAll { now, .. }
            | EngineCall::Expire { now }
            | EngineCall::Rules { now, .. } => now,
        }
    }
}

/// `ACQ4ME` or `ACQ4ANY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedAcquire {
    pub(crate) mode: Mode,
    pub(crate) key: Vec<u8>,
    pub(crate) workers: u32,
    pub(crate) max_queue: u32,
    pub(crate) timeout_s: u64,
}

impl OwnedAcquire {
    pub(crate) fn of(request: &Acquire<'_>) -> Self {
        let Acquire { mode, key, workers, max_queue, timeout_s } = *request;
        OwnedAcquire { mode, key: key.to_vec(), workers, max_queue, timeout_s }
    }

    pub(crate) fn borrow(&self) -> Acquire<'_> {
        let OwnedAcquire { mode, workers, max_queue, timeout_s, .. } = *self;
        Acquire { mode, key: &self.key, workers, max_queue, timeout_s }
    }
}

/// As public as the real one.
#[allow(unreachable_pub)]
pub struct Engine {
    real: Real,
    pub(crate) asked: Vec<EngineCall>,
}

impl Engine {
    pub(crate) fn new(seed: HashSeed, now: Time) -> Self {
        Engine { real: Real::new(seed, now), asked: Vec::new() }
    }

    pub(crate) fn acquire(&mut self, client: ClientId, request: &Acquire<'_>, now: Time) {
        self.asked.push(EngineCall::Acquire { client, request: OwnedAcquire::of(request), now });
        self.real.acquire(client, request, now);
    }

    pub(crate) fn release(&mut self, client: ClientId, now: Time) {
        self.asked.push(EngineCall::Release { client, now });
        self.real.release(client, now);
    }

    pub(crate) fn disconnect(&mut self, client: ClientId, now: Time) {
        self.asked.push(EngineCall::Disconnect { client, now });
        self.real.disconnect(client, now);
    }

    pub(crate) fn disconnect_all(&mut self, clients: &[ClientId], now: Time) {
        self.asked.push(EngineCall::DisconnectAll { clients: clients.to_vec(), now });
        self.real.disconnect_all(clients, now);
    }

    pub(crate) fn expire(&mut self, now: Time) {
        self.asked.push(EngineCall::Expire { now });
        self.real.expire(now);
    }

    pub(crate) fn set_rules(
        &mut self,
        in_force: Vec<Rule>,
        groups: &[String],
        now: Time,
        go_on: impl FnMut(),
    ) {
        let rules = in_force.iter().map(ToString::to_string).collect();
        let keys = self.work_on_all_keys();
        self.asked.push(EngineCall::Rules { rules, groups: groups.to_vec(), now, keys });
        self.real.set_rules(in_force, groups, now, go_on);
    }
}

/// What a hot restart has restored.
impl From<Real> for Engine {
    fn from(real: Real) -> Self {
        Engine { real, asked: Vec::new() }
    }
}

impl Engine {
    /// What it takes to compare all keys with rules.
    fn work_on_all_keys(&self) -> KeyWork {
        let keys = self.real.pool_states().map(|pool| pool.key.len() as u64);
        keys.fold(KeyWork::default(), |all, bytes| KeyWork {
            visited: all.visited + 1,
            matched_bytes: all.matched_bytes + bytes,
        })
    }
}

impl Deref for Engine {
    type Target = Real;

    fn deref(&self) -> &Real {
        &self.real
    }
}

impl DerefMut for Engine {
    fn deref_mut(&mut self) -> &mut Real {
        &mut self.real
    }
}
