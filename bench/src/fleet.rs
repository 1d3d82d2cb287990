//! Many connections, one thread, one epoll: the basis of every load.
//!
//! A [`Fleet`] owns the sockets and turns bytes into lines; a [`Script`] decides what
//! each connection does next. It costs less than the server: one `recv` and one
//! `send` per request, no interest changes, no allocation.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{Timespec, epoll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, send,
    socket_with, sockopt,
};

use crate::Result;

/// Events taken from the kernel in one call.
const EVENTS_MAX: usize = 1024;

/// What a connection does next, decided by its script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing until it receives something.
    Nothing,
    /// Send [`Conn::acquire`].
    Acquire,
    /// Send `RELEASE`.
    Release,
    /// Close, and open a new one that acquires at once.
    Reopen,
    /// Close and stay closed.
    Close,
}

/// Decides what connections do after each line that they receive.
pub trait Script {
    /// `conn` read the line `line`, without its `\n`, at `now_ns`.
    fn replied(&mut self, conn: &mut Conn, line: &[u8], now_ns: u64) -> Next;

    /// The server closed `conn`, or it failed. The connection is closed already.
    fn lost(&mut self, conn: &mut Conn, now_ns: u64) -> Next;
}

/// One client connection.
pub struct Conn {
    /// Its index in the fleet.
    pub index: usize,
    /// The line that [`Next::Acquire`] sends, with its `\n`.
    pub acquire: Vec<u8>,
    /// When its connect began.
    pub opened_ns: u64,
    /// For the script: whether it holds a lock.
    pub holds: bool,
    /// When the last request was sent, or was due.
    pub sent_ns: u64,
    fd: Option<OwnedFd>,
    /// The connect has not finished; the acquire is sent when it has.
    connecting: bool,
    /// The start of an incomplete line; rarely used.
    partial: Vec<u8>,
}

/// Connections to one server.
pub struct Fleet {
    /// All connections, open or not.
    pub conns: Vec<Conn>,
    server: SocketAddr,
    opened: usize,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    born: Instant,
}

impl Fleet {
    /// A fleet of `count` connections to `server`, none of them open yet.
    pub fn new(server: SocketAddr, count: usize) -> Result<Self> {
        let conns = (0..count)
            .map(|index| Conn {
                index,
                acquire: Vec::new(),
                opened_ns: 0,
                holds: false,
                sent_ns: 0,
                fd: None,
                connecting: false,
                partial: Vec::new(),
            })
            .collect();
        Ok(Self {
            conns,
            server,
            opened: 0,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_MAX),
            born: Instant::now(),
        })
    }

    /// Nanoseconds since the fleet was made.
    pub fn now_ns(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64
    }

    /// Opens connection `index`. With `talk`, it acquires as soon as it is connected:
    /// on loopback, usually within this call.
    pub fn open(&mut self, index: usize, talk: bool) -> Result<()> {
        let opened_ns = self.now_ns();
        let fd = self.connect()?;
        let conn = &mut self.conns[index];
        conn.opened_ns = opened_ns;
        conn.sent_ns = opened_ns;
        conn.partial.clear();
        conn.connecting = talk && send(&fd, &conn.acquire, SendFlags::NOSIGNAL).is_err();
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if conn.connecting {
            flags |= epoll::EventFlags::OUT;
        }
        epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(index as u64), flags)?;
        conn.fd = Some(fd);
        Ok(())
    }

    /// A non-blocking socket that is connecting to the server.
    fn connect(&mut self) -> Result<OwnedFd> {
        let family = match self.server {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
            .map_err(|e| format!("no socket for another connection: {e}"))?;
        self.opened += 1;
        match connect(&fd, &self.server) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(fd),
            Err(rustix::io::Errno::ADDRNOTAVAIL | rustix::io::Errno::ADDRINUSE) => {
                Err("out of local ports".into())
            }
            Err(e) => Err(format!("can't connect to {}: {e}", self.server).into()),
        }
    }

    /// Sends the acquire of `index`; its latency counts from `since_ns`.
    pub fn acquire(&mut self, index: usize, since_ns: u64) {
        let conn = &mut self.conns[index];
        conn.sent_ns = since_ns;
        if let Some(fd) = &conn.fd {
            // A failure causes a separate event.
            let _ = send(fd, &conn.acquire, SendFlags::NOSIGNAL);
        }
    }

    /// Sends `RELEASE` on `index`.
    pub fn release(&mut self, index: usize, since_ns: u64) {
        let conn = &mut self.conns[index];
        conn.sent_ns = since_ns;
        if let Some(fd) = &conn.fd {
            let _ = send(fd, b"RELEASE\n", SendFlags::NOSIGNAL);
        }
    }

    /// Closes `index` as clients do, with a FIN.
    pub fn close(&mut self, index: usize) {
        self.conns[index].fd = None;
        self.conns[index].connecting = false;
    }

    /// Closes all connections with a reset, so that no port in TIME_WAIT disturbs the
    /// next measurement. Only where the close itself is not measured.
    pub fn reset_all(&mut self) {
        for conn in &mut self.conns {
            if let Some(fd) = conn.fd.take() {
                let _ = sockopt::set_socket_linger(&fd, Some(std::time::Duration::ZERO));
            }
        }
    }

    /// Waits for events, at most `wait_ms`, and lets `script` handle them. Returns
    /// the number of events.
    pub fn poll(&mut self, wait_ms: u32, script: &mut impl Script) -> Result<usize> {
        let wait = Timespec {
            tv_sec: i64::from(wait_ms / 1000),
            tv_nsec: i64::from(wait_ms % 1000) * 1_000_000,
        };
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            let index = event.data.u64() as usize;
            self.ready(index, event.flags, script)?;
        }
        let count = events.len();
        self.events = events;
        Ok(count)
    }

    fn ready(
        &mut self,
        index: usize,
        flags: epoll::EventFlags,
        script: &mut impl Script,
    ) -> Result<()> {
        let conn = &mut self.conns[index];
        if conn.connecting && flags.contains(epoll::EventFlags::OUT) {
            conn.connecting = false;
            if let Some(fd) = &conn.fd {
                let _ = send(fd, &conn.acquire, SendFlags::NOSIGNAL);
            }
        }
        let closed = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(epoll::EventFlags::IN | closed) {
            self.read(index, flags.intersects(closed), script)?;
        }
        Ok(())
    }

    /// Reads what one event announced. A server's close sets flags of its own in the
    /// event, so that one `recv` is enough for all others.
    fn read(&mut self, index: usize, closed: bool, script: &mut impl Script) -> Result<()> {
        let mut bytes = [0; 4096];
        loop {
            let Some(fd) = &self.conns[index].fd else { return Ok(()) };
            let opened = self.opened;
            match recv(fd, &mut bytes, RecvFlags::empty()) {
                Ok((count, _)) if count > 0 => self.lines(index, &bytes[..count], script)?,
                Err(rustix::io::Errno::AGAIN) if !closed => return Ok(()),
                _ => return self.lost(index, script),
            }
            // If the connection was reopened, the event belonged to the old one.
            if !closed || self.opened != opened {
                return Ok(());
            }
        }
    }

    fn lost(&mut self, index: usize, script: &mut impl Script) -> Result<()> {
        self.close(index);
        let now_ns = self.now_ns();
        let next = script.lost(&mut self.conns[index], now_ns);
        self.take(index, next, now_ns)
    }

    fn lines(&mut self, index: usize, bytes: &[u8], script: &mut impl Script) -> Result<()> {
        let now_ns = self.now_ns();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            let conn = &mut self.conns[index];
            let next = if conn.partial.is_empty() {
                script.replied(conn, &rest[..end], now_ns)
            } else {
                let mut line = std::mem::take(&mut conn.partial);
                line.extend_from_slice(&rest[..end]);
                script.replied(conn, &line, now_ns)
            };
            rest = &rest[end + 1..];
            self.take(index, next, now_ns)?;
        }
        self.conns[index].partial.extend_from_slice(rest);
        Ok(())
    }

    fn take(&mut self, index: usize, next: Next, now_ns: u64) -> Result<()> {
        match next {
            Next::Nothing => {}
            Next::Acquire => self.acquire(index, now_ns),
            Next::Release => self.release(index, now_ns),
            Next::Reopen => {
                self.close(index);
                self.open(index, true)?;
            }
            Next::Close => self.close(index),
        }
        Ok(())
    }

    /// Opens all connections with never more than a few in the server's backlog: the
    /// last of each group must be answered before the next group begins. (The
    /// reference has a backlog of 20; a dropped SYN is sent again after a second.)
    /// Every sixteenth connection has acquired and released by then.
    pub fn open_gently(&mut self) -> Result<()> {
        const HANDFUL: usize = 16;
        let count = self.conns.len();
        let mut probe = Probe { answered: true, lost: false };
        for index in 0..count {
            let last = (index + 1) % HANDFUL == 0 || index + 1 == count;
            self.open(index, last)?;
            if last {
                probe.answered = false;
                self.poll_until(10, &mut probe, |p| p.answered || p.lost)?;
            }
            if probe.lost {
                return Err("the server refused or closed a connection".into());
            }
        }
        Ok(())
    }

    /// Polls until `done`; an error after `seconds`.
    pub fn poll_until<S: Script>(
        &mut self,
        seconds: u64,
        script: &mut S,
        mut done: impl FnMut(&S) -> bool,
    ) -> Result<()> {
        let end_ns = self.now_ns() + seconds * 1_000_000_000;
        while !done(script) {
            self.poll(100, script)?;
            if self.now_ns() > end_ns {
                return Err(format!("no answer within {seconds} s").into());
            }
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.reset_all();
    }
}

/// One acquire and one release, to check that a connection is served.
struct Probe {
    answered: bool,
    lost: bool,
}

impl Script for Probe {
    fn replied(&mut self, _: &mut Conn, line: &[u8], _: u64) -> Next {
        match line {
            b"LOCKED" => Next::Release,
            _ => {
                self.answered = true;
                Next::Nothing
            }
        }
    }

    fn lost(&mut self, _: &mut Conn, _: u64) -> Next {
        self.lost = true;
        Next::Nothing
    }
}

/// Raises the soft limit of descriptors to the hard one and returns it: too few
/// descriptors are the most common reason for a load to fail.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}
