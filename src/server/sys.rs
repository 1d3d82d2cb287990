//! The only unsafe code: what no safe wrapper among our dependencies offers.
#![allow(unsafe_code)]

use mio::Poll;
use rustix::io::DupFlags;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub(super) use libc::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/// Signals that the daemon acts upon. They are blocked and read from a
/// descriptor: handlers would vanish at an exec, the mask does not.
pub(super) const HANDLED: [i32; 5] = [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2];

/// Mends whatever dispositions and mask were inherited (a parent may leave
/// nearly every signal blocked or ignored), and returns a non-blocking
/// signalfd(2) from which the signals in [`HANDLED`] are read.
pub(super) fn take_over_signals() -> io::Result<OwnedFd> {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no handler is installed, so no code runs in signal context.
        // It fails for SIGKILL, SIGSTOP and libc's own signals; rightly.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    ignore_sigpipe();
    // SAFETY: the set is plain data, initialised by sigemptyset before use, and
    // outlives the calls that read it. signalfd's descriptor is ours alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in HANDLED {
            libc::sigaddset(&mut set, signal);
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd);
        if libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(fd)
    }
}

/// A reply to a client that has gone is an error of send(2), no more.
pub(super) fn ignore_sigpipe() {
    // SAFETY: no handler is installed, so no code runs in signal context.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Asks the allocator to return what it does not use (malloc_trim(3)). Other
/// libraries than GNU's have no such call, and need none.
pub(super) fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no conditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The number of the next signal that waits in a signalfd, if one does.
pub(super) fn next_signal(fd: &OwnedFd) -> Option<i32> {
    const INFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();
    let mut info = [0; INFO_BYTES];
    match rustix::io::read(fd, &mut info) {
        // The number comes first: signalfd(2), ssi_signo.
        Ok(INFO_BYTES) => Some(i32::from_ne_bytes(info[..4].try_into().expect("four bytes"))),
        _ => None,
    }
}

/// Takes over a descriptor that the old image of this process left open. To be
/// called once for each.
///
/// # Errors
/// EBADF when it did not, though the number may be in use by now: what the daemon
/// opens itself is close-on-exec, and what survived an exec is not.
pub(super) fn inherited_descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl(F_GETFD) changes nothing and accepts any number.
    match unsafe { libc::fcntl(fd, libc::F_GETFD) } {
        -1 => Err(io::Error::last_os_error()),
        flags if flags & libc::FD_CLOEXEC != 0 => Err(io::Error::from_raw_os_error(libc::EBADF)),
        _ => passed_descriptor(fd),
    }
}

/// Takes over a descriptor that the service manager passed; an exec closes it
/// from now on. To be called once for each, before anything else could own its
/// number.
///
/// # Errors
/// EBADF when it is not open.
pub(super) fn passed_descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl(F_SETFD) sets a flag and accepts any number.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and by the caller's word nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The epoll instance of a poll.
pub(super) fn epoll_of(poll: &Poll) -> BorrowedFd<'_> {
    // SAFETY: it is open for as long as the poll is borrowed.
    unsafe { BorrowedFd::borrow_raw(poll.as_raw_fd()) }
}

/// Makes `poll` watch all that the epoll instance `old` watches. (mio remembers
/// nothing of what it was told to watch: the kernel does.)
///
/// # Errors
/// What dup3(2) says.
pub(super) fn take_over_epoll(poll: &Poll, old: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is mio's and stays so: this second owner of it is
    // never dropped, and dup3 replaces what it means without a moment between.
    let mut epoll = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(poll.as_raw_fd()) });
    Ok(rustix::io::dup3(old, &mut epoll, DupFlags::CLOEXEC)?)
}
