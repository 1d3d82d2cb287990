//! All `unsafe` code of the daemon: signals, fork, exec with its arguments, mapped files, peer
//! credentials, descriptors that are inherited, passed or refused, and their limit.
#![allow(unsafe_code)]

use crate::platform::failed_call::{errno, named};
use mio::Poll;
use rustix::io::{DupFlags, Errno, FdFlags, fcntl_setfd};
use rustix::process::Pid;
use std::ffi::{CStr, CString, NulError, OsStr, OsString};
use std::io;
use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

pub(crate) use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// The path that was executed, as the parent process spelled it: relative to the working directory of
/// that moment, or empty if the kernel does not report it. AT_EXECFN, getauxval(3): rustix looks for
/// that by dlsym(3), and finds none in a static binary.
pub(crate) fn executed_path() -> &'static Path {
    // SAFETY: it reads what the kernel has passed to this process.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    if path.is_null() {
        return Path::new("");
    }
    // SAFETY: the kernel has put a string there, which stays as long as the process does.
    let path = unsafe { CStr::from_ptr(path) };
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

/// Signals that the daemon handles. They are blocked and read from a descriptor,
/// because an exec resets handlers but keeps the mask.
pub(crate) const HANDLED: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// Signals that would end the daemon, or stop it, without anybody's order. What sends them outlives
/// an exec: an inherited timer (setitimer(2), alarm(2)), a descriptor that a parent process has set
/// to O_ASYNC. A reply to a disconnected client (SIGPIPE), and a limit on the log or a
/// snapshot (`ulimit -f`, SIGXFSZ), are errors of the call only. With `stty tostop`, SIGTTOU stops
/// a background process that writes to its terminal.
const IGNORED: [i32; 8] = [
    libc::SIGPIPE,
    libc::SIGTTOU,
    libc::SIGXFSZ,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
];

/// Sets dispositions and the mask, whatever a parent process left, and returns a non-blocking
/// signalfd(2) for the signals in [`HANDLED`].
pub(crate) fn take_over_signals() -> io::Result<OwnedFd> {
    // Keeps the effect of nohup(1). A blocked signal would be queued although it is
    // ignored (signal(7)), so SIGHUP is not read from the descriptor either.
    let ignores_hangups = is_ignored(SIGHUP);
    for signal in 1..=libc::SIGRTMAX() {
        let is_ignored = IGNORED.contains(&signal) || signal >= libc::SIGRTMIN();
        let is_kept = signal == SIGHUP && ignores_hangups;
        let disposition = if is_ignored || is_kept { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: it installs no handler, so no code runs in signal context. It removes those
        // of Rust's runtime for SIGSEGV and SIGBUS, which only name the thread whose stack
        // has overflowed before they abort (std, sys/pal/unix/stack_overflow).
        // It fails for SIGKILL, SIGSTOP and libc's own signals, as it should.
        unsafe { libc::signal(signal, disposition) };
    }
    // SAFETY: the set is plain data, initialised by sigemptyset before use, and
    // outlives the calls that read it. signalfd's descriptor has no other owner.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in HANDLED.into_iter().filter(|&s| s != SIGHUP || !ignores_hangups) {
            libc::sigaddset(&mut set, signal);
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        if fd == -1 {
            return Err(last_error("signalfd4"));
        }
        let fd = OwnedFd::from_raw_fd(fd);
        if libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) == -1 {
            return Err(last_error("rt_sigprocmask"));
        }
        Ok(fd)
    }
}

/// Raises the soft limit to the hard one, which the administrator sets; the soft one is
/// 1024 only for programs that use select(2).
pub(crate) fn raise_descriptor_limit() {
    let raise = || {
        let mut limit = descriptor_limit()?;
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the pointer is to a local value.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
            -1 => Err(last_error("prlimit64")),
            _ => Ok(()),
        }
    };
    if let Err(e) = raise() {
        log::warn!("the limit of descriptors could not be raised: {e}");
    }
}

/// Whether the kernel tells the numbers of this process and of its parent: everybody expects that
/// this can't fail.
pub(crate) fn check_process_ids() -> io::Result<()> {
    // SAFETY: the calls have no conditions.
    let (own, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    // The C library returns the kernel's negative error as it is.
    let refused = |call, number: i32| Err(named(call)(io::Error::from_raw_os_error(-number)));
    match (own, parent) {
        (..=-1, _) => refused("getpid", own),
        (_, ..=-1) => refused("getppid", parent),
        _ => Ok(()),
    }
}

/// How many descriptors may be open: an administrator may change it (prlimit(1)). If the kernel does
/// not tell, as many as it gives.
pub(crate) fn descriptors_max() -> usize {
    let limit = descriptor_limit().map(|limit| limit.rlim_cur);
    limit.ok().and_then(|limit| limit.try_into().ok()).unwrap_or(usize::MAX)
}

/// rustix expects that this call can't fail.
fn descriptor_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local value.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        -1 => Err(last_error("prlimit64")),
        _ => Ok(limit),
    }
}

/// The error of a call that has just failed.
fn last_error(call: &'static str) -> io::Error {
    named(call)(io::Error::last_os_error())
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: a null pointer for the new action changes nothing; the old one is plain data, and is
    // written before it is read if the call succeeds.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    }
}

/// Whether this process leads its session. The leader may be outside of this pid
/// namespace: getsid(2) returns 0 then, which rustix does not expect.
pub(crate) fn is_session_leader() -> bool {
    // SAFETY: the call has no conditions.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// Sets the mask of new files' modes, and returns the one before. umask(2) tells no error, which
/// rustix relies on: a profile may deny it, and then the mask stays as it was.
pub(crate) fn umask(mask: u32) -> u32 {
    // SAFETY: it takes and returns a number.
    unsafe { libc::umask(mask) }
}

/// The process at the other end of a Unix socket: unix(7), SO_PEERCRED.
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// `None` if it is outside of this pid namespace: the kernel returns 0 then, which
    /// rustix does not expect.
    pub(crate) pid: Option<i32>,
}

/// The process that connected, or that listens, at the other end of a Unix socket. For a TCP
/// socket the kernel reports the user 4294967295 and no process.
pub(crate) fn peer_credentials(socket: impl AsFd) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    get_option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut credentials)?;
    let pid = Some(credentials.pid).filter(|&pid| pid != 0);
    Ok(Peer { uid: credentials.uid, pid })
}

/// The host at a TCP socket's other end, also once the connection is broken: getpeername(2) forgets
/// it then, and SO_PEERNAME does not (net/ipv4/af_inet.c, inet_getname; net/core/sock.c).
pub(crate) fn lost_peer_ip(socket: impl AsFd) -> io::Result<IpAddr> {
    // The kernel refuses to write less than it is asked for: first a `sockaddr_in6`, whose address
    // follows family, port and flow information; then a `sockaddr_in` (ipv6(7), ip(7)).
    let socket = socket.as_fd();
    let mut ipv6 = [[0_u8; 4]; size_of::<libc::sockaddr_in6>() / 4];
    if get_option(socket, libc::SOL_SOCKET, libc::SO_PEERNAME, &mut ipv6).is_ok() {
        let [_, _, a, b, c, d, _] = ipv6;
        let bits = [a, b, c, d].map(|four| u128::from(u32::from_be_bytes(four)));
        let bits = bits.into_iter().fold(0, |all, four| all << 32 | four);
        return Ok(Ipv6Addr::from_bits(bits).to_canonical());
    }
    let mut ipv4 = [[0_u8; 4]; size_of::<libc::sockaddr_in>() / 4];
    get_option(socket, libc::SOL_SOCKET, libc::SO_PEERNAME, &mut ipv4)?;
    Ok(Ipv4Addr::from(ipv4[1]).into())
}

/// How many connections wait to be accepted from a TCP socket that listens (tcp(7),
/// TCP_INFO), if the kernel tells.
pub(crate) fn accept_queue_len(socket: impl AsFd) -> Option<usize> {
    // SAFETY: the structure is plain numbers, for which 0 is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    get_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info).ok()?;
    Some(info.tcpi_unacked as usize)
}

/// Reads an option whose value is plain numbers.
fn get_option<T: Copy>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &mut T,
) -> io::Result<()> {
    let (fd, mut len) = (socket.as_fd().as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: both pointers are valid, and `len` is the size of the first: the kernel writes no
    // more, and plain numbers can have any bytes.
    match unsafe { libc::getsockopt(fd, level, option, (&raw mut *value).cast(), &raw mut len) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Makes a listening Unix socket refuse descriptors: a client that passes some gets EPERM,
/// and the kernel's own (SCM_PIDFD) don't arrive either. Linux before 6.16, or 6.5, lacks
/// these options.
pub(crate) fn refuse_passed(socket: impl AsFd) {
    const SO_PASSPIDFD: i32 = 76;
    const SO_PASSRIGHTS: i32 = 83;
    let no: libc::c_int = 0;
    for option in [SO_PASSPIDFD, SO_PASSRIGHTS] {
        set_option(&socket, libc::SOL_SOCKET, option, no);
    }
}

/// Resets what another process may have set on a listening socket, and connections inherit: a
/// close that waits for the peer (SO_LINGER), input that waits for more (SO_RCVLOWAT), answers
/// that wait for more (TCP_CORK). What a kind of socket does not have is not reset.
pub(crate) fn reset_waits(listener: impl AsFd) {
    let no_linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let (one, no): (libc::c_int, libc::c_int) = (1, 0);
    set_option(&listener, libc::SOL_SOCKET, libc::SO_LINGER, no_linger);
    set_option(&listener, libc::SOL_SOCKET, libc::SO_RCVLOWAT, one);
    set_option(&listener, libc::IPPROTO_TCP, libc::TCP_CORK, no);
}

/// Sets an option, if the socket has it.
fn set_option<T: Copy>(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: T) {
    let (fd, len) = (socket.as_fd().as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the pointer is to a local value, and `len` is its size.
    unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), len) };
}

/// Forks a child with a copy of this process's memory. It runs `work` and exits with
/// the status that `work` returns. It keeps only the standard streams and the
/// descriptors in `kept`; if that fails, `work` gets the error, and the child still shares all
/// descriptors with this process.
///
/// fork(2) would copy the descriptor table. While the child held the copies, a `close`
/// in this process would not be final: the peer would see no end, and the epoll
/// instance would keep reporting events of the closed socket. So the child shares the
/// table at first, and close_range(2) gives it a table of its own with a copy of only
/// the lowest numbers.
///
/// # Errors
/// The error of clone(2); ENOMEM where memory can't be overcommitted.
pub(crate) fn fork_apart(
    kept: [RawFd; 2],
    work: impl FnOnce(io::Result<OwnTable>) -> i32,
) -> io::Result<Pid> {
    const EXIT_PANICKED: i32 = 101;
    let flags = (libc::CLONE_FILES | libc::SIGCHLD) as libc::c_ulong;
    // SAFETY: without CLONE_VM the child has memory of its own. This process has one
    // thread, so no lock in the copied memory is held by a thread that is not copied.
    let pid = unsafe {
        let null = 0 as libc::c_ulong;
        if cfg!(target_arch = "s390x") {
            libc::syscall(libc::SYS_clone, null, flags, null, null, null)
        } else {
            libc::syscall(libc::SYS_clone, flags, null, null, null, null)
        }
    };
    match pid {
        -1 => Err(explained(last_error("clone(CLONE_FILES)"))),
        0 => {
            let work = || work(unshare_descriptors(kept));
            let status = catch_unwind(AssertUnwindSafe(work)).unwrap_or(EXIT_PANICKED);
            // SAFETY: ends the child at once, without the parent's destructors.
            unsafe { libc::_exit(status) }
        }
        pid => Ok(Pid::from_raw(pid as i32).expect("clone gives a process id")),
    }
}

/// qemu-user answers EINVAL (linux-user/syscall.c, CLONE_INVALID_FORK_FLAGS).
fn explained(e: io::Error) -> io::Error {
    match errno(&e) {
        Some(Errno::INVAL) => io::Error::other(format!(
            "{e}: an emulator such as qemu-user does not offer it, and no hot restart"
        )),
        _ => e,
    }
}

/// Proves that this process is a forked child with a table of descriptors of its own: no owner
/// that it has copied is dropped in it.
pub(crate) struct OwnTable(());

/// Gives this process its own descriptor table, with only the standard streams and
/// `kept`. After an error the table is still shared: nothing may be closed then.
fn unshare_descriptors(kept: [RawFd; 2]) -> io::Result<OwnTable> {
    let (low, high) = (kept[0].min(kept[1]), kept[0].max(kept[1]));
    let close = |first: RawFd, last: u32, flags: libc::c_uint| {
        // SAFETY: no owner of these descriptors is dropped in this process: the child
        // only exits or executes another program.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
    };
    if !close(high + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE) {
        return Err(last_error("close_range"));
    }
    for (first, last) in [(3, low - 1), (low + 1, high - 1)] {
        if first <= last {
            close(first, last as u32, 0);
        }
    }
    Ok(OwnTable(()))
}

impl OwnTable {
    /// Makes `number` another descriptor of `file`, which an exec keeps, whatever it was.
    pub(crate) fn put_descriptor(&self, file: impl AsFd, number: RawFd) -> io::Result<()> {
        // SAFETY: this child only exits or executes another program, so no owner relies on `number`.
        match unsafe { libc::dup3(file.as_fd().as_raw_fd(), number, 0) } {
            -1 => Err(last_error("dup3")),
            _ => Ok(()),
        }
    }
}

/// Executes `program` in this process; returns why it can't. Unlike `std::process::Command`,
/// it never lets a shell read a file that is not a program (execvp(3)).
pub(crate) fn execute(
    program: &Path,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
) -> io::Error {
    let variable =
        |(name, value): &(OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let all = || -> Result<_, NulError> {
        let program = CString::new(program.as_os_str().as_bytes())?;
        let arguments = arguments.iter().map(|argument| argument.as_bytes().to_vec());
        Ok((program, c_strings(arguments)?, c_strings(environment.iter().map(variable))?))
    };
    let (program, arguments, variables) = match all() {
        Ok(all) => all,
        Err(e) => return e.into(),
    };
    // SAFETY: both lists end with a null pointer, and their strings outlive the call.
    unsafe {
        libc::execve(program.as_ptr(), pointers(&arguments).as_ptr(), pointers(&variables).as_ptr())
    };
    last_error("execve")
}

fn c_strings(texts: impl Iterator<Item = Vec<u8>>) -> Result<Vec<CString>, NulError> {
    texts.map(CString::new).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// The bytes of a file, mapped instead of copied.
pub(crate) struct MappedFile {
    start: *mut libc::c_void,
    len: usize,
}

impl MappedFile {
    /// Maps a whole file for reading. The file must not shrink meanwhile: reading beyond
    /// its end raises SIGBUS (mmap(2)).
    pub(crate) fn new(file: impl AsFd) -> io::Result<Self> {
        let size = rustix::fs::fstat(&file).map_err(named("fstat"))?.st_size;
        let len = usize::try_from(size).map_err(io::Error::other)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_POPULATE;
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: the kernel chooses the address, so it replaces no existing mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_error("mmap"));
        }
        Ok(MappedFile { start, len })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has this many readable bytes until it is dropped. The file
        // is in memory and no longer written, so its bytes don't change.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this address and length, and no slice of it remains.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

/// Asks the allocator to return unused memory (malloc_trim(3)). Only GNU's C library has
/// this call, and others don't need it.
pub(crate) fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no conditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A signal that this process received.
pub(crate) struct Signal {
    pub(crate) number: i32,
    /// Sent by the kernel, not by a process.
    pub(crate) is_from_kernel: bool,
}

/// The next pending signal of a signalfd, if any.
pub(crate) fn next_signal(fd: &OwnedFd) -> Option<Signal> {
    const INFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();
    let mut info = [0; INFO_BYTES];
    match rustix::io::read(fd, &mut info) {
        Ok(INFO_BYTES) => {
            let field = |at: usize| i32::from_ne_bytes(std::array::from_fn(|n| info[at + n]));
            let code = field(std::mem::offset_of!(libc::signalfd_siginfo, ssi_code));
            Some(Signal {
                number: field(std::mem::offset_of!(libc::signalfd_siginfo, ssi_signo)),
                is_from_kernel: code == libc::SI_KERNEL,
            })
        }
        _ => None,
    }
}

/// Takes over a descriptor that the old image of this process, or the parent process, left open,
/// and makes it close-on-exec. To be called before anybody is served.
///
/// # Errors
/// EBADF if nobody did, or if it was taken over before. The number may be in use by now, but what
/// the daemon opens itself is close-on-exec, and what survived an exec is not.
pub(crate) fn inherited_descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    let inherited = inherited_connection(fd)?;
    fcntl_setfd(&inherited, FdFlags::CLOEXEC).map_err(named("fcntl(F_SETFD)"))?;
    Ok(inherited)
}

/// As [`inherited_descriptor`], but the next hot restart also keeps it, so that only the snapshot says
/// that no number comes twice.
pub(crate) fn inherited_connection(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl(F_GETFD) changes nothing and accepts any number.
    match unsafe { libc::fcntl(fd, libc::F_GETFD) } {
        -1 => Err(last_error("fcntl(F_GETFD)")),
        flags if flags & libc::FD_CLOEXEC != 0 => Err(io::Error::from_raw_os_error(libc::EBADF)),
        // SAFETY: it is open, and the caller guarantees that it has no other owner.
        _ => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// The epoll instance of `poll`.
pub(crate) fn epoll_of(poll: &Poll) -> BorrowedFd<'_> {
    // SAFETY: it is open while `poll` is borrowed.
    unsafe { BorrowedFd::borrow_raw(poll.as_raw_fd()) }
}

/// Makes `poll` watch everything that the epoll instance `old` watches. (mio keeps no
/// list of what it watches; the kernel does.)
pub(crate) fn take_over_epoll(poll: &Poll, old: OwnedFd) -> io::Result<()> {
    // SAFETY: mio remains the owner: this second owner is never dropped, and dup3
    // replaces the descriptor's meaning atomically.
    let mut epoll = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(poll.as_raw_fd()) });
    rustix::io::dup3(old, &mut epoll, DupFlags::CLOEXEC).map_err(named("dup3"))
}
