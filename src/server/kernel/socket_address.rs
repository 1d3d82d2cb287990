//! The addresses of sockets, as numbers and as text.

use crate::protocol::key_text;
use crate::server::kernel::world::fd::OwnedFd;
use crate::server::kernel::world::io::Errno;
use crate::server::kernel::world::net::{SocketAddrAny, SocketAddrUnix, getpeername};
use std::net::{IpAddr, SocketAddr};

/// Precedes the path in the name of a Unix socket.
pub(crate) const UNIX_PREFIX: &str = "unix:";
/// The name of a Unix socket that has no path.
const UNIX_NAME: &str = "unix";

/// The client's address, as logs and lists show it. A client chooses its path, if it
/// has one, so that is escaped as a key is.
pub(crate) fn peer_name(socket: &OwnedFd) -> String {
    match getpeername(socket) {
        Ok(Some(address)) => match tcp_address(&address) {
            Some(address) => address.to_string(),
            None => key_text(socket_name(&address).as_bytes()),
        },
        Ok(None) | Err(_) => "unknown".to_owned(),
    }
}

/// The peer's address; `None` for a Unix socket.
pub(crate) fn peer_address(socket: &OwnedFd) -> Result<Option<SocketAddr>, Errno> {
    Ok(getpeername(socket)?.as_ref().and_then(tcp_address))
}

/// As [`peer_address`], without the port.
pub(crate) fn peer_ip(socket: &OwnedFd) -> Result<Option<IpAddr>, Errno> {
    Ok(peer_address(socket)?.map(|address| address.ip()))
}

/// `None` for that of a Unix socket. A dual-stack socket reports an IPv4 client as an
/// IPv4-mapped IPv6 address, `[::ffff:10.1.2.3]:4711`, which is converted back (ipv6(7)).
fn tcp_address(address: &SocketAddrAny) -> Option<SocketAddr> {
    let mut address = SocketAddr::try_from(address.clone()).ok()?;
    address.set_ip(address.ip().to_canonical());
    Some(address)
}

/// An address as logs show it.
pub(crate) fn socket_name(address: &SocketAddrAny) -> String {
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return address.to_string();
    }
    match SocketAddrUnix::try_from(address.clone()) {
        Ok(address) => match address.path() {
            Some(path) => format!("{UNIX_PREFIX}{}", path.to_string_lossy()),
            None => UNIX_NAME.to_owned(),
        },
        Err(_) => "unknown".to_owned(),
    }
}
