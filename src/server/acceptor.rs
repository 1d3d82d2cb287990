//! When to accept: in fair batches, and not while descriptors are short.

use super::clock;
use super::listener::{Accepted, Listener, Settings};
use super::logging::RateLimit;
use super::unix_socket;
use crate::engine::Time;
use crate::engine::statistics::Counters;
use log::error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::OwnedFd;

/// Newcomers accepted in a turn, before others are served again.
const ACCEPTS_PER_TURN: usize = 64;

/// Descriptors that no connection may take: what the daemon itself opens now
/// and then (to tell systemd something, to hand over to a new binary) must not
/// fail because clients are many.
const DESCRIPTORS_RESERVED: usize = 8;

/// A pause ends when a connection of ours closes. When others hold the
/// machine's descriptors or memory, only trying again tells.
const RETRY_MS: u64 = 1_000;

/// The listeners, and whether they may be accepted from.
pub(super) struct Acceptor {
    listeners: Vec<Listener>,
    /// Whose turn it is, so that a crowd at one does not shut out another.
    next: usize,
    left_this_turn: usize,
    /// How many connections descriptors suffice for.
    capacity: usize,
    /// Accepting is paused until then, or until a connection closes.
    paused_until: Option<Time>,
    /// Since descriptors ran out, the backlog has not been empty: that is one
    /// episode, however often it is tried.
    in_episode: bool,
    episode_log: RateLimit,
    failure_log: RateLimit,
    /// The listeners are shut.
    draining: bool,
}

impl Acceptor {
    /// To be called when the daemon has opened all it needs for itself, and
    /// serves `open` connections already.
    pub(super) fn new(listeners: Vec<Listener>, draining: bool, open: usize) -> Self {
        Acceptor {
            listeners,
            next: 0,
            left_this_turn: 0,
            capacity: connections_possible(open),
            paused_until: None,
            in_episode: false,
            episode_log: RateLimit::default(),
            failure_log: RateLimit::default(),
            draining,
        }
    }

    pub(super) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Refuses newcomers from now on.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        for listener in &mut self.listeners {
            if let Err(e) = listener.shut() {
                error!("{} could not be shut: {e}", listener.name);
            }
        }
    }

    /// Listens again. `watch` is called for each listener whose socket is another
    /// one now.
    ///
    /// # Errors
    /// Which listener could not be had again, and why. The others are open.
    pub(super) fn undrain(
        &mut self,
        settings: &Settings,
        watch: impl Fn(usize, &OwnedFd) -> io::Result<()>,
    ) -> Result<(), String> {
        self.draining = false;
        let mut result = Ok(());
        for (n, listener) in self.listeners.iter_mut().enumerate() {
            let reopened = listener.reopen(settings).and_then(|replaced| match replaced {
                true => watch(n, &listener.socket),
                false => Ok(()),
            });
            if let Err(e) = reopened {
                result = Err(format!("{} could not be opened again: {e}", listener.name));
            }
        }
        result
    }

    /// Forgets the paths of our Unix sockets.
    pub(super) fn remove_paths(&self) {
        self.listeners.iter().filter_map(Listener::unix_path).for_each(unix_socket::remove);
    }

    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.listeners.iter().map(|l| l.name.as_str()).collect();
        names.join(", ")
    }

    /// Listener `n` has an event.
    pub(super) fn note_ready(&mut self, n: usize) {
        // A listener that is shut has events too, but nobody to accept.
        if !self.draining {
            if let Some(listener) = self.listeners.get_mut(n) {
                listener.may_have_more = true;
            }
        }
    }

    /// Any listener may have somebody, whose event is still to come.
    pub(super) fn note_all_ready(&mut self) {
        self.listeners.iter_mut().for_each(|listener| listener.may_have_more = true);
    }

    /// A connection was closed: a descriptor is free.
    pub(super) fn note_closed(&mut self) {
        self.paused_until = None;
    }

    pub(super) fn start_turn(&mut self) {
        self.start_batch(ACCEPTS_PER_TURN);
    }

    /// Lets [`Acceptor::next`] accept `size` newcomers.
    pub(super) fn start_batch(&mut self, size: usize) {
        self.left_this_turn = size;
        if self.paused_until.is_some_and(|until| clock::now() >= until) {
            self.paused_until = None;
        }
    }

    /// Whether the next turn should come at once.
    pub(super) fn has_work(&self) -> bool {
        self.paused_until.is_none() && self.listeners.iter().any(|l| l.may_have_more)
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.paused_until
    }

    /// Accepts the next newcomer of this turn, while `open` connections are
    /// served. `None` when there is none, or none that could be served now.
    pub(super) fn next(&mut self, open: usize, counters: &mut Counters) -> Option<OwnedFd> {
        while self.has_work() && self.left_this_turn > 0 {
            self.next = self.next_ready()?;
            if open >= self.capacity {
                self.wait_for_descriptor(Errno::MFILE, open, counters);
                continue;
            }
            self.left_this_turn -= 1;
            match self.listeners[self.next].accept() {
                Accepted::Connection(socket) => return Some(socket),
                Accepted::Aborted => {}
                Accepted::Nobody => self.note_empty(),
                Accepted::OutOfDescriptors(e) => self.wait_for_descriptor(e, open, counters),
                Accepted::Failed(e) => {
                    counters.connect_errors += 1;
                    if let Some(suppressed) = self.failure_log.admit() {
                        error!("accepting a connection failed: {e}{suppressed}");
                    }
                    self.pause();
                }
            }
        }
        None
    }

    /// The next listener, in turn, that may have somebody.
    fn next_ready(&self) -> Option<usize> {
        let n = self.listeners.len();
        (1..=n).map(|i| (self.next + i) % n).find(|&i| self.listeners[i].may_have_more)
    }

    /// Nobody waits at the current listener.
    fn note_empty(&mut self) {
        self.listeners[self.next].may_have_more = false;
        if !self.listeners.iter().any(|l| l.may_have_more) {
            self.in_episode = false;
        }
    }

    fn pause(&mut self) {
        self.paused_until = Some(clock::now().plus_ns(RETRY_MS * 1_000_000));
    }

    /// Stops accepting; who waits in the backlog waits on. Clients are served,
    /// and the first that leaves makes room.
    fn wait_for_descriptor(&mut self, errno: Errno, open: usize, counters: &mut Counters) {
        if !self.somebody_waits() {
            self.note_empty();
            return;
        }
        self.pause();
        if std::mem::replace(&mut self.in_episode, true) {
            return;
        }
        counters.connect_errors += 1;
        if let Some(suppressed) = self.episode_log.admit() {
            error!(
                "out of descriptors ({errno}): {open} connections are served, others wait \
                 in the backlog until one closes; see LimitNOFILE{suppressed}"
            );
        }
    }

    /// Whether the current listener has somebody, without accepting.
    fn somebody_waits(&self) -> bool {
        let mut fds = [PollFd::new(&self.listeners[self.next].socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // When even that fails, pausing is the safe answer.
        poll(&mut fds, Some(&at_once)).map_or(true, |ready| ready > 0)
    }
}

/// The limit of descriptors, less what is reserved and what is open for other
/// purposes than the `open` connections.
fn connections_possible(open: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // Without /proc: standard streams, epoll, signals, a few listeners.
    let all = descriptors_open().unwrap_or(16 + open);
    let others = all.saturating_sub(open);
    limit.saturating_sub(others + DESCRIPTORS_RESERVED).max(1)
}

/// The directory's size is how many there are, since Linux 6.2
/// (proc_pid_fd(5)): listing them takes milliseconds of a hot restart.
fn descriptors_open() -> Option<usize> {
    const DIRECTORY: &str = "/proc/self/fd";
    let size = std::fs::metadata(DIRECTORY).ok()?.len();
    if size > 0 {
        return usize::try_from(size).ok();
    }
    Some(std::fs::read_dir(DIRECTORY).ok()?.count())
}
