//! Rules for each turn, for sleep and for the end.
//!
//! The driver calls them after each turn. They look at everything: the daemon, the simulated
//! kernel and the other judges, which they call in a fixed order.

mod key_work;
pub(crate) mod listening;
mod memory;

use super::clients::disconnections;
use super::clients::oracle::ClientConversation;
use super::clients::shares::{self, TurnStart};
use super::driver::play::{Play, was_reset};
use super::kernel::kernel;
use super::kernel::processes::Asleep;
use super::operator::service_manager::{self, check_ready};
use super::os::{CONNECTIONS_PER_TURN, SHARES_PER_TURN};
use super::reports::http::HTTP;
use crate::Server;
use crate::clients::connection::{Connection, ConnectionStage};
use crate::clients::input_queues::SHARE_BYTES;
use crate::restart::parts::Parts;
use crate::sockets::ids::{CONTROL_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX};
use crate::sockets::stream::OUTPUT_BYTES_MAX;
use engine::ClientId;
use listening::{
    check_addresses, check_backlogs, check_drain_listeners, check_exclusive_addresses, check_files,
    check_reserve, check_waiting_clients, check_waiting_http_clients,
};
use protocol::lines::LINE_BYTES_MAX;

/// A violated invariant, and how.
pub(crate) type Violation = String;

/// New connections accepted in a turn.
const ACCEPTS_PER_TURN: usize = SHARES_PER_TURN * 4 / 5;

/// The largest answer to one line.
pub(super) const ANSWER_BYTES_MAX: usize = 1000;

/// Standard streams, the files of a trial, signals, epoll, the service manager's
/// socket, and the child of a trial.
pub(super) const OTHER_DESCRIPTORS_MAX: usize = 3 + 2 + 1 + 1 + 1 + 1;

/// How many turns in a row may do nothing: after a full share the daemon reads from the client once
/// more, and a pause of accepting may end.
const IDLE_TURNS_MAX: usize = 3;

/// After each turn that did not sleep.
pub(crate) fn check_turn(play: &mut Play, before: &TurnStart) -> Result<(), Violation> {
    shares::check(play, before)?;
    check_timeouts(play, before)?;
    disconnections::check_closed_connections(play)?;
    disconnections::check_unread_input(play)?;
    memory::check(play)?;
    key_work::check(play, before)?;
    check_buffer_bounds(play)?;
    check_counters(play)?;
    check_descriptors(play)?;
    check_accept_pause()?;
    check_accept_limit()?;
    check_lingering()?;
    check_reserve(play, before)?;
    check_http_clients(play)?;
    check_exclusive_addresses()?;
    check_closed_sockets()?;
    check_backlogs(play.server.as_ref().expect("it runs"))?;
    check_foreign_files()?;
    check_files(play.server.as_ref().expect("it runs"))?;
    service_manager::check_status(play, before)?;
    check_idleness(play, before)
}

/// Invariant: Each turn ends the waits that have run out before it, however much clients send: the
/// answer comes in the next turn.
fn check_timeouts(play: &Play, before: &TurnStart) -> Result<(), Violation> {
    let began = before.began;
    match play.oracle.expired {
        Some(expired) if expired >= began => Ok(()),
        last => Err(format!(
            "a turn at {began:?} did not end expired waits; the last one that did: {last:?}"
        )),
    }
}

/// Invariant: A socket that a client passes does not linger when it is closed, wherever it is then:
/// in a message, in the queue of a connection or in that of a listener. Only if no descriptor is
/// left for it, or in an exec(2) if an operator has passed it, does the kernel close it as it is.
pub(crate) fn check_lingering() -> Result<(), Violation> {
    kernel(|k| match k.calls.lingers {
        n if n > 0 && !k.was_full() => Err(format!("{n} passed sockets lingered")),
        _ => Ok(()),
    })
}

/// Invariant: A connection keeps at most 64 KiB and one answer of unsent output, and less than
/// 4,096 bytes of an unfinished line.
fn check_buffer_bounds(play: &Play) -> Result<(), Violation> {
    let server = play.server.as_ref().expect("it runs");
    for (client, connection) in server.parts.clients.iter() {
        let unsent = connection.stream.unsent().len();
        let (half, kept) =
            (connection.lines.unfinished().len(), connection.lines.unhandled().len());
        if unsent > OUTPUT_BYTES_MAX + ANSWER_BYTES_MAX
            || half >= LINE_BYTES_MAX
            || kept > SHARE_BYTES + LINE_BYTES_MAX
        {
            return Err(format!(
                "{client:?} keeps {unsent} bytes of output, {half} of a line, {kept} of input"
            ));
        }
    }
    Ok(())
}

/// Invariant: The engine's counters are the model's. Each admitted client is still connected, or
/// has ended and counts once, by how.
fn check_counters(play: &mut Play) -> Result<(), Violation> {
    let server = play.server.as_ref().expect("it runs");
    let engine = &server.parts.engine;
    engine.check_invariants();
    let counters = engine.counters;
    play.connections.check(&counters)?;
    let should = play.connections.counters(play.oracle.model.counters());
    if counters != should || engine.times() != play.oracle.model.times() {
        return Err(format!("counters are {counters:?}, not {should:?}"));
    }
    let is_open = |connection: &Connection| connection.stage == ConnectionStage::Open;
    let open =
        server.parts.clients.iter().filter(|(_, connection)| is_open(connection)).count() as u64;
    let ended = counters.closed_connections
        + counters.lost_connections
        + counters.unread_connections
        + counters.freed_connections;
    if counters.accepted_connections != open + ended {
        return Err(format!("{open} connections are open, but the counters are {counters:?}"));
    }
    Ok(())
}

/// Invariant: Open descriptors are connections, listeners, and at most nine others. Reports have their
/// number, also after a hot restart, without those of a trial.
fn check_descriptors(play: &Play) -> Result<(), Violation> {
    let server = play.server.as_ref().expect("it runs");
    let [all, tcp, unix, listeners] = kernel(|k| k.count_descriptors());
    let http = kernel(|k| k.connections_to(HTTP)).len();
    let shown = server.open_descriptors() as usize;
    if shown > all || shown < all && !server.restart.is_under_way() {
        return Err(format!("{all} descriptors are open, and reports show {shown}"));
    }
    let (all, tcp) = (all - http, tcp - http);
    let clients = server.parts.clients.len() + play.connections.held();
    if clients < tcp || clients > tcp + unix || tcp + unix - clients > CONTROL_CONNECTIONS_MAX {
        return Err(format!("{tcp} + {unix} connections are open, and {clients} clients"));
    }
    if listeners != server.parts.listeners.all.len() {
        return Err(format!("{listeners} listening sockets are open"));
    }
    let others = all - tcp - unix - listeners;
    if others > OTHER_DESCRIPTORS_MAX {
        return Err(format!("{others} descriptors besides connections and listeners"));
    }
    Ok(())
}

/// Invariant: A turn accepts a bounded number of new connections, however many keep coming. So does
/// a new image before its first turn.
pub(crate) fn check_accept_limit() -> Result<(), Violation> {
    match kernel(|k| k.calls.accepted) {
        n if n > ACCEPTS_PER_TURN => Err(format!("{n} connections were accepted in one turn")),
        _ => Ok(()),
    }
}

/// Invariant: After accept(2) has failed for an unknown reason, the daemon does not call it again
/// for a second, unless a connection ends or an operator gives an order.
fn check_accept_pause() -> Result<(), Violation> {
    match kernel(|k| k.calls.accepted_too_soon) {
        0 => Ok(()),
        times => {
            Err(format!("accept(2) failed, and is called again {times} times within a second"))
        }
    }
}

/// Invariant: Whatever clients ask for, an HTTP client or an operator waits for its report at most
/// as long as a report for each possible HTTP client and operator takes, and two scans of as many
/// places as there ever were; one more for each pattern that others have asked for before, but all
/// operators have the same one here.
///
/// Returns how many turns that takes.
fn report_turns_max(play: &mut Play) -> usize {
    let server = play.server.as_ref().expect("it runs");
    play.places_max = play.places_max.max(server.parts.clients.slots());
    let scan = play.places_max / CONNECTIONS_PER_TURN + 2;
    CONTROL_CONNECTIONS_MAX + HTTP_CONNECTIONS_MAX + 2 * scan
}

/// HTTP clients are few and admitted, and have a bounded time; they and operators get their
/// reports in time.
pub(crate) fn check_http_clients(play: &mut Play) -> Result<(), Violation> {
    let report_turns_max = report_turns_max(play);
    let Server { parts: Parts { listeners, operator, .. }, reporting, .. } =
        play.server.as_ref().expect("it runs");
    let is_operator = |peer| !play.connections.was_client(peer);
    let connections = operator.control.states().into_iter().zip(operator.control.descriptors());
    let blocked = connections.filter(|(state, _)| !state.unsent.is_empty());
    let blocked =
        blocked.map(|(state, fd)| (kernel(|k| k.peer_behind(fd)), state.unsent.len())).collect();
    play.operators.check_unsent(&blocked)?;
    play.operators.check_waiting(report_turns_max, &blocked, is_operator)?;
    let options = &play.server.as_ref().expect("it runs").options;
    let allow = if options.http_allow.is_empty() { &options.allow } else { &options.http_allow };
    let may_be_served = |peer: u32| {
        let ip = kernel(|k| k.address_of(peer));
        allow.is_empty() || ip.is_some_and(|ip| allow.iter().any(|net| net.contains(&ip)))
    };
    let (is_busy, is_draining) = (reporting.has_work(), listeners.is_draining());
    play.http_clients.check_turn(is_busy, is_draining, report_turns_max, may_be_served)
}

/// Invariant: A closed socket leaves no file and no events, even if another process still holds it.
fn check_closed_sockets() -> Result<(), Violation> {
    let dead = kernel(|k| k.dead_paths());
    if !dead.is_empty() {
        return Err(format!("it leaves {dead:?}, but no longer listens there"));
    }
    if kernel(|k| k.watches_closed()) {
        return Err("it still watches a socket that it has closed".to_owned());
    }
    Ok(())
}

/// Invariant: A file that another daemon has bound stays.
fn check_foreign_files() -> Result<(), Violation> {
    match kernel(|k| k.removed_foreign.pop()) {
        Some(path) => Err(format!("it removes {path} of another daemon")),
        None => Ok(()),
    }
}

/// Invariant: The loop does not spin: it sleeps if nothing is left to do.
fn check_idleness(play: &mut Play, before: &TurnStart) -> Result<(), Violation> {
    let is_busy = kernel(|k| {
        let calls = &k.calls;
        let events = calls.events + calls.accepted + calls.received.values().sum::<usize>();
        events + calls.sends > 0 || !calls.failures.is_empty()
    });
    // After a while, a deadline may have come.
    let now_ns = kernel(|k| k.now_ns);
    let has_time_passed = std::mem::replace(&mut play.last_turn_ns, now_ns) != now_ns;
    let has_reports = play.server.as_ref().is_some_and(|s| s.reporting.has_work());
    let clients = play.server.as_ref().map_or(0, |server| server.parts.clients.len());
    let is_excused = is_busy
        || clients != before.clients
        || has_time_passed
        || has_reports
        || shares::has_kept_input(play);
    play.idle_turns = if is_excused { 0 } else { play.idle_turns + 1 };
    // Each turn has room for a few of them.
    if play.idle_turns > IDLE_TURNS_MAX + clients.div_ceil(SHARES_PER_TURN) {
        return Err(format!("{} turns do nothing", play.idle_turns));
    }
    Ok(())
}

/// Invariant: The loop sleeps only if nothing is left to do: no unread input, no unsent answer that
/// the kernel would take, no deadline that has passed.
pub(crate) fn check_sleep(play: &mut Play, asleep: Asleep) -> Result<(), Violation> {
    let (now_ns, until_ns) = (kernel(|k| k.now_ns), asleep.until_ns);
    play.asleep = Some(asleep);
    play.http_clients.check_sleep(until_ns)?;
    play.idle_turns = 0;
    play.orders.check_sleep(until_ns, play.connections.held())?;
    check_signals()?;
    check_drain_listeners(play)?;
    check_waiting_clients(play)?;
    check_waiting_http_clients(play)?;
    service_manager::check_sleep(until_ns)?;
    memory::check_sleep(play, until_ns)?;
    if let Some(run_out_ns) = play.oracle.model.next_run_out_ns() {
        if until_ns.is_none_or(|until_ns| u128::from(until_ns) > run_out_ns.max(now_ns.into())) {
            return Err(format!("it sleeps until {until_ns:?}, past a deadline at {run_out_ns}"));
        }
    }
    disconnections::check_dead_hosts(play)?;
    let server = play.server.as_ref().expect("it runs");
    for (client, connection) in server.parts.clients.iter() {
        let is_stuck = !connection.stream.unsent().is_empty();
        let (arrived, ends) = kernel(|k| {
            let peer = k.peer_behind(connection.stream.socket());
            if is_stuck && k.has_room(peer) {
                return Err(format!("it sleeps, but {client:?} has room for more output"));
            }
            Ok(k.visible(peer))
        })?;
        if arrived > 0 && !is_stuck || !connection.lines.unhandled().is_empty() {
            return Err(format!("it sleeps, but {client:?} has {arrived} unread bytes"));
        }
        if ends && !is_stuck {
            return Err(format!("it sleeps, but {client:?} has ended"));
        }
        check_ended_client(play, client, ends)?;
        let peer = kernel(|k| k.peer_behind(connection.stream.socket()));
        let is_owed =
            play.oracle.conversations.get(&peer).is_some_and(ClientConversation::awaits_answer);
        if is_owed && !is_stuck && kernel(|k| k.waits_for_more(peer)) {
            return Err(format!("it sleeps, but owes {client:?} an answer"));
        }
    }
    Ok(())
}

/// Invariant: The loop does not sleep while a signal is pending, also if several come at once.
fn check_signals() -> Result<(), Violation> {
    let left = kernel(|k| k.signals.clone());
    if left.is_empty() { Ok(()) } else { Err(format!("it sleeps with pending signals {left:?}")) }
}

fn check_ended_client(play: &Play, client: ClientId, ends: bool) -> Result<(), Violation> {
    let peer = play.oracle.peers.get(&client);
    let conversation = peer.and_then(|peer| play.oracle.conversations.get(peer));
    match conversation {
        Some(conversation) if ends && !conversation.has_gone => {
            Err(format!("it sleeps, but {client:?}, whose input has ended, still has its locks"))
        }
        _ => Ok(()),
    }
}

/// Everything has arrived and was read.
///
/// Invariant: Each client has all its answers, a drain without clients has ended, and no connection
/// waits to be accepted.
pub(crate) fn check_quiescence(play: &mut Play) -> Result<(), Violation> {
    for (&peer, conversation) in &play.oracle.conversations {
        let was_admitted = play.oracle.peers.values().any(|&one| one == peer);
        // A client that leaves too much unread is disconnected.
        let is_disconnected =
            kernel(|k| k.peers.get(&peer).is_some_and(|peer| peer.ending.is_some()))
                && conversation.unread_bytes() >= OUTPUT_BYTES_MAX;
        if was_admitted && !was_reset(peer) && !is_disconnected {
            conversation.check_all_answered().map_err(|why| format!("client {peer}: {why}"))?;
        }
    }
    play.operators.check_quiescence(play.restarts, play.orders.drains)?;
    play.http_clients.check_quiescence(|peer| was_reset(peer) || kernel(|k| k.has_closed(peer)))?;
    check_addresses(play)?;
    check_ready()?;
    if play.orders.drains && play.connections.len() == 0 {
        return Err("it has drained, but still runs".to_owned());
    }
    let waiting = kernel(|k| k.connections_waiting());
    if waiting > 0 {
        return Err(format!("{waiting} connections wait to be accepted"));
    }
    Ok(())
}

/// The daemon has ended.
///
/// Invariant: No client is still connected.
pub(crate) fn check_end(play: &Play) -> Result<(), Violation> {
    check_foreign_files()?;
    for peer in play.oracle.peers.values() {
        if kernel(|k| k.peers.get(peer).is_some_and(|peer| peer.ending.is_none())) {
            return Err(format!("client {peer} is still connected"));
        }
    }
    Ok(())
}
