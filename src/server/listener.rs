//! Sockets that are listened on: our own, or inherited ones.

use super::sys;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, accept_with, bind, getpeername,
    getsockname, listen, socket_with, sockopt,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Why the daemon can't listen. Shown to whoever started it, then the end.
#[derive(Debug)]
pub enum ListenError {
    /// `-l` holds something that is no address.
    InvalidAddress(String),
    /// A socket could not be had.
    Bind(SocketAddr, io::Error),
    /// An inherited socket can't be served.
    Inherited(String, io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Word for word what the reference prints, closing backtick and all.
            ListenError::InvalidAddress(address) => {
                write!(f, "Address `{address}` is not valid to listen on.")
            }
            ListenError::Bind(address, e) => write!(f, "Couldn't bind to {address}: {e}"),
            ListenError::Inherited(which, e) => write!(f, "Can't serve {which}: {e}"),
        }
    }
}

/// A socket that clients connect to.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    /// As shown to the operator.
    pub(super) name: String,
    /// The kernel may have connections for us; only accept(2) can tell.
    pub(super) may_have_more: bool,
}

/// What accepting once came to.
pub(super) enum Accepted {
    Connection(OwnedFd),
    /// That client has gone again; there may be others.
    Aborted,
    /// Nobody waits.
    Nobody,
    /// No descriptor, or no memory for one, is free.
    OutOfDescriptors(Errno),
    Failed(Errno),
}

impl Listener {
    /// accept(2): errors of the new connection's network come up here and mean
    /// nothing more than that this one is lost.
    pub(super) fn accept(&self) -> Accepted {
        match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => Accepted::Connection(socket),
            Err(Errno::AGAIN) => Accepted::Nobody,
            Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                Accepted::OutOfDescriptors(e)
            }
            Err(
                Errno::INTR
                | Errno::CONNABORTED
                | Errno::NETDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
                | Errno::PERM,
            ) => Accepted::Aborted,
            Err(e) => Accepted::Failed(e),
        }
    }

    /// Listens on an address of this machine.
    fn bind(address: SocketAddr, shares_port: bool, backlog: i32) -> Result<Self, ListenError> {
        let open = || -> io::Result<OwnedFd> {
            let family = match address {
                SocketAddr::V4(_) => AddressFamily::INET,
                SocketAddr::V6(_) => AddressFamily::INET6,
            };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(family, SocketType::STREAM, flags, None)?;
            // A restart need not wait for old connections to leave TIME_WAIT.
            sockopt::set_socket_reuseaddr(&socket, true)?;
            if address.is_ipv6() {
                sockopt::set_ipv6_v6only(&socket, shares_port)?;
            }
            bind(&socket, &address)?;
            Ok(socket)
        };
        open()
            .and_then(|socket| Self::serve(socket, backlog))
            .map_err(|e| ListenError::Bind(address, e))
    }

    /// Takes over a socket that somebody else bound and perhaps listens on.
    fn inherit(socket: OwnedFd, backlog: i32) -> io::Result<Self> {
        if sockopt::socket_type(&socket)? != SocketType::STREAM
            || !sockopt::socket_acceptconn(&socket)?
        {
            return Err(io::Error::other("not a listening stream socket"));
        }
        Self::serve(socket, backlog)
    }

    /// Options that accepted connections inherit are set here, once.
    fn serve(socket: OwnedFd, backlog: i32) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        if is_tcp(&socket)? {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        listen(&socket, backlog)?;
        let name = name_of(&getsockname(&socket)?);
        Ok(Listener { socket, name, may_have_more: true })
    }
}

fn is_tcp(socket: &OwnedFd) -> io::Result<bool> {
    let domain = sockopt::socket_domain(socket)?;
    Ok(domain == AddressFamily::INET || domain == AddressFamily::INET6)
}

/// Who is at the other end, as shown in logs.
pub(super) fn peer_of(socket: &OwnedFd) -> String {
    match getpeername(socket) {
        Ok(Some(address)) => name_of(&address),
        _ => "unknown".to_owned(),
    }
}

fn name_of(address: &SocketAddrAny) -> String {
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return address.to_string();
    }
    match rustix::net::SocketAddrUnix::try_from(address.clone()) {
        Ok(address) => match address.path() {
            Some(path) => format!("unix:{}", path.to_string_lossy()),
            None => "unix".to_owned(),
        },
        Err(_) => "unknown".to_owned(),
    }
}

/// The sockets to serve: standard input if it is one, else those that systemd
/// passed, else new ones as told by `-l` and `-p`.
///
/// # Errors
/// All end the start: an address that is none, a socket that can't be bound or
/// served.
pub(super) fn open(
    addresses: Option<&str>,
    port: u16,
    backlog: i32,
) -> Result<Vec<Listener>, ListenError> {
    if let Some(listener) = from_standard_input(backlog)? {
        return Ok(vec![listener]);
    }
    let passed = from_service_manager(backlog)?;
    if !passed.is_empty() {
        return Ok(passed);
    }
    match addresses {
        Some(addresses) => bind_all(&parse_addresses(addresses)?, port, backlog),
        None => bind_localhost(port, backlog),
    }
}

/// A running reference that hands over to us leaves its listener there.
fn from_standard_input(backlog: i32) -> Result<Option<Listener>, ListenError> {
    let stdin = rustix::stdio::stdin();
    if sockopt::socket_type(stdin).is_err() {
        return Ok(None);
    }
    let take = || {
        let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
        let listener = Listener::inherit(socket, backlog)?;
        // Nothing but the listener itself may keep the socket open.
        let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, 0.into())?;
        rustix::stdio::dup2_stdin(null)?;
        Ok(Some(listener))
    };
    take().map_err(|e| ListenError::Inherited("standard input".to_owned(), e))
}

/// sd_listen_fds(3).
fn from_service_manager(backlog: i32) -> Result<Vec<Listener>, ListenError> {
    let failed = |e| ListenError::Inherited("the sockets of LISTEN_FDS".to_owned(), e);
    let inherit = |fd| {
        sys::inherited_descriptor(fd)
            .and_then(|socket| Listener::inherit(socket, backlog))
            .map_err(|e| ListenError::Inherited(format!("descriptor {fd} of LISTEN_FDS"), e))
    };
    sd_notify::listen_fds().map_err(failed)?.map(inherit).collect()
}

/// The reference takes literal addresses only, and so do we: a name server that
/// is down must not keep a lock daemon from starting.
fn parse_addresses(addresses: &str) -> Result<Vec<IpAddr>, ListenError> {
    let parse = |address: &str| address.parse().ok();
    let parsed: Option<Vec<IpAddr>> = addresses.split(',').map(parse).collect();
    parsed.ok_or_else(|| ListenError::InvalidAddress(addresses.to_owned()))
}

/// With port 0 all get the one that the first is given.
fn bind_all(addresses: &[IpAddr], port: u16, backlog: i32) -> Result<Vec<Listener>, ListenError> {
    let has_any_v4 = addresses.contains(&IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let mut listeners: Vec<Listener> = Vec::new();
    for &address in addresses {
        let port = port_of_first(&listeners).unwrap_or(port);
        listeners.push(Listener::bind(SocketAddr::new(address, port), has_any_v4, backlog)?);
    }
    Ok(listeners)
}

fn bind_localhost(port: u16, backlog: i32) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = bind_all(&[Ipv4Addr::LOCALHOST.into()], port, backlog)?;
    let port = port_of_first(&listeners).unwrap_or(port);
    match Listener::bind((Ipv6Addr::LOCALHOST, port).into(), true, backlog) {
        Ok(listener) => listeners.push(listener),
        // A machine without IPv6 is not an error.
        Err(ListenError::Bind(_, e)) if has_no_such_address(&e) => {}
        Err(e) => return Err(e),
    }
    Ok(listeners)
}

fn port_of_first(listeners: &[Listener]) -> Option<u16> {
    let address = getsockname(&listeners.first()?.socket).ok()?;
    SocketAddr::try_from(address).ok().map(|address| address.port())
}

fn has_no_such_address(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
}
