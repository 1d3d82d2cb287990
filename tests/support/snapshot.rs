//! A complete snapshot of a hot restart, for tests and fuzzing.

use engine::state::PoolState;
use engine::{Engine, HashSeed, Time};
use poolcounterd::snapshot::{ConnectionState, Reader, ServerState, SnapshotError, write};
use std::borrow::Cow;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Everything except the connections and pools.
    pub(crate) server: ServerState,
    /// All clients.
    pub(crate) connections: Vec<ConnectionState>,
    /// The engine's pools.
    pub(crate) pools: Vec<PoolState<'static>>,
}

impl Snapshot {
    /// Reads a snapshot of any known version and checks all that can be checked
    /// without its descriptors.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut reader = Reader::new(bytes)?;
        let connections = reader.connections().collect::<Result<_, _>>()?;
        let pools = reader.pools().map(|pool| Ok(owned(pool?)));
        let pools = pools.collect::<Result<_, SnapshotError>>()?;
        Ok(Snapshot { server: reader.server, connections, pools })
    }

    /// The snapshot in the newest version.
    ///
    /// # Panics
    /// If memory runs out.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let pools = self.pools.iter().cloned();
        write(&mut out, &self.server, self.connections.iter().cloned(), pools)
            .expect("plain data, written to memory");
        out
    }

    /// The engine of the snapshot, continued at `now`.
    ///
    /// # Errors
    /// The engine's state is one that no engine can have written.
    // Not all tests do that.
    #[allow(dead_code)]
    pub(crate) fn resume_engine(&self, now: Time) -> Result<Engine, SnapshotError> {
        let pools = self.pools.iter().cloned().map(Ok);
        Engine::resume(self.server.engine.clone(), pools, HashSeed::new([1, 2]), now)
    }
}

/// The same state with an owned key.
pub(crate) fn owned(pool: PoolState<'_>) -> PoolState<'static> {
    PoolState { key: Cow::Owned(pool.key.into_owned()), ..pool }
}
