//! Tries, when the daemon starts, the calls that only clients will need: where one is missing, the
//! daemon would start and serve nobody.

use crate::platform::clock;
use crate::platform::failed_call::named;
use crate::platform::os::fd::OwnedFd;
use crate::platform::os::io::Errno;
use crate::platform::os::mio::{Events, Poll};
use crate::platform::os::net::{
    RecvAncillaryBuffer, RecvFlags, SendFlags, SocketFlags, accept_with, getpeername, recv,
    recvmsg, send,
};
use crate::platform::sys;
use std::io::{self, IoSliceMut};
use std::time::Duration;

/// `no_socket` is any descriptor of something else: a call that there is fails with ENOTSOCK.
/// `poll` must watch nothing yet.
///
/// # Errors
/// The first call that is missing, or denied, by name.
pub(crate) fn check(no_socket: &OwnedFd, poll: &mut Poll) -> io::Result<()> {
    sys::check_process_ids()?;
    clock::check()?;
    let mut byte = [0];
    let received = recv(no_socket, &mut byte[..], RecvFlags::empty()).map(drop);
    let (mut buffers, mut room) = ([IoSliceMut::new(&mut byte)], RecvAncillaryBuffer::new(&mut []));
    let message = recvmsg(no_socket, &mut buffers, &mut room, RecvFlags::empty()).map(drop);
    for (call, result) in [
        ("accept4", accept_with(no_socket, SocketFlags::empty()).map(drop)),
        ("recvfrom", received),
        ("recvmsg", message),
        ("sendto", send(no_socket, &[], SendFlags::empty()).map(drop)),
        ("getpeername", getpeername(no_socket).map(drop)),
    ] {
        match result {
            Err(e) if e != Errno::NOTSOCK => return Err(named(call)(e)),
            _ => {}
        }
    }
    match poll.poll(&mut Events::with_capacity(1), Some(Duration::ZERO)) {
        // The call is there.
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
        polled => polled.map_err(named("epoll_wait")),
    }
}
