//! How much a turn does for keys, as counted where it is done.

use crate::simulation::clients::shares::TurnStart;
use crate::simulation::driver::play::Play;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::kernel;
use crate::simulation::os::PLACES_PER_TURN;

/// The keys that reports of `STATS KEY` name.
const REPORTED_BYTES_MAX: usize = 64;

/// Operators and HTTP have a queue of reports, and clients have one. In a turn each may take a step
/// of its scan.
const STEPS_MAX: usize = 2;

/// Invariant: A turn looks at no more keys than the steps of its reports may, and compares no more bytes
/// with rules than clients have sent; a change of rules looks at each key once, and compares it once.
pub(super) fn check(play: &Play, before: &TurnStart) -> Result<(), Violation> {
    let (done, for_rules) = (play.key_work, play.oracle.work_of_rules);
    let visited_max = (STEPS_MAX * PLACES_PER_TURN) as u64 + for_rules.visited;
    let received: usize = kernel(|k| k.calls.received.values().sum());
    let sent = received + before.kept_bytes() + REPORTED_BYTES_MAX;
    let matched_max = sent as u64 + for_rules.matched_bytes;
    if done.visited > visited_max || done.matched_bytes > matched_max {
        return Err(format!(
            "{done:?} in a turn, but {visited_max} visits and {matched_max} bytes are allowed"
        ));
    }
    Ok(())
}
