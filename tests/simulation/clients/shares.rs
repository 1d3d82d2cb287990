//! Rules about a client's share of a turn.

use crate::clients::connection::ConnectionStage;
use crate::simulation::driver::play::Play;
use crate::simulation::invariants::ANSWER_BYTES_MAX;
use crate::simulation::invariants::Violation;
use crate::simulation::invariants::listening::reserved_descriptors;
use crate::simulation::kernel::kernel;
use crate::simulation::os::SHARES_PER_TURN;
use engine::Time;
use protocol::lines::LINE_BYTES_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// A client's share of what is received in a turn.
const RECEIVED_BYTES: usize = 4096;

/// Its share of the work, as bytes received plus bytes answered. The last line may exceed
/// it.
const WORK_BYTES: usize = 8192;

/// What could be seen of the clients before a turn.
pub(crate) struct TurnStart {
    pub(crate) began: Time,
    /// How many clients there were, and listeners.
    pub(crate) clients: usize,
    pub(crate) listeners: usize,
    /// How many descriptors were reserved.
    pub(crate) reserved_descriptors: usize,
    /// `None` if no image runs.
    pub(crate) is_draining: Option<bool>,
    waiting: BTreeMap<u32, PendingInput>,
}

/// Input of a client that is not handled yet.
struct PendingInput {
    /// Bytes that the connection has kept since an earlier turn.
    kept: usize,
    /// Bytes to receive.
    arrived: usize,
    /// At least how many of them must be received in a turn.
    share: usize,
    /// The input ends after them.
    ends: bool,
    /// The daemon does not know that yet.
    is_open: bool,
    /// It waits for a report.
    is_parked: bool,
    /// Its last line waits for a report.
    is_last_parked: bool,
}

impl TurnStart {
    pub(crate) fn of(play: &Play) -> Self {
        let mut waiting = BTreeMap::new();
        let server = play.server.as_ref();
        let clients = server.map_or(0, |server| server.parts.clients.len());
        let listeners = server.map_or(0, |server| server.parts.listeners.all.len());
        if let Some(server) = &play.server {
            for (_, connection) in server.parts.clients.iter() {
                let kept = connection.lines.unhandled().len();
                let is_open = connection.stage == ConnectionStage::Open;
                let is_parked = connection.lines.is_line_held();
                let is_last_parked = connection.is_held_line_last();
                kernel(|k| {
                    let peer = k.peer_behind(connection.stream.socket());
                    let (arrived, ends) = k.visible(peer);
                    let share = k.receivable(peer, RECEIVED_BYTES);
                    let input = PendingInput {
                        kept,
                        arrived,
                        share,
                        ends,
                        is_open,
                        is_parked,
                        is_last_parked,
                    };
                    waiting.insert(peer, input);
                });
            }
        }
        let is_draining = server.map(|server| server.parts.listeners.is_draining());
        let began = Time::from_ns(kernel(|k| k.now_ns));
        let reserved_descriptors = server.map_or(0, |_| reserved_descriptors());
        TurnStart { began, clients, listeners, reserved_descriptors, is_draining, waiting }
    }
}

impl TurnStart {
    /// The peers that have left, which the daemon can notice in this turn.
    pub(crate) fn left(&self) -> BTreeSet<u32> {
        let has_left = |input: &PendingInput| input.ends && input.is_open && !input.is_parked;
        self.waiting.iter().filter(|(_, input)| has_left(input)).map(|(&peer, _)| peer).collect()
    }

    /// What connections have kept since an earlier turn.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.waiting.values().map(|input| input.kept).sum()
    }
}

/// Invariant: A client with unread input gets its share of a turn, no more and no less: 4,096 bytes
/// received, and 8,192 bytes of work, in which statistics count with their length. The last line
/// may exceed it.
///
/// Invariant: A turn does no more work than its budget, however many clients have input. Only the
/// last line of each client may exceed it.
///
/// Invariant: A client with unread input, or whose end can be seen, waits for its share no longer
/// than all others need to use half of the budget of each turn: it loses its locks then if it has
/// ended, even if its last line waits for a report.
pub(crate) fn check(play: &mut Play, before: &TurnStart) -> Result<(), Violation> {
    check_budget(play, before)?;
    let received = kernel(|k| k.calls.received.clone());
    for (peer, &bytes) in &received {
        let is_client = play.oracle.peers.values().any(|one| one == peer);
        if is_client && bytes > RECEIVED_BYTES {
            return Err(format!("{bytes} bytes of client {peer} were received in one turn"));
        }
    }
    for (&peer, conversation) in &play.oracle.conversations {
        if conversation.work.least > WORK_BYTES + LINE_BYTES_MAX + ANSWER_BYTES_MAX {
            return Err(format!("{:?} for client {peer} in one turn", conversation.work));
        }
    }
    if kernel(|k| !k.calls.failures.is_empty() || k.calls.was_urgent) {
        // Who was served in such a turn, and which events were lost, is not known.
        play.waits_for_share.clear();
        return Ok(());
    }
    let kept = kept_by_peer(play);
    let mut waits = std::mem::take(&mut play.waits_for_share);
    waits.retain(|peer, _| before.waiting.contains_key(peer));
    let result = check_waiting(play, before, &received, &kept, &mut waits);
    play.waits_for_share = waits;
    result
}

/// How long a client has waited for its share.
#[derive(Debug, Default)]
pub(crate) struct WaitForShare {
    turns: usize,
    /// How many clients there were meanwhile, at most.
    clients_max: usize,
}

/// A line that waits for a report counts in the turn of its answer, but had its share before.
fn check_budget(play: &Play, before: &TurnStart) -> Result<(), Violation> {
    let is_parked = |peer: &u32| before.waiting.get(peer).is_some_and(|input| input.is_parked);
    let conversations = play.oracle.conversations.iter().filter(|(peer, _)| !is_parked(peer));
    let work = conversations.map(|(_, one)| one.work.least);
    let excess = |work: usize| work.saturating_sub(WORK_BYTES);
    let (mut all, mut busy) = (0, 0);
    for work in work.filter(|&work| work > 0) {
        all += work - excess(work);
        busy += 1;
    }
    if all > SHARES_PER_TURN * WORK_BYTES {
        return Err(format!("{busy} clients get {all} bytes of work in one turn"));
    }
    Ok(())
}

fn check_waiting(
    play: &Play,
    before: &TurnStart,
    received: &BTreeMap<u32, usize>,
    kept: &BTreeMap<u32, usize>,
    waits: &mut BTreeMap<u32, WaitForShare>,
) -> Result<(), Violation> {
    for (&peer, waiting) in &before.waiting {
        let Some(conversation) = play.oracle.conversations.get(&peer) else { continue };
        if conversation.has_gone {
            continue;
        }
        let got = received.get(&peer).copied().unwrap_or(0);
        let is_served = match waiting.kept {
            _ if waiting.is_parked => true,
            0 => got >= waiting.share,
            before => kept.get(&peer).is_none_or(|&now| now < before),
        };
        let has_nothing_left = waiting.kept == 0 || waiting.is_last_parked;
        let has_ended = waiting.ends && waiting.arrived == 0 && has_nothing_left;
        if !is_served || has_ended {
            let wait = waits.entry(peer).or_default();
            wait.turns += 1;
            wait.clients_max = wait.clients_max.max(before.clients);
            // Rounded up, and the turn in which it came.
            let turns_max = 2 + 2 * wait.clients_max.div_ceil(SHARES_PER_TURN);
            if wait.turns > turns_max {
                let bytes = waiting.kept + waiting.arrived;
                return Err(format!("client {peer} gets no share for its {bytes} bytes: {wait:?}"));
            }
            continue;
        }
        waits.remove(&peer);
        let has_more = kept.get(&peer).is_some_and(|&now| now > 0) && !waiting.is_parked;
        let is_whole = conversation.work.most >= WORK_BYTES;
        if has_more && !is_whole && !is_parked(play, peer) {
            return Err(format!("only {:?} for client {peer}, which has more", conversation.work));
        }
    }
    Ok(())
}

/// Whether a connection keeps input for the next turn.
pub(crate) fn has_kept_input(play: &Play) -> bool {
    kept_by_peer(play).values().any(|&kept| kept > 0)
}

fn kept_by_peer(play: &Play) -> BTreeMap<u32, usize> {
    let server = play.server.as_ref().expect("it runs");
    // What waits for a report is handled after it.
    let connections = server.parts.clients.iter().filter(|(_, one)| !one.lines.is_line_held());
    let kept = connections.map(|(_, connection)| {
        let peer = kernel(|k| k.peer_behind(connection.stream.socket()));
        (peer, connection.lines.unhandled().len())
    });
    kept.collect()
}

/// Whether a client waits for a report.
fn is_parked(play: &Play, peer: u32) -> bool {
    let server = play.server.as_ref().expect("it runs");
    let mut parked = server.parts.clients.iter().filter(|(_, one)| one.lines.is_line_held());
    parked.any(|(_, one)| kernel(|k| k.peer_behind(one.stream.socket())) == peer)
}
