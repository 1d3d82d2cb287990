//! A connection's socket: receives and peeks, without passed descriptors; its addresses.

use crate::platform::os::event::{PollFd, PollFlags, Timespec, poll};
use crate::platform::os::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::platform::os::io::{Errno, retry_on_intr};
use crate::platform::os::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, getpeername,
    getsockname, recv, recvmsg, send, shutdown, sockopt,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Deref;

/// How many descriptors a message may bring: SCM_MAX_FD, unix(7).
const PASSED_MAX: usize = 253;

/// Room for them, and for whatever else the kernel may add to a message.
const PASSED_BYTES: usize = 4 * PASSED_MAX + 1024;

/// The socket of a connection: TCP, or Unix for operators.
///
/// Who connects to a Unix socket can pass descriptors. The kernel closes those that the daemon
/// does not receive, and if one is the last copy of a TCP socket that lingers (socket(7),
/// SO_LINGER), the loop blocks for as long as the sender likes. So the daemon receives
/// them, until no more can come, and closes them so that none lingers. (Since Linux 6.16
/// the listener refuses them: `sys::refuse_passed`.)
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    is_unix: bool,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd, is_unix: bool) -> Self {
        if is_unix {
            // The kernel discards urgent bytes unless they are requested, with the descriptors
            // that come with them. Fails only on a socket that has no urgent bytes.
            let _ = sockopt::set_socket_oobinline(&fd, true);
        }
        Socket { fd, is_unix }
    }

    /// Receives once; 0 means the end of input.
    ///
    /// # Errors
    /// The error of recv(2); `AGAIN` if there is nothing to read.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        retry_on_intr(|| {
            if self.is_unix {
                self.receive_without_passed(buffer)
            } else {
                recv(&self.fd, &mut *buffer, RecvFlags::empty()).map(|(len, _)| len)
            }
        })
    }

    /// Looks at what the next [`Socket::receive`] gives; 0 means the end of input. Passed
    /// descriptors stay where they are.
    pub(crate) fn peek(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        retry_on_intr(|| recv(&self.fd, &mut *buffer, RecvFlags::PEEK)).map(|(len, _)| len)
    }

    /// Whether poll(2) reports any of `flags` now.
    pub(crate) fn has_state(&self, flags: PollFlags) -> bool {
        let mut fds = [PollFd::new(&self.fd, flags)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(flags)
    }

    fn receive_without_passed(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut room = [MaybeUninit::uninit(); PASSED_BYTES];
        let mut passed = RecvAncillaryBuffer::new(&mut room);
        let mut bytes = [IoSliceMut::new(buffer)];
        let received = recvmsg(&self.fd, &mut bytes, &mut passed, RecvFlags::CMSG_CLOEXEC)?;
        for message in passed.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                for descriptor in descriptors {
                    // Fails for anything but a socket.
                    let _ = sockopt::set_socket_linger(&descriptor, None);
                }
            }
        }
        Ok(received.bytes)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.is_unix {
            return;
        }
        // From here on, nothing is added to what is received: the sender's buffer bounds it.
        let _ = shutdown(&self.fd, Shutdown::Both);
        let mut buffer = [0; 4096];
        while self.receive(&mut buffer).is_ok_and(|len| len > 0) {}
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Deref for Socket {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

/// The peer's address, as logs and lists show it.
pub(crate) fn peer_name(socket: &OwnedFd) -> String {
    peer_address(socket).map_or_else(|_| "unknown".to_owned(), |address| address.to_string())
}

/// The peer's address, of TCP. An error if the peer has left.
pub(crate) fn peer_address(socket: impl AsFd) -> Result<SocketAddr, Errno> {
    Ok(canonical(getpeername(socket)?.ok_or(Errno::NOTCONN)?.try_into()?))
}

/// The address that the socket is bound to. EAFNOSUPPORT for a family other than IPv4 and IPv6: the
/// sockets of some have no name (EOPNOTSUPP: sock_no_getname in Linux, net/core/sock.c).
pub(crate) fn own_address(socket: impl AsFd) -> Result<SocketAddr, Errno> {
    match getsockname(socket) {
        Err(Errno::OPNOTSUPP) => Err(Errno::AFNOSUPPORT),
        name => Ok(canonical(name?.try_into()?)),
    }
}

/// Sends an operator a last line.
pub(crate) fn tell(operator: &Socket, line: &str) {
    // Fails if the operator has left.
    let _ = send(operator, format!("{line}\n").as_bytes(), SendFlags::NOSIGNAL);
}

/// A dual-stack socket reports an IPv4 client as an IPv4-mapped IPv6 address,
/// `[::ffff:10.1.2.3]:4711`, which is converted back (ipv6(7)).
fn canonical(mut address: SocketAddr) -> SocketAddr {
    address.set_ip(address.ip().to_canonical());
    address
}
