//! One listening socket: checks it, adopts it, accepts from it, pauses it, begins to close it; its
//! backlog.

use crate::listening::addresses::{Purpose, Wanted};
use crate::listening::unix_socket::{self, SocketFile};
use crate::options::Options;
use crate::platform::failed_call::named;
use crate::platform::os::event::{PollFd, PollFlags, Timespec, poll};
use crate::platform::os::fd::{AsRawFd, OwnedFd, RawFd};
use crate::platform::os::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use crate::platform::os::net::{
    Shutdown, SocketFlags, SocketType, accept_with, ipproto, listen, shutdown, sockopt,
};
use crate::platform::socket_name::{SocketName, UNIX_PREFIX};
use crate::platform::sys::{self, inherited_descriptor};
use crate::sockets::options::{RefusedOptions, set_options};
use crate::sockets::socket::Socket;
use engine::Time;
use log::error;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;

/// Whether clients can be accepted from a socket that another process bound.
fn is_servable(socket: &OwnedFd) -> io::Result<bool> {
    /// Of Multipath TCP, which is TCP to an application; libc lacks it for some C libraries.
    const IPPROTO_MPTCP: u32 = 262;
    let is_stream = told(sockopt::socket_type(socket), SocketType::STREAM)? == SocketType::STREAM;
    let is_listening = is_stream && told(sockopt::socket_acceptconn(socket), true)?;
    let is_tcp = match sys::own_name(socket) {
        Ok(SocketName::Tcp(_)) => true,
        Ok(_) => return Ok(is_listening),
        Err(Errno::AFNOSUPPORT) => false,
        Err(e) => return Err(named("getsockname")(e)),
    };
    // Not SCTP, which has stream sockets, too.
    let protocol = told(sockopt::socket_protocol(socket), Some(ipproto::TCP))?;
    let protocol = protocol.map(|protocol| protocol.as_raw().get());
    let is_tcp = is_tcp
        && (protocol == Some(ipproto::TCP.as_raw().get()) || protocol == Some(IPPROTO_MPTCP));
    Ok(is_listening && is_tcp)
}

/// What an option tells of a socket; `expected` if it is no option here: who passes a socket has
/// most likely passed the right one.
fn told<T>(option: Result<T, Errno>, expected: T) -> io::Result<T> {
    match option {
        Err(e @ (Errno::NOTSOCK | Errno::BADF)) => Err(e.into()),
        option => Ok(option.unwrap_or(expected)),
    }
}

/// Settings that all listeners share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketSettings {
    pub(crate) backlog: i32,
    /// 0 turns keepalive off.
    pub(crate) keepalive_s: u32,
}

impl SocketSettings {
    pub(crate) fn new(options: &Options) -> Self {
        SocketSettings { backlog: options.backlog, keepalive_s: options.keepalive }
    }
}

/// Clients that leave early make no more errors of new connections in a row.
const ABORTED_MAX: usize = 100;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    /// The address it is bound to, as logs show it.
    pub(crate) name: String,
    /// It is a Unix socket.
    pub(crate) is_unix: bool,
    /// The option that asked for it; `None` for an inherited socket.
    pub(crate) wanted: Option<Wanted>,
    /// The file of a Unix socket that this daemon bound.
    pub(crate) file: Option<SocketFile>,
    pub(crate) stage: ListenerStage,
    /// Its queue may contain connections; only accept(2) shows.
    may_have_more: bool,
    /// Connections that may be in its queue since before it began to close, or got another
    /// purpose.
    earlier: Earlier,
    pause: Option<Pause>,
    /// How many times in a row accept(2) has reported errors of new connections.
    aborted: usize,
    /// The number in its token.
    pub(crate) number: usize,
}

/// Nothing is accepted from a listener, whatever is in its queue.
#[derive(Debug)]
struct Pause {
    cause: PauseCause,
    /// It ends then at the latest.
    until: Time,
}

/// Why accepting pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseCause {
    /// Accepting has failed, or descriptors are scarce: until a connection closes.
    Failure,
    /// Until there is room for an HTTP connection; accepting has not failed.
    NoRoomForHttp,
}

/// The first connections in a queue. The daemon does not wait for a crowd that keeps
/// connecting.
#[derive(Clone, Copy, Debug, Default)]
struct Earlier {
    count: usize,
    /// They came while it was for clients.
    are_clients: bool,
}

/// A listener's stage of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListenerStage {
    /// It accepts connections.
    Open,
    /// Its queue no longer grows; the connections in it are still accepted.
    Closing,
    /// Its queue is empty: it will be closed.
    Finished,
}

/// What a hot restart carries over of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerState {
    /// Its descriptor.
    pub fd: RawFd,
    /// The address it is bound to, as logs show it.
    pub name: String,
    /// The option that asked for it; `None` for an inherited socket, which options
    /// do not affect.
    pub wanted: Option<Wanted>,
    /// The file of a Unix socket that the daemon bound.
    pub file: Option<SocketFile>,
    /// Its stage of life.
    pub life: ListenerStage,
    /// It was for clients, of which some may still be in its queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_hold_clients: bool,
    /// How many connections may be in its queue since before it began to close, or got another
    /// purpose.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The result of accepting once.
pub(crate) enum Accepted {
    Connection(Socket),
    /// An error of the new connection; others may follow.
    Aborted(Errno),
    /// The queue is empty.
    Nobody,
    /// No descriptor is free, or no memory for one.
    OutOfDescriptors(Errno),
    Failed(Errno),
}

impl Listener {
    /// Accepts one connection. accept(2) also reports network errors of the new
    /// connection, which affect only that connection.
    pub(crate) fn accept(&self, purpose: Purpose) -> Accepted {
        let flags = match purpose {
            // Not close-on-exec: a hot restart keeps it without another system call.
            Purpose::Clients => SocketFlags::NONBLOCK,
            Purpose::Control | Purpose::Http => SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        };
        match accept_with(&self.socket, flags) {
            Ok(socket) => Accepted::Connection(Socket::new(socket, self.is_unix)),
            Err(Errno::AGAIN) => Accepted::Nobody,
            Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                Accepted::OutOfDescriptors(e)
            }
            Err(
                e @ (Errno::INTR
                | Errno::CONNABORTED
                | Errno::NETDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH),
            ) => Accepted::Aborted(e),
            // EPERM too: a security module refuses before the connection is taken from the queue.
            Err(e) => Accepted::Failed(e),
        }
    }

    /// Takes over a listening socket that another process bound.
    pub(crate) fn inherit(
        socket: OwnedFd,
        settings: &SocketSettings,
        refused: &mut RefusedOptions,
    ) -> io::Result<Self> {
        if !is_servable(&socket)? {
            return Err(io::Error::other("not a listening stream socket of TCP or Unix"));
        }
        ioctl_fionbio(&socket, true).map_err(named("ioctl(FIONBIO)"))?;
        fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(named("fcntl(F_SETFD)"))?;
        sys::reset_waits(&socket);
        let listener = Self::new(socket, None, None)?;
        listener.apply(settings, refused)?;
        Ok(listener)
    }

    /// A bound socket, which listens after [`Listener::apply`].
    pub(crate) fn new(
        socket: OwnedFd,
        wanted: Option<Wanted>,
        file: Option<SocketFile>,
    ) -> io::Result<Self> {
        let name = sys::own_name(&socket).map_err(named("getsockname"))?.to_string();
        Ok(Self::with(socket, name, wanted, file, ListenerStage::Open))
    }

    /// Continues a listener of the old image.
    pub(crate) fn resume(state: ListenerState) -> io::Result<Self> {
        let socket = inherited_descriptor(state.fd)?;
        // `--free-port` sets SO_LINGER.
        sys::reset_waits(&socket);
        let ListenerState { name, wanted, file, life, may_hold_clients, left, .. } = state;
        let mut listener = Self::with(socket, name, wanted, file, life);
        listener.earlier = Earlier { count: left, are_clients: may_hold_clients };
        Ok(listener)
    }

    fn with(
        socket: OwnedFd,
        name: String,
        wanted: Option<Wanted>,
        file: Option<SocketFile>,
        life: ListenerStage,
    ) -> Self {
        Listener {
            is_unix: name.starts_with(UNIX_PREFIX),
            socket,
            name,
            wanted,
            file,
            stage: life,
            may_have_more: true,
            earlier: Earlier::default(),
            pause: None,
            aborted: 0,
            number: 0,
        }
    }

    /// What a hot restart carries over.
    pub(crate) fn state(&self) -> ListenerState {
        ListenerState {
            fd: self.socket.as_raw_fd(),
            name: self.name.clone(),
            wanted: self.wanted.clone(),
            file: self.file,
            life: self.stage,
            may_hold_clients: self.earlier.are_clients,
            left: self.earlier.count,
        }
    }

    /// Keeps it as `wanted`, which may give it another purpose.
    pub(crate) fn adopt(&mut self, wanted: Wanted, settings: &SocketSettings) {
        if self.purpose() == Purpose::Clients && wanted.purpose() != Purpose::Clients {
            self.earlier = Earlier { count: self.queued(settings), are_clients: true };
        }
        self.wanted = Some(wanted);
    }

    /// The purpose of its next connection: a client that is still in the queue must
    /// not become an operator.
    pub(crate) fn purpose_of_next(&self) -> Purpose {
        if self.earlier.are_clients { Purpose::Clients } else { self.purpose() }
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.wanted.as_ref().map_or(Purpose::Clients, Wanted::purpose)
    }

    /// Its name and purpose, for operators.
    pub(super) fn described(&self) -> String {
        match self.purpose() {
            Purpose::Clients => self.name.clone(),
            Purpose::Http => format!("HTTP on {}", self.name),
            Purpose::Control => {
                format!("control socket {}", self.name.trim_start_matches(UNIX_PREFIX))
            }
        }
    }

    /// Whether an IPv6 socket leaves IPv4 to other sockets.
    pub(super) fn is_v6_only(&self) -> bool {
        // IPv4 and Unix sockets have no such option.
        sockopt::ipv6_v6only(&self.socket).unwrap_or(false)
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.wanted.is_none()
    }

    /// The address of a TCP socket that this daemon bound.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        self.name.parse().ok().filter(|_| !self.is_inherited())
    }

    /// Whether this is the `wanted` listener; its purpose, mode and group may differ.
    /// Port 0 matches any port of the same purpose.
    pub(crate) fn is(&self, wanted: &Wanted) -> bool {
        match (&self.wanted, wanted) {
            (Some(Wanted::Tcp { .. }), Wanted::Tcp { address, purpose, .. }) => {
                let is_any_port = address.port() == 0 && *purpose == self.purpose();
                self.tcp_address().is_some_and(|mut bound| {
                    bound.set_port(if is_any_port { 0 } else { bound.port() });
                    bound == *address
                })
            }
            (Some(Wanted::Unix { path: ours, .. }), Wanted::Unix { path: theirs, .. }) => {
                // Another way to write the path leads to the same file.
                let is_there = |file| unix_socket::is_at(theirs, file);
                ours == theirs || self.file.is_some_and(is_there)
            }
            _ => false,
        }
    }

    /// Whether clients can still reach it: a Unix socket's file may have been deleted
    /// or replaced.
    pub(crate) fn can_be_found(&self) -> bool {
        match (&self.wanted, self.file) {
            (Some(Wanted::Unix { path, .. }), Some(file)) => unix_socket::is_at(path, file),
            _ => true,
        }
    }

    /// Removes the file of a Unix socket that this daemon bound.
    pub(crate) fn remove_file(&self) {
        if let (Some(Wanted::Unix { path, .. }), Some(file)) = (&self.wanted, self.file) {
            unix_socket::remove(path, file);
        }
    }

    /// Whether accepting may yield a connection now.
    pub(crate) fn is_ready(&self) -> bool {
        self.may_have_more && self.pause.is_none() && self.stage != ListenerStage::Finished
    }

    /// Whether its queue may contain connections.
    pub(crate) fn may_have_more(&self) -> bool {
        self.may_have_more
    }

    /// Whether its queue contains a connection, without accepting it.
    pub(crate) fn has_connection(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If even poll fails, pausing is safe.
        poll(&mut fds, Some(&at_once)).map_or(true, |ready| ready > 0)
    }

    /// Pauses accepting until then at the latest.
    pub(crate) fn pause(&mut self, until: Time, cause: PauseCause) {
        self.pause = Some(Pause { cause, until });
    }

    /// When its pause ends at the latest.
    pub(crate) fn paused_until(&self) -> Option<Time> {
        self.pause.as_ref().map(|pause| pause.until)
    }

    pub(crate) fn end_pause(&mut self) {
        self.pause = None;
    }

    /// Ends a pause that was for this `cause`.
    pub(crate) fn end_pause_for(&mut self, cause: PauseCause) {
        self.pause.take_if(|pause| pause.cause == cause);
    }

    /// Ends a pause whose time is over.
    pub(crate) fn end_pause_if_over(&mut self, now: Time) {
        self.pause.take_if(|pause| pause.until <= now);
    }

    /// Notes an event: its queue may contain connections.
    pub(crate) fn record_ready(&mut self) {
        self.may_have_more = true;
    }

    /// Notes that it has accepted one from its queue.
    pub(crate) fn record_accepted(&mut self) {
        self.aborted = 0;
        self.earlier.count = self.earlier.count.saturating_sub(1);
        if self.earlier.count == 0 {
            self.record_none_left();
        }
    }

    /// Notes an error of a new connection. Returns whether there were so many in a row that
    /// accepting itself must be failing.
    pub(crate) fn record_aborted(&mut self) -> bool {
        self.aborted += 1;
        self.aborted % ABORTED_MAX == 0
    }

    /// Notes that its queue is empty.
    pub(crate) fn record_empty(&mut self) {
        self.may_have_more = false;
        self.record_none_left();
    }

    fn record_none_left(&mut self) {
        self.earlier = Earlier::default();
        if self.stage == ListenerStage::Closing {
            self.stage = ListenerStage::Finished;
        }
    }

    /// Opens it for new connections, also after a drain.
    pub(crate) fn open(&mut self, settings: &SocketSettings) {
        if self.stage != ListenerStage::Open {
            self.stage = ListenerStage::Open;
            self.set_backlog(settings.backlog);
        }
        self.may_have_more = true;
    }

    /// Stops the growth of its queue. (With a backlog of 0 the kernel still puts one
    /// connection into an empty queue.)
    pub(crate) fn begin_to_close(&mut self, settings: &SocketSettings) {
        if self.stage == ListenerStage::Open {
            self.stage = ListenerStage::Closing;
            self.set_backlog(0);
            self.earlier.count = self.queued(settings);
        }
        self.may_have_more = true;
        self.pause = None;
    }

    /// How many connections may be in its queue. For a Unix socket, the kernel does not report
    /// the number.
    fn queued(&self, settings: &SocketSettings) -> usize {
        sys::accept_queue_len(&self.socket).unwrap_or(settings.backlog as usize + 1)
    }

    pub(super) fn set_backlog(&self, backlog: i32) {
        // On a listening socket, listen(2) only changes the backlog.
        if let Err(e) = listen(&self.socket, backlog).map_err(named::<Errno>("listen")) {
            error!("the backlog of {} can't be changed: {e}", self.name);
        }
    }

    /// Listens, and sets the options that accepted connections inherit. Adds those that it lacks,
    /// such as a Multipath TCP socket does, to `refused`.
    pub(crate) fn apply(
        &self,
        settings: &SocketSettings,
        refused: &mut RefusedOptions,
    ) -> io::Result<()> {
        set_options(&self.socket, &self.name, self.is_unix, settings.keepalive_s, refused);
        let backlog = if self.stage == ListenerStage::Open { settings.backlog } else { 0 };
        listen(&self.socket, backlog).map_err(named("listen"))
    }
}

impl Drop for Listener {
    /// Clients in the queue of a Unix socket may have passed descriptors already, which
    /// [`Socket`] closes. Other processes may still accept from an inherited socket.
    fn drop(&mut self) {
        if self.is_unix && !self.is_inherited() {
            let _ = shutdown(&self.socket, Shutdown::Both);
            loop {
                match self.accept(self.purpose()) {
                    Accepted::Connection(_) => {}
                    Accepted::Aborted(_) if !self.record_aborted() => {}
                    _ => break,
                }
            }
        }
    }
}
