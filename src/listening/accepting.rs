//! Which listener accepts next, and how many connections in a turn; reserved descriptors;
//! pauses after failures, and retries.

use crate::listening::addresses::Purpose;
use crate::listening::listener::{Accepted, Listener, ListenerStage};
use crate::listening::listeners::Listeners;
use crate::logging::logger::limited;
use crate::platform::os::SHARES_PER_TURN;
use crate::platform::os::event::{PollFd, PollFlags, Timespec, poll};
use crate::platform::os::io::Errno;
use crate::platform::{clock, descriptors};
use crate::sockets::ids::{CONTROL_CONNECTIONS_MAX, HTTP_CONNECTIONS_MAX};
use crate::sockets::socket::{PASSED_MAX, Socket};
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

/// Reserved as well if there is a Unix socket for clients: the kernel closes passed
/// descriptors for which there is no room.
const DESCRIPTORS_FOR_PASSED: usize = PASSED_MAX;

/// A pause ends when one of the daemon's connections closes. If other processes use up the
/// machine's descriptors or memory, only a retry shows when it is over.
const RETRY_MS: u64 = 1_000;

/// A new connection.
pub(crate) struct NewConnection {
    pub(crate) socket: Socket,
    pub(crate) purpose: Purpose,
}

impl Listeners {
    /// Notes an event of the listener with this number.
    pub(crate) fn record_ready(&mut self, number: usize) {
        if let Some(listener) = self.all.iter_mut().find(|l| l.number == number) {
            listener.may_have_more = true;
        }
    }

    /// Notes that a connection or a listener was closed, which freed descriptors.
    pub(crate) fn record_closed(&mut self) {
        self.all.iter_mut().for_each(|listener| listener.paused_until = None);
    }

    /// Notes that there is room for an HTTP connection again.
    pub(crate) fn record_room_for_http(&mut self) {
        let waiting = self.all.iter_mut().filter(|listener| listener.awaits_room);
        waiting.for_each(|listener| listener.paused_until = None);
    }

    /// Whether the next turn should come at once.
    pub(crate) fn has_work(&self) -> bool {
        self.all.iter().any(Listener::is_ready)
    }

    /// Counts the descriptors of the daemon itself, while `open` clients and no others are
    /// connected: HTTP and operators have descriptors in reserve.
    pub(crate) fn count_descriptors(&mut self, open: usize) {
        // Without /proc: standard streams, epoll, signals, a few listeners.
        let all = descriptors::open().unwrap_or(16 + open);
        self.accept_budget.others = all.saturating_sub(open + self.all.len());
        self.accept_budget.limit = descriptors::limit();
    }

    /// How many clients there are descriptors for.
    fn capacity(&self) -> usize {
        let has_http = self.all.iter().any(|l| l.purpose() == Purpose::Http);
        let has_unix = self.all.iter().any(|l| l.is_unix && l.purpose() == Purpose::Clients);
        let reserved = DESCRIPTORS_RESERVED
            + if has_http { DESCRIPTORS_FOR_HTTP } else { 0 }
            + if has_unix { DESCRIPTORS_FOR_PASSED } else { 0 };
        self.accept_budget
            .limit
            .saturating_sub(self.accept_budget.others + self.all.len() + reserved)
            .max(1)
    }

    pub(crate) fn start_turn(&mut self, now: Time) {
        self.accept_budget.left = ACCEPTS_PER_TURN;
        // Its listener may have closed since.
        self.accept_budget.in_episode &= self.all.iter().any(|l| l.may_have_more);
        for listener in &mut self.all {
            listener.paused_until = listener.paused_until.filter(|&until| until > now);
        }
    }

    /// How often accepting has failed since the last call.
    pub(crate) fn take_errors(&mut self) -> u64 {
        std::mem::take(&mut self.errors)
    }

    /// Accepts the next connection of this turn, while `open` clients are served.
    /// `None` if there is none, or none that can be served now.
    pub(crate) fn next(&mut self, open: usize, has_room_for_http: bool) -> Option<NewConnection> {
        while self.accept_budget.left > 0 {
            self.accept_budget.current = self.next_ready()?;
            let listener = &self.all[self.accept_budget.current];
            let purpose = listener.purpose_of_next();
            // Operators and HTTP have descriptors in reserve.
            if purpose == Purpose::Clients && open >= self.capacity() {
                self.wait_for_descriptor(Errno::MFILE, open);
                continue;
            }
            if purpose == Purpose::Http && !has_room_for_http {
                self.give_up_for_now();
                self.all[self.accept_budget.current].awaits_room = true;
                continue;
            }
            self.accept_budget.left -= 1;
            match self.all[self.accept_budget.current].accept(purpose) {
                Accepted::Connection(socket) => {
                    self.all[self.accept_budget.current].record_accepted();
                    return Some(NewConnection { socket, purpose });
                }
                Accepted::Aborted(e) => {
                    if self.all[self.accept_budget.current].record_aborted() {
                        self.record_failure(e);
                    }
                }
                Accepted::Nobody => self.record_empty(),
                Accepted::OutOfDescriptors(e) => self.wait_for_descriptor(e, open),
                Accepted::Failed(e) => self.record_failure(e),
            }
        }
        None
    }

    /// The next listener in turn that may have a connection to accept.
    fn next_ready(&self) -> Option<usize> {
        let n = self.all.len();
        (1..=n).map(|i| (self.accept_budget.current + i) % n).find(|&i| self.all[i].is_ready())
    }

    /// Notes that the current listener's queue is empty.
    fn record_empty(&mut self) {
        self.all[self.accept_budget.current].record_empty();
        if !self.all.iter().any(|l| l.may_have_more) {
            self.accept_budget.in_episode = false;
        }
    }

    fn record_failure(&mut self, errno: Errno) {
        self.errors += 1;
        limited!(error, "accepting a connection failed: {errno}");
        self.give_up_for_now();
    }

    /// Pauses the current listener. One that fails while it closes counts as empty.
    fn give_up_for_now(&mut self) {
        match self.all[self.accept_budget.current].stage {
            ListenerStage::Closing => self.record_empty(),
            _ => self.pause(),
        }
    }

    fn pause(&mut self) {
        let listener = &mut self.all[self.accept_budget.current];
        listener.paused_until = Some(clock::now().plus_ns(RETRY_MS * 1_000_000));
        listener.awaits_room = false;
    }

    /// Pauses accepting; new connections stay in the queue. Clients are still served, and
    /// the first that leaves makes room.
    fn wait_for_descriptor(&mut self, errno: Errno, open: usize) {
        if !self.somebody_waits() {
            self.record_empty();
            return;
        }
        let limit = descriptors::limit();
        if std::mem::replace(&mut self.accept_budget.limit, limit) != limit {
            return;
        }
        self.pause();
        if std::mem::replace(&mut self.accept_budget.in_episode, true) {
            return;
        }
        self.errors += 1;
        limited!(
            error,
            "out of descriptors ({errno}): {open} connections are served, others wait in the \
             backlog until one closes; see LimitNOFILE"
        );
    }

    /// Whether the current listener has a connection to accept, without accepting it.
    fn somebody_waits(&self) -> bool {
        let mut fds = [PollFd::new(&self.all[self.accept_budget.current].socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If even poll fails, pausing is safe.
        poll(&mut fds, Some(&at_once)).map_or(true, |ready| ready > 0)
    }
}
