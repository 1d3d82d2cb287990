//! Replaces src/platform/sys.rs: the same names, on the simulated kernel.

use super::dry_run;
use super::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use super::mio::Poll;
use crate::simulation::kernel::processes::{ChildExited, Executed, PROGRAM};
use crate::simulation::kernel::sockets::{SimulatedSocket, SocketFamily, SocketRole};
use crate::simulation::kernel::{File, KernelEvent, kernel};
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

pub(crate) use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// A shell has searched PATH for a name without a slash.
pub(crate) fn executed_path() -> PathBuf {
    let name = PathBuf::from(kernel(|k| k.arguments[0].clone()));
    if name.components().count() > 1 { name } else { PROGRAM.into() }
}

pub(crate) fn take_over_signals() -> io::Result<OwnedFd> {
    Ok(OwnedFd::new(kernel(|k| k.open(File::Signals))?))
}

pub(crate) fn raise_descriptor_limit() {}

pub(crate) fn check_process_ids() -> io::Result<()> {
    Ok(())
}

pub(crate) fn descriptors_max() -> usize {
    kernel(|k| k.descriptors_max) as usize
}

pub(crate) fn give_memory_back() {
    kernel(|k| k.calls.returns_memory = true);
}

pub(crate) fn is_session_leader() -> bool {
    true
}

pub(crate) fn umask(mask: u32) -> u32 {
    kernel(|k| std::mem::replace(&mut k.umask, mask))
}

pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) pid: Option<i32>,
}

pub(crate) fn peer_credentials(socket: impl AsFd) -> io::Result<Peer> {
    let fd = socket.as_fd().as_raw_fd();
    if kernel(|k| matches!(k.socket(fd), Ok(socket) if matches!(socket.role, SocketRole::Probe))) {
        return Ok(Peer { uid: 0, pid: Some(kernel(|k| k.pid())) });
    }
    // The peer may be in another container, or unknown.
    match kernel(|k| k.below_reversed(16)) {
        15 => Err(Errno::NOPROTOOPT.into()),
        14 => Ok(Peer { uid: 0, pid: None }),
        _ => Ok(Peer { uid: 0, pid: Some(1) }),
    }
}

/// The host at the other end, also once the connection is broken.
pub(crate) fn lost_peer_ip(socket: impl AsFd) -> io::Result<IpAddr> {
    let fd = socket.as_fd().as_raw_fd();
    let address = kernel(|k| match &k.socket(fd)?.role {
        SocketRole::Stream(stream) => stream.peer_address.ok_or(Errno::INVAL),
        _ => Err(Errno::NOTCONN),
    })?;
    Ok(address.ip().to_canonical())
}

pub(crate) fn accept_queue_len(socket: impl AsFd) -> Option<usize> {
    let fd = socket.as_fd().as_raw_fd();
    kernel(|k| match k.socket(fd) {
        Ok(SimulatedSocket {
            family: SocketFamily::V4 | SocketFamily::V6,
            role: SocketRole::Listening(queue),
            ..
        }) => Some(queue.waiting.len()),
        _ => None,
    })
}

/// The simulated kernel is too old for SO_PASSRIGHTS.
pub(crate) fn refuse_passed<Socket>(_socket: Socket) {}

/// The simulated service manager sets no such options.
pub(crate) fn reset_waits<Socket>(_listener: Socket) {}

/// Runs the child's work at once; the daemon sees later that it has ended.
pub(crate) fn fork_apart(
    kept: [RawFd; 2],
    work: impl FnOnce(io::Result<OwnTable>) -> i32,
) -> io::Result<Pid> {
    kernel(|k| k.fork(kept))?;
    let status = match catch_unwind(AssertUnwindSafe(|| work(Ok(OwnTable)))) {
        Ok(status) => status,
        Err(end) => match end.downcast::<ChildExited>() {
            Ok(exited) => exited.0,
            Err(panic) => resume_unwind(panic),
        },
    };
    let pid = kernel(|k| k.end_child(status));
    Ok(Pid::from_raw(pid).expect("a process id"))
}

pub(crate) struct OwnTable;

impl OwnTable {
    pub(crate) fn put_descriptor(&self, file: impl AsFd, number: RawFd) -> io::Result<()> {
        let file = file.as_fd().as_raw_fd();
        Ok(kernel(|k| k.duplicate_to(file, number, false))?)
    }
}

/// In a forked child the new image runs here and now; otherwise the test runs it.
pub(crate) fn execute(
    program: &Path,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
) -> io::Error {
    let is_in_child = kernel(|k| k.is_in_child());
    match kernel(|k| k.execute(program, arguments, environment)) {
        Ok(()) if is_in_child => resume_unwind(Box::new(ChildExited(dry_run::run(arguments)))),
        Ok(()) => resume_unwind(Box::new(Executed)),
        Err(errno) => errno.into(),
    }
}

/// A copy of the file's bytes.
pub(crate) struct MappedFile(Vec<u8>);

impl MappedFile {
    pub(crate) fn new(file: impl AsFd) -> io::Result<Self> {
        let fd = file.as_fd().as_raw_fd();
        Ok(MappedFile(kernel(|k| k.memory(fd).map(|memory| memory.bytes.clone()))?))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

pub(crate) struct Signal {
    pub(crate) number: i32,
    pub(crate) is_from_kernel: bool,
}

pub(crate) fn next_signal(_fd: &OwnedFd) -> Option<Signal> {
    let number = kernel(|k| {
        let number = k.signals.pop()?;
        k.note(KernelEvent::Signal(number));
        Some(number)
    })?;
    Some(Signal { number, is_from_kernel: false })
}

pub(crate) fn inherited_connection(fd: RawFd) -> io::Result<OwnedFd> {
    check_inherited(fd)?;
    Ok(OwnedFd::new(fd))
}

fn check_inherited(fd: RawFd) -> io::Result<()> {
    if kernel(|k| k.descriptor(fd))?.closes_on_exec { Err(Errno::BADF.into()) } else { Ok(()) }
}

pub(crate) fn inherited_descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    check_inherited(fd)?;
    kernel(|k| {
        let descriptor = k.descriptor(fd)?;
        k.set_closes_on_exec(fd, true)?;
        if let File::Socket(socket) = &k.files[descriptor.file] {
            debug_assert!(socket.family == SocketFamily::Unix || socket.local.is_some());
        }
        Ok::<_, Errno>(())
    })?;
    Ok(OwnedFd::new(fd))
}

pub(crate) fn epoll_of(poll: &Poll) -> BorrowedFd<'_> {
    poll.as_fd()
}

pub(crate) fn take_over_epoll(poll: &Poll, old: OwnedFd) -> io::Result<()> {
    let (old, new) = (old.as_raw_fd(), poll.as_raw_fd());
    Ok(kernel(|k| k.duplicate_to(old, new, true))?)
}
