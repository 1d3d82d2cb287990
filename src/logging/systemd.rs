//! Notifies systemd: sd_notify(3). Without systemd nothing happens, and a systemd that
//! does not read never blocks the daemon.

use crate::logging::rate_limit::limited;
use crate::logging::stderr::has_room;
use crate::platform::clock;
use crate::platform::failed_call::named;
use crate::platform::os::env;
use crate::platform::os::event::Timespec;
use crate::platform::os::fd::{AsFd, OwnedFd};
use crate::platform::os::io::Errno;
use crate::platform::os::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use crate::platform::supervisor;
use engine::Time;
use log::warn;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;

/// How often to notify, without a watchdog that wants it more often.
const INTERVAL_NS: u64 = 5_000_000_000;

/// How often at most, whatever the watchdog wants.
const INTERVAL_NS_MIN: u64 = 10_000_000;

/// How long the daemon's exit may wait for systemd to read.
const EXIT_WAIT_NS: i64 = 200_000_000;

const STOPPING: &str = "STOPPING=1\n";

/// The daemon's side of systemd's notification protocol. Every message contains everything,
/// so the next one makes up for a lost one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    channel: Option<Channel>,
    interval_ns: u64,
    next_message: Time,
    reload: Reload,
}

/// What systemctl shows of the daemon.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) connections: usize,
    /// Locks that are held.
    pub(crate) held: u64,
    /// Clients that wait for a lock.
    pub(crate) waiting: u64,
    pub(crate) keys: u64,
    pub(crate) is_draining: bool,
}

/// What the service manager knows of a hot restart. Units of `Type=notify-reload` wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reload {
    None,
    /// It must not be told that the daemon is ready.
    UnderWay,
    /// It must be told of the restart first: an earlier message may be lost.
    Ended,
}

impl ServiceManager {
    pub(crate) fn find() -> Self {
        // Twice in the time that sd_watchdog_enabled(3) recommends, so one may be lost.
        let watchdog_ns = supervisor::watchdog_ns().map(|ns| ns / 4);
        ServiceManager {
            channel: Channel::find(),
            interval_ns: watchdog_ns.unwrap_or(INTERVAL_NS).clamp(INTERVAL_NS_MIN, INTERVAL_NS),
            next_message: clock::now(),
            reload: Reload::None,
        }
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        self.channel.iter().filter(|channel| channel.socket.is_some()).count()
    }

    /// Notes that a hot restart begins.
    pub(crate) fn begin_reload(&mut self, now: Time) {
        self.reload = Reload::UnderWay;
        if let Some(channel) = &mut self.channel {
            // The end of the restart repeats it.
            let _ = channel.send(&reloading(now));
        }
    }

    /// Notes that a hot restart has ended, or was refused.
    pub(crate) fn end_reload(&mut self, now: Time) {
        self.reload = Reload::Ended;
        self.next_message = now;
    }

    /// When [`ServiceManager::notify`] has something to send.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.channel.as_ref().map(|_| self.next_message)
    }

    /// Sends the message that is due at `now`, if any: the daemon is ready, alive, and has
    /// this to do.
    pub(crate) fn notify(&mut self, status: &Status, now: Time) {
        let Some(channel) = self.channel.as_mut().filter(|_| now >= self.next_message) else {
            return;
        };
        self.next_message = now.plus_ns(self.interval_ns);
        if self.reload == Reload::Ended {
            if let Err(e) = channel.send(&reloading(now)) {
                return limited!(debug, "can't notify systemd of a restart now: {e}");
            }
            self.reload = Reload::None;
        }
        let ready = if self.reload == Reload::UnderWay { "" } else { "READY=1\n" };
        let Status { connections, held, waiting, keys, is_draining } = status;
        let state = if *is_draining { "draining: " } else { "" };
        let message = format!(
            "{ready}WATCHDOG=1\nSTATUS={state}{connections} connections, {held} locks held, {waiting} waiting, {keys} keys\n",
        );
        if let Err(e) = channel.send(&message) {
            limited!(debug, "can't notify systemd now: {e}");
        }
    }

    /// Tells the watchdog, if that is due, in the middle of a long turn that the daemon is alive.
    pub(crate) fn notify_watchdog(&mut self, now: Time) {
        if let Some(channel) = self.channel.as_mut().filter(|_| now >= self.next_message) {
            if let Err(e) = channel.send("WATCHDOG=1\n") {
                limited!(debug, "can't notify systemd now: {e}");
            }
            self.next_message = now.plus_ns(INTERVAL_NS_MIN);
        }
    }

    /// Reports that the daemon stops. Returns false if it must be sent again.
    pub(crate) fn stopping(&mut self) -> bool {
        self.channel.as_mut().is_none_or(|channel| channel.send(STOPPING).is_ok())
    }

    /// Sends it again, and waits for systemd a moment. To be called last of all.
    pub(crate) fn stopping_at_last(mut self) {
        if let Some(channel) = &mut self.channel {
            channel.wait_a_moment();
            // There is no later attempt.
            let _ = channel.send(STOPPING);
        }
    }
}

fn reloading(now: Time) -> String {
    format!("RELOADING=1\nMONOTONIC_USEC={}\n", now.as_ns() / 1_000)
}

/// The socket that `NOTIFY_SOCKET` names.
#[derive(Debug)]
struct Channel {
    address: SocketAddrUnix,
    /// Connected, so that it becomes writable when systemd reads. `None` before the
    /// first message and after an error, because systemd may have replaced its socket.
    socket: Option<OwnedFd>,
    /// As the variable has it.
    name: String,
    /// No message has arrived yet, and nothing was said about it.
    may_be_wrong: bool,
}

fn warn_unusable(name: &str, e: &io::Error) {
    warn!("NOTIFY_SOCKET={name:?} is unusable: {e}");
}

impl Channel {
    fn find() -> Option<Self> {
        let name = env::var_os("NOTIFY_SOCKET").map(OsString::into_vec)?;
        if name.is_empty() {
            return None;
        }
        let address = match name.split_first() {
            Some((b'/', _)) => SocketAddrUnix::new(name.as_slice()),
            Some((b'@', rest)) if !rest.is_empty() => SocketAddrUnix::new_abstract_name(rest),
            Some((b'@', _)) => Err(Errno::INVAL),
            _ => Err(Errno::AFNOSUPPORT),
        };
        let name = String::from_utf8_lossy(&name).into_owned();
        match address {
            Ok(address) => Some(Channel { address, socket: None, name, may_be_wrong: true }),
            Err(e) => {
                warn_unusable(&name, &e.into());
                None
            }
        }
    }

    /// Sends one datagram, or fails at once. The first failure is a warning: a later one is most
    /// likely systemd's restart.
    fn send(&mut self, message: &str) -> io::Result<()> {
        let sent = self.try_to_send(message);
        let is_busy = matches!(&sent, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        if !is_busy && std::mem::take(&mut self.may_be_wrong) {
            let _ = sent.as_ref().inspect_err(|e| warn_unusable(&self.name, e));
        }
        sent
    }

    fn try_to_send(&mut self, message: &str) -> io::Result<()> {
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
                Err(named("sendto")(e))
            }
        }
    }

    fn open(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        let socket = socket.map_err(named("socket"))?;
        connect(&socket, &self.address).map_err(named("connect"))?;
        Ok(socket)
    }

    /// Waits until systemd reads, at most [`EXIT_WAIT_NS`].
    fn wait_a_moment(&self) {
        if let Some(socket) = &self.socket {
            // The next send shows whether it does.
            has_room(socket.as_fd(), &Timespec { tv_sec: 0, tv_nsec: EXIT_WAIT_NS });
        }
    }
}
