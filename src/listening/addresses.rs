//! Which addresses the options ask for, for which purpose, and their errors; which of them
//! cover or contradict each other.

use crate::options::Options;
use crate::platform::failed_call::errno;
use crate::platform::os::io::Errno;
use crate::platform::os::net::SocketAddrUnix;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What prevents a start, the most lasting last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// An address or path that can't be had now. It may become free, or appear.
    Address,
    /// The system refuses a resource, such as memory or descriptors.
    System,
    /// The options, or what they name: no retry helps.
    Options,
}

/// Why the daemon can't listen.
#[derive(Debug)]
pub enum ListenError {
    /// `-l` names something that is not an address.
    InvalidAddress(String),
    /// A listener could not be opened.
    NotOpened(Wanted, io::Error),
    /// An inherited socket can't be served.
    Inherited(String, io::Error),
    /// Epoll can't watch this listener.
    NotWatched(String, io::Error),
    /// A drain has closed these inherited sockets for good.
    Lost(String),
    /// The options ask for one address or path for two purposes.
    Contradiction(String),
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
            ListenError::NotOpened(wanted, e) => match wanted {
                Wanted::Tcp(tcp) => {
                    let purpose = if tcp.purpose == Purpose::Http { " for HTTP" } else { "" };
                    write!(f, "Couldn't bind to {}{purpose}: {e}", tcp.address)
                }
                Wanted::Control(control) => {
                    write!(f, "Can't open the control socket {}: {e}", control.path)
                }
            },
            ListenError::Inherited(which, e) => write!(f, "Can't serve {which}: {e}"),
            ListenError::NotWatched(which, e) => write!(f, "{which} can't be watched: {e}"),
            ListenError::Lost(names) => write!(
                f,
                "{names} was passed by systemd or as standard input and is closed: this daemon can't \
                 listen there again, but the next one can; end this one (`systemctl restart \
                 poolcounter.service`, or wait for the last client to leave)"
            ),
            ListenError::Contradiction(what) => f.write_str(what),
            ListenError::Several(errors) => {
                let all: Vec<String> = errors.iter().map(ListenError::to_string).collect();
                f.write_str(&all.join("; "))
            }
        }
    }
}

impl Error for ListenError {}

impl ListenError {
    /// What prevents the start.
    pub(crate) fn obstacle(&self) -> Obstacle {
        match self {
            ListenError::InvalidAddress(_)
            | ListenError::Lost(_)
            | ListenError::Contradiction(_) => Obstacle::Options,
            ListenError::NotWatched(..) => Obstacle::System,
            ListenError::Several(errors) => {
                errors.iter().map(ListenError::obstacle).max().unwrap_or(Obstacle::System)
            }
            // Another parent process, or another unit, is needed.
            ListenError::Inherited(_, e) => match errno(e) {
                None | Some(Errno::BADF | Errno::NOTSOCK) => Obstacle::Options,
                Some(_) => Obstacle::System,
            },
            ListenError::NotOpened(_, e) => obstacle_of(e),
        }
    }
}

/// What prevents the start if an address or a path can't be opened.
fn obstacle_of(error: &io::Error) -> Obstacle {
    match errno(error) {
        // A path that no socket can have, or that leads to something else; an address that no
        // machine can bind, such as a link-local one without its interface.
        Some(Errno::NAMETOOLONG | Errno::EXIST | Errno::NOTDIR | Errno::LOOP | Errno::INVAL) => {
            Obstacle::Options
        }
        // Without a number: another daemon answers at the path, or the group does not exist yet.
        None => Obstacle::Address,
        Some(
            Errno::ADDRINUSE
            | Errno::ADDRNOTAVAIL
            | Errno::AFNOSUPPORT
            | Errno::PROTONOSUPPORT
            | Errno::NODEV
            | Errno::NOENT,
        ) => Obstacle::Address,
        Some(_) => Obstacle::System,
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

/// The value of `--control` that asks for none. Only a hot restart needs it, to close the socket.
pub(crate) const NO_CONTROL_SOCKET: &str = "none";

/// A listener that the options ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// A TCP socket. `::` serves IPv4 as well.
    Tcp(WantedTcp),
    /// The control socket.
    Control(WantedControl),
}

/// A TCP socket that the options ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedTcp {
    /// Port 0 means any free port.
    pub address: SocketAddr,
    /// A default, not given by the user: a machine without it is not an error.
    pub optional: bool,
    /// What it is for.
    pub purpose: Purpose,
}

/// The control socket that the options ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedControl {
    /// The path of its file.
    pub path: String,
    /// The group that may connect besides the daemon's user, by name or number.
    pub group: Option<String>,
}

impl Wanted {
    pub(crate) fn purpose(&self) -> Purpose {
        match self {
            Wanted::Tcp(tcp) => tcp.purpose,
            Wanted::Control(_) => Purpose::Control,
        }
    }

    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Wanted::Tcp(tcp) => Some(tcp.address),
            Wanted::Control(_) => None,
        }
    }

    /// Whether an inherited socket for clients takes its place.
    pub(crate) fn gives_way(&self) -> bool {
        matches!(self, Wanted::Tcp(WantedTcp { purpose: Purpose::Clients, .. }))
    }

    /// The same, with `free_port` in place of port 0.
    pub(crate) fn on_port(&self, free_port: u16) -> Wanted {
        let mut wanted = self.clone();
        match &mut wanted {
            Wanted::Tcp(tcp) if self.gives_way() && tcp.address.port() == 0 => {
                tcp.address.set_port(free_port);
            }
            _ => {}
        }
        wanted
    }

    /// Whether this is a wildcard that also serves `address` for `purpose`.
    pub(crate) fn covers(&self, address: SocketAddr, purpose: Purpose) -> bool {
        let Wanted::Tcp(ours) = self else { return false };
        // All clients' addresses share one port; others with port 0 get one each.
        let is_port = match ours.address.port() {
            0 => purpose == Purpose::Clients,
            port => port == address.port(),
        };
        ours.purpose == purpose && is_port && covers(ours.address.ip(), address.ip())
    }

    /// Checks that some machine could have it.
    ///
    /// # Errors
    /// What every kernel would answer.
    fn check_possible(&self) -> io::Result<()> {
        match self {
            Wanted::Control(control) => SocketAddrUnix::new(control.path.as_str()).map(drop)?,
            // A group's address belongs to no stream socket (inet6_bind in Linux, net/ipv6/af_inet6.c).
            Wanted::Tcp(WantedTcp { address: SocketAddr::V6(v6), .. })
                if v6.ip().is_multicast()
                    || v6.ip().is_unicast_link_local() && v6.scope_id() == 0 =>
            {
                return Err(Errno::INVAL.into());
            }
            Wanted::Tcp(_) => {}
        }
        Ok(())
    }

    /// The error to report when this listener can't be opened.
    pub(crate) fn failed(&self, error: io::Error) -> ListenError {
        ListenError::NotOpened(self.clone(), error)
    }
}

/// All listeners that `options` ask for: the only source for a cold start, a reload
/// and UNDRAIN.
pub(crate) fn wanted(options: &Options) -> Result<Vec<Wanted>, ListenError> {
    let mut tcp = clients_addresses(options.listen.as_deref(), options.port)?;
    tcp.extend(options.http.iter().map(|&http| tcp_on(canonical(http), false, Purpose::Http)));
    check_purposes(&tcp)?;
    let mut wanted = without_served(&tcp);
    if let Some(path) = options.control.as_ref().filter(|path| *path != NO_CONTROL_SOCKET) {
        let (path, group) = (path.clone(), options.control_group.clone());
        wanted.push(Wanted::Control(WantedControl { path, group }));
    }
    for one in &wanted {
        one.check_possible().map_err(|e| one.failed(e))?;
    }
    Ok(wanted)
}

/// Checks that no TCP address is to serve two purposes.
pub(crate) fn check_purposes(wanted: &[Wanted]) -> Result<(), ListenError> {
    let addresses_for = |which: Purpose| {
        let for_it = wanted.iter().filter(move |one| one.purpose() == which);
        for_it.filter_map(|one| Some((one, one.tcp_address()?)))
    };
    for (http, address) in addresses_for(Purpose::Http) {
        if addresses_for(Purpose::Clients).any(|(_, clients)| overlap(clients, address)) {
            let why = io::Error::other("clients have that address (-l, -p)");
            return Err(ListenError::Contradiction(http.failed(why).to_string()));
        }
    }
    Ok(())
}

/// Leaves out addresses that another one serves: the kernel refuses to bind one twice.
fn without_served(wanted: &[Wanted]) -> Vec<Wanted> {
    let mut left: Vec<Wanted> = Vec::new();
    for one in wanted {
        let Some(address) = one.tcp_address() else { continue };
        // Two addresses with port 0 get two ports.
        let is_there =
            (address.port() != 0 || one.purpose() == Purpose::Clients) && left.contains(one);
        if !is_there && !wanted.iter().any(|other| other.covers(address, one.purpose())) {
            left.push(one.clone());
        }
    }
    left
}

/// Accepts only literal addresses, as the reference does: the lock daemon must start
/// even if name servers are down.
fn clients_addresses(addresses: Option<&str>, port: u16) -> Result<Vec<Wanted>, ListenError> {
    let on = |ip, optional| tcp_on(SocketAddr::new(ip, port), optional, Purpose::Clients);
    let Some(addresses) = addresses else {
        return Ok(vec![
            on(Ipv4Addr::LOCALHOST.into(), false),
            on(Ipv6Addr::LOCALHOST.into(), true),
        ]);
    };
    let parsed: Result<Vec<IpAddr>, _> = addresses.split(',').map(str::parse).collect();
    let parsed = parsed.map_err(|_| ListenError::InvalidAddress(addresses.to_owned()))?;
    Ok(parsed.iter().map(|ip| on(ip.to_canonical(), false)).collect())
}

fn tcp_on(address: SocketAddr, optional: bool, purpose: Purpose) -> Wanted {
    Wanted::Tcp(WantedTcp { address, optional, purpose })
}

/// An address as the kernel reports it for a socket that is bound to it. Only link-local
/// addresses have a scope.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = address.ip().to_canonical();
    let mut canonical = SocketAddr::new(ip, address.port());
    if let (SocketAddr::V6(to), SocketAddr::V6(from)) = (&mut canonical, address) {
        to.set_scope_id(if from.ip().is_unicast_link_local() { from.scope_id() } else { 0 });
    }
    canonical
}

/// Whether two sockets can't be bound to both. Port 0 is any free port.
pub(crate) fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_served = one == other || covers(one.ip(), other.ip()) || covers(other.ip(), one.ip());
    one.port() == other.port() && one.port() != 0 && is_served
}

/// Whether a socket bound to `wildcard` also serves `ip`.
fn covers(wildcard: IpAddr, ip: IpAddr) -> bool {
    match wildcard {
        IpAddr::V4(v4) => v4.is_unspecified() && ip.is_ipv4() && ip != wildcard,
        IpAddr::V6(v6) => v6.is_unspecified() && ip != wildcard,
    }
}

#[cfg(test)]
mod tests;
