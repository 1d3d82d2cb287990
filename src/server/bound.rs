//! Bound sockets, before they listen.

use super::addresses::Wanted;
use super::unix_socket::{self, FileIdentity};
use super::world::fd::OwnedFd;
use super::world::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use std::io;
use std::net::SocketAddr;

/// A bound socket that does not listen yet.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) socket: OwnedFd,
    pub(super) file: Option<FileIdentity>,
}

impl Bound {
    /// Binds the `wanted` address or path.
    ///
    /// # Errors
    /// The kernel's error. No file is left behind then.
    pub(super) fn new(wanted: &Wanted, reuse_port: bool) -> io::Result<Self> {
        match wanted {
            Wanted::Tcp { address, .. } => {
                // An IPv6 address other than `::` never serves IPv4.
                Ok(Bound { socket: bind_tcp(*address, false, reuse_port)?, file: None })
            }
            Wanted::Unix { path, mode, group, .. } => {
                let unix_socket::Bound { socket, file } =
                    unix_socket::bind(path, *mode, group.as_deref())?;
                Ok(Bound { socket, file: Some(file) })
            }
        }
    }

    pub(super) fn port(&self) -> Option<u16> {
        SocketAddr::try_from(getsockname(&self.socket).ok()?).ok().map(|address| address.port())
    }

    /// It is not needed after all.
    pub(super) fn discard(self, wanted: &Wanted) {
        if let (Wanted::Unix { path, .. }, Some(file)) = (wanted, self.file) {
            unix_socket::remove(path, file);
        }
    }
}

/// A TCP socket bound to `address`.
///
/// # Errors
/// The kernel's error.
pub(super) fn bind_tcp(
    address: SocketAddr,
    v6_only: bool,
    reuse_port: bool,
) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // A restart must not wait for old connections to leave TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, reuse_port)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, v6_only)?;
    }
    bind(&socket, &address)?;
    Ok(socket)
}
