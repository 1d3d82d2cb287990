//! Binds what is missing, for a cold start, a reload and UNDRAIN, all or none; takes sockets over from systemd or standard input. Another process has
//! bound the last, passed them on, and may still hold them.

use crate::listening::addresses::{ListenError, Wanted, overlap};
use crate::listening::listener::{Listener, Origin, SocketSettings};
use crate::listening::unix_socket;
use crate::platform::failed_call::{errno, named, named_unless_plain};
use crate::platform::os::fd::OwnedFd;
use crate::platform::os::io::{Errno, fcntl_dupfd_cloexec};
use crate::platform::os::net::{
    AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt,
};
use crate::platform::os::{fs, stdio};
use crate::platform::supervisor;
use crate::platform::sys;
use crate::sockets::options::RefusedOptions;
use crate::sockets::socket::own_address;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Opens the `wanted` listeners that are not among `existing`. `port` is what clients' port 0 got
/// before.
///
/// # Errors
/// Everything that could not be opened. Nothing has changed then.
pub(crate) fn open_missing(
    wanted: &[Wanted],
    existing: &[Listener],
    port: Option<u16>,
    settings: &SocketSettings,
    refused: &mut RefusedOptions,
) -> Result<Vec<Listener>, ListenError> {
    let mut missing = wanted.iter().filter(|wanted| !exists(wanted, existing));
    let path = missing.find_map(|wanted| match wanted {
        Wanted::Control(control) => Some(&control.path),
        Wanted::Tcp(_) => None,
    });
    // A daemon that serves does not wait.
    let may_wait = existing.is_empty();
    let _until_all_listen = path.map(|path| unix_socket::lock_directory(path, may_wait));
    let mut errors = Vec::new();
    let opened = {
        let reuse = ReusePort { existing };
        let mut bound = bind_missing(wanted, &reuse, port, &mut errors);
        if errors.is_empty() {
            listen_on_all(&mut bound, settings, refused, &mut errors);
        }
        bound
    };
    if errors.is_empty() {
        return Ok(opened);
    }
    abandon(opened);
    Err(ListenError::Several(errors))
}

/// Closes what [`open_missing`] has opened.
pub(crate) fn abandon(opened: Vec<Listener>) {
    for listener in opened {
        listener.remove_file();
    }
}

/// Whether one of `existing` is the `wanted` listener, and it can be found.
fn exists(wanted: &Wanted, existing: &[Listener]) -> bool {
    existing.iter().any(|listener| listener.is(wanted) && listener.can_be_found())
}

fn bind_missing(
    wanted: &[Wanted],
    reuse: &ReusePort<'_>,
    port: Option<u16>,
    errors: &mut Vec<ListenError>,
) -> Vec<Listener> {
    let mut bound = Vec::new();
    // With port 0, all addresses get the same port.
    let mut free_port = port;
    for wanted in wanted.iter().filter(|wanted| !exists(wanted, reuse.existing)) {
        let wanted_there = wanted.on_port(free_port.unwrap_or(0));
        match bind_one(wanted, &wanted_there, reuse) {
            Ok(listener) => {
                free_port = free_port.or_else(|| Some(listener.tcp_address()?.port()));
                bound.push(listener);
            }
            Err(e) if is_excused(wanted, &e) => {}
            Err(e) => errors.push(wanted_there.failed(e)),
        }
    }
    bound
}

/// Binds the `wanted` listener. `there` is the same with the port to bind.
fn bind_one(wanted: &Wanted, there: &Wanted, reuse: &ReusePort<'_>) -> io::Result<Listener> {
    match wanted {
        Wanted::Tcp(wanted) => {
            let there = there.tcp_address().unwrap_or(wanted.address);
            let socket = bind_tcp(there, reuse)?;
            let address = own_address(&socket).map_err(named("getsockname"))?;
            Ok(Listener::new(socket, Origin::Tcp { wanted: *wanted, address }))
        }
        Wanted::Control(wanted) => {
            let (socket, file) = unix_socket::bind(&wanted.path, wanted.group.as_deref())?;
            Ok(Listener::new(socket, Origin::Control { wanted: wanted.clone(), file }))
        }
    }
}

/// A TCP socket bound to `address`.
fn bind_tcp(address: SocketAddr, reuse: &ReusePort<'_>) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(named("socket"))?;
    // A restart must not wait for old connections to leave TIME_WAIT. `set_options` reports a
    // refusal.
    let _ = sockopt::set_socket_reuseaddr(&socket, true);
    share_with_v4(&socket, address.ip()).map_err(named("setsockopt(IPV6_V6ONLY)"))?;
    let bound = match bind(&socket, &address) {
        // An IPv6 address other than `::` never serves IPv4.
        Err(Errno::ADDRINUSE) if reuse.covers(address) => {
            reuse.set(true)?;
            let shared = sockopt::set_socket_reuseport(&socket, true);
            shared.map_err(named("setsockopt(SO_REUSEPORT)"))?;
            bind(&socket, &address)
        }
        bound => bound,
    };
    bound.map_err(named_unless_plain("bind"))?;
    Ok(socket)
}

/// Has `::` serve IPv4 too. For other addresses nothing depends on it.
fn share_with_v4(socket: &OwnedFd, address: IpAddr) -> Result<(), Errno> {
    let IpAddr::V6(address) = address else { return Ok(()) };
    let depends_on_it = address.is_unspecified() || address.to_ipv4_mapped().is_some();
    match sockopt::set_ipv6_v6only(socket, false) {
        Err(e) if depends_on_it && sockopt::ipv6_v6only(socket) != Ok(false) => Err(e),
        _ => Ok(()),
    }
}

/// Whether the error only means that the machine lacks an address that was not given
/// explicitly, such as ::1.
fn is_excused(wanted: &Wanted, error: &io::Error) -> bool {
    let lacks_it = matches!(errno(error), Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT));
    lacks_it && matches!(wanted, Wanted::Tcp(tcp) if tcp.optional)
}

fn listen_on_all(
    bound: &mut [Listener],
    settings: &SocketSettings,
    refused: &mut RefusedOptions,
    errors: &mut Vec<ListenError>,
) {
    let failed = |l: &Listener, e| l.wanted().map(|wanted| wanted.failed(e));
    for listener in &mut *bound {
        if let Err(e) = listener.apply(settings, refused) {
            errors.extend(failed(listener, e));
        }
    }
    // Comes when all listen, because listen(2) checks for conflicts once more.
    for listener in bound.iter().filter(|l| l.tcp_address().is_some()) {
        // Otherwise a second daemon could start on the same port by mistake. Fails only where it
        // could not be set to true either.
        let _ = sockopt::set_socket_reuseport(&listener.socket, false);
    }
}

/// While it exists, the daemon's sockets may overlap in their addresses, such as a
/// wildcard and a single address.
struct ReusePort<'a> {
    existing: &'a [Listener],
}

impl ReusePort<'_> {
    fn set(&self, reuse: bool) -> io::Result<()> {
        for listener in self.existing.iter().filter(|l| l.tcp_address().is_some()) {
            let set = sockopt::set_socket_reuseport(&listener.socket, reuse);
            set.map_err(named("setsockopt(SO_REUSEPORT)"))?;
        }
        Ok(())
    }

    /// Whether one of the daemon's own sockets overlaps with `address`.
    fn covers(&self, address: SocketAddr) -> bool {
        self.existing.iter().filter_map(Listener::tcp_address).any(|ours| overlap(ours, address))
    }
}

impl Drop for ReusePort<'_> {
    fn drop(&mut self) {
        // Fails only if a descriptor is not a socket.
        let _ = self.set(false);
    }
}

/// Takes the sockets passed to this process: standard input if it is a socket, else
/// those of the service manager.
pub(crate) fn take(
    settings: &SocketSettings,
    refused: &mut RefusedOptions,
) -> Result<Vec<Listener>, ListenError> {
    match from_standard_input(settings, refused)? {
        Some(listener) => Ok(vec![listener]),
        None => from_service_manager(settings, refused),
    }
}

/// A running reference that hands over to this daemon leaves its listener there.
fn from_standard_input(
    settings: &SocketSettings,
    refused: &mut RefusedOptions,
) -> Result<Option<Listener>, ListenError> {
    let stdin = stdio::stdin();
    let failed = |e| ListenError::Inherited("standard input".to_owned(), e);
    match own_address(stdin) {
        // Of a family that is not served.
        Ok(_) | Err(Errno::AFNOSUPPORT) => {}
        Err(Errno::NOTSOCK | Errno::BADF) => return Ok(None),
        Err(e) => return Err(failed(named("getsockname")(e))),
    }
    let mut take = || {
        let socket = fcntl_dupfd_cloexec(stdin, 3).map_err(named("fcntl(F_DUPFD_CLOEXEC)"))?;
        let listener = Listener::inherit(socket, settings, refused)?;
        // Only the listener itself may keep the socket open.
        let null = fs::open("/dev/null", fs::OFlags::RDONLY, 0.into());
        stdio::dup2_stdin(null.map_err(named("open(/dev/null)"))?).map_err(named("dup2"))?;
        Ok(Some(listener))
    };
    take().map_err(failed)
}

/// sd_listen_fds(3).
fn from_service_manager(
    settings: &SocketSettings,
    refused: &mut RefusedOptions,
) -> Result<Vec<Listener>, ListenError> {
    let failed = |e| ListenError::Inherited("the sockets of LISTEN_FDS".to_owned(), e);
    let inherit = |fd| {
        sys::inherited_descriptor(fd)
            .and_then(|socket| Listener::inherit(socket, settings, refused))
            .map_err(|e| ListenError::Inherited(format!("descriptor {fd} of LISTEN_FDS"), e))
    };
    supervisor::passed_descriptors().map_err(failed)?.map(inherit).collect()
}
