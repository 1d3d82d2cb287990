//! The daemon's end of a connection: what arrives there, and what poll(2) returns for it.

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// What a peer has sent, until it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Data(Vec<u8>),
    /// The same, with a descriptor: unix(7), SCM_RIGHTS.
    Passed(Vec<u8>),
    /// Urgent data: tcp(7).
    Urgent,
    End,
    /// The peer's kernel has acknowledged the daemon's end.
    Acknowledged,
    /// A Unix socket was closed: without a reset, and nothing can be sent back.
    Closed,
    Reset,
}

/// What [`Segment::Urgent`] brings.
pub(crate) const URGENT_BYTE: u8 = b'!';

/// The daemon's end of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionEnd {
    pub(crate) peer: u32,
    pub(crate) peer_address: Option<SocketAddr>,
    /// Arrived, but not received yet.
    pub(crate) arrived: VecDeque<u8>,
    pub(crate) arrived_max: usize,
    /// Where in `arrived` the data of each descriptor begins and ends: a receive that reaches its
    /// beginning stops at its end.
    pub(super) passed: VecDeque<(usize, usize)>,
    /// Where urgent data was in `arrived`: a receive ends there once.
    pub(super) mark: Option<usize>,
    pub(super) is_urgent: bool,
    pub(crate) on_the_way: VecDeque<Segment>,
    /// The peer sends no more.
    pub(crate) has_ended: bool,
    pub(crate) error: Option<Errno>,
    /// Reset or timed out: nothing goes either way any more.
    pub(crate) is_dead: bool,
    /// Sent by the daemon, but not read by the peer yet.
    pub(crate) sent: VecDeque<u8>,
    pub(crate) sent_max: usize,
    /// A send found no room; the next room is an event.
    pub(super) wants_room: bool,
    /// The lengths in which it was sent, and how much of the first the peer has read: a Unix socket
    /// keeps a piece in its buffer until all of it is read.
    pub(super) pieces: VecDeque<usize>,
    pub(super) read_of_first: usize,
    /// The daemon sends no more.
    pub(crate) is_shut: bool,
    /// Nor does it receive any more: input is discarded.
    pub(super) is_shut_both: bool,
    pub(super) lost_input: bool,
    /// The peer has closed: what is sent to it is answered with a reset.
    pub(crate) is_closed_there: bool,
    /// When a vanished host is noticed.
    pub(crate) times_out_ns: Option<u64>,
    /// It has not acknowledged something that it was sent.
    pub(super) is_unacknowledged: bool,
}

impl ConnectionEnd {
    pub(crate) fn new(peer: u32, peer_address: Option<SocketAddr>, sizes: (usize, usize)) -> Self {
        ConnectionEnd {
            peer,
            peer_address,
            arrived: VecDeque::new(),
            arrived_max: sizes.0,
            passed: VecDeque::new(),
            mark: None,
            is_urgent: false,
            on_the_way: VecDeque::new(),
            has_ended: false,
            error: None,
            is_dead: false,
            sent: VecDeque::new(),
            sent_max: sizes.1,
            wants_room: false,
            pieces: VecDeque::new(),
            read_of_first: 0,
            is_shut: false,
            is_shut_both: false,
            lost_input: false,
            is_closed_there: false,
            times_out_ns: None,
            is_unacknowledged: false,
        }
    }

    /// What poll(2) returns for it.
    pub(crate) fn readiness(&self) -> EventFlags {
        let mut flags = EventFlags::empty();
        if !self.arrived.is_empty() || self.has_ended || self.is_dead {
            flags |= EventFlags::IN;
        }
        if self.is_urgent {
            flags |= EventFlags::PRI;
        }
        if self.has_ended || self.is_dead {
            flags |= EventFlags::RDHUP;
        }
        if self.is_over() {
            flags |= EventFlags::HUP | EventFlags::OUT;
        }
        if self.error.is_some() {
            flags |= EventFlags::ERR;
        }
        if self.is_writable() {
            flags |= EventFlags::OUT;
        }
        flags
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.peer_address.is_none()
    }

    /// Whether getpeername(2) has an answer; a Unix socket remembers a lost peer.
    pub(crate) fn has_peer(&self) -> bool {
        !self.is_over() || self.is_unix()
    }

    /// Nothing more goes either way: it was lost, or both sides have ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_dead || self.is_shut && self.has_ended
    }

    /// Linux reports TCP as writable if a third is free; a Unix socket, if no more than a quarter
    /// is used.
    pub(super) fn is_writable(&self) -> bool {
        let used = self.used();
        if self.is_unix() { used * 4 <= self.sent_max } else { used * 3 <= self.sent_max * 2 }
    }

    fn used(&self) -> usize {
        self.sent.len() + if self.is_unix() { self.read_of_first } else { 0 }
    }

    pub(super) fn room(&self) -> usize {
        self.sent_max.saturating_sub(self.used())
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.is_urgent || self.mark.is_some()
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        if self.mark == Some(0) {
            (self.mark, self.is_urgent) = (None, false);
        }
        if self.arrived.is_empty() {
            // TCP remembers that the peer has ended: send(2) reports a later reset.
            let is_over = self.has_ended && !self.is_unix();
            return match self.error {
                _ if is_over => Ok(0),
                Some(_) => Err(self.error.take().expect("an error")),
                None if self.has_ended || self.is_dead => Ok(0),
                None => Err(Errno::AGAIN),
            };
        }
        let len = self.receivable(buffer.len());
        if self.passed.front().is_some_and(|&(start, _)| start < len) {
            self.passed.pop_front();
        }
        self.passed.iter_mut().for_each(|(start, end)| (*start, *end) = (*start - len, *end - len));
        self.mark = self.mark.map(|mark| mark - len);
        for byte in &mut buffer[..len] {
            *byte = self.arrived.pop_front().expect("arrived");
        }
        Ok(len)
    }

    /// Copies what the next receive returns, if there is something. It looks past an urgent byte.
    pub(super) fn peek(&self, buffer: &mut [u8]) -> usize {
        let len = self.receivable(buffer.len());
        buffer.iter_mut().zip(self.arrived.iter().take(len)).for_each(|(to, from)| *to = *from);
        len
    }

    /// How many bytes one receive would return, with room for `max`.
    pub(super) fn receivable(&self, max: usize) -> usize {
        let mark = self.mark.filter(|&mark| mark > 0);
        let len = max.min(self.arrived.len()).min(mark.unwrap_or(usize::MAX));
        match self.passed.front() {
            Some(&(start, end)) if start < len => len.min(end),
            _ => len,
        }
    }

    /// Takes what arrives next. Returns what happened, for watchers; `None` if there is no room for
    /// it yet.
    pub(super) fn arrive(&mut self) -> Option<EventFlags> {
        if self.is_over() && !self.is_unix() {
            self.on_the_way.clear();
            return None;
        }
        let room = self.arrived_max.saturating_sub(self.arrived.len());
        let segment = self.on_the_way.pop_front()?;
        let is_passed = matches!(segment, Segment::Passed(_)) && self.is_unix();
        match segment {
            Segment::Data(mut bytes) | Segment::Passed(mut bytes) => {
                let taken: Vec<u8> = bytes.drain(..bytes.len().min(room)).collect();
                if is_passed && !taken.is_empty() {
                    let start = self.arrived.len();
                    self.passed.push_back((start, start + taken.len()));
                }
                self.arrived.extend(&taken);
                if !bytes.is_empty() {
                    self.on_the_way.push_front(Segment::Data(bytes));
                }
                (!taken.is_empty()).then_some(EventFlags::IN | EventFlags::PRI)
            }
            Segment::Urgent => {
                // What was urgent before is data now, unless the daemon has reached it.
                if let Some(mark) = self.mark.filter(|&mark| mark > 0) {
                    self.arrived.insert(mark, URGENT_BYTE);
                }
                (self.mark, self.is_urgent) = (Some(self.arrived.len()), true);
                Some(EventFlags::IN | EventFlags::PRI)
            }
            Segment::End => {
                self.has_ended = true;
                Some(EventFlags::all())
            }
            Segment::Acknowledged => Some(EventFlags::all()),
            Segment::Closed => {
                self.lose(None);
                Some(EventFlags::all())
            }
            Segment::Reset => {
                self.die(Errno::CONNRESET);
                Some(EventFlags::all())
            }
        }
    }

    /// The connection is lost. What has arrived can still be received.
    pub(crate) fn die(&mut self, error: Errno) {
        // After the peer's end, TCP reports a reset as a broken pipe.
        let is_pipe = self.has_ended && !self.is_unix();
        self.lose(Some(if is_pipe { Errno::PIPE } else { error }));
    }

    pub(super) fn lose(&mut self, error: Option<Errno>) {
        self.error = error;
        self.is_dead = true;
        self.sent.clear();
        self.pieces.clear();
        self.read_of_first = 0;
        self.on_the_way.clear();
    }

    /// Why nothing can be sent any more.
    pub(super) fn send_error(&mut self) -> Errno {
        if self.is_unix() {
            return Errno::PIPE;
        }
        self.error.take().unwrap_or(Errno::PIPE)
    }

    /// Notes that `bytes` were sent, of `all` that were to be sent.
    pub(super) fn note_sent(&mut self, bytes: &[u8], all: usize) {
        self.sent.extend(bytes);
        self.pieces.push_back(bytes.len());
        self.wants_room |= bytes.len() < all && self.room() == 0;
    }

    /// The peer reads at most `max` bytes. Returns them, and whether that is an event: a Unix
    /// socket reports each piece that was read, TCP only room after a send found none.
    pub(super) fn read_by_peer(&mut self, max: usize) -> (Vec<u8>, bool) {
        let read: Vec<u8> = self.sent.drain(..self.sent.len().min(max)).collect();
        self.read_of_first += read.len();
        let before = self.pieces.len();
        while self.pieces.front().is_some_and(|&first| first <= self.read_of_first) {
            self.read_of_first -= self.pieces.pop_front().expect("a piece");
        }
        let has_freed = self.pieces.len() < before;
        let has_room_event =
            if self.is_unix() { has_freed } else { self.wants_room && !read.is_empty() };
        let is_event = has_room_event && self.is_writable();
        self.wants_room &= !is_event;
        (read, is_event)
    }
}
