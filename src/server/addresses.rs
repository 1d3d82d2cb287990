//! The listeners that the options ask for, and the names of sockets.

use super::options::Options;
use super::world::fd::OwnedFd;
use super::world::io::Errno;
use super::world::net::{SocketAddrAny, SocketAddrUnix, getpeername};
use crate::protocol::key_text;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Precedes the path in the name of a Unix socket.
pub(super) const UNIX_PREFIX: &str = "unix:";
/// The name of a Unix socket that has no path.
const UNIX_NAME: &str = "unix";

/// Why the daemon can't listen.
#[derive(Debug)]
pub enum ListenError {
    /// `-l` names something that is not an address.
    InvalidAddress(String),
    /// An address could not be bound.
    Bind(SocketAddr, io::Error),
    /// An address for HTTP could not be bound.
    Http(SocketAddr, io::Error),
    /// A Unix socket could not be opened at this path.
    Unix(String, io::Error),
    /// The control socket could not be opened at this path.
    Control(String, io::Error),
    /// An inherited socket can't be served.
    Inherited(String, io::Error),
    /// Several errors.
    Several(Vec<ListenError>),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Exactly the reference's message, including the closing backtick.
            ListenError::InvalidAddress(address) => {
                write!(f, "Address `{address}` is not valid to listen on.")
            }
            ListenError::Bind(address, e) => write!(f, "Couldn't bind to {address}: {e}"),
            ListenError::Http(address, e) => {
                write!(f, "Couldn't bind to {address} for HTTP: {e}")
            }
            ListenError::Unix(path, e) => write!(f, "Couldn't listen on {path}: {e}"),
            ListenError::Control(path, e) => write!(f, "Can't open the control socket {path}: {e}"),
            ListenError::Inherited(which, e) => write!(f, "Can't serve {which}: {e}"),
            ListenError::Several(errors) => {
                let all: Vec<String> = errors.iter().map(ListenError::to_string).collect();
                f.write_str(&all.join("; "))
            }
        }
    }
}

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Clients of the lock daemon.
    Clients,
    /// Operators: the control socket.
    Control,
    /// Monitoring: HTTP.
    Http,
}

/// A listener that the options ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// A TCP socket. `::` serves IPv4 as well.
    Tcp {
        /// Port 0 means any free port.
        address: SocketAddr,
        /// A default, not given by the user: a machine without it is not an error.
        optional: bool,
        /// What it is for.
        purpose: Purpose,
    },
    /// A Unix socket.
    Unix {
        /// The path of its file.
        path: String,
        /// The file's mode: it decides who may connect.
        mode: u32,
        /// The file's group, by name or number.
        group: Option<String>,
        /// What it is for.
        purpose: Purpose,
    },
}

impl Wanted {
    pub(super) fn purpose(&self) -> Purpose {
        match self {
            Wanted::Tcp { purpose, .. } | Wanted::Unix { purpose, .. } => *purpose,
        }
    }

    pub(super) fn is_tcp(&self) -> bool {
        matches!(self, Wanted::Tcp { .. })
    }

    /// Whether an inherited socket for clients takes its place.
    pub(super) fn gives_way(&self) -> bool {
        matches!(self, Wanted::Tcp { purpose: Purpose::Clients, .. })
    }

    /// The same, with `free_port` in place of port 0.
    pub(super) fn on_port(&self, free_port: u16) -> Wanted {
        let mut wanted = self.clone();
        if let Wanted::Tcp { address, purpose: Purpose::Clients, .. } = &mut wanted {
            if address.port() == 0 {
                address.set_port(free_port);
            }
        }
        wanted
    }

    /// Whether it serves clients at `address`, or at one that overlaps with it.
    fn is_for_clients_at(&self, address: SocketAddr) -> bool {
        let Wanted::Tcp { address: ours, purpose: Purpose::Clients, .. } = self else {
            return false;
        };
        let (one, other) = (ours.ip(), address.ip());
        let overlaps = one == other || covers(one, other) || covers(other, one);
        ours.port() == address.port() && ours.port() != 0 && overlaps
    }

    /// Whether this is a wildcard that also serves clients at `address`.
    pub(super) fn covers(&self, address: SocketAddr) -> bool {
        let Wanted::Tcp { address: ours, purpose: Purpose::Clients, .. } = self else {
            return false;
        };
        let is_port = ours.port() == 0 || ours.port() == address.port();
        is_port && covers(ours.ip(), address.ip())
    }

    /// The error to report when this listener can't be opened.
    pub(super) fn failed(&self, error: io::Error) -> ListenError {
        match self {
            Wanted::Tcp { address, purpose: Purpose::Http, .. } => {
                ListenError::Http(*address, error)
            }
            Wanted::Tcp { address, .. } => ListenError::Bind(*address, error),
            Wanted::Unix { path, purpose: Purpose::Control, .. } => {
                ListenError::Control(path.clone(), error)
            }
            Wanted::Unix { path, .. } => ListenError::Unix(path.clone(), error),
        }
    }
}

/// All listeners that `options` ask for: the only source for a cold start, a reload
/// and UNDRAIN.
///
/// # Errors
/// `-l` names something that is not an address, or clients and operators are to have
/// the same path.
pub(super) fn wanted(options: &Options) -> Result<Vec<Wanted>, ListenError> {
    let mut wanted = tcp_wanted(options.listen.as_deref(), options.port)?;
    if let Some(path) = &options.listen_unix {
        let mode = options.listen_unix_mode;
        let purpose = Purpose::Clients;
        wanted.push(Wanted::Unix { path: path.clone(), mode, group: None, purpose });
    }
    if let Some(path) = &options.control {
        if options.listen_unix.as_ref() == Some(path) {
            let why = io::Error::other("clients have that path (--listen-unix)");
            return Err(ListenError::Control(path.clone(), why));
        }
        let group = options.control_group.clone();
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        wanted.push(Wanted::Unix { path: path.clone(), mode, group, purpose: Purpose::Control });
    }
    for &address in &options.http {
        let http = Wanted::Tcp { address, optional: false, purpose: Purpose::Http };
        // Two of port 0 get two ports.
        let is_there = address.port() != 0 && wanted.contains(&http);
        if wanted.iter().any(|other| other.is_for_clients_at(address)) {
            let why = io::Error::other("clients have that address (-l, -p)");
            return Err(ListenError::Http(address, why));
        }
        wanted.extend((!is_there).then_some(http));
    }
    Ok(wanted)
}

/// Accepts only literal addresses, as the reference does: the lock daemon must start
/// even if name servers are down.
fn tcp_wanted(addresses: Option<&str>, port: u16) -> Result<Vec<Wanted>, ListenError> {
    let Some(addresses) = addresses else {
        return Ok(vec![
            tcp(Ipv4Addr::LOCALHOST.into(), port, false),
            tcp(Ipv6Addr::LOCALHOST.into(), port, true),
        ]);
    };
    let parsed: Result<Vec<IpAddr>, _> = addresses.split(',').map(str::parse).collect();
    let parsed = parsed.map_err(|_| ListenError::InvalidAddress(addresses.to_owned()))?;
    let ips: Vec<IpAddr> = parsed.iter().map(IpAddr::to_canonical).collect();
    let mut wanted = Vec::new();
    for (n, &ip) in ips.iter().enumerate() {
        // The kernel refuses to bind an address twice.
        let is_served = ips[..n].contains(&ip) || ips.iter().any(|&other| covers(other, ip));
        if !is_served {
            wanted.push(tcp(ip, port, false));
        }
    }
    Ok(wanted)
}

fn tcp(ip: IpAddr, port: u16, optional: bool) -> Wanted {
    Wanted::Tcp { address: SocketAddr::new(ip, port), optional, purpose: Purpose::Clients }
}

/// Whether a socket bound to `wildcard` also serves `ip`.
fn covers(wildcard: IpAddr, ip: IpAddr) -> bool {
    match wildcard {
        IpAddr::V4(v4) => v4.is_unspecified() && ip.is_ipv4() && ip != wildcard,
        IpAddr::V6(v6) => v6.is_unspecified() && ip != wildcard,
    }
}

/// The client's address, as logs and lists show it. A client chooses its path, if it
/// has one, so that is escaped as a key is.
pub(super) fn peer_of(socket: &OwnedFd) -> String {
    match getpeername(socket) {
        Ok(Some(address)) => match tcp_address(&address) {
            Some(address) => address.to_string(),
            None => key_text(name_of(&address).as_bytes()),
        },
        Ok(None) | Err(_) => "unknown".to_owned(),
    }
}

/// The peer's address; `None` for a Unix socket.
///
/// # Errors
/// The peer is no longer connected.
pub(super) fn address_of(socket: &OwnedFd) -> Result<Option<SocketAddr>, Errno> {
    Ok(getpeername(socket)?.as_ref().and_then(tcp_address))
}

/// As [`address_of`], without the port.
///
/// # Errors
/// The peer is no longer connected.
pub(super) fn ip_of(socket: &OwnedFd) -> Result<Option<IpAddr>, Errno> {
    Ok(address_of(socket)?.map(|address| address.ip()))
}

/// `None` for that of a Unix socket. A dual-stack socket reports an IPv4 client as an
/// IPv4-mapped IPv6 address, `[::ffff:10.1.2.3]:4711`, which is converted back (ipv6(7)).
fn tcp_address(address: &SocketAddrAny) -> Option<SocketAddr> {
    let mut address = SocketAddr::try_from(address.clone()).ok()?;
    address.set_ip(address.ip().to_canonical());
    Some(address)
}

/// An address as logs show it.
pub(super) fn name_of(address: &SocketAddrAny) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &str) -> Vec<String> {
        let shown = |wanted: &Wanted| match wanted {
            Wanted::Tcp { address, .. } => address.ip().to_string(),
            Wanted::Unix { path, .. } => path.clone(),
        };
        tcp_wanted(Some(list), 7531).expect("addresses").iter().map(shown).collect()
    }

    #[test]
    fn what_another_address_of_the_list_serves_is_left_out() {
        for (list, wanted) in [
            ("127.0.0.1", &["127.0.0.1"][..]),
            ("127.0.0.1,127.0.0.2,127.0.0.1", &["127.0.0.1", "127.0.0.2"]),
            ("0.0.0.0,127.0.0.1", &["0.0.0.0"]),
            ("127.0.0.1,0.0.0.0,::1", &["0.0.0.0", "::1"]),
            ("::", &["::"]),
            ("::1,::,127.0.0.1", &["::"]),
            ("::,0.0.0.0,127.0.0.1,::1", &["::"]),
            ("::ffff:127.0.0.1,127.0.0.1", &["127.0.0.1"]),
            ("::ffff:0.0.0.0,::1", &["0.0.0.0", "::1"]),
        ] {
            assert_eq!(addresses(list), wanted, "{list}");
        }
    }

    #[test]
    fn what_is_no_address_is_an_error() {
        for list in ["", "localhost", "127.0.0.1,", "127.0.0.1:7531", " 127.0.0.1"] {
            let error = tcp_wanted(Some(list), 7531).expect_err("no address").to_string();
            assert_eq!(error, format!("Address `{list}` is not valid to listen on."));
        }
    }
}
