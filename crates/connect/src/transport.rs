//! A blocking connection over TCP or a Unix socket: reads and writes, keepalive, whether the
//! other side has closed.

use crate::addresses::Addresses;
use crate::lacking_call::naming;
use crate::server_name::ServerName;
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a silent host is probed. The probes take three fifths of the time, the
/// silence before them takes the rest.
const PROBES: u32 = 3;

/// The kernel accepts no longer intervals.
const SECONDS_MAX: u64 = 32_767;

/// A socket of either kind: what is done with it is the same.
#[derive(Debug)]
pub struct Stream(OwnedFd);

impl Stream {
    /// Looks the server up and connects; each of its addresses may take `timeout`.
    ///
    /// # Errors
    /// The server is unreachable, or its name has no address.
    pub(crate) fn connect(server: &ServerName, timeout: Duration) -> io::Result<Stream> {
        Addresses::look_up(server, timeout)?.connect(timeout)
    }

    /// The address at the other end; `None` on a Unix socket.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        rustix::net::getpeername(&self.0).ok()??.try_into().ok()
    }

    /// A read that takes longer fails with `WouldBlock`.
    ///
    /// # Errors
    /// A timeout of zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let set = set_socket_timeout(&self.0, Timeout::Recv, timeout);
        set.map_err(|e| naming("setsockopt(SO_RCVTIMEO)")(e.into()))
    }

    /// Whether it was closed, by either end. A server sends nothing unasked: anything to
    /// read is the end.
    pub fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut wanted = [PollFd::new(self, PollFlags::IN)];
        poll(&mut wanted, Some(&Timespec::default())).is_ok_and(|ended| ended > 0)
    }

    /// Ends the connection, for both ways.
    pub fn shutdown(&self) {
        // Fails if the peer has closed it already.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

/// Lets the kernel end a connection when the server's host is silent for this long: TCP keepalive
/// and TCP_USER_TIMEOUT, in whole seconds, at least four. No effect if the kernel can't, or on a
/// Unix socket, which needs none.
pub fn watch_the_host(connection: impl AsFd, silence: Duration) {
    use rustix::net::sockopt;
    let connection = connection.as_fd();
    let interval_s = (silence.as_secs() / (u64::from(PROBES) + 2)).clamp(1, SECONDS_MAX);
    let probes_s = interval_s * u64::from(PROBES);
    let idle_s = silence.as_secs().saturating_sub(probes_s).clamp(1, SECONDS_MAX);
    let _ = sockopt::set_socket_keepalive(connection, true);
    let _ = sockopt::set_tcp_keepidle(connection, Duration::from_secs(idle_s));
    let _ = sockopt::set_tcp_keepintvl(connection, Duration::from_secs(interval_s));
    let _ = sockopt::set_tcp_keepcnt(connection, PROBES);
    // The kernel does not probe a host that owes an acknowledgement, such as of the request.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = sockopt::set_tcp_user_timeout(connection, ((idle_s + probes_s) * 1000) as u32);
}

/// A connection to a Unix socket: at once, unless its backlog is full.
///
/// # Errors
/// Nothing listens there, or its backlog stays full for `timeout`.
pub fn connect_unix(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    use rustix::net::SocketAddrUnix;
    let socket = unix_socket().map_err(naming("socket"))?;
    let (address, began) = (SocketAddrUnix::new(path)?, Instant::now());
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let set = set_socket_timeout(&socket, Timeout::Send, Some(left));
        set.map_err(|e| naming("setsockopt(SO_SNDTIMEO)")(e.into()))?;
        match rustix::net::connect(&socket, &address) {
            // A signal of the program: it does not end the attempt.
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            result => break result.map_err(|e| naming("connect")(e.into()))?,
        }
    }
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket)
}

/// A stream socket that no child inherits, and that raises no SIGPIPE.
fn unix_socket() -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketType};
    #[cfg(not(target_vendor = "apple"))]
    {
        use rustix::net::{SocketFlags, socket_with};
        Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
    }
    // Apple's kernels know neither flag, of socket(2) and of send(2).
    #[cfg(target_vendor = "apple")]
    {
        use rustix::io::{FdFlags, fcntl_setfd};
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        rustix::net::sockopt::set_socket_nosigpipe(&socket, true)?;
        Ok(socket)
    }
}

/// A connection that was closed raises no SIGPIPE: std's sockets, and those above, have an option
/// for that on Apple's kernels.
#[cfg(not(target_vendor = "apple"))]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const SEND_FLAGS: SendFlags = SendFlags::empty();

/// Whether the other side has closed the connection.
pub fn is_closed(e: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        rustix::net::send(&self.0, bytes, SEND_FLAGS).map_err(|e| naming("sendto")(e.into()))
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
