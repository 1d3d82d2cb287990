//! Stream sockets: what arrives, what is sent, and how a connection ends.

use super::listening::AcceptQueue;
pub(crate) use super::stream::{ConnectionEnd, Segment};
use super::{CallKind, File, FileId, Kernel, KernelEvent};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::RawFd;

/// TCP, or a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketFamily {
    V4,
    V6,
    Unix,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocalAddress {
    Tcp(SocketAddr),
    Path(String),
}

#[derive(Debug)]
pub(crate) struct SimulatedSocket {
    pub(crate) family: SocketFamily,
    pub(crate) local: Option<LocalAddress>,
    /// The path's inode.
    pub(crate) inode: u64,
    pub(crate) role: SocketRole,
    /// By the name of the option.
    pub(crate) options: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub(crate) enum SocketRole {
    /// Neither listens nor is connected.
    Idle,
    Listening(AcceptQueue),
    Stream(ConnectionEnd),
    /// Connected to the service manager.
    Notify,
    /// Connected to the daemon's own control socket, to see whether it is that.
    Probe,
}

/// How a connection ended for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerEnding {
    /// All that was sent can be read.
    End,
    /// Something that was sent may be lost.
    Reset,
}

/// The other end of a connection.
#[derive(Debug, Default)]
pub(crate) struct RemotePeer {
    /// The daemon's end, as long as it exists.
    pub(crate) socket: Option<FileId>,
    /// What the daemon had sent before it closed.
    pub(crate) left: VecDeque<u8>,
    pub(crate) ending: Option<PeerEnding>,
    /// Its host has vanished, or the daemon could not watch its connection.
    pub(crate) is_given_up: bool,
    /// Its input had ended when the daemon closed, or it had closed itself.
    pub(crate) has_ended: bool,
    pub(crate) has_closed: bool,
    /// Sending to it has failed, though the connection is still open.
    pub(crate) was_not_sent: bool,
    /// It has left, as a send has shown; what it sent before can still be received.
    pub(crate) has_left_unread: bool,
    /// When its host has vanished, or was first sent something afterwards.
    pub(crate) vanished_ns: Option<u64>,
}

impl Kernel {
    pub(crate) fn stream(&mut self, file: FileId) -> Option<&mut ConnectionEnd> {
        match self.files.get_mut(file)? {
            File::Socket(SimulatedSocket { role: SocketRole::Stream(stream), .. }) => Some(stream),
            _ => None,
        }
    }

    fn stream_of(&mut self, fd: RawFd) -> Result<&mut ConnectionEnd, Errno> {
        self.socket(fd)?;
        let file = self.descriptor(fd)?.file;
        self.stream(file).ok_or(Errno::NOTCONN)
    }

    /// recv(2), without blocking. Also returns what was passed.
    pub(crate) fn receive(
        &mut self,
        fd: RawFd,
        buffer: &mut [u8],
    ) -> Result<(usize, Vec<FileId>), Errno> {
        if let Some(discarded) = self.discard(fd, buffer) {
            return discarded;
        }
        self.let_arrive();
        self.receive_arrived(fd, buffer)
    }

    fn receive_arrived(
        &mut self,
        fd: RawFd,
        buffer: &mut [u8],
    ) -> Result<(usize, Vec<FileId>), Errno> {
        self.calls.receives += 1;
        if let Err(errno) = self.fault(CallKind::Receive) {
            return self.receive_failed(fd, errno).map(|len| (len, Vec::new()));
        }
        let stream = self.stream_of(fd)?;
        let (peer, is_unix, passed) = (stream.peer, stream.is_unix(), stream.passed.len());
        let received = stream.receive(buffer);
        let passed = passed - stream.passed.len();
        let is_over = stream.is_over();
        match received {
            Ok(0) => self.note(KernelEvent::EndReceived(peer)),
            Ok(len) if is_unix => {
                self.note(KernelEvent::Input(peer, buffer[..len].to_vec()));
                if is_over {
                    self.note(KernelEvent::WasLate(peer));
                }
            }
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(_) => {
                self.note(KernelEvent::ReceiveFailed(peer));
                self.peers.entry(peer).and_modify(|peer| peer.has_left_unread = false);
            }
        }
        let len = received?;
        *self.calls.received.entry(peer).or_default() += len;
        self.calls.bytes.entry(peer).or_default().extend_from_slice(&buffer[..len]);
        Ok((len, self.passed_files(passed)))
    }

    fn passed_files(&mut self, count: usize) -> Vec<FileId> {
        (0..count).map(|_| self.files.insert(File::Passed { lingers: true })).collect()
    }

    /// Input after a shutdown of both sides is discarded.
    fn discard(
        &mut self,
        fd: RawFd,
        buffer: &mut [u8],
    ) -> Option<Result<(usize, Vec<FileId>), Errno>> {
        let stream = self.stream_of(fd).ok().filter(|stream| stream.is_shut_both)?;
        let passed = stream.passed.len();
        let received = if stream.arrived.is_empty() { Ok(0) } else { stream.receive(buffer) };
        let passed = passed - stream.passed.len();
        Some(received.map(|len| (len, self.passed_files(passed))))
    }

    /// shutdown(2) of both sides of a Unix socket: what is there can still be received.
    pub(crate) fn shut_both(&mut self, fd: RawFd) -> Result<(), Errno> {
        if let SocketRole::Listening(queue) = &mut self.socket(fd)?.role {
            queue.is_shut = true;
            return Ok(());
        }
        let stream = self.stream_of(fd)?;
        stream.is_shut_both = true;
        stream.lost_input = !stream.arrived.is_empty();
        Ok(())
    }

    /// recv(2) with MSG_PEEK. An end or an error counts as received.
    pub(crate) fn peek(&mut self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        if self.stream_of(fd)?.arrived.is_empty() {
            self.let_arrive();
        }
        match self.stream_of(fd)?.peek(buffer) {
            0 => self.receive_arrived(fd, buffer).map(|(len, _)| len),
            len => Ok(len),
        }
    }

    fn receive_failed(&mut self, fd: RawFd, errno: Errno) -> Result<usize, Errno> {
        if errno != Errno::INTR {
            self.break_connection(fd);
            let peer = self.stream_of(fd)?.peer;
            self.note(KernelEvent::ReceiveFailed(peer));
        }
        Err(errno)
    }

    /// The connection behind `fd` is lost for both sides.
    fn break_connection(&mut self, fd: RawFd) {
        let Ok(stream) = self.stream_of(fd) else {
            return;
        };
        stream.lose(None);
        (stream.arrived, stream.passed) = (VecDeque::new(), VecDeque::new());
        (stream.mark, stream.is_urgent) = (None, false);
        let peer = stream.peer;
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.ending = Some(PeerEnding::Reset);
        }
    }

    /// send(2), without blocking.
    pub(crate) fn send(&mut self, fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
        let sent = self.try_to_send(fd, bytes);
        if let Ok(stream) = self.stream_of(fd) {
            let (peer, is_unix) = (stream.peer, stream.is_unix());
            if is_unix {
                self.note(KernelEvent::Output(peer));
            }
            if sent.is_err_and(|e| ![Errno::AGAIN, Errno::INTR].contains(&e)) {
                self.note(KernelEvent::SendFailed(peer));
            }
        }
        sent
    }

    /// A Unix socket takes up to half of its buffer whole or not at all (net/unix/af_unix.c,
    /// unix_stream_sendmsg).
    fn try_to_send(&mut self, fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
        self.let_arrive();
        self.calls.sends += 1;
        if let Err(errno) = self.fault(CallKind::Send) {
            return self.send_failed(fd, errno);
        }
        // A few bytes into an empty buffer are always taken together.
        let is_short = bytes.len() > 1000 && self.one_in(8);
        let cut = 1 + self.below(bytes.len());
        let stream = self.stream_of(fd)?;
        if stream.is_dead {
            let (peer, error) = (stream.peer, stream.send_error());
            // Otherwise its host or the network is gone.
            let has_left = [Errno::PIPE, Errno::CONNRESET].contains(&error);
            self.peers.entry(peer).and_modify(|peer| peer.has_left_unread = has_left);
            return Err(error);
        }
        if stream.is_shut {
            return Err(Errno::PIPE);
        }
        let room = stream.room();
        let is_whole = stream.is_unix() && bytes.len() <= stream.sent_max / 2;
        if room < if is_whole { bytes.len() } else { bytes.len().min(1) } {
            stream.wants_room = true;
            return Err(Errno::AGAIN);
        }
        if stream.is_closed_there && !stream.is_unix() {
            // The peer's kernel answers with a reset.
            if !stream.on_the_way.contains(&Segment::Reset) {
                stream.on_the_way.push_back(Segment::Reset);
            }
            return Ok(bytes.len().min(room));
        }
        let len = bytes.len().min(room).min(if is_short { cut } else { usize::MAX });
        stream.note_sent(&bytes[..len], bytes.len());
        self.note_unacknowledged(fd);
        Ok(len)
    }

    /// Lack of memory does not end the connection.
    fn send_failed(&mut self, fd: RawFd, errno: Errno) -> Result<usize, Errno> {
        if !matches!(errno, Errno::INTR | Errno::NOBUFS | Errno::NOMEM) {
            self.break_connection(fd);
        }
        let peer = self.stream_of(fd)?.peer;
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.was_not_sent |= errno != Errno::INTR;
        }
        Err(errno)
    }

    /// Lets a segment that is on the way arrive. Returns false if there was none, or
    /// no room for it.
    pub(crate) fn arrive(&mut self, peer: u32) -> bool {
        let Some(file) = self.peers.get(&peer).and_then(|peer| peer.socket) else {
            return false;
        };
        let Some(stream) = self.stream(file) else {
            return false;
        };
        let is_reset = stream.on_the_way.front() == Some(&Segment::Reset);
        let Some(what) = stream.arrive() else {
            return false;
        };
        if is_reset {
            if let Some(peer) = self.peers.get_mut(&peer) {
                peer.ending = Some(PeerEnding::Reset);
            }
        }
        self.wake(file, what);
        true
    }

    /// Sometimes lets something arrive in the middle of a turn.
    pub(crate) fn let_arrive(&mut self) {
        if self.one_in(self.one_arrives_in) {
            let n = self.below(self.peers.len());
            if let Some(&peer) = self.peers.keys().nth(n) {
                self.arrive(peer);
            }
        }
    }

    /// The peer reads at most `max` bytes; `None` once nothing more can come.
    pub(crate) fn read_as_peer(&mut self, number: u32, max: usize) -> Option<Vec<u8>> {
        let peer = self.peers.get_mut(&number)?;
        let Some(file) = peer.socket else {
            let left: Vec<u8> = peer.left.drain(..peer.left.len().min(max)).collect();
            return (!left.is_empty() || peer.ending.is_none()).then_some(left);
        };
        let stream = self.stream(file)?;
        if stream.times_out_ns.is_some() {
            return None;
        }
        if stream.is_shut && stream.sent.is_empty() {
            return None;
        }
        let (read, is_event) = stream.read_by_peer(max);
        if is_event {
            self.wake(file, EventFlags::OUT);
        }
        Some(read)
    }

    /// shutdown(2) of the daemon's writing side.
    pub(crate) fn shut_writing(&mut self, fd: RawFd) -> Result<(), Errno> {
        let file = self.descriptor(fd)?.file;
        let stream = self.stream_of(fd)?;
        let is_over = stream.is_over() && !stream.is_unix();
        if !stream.is_shut && !is_over && !stream.is_unix() {
            stream.on_the_way.push_back(Segment::Acknowledged);
        }
        stream.is_shut = true;
        self.wake(file, EventFlags::all());
        if is_over {
            return Err(Errno::NOTCONN);
        }
        Ok(())
    }

    /// The daemon's last descriptor of this socket was closed.
    pub(crate) fn end_socket(&mut self, socket: SimulatedSocket) {
        match socket.role {
            SocketRole::Stream(stream) => self.end_stream(stream),
            SocketRole::Listening(queue) => self.end_queue(queue),
            SocketRole::Idle | SocketRole::Notify | SocketRole::Probe => {}
        }
    }

    fn end_stream(&mut self, stream: ConnectionEnd) {
        self.note(KernelEvent::Closed(stream.peer));
        let Some(peer) = self.peers.get_mut(&stream.peer) else {
            return;
        };
        if !peer.is_given_up {
            self.calls.lingers += stream.passed.len();
        }
        // Unread input makes it a reset, at once or when more arrives.
        let has_unread_input = !stream.arrived.is_empty() || stream.lost_input;
        let has_unread = has_unread_input || stream.is_urgent;
        let is_nothing = |s: &Segment| matches!(s, Segment::End | Segment::Acknowledged);
        let sends_more = !stream.on_the_way.iter().all(is_nothing);
        // If its own end came first, the peer sees only that.
        let has_shut_first = stream.is_shut && !stream.is_unix();
        let is_reset = (has_unread || sends_more) && !has_shut_first || stream.is_dead;
        peer.has_closed = stream.is_closed_there || stream.is_dead;
        peer.has_ended = stream.has_ended || peer.has_closed;
        if !stream.has_ended && !stream.is_dead {
            self.calls.closed_while_open.push(stream.peer);
        }
        if peer.has_left_unread && has_unread_input {
            self.calls.closed_unread.push(stream.peer);
        }
        peer.socket = None;
        peer.left = stream.sent;
        if peer.ending.is_none() {
            let ending = if is_reset { PeerEnding::Reset } else { PeerEnding::End };
            peer.ending = Some(ending);
        }
    }
}
