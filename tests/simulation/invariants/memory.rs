//! Rules about memory: docs/reference/sizing.md.

use super::Violation;
use crate::Server;
use crate::simulation::driver::play::Play;
use crate::simulation::kernel::kernel;
use engine::SpareCapacity;

/// What a connection may use for unread answers.
const OUTPUT_BYTES_MAX: usize = 68 * 1024;

/// How soon memory is returned after a crowd has left.
const RETURNED_NS: u64 = 2_000_000_000;

/// With fewer places there is too little to return.
const PLACES_MIN: usize = 100;

/// Invariant: The unsent output of a connection takes at most 68 KiB of memory, and none once it is
/// sent.
pub(crate) fn check(play: &mut Play) -> Result<(), Violation> {
    let server = play.server.as_ref().expect("it runs");
    for (client, connection) in server.parts.clients.iter() {
        let (unsent, kept) = (connection.stream.unsent().len(), connection.stream.output_bytes());
        if kept > OUTPUT_BYTES_MAX + size_of::<Vec<u8>>() || unsent == 0 && kept > 0 {
            return Err(format!("{client:?} keeps {kept} bytes for {unsent} bytes to send"));
        }
    }
    check_pauses(play)?;
    check_returned(play)
}

/// Invariant: The daemon returns memory at most every two seconds: that blocks the loop for a
/// while.
fn check_pauses(play: &mut Play) -> Result<(), Violation> {
    let (returns, now_ns) = kernel(|k| (k.calls.returns_memory, k.now_ns));
    if !returns {
        return Ok(());
    }
    match play.returned_ns.replace(now_ns) {
        Some(last_ns) if now_ns < last_ns + RETURNED_NS => {
            Err(format!("memory is returned at {last_ns} ns, and again at {now_ns} ns"))
        }
        _ => Ok(()),
    }
}

/// Invariant: Two seconds after a crowd has left, the places of its connections and keys are
/// returned, unless the last place is still in use. Those that are freed later in a turn that
/// returns memory are another crowd.
fn check_returned(play: &mut Play) -> Result<(), Violation> {
    let (returns, now_ns) = kernel(|k| (k.calls.returns_memory, k.now_ns));
    if returns {
        play.spare_since_ns = None;
    }
    if !has_spare(play.server.as_ref().expect("it runs")) {
        play.spare_since_ns = None;
        return Ok(());
    }
    let since_ns = *play.spare_since_ns.get_or_insert(now_ns);
    if now_ns < since_ns + RETURNED_NS {
        return Ok(());
    }
    Err(format!("memory that could be returned since {since_ns} ns is kept at {now_ns} ns"))
}

fn has_spare(server: &Server) -> bool {
    let (clients, engine) = (&server.parts.clients, &server.parts.engine);
    let is_spare = |places: usize, used: usize, last: Option<usize>| {
        let has_free_end = last.is_none_or(|last| last + 1 < places);
        places >= PLACES_MIN && used <= places / 4 && has_free_end
    };
    let last_client = clients.iter().map(|(client, _)| client.slot as usize).last();
    let keys = engine.pool_places();
    let last_key = (0..keys).rfind(|&place| engine.pools_in(place, place + 1).next().is_some());
    is_spare(clients.slots(), clients.len(), last_client)
        || is_spare(keys, engine.pools().count(), last_key)
        || engine.spare() == SpareCapacity::Much
}

/// Invariant: The loop does not sleep past the time when memory is to be returned.
pub(crate) fn check_sleep(play: &Play, until_ns: Option<u64>) -> Result<(), Violation> {
    match play.spare_since_ns {
        Some(since_ns) if until_ns.is_none_or(|until_ns| until_ns > since_ns + RETURNED_NS) => {
            Err(format!("it sleeps until {until_ns:?}, but could return memory since {since_ns}"))
        }
        _ => Ok(()),
    }
}
