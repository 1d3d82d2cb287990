//! Where the daemon listens, for which peers, and with which socket options.

use super::OTHER_DESCRIPTORS_MAX;
use super::Violation;
use crate::listening::addresses::{Purpose, Wanted, WantedControl, WantedTcp, wanted};
use crate::listening::listener::{Listener, ListenerStage};
use crate::restart::parts::Parts;
use crate::simulation::clients::shares::TurnStart;
use crate::simulation::driver::play::Play;
use crate::simulation::kernel::kernel;
use crate::simulation::kernel::sockets::{LocalAddress, SimulatedSocket, SocketRole};
use crate::simulation::kernel::{CallKind, File};
use crate::simulation::os::fd::number;
use crate::simulation::reports::http::{HTTP, HTTP_PORT};
use crate::sockets::ids::HTTP_CONNECTIONS_MAX;
use crate::{Options, Server};
use std::net::SocketAddr;

/// Standard streams, the files of a trial, signals, epoll.
const OWN_DESCRIPTORS: usize = 3 + 2 + 1 + 1;

/// The sockets that the daemon listens on.
fn map_listening_sockets<R>(look: impl FnMut(&SimulatedSocket) -> R) -> Vec<R> {
    kernel(|k| {
        let files = k.table().values().map(|descriptor| &k.files[descriptor.file]);
        let sockets = files.filter_map(|file| match file {
            File::Socket(socket) if matches!(socket.role, SocketRole::Listening(_)) => Some(socket),
            _ => None,
        });
        sockets.map(look).collect()
    })
}

/// How many connections wait to become clients.
pub(crate) fn clients_waiting() -> usize {
    let waiting = map_listening_sockets(|socket| match &socket.role {
        SocketRole::Listening(queue) if is_for_clients(socket) => queue.waiting.len(),
        _ => 0,
    });
    waiting.into_iter().sum()
}

fn is_for_clients(socket: &SimulatedSocket) -> bool {
    match &socket.local {
        Some(LocalAddress::Tcp(address)) => address.port() != HTTP_PORT,
        Some(LocalAddress::Path(_)) | None => false,
    }
}

/// Whether it listens for clients anywhere.
pub(crate) fn serves_clients() -> bool {
    map_listening_sockets(is_for_clients).contains(&true)
}

/// Invariant: In a drain, once all waiting clients are accepted, the daemon listens for no clients
/// when the loop sleeps.
pub(crate) fn check_drain_listeners(play: &Play) -> Result<(), Violation> {
    if play.orders.drains
        && clients_waiting() == 0
        && map_listening_sockets(is_for_clients).contains(&true)
    {
        return Err("it drains, but listens for clients".to_owned());
    }
    Ok(())
}

/// Invariant: At rest the daemon serves the addresses and paths of its options and no others; in a
/// drain, none for clients.
pub(crate) fn check_addresses(play: &Play) -> Result<(), Violation> {
    let server = play.server.as_ref().expect("it runs");
    let options = &server.options;
    let drains = play.orders.drains;
    let listeners = &server.parts.listeners;
    let inherits = kernel(|k| k.was_passed);
    let mut wanted = wanted(options).map_err(|e| e.to_string())?;
    for ip in options.listen.iter().flat_map(|list| list.split(',')) {
        let is_for_it = |one: &Wanted| match one {
            Wanted::Tcp(WantedTcp { address, purpose: Purpose::Clients, .. }) => {
                address.ip().is_unspecified() || address.ip().to_string() == ip
            }
            _ => false,
        };
        if !wanted.iter().any(is_for_it) {
            return Err(format!("no wanted address is for -l {ip}"));
        }
    }
    wanted.retain(|one| {
        let is_for_clients = one.purpose() == Purpose::Clients;
        !((drains || inherits) && is_for_clients)
    });
    // The machine may lack an optional address.
    let may_lack = kernel(|k| k.ever_failed.contains(&CallKind::Bind));
    let is_due = |one: &&Wanted| !(may_lack && matches!(one, Wanted::Tcp(tcp) if tcp.optional));
    for one in wanted.iter().filter(is_due) {
        if !listeners.all.iter().any(|listener| listener.is(one)) {
            return Err(format!("{one:?} is not served"));
        }
    }
    for listener in listeners.all.iter().filter(|listener| !listener.is_inherited()) {
        // A wildcard on the same port also serves it.
        let is_covered = |w: &Wanted| match (w, listener.tcp_address()) {
            (Wanted::Tcp(WantedTcp { address, .. }), Some(ours)) => {
                let is_port = address.port() == 0 || address.port() == ours.port();
                is_port && address.ip().is_unspecified()
            }
            _ => false,
        };
        if !wanted.iter().any(|w| listener.is(w) || is_covered(w)) {
            return Err(format!("{} is still served", listener.name));
        }
    }
    check_keepalive(options)
}

/// The TCP addresses of open listeners for clients.
pub(crate) fn clients_addresses(server: &Server) -> Vec<SocketAddr> {
    let listeners = server.parts.listeners.all.iter();
    let serves = |l: &&Listener| l.purpose() == Purpose::Clients && l.stage == ListenerStage::Open;
    listeners.filter(serves).filter_map(Listener::tcp_address).collect()
}

/// Invariant: A hot restart keeps the socket of an exact address that a wildcard serves from then
/// on: the kernel prefers that socket, and would reset the connections in its queue when it closes.
pub(crate) fn check_kept_sockets(server: &Server, before: &[SocketAddr]) -> Result<(), Violation> {
    let now = clients_addresses(server);
    let is_covered = |one: &SocketAddr| {
        let covers = |other: &SocketAddr| {
            let is_family = one.is_ipv4() || other.is_ipv6();
            other.ip().is_unspecified() && one.port() == other.port() && is_family
        };
        now.iter().any(covers)
    };
    match before.iter().find(|one| is_covered(one) && !now.contains(one)) {
        Some(one) => Err(format!("the socket of {one} was closed, but {one} is still served")),
        None => Ok(()),
    }
}

/// Invariant: After a hot restart the control socket is at its path, even if its file had vanished.
pub(crate) fn check_control_path(server: &Server) -> Result<(), Violation> {
    let wanted = wanted(&server.options).map_err(|e| e.to_string())?;
    for one in &wanted {
        let Wanted::Control(WantedControl { path, .. }) = one else { continue };
        let there = kernel(|k| k.path(path).ok());
        let is_there =
            |socket: &SimulatedSocket| there.is_some_and(|there| socket.inode == there.inode);
        if !map_listening_sockets(is_there).contains(&true) {
            return Err(format!("no socket listens at {path} after a hot restart"));
        }
    }
    Ok(())
}

/// Invariant: TCP sockets give a silent host up within one and a half times `--keepalive`, or two
/// seconds, and have TCP_NODELAY.
fn check_keepalive(options: &Options) -> Result<(), Violation> {
    if kernel(|k| k.ever_failed.contains(&CallKind::SetOption)) {
        return Ok(());
    }
    let max_s = u64::from(options.keepalive_s);
    let probes = map_listening_sockets(|socket| {
        let is_on = socket.option("keepalive") > 0;
        let after_s =
            socket.option("keepidle_s") + socket.option("keepintvl_s") * socket.option("keepcnt");
        let is_right = match max_s {
            0 => !is_on && socket.option("user_timeout_ms") == 0,
            _ => is_on && after_s <= (max_s * 3 / 2).max(2),
        };
        matches!(socket.local, Some(LocalAddress::Path(_))) || is_right
    });
    if probes.contains(&false) {
        return Err(format!("not every socket has a keepalive of {max_s} s"));
    }
    let is_quick = |socket: &SimulatedSocket| {
        matches!(socket.local, Some(LocalAddress::Path(_))) || socket.option("nodelay") > 0
    };
    if map_listening_sockets(is_quick).contains(&false) {
        return Err("answers may wait for acknowledgements: no TCP_NODELAY".to_owned());
    }
    Ok(())
}

/// Invariant: After each turn, no second daemon could listen on the same address, not even with
/// SO_REUSEPORT, and take some of the connections. A socket that was passed to the daemon is
/// exempt.
pub(crate) fn check_exclusive_addresses() -> Result<(), Violation> {
    if kernel(|k| k.was_passed || k.ever_failed.contains(&CallKind::SetOption)) {
        return Ok(());
    }
    match kernel(|k| k.shared_address()) {
        Some(address) => Err(format!("a second daemon can also listen on {address}")),
        None => Ok(()),
    }
}

/// Invariant: The queue of each open socket has room for `--backlog`, including that of a service
/// manager's socket, which keeps it for the next daemon. The queue of a closing socket has no room.
pub(crate) fn check_backlogs(server: &Server) -> Result<(), Violation> {
    for listener in &server.parts.listeners.all {
        let file = kernel(|k| k.descriptor(number(&listener.socket)).expect("it is open").file);
        let backlog = kernel(|k| k.backlog(file));
        let is_open = listener.stage == ListenerStage::Open;
        let should = if is_open { server.options.backlog as usize } else { 0 };
        if backlog != Some(should) {
            return Err(format!("{}: a backlog of {backlog:?}, not {should}", listener.name));
        }
    }
    if kernel(|k| k.has_shut_foreign_sockets()) {
        return Err("a socket that another process still holds has no backlog".to_owned());
    }
    Ok(())
}

/// Descriptors that clients leave free for the daemon, hot restarts and operators: 23, and 16 more
/// with HTTP.
pub(crate) fn reserved_descriptors() -> usize {
    let http = map_listening_sockets(|socket| match &socket.local {
        Some(LocalAddress::Tcp(address)) => address.port() == HTTP_PORT,
        _ => false,
    });
    7 + 16 + if http.contains(&true) { 16 } else { 0 }
}

/// Invariant: New clients leave the reserved descriptors free, below the highest limit that this
/// image has had: the daemon notices a lowered limit once descriptors are scarce.
pub(crate) fn check_reserve(play: &Play, before: &TurnStart) -> Result<(), Violation> {
    let Parts { clients, listeners, .. } = &play.server.as_ref().expect("it runs").parts;
    let (clients, listeners) = (clients.len(), listeners.all.len());
    let limit = kernel(|k| k.image_descriptors_max as usize);
    // An order may open listeners after new clients were accepted.
    let reserved_descriptors = reserved_descriptors().min(before.reserved_descriptors);
    let others = OWN_DESCRIPTORS + listeners.min(before.listeners) + reserved_descriptors;
    // One client is served in any case.
    if clients > before.clients && clients > limit.saturating_sub(others).max(1) {
        return Err(format!("{clients} clients and {others} other descriptors, of {limit}"));
    }
    Ok(())
}

/// Invariant: A new client waits for a descriptor for less than two seconds, unless clients have
/// all except the reserved ones and the daemon's own. The daemon notices a raised limit within a
/// second.
pub(crate) fn check_waiting_clients(play: &mut Play) -> Result<(), Violation> {
    let server = play.server.as_ref().expect("it runs");
    let waiting = clients_waiting();
    let listeners = map_listening_sockets(|_| ()).len();
    let others = listeners + OTHER_DESCRIPTORS_MAX + reserved_descriptors();
    let used = server.parts.clients.len() + play.connections.held() + others;
    let (limit, is_recent) = kernel(|k| {
        let changed_ns = k.last_failure_ns.max(k.limit_changed_ns);
        (k.descriptors_max as usize, k.now_ns < changed_ns + 2_000_000_000)
    });
    let is_paused = server.parts.listeners.all.iter().any(|l| l.paused_until().is_some());
    let nobody_waits = kernel(|k| k.connections_waiting()) == 0 && !is_paused;
    play.connections.check_sleep(waiting > 0 && !is_recent, nobody_waits)?;
    if waiting > 0 && used < limit && !is_recent {
        return Err(format!("{waiting} wait for descriptors, but only {used} of {limit} are used"));
    }
    Ok(())
}

/// Invariant: The loop does not sleep while an HTTP client waits to be accepted and there is room,
/// also if it is that of one that has its answer.
pub(crate) fn check_waiting_http_clients(play: &Play) -> Result<(), Violation> {
    let waiting = map_listening_sockets(|socket| match (&socket.local, &socket.role) {
        (Some(LocalAddress::Tcp(address)), SocketRole::Listening(queue))
            if address.port() == HTTP_PORT =>
        {
            queue.waiting.len()
        }
        _ => 0,
    });
    let waiting: usize = waiting.into_iter().sum();
    let (open, is_excused) = kernel(|k| {
        let changed_ns = k.last_failure_ns.max(k.limit_changed_ns);
        let is_scarce = k.descriptors_max < 20_000;
        (k.connections_to(HTTP).len(), is_scarce || k.now_ns < changed_ns + 2_000_000_000)
    });
    let has_room = open < HTTP_CONNECTIONS_MAX || play.http_clients.any_is_answered();
    if waiting > 0 && has_room && !is_excused {
        Err(format!("it sleeps with {open} HTTP connections, but {waiting} wait"))
    } else {
        Ok(())
    }
}

/// Invariant: The file of the control socket has the group of the options, and the mode that goes
/// with it, unless the socket is closing (then it may have those of earlier options).
pub(crate) fn check_files(server: &Server) -> Result<(), Violation> {
    for one in wanted(&server.options).map_err(|e| e.to_string())? {
        let closes = |l: &Listener| l.stage != ListenerStage::Open && l.is(&one);
        if server.parts.listeners.all.iter().any(closes) {
            continue;
        }
        let Wanted::Control(WantedControl { path, group }) = one else { continue };
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        let Some(there) = kernel(|k| k.path(&path).ok()) else { continue };
        if !map_listening_sockets(|socket| socket.inode == there.inode).contains(&true) {
            continue;
        }
        let wanted_group = group
            .map(|group| if group == "operators" { 7 } else { group.parse().expect("a number") });
        if there.mode != mode || wanted_group.is_some_and(|group| there.group != Some(group)) {
            return Err(format!("{path} has mode {:o}, group {:?}", there.mode, there.group));
        }
    }
    Ok(())
}
