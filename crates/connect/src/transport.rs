//! A blocking connection over TCP or a Unix socket: reads and writes, whether the other side has
//! closed.

use super::addresses::LookUp;
use super::failed_call::{named, named_unless_plain};
use super::server_name::ServerName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketType, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// A socket of either kind: what is done with it is the same.
#[derive(Debug)]
pub struct Stream(OwnedFd);

impl Stream {
    /// Looks the server up and connects; its addresses share `timeout`.
    ///
    /// # Errors
    /// The server is unreachable, or its name has no address.
    pub(crate) fn connect(server: &ServerName, timeout: Duration) -> io::Result<Stream> {
        let look_up = LookUp::begin(server)?;
        let found = look_up.wait(timeout).unwrap_or_else(|| Err(LookUp::too_late()))?;
        connect_one(&found, timeout)
    }

    /// Connects to this address. Requests do not wait for one another's acknowledgement.
    ///
    /// # Errors
    /// Nothing listens there, or its host is silent for `timeout`.
    pub fn to(address: &SocketAddr, timeout: Duration) -> io::Result<Stream> {
        let is_v4 = address.is_ipv4();
        let socket = stream_socket(if is_v4 { AddressFamily::INET } else { AddressFamily::INET6 })?;
        let set_blocking =
            |blocks: bool| ioctl_fionbio(&socket, !blocks).map_err(named("ioctl(FIONBIO)"));
        set_blocking(false)?;
        match rustix::net::connect(&socket, address) {
            Err(Errno::INPROGRESS | Errno::INTR) => wait_until_connected(&socket, timeout)?,
            result => result.map_err(named_unless_plain("connect"))?,
        }
        set_blocking(true)?;
        // Nobody listens on a port that the kernel may choose for this side: then it connects to itself.
        let (own, peer) = (rustix::net::getsockname(&socket), rustix::net::getpeername(&socket));
        if own.is_ok_and(|own| peer == Ok(Some(own))) {
            return Err(Errno::CONNREFUSED.into());
        }
        // Only slower without it.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        Ok(Stream(socket))
    }

    /// A read that takes longer fails with `WouldBlock`.
    ///
    /// # Errors
    /// A timeout of zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let set = set_socket_timeout(&self.0, Timeout::Recv, timeout);
        set.map_err(named("setsockopt(SO_RCVTIMEO)"))
    }

    /// A write that takes longer fails with `WouldBlock`.
    pub(crate) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        let set = set_socket_timeout(&self.0, Timeout::Send, Some(timeout));
        set.map_err(named("setsockopt(SO_SNDTIMEO)"))
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn shut_writing(&self) -> io::Result<()> {
        let shut = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write);
        shut.map_err(named_unless_plain("shutdown"))
    }
}

/// Connects to the first address that accepts. They share the time: one that is silent leaves the
/// next its part.
///
/// # Errors
/// Why the last one does not accept.
fn connect_one(addresses: &[SocketAddr], timeout: Duration) -> io::Result<Stream> {
    let began = Instant::now();
    let mut last = ErrorKind::NotFound.into();
    for (number, address) in addresses.iter().enumerate() {
        let left = timeout.saturating_sub(began.elapsed());
        match Stream::to(address, left / (addresses.len() - number) as u32) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn wait_until_connected(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        // Longer than a `Timespec` is for ever.
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(socket, PollFlags::OUT)], left.as_ref()) {
            Ok(0) => return Err(io::Error::new(ErrorKind::TimedOut, "connection timed out")),
            // A signal of the program: it does not end the attempt.
            Err(Errno::INTR) => {}
            Err(e) => return Err(named("ppoll")(e)),
            Ok(_) => break,
        }
    }
    let result = sockopt::socket_error(socket).map_err(named("getsockopt(SO_ERROR)"))?;
    result.map_err(named_unless_plain("connect"))
}

/// A connection to a Unix socket: at once, unless its backlog is full.
///
/// # Errors
/// Nothing listens there, or its backlog stays full for `timeout`.
pub fn connect_unix(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    use rustix::net::SocketAddrUnix;
    let socket = stream_socket(AddressFamily::UNIX)?;
    let (address, began) = (SocketAddrUnix::new(path)?, Instant::now());
    let set_timeout = |time| {
        let set = set_socket_timeout(&socket, Timeout::Send, time);
        set.map_err(named("setsockopt(SO_SNDTIMEO)"))
    };
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        set_timeout(Some(left))?;
        match rustix::net::connect(&socket, &address) {
            // A signal of the program: it does not end the attempt.
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            result => break result.map_err(named_unless_plain("connect"))?,
        }
    }
    set_timeout(None)?;
    Ok(socket)
}

/// A stream socket that no child inherits.
fn stream_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    use rustix::net::{SocketFlags, socket_with};
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    socket.map_err(named("socket"))
}

/// Whether the other side has closed the connection.
pub fn is_closed(e: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        rustix::io::read(&self.0, buffer).map_err(named_unless_plain("read"))
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL).map_err(named_unless_plain("sendto"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that is connected.
impl From<OwnedFd> for Stream {
    fn from(socket: OwnedFd) -> Self {
        Stream(socket)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
