//! All `unsafe` code of this crate. Signals of `run`: blocks and reads them, starts the command
//! without them, ends by one; the standard library offers no signal masks. Process ids that the
//! kernel reports as 0 if the process is outside of this pid namespace, which rustix's `Pid`
//! cannot be. What TCP has not delivered.

use connect::failed_call::{named, named_unless_plain};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, WaitOptions, wait};
use std::io::{self, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// The signals of this process, blocked, and read from a descriptor. Those that stop a
/// job are not among them: a terminal stops this process together with the command.
#[derive(Debug)]
pub(super) struct Signals {
    descriptor: std::fs::File,
    /// The mask that was before, for the command.
    before: libc::sigset_t,
    /// What SIGCHLD did before, for the command.
    on_child: libc::sighandler_t,
}

/// The signals by which people and supervisors end a process.
pub(super) const ENDING_SIGNALS: [i32; 4] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Whether this process ignores a signal.
#[allow(unsafe_code)]
pub(super) fn is_ignored(signal: i32) -> bool {
    // SAFETY: the structure is plain numbers and pointers, for which 0 is a value; a null pointer
    // changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Scripts and make(1) use the numbers below.
const KEPT_NUMBER_MIN: libc::c_int = 100;

/// A signal that this process got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) number: i32,
    /// By another process's kill(2) or the like, or by the kernel to this process alone
    /// ([`is_for_this_process`]).
    pub(super) was_sent_here: bool,
}

#[allow(unsafe_code)]
impl Signals {
    /// Blocks the signals. From now on none that is sent ends this process; a fault of its
    /// own still does.
    ///
    /// # Errors
    /// A call that fails, by name; also of those that starting a command needs, and noticing its
    /// end.
    pub(super) fn block() -> io::Result<Signals> {
        // SAFETY: the sets are initialized by sigfillset and sigprocmask before they are
        // read; the descriptor is new and has no other owner.
        unsafe {
            // Some parents leave it ignored, which would hide how the command ends.
            let on_child = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(all.as_mut_ptr());
            for stops_a_job in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
                libc::sigdelset(all.as_mut_ptr(), stops_a_job);
            }
            let mut before = MaybeUninit::<libc::sigset_t>::uninit();
            if libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) < 0 {
                return Err(named("rt_sigprocmask")(io::Error::last_os_error()));
            }
            let number = libc::signalfd(-1, all.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if number < 0 {
                return Err(named("signalfd4")(io::Error::last_os_error()));
            }
            let descriptor = std::fs::File::from_raw_fd(number);
            let signals = Signals { descriptor, before: before.assume_init(), on_child };
            signals.check_calls()?;
            Ok(signals)
        }
    }

    /// Tries what starting a command, and noticing its end, needs: without it the standard library
    /// panics, or the end is never noticed.
    fn check_calls(&self) -> io::Result<()> {
        // SAFETY: both only return numbers; the C library passes the kernel's negative errors on.
        let ids = unsafe { [("getpid", libc::getpid()), ("getppid", libc::getppid())] };
        if let Some((call, id)) = ids.into_iter().find(|(_, id)| *id < 0) {
            return Err(named(call)(io::Error::from_raw_os_error(-id)));
        }
        // Other errors say that there is no child yet, and that this is no socket.
        let is_lacking = |e: &Errno| matches!(*e, Errno::NOSYS | Errno::PERM);
        if let Some(e) = wait(WaitOptions::NOHANG).err().filter(is_lacking) {
            return Err(named("wait4")(e));
        }
        let received = recv(&self.descriptor, &mut [0][..], RecvFlags::empty()).err();
        match received.filter(is_lacking) {
            Some(e) => Err(named("recvfrom")(e)),
            None => Ok(()),
        }
    }

    /// A signal that has arrived and would end this process if it were not blocked. It stays unread.
    pub(super) fn ending(&self) -> Option<i32> {
        // SAFETY: the set is initialized by sigemptyset before it is read.
        unsafe {
            let mut arrived = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(arrived.as_mut_ptr());
            libc::sigpending(arrived.as_mut_ptr());
            let has_arrived = |signal: &i32| libc::sigismember(arrived.as_ptr(), *signal) == 1;
            ENDING_SIGNALS.into_iter().find(|signal| has_arrived(signal) && !is_ignored(*signal))
        }
    }

    /// The next signal that has arrived, if any.
    pub(super) fn next(&self) -> Option<Arrived> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        let read = (&self.descriptor).read(&mut bytes).ok()?;
        if read < bytes.len() {
            return None;
        }
        // SAFETY: the kernel has filled it; every bit pattern is valid, and the read
        // needs no alignment.
        let info: libc::signalfd_siginfo =
            unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        let is_own = info.ssi_pid == std::process::id();
        let number = info.ssi_signo as i32;
        let was_sent_here = !is_own && (info.ssi_code <= 0 || is_for_this_process(number));
        Some(Arrived { number, was_sent_here })
    }

    /// Starts the command: in the same process group, with the signal mask of before, and
    /// killed when this process dies. It inherits a copy of `kept`, under a high number, unless
    /// the limit of descriptors forbids that.
    pub(super) fn spawn(
        &self,
        command: &mut Command,
        kept: Option<BorrowedFd<'_>>,
    ) -> io::Result<Child> {
        let (mask, on_child) = (self.before, self.on_child);
        let kept = kept.map(|kept| kept.as_raw_fd());
        let parent = std::process::id();
        // A byte in it tells that there was a child, whose execve(2) has failed then. The standard
        // library needs such a pair too.
        let (seen, forked) = UnixDatagram::pair().map_err(named("socketpair"))?;
        let forked = forked.as_raw_fd();
        // SAFETY: between fork and exec only async-signal-safe functions are called:
        // send, prctl, getppid, _exit, signal, sigprocmask, fcntl.
        unsafe {
            command.pre_exec(move || {
                libc::send(forked, [0_u8].as_ptr().cast(), 1, libc::MSG_NOSIGNAL);
                // `check_death_signal` has told whether that works.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent died before that, so no process can read an error.
                if libc::getppid() as u32 != parent {
                    libc::_exit(1);
                }
                if let Some(kept) = kept {
                    libc::fcntl(kept, libc::F_DUPFD, KEPT_NUMBER_MIN);
                }
                libc::signal(libc::SIGCHLD, on_child);
                libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                Ok(())
            });
        }
        command.spawn().map_err(|e| {
            let has_forked = recv(&seen, &mut [0][..], RecvFlags::DONTWAIT).is_ok();
            if has_forked { named_unless_plain("execve")(e) } else { named("clone")(e) }
        })
    }
}

/// Ends this process by a signal, so that a shell sees which. The first process of a container
/// has no default actions: it ends with 128 plus the number.
#[allow(unsafe_code)]
pub(super) fn end_by(signal: i32) -> ! {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // If `run` ends as its command has, the core of interest is the command's.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // SAFETY: the set is initialized by sigemptyset; raise(3) takes any number.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        // It arrives before this returns.
        libc::raise(signal);
    }
    std::process::exit(128 + signal)
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Whether the kernel sends this signal to this process alone. A terminal's signals go to the
/// whole process group, and so to the command too; others report a failed write or a child.
fn is_for_this_process(signal: i32) -> bool {
    match signal {
        // Only the leader of a session gets the signal of its lost terminal.
        libc::SIGHUP | libc::SIGCONT => is_session_leader(),
        // Timers outlive an exec, as in `perl -e 'alarm 60; exec @ARGV'`.
        libc::SIGALRM | libc::SIGVTALRM | libc::SIGPROF => true,
        _ => false,
    }
}

#[allow(unsafe_code)]
fn is_session_leader() -> bool {
    // SAFETY: both only return numbers.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// Whether this process may set the modes of its terminal: it is in the foreground, or the
/// terminal is another session's.
#[allow(unsafe_code)]
pub(super) fn may_set_modes(terminal: impl AsFd) -> bool {
    // SAFETY: both only return numbers, whatever the descriptor is.
    let (group, ours) = unsafe { (libc::tcgetpgrp(terminal.as_fd().as_raw_fd()), libc::getpgrp()) };
    group == -1 || group == ours
}

/// The process at the other end of a Unix socket, when it connected or began to listen. `None` if
/// it is outside of this pid namespace.
#[allow(unsafe_code)]
pub(super) fn process_of(socket: impl AsFd) -> Option<Pid> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to local values, and `len` is the size of the first.
    let result = unsafe {
        let (fd, value) = (socket.as_fd().as_raw_fd(), (&raw mut peer).cast());
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut len)
    };
    Pid::from_raw(peer.pid).filter(|_| result == 0)
}

/// Whether the other side's kernel has all that was sent on a TCP connection: SIOCOUTQ, tcp(7).
#[allow(unsafe_code)]
pub(super) fn is_acknowledged(socket: impl AsFd) -> bool {
    let mut waiting: libc::c_int = 0;
    // SAFETY: the pointer is to a local value; SIOCOUTQ has the number of TIOCOUTQ.
    let result =
        unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    result == 0 && waiting == 0
}

/// Whether the command can be killed when this process is: sets what is set already, prctl(2).
#[allow(unsafe_code)]
pub(super) fn check_death_signal() -> io::Result<()> {
    let mut signal: libc::c_int = 0;
    // SAFETY: the pointer is to a local value, and the second call takes any number.
    let is_possible = unsafe {
        libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) == 0
            && libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) == 0
    };
    if is_possible { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal, if that is allowed, to a child that is not reaped yet.
#[allow(unsafe_code)]
pub(super) fn send(child: Pid, signal: i32) {
    // SAFETY: kill(2) takes any numbers.
    unsafe { libc::kill(child.as_raw_nonzero().get(), signal) };
}

/// Lets this process be ended by signals if it is the first of a container: for that one
/// the kernel has no default actions.
#[allow(unsafe_code)]
pub(super) fn end_as_first_process() {
    extern "C" fn leave(signal: i32) {
        // SAFETY: ends the process; a handler may call it.
        unsafe { libc::_exit(128 + signal) }
    }
    if std::process::id() != 1 {
        return;
    }
    for signal in ENDING_SIGNALS {
        // SAFETY: the handler calls nothing but _exit. What was ignored stays so.
        unsafe {
            let handler: extern "C" fn(i32) = leave;
            if libc::signal(signal, handler as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

/// Does something, such as to start a thread, with all signals blocked.
#[allow(unsafe_code)]
pub(super) fn with_signals_blocked<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are initialized by sigfillset and pthread_sigmask before they are
    // read.
    unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        let result = act();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        result
    }
}
