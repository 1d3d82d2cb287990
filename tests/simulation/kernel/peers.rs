//! What the tests control: peers, time, and the beginning and end of a turn.

use super::draws::Choices;
use super::processes::{NOTIFY_NAME, NOTIFY_PATH};
use super::sockets::{LocalAddress, Segment, SimulatedSocket, SocketFamily, SocketRole};
use super::{File, Kernel, TurnCalls};
use crate::simulation::os::fd::{AsFd, number};
use crate::simulation::scripts::steps::Start;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

/// So that rest comes soon.
const ROOM_AT_REST: usize = 100_000;

impl Kernel {
    pub(crate) fn begin_turn(&mut self, choices: Choices, arrives: bool, fails: bool) {
        self.draws.begin_turn(choices);
        self.one_arrives_in = if arrives { 4 } else { 0 };
        self.only_watching_fails = fails && self.one_in(3);
        self.one_fails_in = match (fails, self.only_watching_fails) {
            (false, _) => 0,
            (true, true) => 2,
            (true, false) => 12,
        };
        let TurnCalls { bytes, logged, .. } = std::mem::take(&mut self.calls);
        self.calls = TurnCalls { bytes, logged, arrives, ..TurnCalls::default() };
        self.calls.was_urgent = self.files.iter().any(|(_, file)| match file {
            File::Socket(SimulatedSocket { role: SocketRole::Stream(stream), .. }) => {
                stream.is_urgent()
            }
            _ => false,
        });
    }

    pub(crate) fn end_turn(&mut self) {
        (self.one_arrives_in, self.one_fails_in) = (0, 0);
    }

    /// Nothing fails or is scarce any more, and all peers read.
    pub(crate) fn stop_faults(&mut self) {
        (self.descriptors_max, self.limit_changed_ns) = (20_000, self.now_ns);
        self.image_descriptors_max = self.descriptors_max;
        self.notify.set_reading(true);
        self.log.set_reading(true);
        self.end_children();
        for (_, file) in &mut self.files {
            if let File::Socket(SimulatedSocket { role: SocketRole::Stream(stream), .. }) = file {
                if stream.times_out_ns.is_some() {
                    continue;
                }
                stream.arrived_max = stream.arrived_max.max(ROOM_AT_REST);
                // The next read of the peer is an event.
                stream.sent_max = stream.sent_max.max(ROOM_AT_REST);
            }
        }
    }

    /// The daemon waits a moment for the reader of its log, or for the service manager.
    pub(crate) fn wait_for_reader(&mut self, fd: RawFd) {
        let [_, tcp, ..] = self.count_descriptors();
        self.calls.waits_with_clients |= tcp > 0;
        let reads = self.one_in(2);
        let is_log = matches!(self.file(fd), Ok(File::Log));
        let reader = if is_log { &mut self.log } else { &mut self.notify };
        reader.did_not_read = !reads;
        if reads {
            reader.take();
        }
    }

    /// The peer sends something.
    pub(crate) fn post(&mut self, peer: u32, segment: Segment) {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket);
        let Some(stream) = socket.and_then(|file| self.stream(file)) else {
            return;
        };
        let has_ended = stream.is_closed_there
            || stream.times_out_ns.is_some()
            || stream
                .on_the_way
                .iter()
                .any(|s| matches!(s, Segment::End | Segment::Closed | Segment::Reset));
        // A Unix socket reports its end again.
        let ends_again = stream.is_unix() && segment == Segment::End;
        let has_closed = stream.is_closed_there || stream.is_dead;
        if !has_ended && !stream.has_ended && !stream.is_dead || ends_again && !has_closed {
            stream.on_the_way.push_back(segment);
        }
    }

    /// The peer closes its end: with unread answers that is a reset, instead of an end.
    pub(crate) fn leave(&mut self, peer: u32, segment: Segment) {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket);
        let Some(stream) = socket.and_then(|file| self.stream(file)) else {
            return;
        };
        if stream.times_out_ns.is_some() || stream.is_dead || stream.is_closed_there {
            return;
        }
        let how = match segment {
            _ if !stream.sent.is_empty() => Segment::Reset,
            _ if stream.is_unix() => Segment::Closed,
            how => how,
        };
        let has_ended = stream.has_ended || stream.on_the_way.contains(&Segment::End);
        stream.is_closed_there = true;
        // Also after an end.
        if how != Segment::End || !has_ended {
            stream.on_the_way.push_back(how);
        }
    }

    /// Time passes.
    pub(crate) fn advance(&mut self, by_ns: u64) {
        self.now_ns += by_ns;
        let now_ns = self.now_ns;
        let mut lost = Vec::new();
        for (id, file) in &mut self.files {
            if let File::Socket(SimulatedSocket { role: SocketRole::Stream(stream), .. }) = file {
                if !stream.is_dead && stream.times_out_ns.is_some_and(|at| at <= now_ns) {
                    stream.die(Errno::TIMEDOUT);
                    lost.push(id);
                }
            }
        }
        for file in lost {
            self.wake(file, EventFlags::all());
        }
    }

    /// The peer at the other end of a descriptor.
    pub(crate) fn peer_behind(&mut self, fd: impl AsFd) -> u32 {
        let file = self.descriptor(number(fd)).expect("it is open").file;
        self.stream(file).expect("a connection").peer
    }

    /// What the daemon could see of a peer: bytes to receive, and whether the input has ended, by
    /// an end or a loss.
    pub(crate) fn visible(&mut self, peer: u32) -> (usize, bool) {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket);
        socket
            .and_then(|file| self.stream(file))
            .map_or((0, false), |stream| (stream.arrived.len(), stream.has_ended || stream.is_dead))
    }

    /// How many bytes one receive would return, with room for `max`.
    pub(crate) fn receivable(&mut self, peer: u32, max: usize) -> usize {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket);
        let stream = socket.and_then(|file| self.stream(file));
        stream.map_or(0, |stream| stream.receivable(max))
    }

    /// The peers whose connections are open, or wait to be accepted.
    pub(crate) fn connected(&self) -> impl Iterator<Item = u32> {
        self.peers.iter().filter(|(_, peer)| peer.socket.is_some()).map(|(&number, _)| number)
    }

    /// Whether the daemon has its connection open.
    pub(crate) fn is_open(&self, peer: u32) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.socket.is_some())
    }

    /// Whether epoll would report that the peer can be sent something.
    pub(crate) fn has_room(&mut self, peer: u32) -> bool {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket);
        let stream = socket.and_then(|file| self.stream(file));
        stream.is_none_or(|stream| stream.readiness().contains(EventFlags::OUT))
    }

    /// Whether a peer is there to read, and has read all that was sent to it.
    pub(crate) fn waits_for_more(&mut self, peer: u32) -> bool {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket);
        socket.and_then(|file| self.stream(file)).is_some_and(|stream| {
            let is_there = !stream.is_closed_there && !stream.is_dead;
            is_there && stream.sent.is_empty()
        })
    }

    /// What was sent to a peer that it has not read.
    pub(crate) fn unread_by(&mut self, peer: u32) -> Vec<u8> {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket);
        let sent = socket.and_then(|file| self.stream(file)).map(|stream| &stream.sent);
        sent.into_iter().flatten().copied().collect()
    }

    /// Where a peer's connection comes from; `None` for a Unix socket.
    pub(crate) fn address_and_port_of(&mut self, peer: u32) -> Option<SocketAddr> {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket)?;
        let mut address = self.stream(socket)?.peer_address?;
        address.set_ip(address.ip().to_canonical());
        Some(address)
    }

    /// The same, without the port.
    pub(crate) fn address_of(&mut self, peer: u32) -> Option<IpAddr> {
        self.address_and_port_of(peer).map(|address| address.ip())
    }

    /// The peers whose connections to an address the daemon has open.
    pub(crate) fn connections_to(&self, address: &str) -> BTreeSet<u32> {
        let there = LocalAddress::Tcp(address.parse().expect("an address"));
        let files = self.table().values().map(|descriptor| &self.files[descriptor.file]);
        let peers = files.filter_map(|file| match file {
            File::Socket(SimulatedSocket {
                local: Some(local),
                role: SocketRole::Stream(stream),
                ..
            }) => (*local == there).then_some(stream.peer),
            _ => None,
        });
        peers.collect()
    }

    /// Whether a peer itself has closed its connection, or lost it.
    pub(crate) fn has_closed(&mut self, peer: u32) -> bool {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket);
        match socket.and_then(|file| self.stream(file)) {
            Some(stream) => stream.is_closed_there || stream.is_dead,
            None => self.peers.get(&peer).is_none_or(|peer| peer.has_closed),
        }
    }

    /// Whether the daemon has shut its writing side.
    pub(crate) fn is_shut(&mut self, peer: u32) -> bool {
        let socket = self.peers.get(&peer).and_then(|peer| peer.socket);
        socket.and_then(|file| self.stream(file)).is_some_and(|stream| stream.is_shut)
    }

    /// Open descriptors: all, connections over TCP and over Unix sockets, and listeners.
    pub(crate) fn count_descriptors(&self) -> [usize; 4] {
        let mut counts = [self.table().len(), 0, 0, 0];
        for descriptor in self.table().values() {
            if let File::Socket(socket) = &self.files[descriptor.file] {
                match &socket.role {
                    SocketRole::Stream(_) if socket.family == SocketFamily::Unix => counts[2] += 1,
                    SocketRole::Stream(_) => counts[1] += 1,
                    SocketRole::Listening(_) => counts[3] += 1,
                    SocketRole::Idle | SocketRole::Notify | SocketRole::Probe => {}
                }
            }
        }
        counts
    }

    /// What starts the daemon prepares its descriptors and variables.
    pub(crate) fn start_as(&mut self, start: Start) {
        let tcp = LocalAddress::Tcp(SocketAddr::from(([10, 0, 0, 1], 7531)));
        match start {
            Start::Shell => return,
            Start::Directory => {
                self.arguments[0] = "./poolcounterd".into();
                self.directory = Some("/usr/bin");
                return;
            }
            Start::Stdin => {
                self.pass(tcp);
                self.duplicate_to(3, 0, false).expect("it is open");
                self.close(3);
                return;
            }
            Start::Manager => {}
            Start::Watchdog => {
                drop(self.variables.insert("WATCHDOG_USEC".into(), "10000000".into()))
            }
            Start::Socket => self.pass(tcp),
        }
        if self.table().contains_key(&3) {
            self.variables.insert("LISTEN_FDS".to_owned(), "1".into());
            self.variables.insert("LISTEN_PID".to_owned(), self.pid().to_string().into());
        }
        let name = if start == Start::Watchdog { NOTIFY_NAME } else { NOTIFY_PATH };
        self.variables.insert("NOTIFY_SOCKET".to_owned(), name.into());
    }

    /// A listening socket as descriptor 3, which another process also holds.
    fn pass(&mut self, local: LocalAddress) {
        let fd =
            self.open(File::Socket(SimulatedSocket::new(SocketFamily::V4))).expect("a descriptor");
        self.was_passed = true;
        self.socket(fd).expect("a socket").local = Some(local);
        self.listen(fd, 4096).expect("it listens");
        self.hold(fd).expect("it is open");
        self.set_closes_on_exec(fd, false).expect("it is open");
    }
}
