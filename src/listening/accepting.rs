//! When the daemon accepts: which listener is next, how many connections fit into a turn and into
//! the descriptors, and how long accepting pauses when it cannot go on.

use crate::listening::addresses::Purpose;
use crate::listening::listener::{Accepted, Listener, ListenerStage, PauseCause};
use crate::logging::rate_limit::limited;
use crate::platform::os::SHARES_PER_TURN;
use crate::platform::os::io::Errno;
use crate::platform::{clock, descriptors};
use crate::sockets::ids::{CONTROL_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX};
use crate::sockets::socket::Socket;
use engine::Time;

/// Connections accepted in a turn before clients are served again, in proportion to its budget:
/// each takes some 10 µs, so that all take a quarter of it.
const ACCEPTS_PER_TURN: usize = SHARES_PER_TURN * 4 / 5;

/// Descriptors that no client may take. A hot restart opens some six for a moment;
/// operators have connections to the control socket. None of that may fail because
/// clients are many.
const DESCRIPTORS_RESERVED: usize = 7 + CONTROL_CONNECTIONS_MAX;

/// Reserved as well if HTTP is served.
const DESCRIPTORS_FOR_HTTP: usize = HTTP_CONNECTIONS_MAX;

/// A pause ends when one of the daemon's connections closes. If other processes use up the
/// machine's descriptors or memory, only a retry shows when it is over.
const RETRY_MS: u64 = 1_000;

/// A new connection.
pub(crate) struct NewConnection {
    pub(crate) socket: Socket,
    pub(crate) purpose: Purpose,
}

/// Decides when to accept from which listener. The listeners themselves are passed in.
#[derive(Default)]
pub(crate) struct Acceptor {
    /// The listener that had the last turn, so that a crowd at one does not block
    /// another.
    current: usize,
    /// Connections that may still be accepted before clients are served again.
    left: usize,
    /// How many descriptors may be open. An administrator may change it (prlimit(1)).
    descriptors_max: usize,
    /// Descriptors that are neither listeners' nor connections'.
    own_descriptors: usize,
    /// Since descriptors ran out, the backlog has not been empty: that is one
    /// episode, however many attempts fail.
    in_episode: bool,
    /// Failures to accept since [`Acceptor::take_errors`].
    errors: u64,
}

impl Acceptor {
    /// Of a daemon that has `own_descriptors` besides listeners and connections.
    pub(crate) fn new(own_descriptors: usize) -> Self {
        let descriptors_max = descriptors::limit();
        Acceptor { own_descriptors, descriptors_max, ..Acceptor::default() }
    }

    /// Descriptors that are neither listeners' nor connections'.
    pub(crate) fn own_descriptors(&self) -> usize {
        self.own_descriptors
    }

    /// Begins a turn with a whole budget.
    pub(crate) fn begin_turn(&mut self, listeners: &mut [Listener], now: Time) {
        self.left = ACCEPTS_PER_TURN;
        // Its listener may have closed since.
        self.in_episode = self.in_episode && listeners.iter().any(Listener::may_have_more);
        listeners.iter_mut().for_each(|listener| listener.end_pause_if_over(now));
    }

    /// How often accepting has failed since the last call.
    pub(crate) fn take_errors(&mut self) -> u64 {
        std::mem::take(&mut self.errors)
    }

    /// Accepts the next connection of this turn, while `open` clients are served.
    /// `None` if there is none, or none that can be served now.
    pub(crate) fn next(
        &mut self,
        listeners: &mut [Listener],
        open: usize,
        has_room_for_http: bool,
    ) -> Option<NewConnection> {
        while self.left > 0 {
            self.current = self.next_ready(listeners, has_room_for_http)?;
            listeners[self.current].end_pause();
            let purpose = listeners[self.current].purpose();
            // Operators and HTTP have descriptors in reserve.
            if purpose == Purpose::Clients && open >= self.capacity(listeners) {
                self.wait_for_descriptor(listeners, Errno::MFILE, open);
                continue;
            }
            if purpose == Purpose::Http && !has_room_for_http {
                self.give_up_for_now(listeners, PauseCause::NoRoomForHttp);
                continue;
            }
            self.left -= 1;
            let listener = &mut listeners[self.current];
            match listener.accept() {
                Accepted::Connection(socket) => {
                    listener.record_accepted();
                    return Some(NewConnection { socket, purpose });
                }
                Accepted::Aborted(e) => {
                    if listener.record_aborted() {
                        self.record_failure(listeners, e);
                    }
                }
                Accepted::Nobody => self.record_empty(listeners),
                Accepted::OutOfDescriptors(e) => self.wait_for_descriptor(listeners, e, open),
                Accepted::Failed(e) => self.record_failure(listeners, e),
            }
        }
        None
    }

    /// The next listener in turn that may have a connection to accept.
    fn next_ready(&self, listeners: &[Listener], has_room_for_http: bool) -> Option<usize> {
        let n = listeners.len();
        let mut in_turn = (1..=n).map(|i| (self.current + i) % n);
        in_turn.find(|&i| listeners[i].is_ready(has_room_for_http))
    }

    /// How many of `others` have descriptors beside this many `clients`.
    pub(crate) fn descriptors_beside(
        &mut self,
        listeners: &[Listener],
        others: usize,
        clients: usize,
    ) -> usize {
        if clients + others > self.capacity(listeners) {
            self.descriptors_max = descriptors::limit();
        }
        others.min(self.capacity(listeners).saturating_sub(clients))
    }

    /// How many clients there are descriptors for.
    fn capacity(&self, listeners: &[Listener]) -> usize {
        let has_http = listeners.iter().any(|l| l.purpose() == Purpose::Http);
        let reserved = DESCRIPTORS_RESERVED + if has_http { DESCRIPTORS_FOR_HTTP } else { 0 };
        let taken = self.own_descriptors + listeners.len() + reserved;
        self.descriptors_max.saturating_sub(taken).max(1)
    }

    /// Notes that the current listener's queue is empty.
    fn record_empty(&mut self, listeners: &mut [Listener]) {
        listeners[self.current].record_empty();
        self.in_episode = self.in_episode && listeners.iter().any(Listener::may_have_more);
    }

    fn record_failure(&mut self, listeners: &mut [Listener], errno: Errno) {
        self.errors += 1;
        limited!(error, "accepting a connection failed: accept4: {errno}");
        self.give_up_for_now(listeners, PauseCause::Failure);
    }

    /// Pauses the current listener. One that fails while it closes counts as empty.
    fn give_up_for_now(&mut self, listeners: &mut [Listener], cause: PauseCause) {
        let listener = &mut listeners[self.current];
        match listener.stage {
            ListenerStage::Closing => self.record_empty(listeners),
            _ => listener.pause(retry_time(), cause),
        }
    }

    /// Pauses accepting; new connections stay in the queue. Clients are still served, and
    /// the first that leaves makes room.
    fn wait_for_descriptor(&mut self, listeners: &mut [Listener], errno: Errno, open: usize) {
        let listener = &mut listeners[self.current];
        if !listener.has_connection() {
            self.record_empty(listeners);
            return;
        }
        let limit = descriptors::limit();
        if std::mem::replace(&mut self.descriptors_max, limit) != limit {
            return;
        }
        listener.pause(retry_time(), PauseCause::Failure);
        if std::mem::replace(&mut self.in_episode, true) {
            return;
        }
        self.errors += 1;
        limited!(
            error,
            "out of descriptors ({errno}): {open} connections are served, others wait in the \
             backlog until one closes; see LimitNOFILE"
        );
    }
}

/// When a listener that pauses now is tried again.
fn retry_time() -> Time {
    clock::now().plus_ns(RETRY_MS * 1_000_000)
}
