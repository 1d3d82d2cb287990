//! Calls of the real kernel.

use super::CallResult;
use super::real::RealPeer;
use crate::platform::os::event::event_flags;
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::*;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

pub(super) fn poll_flags(socket: &OwnedFd) -> EventFlags {
    let all = PollFlags::IN | PollFlags::PRI | PollFlags::OUT | PollFlags::RDHUP;
    let mut polled = [PollFd::new(socket, all)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll");
    event_flags(polled[0].revents())
}

/// Waits until the socket is ready for `wanted`, but not for longer than `max`.
pub(super) fn wait_for(socket: &OwnedFd, wanted: PollFlags, max: Duration) -> bool {
    let timeout = Timespec::try_from(max).expect("a timeout");
    poll(&mut [PollFd::new(socket, wanted)], Some(&timeout)).expect("poll") > 0
}

/// Sends the descriptor of standard error along: any will do.
pub(super) fn pass(socket: &OwnedFd, bytes: &[u8]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let passed = [rustix::stdio::stderr()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&passed)));
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
}

/// Connects to loopback, where the answer comes at once, unless the queue is full.
pub(super) fn connect_tcp(
    socket: &OwnedFd,
    to: SocketAddr,
    arrival_max: Duration,
) -> Result<(), Errno> {
    match connect(socket, &to) {
        Err(Errno::INPROGRESS) => {}
        other => return other,
    }
    if !wait_for(socket, PollFlags::OUT, arrival_max) {
        // The kernel tries again after a second, and finds the queue as full.
        return Err(Errno::AGAIN);
    }
    sockopt::socket_error(socket).expect("SO_ERROR")
}

/// A descriptor with this number, which is free.
pub(super) fn at(number: RawFd, socket: &OwnedFd) -> OwnedFd {
    fcntl_dupfd_cloexec(socket, number).expect("a descriptor")
}

pub(super) fn send_counted(
    socket: &OwnedFd,
    peer: Option<&mut RealPeer>,
    len: usize,
) -> CallResult {
    match send(socket, &vec![0; len], SendFlags::NOSIGNAL) {
        Ok(sent) => {
            if let Some(peer) = peer {
                peer.sent += sent;
            }
            if sent == len { CallResult::Sent(sent) } else { CallResult::SentSome }
        }
        Err(errno) => CallResult::Failed(errno),
    }
}

pub(super) fn fill(socket: &OwnedFd, mut peer: Option<&mut RealPeer>) -> CallResult {
    loop {
        if let failed @ CallResult::Failed(_) = send_counted(socket, peer.as_deref_mut(), 1 << 16) {
            return failed;
        }
    }
}
