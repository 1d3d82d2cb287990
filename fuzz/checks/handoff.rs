//! The bytes are a snapshot that an old image hands over. Whatever they are, it
//! is a refusal or an engine in order, never a panic; and what is accepted is
//! written and read again as the same.

use poolcounterd::engine::image::Image;
use poolcounterd::engine::statistics::Counters;
use poolcounterd::engine::{Engine, Time};
use poolcounterd::server::snapshot::Snapshot;
use std::hash::RandomState;

/// A slot far out makes us reserve memory for all below it, which is right, and
/// slow to do a thousand times a second.
const SLOT_MAX: u32 = 10_000;

/// # Panics
/// When something is accepted that no daemon could go on from.
pub(crate) fn check(data: &[u8]) {
    let Ok(snapshot) = Snapshot::read(data) else {
        return;
    };
    let text = snapshot.write();
    let again = Snapshot::read(&text).expect("what was accepted is accepted again");
    assert!(again == snapshot && again.write() == text, "{}", String::from_utf8_lossy(&text));
    if snapshot.connections.iter().all(|connection| connection.slot <= SLOT_MAX) {
        check_engine(&snapshot);
    }
}

fn check_engine(snapshot: &Snapshot) {
    let image = snapshot.engine.clone();
    let Ok(mut engine) = Engine::from_image(image, RandomState::new(), snapshot.taken) else {
        return;
    };
    engine.check_invariants();
    // Gauges are counted, whatever the snapshot says.
    let counters = Counters {
        hashtable_entries: engine.counters.hashtable_entries,
        processing_workers: engine.counters.processing_workers,
        waiting_workers: engine.counters.waiting_workers,
        ..snapshot.engine.counters
    };
    let expected = Image { counters, ..snapshot.engine.clone() };
    assert_eq!(sorted(engine.image()), sorted(expected));
    serve_to_the_end(&mut engine, snapshot);
}

/// Half of the clients leave, then all waits run out, then the others leave.
fn serve_to_the_end(engine: &mut Engine, snapshot: &Snapshot) {
    let (first, last) = snapshot.connections.split_at(snapshot.connections.len() / 2);
    for connection in first {
        engine.disconnect(client(connection), snapshot.taken);
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

fn client(
    connection: &poolcounterd::server::snapshot::ConnectionState,
) -> poolcounterd::engine::ClientId {
    poolcounterd::engine::ClientId { slot: connection.slot, serial: connection.serial }
}

/// The order of the pools and of the spent locks in an image means nothing.
fn sorted(mut image: Image) -> Image {
    image.pools.sort_by(|a, b| a.key.cmp(&b.key));
    image.spent.sort_by_key(|lock| (lock.client.slot, lock.depth));
    image
}
