//! Listening sockets: addresses, queues, new connections.

use super::sockets::{
    ConnectionEnd, LocalAddress, RemotePeer, SimulatedSocket, SocketFamily, SocketRole,
};
use super::{CallKind, File, FileId, Kernel, KernelEvent};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::RawFd;

/// How long the daemon waits after an unknown error of accept(2).
const ACCEPT_RETRY_NS: u64 = 1_000_000_000;

/// Connections that wait to be accepted.
#[derive(Debug, Default)]
pub(crate) struct AcceptQueue {
    pub(crate) waiting: VecDeque<FileId>,
    pub(crate) backlog: usize,
    /// It begins to close: connections that come now may be refused.
    closes: bool,
    /// How many, at the end of the queue, have come since then.
    late: usize,
    /// A Unix socket was shut: new connections are refused, those that wait can be accepted.
    pub(super) is_shut: bool,
}

/// A peer that keeps trying to connect until there is room.
#[derive(Debug)]
pub(crate) struct RetryingPeer {
    pub(crate) peer: u32,
    pub(crate) to: LocalAddress,
    pub(crate) from: SocketAddr,
    pub(crate) room: (usize, usize),
}

impl AcceptQueue {
    /// Takes the one that has waited longest. Also returns whether it must be accepted.
    fn take(&mut self) -> Option<(FileId, bool)> {
        let file = self.waiting.pop_front()?;
        let is_due = self.waiting.len() >= self.late;
        self.late -= usize::from(!is_due);
        Some((file, is_due))
    }

    fn add(&mut self, file: FileId) {
        self.waiting.push_back(file);
        self.late = if self.closes { self.late + 1 } else { 0 };
    }

    fn set_backlog(&mut self, backlog: usize) {
        self.closes = backlog == 0;
        self.backlog = backlog;
    }
}

/// The answer to a connect(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectResult {
    Yes,
    /// Nobody listens.
    Refused,
    /// The queue is full; TCP tries again later, a Unix socket returns EAGAIN.
    NotNow,
}

impl SimulatedSocket {
    pub(crate) fn new(family: SocketFamily) -> Self {
        SimulatedSocket {
            family,
            local: None,
            inode: 0,
            role: SocketRole::Idle,
            options: std::collections::BTreeMap::new(),
        }
    }

    pub(crate) fn option(&self, name: &str) -> u64 {
        self.options.get(name).copied().unwrap_or(0)
    }

    fn tcp_address(&self) -> Option<SocketAddr> {
        match self.local {
            Some(LocalAddress::Tcp(address)) => Some(address),
            _ => None,
        }
    }

    /// Whether it may get a connection to `address`.
    fn serves(&self, address: SocketAddr) -> bool {
        self.tcp_address().is_some_and(|ours| {
            let is_dual = ours.ip().is_unspecified()
                && (ours.is_ipv4() == address.is_ipv4()
                    || ours.is_ipv6() && self.option("v6only") == 0);
            ours.port() == address.port() && (ours.ip() == address.ip() || is_dual)
        })
    }

    /// Whether both can't be bound at the same time, because either could get a connection.
    fn collides(&self, other: &SimulatedSocket) -> bool {
        let (Some(ours), Some(theirs)) = (self.tcp_address(), other.tcp_address()) else {
            return false;
        };
        let overlap = self.serves(theirs)
            || other.serves(ours)
            || ours.ip().is_unspecified() && theirs.ip().is_unspecified() && {
                ours.is_ipv4() == theirs.is_ipv4()
                    || [self, other]
                        .iter()
                        .any(|s| s.family == SocketFamily::V6 && s.option("v6only") == 0)
            };
        let both = |name| self.option(name) > 0 && other.option(name) > 0;
        let is_shared = both("reuseport")
            || both("reuseaddr") && !matches!(other.role, SocketRole::Listening(_));
        ours.port() == theirs.port() && overlap && !is_shared
    }
}

impl Kernel {
    pub(crate) fn socket(&mut self, fd: RawFd) -> Result<&mut SimulatedSocket, Errno> {
        match self.file(fd)? {
            File::Socket(socket) => Ok(socket),
            _ => Err(Errno::NOTSOCK),
        }
    }

    /// bind(2) to a TCP address.
    pub(crate) fn bind_tcp(&mut self, fd: RawFd, mut address: SocketAddr) -> Result<(), Errno> {
        self.fault(CallKind::Bind)?;
        if address.port() == 0 {
            address.set_port(self.new_port());
        }
        let own = self.descriptor(fd)?.file;
        let foreign = self.foreign_ports.iter().any(|there| there.port() == address.port());
        self.socket(fd)?.local = Some(LocalAddress::Tcp(address));
        if self.is_taken(own) || foreign {
            self.socket(fd)?.local = None;
            return Err(Errno::ADDRINUSE);
        }
        Ok(())
    }

    /// Whether another socket has the address of this one, and can't share it.
    fn is_taken(&self, own: FileId) -> bool {
        let File::Socket(mine) = &self.files[own] else { unreachable!("a socket") };
        self.has_collision(mine, Some(own))
    }

    fn has_collision(&self, mine: &SimulatedSocket, own: Option<FileId>) -> bool {
        self.files.iter().any(|(id, file)| match file {
            File::Socket(other)
                if Some(id) != own && !matches!(other.role, SocketRole::Stream(_)) =>
            {
                mine.collides(other)
            }
            _ => false,
        })
    }

    /// An address on which the daemon listens and a second one could, with SO_REUSEPORT: each would
    /// get some of the connections.
    pub(crate) fn shared_address(&self) -> Option<SocketAddr> {
        let files = self.table().values().map(|descriptor| &self.files[descriptor.file]);
        let mut listening = files.filter_map(|file| match file {
            File::Socket(socket) if matches!(socket.role, SocketRole::Listening(_)) => Some(socket),
            _ => None,
        });
        listening.find_map(|ours| {
            let mut second =
                SimulatedSocket { local: ours.local.clone(), ..SimulatedSocket::new(ours.family) };
            second.options.insert("v6only", ours.option("v6only"));
            second.options.extend([("reuseaddr", 1), ("reuseport", 1)]);
            ours.tcp_address().filter(|_| !self.has_collision(&second, None))
        })
    }

    /// listen(2): also changes the backlog of a socket that listens. Only now it may turn
    /// out that another socket listens on the address.
    pub(crate) fn listen(&mut self, fd: RawFd, backlog: i32) -> Result<(), Errno> {
        let backlog = backlog.max(0) as usize;
        let own = self.descriptor(fd)?.file;
        if let SocketRole::Listening(queue) = &mut self.socket(fd)?.role {
            queue.set_backlog(backlog);
            return Ok(());
        }
        self.fault(CallKind::Listen)?;
        if self.is_taken(own) {
            return Err(Errno::ADDRINUSE);
        }
        self.socket(fd)?.role =
            SocketRole::Listening(AcceptQueue { backlog, ..AcceptQueue::default() });
        Ok(())
    }

    /// accept(2), without blocking.
    pub(crate) fn accept(&mut self, fd: RawFd) -> Result<RawFd, Errno> {
        self.let_arrive();
        let listener = self.descriptor(fd)?.file;
        if self.left_alone.get(&listener).is_some_and(|&until_ns| self.now_ns < until_ns) {
            self.calls.accepted_too_soon += 1;
        }
        if let Err(errno) = self.fault(CallKind::Accept) {
            return self.accept_failed(fd, errno);
        }
        let is_full = self.table().len() as u64 >= self.descriptors_max;
        let SocketRole::Listening(queue) = &mut self.socket(fd)?.role else {
            return Err(Errno::INVAL);
        };
        let is_shut = queue.is_shut;
        if queue.waiting.is_empty() {
            let nobody = if is_shut { Errno::INVAL } else { Errno::AGAIN };
            return Err(if is_full { Errno::MFILE } else { nobody });
        }
        if is_full {
            return Err(Errno::MFILE);
        }
        let (file, _) = queue.take().expect("waits");
        self.calls.accepted += 1;
        let File::Socket(socket) = &self.files[file] else { unreachable!("a socket") };
        let to = socket.local.clone().expect("an address");
        let stream = self.stream(file).expect("a connection");
        let ip = stream.peer_address.map(|address| address.ip().to_canonical());
        let (peer, is_over) = (stream.peer, !stream.has_peer());
        self.note(KernelEvent::Accepted { peer, to, ip, is_over });
        self.admit_retrying_peer();
        self.open_from(0, file, true)
    }

    /// An error of a connection takes that connection out of the queue.
    fn accept_failed(&mut self, fd: RawFd, errno: Errno) -> Result<RawFd, Errno> {
        let keeps_queue = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::INTR];
        if errno == Errno::PERM {
            let SocketRole::Listening(queue) = &self.socket(fd)?.role else {
                return Err(Errno::INVAL);
            };
            // The daemon does not count what it meets while it discards a queue.
            if queue.waiting.is_empty() || queue.is_shut {
                return Err(Errno::AGAIN);
            }
            self.note_accept_failed(fd)?;
        } else if !keeps_queue.contains(&errno) {
            let SocketRole::Listening(queue) = &mut self.socket(fd)?.role else {
                return Err(Errno::INVAL);
            };
            let is_shut = queue.is_shut;
            let Some((lost, _)) = queue.take() else {
                return Err(Errno::AGAIN);
            };
            // No daemon can receive what the kernel itself throws away.
            let lingers = self.calls.lingers;
            self.release(lost);
            self.calls.lingers = lingers;
            // A socket that is shut returns EINVAL at the end of its queue.
            if errno == Errno::FAULT || errno == Errno::INVAL && !is_shut {
                self.note_accept_failed(fd)?;
            }
        }
        Err(errno)
    }

    fn note_accept_failed(&mut self, fd: RawFd) -> Result<(), Errno> {
        let listener = self.descriptor(fd)?.file;
        self.left_alone.insert(listener, self.now_ns + ACCEPT_RETRY_NS);
        self.note(KernelEvent::AcceptFailed);
        Ok(())
    }

    /// A peer that keeps trying connects, if there is room.
    fn admit_retrying_peer(&mut self) {
        if let Some(one) = self.retrying.pop_front() {
            if self.connect(one.peer, &one.to, one.from, one.room) == ConnectResult::NotNow {
                self.retrying.push_front(one);
            }
        }
    }

    /// Closes connections that can't be accepted any more.
    pub(super) fn end_queue(&mut self, mut queue: AcceptQueue) {
        while let Some((file, is_due)) = queue.take() {
            self.note_dropped(file, is_due);
            self.release(file);
        }
    }

    /// Its peer gets a reset.
    fn note_dropped(&mut self, file: FileId, is_due: bool) {
        if let Some(stream) = self.stream(file) {
            stream.lose(None);
            let peer = stream.peer;
            if is_due {
                self.note(KernelEvent::Dropped(peer));
            }
        }
    }

    /// A client connects, as `peer`.
    pub(crate) fn connect(
        &mut self,
        peer: u32,
        to: &LocalAddress,
        from: SocketAddr,
        sizes: (usize, usize),
    ) -> ConnectResult {
        let Some(listener) = self.listener_at(to) else {
            return ConnectResult::Refused;
        };
        let File::Socket(socket) = &self.files[listener] else { unreachable!("a socket") };
        let SocketRole::Listening(queue) = &socket.role else { unreachable!("it listens") };
        if queue.is_shut {
            return ConnectResult::Refused;
        }
        if queue.waiting.len() > queue.backlog {
            return ConnectResult::NotNow;
        }
        let from = matches!(to, LocalAddress::Tcp(_)).then_some(match (socket.family, from) {
            // ipv6(7): an IPv4 client of an IPv6 socket.
            (SocketFamily::V6, SocketAddr::V4(from)) => {
                SocketAddr::from((from.ip().to_ipv6_mapped(), from.port()))
            }
            _ => from,
        });
        let stream = ConnectionEnd::new(peer, from, sizes);
        let accepted = SimulatedSocket {
            local: Some(to.clone()),
            role: SocketRole::Stream(stream),
            options: socket.options.clone(),
            ..SimulatedSocket::new(socket.family)
        };
        let file = self.files.insert(File::Socket(accepted));
        if let File::Socket(SimulatedSocket { role: SocketRole::Listening(queue), .. }) =
            &mut self.files[listener]
        {
            queue.add(file);
        }
        self.peers.insert(peer, RemotePeer { socket: Some(file), ..RemotePeer::default() });
        self.wake(listener, EventFlags::IN);
        ConnectResult::Yes
    }

    /// The listening socket that a connect would reach: the most exact one.
    pub(crate) fn listener_at(&self, to: &LocalAddress) -> Option<FileId> {
        let listening = self.files.iter().filter_map(|(id, file)| match file {
            File::Socket(socket) if matches!(socket.role, SocketRole::Listening(_)) => {
                Some((id, socket))
            }
            _ => None,
        });
        match to {
            LocalAddress::Tcp(address) => listening
                .filter(|(_, socket)| socket.serves(*address))
                .max_by_key(|(_, socket)| socket.local.as_ref() == Some(to))
                .map(|(id, _)| id),
            LocalAddress::Path(path) => {
                let inode = self.path(path).ok()?.inode;
                let mut found = listening.filter(|(_, socket)| {
                    socket.family == SocketFamily::Unix && socket.inode == inode
                });
                found.next().map(|(id, _)| id)
            }
        }
    }

    pub(crate) fn backlog(&self, listener: FileId) -> Option<usize> {
        match &self.files[listener] {
            File::Socket(SimulatedSocket { role: SocketRole::Listening(queue), .. }) => {
                Some(if queue.is_shut { 0 } else { queue.backlog })
            }
            _ => None,
        }
    }

    /// Whether a socket on which only another process listens has no backlog.
    pub(crate) fn has_shut_foreign_sockets(&self) -> bool {
        let is_open = |file: &FileId| self.table().values().any(|d| d.file == *file);
        let mut others = self.held.keys().filter(|file| !is_open(file));
        others.any(|&file| self.files.contains(file) && self.backlog(file) == Some(0))
    }

    /// Connections that wait on the daemon's listeners.
    pub(crate) fn connections_waiting(&self) -> usize {
        self.queues().map(|(_, queue)| queue.waiting.len()).sum()
    }

    /// Those of them whose queue has no event left to report.
    pub(crate) fn connections_reported(&self) -> usize {
        let reported = self.queues().filter(|&(listener, _)| !self.is_due(listener));
        reported.map(|(_, queue)| queue.waiting.len()).sum()
    }

    /// The daemon's listening sockets.
    fn queues(&self) -> impl Iterator<Item = (FileId, &AcceptQueue)> {
        let files = self.table().values().map(|descriptor| descriptor.file);
        files.filter_map(|file| match &self.files[file] {
            File::Socket(SimulatedSocket { role: SocketRole::Listening(queue), .. }) => {
                Some((file, queue))
            }
            _ => None,
        })
    }
}
