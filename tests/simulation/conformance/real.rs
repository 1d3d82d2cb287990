//! The real kernel: non-blocking sockets on loopback and in a directory of their own.

use super::real_calls::{at, connect_tcp, fill, pass, poll_flags, send_counted, wait_for};
use super::socket_script::{SocketStep, Transport, WatchInterest};
use super::{CallResult, PollView, ReadEnd};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFlags, Timespec};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::*;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// More than any socket's buffer takes.
const MUCH: usize = 16 << 20;
const BACKLOG: i32 = 5;
/// Far more than one acknowledgement can free, and more than small sends use.
const SEND_BUFFER: usize = 200_000;
const PEER_BUFFER: usize = 32_768;

/// A peer's end.
pub(super) struct RealPeer {
    /// `None` once it is closed.
    socket: Option<OwnedFd>,
    address: SocketAddrAny,
    kind: Transport,
    sends: u8,
    /// Noted, because the kernel reports it only once.
    was_reset: bool,
    read: usize,
    /// What the daemon has sent to it.
    pub(super) sent: usize,
}

pub(super) struct RealKernel {
    /// The number of slot 0.
    lowest_fd: RawFd,
    /// How long something may take from one end to the other.
    arrival_max: Duration,
    epoll: OwnedFd,
    directory: PathBuf,
    tcp: SocketAddr,
    listeners: BTreeMap<Transport, OwnedFd>,
    /// The daemon's connections, and the peer of each.
    slots: BTreeMap<u8, (OwnedFd, Option<u8>)>,
    peers: BTreeMap<u8, RealPeer>,
    tokens: u64,
}

impl Drop for RealKernel {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn socket(family: AddressFamily) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None).expect("a socket")
}

/// Edge-triggered, as mio asks for it.
fn flags_of(interest: WatchInterest) -> EventFlags {
    EventFlags::ET | interest.flags()
}

impl WatchInterest {
    pub(super) fn flags(self) -> EventFlags {
        let read = EventFlags::IN | EventFlags::RDHUP;
        match self {
            WatchInterest::Read => read,
            WatchInterest::ReadUrgent => read | EventFlags::PRI,
            WatchInterest::ReadUrgentWrite => read | EventFlags::PRI | EventFlags::OUT,
            WatchInterest::Write => EventFlags::OUT,
        }
    }
}

impl RealKernel {
    pub(super) fn new(lowest_fd: RawFd, arrival_max: Duration) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("kernel-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        let tcp = socket(AddressFamily::INET);
        bind(&tcp, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = getsockname(&tcp).expect("a name").try_into().expect("an address");
        let unix = socket(AddressFamily::UNIX);
        bind(&unix, &SocketAddrUnix::new(directory.join("s")).expect("a path"))
            .expect("a free path");
        let listeners = BTreeMap::from([(Transport::Tcp, tcp), (Transport::Unix, unix)]);
        // Its connections inherit both: a size that Linux does not adapt, and that output is sent
        // at once.
        sockopt::set_socket_send_buffer_size(&listeners[&Transport::Tcp], SEND_BUFFER)
            .expect("SO_SNDBUF");
        sockopt::set_tcp_nodelay(&listeners[&Transport::Tcp], true).expect("TCP_NODELAY");
        for listener in listeners.values() {
            listen(listener, BACKLOG).expect("it listens");
        }
        RealKernel {
            lowest_fd,
            arrival_max,
            epoll: epoll::create(CreateFlags::CLOEXEC).expect("an epoll instance"),
            directory,
            tcp: address,
            listeners,
            slots: BTreeMap::new(),
            peers: BTreeMap::new(),
            tokens: 0,
        }
    }

    pub(super) fn view(&self) -> PollView {
        let connections = self.slots.iter().map(|(&slot, (fd, _))| (slot, poll_flags(fd)));
        let connections: BTreeMap<u8, EventFlags> = connections.collect();
        let is_urgent = |slot: &u8| connections[slot].contains(EventFlags::PRI);
        let plain = self.slots.iter().filter(|(slot, _)| !is_urgent(slot));
        let unread =
            plain.map(|(&slot, (fd, _))| (slot, ioctl_fionread(fd).expect("FIONREAD") as usize));
        PollView {
            unread: unread.collect(),
            listeners: self.listeners.values().map(poll_flags).collect(),
            connections,
        }
    }

    pub(super) fn act(&mut self, step: &SocketStep) -> CallResult {
        self.act_as_peer(step)
            .or_else(|| self.act_on_connection(step))
            .unwrap_or_else(|| self.act_on_listener(step))
    }

    /// `None` if it is not a peer's step.
    fn act_as_peer(&mut self, step: &SocketStep) -> Option<CallResult> {
        if let SocketStep::Connect { peer, to } = *step {
            return Some(self.connect(peer, to));
        }
        let peer = self.peers.get_mut(&step.peer()?);
        let Some(peer) = peer.filter(|peer| peer.socket.is_some()) else {
            return Some(CallResult::Skipped);
        };
        let socket = peer.socket.as_ref().expect("open");
        match *step {
            SocketStep::PeerSends { len, .. } => {
                peer.sends = peer.sends.wrapping_add(1);
                let sent = send(socket, &vec![peer.sends; len], SendFlags::NOSIGNAL);
                peer.was_reset |= sent == Err(Errno::CONNRESET);
            }
            SocketStep::PeerSendsUrgent { .. } if peer.kind == Transport::Tcp => {
                let sent = send(socket, b"!", SendFlags::NOSIGNAL | SendFlags::OOB);
                peer.was_reset |= sent == Err(Errno::CONNRESET);
            }
            SocketStep::PeerPasses { len, .. } if peer.kind == Transport::Unix => {
                peer.sends = peer.sends.wrapping_add(1);
                pass(socket, &vec![peer.sends; len]);
            }
            SocketStep::PeerHalfCloses { .. } => drop(shutdown(socket, Shutdown::Write)),
            SocketStep::PeerCloses { .. } => peer.socket = None,
            SocketStep::PeerResets { .. } => {
                let at_once = Some(Duration::ZERO);
                sockopt::set_socket_linger(socket, at_once).expect("SO_LINGER");
                peer.socket = None;
            }
            SocketStep::PeerReads { len, .. } => return Some(peer.read(len)),
            SocketStep::PeerDrains { .. } => return Some(peer.drain(self.arrival_max)),
            _ => {}
        }
        Some(CallResult::Done)
    }

    fn connect(&mut self, number: u8, to: Transport) -> CallResult {
        if self.peers.contains_key(&number) {
            return CallResult::Skipped;
        }
        let (socket, result) = match to {
            Transport::Unix => {
                let socket = socket(AddressFamily::UNIX);
                // A name, by which it is recognized.
                let own = self.directory.join(number.to_string());
                bind(&socket, &SocketAddrUnix::new(&own).expect("a path")).expect("a free path");
                let there = SocketAddrUnix::new(self.directory.join("s")).expect("a path");
                let result = connect(&socket, &there);
                std::fs::remove_file(own).expect("its file");
                (socket, result)
            }
            Transport::Tcp => {
                let socket = socket(AddressFamily::INET);
                sockopt::set_socket_recv_buffer_size(&socket, PEER_BUFFER).expect("SO_RCVBUF");
                sockopt::set_tcp_nodelay(&socket, true).expect("TCP_NODELAY");
                let result = connect_tcp(&socket, self.tcp, self.arrival_max);
                (socket, result)
            }
        };
        if result.is_ok() {
            self.peers.insert(number, RealPeer::new(socket, to));
        }
        result.into()
    }

    /// The peer whose connection this is.
    fn peer_of(&self, socket: &OwnedFd) -> Option<u8> {
        let address = getpeername(socket).ok()??;
        let mut all = self.peers.iter();
        all.find(|(_, peer)| peer.address == address).map(|(&number, _)| number)
    }

    /// `None` if it is not a connection's step.
    fn act_on_connection(&mut self, step: &SocketStep) -> Option<CallResult> {
        let slot = step.slot()?;
        let Some((socket, peer)) = self.slots.get(&slot) else {
            return Some(CallResult::Skipped);
        };
        let peer = peer.and_then(|peer| self.peers.get_mut(&peer));
        Some(match *step {
            SocketStep::Receive { len, .. } => {
                let mut buffer = vec![0; len];
                match recv(socket, &mut buffer, RecvFlags::empty()) {
                    Ok((len, _)) => CallResult::Received(buffer[..len].to_vec()),
                    Err(errno) => CallResult::Failed(errno),
                }
            }
            SocketStep::Send { len, .. } => send_counted(socket, peer, len),
            SocketStep::SendMuch { .. } => send_counted(socket, peer, MUCH),
            SocketStep::Fill { .. } => fill(socket, peer),
            SocketStep::PeerName { .. } => getpeername(socket).map(drop).into(),
            SocketStep::ShutWriting { .. } => shutdown(socket, Shutdown::Write).into(),
            SocketStep::Watch { interest, .. } => {
                self.tokens += 1;
                let token = EventData::new_u64(self.tokens);
                epoll::add(&self.epoll, socket, token, flags_of(interest)).into()
            }
            SocketStep::Rewatch { interest, .. } => {
                self.tokens += 1;
                let token = EventData::new_u64(self.tokens);
                epoll::modify(&self.epoll, socket, token, flags_of(interest)).into()
            }
            SocketStep::Unwatch { .. } => epoll::delete(&self.epoll, socket).into(),
            SocketStep::Duplicate { to, .. } if self.slots.contains_key(&to) => CallResult::Skipped,
            SocketStep::Duplicate { to, .. } => {
                let copy = at(self.lowest_fd + RawFd::from(to), socket);
                let peer = self.slots[&slot].1;
                self.slots.insert(to, (copy, peer));
                CallResult::Done
            }
            SocketStep::Close { .. } => {
                self.slots.remove(&slot);
                CallResult::Done
            }
            _ => unreachable!("{step:?} is a connection's"),
        })
    }

    fn act_on_listener(&mut self, step: &SocketStep) -> CallResult {
        if let SocketStep::Wait { max } = *step {
            return self.wait(max);
        }
        let Some(listener) = step.kind().and_then(|kind| self.listeners.get(&kind)) else {
            return CallResult::Skipped;
        };
        match *step {
            SocketStep::Accept { slot, .. } if self.slots.contains_key(&slot) => {
                CallResult::Skipped
            }
            SocketStep::Accept { slot, .. } => {
                match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    Ok(socket) => {
                        let peer = self.peer_of(&socket);
                        self.slots
                            .insert(slot, (at(self.lowest_fd + RawFd::from(slot), &socket), peer));
                        CallResult::Accepted(peer)
                    }
                    Err(errno) => CallResult::Failed(errno),
                }
            }
            SocketStep::WatchListener { .. } => {
                self.tokens += 1;
                let token = EventData::new_u64(self.tokens);
                epoll::add(&self.epoll, listener, token, flags_of(WatchInterest::Read)).into()
            }
            SocketStep::Listen { backlog, .. } => listen(listener, backlog).into(),
            SocketStep::CloseListener { kind } => {
                self.listeners.remove(&kind);
                CallResult::Done
            }
            _ => unreachable!("{step:?} is a listener's"),
        }
    }

    /// epoll_wait(2) until it has nothing more.
    fn wait(&self, max: usize) -> CallResult {
        let mut events = Vec::new();
        loop {
            let mut some = Vec::with_capacity(max);
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let buffer = rustix::buffer::spare_capacity(&mut some);
            if let Err(errno) = epoll::wait(&self.epoll, buffer, Some(&now)) {
                return CallResult::Failed(errno);
            }
            for event in &some {
                let (token, flags) = (event.data.u64(), event.flags);
                events.push((token, flags));
            }
            if some.len() < max {
                events.sort_by_key(|&(token, _)| token);
                return CallResult::Events(events);
            }
        }
    }
}

impl RealPeer {
    fn new(socket: OwnedFd, kind: Transport) -> Self {
        let address = getsockname(&socket).expect("its name");
        RealPeer {
            socket: Some(socket),
            address,
            kind,
            sends: 0,
            was_reset: false,
            read: 0,
            sent: 0,
        }
    }

    fn then(&mut self, failed: Errno) -> ReadEnd {
        self.was_reset |= failed != Errno::AGAIN;
        if self.was_reset { ReadEnd::Reset } else { ReadEnd::Waits }
    }

    fn read(&mut self, max: usize) -> CallResult {
        let mut buffer = vec![0; max];
        let socket = self.socket.as_ref().expect("open");
        let (len, then) = match recv(socket, &mut buffer, RecvFlags::empty()) {
            Ok((0, _)) if self.was_reset => (0, ReadEnd::Reset),
            Ok((0, _)) => (0, ReadEnd::End),
            Ok((len, _)) => (len, ReadEnd::Waits),
            Err(errno) => (0, self.then(errno)),
        };
        self.read += len;
        CallResult::Read(len, self.read == self.sent, then)
    }

    /// Reads all that the daemon has sent, and then what follows.
    fn drain(&mut self, arrival_max: Duration) -> CallResult {
        // Each time that the window opens.
        let arrival_max = arrival_max.max(Duration::from_millis(300));
        let before = self.read;
        loop {
            let CallResult::Read(len, is_all, then) = self.read(1 << 20) else { unreachable!() };
            if len == 0 && (is_all || then != ReadEnd::Waits) {
                return CallResult::Read(self.read - before, is_all, then);
            }
            let socket = self.socket.as_ref().expect("open");
            if len == 0 && !wait_for(socket, PollFlags::IN, arrival_max) {
                return CallResult::Read(self.read - before, false, then);
            }
        }
    }
}
