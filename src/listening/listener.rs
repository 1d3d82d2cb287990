//! One listening socket: checks it, adopts it, accepts from it, pauses it, begins to close it; its
//! backlog.

use crate::listening::addresses::{Purpose, Wanted, WantedControl, WantedTcp};
use crate::listening::unix_socket::{self, SocketFile};
use crate::options::Options;
use crate::platform::failed_call::named;
use crate::platform::os::event::{PollFd, PollFlags, Timespec, poll};
use crate::platform::os::fd::{AsRawFd, OwnedFd, RawFd};
use crate::platform::os::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use crate::platform::os::net::{
    Shutdown, SocketFlags, SocketType, accept_with, ipproto, listen, shutdown, sockopt,
};
use crate::platform::sys::{self, inherited_descriptor};
use crate::sockets::options::{RefusedOptions, set_options};
use crate::sockets::socket::{Socket, own_address, tell};
use engine::Time;
use log::error;
use protocol::answers::NOT_HEARD;
use protocol::key_text;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;

/// Whether clients can be accepted from a socket that another process bound.
fn is_servable(socket: &OwnedFd) -> io::Result<bool> {
    /// Of Multipath TCP, which is TCP to an application; libc lacks it for some C libraries.
    const IPPROTO_MPTCP: u32 = 262;
    let is_stream = told(sockopt::socket_type(socket), SocketType::STREAM)? == SocketType::STREAM;
    let is_listening = is_stream && told(sockopt::socket_acceptconn(socket), true)?;
    let is_ip = match own_address(socket) {
        Ok(_) => true,
        Err(Errno::AFNOSUPPORT) => false,
        Err(e) => return Err(named("getsockname")(e)),
    };
    // Not SCTP, which has stream sockets, too.
    let protocol = told(sockopt::socket_protocol(socket), Some(ipproto::TCP))?;
    let protocol = protocol.map(|protocol| protocol.as_raw().get());
    let is_tcp =
        is_ip && (protocol == Some(ipproto::TCP.as_raw().get()) || protocol == Some(IPPROTO_MPTCP));
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
        SocketSettings { backlog: options.backlog, keepalive_s: options.keepalive_s }
    }
}

/// How many connections a queue is taken to have if the kernel does not tell: no more than most
/// systems allow (listen(2), net.core.somaxconn).
const QUEUED_MAX: usize = 65_536;

/// Clients that leave early make no more errors of new connections in a row.
const ABORTED_MAX: usize = 100;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    /// The address it is bound to, as logs show it.
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) stage: ListenerStage,
    /// Its queue may contain connections; only accept(2) shows.
    may_have_more: bool,
    /// While it closes: how many connections may be in its queue since before that. The daemon
    /// does not wait for a crowd that keeps connecting.
    left: usize,
    pause: Option<Pause>,
    /// How many times in a row accept(2) has reported errors of new connections.
    aborted: usize,
    /// Connections in its queue may be older than its options, and lack these: from when another
    /// process has passed it, or `--free-port` was undone, until its queue was empty once.
    lacking: Option<SocketSettings>,
    /// The number in its token.
    pub(crate) number: usize,
}

/// Where a listener comes from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Another process has bound it to this address, and passed it, for clients. Options do not
    /// affect it.
    Inherited(SocketAddr),
    /// A TCP socket that options asked for. It is bound to `address`, where port 0 has become a
    /// free one.
    Tcp { wanted: WantedTcp, address: SocketAddr },
    /// The control socket, which is found by its `file`.
    Control { wanted: WantedControl, file: SocketFile },
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
    /// The file of the control socket.
    pub file: Option<SocketFile>,
    /// Its stage of life.
    pub life: ListenerStage,
    /// How many connections may be in its queue since before it began to close.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: usize,
}

impl ListenerState {
    /// Where the listener comes from; an error if no listener can come from there.
    pub(crate) fn origin(&self) -> Result<Origin, &'static str> {
        let address = || self.name.parse().map_err(|_| "a listener without an address");
        Ok(match (self.wanted.clone(), self.file) {
            (None, _) => Origin::Inherited(address()?),
            (Some(Wanted::Tcp(wanted)), _) => Origin::Tcp { wanted, address: address()? },
            (Some(Wanted::Control(wanted)), file) => {
                let file = file.ok_or("a control socket without a file")?;
                Origin::Control { wanted, file }
            }
        })
    }
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
    pub(crate) fn accept(&self) -> Accepted {
        let purpose = self.purpose();
        let is_control = purpose == Purpose::Control;
        let flags = match purpose {
            // Not close-on-exec: a hot restart keeps it without another system call.
            Purpose::Clients => SocketFlags::NONBLOCK,
            Purpose::Control | Purpose::Http => SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        };
        match accept_with(&self.socket, flags) {
            Ok(socket) => {
                if let Some(settings) = &self.lacking {
                    sys::reset_waits(&socket);
                    // The kernel refused these for the listener too, which the log has told.
                    let mut refused = RefusedOptions::default();
                    set_options(&socket, &self.name, settings.keepalive_s, &mut refused);
                }
                Accepted::Connection(Socket::new(socket, is_control))
            }
            Err(Errno::AGAIN) => Accepted::Nobody,
            // The control socket was shut.
            Err(Errno::INVAL) if is_control && self.stage == ListenerStage::Closing => {
                Accepted::Nobody
            }
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
            return Err(io::Error::other("not a listening TCP socket; clients come over TCP only"));
        }
        ioctl_fionbio(&socket, true).map_err(named("ioctl(FIONBIO)"))?;
        fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(named("fcntl(F_SETFD)"))?;
        sys::reset_waits(&socket);
        let address = own_address(&socket).map_err(named("getsockname"))?;
        let mut listener = Self::new(socket, Origin::Inherited(address));
        listener.apply(settings, refused)?;
        Ok(listener)
    }

    /// A bound socket, which listens after [`Listener::apply`].
    pub(crate) fn new(socket: OwnedFd, origin: Origin) -> Self {
        let name = match &origin {
            Origin::Inherited(address) | Origin::Tcp { address, .. } => address.to_string(),
            Origin::Control { wanted, .. } => format!("unix:{}", key_text(wanted.path.as_bytes())),
        };
        Listener {
            socket,
            name,
            origin,
            stage: ListenerStage::Open,
            may_have_more: true,
            left: 0,
            pause: None,
            aborted: 0,
            lacking: None,
            number: 0,
        }
    }

    /// Continues a listener of the old image.
    pub(crate) fn resume(state: ListenerState) -> io::Result<Self> {
        let socket = inherited_descriptor(state.fd)?;
        let origin = state.origin().map_err(io::Error::other)?;
        let mut listener = Self::new(socket, origin);
        (listener.name, listener.stage, listener.left) = (state.name, state.life, state.left);
        Ok(listener)
    }

    /// What a hot restart carries over.
    pub(crate) fn state(&self) -> ListenerState {
        ListenerState {
            fd: self.socket.as_raw_fd(),
            name: self.name.clone(),
            wanted: self.wanted(),
            file: self.control().map(|(_, file)| file),
            life: self.stage,
            left: self.left,
        }
    }

    /// What options asked for.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        match &self.origin {
            Origin::Inherited(_) => None,
            Origin::Tcp { wanted, .. } => Some(Wanted::Tcp(*wanted)),
            Origin::Control { wanted, .. } => Some(Wanted::Control(wanted.clone())),
        }
    }

    /// Notes how options ask for it now, if this [is](Listener::is) what they want.
    pub(super) fn record_wanted(&mut self, now: Wanted) {
        match (&mut self.origin, now) {
            (Origin::Tcp { wanted, .. }, Wanted::Tcp(now)) => *wanted = now,
            (Origin::Control { wanted, .. }, Wanted::Control(now)) => *wanted = now,
            _ => {}
        }
    }

    /// What it is for, as long as it lives.
    pub(crate) fn purpose(&self) -> Purpose {
        match &self.origin {
            Origin::Inherited(_) => Purpose::Clients,
            Origin::Tcp { wanted, .. } => wanted.purpose,
            Origin::Control { .. } => Purpose::Control,
        }
    }

    /// The control socket and its file, if this is one.
    pub(super) fn control(&self) -> Option<(&WantedControl, SocketFile)> {
        match &self.origin {
            Origin::Control { wanted, file } => Some((wanted, *file)),
            Origin::Inherited(_) | Origin::Tcp { .. } => None,
        }
    }

    /// Its name and purpose, for operators.
    pub(super) fn described(&self) -> String {
        match &self.origin {
            Origin::Control { wanted, .. } => format!("control socket {}", wanted.path),
            _ if self.purpose() == Purpose::Http => format!("HTTP on {}", self.name),
            _ => self.name.clone(),
        }
    }

    pub(crate) fn is_inherited(&self) -> bool {
        matches!(self.origin, Origin::Inherited(_))
    }

    /// The address of a TCP socket that this daemon bound.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self.origin {
            Origin::Tcp { address, .. } => Some(address),
            Origin::Inherited(_) | Origin::Control { .. } => None,
        }
    }

    /// Whether this is the `wanted` listener; its group may differ. Port 0 matches any port.
    pub(crate) fn is(&self, wanted: &Wanted) -> bool {
        match (&self.origin, wanted) {
            (&Origin::Tcp { wanted: ours, mut address }, Wanted::Tcp(theirs)) => {
                if theirs.address.port() == 0 {
                    address.set_port(0);
                }
                ours.purpose == theirs.purpose && address == theirs.address
            }
            (Origin::Control { wanted: ours, file }, Wanted::Control(theirs)) => {
                // Another way to write the path leads to the same file.
                ours.path == theirs.path || unix_socket::is_at(&theirs.path, *file)
            }
            _ => false,
        }
    }

    /// Whether this is the `wanted` control socket, with another group.
    pub(super) fn has_other_group(&self, wanted: &Wanted) -> bool {
        match (&self.origin, wanted) {
            (Origin::Control { wanted: ours, .. }, Wanted::Control(theirs)) => {
                ours.group != theirs.group && self.is(wanted) && self.can_be_found()
            }
            _ => false,
        }
    }

    /// Whether it can still be reached: the control socket's file may have been deleted or
    /// replaced.
    pub(crate) fn can_be_found(&self) -> bool {
        self.control().is_none_or(|(wanted, file)| unix_socket::is_at(&wanted.path, file))
    }

    /// Removes the control socket's file.
    pub(crate) fn remove_file(&self) {
        if let Some((wanted, file)) = self.control() {
            unix_socket::remove(&wanted.path, file);
        }
    }

    /// Whether accepting may yield a connection now. Room for HTTP ends a pause for want of it.
    pub(crate) fn is_ready(&self, has_room_for_http: bool) -> bool {
        let is_over = |it: &Pause| has_room_for_http && it.cause == PauseCause::NoRoomForHttp;
        self.may_have_more
            && self.pause.as_ref().is_none_or(is_over)
            && self.stage != ListenerStage::Finished
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
        self.left = self.left.saturating_sub(1);
        if self.left == 0 && self.control().is_none() {
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
        self.lacking = None;
        self.record_none_left();
    }

    fn record_none_left(&mut self) {
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
    /// connection into an empty queue of TCP. A Unix socket that is shut refuses newcomers, and
    /// never listens again.)
    pub(crate) fn begin_to_close(&mut self) {
        if self.stage == ListenerStage::Open {
            self.stage = ListenerStage::Closing;
            if self.control().is_some() {
                self.shut();
            } else {
                self.set_backlog(0);
                self.left = sys::accept_queue_len(&self.socket).unwrap_or(QUEUED_MAX);
            }
        }
        self.may_have_more = true;
        self.pause = None;
    }

    fn shut(&self) {
        // Fails only on a socket that does not listen.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    pub(super) fn set_backlog(&self, backlog: i32) {
        // On a listening socket, listen(2) only changes the backlog.
        if let Err(e) = listen(&self.socket, backlog).map_err(named::<Errno>("listen")) {
            error!("the backlog of {} can't be changed: {e}", self.name);
        }
    }

    /// Undoes what `--free-port` has set, for its queue too.
    pub(super) fn end_linger(&mut self, settings: &SocketSettings) {
        // At worst, clients lose answers that they have not read.
        let _ = sockopt::set_socket_linger(&self.socket, None);
        self.lacking = Some(*settings);
    }

    /// Listens, and sets the options that accepted connections inherit. Adds those that it lacks,
    /// such as a Multipath TCP socket does, to `refused`.
    pub(crate) fn apply(
        &mut self,
        settings: &SocketSettings,
        refused: &mut RefusedOptions,
    ) -> io::Result<()> {
        if self.control().is_some() {
            sys::refuse_passed(&self.socket);
        } else {
            set_options(&self.socket, &self.name, settings.keepalive_s, refused);
        }
        if self.is_inherited() {
            self.lacking = Some(*settings);
        }
        let backlog = if self.stage == ListenerStage::Open { settings.backlog } else { 0 };
        listen(&self.socket, backlog).map_err(named("listen"))
    }
}

impl Drop for Listener {
    /// Tells the operators that wait in its queue that they are not heard: they may have sent
    /// orders, and even descriptors, which [`Socket`] closes.
    fn drop(&mut self) {
        if self.control().is_none() {
            return;
        }
        self.shut();
        loop {
            match self.accept() {
                Accepted::Connection(socket) => tell(&socket, NOT_HEARD),
                Accepted::Aborted(_) if !self.record_aborted() => {}
                _ => break,
            }
        }
    }
}
