//! The simulated kernel, with everything on the way made to arrive after each step.

use super::socket_script::{SocketStep, Transport};
use super::{CallResult, PollView, ReadEnd};
use crate::simulation::kernel::epoll::Epoll;
use crate::simulation::kernel::listening::ConnectResult;
use crate::simulation::kernel::sockets::{
    ConnectionEnd, LocalAddress, PeerEnding, Segment, SimulatedSocket, SocketFamily, SocketRole,
};
use crate::simulation::kernel::{File, Kernel, boot, kernel};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::RawFd;

const ADDRESS: &str = "127.0.0.1:7531";
const PATH: &str = "/s";
const BACKLOG: i32 = 5;
const SLOTS: RawFd = 100;
/// So that only steps that are meant to fill a buffer do.
const BUFFERS: (usize, usize) = (1 << 20, 300_000);

pub(super) struct SimulatedKernel {
    epoll: RawFd,
    listeners: BTreeMap<Transport, RawFd>,
    peers: BTreeMap<u8, SimulatedPeer>,
    tokens: usize,
    /// Peers that have something to read in a buffer that was full.
    full: BTreeSet<u8>,
}

struct SimulatedPeer {
    kind: Transport,
    is_open: bool,
    sends: u8,
    read: usize,
    sent: usize,
}

fn number_of(slot: u8) -> RawFd {
    SLOTS + RawFd::from(slot)
}

fn stream(k: &mut Kernel, slot: u8) -> Option<&mut ConnectionEnd> {
    let file = k.descriptor(number_of(slot)).ok()?.file;
    k.stream(file)
}

fn local(kind: Transport) -> LocalAddress {
    match kind {
        Transport::Tcp => LocalAddress::Tcp(ADDRESS.parse().expect("an address")),
        Transport::Unix => LocalAddress::Path(PATH.to_owned()),
    }
}

impl SimulatedKernel {
    pub(super) fn new() -> Self {
        boot(0);
        kernel(|k| {
            let epoll = k.open(File::Epoll(Epoll::default())).expect("a descriptor");
            let tcp =
                k.open(File::Socket(SimulatedSocket::new(SocketFamily::V4))).expect("a descriptor");
            k.bind_tcp(tcp, ADDRESS.parse().expect("an address")).expect("a free port");
            let unix = k
                .open(File::Socket(SimulatedSocket::new(SocketFamily::Unix)))
                .expect("a descriptor");
            k.bind_path(unix, PATH).expect("a free path");
            let listeners = BTreeMap::from([(Transport::Tcp, tcp), (Transport::Unix, unix)]);
            for &listener in listeners.values() {
                k.listen(listener, BACKLOG).expect("it listens");
            }
            SimulatedKernel {
                epoll,
                listeners,
                peers: BTreeMap::new(),
                tokens: 0,
                full: BTreeSet::new(),
            }
        })
    }

    /// Whether the step is about a connection that was filled.
    pub(super) fn is_full(&self, step: &SocketStep) -> bool {
        let behind = step.slot().and_then(peer_behind);
        step.peer().or(behind).is_some_and(|peer| self.full.contains(&peer))
    }

    pub(super) fn view(&self) -> PollView {
        kernel(|k| {
            let mut view = PollView::default();
            for slot in 0..=u8::MAX {
                let Ok(descriptor) = k.descriptor(number_of(slot)) else { continue };
                let flags = k.readiness(descriptor.file);
                view.connections.insert(slot, flags);
                if let Some(stream) = k.stream(descriptor.file) {
                    if !flags.contains(EventFlags::PRI) {
                        view.unread.insert(slot, stream.arrived.len());
                    }
                }
            }
            for &listener in self.listeners.values() {
                let file = k.descriptor(listener).expect("open").file;
                view.listeners.push(k.readiness(file));
            }
            view
        })
    }

    pub(super) fn act(&mut self, step: &SocketStep) -> CallResult {
        let answer = self
            .act_as_peer(step)
            .or_else(|| self.act_on_connection(step))
            .unwrap_or_else(|| self.act_on_listener(step));
        self.let_all_arrive();
        answer
    }

    fn let_all_arrive(&self) {
        for &peer in self.peers.keys() {
            while kernel(|k| k.arrive(peer.into())) {}
        }
    }

    fn act_as_peer(&mut self, step: &SocketStep) -> Option<CallResult> {
        let number = step.peer()?;
        if let SocketStep::Connect { to, .. } = *step {
            return Some(self.connect(number, to));
        }
        let Some(peer) = self.peers.get_mut(&number).filter(|peer| peer.is_open) else {
            return Some(CallResult::Skipped);
        };
        let id = number.into();
        match *step {
            SocketStep::PeerSends { len, .. } => {
                peer.sends = peer.sends.wrapping_add(1);
                let bytes = vec![peer.sends; len];
                kernel(|k| k.post(id, Segment::Data(bytes)));
            }
            SocketStep::PeerPasses { len, .. } if peer.kind == Transport::Unix => {
                peer.sends = peer.sends.wrapping_add(1);
                let bytes = vec![peer.sends; len];
                kernel(|k| k.post(id, Segment::Passed(bytes)));
            }
            SocketStep::PeerSendsUrgent { .. } if peer.kind == Transport::Tcp => {
                kernel(|k| k.post(id, Segment::Urgent));
            }
            SocketStep::PeerHalfCloses { .. } => kernel(|k| k.post(id, Segment::End)),
            SocketStep::PeerCloses { .. } | SocketStep::PeerResets { .. } => {
                peer.is_open = false;
                let is_reset =
                    matches!(step, SocketStep::PeerResets { .. }) && peer.kind == Transport::Tcp;
                let how = if is_reset { Segment::Reset } else { Segment::End };
                kernel(|k| k.leave(id, how));
            }
            SocketStep::PeerReads { len, .. } => return Some(peer.read(id, len)),
            SocketStep::PeerDrains { .. } => {
                let answer = peer.drain(id);
                // What a reset has taken never comes.
                if matches!(answer, CallResult::Read(_, _, ReadEnd::Waits)) {
                    self.full.remove(&number);
                }
                return Some(answer);
            }
            _ => {}
        }
        Some(CallResult::Done)
    }

    fn connect(&mut self, number: u8, to: Transport) -> CallResult {
        if self.peers.contains_key(&number) {
            return CallResult::Skipped;
        }
        let from = SocketAddr::from(([127, 0, 0, 1], 1000 + u16::from(number)));
        match kernel(|k| k.connect(number.into(), &local(to), from, BUFFERS)) {
            ConnectResult::Yes => {
                let peer = SimulatedPeer { kind: to, is_open: true, sends: 0, read: 0, sent: 0 };
                self.peers.insert(number, peer);
                CallResult::Done
            }
            ConnectResult::Refused => CallResult::Failed(Errno::CONNREFUSED),
            ConnectResult::NotNow => CallResult::Failed(Errno::AGAIN),
        }
    }

    fn act_on_connection(&mut self, step: &SocketStep) -> Option<CallResult> {
        let slot = step.slot()?;
        let (fd, epoll) = (number_of(slot), self.epoll);
        if kernel(|k| k.descriptor(fd)).is_err() {
            return Some(CallResult::Skipped);
        }
        Some(match *step {
            SocketStep::Receive { len, .. } => {
                let mut buffer = vec![0; len];
                match kernel(|k| k.receive(fd, &mut buffer)) {
                    Ok((len, _)) => CallResult::Received(buffer[..len].to_vec()),
                    Err(errno) => CallResult::Failed(errno),
                }
            }
            SocketStep::Send { len, .. } => self.send(slot, len),
            SocketStep::SendMuch { .. } => self.send(slot, 2 * BUFFERS.1),
            SocketStep::Fill { .. } => loop {
                if let failed @ CallResult::Failed(_) = self.send(slot, 1 << 16) {
                    break failed;
                }
            },
            SocketStep::PeerName { .. } => kernel(|k| match &k.socket(fd)?.role {
                SocketRole::Stream(stream) if stream.has_peer() => Ok(()),
                _ => Err(Errno::NOTCONN),
            })
            .into(),
            SocketStep::ShutWriting { .. } => kernel(|k| k.shut_writing(fd)).into(),
            SocketStep::Watch { interest, .. } => {
                self.tokens += 1;
                kernel(|k| k.watch(epoll, fd, self.tokens, interest.flags())).into()
            }
            SocketStep::Rewatch { interest, .. } => {
                self.tokens += 1;
                kernel(|k| k.rewatch(epoll, fd, self.tokens, interest.flags())).into()
            }
            SocketStep::Unwatch { .. } => kernel(|k| k.unwatch(epoll, fd)).into(),
            SocketStep::Duplicate { to, .. } => kernel(|k| {
                let is_taken = k.descriptor(number_of(to)).is_ok();
                if is_taken {
                    return CallResult::Skipped;
                }
                k.duplicate_from(fd, number_of(to)).map(drop).into()
            }),
            SocketStep::Close { .. } => {
                kernel(|k| k.close(fd));
                CallResult::Done
            }
            _ => unreachable!("{step:?} is a connection's"),
        })
    }

    /// send(2), which may take less than there is room for: then again.
    fn send(&mut self, slot: u8, len: usize) -> CallResult {
        let mut sent = 0;
        while sent < len {
            let has_room = kernel(|k| {
                stream(k, slot).is_some_and(|s| !s.is_dead && s.sent.len() < s.sent_max)
            });
            if sent > 0 && !has_room {
                break;
            }
            match kernel(|k| k.send(number_of(slot), &vec![0; len - sent])) {
                Ok(n) => sent += n,
                Err(errno) if sent == 0 => {
                    self.note_sent(slot, 0, errno == Errno::AGAIN);
                    return CallResult::Failed(errno);
                }
                Err(_) => break,
            }
            self.let_all_arrive();
        }
        self.note_sent(slot, sent, sent < len);
        if sent == len { CallResult::Sent(len) } else { CallResult::SentSome }
    }

    fn note_sent(&mut self, slot: u8, len: usize, is_full: bool) {
        let Some(number) = peer_behind(slot) else { return };
        let Some(peer) = self.peers.get_mut(&number) else { return };
        peer.sent += len;
        if is_full {
            self.full.insert(number);
        }
    }

    fn act_on_listener(&mut self, step: &SocketStep) -> CallResult {
        if let SocketStep::Wait { max } = *step {
            return self.wait(max);
        }
        let listener = step.kind().and_then(|kind| self.listeners.get(&kind));
        let Some(&listener) = listener else {
            return CallResult::Skipped;
        };
        match *step {
            SocketStep::Accept { slot, .. } => accept(listener, slot),
            SocketStep::WatchListener { .. } => {
                self.tokens += 1;
                let interest = EventFlags::IN | EventFlags::RDHUP;
                kernel(|k| k.watch(self.epoll, listener, self.tokens, interest)).into()
            }
            SocketStep::Listen { backlog, .. } => kernel(|k| k.listen(listener, backlog)).into(),
            SocketStep::CloseListener { kind } => {
                self.listeners.remove(&kind);
                kernel(|k| k.close(listener));
                CallResult::Done
            }
            _ => unreachable!("{step:?} is a listener's"),
        }
    }

    fn wait(&self, max: usize) -> CallResult {
        let mut events = Vec::new();
        loop {
            let some = match kernel(|k| k.take_events(self.epoll, max)) {
                Ok(some) => some,
                Err(errno) => return CallResult::Failed(errno),
            };
            for &(token, flags) in &some {
                events.push((token as u64, flags));
            }
            if some.len() < max {
                events.sort_by_key(|&(token, _)| token);
                return CallResult::Events(events);
            }
        }
    }
}

fn peer_behind(slot: u8) -> Option<u8> {
    kernel(|k| stream(k, slot).map(|stream| stream.peer as u8))
}

fn accept(listener: RawFd, slot: u8) -> CallResult {
    if kernel(|k| k.descriptor(number_of(slot))).is_ok() {
        return CallResult::Skipped;
    }
    let result = kernel(|k| {
        let fd = k.accept(listener)?;
        k.duplicate_from(fd, number_of(slot))?;
        k.close(fd);
        Ok(stream(k, slot).filter(|stream| stream.has_peer()).map(|stream| stream.peer as u8))
    });
    result.map_or_else(CallResult::Failed, CallResult::Accepted)
}

impl SimulatedPeer {
    fn read(&mut self, id: u32, max: usize) -> CallResult {
        let bytes = kernel(|k| k.read_as_peer(id, max));
        let len = bytes.as_ref().map_or(0, Vec::len);
        self.read += len;
        let then = match bytes {
            Some(_) => ReadEnd::Waits,
            None if kernel(|k| k.peers[&id].ending) == Some(PeerEnding::Reset) => ReadEnd::Reset,
            None => ReadEnd::End,
        };
        CallResult::Read(len, self.read == self.sent, then)
    }

    fn drain(&mut self, id: u32) -> CallResult {
        let before = self.read;
        loop {
            let CallResult::Read(len, is_all, then) = self.read(id, 1 << 20) else {
                unreachable!()
            };
            if len == 0 {
                return CallResult::Read(self.read - before, is_all, then);
            }
        }
    }
}
