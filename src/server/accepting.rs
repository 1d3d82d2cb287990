//! When to accept: in fair batches, and not while descriptors are scarce.

use super::addresses::Purpose;
use super::listener::{Accepted, Life, Listener};
use super::logging::limited;
use super::socket::{PASSED_MAX, Socket};
use super::world::event::{PollFd, PollFlags, Timespec, poll};
use super::world::io::Errno;
use super::{clock, control, http, usage};
use crate::engine::Time;
use crate::engine::statistics::Counters;

/// Newcomers accepted in a turn before clients are served again.
const ACCEPTS_PER_TURN: usize = 64;

/// Descriptors that no client may take. A hot restart opens some six for a moment;
/// operators have connections to the control socket. None of that may fail because
/// clients are many.
const DESCRIPTORS_RESERVED: usize = 7 + control::CONNECTIONS_MAX;

/// Reserved as well if HTTP is served.
const DESCRIPTORS_FOR_HTTP: usize = http::CONNECTIONS_MAX;

/// Reserved as well if clients come by a Unix socket: what does not fit, the kernel closes.
const DESCRIPTORS_FOR_PASSED: usize = PASSED_MAX;

/// A pause ends when one of our connections closes. If other processes hold the
/// machine's descriptors or memory, only a retry can tell.
const RETRY_MS: u64 = 1_000;

/// A new connection.
pub(super) struct Newcomer {
    pub(super) socket: Socket,
    pub(super) purpose: Purpose,
}

/// Which listener's turn it is, and how many connections may be accepted.
#[derive(Default)]
pub(super) struct Accepting {
    /// The listener that had the last turn, so that a crowd at one does not block
    /// another.
    current: usize,
    /// Connections that may still be accepted before clients are served again.
    left: usize,
    /// How many descriptors may be open. An administrator may change it (prlimit(1)).
    limit: usize,
    /// Descriptors that are neither listeners' nor connections'.
    others: usize,
    /// Since descriptors ran out, the backlog has not been empty: that is one
    /// episode, however many attempts fail.
    in_episode: bool,
}

impl Accepting {
    /// Counts the descriptors of the daemon itself, while `open` clients are served, and
    /// nobody else is connected: HTTP and operators have descriptors in reserve anyway.
    pub(super) fn count_descriptors(&mut self, listeners: &[Listener], open: usize) {
        // Without /proc: standard streams, epoll, signals, a few listeners.
        let all = usage::descriptors_open().unwrap_or(16 + open);
        self.others = all.saturating_sub(open + listeners.len());
        self.limit = usage::descriptors_max();
    }

    /// How many clients there are descriptors for.
    fn capacity(&self, listeners: &[Listener]) -> usize {
        let has_http = listeners.iter().any(|l| l.purpose() == Purpose::Http);
        let has_unix = listeners.iter().any(|l| l.is_unix && l.purpose() == Purpose::Clients);
        let reserved = DESCRIPTORS_RESERVED
            + if has_http { DESCRIPTORS_FOR_HTTP } else { 0 }
            + if has_unix { DESCRIPTORS_FOR_PASSED } else { 0 };
        self.limit.saturating_sub(self.others + listeners.len() + reserved).max(1)
    }

    pub(super) fn start_turn(&mut self, listeners: &mut [Listener], now: Time) {
        self.left = ACCEPTS_PER_TURN;
        // Its listener may have closed since.
        self.in_episode &= listeners.iter().any(|l| l.may_have_more);
        for listener in listeners {
            listener.paused_until = listener.paused_until.filter(|&until| until > now);
        }
    }

    /// Accepts the next newcomer of this turn, while `open` clients are served.
    /// `None` if there is none, or none that can be served now.
    pub(super) fn next(
        &mut self,
        listeners: &mut [Listener],
        open: usize,
        has_room_for_http: bool,
        counters: &mut Counters,
    ) -> Option<Newcomer> {
        while self.left > 0 {
            self.current = self.next_ready(listeners)?;
            let listener = &listeners[self.current];
            let purpose = listener.purpose_of_next();
            // Operators and HTTP have descriptors in reserve.
            if purpose == Purpose::Clients && open >= self.capacity(listeners) {
                self.wait_for_descriptor(listeners, Errno::MFILE, open, counters);
                continue;
            }
            if purpose == Purpose::Http && !has_room_for_http {
                self.give_up_for_now(listeners);
                continue;
            }
            self.left -= 1;
            match listeners[self.current].accept() {
                Accepted::Connection(socket) => {
                    listeners[self.current].note_accepted();
                    return Some(Newcomer { socket, purpose });
                }
                Accepted::Aborted => {}
                Accepted::Nobody => self.note_empty(listeners),
                Accepted::OutOfDescriptors(e) => {
                    self.wait_for_descriptor(listeners, e, open, counters)
                }
                Accepted::Failed(e) => {
                    counters.connect_errors += 1;
                    limited!(error, "accepting a connection failed: {e}");
                    self.give_up_for_now(listeners);
                }
            }
        }
        None
    }

    /// The next listener in turn that may have a newcomer.
    fn next_ready(&self, listeners: &[Listener]) -> Option<usize> {
        let n = listeners.len();
        (1..=n).map(|i| (self.current + i) % n).find(|&i| listeners[i].is_ready())
    }

    /// Notes that the current listener's queue is empty.
    fn note_empty(&mut self, listeners: &mut [Listener]) {
        listeners[self.current].note_empty();
        if !listeners.iter().any(|l| l.may_have_more) {
            self.in_episode = false;
        }
    }

    /// Pauses the current listener. One that fails while it closes counts as empty.
    fn give_up_for_now(&mut self, listeners: &mut [Listener]) {
        match listeners[self.current].life {
            Life::Closing => self.note_empty(listeners),
            _ => self.pause(listeners),
        }
    }

    fn pause(&self, listeners: &mut [Listener]) {
        let until = clock::now().plus_ns(RETRY_MS * 1_000_000);
        listeners[self.current].paused_until = Some(until);
    }

    /// Pauses accepting; newcomers stay in the queue. Clients are still served, and
    /// the first to leave makes room.
    fn wait_for_descriptor(
        &mut self,
        listeners: &mut [Listener],
        errno: Errno,
        open: usize,
        counters: &mut Counters,
    ) {
        if !self.somebody_waits(listeners) {
            self.note_empty(listeners);
            return;
        }
        let limit = usage::descriptors_max();
        if std::mem::replace(&mut self.limit, limit) != limit {
            return;
        }
        self.pause(listeners);
        if std::mem::replace(&mut self.in_episode, true) {
            return;
        }
        counters.connect_errors += 1;
        limited!(
            error,
            "out of descriptors ({errno}): {open} connections are served, others wait in the \
             backlog until one closes; see LimitNOFILE"
        );
    }

    /// Whether the current listener has a newcomer, without accepting.
    fn somebody_waits(&self, listeners: &[Listener]) -> bool {
        let mut fds = [PollFd::new(&listeners[self.current].socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If even poll fails, pausing is safe.
        poll(&mut fds, Some(&at_once)).map_or(true, |ready| ready > 0)
    }
}
