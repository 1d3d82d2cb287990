//! Rules about connections that the daemon ends: only those of dead hosts, and those in time.

use crate::simulation::driver::play::Play;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::kernel;
use crate::sockets::stream::OUTPUT_BYTES_MAX;

/// Invariant: The daemon keeps the connection of a client that is there, however idle, unless the
/// client leaves 64 KiB unread, can't be sent an answer or speaks HTTP.
pub(crate) fn check_closed_connections(play: &Play) -> Result<(), Violation> {
    for peer in kernel(|k| std::mem::take(&mut k.calls.closed_while_open)) {
        let was_served = play.oracle.peers.values().any(|&one| one == peer);
        let has_failed = kernel(|k| {
            let peer = k.peers.get(&peer);
            peer.is_none_or(|peer| peer.is_given_up || peer.was_not_sent)
        });
        if was_served && !has_failed && !may_be_closed(play, peer) {
            return Err(format!("client {peer} is there, but its connection is closed"));
        }
    }
    Ok(())
}

/// Whether the client has left too much unread, or was freed.
fn may_be_closed(play: &Play, peer: u32) -> bool {
    let conversation = play.oracle.conversations.get(&peer);
    // An operator that connects where clients are served now has none.
    conversation.map_or(play.oracle.has_freed, |it| {
        it.is_freed || it.has_ended_by_http || it.unread_bytes() >= OUTPUT_BYTES_MAX
    })
}

/// Invariant: The daemon handles all lines of a client that leaves without waiting for the answers,
/// unless a call fails.
pub(crate) fn check_unread_input(play: &Play) -> Result<(), Violation> {
    if kernel(|k| !k.calls.failures.is_empty() || k.calls.was_urgent) {
        return Ok(());
    }
    for peer in kernel(|k| std::mem::take(&mut k.calls.closed_unread)) {
        let was_served = play.oracle.peers.values().any(|&one| one == peer);
        if was_served && !may_be_closed(play, peer) {
            return Err(format!("client {peer} has left, and its last lines are not handled"));
        }
    }
    Ok(())
}

/// Invariant: A client whose host has vanished is lost within one and a half times `--keepalive`,
/// or two seconds, counted from then, or from when it was sent something.
pub(crate) fn check_dead_hosts(play: &Play) -> Result<(), Violation> {
    let now_ns = kernel(|k| k.now_ns);
    let server = play.server.as_ref().expect("it runs");
    for (_, connection) in server.parts.clients.iter() {
        let peer = kernel(|k| k.peer_behind(connection.stream.socket()));
        let Some(vanished_ns) = kernel(|k| k.peers.get(&peer)?.vanished_ns) else { continue };
        let Some(conversation) = play.oracle.conversations.get(&peer) else { continue };
        let keepalive_ns = u64::from(conversation.keepalive_s) * 1_000_000_000;
        let silence_ns = (keepalive_ns * 3 / 2).max(2_000_000_000);
        if keepalive_ns > 0 && now_ns > vanished_ns + silence_ns {
            return Err(format!("client {peer} vanished at {vanished_ns} ns, but is not lost yet"));
        }
    }
    Ok(())
}
