//! Sockets that another process bound, passed to us, and may still hold: from systemd,
//! or as standard input.

use crate::server::kernel::socket_address::UNIX_PREFIX;
use crate::server::kernel::sys;
use crate::server::kernel::world::io::fcntl_dupfd_cloexec;
use crate::server::kernel::world::net::sockopt;
use crate::server::kernel::world::{fs, sd_notify, stdio};
use crate::server::listening::addresses::ListenError;
use crate::server::listening::listener::{Listener, SocketSettings};
use crate::server::listening::opening::bind_tcp;
use crate::server::listening::unix_socket;
use log::{info, warn};
use std::io;
use std::net::SocketAddr;

/// Takes the sockets passed to this process: standard input if it is a socket, else
/// those of the service manager.
pub(crate) fn take(settings: &SocketSettings) -> Result<Vec<Listener>, ListenError> {
    match from_standard_input(settings)? {
        Some(listener) => Ok(vec![listener]),
        None => from_service_manager(settings),
    }
}

/// A running reference that hands over to this daemon leaves its listener there.
fn from_standard_input(settings: &SocketSettings) -> Result<Option<Listener>, ListenError> {
    let stdin = stdio::stdin();
    if sockopt::socket_type(stdin).is_err() {
        return Ok(None);
    }
    let take = || {
        let socket = fcntl_dupfd_cloexec(stdin, 3)?;
        let listener = Listener::inherit(socket, settings)?;
        // Only the listener itself may keep the socket open.
        let null = fs::open("/dev/null", fs::OFlags::RDONLY, 0.into())?;
        stdio::dup2_stdin(null)?;
        Ok(Some(listener))
    };
    take().map_err(|e| ListenError::Inherited("standard input".to_owned(), e))
}

/// sd_listen_fds(3).
fn from_service_manager(settings: &SocketSettings) -> Result<Vec<Listener>, ListenError> {
    let failed = |e| ListenError::Inherited("the sockets of LISTEN_FDS".to_owned(), e);
    let inherit = |fd| {
        sys::passed_descriptor(fd)
            .and_then(|socket| Listener::inherit(socket, settings))
            .map_err(|e| ListenError::Inherited(format!("descriptor {fd} of LISTEN_FDS"), e))
    };
    sd_notify::listen_fds().map_err(failed)?.map(inherit).collect()
}

/// Logs what happens to new connections now that the daemon's copy of a socket is closed. `v6_only`
/// is that of the socket.
pub(crate) fn report_closed(name: &str, v6_only: bool) {
    match is_held_elsewhere(name, v6_only) {
        Ok(true) => warn!(
            "{name} is closed here, but another process, such as systemd, still holds it: \
             newcomers wait there until this daemon ends; under systemd they then start a new one; \
             to refuse them, run `systemctl stop poolcounter.socket`"
        ),
        Ok(false) => info!("no longer listening on {name}; new connections are refused"),
        Err(e) => warn!("{name} is closed here; whether another process holds it is unknown: {e}"),
    }
}

/// Whether a process listens on the socket of that name. Does not connect, because
/// the connection would become the next service's first client.
fn is_held_elsewhere(name: &str, v6_only: bool) -> io::Result<bool> {
    if let Some(path) = name.strip_prefix(UNIX_PREFIX) {
        return unix_socket::is_listened_on(path);
    }
    let address: SocketAddr =
        name.parse().map_err(|_| io::Error::other("it has neither an address nor a path"))?;
    match bind_tcp(address, v6_only, false) {
        Ok(_) => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Ok(true),
        Err(e) => Err(e),
    }
}

/// Whether an IPv6 socket leaves IPv4 to others.
pub(crate) fn is_v6_only(listener: &Listener) -> bool {
    // IPv4 and Unix sockets have no such option.
    sockopt::ipv6_v6only(&listener.socket).unwrap_or(false)
}
