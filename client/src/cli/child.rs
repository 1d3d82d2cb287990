//! The command as our child: what it inherits, and what signals say of it and of us.
//! The one module of this crate with `unsafe`: the standard library has no signal masks.
#![allow(unsafe_code)]

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{self, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// How soon a stopped job goes on whose command was continued without us.
const WAKER_INTERVAL: Duration = Duration::from_millis(50);

/// All signals of this process, blocked, and read from a descriptor.
#[derive(Debug)]
pub(super) struct Signals {
    descriptor: std::fs::File,
    /// The mask that was before, for the command.
    before: libc::sigset_t,
    /// What SIGCHLD did before, for the command.
    on_child: libc::sighandler_t,
}

/// A signal that this process got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) number: i32,
    /// By another process's kill(2) or the like, or by the kernel to us alone
    /// ([`is_for_us_alone`]).
    pub(super) was_sent_to_us: bool,
}

impl Signals {
    /// Blocks the signals. From now on none that is sent ends or stops this process; a
    /// fault of its own still does.
    ///
    /// # Errors
    /// Those of signalfd(2).
    pub(super) fn block() -> io::Result<Signals> {
        // SAFETY: the sets are initialized by sigfillset and sigprocmask before they are
        // read; the descriptor is new and nobody else's.
        unsafe {
            // Ignored, as some parents leave it, it would hide how the command ends.
            let on_child = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(all.as_mut_ptr());
            let mut before = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            let number = libc::signalfd(-1, all.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            let descriptor = std::fs::File::from_raw_fd(number);
            Ok(Signals { descriptor, before: before.assume_init(), on_child })
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
        let is_ours = info.ssi_pid == std::process::id();
        let number = info.ssi_signo as i32;
        let was_sent_to_us = !is_ours && (info.ssi_code <= 0 || is_for_us_alone(number));
        Some(Arrived { number, was_sent_to_us })
    }

    /// Starts the command: in our process group, with the signal mask that we had, and
    /// killed when we die.
    ///
    /// # Errors
    /// When it can't be executed.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let (mask, on_child) = (self.before, self.on_child);
        let us = std::process::id();
        // SAFETY: between fork and exec only async-signal-safe functions are called:
        // prctl, getppid, _exit, signal, sigprocmask.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // We died before that. Nobody is there to hear of an error.
                if libc::getppid() as u32 != us {
                    libc::_exit(0);
                }
                libc::signal(libc::SIGCHLD, on_child);
                libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                Ok(())
            });
        }
        command.spawn()
    }

    /// Stops this process, as its command is stopped, until either is continued. Returns
    /// at once if the command goes on already, if this process ignores the signal, or if
    /// no shell is there that could continue its process group (the kernel knows). Without
    /// /proc nobody sees that the command goes on: then only who continues us counts.
    pub(super) fn stop_by(&self, signal: i32, command: Pid) {
        // Blocked, it waits; a SIGCONT takes it back, so it can't stop a job that is
        // continued meanwhile.
        raise(signal);
        match Waker::start(command) {
            Some(_waker) if is_stopped(command) != Some(false) => with_unblocked(signal, || ()),
            _ => take_back(signal),
        }
        // One that is still stopped gets the SIGCONT passed on.
        if is_stopped(command) == Some(false) {
            take_back(Signal::CONT.as_raw());
        }
    }

    /// Ends this process by a signal that has ended the command, so that a shell sees
    /// what it would see without us. Returns if the signal does not end it.
    pub(super) fn die_by(&self, signal: i32) {
        use rustix::process::{Resource, Rlimit, setrlimit};
        // The core of interest is the command's.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        // SAFETY: sets the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        with_unblocked(signal, || raise(signal));
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A process that continues this one when its command goes on, or has ended: nobody else
/// would, if whoever stopped the command continues it alone. Ended when dropped.
struct Waker(Pid);

impl Waker {
    /// `None` if there can't be one.
    fn start(command: Pid) -> Option<Waker> {
        let job = rustix::process::getpid();
        // SAFETY: a second thread (`Teller`) holds at most the locks of standard error and
        // of malloc: the new process says nothing, and libc's fork releases the other one.
        match unsafe { libc::fork() } {
            0 => continue_with(job, command),
            pid => Pid::from_raw(pid).filter(|_| pid > 0).map(Waker),
        }
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
        let _ = waitpid(Some(self.0), WaitOptions::empty());
    }
}

/// The waker's life. It has all signals blocked, as this process has.
fn continue_with(job: Pid, command: Pid) -> ! {
    // SAFETY: plain system calls. Nothing here uses a descriptor that is closed: they
    // would keep the lock's connection and others' pipes open.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Not to be stopped with the job.
        libc::setpgid(0, 0);
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
    }
    while rustix::process::getppid() == Some(job) {
        std::thread::sleep(WAKER_INTERVAL);
        if is_stopped(command) == Some(false) {
            // Until it is heard: it may come before the stop.
            let _ = kill_process(job, Signal::CONT);
        }
    }
    // SAFETY: ends this process and runs nothing of its parent's.
    unsafe { libc::_exit(0) }
}

/// Whether a process is stopped. One that is gone is not. `None` without /proc.
fn is_stopped(process: Pid) -> Option<bool> {
    std::fs::metadata("/proc/self").ok()?;
    let stat = std::fs::read(format!("/proc/{}/stat", process.as_raw_nonzero()));
    // The state is behind the name, which may contain anything.
    let state = stat.ok().and_then(|stat| {
        let end = stat.iter().rposition(|&byte| byte == b')')?;
        stat.get(end + 2).copied()
    });
    Some(matches!(state, Some(b'T' | b't')))
}

/// Whether the kernel sends this signal to us alone. A terminal's go to the whole process
/// group, and so to the command too; others tell us of a write that failed, or of a child.
fn is_for_us_alone(signal: i32) -> bool {
    match signal {
        // Of a terminal that is gone, only the leader of its session is told.
        libc::SIGHUP | libc::SIGCONT => {
            rustix::process::getsid(None) == Ok(rustix::process::getpid())
        }
        // Timers outlive an exec, as in `perl -e 'alarm 60; exec @ARGV'`.
        libc::SIGALRM | libc::SIGVTALRM | libc::SIGPROF => true,
        _ => false,
    }
}

/// Sends a signal to a process that is our child and not reaped yet. False if we may not.
pub(super) fn send(child: Pid, signal: i32) -> bool {
    // SAFETY: kill(2) takes any numbers.
    unsafe { libc::kill(child.as_raw_nonzero().get(), signal) == 0 }
}

/// Lets this process be ended by signals if it is the first of a container: for that one
/// the kernel has no default actions.
pub(super) fn end_as_first_process() {
    extern "C" fn leave(signal: i32) {
        // SAFETY: ends the process; a handler may call it.
        unsafe { libc::_exit(128 + signal) }
    }
    if std::process::id() != 1 {
        return;
    }
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
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
pub(super) fn deaf<T>(act: impl FnOnce() -> T) -> T {
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

/// Sends a signal to this process. It arrives before this returns, unless blocked.
fn raise(signal: i32) {
    // SAFETY: kill(2) takes any numbers.
    unsafe { libc::kill(libc::getpid(), signal) };
}

fn with_unblocked(signal: i32, act: impl FnOnce()) {
    // SAFETY: the set is initialized by sigemptyset.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        act();
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Forgets a signal that is blocked and waits.
fn take_back(signal: i32) {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set is initialized by sigemptyset.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigtimedwait(set.as_ptr(), std::ptr::null_mut(), &now);
    }
}

/// Whether a signal stops a job as a terminal does.
pub(super) fn stops_a_job(signal: i32) -> bool {
    [Signal::TSTP, Signal::TTIN, Signal::TTOU].iter().any(|s| s.as_raw() == signal)
}
