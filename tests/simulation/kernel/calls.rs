//! The daemon's calls of the kernel, as far as the tests use them.

use super::sockets::LocalAddress;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Accept,
    Receive,
    Send,
    Wait,
    Watch,
    WatchConnection,
    /// Anything that opens a descriptor.
    Open,
    Bind,
    Listen,
    /// Of a socket's file: fchownat(2).
    SetGroup,
    SetOption,
    /// write(2) to the log.
    Log,
    /// write(2) to a file in memory.
    Store,
    Fork,
    Exec,
}

/// What the tests count to judge a turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnCalls {
    /// What was received since this was last taken.
    pub(crate) bytes: BTreeMap<u32, Vec<u8>>,
    /// What the log has accepted since this was last taken.
    pub(crate) logged: Vec<u8>,
    /// Urgent data made receives short.
    pub(crate) was_urgent: bool,
    /// Something may arrive in the middle of the turn.
    pub(crate) arrives: bool,
    /// Bytes received, by client.
    pub(crate) received: BTreeMap<u32, usize>,
    pub(crate) accepted: usize,
    /// Calls of accept(2) within a second after it failed there for an unknown reason.
    pub(crate) accepted_too_soon: usize,
    /// Passed sockets that lingered when they were closed.
    pub(crate) lingers: usize,
    pub(crate) sends: usize,
    pub(crate) receives: usize,
    pub(crate) events: usize,
    /// Peers whose connections the daemon has closed before they ended.
    pub(crate) closed_while_open: Vec<u32>,
    /// Peers that have left, and whose connections the daemon closed before it had received all
    /// that they had sent.
    pub(crate) closed_unread: Vec<u32>,
    pub(crate) failures: Vec<(CallKind, Errno)>,
    pub(crate) seen: Vec<KernelEvent>,
    /// What the service manager was sent.
    pub(crate) notifications: Vec<Vec<u8>>,
    /// Unused memory was returned, which takes a while.
    pub(crate) returns_memory: bool,
    /// It waits for a reader before it ends, while clients are still connected.
    pub(crate) waits_with_clients: bool,
}

/// What the daemon did or received, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KernelEvent {
    Signal(i32),
    /// A connection from this address; `None` for a Unix socket. It may be over already.
    Accepted {
        peer: u32,
        to: LocalAddress,
        ip: Option<IpAddr>,
        is_over: bool,
    },
    Closed(u32),
    /// It came in time, but was not accepted, and can't be any more.
    Dropped(u32),
    /// The daemon has asked for the address of a peer whose connection is over.
    PeerUnknown(u32),
    /// Received from a Unix socket, perhaps the control socket.
    Input(u32, Vec<u8>),
    /// When that was received, the peer had closed both sides.
    WasLate(u32),
    /// A send to a Unix socket, successful or not.
    Output(u32),
    EndReceived(u32),
    ReceiveFailed(u32),
    SendFailed(u32),
    /// accept(2) failed, for a reason that is not the new connection's.
    AcceptFailed,
    /// epoll_ctl(2) failed for it.
    WatchFailed(u32),
    /// A connection that the hot restart lost.
    Lost(u32),
    /// A trial of the next image began, as this process.
    Forked(i32),
    /// The daemon has seen that this trial has ended.
    TrialReported(i32),
    /// The next image: what is not handed to it is closed after this.
    Executed,
}
