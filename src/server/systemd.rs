//! Notifies systemd: sd_notify(3). Without systemd nothing happens, and a systemd that
//! does not read never blocks the daemon.

use super::clock;
use super::logging::limited;
use super::world::event::{PollFd, PollFlags, Timespec, poll};
use super::world::fd::OwnedFd;
use super::world::io::Errno;
use super::world::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use super::world::{Engine, env, sd_notify};
use crate::engine::Time;
use log::warn;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// How often to update the numbers of `systemctl status`.
const STATUS_INTERVAL_NS: u64 = 10_000_000_000;

/// How long to wait before retrying a failed message.
const RETRY_NS: u64 = 500_000_000;

/// How long the daemon's exit may wait for systemd to read.
const MOMENT_NS: i64 = 200_000_000;

/// Our side of systemd's notification protocol.
#[derive(Debug)]
pub(super) struct ServiceManager {
    channel: Option<Channel>,
    /// How often to notify the watchdog: at half its timeout
    /// (sd_watchdog_enabled(3)).
    watchdog_interval_ns: Option<u64>,
    next_watchdog: Time,
    next_status: Time,
    /// READY=1 or STOPPING=1, until it is sent.
    owed: Option<&'static str>,
    /// After a failed message, the earliest time of the next one.
    next_try: Time,
}

impl ServiceManager {
    pub(super) fn find() -> Self {
        let now = clock::now();
        let watchdog = sd_notify::watchdog_enabled();
        ServiceManager {
            channel: Channel::find(),
            watchdog_interval_ns: watchdog.map(|timeout| timeout.as_nanos() as u64 / 2),
            next_watchdog: now,
            next_status: now,
            owed: None,
            next_try: now,
        }
    }

    pub(super) fn ready(&mut self) {
        self.tell_until_told("READY=1\n");
    }

    pub(super) fn stopping(&mut self) {
        self.tell_until_told("STOPPING=1\n");
    }

    /// Waits once, briefly, if systemd has not been told yet that the daemon stops. To be
    /// called last of all.
    pub(super) fn flush_before_exit(mut self) {
        let (Some(owed), Some(channel)) = (self.owed, &mut self.channel) else {
            return;
        };
        channel.wait_a_moment();
        // There is no later attempt.
        let _ = channel.send(owed);
    }

    fn tell_until_told(&mut self, state: &'static str) {
        self.owed = Some(state);
        if self.tell(state) {
            self.owed = None;
        }
    }

    /// When [`ServiceManager::keep_informed`] has something to send.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.channel.as_ref()?;
        let watchdog = self.watchdog_interval_ns.map(|_| self.next_watchdog);
        let owed = self.owed.map(|_| self.next_try);
        let next = [watchdog, owed, Some(self.next_status)].into_iter().flatten().min();
        next.map(|time| time.max(self.next_try))
    }

    /// Sends the messages due at `now`.
    pub(super) fn keep_informed(&mut self, connections: usize, engine: &Engine, now: Time) {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let mut message = self.owed.unwrap_or_default().to_owned();
        if self.watchdog_interval_ns.is_some() && now >= self.next_watchdog {
            message.push_str("WATCHDOG=1\n");
        }
        if now >= self.next_status {
            let counters = &engine.counters;
            message.push_str(&format!(
                "STATUS={connections} connections, {} locks held, {} waiting, {} keys\n",
                counters.processing_workers, counters.waiting_workers, counters.hashtable_entries,
            ));
        }
        if self.tell(&message) {
            self.note_told(now);
        }
    }

    /// Notes that everything due at `now` was sent.
    fn note_told(&mut self, now: Time) {
        self.owed = None;
        if let Some(interval_ns) = self.watchdog_interval_ns.filter(|_| now >= self.next_watchdog) {
            self.next_watchdog = now.plus_ns(interval_ns);
        }
        if now >= self.next_status {
            self.next_status = now.plus_ns(STATUS_INTERVAL_NS);
        }
    }

    /// Sends a message; returns false if it must be sent later.
    fn tell(&mut self, message: &str) -> bool {
        let Some(channel) = &mut self.channel else {
            return true;
        };
        let Err(e) = channel.send(message) else {
            return true;
        };
        // Retries in time for the watchdog.
        let retry_ns = self.watchdog_interval_ns.map_or(RETRY_NS, |ns| RETRY_NS.min(ns / 2));
        self.next_try = clock::now().plus_ns(retry_ns);
        limited!(debug, "can't tell systemd {message:?} now: {e}");
        false
    }
}

/// The socket that `NOTIFY_SOCKET` names.
#[derive(Debug)]
struct Channel {
    address: SocketAddrUnix,
    /// Connected, so that it becomes writable when systemd reads. `None` before the
    /// first message and after an error, because systemd may have replaced its socket.
    socket: Option<OwnedFd>,
}

impl Channel {
    fn find() -> Option<Self> {
        let name = env::var_os("NOTIFY_SOCKET").map(OsString::into_vec)?;
        let address = match name.split_first() {
            Some((b'/', _)) => SocketAddrUnix::new(name.as_slice()),
            Some((b'@', rest)) => SocketAddrUnix::new_abstract_name(rest),
            _ => Err(Errno::AFNOSUPPORT),
        };
        match address {
            Ok(address) => Some(Channel { address, socket: None }),
            Err(e) => {
                warn!("NOTIFY_SOCKET={:?} is unusable: {e}", String::from_utf8_lossy(&name));
                None
            }
        }
    }

    /// Sends one datagram, or fails at once.
    fn send(&mut self, message: &str) -> Result<(), Errno> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.open()?,
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&socket, message.as_bytes(), flags) {
            Ok(_) => {
                self.socket = Some(socket);
                Ok(())
            }
            Err(e) => {
                self.socket = (e == Errno::AGAIN).then_some(socket);
                Err(e)
            }
        }
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        connect(&socket, &self.address)?;
        Ok(socket)
    }

    /// Waits until systemd reads, at most [`MOMENT_NS`].
    fn wait_a_moment(&self) {
        if let Some(socket) = &self.socket {
            let mut wanted = [PollFd::new(socket, PollFlags::OUT)];
            let timeout = Timespec { tv_sec: 0, tv_nsec: MOMENT_NS };
            // The next send shows whether it does.
            let _ = poll(&mut wanted, Some(&timeout));
        }
    }
}
