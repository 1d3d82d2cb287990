//! Sockets that are listened on: our own, or inherited ones.

use super::options::Options;
use super::snapshot::{ListenerState, Origin};
use super::sys;
use super::unix_socket;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, accept_with, bind, getpeername,
    getsockname, listen, socket_with, sockopt,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// In front of the path, in names of listeners.
const UNIX_PREFIX: &str = "unix:";

/// Why the daemon can't listen. Shown to whoever started it, then the end.
#[derive(Debug)]
pub enum ListenError {
    /// `-l` holds something that is no address.
    InvalidAddress(String),
    /// A socket could not be had.
    Bind(SocketAddr, io::Error),
    /// A Unix socket could not be had.
    Unix(String, io::Error),
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
            ListenError::Unix(path, e) => write!(f, "Couldn't listen on {path}: {e}"),
            ListenError::Inherited(which, e) => write!(f, "Can't serve {which}: {e}"),
        }
    }
}

/// What all listeners have in common.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) backlog: i32,
    /// 0 is off.
    pub(super) keepalive_s: u32,
    /// --listen-unix and its mode.
    pub(super) unix: Option<(String, u32)>,
}

impl Settings {
    pub(super) fn new(options: &Options) -> Self {
        let mode = options.listen_unix_mode;
        Settings {
            backlog: options.backlog,
            keepalive_s: options.keepalive,
            unix: options.listen_unix.clone().map(|path| (path, mode)),
        }
    }
}

/// A socket that clients connect to.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    /// What it is bound to, as shown to the operator.
    pub(super) name: String,
    pub(super) origin: Origin,
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
    fn bind(wanted: &Wanted, settings: &Settings) -> Result<Self, ListenError> {
        wanted
            .bind(false)
            .and_then(|socket| Self::serve(socket, Origin::Address, settings))
            .map_err(|e| ListenError::Bind(wanted.address, e))
    }

    /// Listens on an address of which `old` has a part, say all addresses
    /// instead of one, without a moment in which nobody does.
    fn bind_beside(
        wanted: &Wanted,
        old: &[Listener],
        settings: &Settings,
    ) -> Result<Self, ListenError> {
        let reuse_port = |reuse| {
            for listener in old.iter().filter(|l| l.origin == Origin::Address) {
                sockopt::set_socket_reuseport(&listener.socket, reuse)?;
            }
            io::Result::Ok(())
        };
        let open = || {
            reuse_port(true)?;
            let listener = Self::serve(wanted.bind(true)?, Origin::Address, settings)?;
            // Or a second daemon could be started on the port by mistake.
            sockopt::set_socket_reuseport(&listener.socket, false)?;
            Ok(listener)
        };
        let opened = open();
        reuse_port(false).and(opened).map_err(|e| ListenError::Bind(wanted.address, e))
    }

    /// Takes over a socket that somebody else bound and perhaps listens on.
    fn inherit(socket: OwnedFd, settings: &Settings) -> io::Result<Self> {
        if sockopt::socket_type(&socket)? != SocketType::STREAM
            || !sockopt::socket_acceptconn(&socket)?
        {
            return Err(io::Error::other("not a listening stream socket"));
        }
        Self::serve(socket, Origin::Inherited, settings)
    }

    /// Goes on with a listener of the image before us.
    pub(super) fn resume(
        socket: OwnedFd,
        state: &ListenerState,
        draining: bool,
        settings: &Settings,
    ) -> io::Result<Self> {
        if draining {
            let ListenerState { name, origin, .. } = state.clone();
            return Ok(Listener { socket, name, origin, may_have_more: false });
        }
        let listener = Self::inherit(socket, settings)?;
        Ok(Listener { origin: state.origin, ..listener })
    }

    /// What a hot restart carries over.
    pub(super) fn state(&self) -> ListenerState {
        let fd = self.socket.as_raw_fd();
        ListenerState { fd, origin: self.origin, name: self.name.clone() }
    }

    /// Refuses newcomers. Closing our descriptor alone would leave them hanging
    /// where another process, such as the service manager, holds the socket too.
    pub(super) fn shut(&mut self) -> io::Result<()> {
        self.may_have_more = false;
        Ok(rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Read)?)
    }

    /// Listens again after [`Listener::shut`]. True when the socket is another
    /// one now: a Unix socket that was shut stays so.
    pub(super) fn reopen(&mut self, settings: &Settings) -> io::Result<bool> {
        let replaced = match (&settings.unix, self.origin) {
            (Some((path, mode)), Origin::Unix) => {
                self.socket = unix_socket::bind(path, *mode, None)?;
                true
            }
            (None, Origin::Unix) => return Err(io::ErrorKind::NotFound.into()),
            (_, Origin::Inherited) if !is_tcp(&self.socket)? => {
                return Err(io::Error::other("an inherited Unix socket stays shut"));
            }
            _ => {
                self.rebind()?;
                false
            }
        };
        listen(&self.socket, settings.backlog)?;
        self.may_have_more = true;
        Ok(replaced)
    }

    /// Listens on a Unix socket of our own.
    fn bind_unix(path: &str, mode: u32, settings: &Settings) -> Result<Self, ListenError> {
        unix_socket::bind(path, mode, None)
            .and_then(|socket| Self::serve(socket, Origin::Unix, settings))
            .map_err(|e| ListenError::Unix(path.to_owned(), e))
    }

    /// The path of a Unix socket of our own.
    pub(super) fn unix_path(&self) -> Option<&str> {
        let path = self.name.strip_prefix(UNIX_PREFIX)?;
        (self.origin == Origin::Unix).then_some(path)
    }

    /// A socket that was given a free port (`-p 0`) has lost it when it was shut,
    /// and would be given another one.
    fn rebind(&self) -> io::Result<()> {
        match parse_name(&self.name).map(|address| bind(&self.socket, &address)) {
            // EINVAL: it is bound.
            None | Some(Ok(()) | Err(Errno::INVAL)) => Ok(()),
            Some(Err(e)) => Err(e.into()),
        }
    }

    /// Options that accepted connections inherit are set here, once.
    fn serve(socket: OwnedFd, origin: Origin, settings: &Settings) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        if is_tcp(&socket)? {
            sockopt::set_tcp_nodelay(&socket, true)?;
            set_keepalive(&socket, settings.keepalive_s)?;
        }
        listen(&socket, settings.backlog)?;
        let name = name_of(&getsockname(&socket)?);
        Ok(Listener { socket, name, origin, may_have_more: true })
    }
}

fn is_tcp(socket: &OwnedFd) -> io::Result<bool> {
    let domain = sockopt::socket_domain(socket)?;
    Ok(domain == AddressFamily::INET || domain == AddressFamily::INET6)
}

/// A host that lost power says nothing: the kernel asks after half of
/// `keepalive_s` of silence, then up to four times more, and counts data that
/// nobody acknowledges for as long as lost too (tcp(7)). From the last sign of
/// life it is at most twice `keepalive_s`.
fn set_keepalive(socket: &OwnedFd, keepalive_s: u32) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, keepalive_s > 0)?;
    if keepalive_s == 0 {
        return Ok(sockopt::set_tcp_user_timeout(socket, 0)?);
    }
    let idle_s = keepalive_s.div_ceil(2);
    let interval_s = (keepalive_s / 4).max(1);
    // A second is left for the kernel's coarse timers.
    let count = ((2 * keepalive_s - 1 - idle_s) / interval_s).clamp(1, 4);
    let seconds = |s: u32| Duration::from_secs(s.into());
    sockopt::set_tcp_keepidle(socket, seconds(idle_s))?;
    sockopt::set_tcp_keepintvl(socket, seconds(interval_s))?;
    sockopt::set_tcp_keepcnt(socket, count)?;
    // The kernel looks at it when a probe is due: half an interval early, so
    // that the last probe decides.
    let user_timeout_ms = (idle_s + count * interval_s) * 1_000 - interval_s * 500;
    Ok(sockopt::set_tcp_user_timeout(socket, user_timeout_ms)?)
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
            Some(path) => format!("{UNIX_PREFIX}{}", path.to_string_lossy()),
            None => "unix".to_owned(),
        },
        Err(_) => "unknown".to_owned(),
    }
}

/// The sockets to serve: standard input if it is one, else those that systemd
/// passed, else new ones as told by `-l` and `-p`; and `--listen-unix`.
///
/// # Errors
/// All end the start: an address that is none, a socket that can't be bound or
/// served.
pub(super) fn open(
    addresses: Option<&str>,
    port: u16,
    settings: &Settings,
) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = match from_standard_input(settings)? {
        Some(listener) => vec![listener],
        None => from_service_manager(settings)?,
    };
    if listeners.is_empty() {
        listeners = bind_all(addresses, port, settings)?;
    }
    if let Some((path, mode)) = &settings.unix {
        listeners.push(Listener::bind_unix(path, *mode, settings)?);
    }
    Ok(listeners)
}

fn bind_all(
    addresses: Option<&str>,
    port: u16,
    settings: &Settings,
) -> Result<Vec<Listener>, ListenError> {
    let mut listeners: Vec<Listener> = Vec::new();
    for mut wanted in wanted(addresses, port)? {
        // With port 0 all get the one that the first is given.
        let first_port = listeners.first().and_then(|first| parse_name(&first.name));
        wanted.address.set_port(first_port.map_or(port, |address| address.port()));
        match Listener::bind(&wanted, settings) {
            Ok(listener) => listeners.push(listener),
            Err(ListenError::Bind(_, e)) if wanted.is_excused(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(listeners)
}

/// After a hot restart: makes the listeners those that the command line wants.
/// What is bound already stays; returns those that are to be closed, once their
/// backlog is accepted.
///
/// # Errors
/// A new address could not be had; then all is left as it was.
pub(super) fn change_addresses(
    listeners: &mut Vec<Listener>,
    addresses: Option<&str>,
    port: u16,
    settings: &Settings,
) -> Result<Vec<Listener>, ListenError> {
    let inherited = listeners.iter().any(|listener| listener.origin == Origin::Inherited);
    let wanted = if inherited { Vec::new() } else { wanted(addresses, port)? };
    let mut new = Vec::new();
    for wanted in &wanted {
        if listeners.iter().any(|listener| wanted.is(&listener.name)) {
            continue;
        }
        match Listener::bind_beside(wanted, listeners, settings) {
            Ok(listener) => new.push(listener),
            Err(ListenError::Bind(_, e)) if wanted.is_excused(&e) => {}
            Err(e) => return Err(e),
        }
    }
    let unix_path = settings.unix.as_ref().map(|(path, _)| path.as_str());
    if let Some((path, mode)) = &settings.unix {
        if !listeners.iter().any(|listener| listener.unix_path() == unix_path) {
            new.push(Listener::bind_unix(path, *mode, settings)?);
        }
    }
    let stays = |listener: &Listener| match listener.origin {
        Origin::Inherited => true,
        Origin::Address => wanted.iter().any(|wanted| wanted.is(&listener.name)),
        Origin::Unix => listener.unix_path() == unix_path,
    };
    let (mut stay, go) = std::mem::take(listeners).into_iter().partition::<Vec<_>, _>(stays);
    stay.append(&mut new);
    *listeners = stay;
    Ok(go)
}

/// Whether [`change_addresses`] will succeed, asked by a process that does not
/// have the listeners.
///
/// # Errors
/// Why it would not.
pub(super) fn check_addresses(
    addresses: Option<&str>,
    port: u16,
    existing: &[ListenerState],
) -> Result<(), ListenError> {
    if existing.iter().any(|listener| listener.origin == Origin::Inherited) {
        return Ok(());
    }
    for wanted in wanted(addresses, port)? {
        if existing.iter().any(|listener| wanted.is(&listener.name)) {
            continue;
        }
        match wanted.bind(false) {
            Ok(_) => {}
            Err(e) if wanted.is_excused(&e) => {}
            // By one of our own listeners: bind_beside() knows what to do.
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && wanted.overlaps(existing) => {}
            Err(e) => return Err(ListenError::Bind(wanted.address, e)),
        }
    }
    Ok(())
}

/// A running reference that hands over to us leaves its listener there.
fn from_standard_input(settings: &Settings) -> Result<Option<Listener>, ListenError> {
    let stdin = rustix::stdio::stdin();
    if sockopt::socket_type(stdin).is_err() {
        return Ok(None);
    }
    let take = || {
        let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
        let listener = Listener::inherit(socket, settings)?;
        // Nothing but the listener itself may keep the socket open.
        let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, 0.into())?;
        rustix::stdio::dup2_stdin(null)?;
        Ok(Some(listener))
    };
    take().map_err(|e| ListenError::Inherited("standard input".to_owned(), e))
}

/// sd_listen_fds(3).
fn from_service_manager(settings: &Settings) -> Result<Vec<Listener>, ListenError> {
    let failed = |e| ListenError::Inherited("the sockets of LISTEN_FDS".to_owned(), e);
    let inherit = |fd| {
        sys::passed_descriptor(fd)
            .and_then(|socket| Listener::inherit(socket, settings))
            .map_err(|e| ListenError::Inherited(format!("descriptor {fd} of LISTEN_FDS"), e))
    };
    sd_notify::listen_fds().map_err(failed)?.map(inherit).collect()
}

/// An address that the command line asks for.
struct Wanted {
    address: SocketAddr,
    /// Another socket serves IPv4 on this port.
    v6_only: bool,
    /// Not asked for by name: a machine may lack it.
    optional: bool,
}

/// The reference takes literal addresses only, and so do we: a name server that
/// is down must not keep a lock daemon from starting.
fn wanted(addresses: Option<&str>, port: u16) -> Result<Vec<Wanted>, ListenError> {
    let Some(addresses) = addresses else {
        let localhost =
            |ip, optional| Wanted { address: SocketAddr::new(ip, port), v6_only: true, optional };
        return Ok(vec![
            localhost(Ipv4Addr::LOCALHOST.into(), false),
            localhost(Ipv6Addr::LOCALHOST.into(), true),
        ]);
    };
    let parsed: Result<Vec<IpAddr>, _> = addresses.split(',').map(str::parse).collect();
    let ips = parsed.map_err(|_| ListenError::InvalidAddress(addresses.to_owned()))?;
    let v6_only = ips.contains(&IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let wanted = |ip| Wanted { address: SocketAddr::new(ip, port), v6_only, optional: false };
    Ok(ips.into_iter().map(wanted).collect())
}

impl Wanted {
    fn bind(&self, reuse_port: bool) -> io::Result<OwnedFd> {
        let family = match self.address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        // A restart need not wait for old connections to leave TIME_WAIT.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, reuse_port)?;
        if self.address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, self.v6_only)?;
        }
        bind(&socket, &self.address)?;
        Ok(socket)
    }

    /// Whether a listener of that name is the one. Port 0 is any port.
    fn is(&self, name: &str) -> bool {
        parse_name(name).is_some_and(|address| {
            address.ip() == self.address.ip()
                && (self.address.port() == 0 || self.address.port() == address.port())
        })
    }

    fn overlaps(&self, existing: &[ListenerState]) -> bool {
        existing.iter().filter_map(|listener| parse_name(&listener.name)).any(|address| {
            address.port() == self.address.port()
                && (address.ip().is_unspecified() || self.address.ip().is_unspecified())
        })
    }

    /// A machine without IPv6 is not an error, unless IPv6 was asked for.
    fn is_excused(&self, error: &io::Error) -> bool {
        let errno = Errno::from_io_error(error);
        self.optional && matches!(errno, Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
    }
}

fn parse_name(name: &str) -> Option<SocketAddr> {
    name.parse().ok()
}
