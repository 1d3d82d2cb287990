//! The bytes are a snapshot that an old image hands over. The result is a refusal or
//! a consistent engine, never a panic. An accepted snapshot stays the same when it is
//! written and read again.

use crate::whole_snapshot::Snapshot;
use engine::counts::statistics::Counters;
use engine::state::{EngineState, PoolState};
use engine::{Engine, Time};

/// A high slot number makes the engine reserve memory for all slots below it. That is
/// correct, but slow a thousand times a second.
const SLOT_MAX: u32 = 10_000;

/// # Panics
/// When an accepted state is inconsistent.
pub(crate) fn check(data: &[u8]) {
    let Ok(mut snapshot) = Snapshot::read(data) else {
        return;
    };
    let text = snapshot.write();
    let again = Snapshot::read(&text).expect("what was accepted is accepted again");
    assert!(again == snapshot && again.write() == text, "{}", String::from_utf8_lossy(&text));
    if snapshot.connections.iter().all(|connection| connection.slot <= SLOT_MAX) {
        // Statistics affect nothing, and no daemon runs until they overflow.
        let engine = &mut snapshot.server.engine;
        (engine.counters, engine.times) = Default::default();
        engine.measures = Default::default();
        check_engine(&snapshot);
    }
}

fn check_engine(snapshot: &Snapshot) {
    let Ok(mut engine) = snapshot.resume_engine(snapshot.server.taken) else {
        return;
    };
    engine.check_invariants();
    // The engine counts the gauges itself and ignores those of the snapshot.
    let counters = Counters {
        hashtable_entries: engine.counters.hashtable_entries,
        processing_workers: engine.counters.processing_workers,
        waiting_workers: engine.counters.waiting_workers,
        ..snapshot.server.engine.counters
    };
    let expected = EngineState { counters, ..snapshot.server.engine.clone() };
    assert_eq!(
        sorted(engine.state(), engine.pool_states()),
        sorted(expected, snapshot.pools.clone())
    );
    serve_to_the_end(&mut engine, snapshot);
}

/// Half of the clients leave, then all waits time out, then the others leave.
fn serve_to_the_end(engine: &mut Engine, snapshot: &Snapshot) {
    let (first, last) = snapshot.connections.split_at(snapshot.connections.len() / 2);
    for connection in first {
        engine.disconnect(client(connection), snapshot.server.taken);
        engine.check_invariants();
    }
    let end = Time::from_ns(u64::MAX);
    engine.expire(end);
    engine.check_invariants();
    for connection in last {
        engine.disconnect(client(connection), end);
        engine.check_invariants();
    }
    assert_eq!(engine.counters.hashtable_entries, 0);
}

fn client(connection: &poolcounterd::snapshot::ConnectionState) -> engine::ClientId {
    engine::ClientId { slot: connection.slot, serial: connection.serial }
}

/// The order of the pools in a state has no meaning.
fn sorted<'a>(
    state: EngineState,
    pools: impl IntoIterator<Item = PoolState<'a>>,
) -> (EngineState, Vec<PoolState<'a>>) {
    let mut pools: Vec<PoolState<'_>> = pools.into_iter().collect();
    pools.sort_by(|one, other| one.key.cmp(&other.key));
    (state, pools)
}
