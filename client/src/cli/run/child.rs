//! The command as a child process, while a lock is held: what it inherits, the signals that are
//! meant for it, a lost connection, its end; all that it has started; standard error meanwhile.
//! The one module of this crate with `unsafe`: the standard library has no signal masks.

use crate::cli::output::print_error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
    set_child_subreaper, test_kill_process, wait, waitid,
};
use std::cell::RefCell;
use std::fs;
use std::io::{self, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OnLost {
    /// Print a warning; the command continues.
    Warn,
    /// Stop the command and all that it has started: SIGTERM, then SIGKILL.
    Kill,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobEnd {
    Exited(u8),
    Killed(i32),
}

/// What a command runs with.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) signals: &'a Signals,
    /// The connection that has the lock, while it lasts.
    pub(super) connection: Option<BorrowedFd<'a>>,
    pub(super) on_lost: OnLost,
    /// How long processes may take to end after SIGTERM before they are killed.
    pub(super) kill_after: Duration,
    pub(super) stderr: &'a StderrThread,
}

/// The running command.
pub(super) struct Job<'a> {
    with: Surroundings<'a>,
    descendants: Descendants,
    ended: Option<JobEnd>,
    /// The lock was lost.
    pub(super) was_lost: bool,
    /// The command was stopped for that.
    pub(super) was_stopped: bool,
    killed_at: Option<Instant>,
    is_killed: bool,
    // Not reaped by the standard library: `reap` does.
    _child: Child,
}

impl<'a> Job<'a> {
    /// Starts the command.
    pub(super) fn start(with: Surroundings<'a>, command: &mut Command) -> std::io::Result<Self> {
        let may_be_stopped = with.on_lost == OnLost::Kill && with.connection.is_some();
        let mut descendants =
            if may_be_stopped { Descendants::adopt() } else { Descendants::default() };
        let child = with.signals.spawn(command)?;
        descendants.command = Some(Pid::from_child(&child));
        Ok(Job {
            with,
            descendants,
            ended: None,
            was_lost: false,
            was_stopped: false,
            killed_at: None,
            is_killed: false,
            _child: child,
        })
    }

    /// Waits for its end, and meanwhile passes signals on and watches the connection.
    pub(super) fn wait(&mut self) -> JobEnd {
        loop {
            self.reap();
            // What it leaves behind is its own affair, unless the lock was lost.
            let is_over = |_: &JobEnd| !self.was_stopped || self.descendants.are_gone();
            if let Some(ended) = self.ended.filter(is_over) {
                return ended;
            }
            if self.wait_for_events() {
                self.lose();
            }
            while let Some(signal) = self.with.signals.next() {
                self.pass_on(signal);
            }
            self.is_killed |= self.killed_at.take_if(|at| *at <= Instant::now()).is_some();
            if self.is_killed {
                self.descendants.kill();
            }
        }
    }

    /// Takes the ends of the command and of orphans.
    fn reap(&mut self) {
        while let Ok(Some((child, status))) = wait(WaitOptions::NOHANG) {
            if self.descendants.command == Some(child) {
                self.ended = ended(status);
            }
            self.descendants.forget(child);
        }
    }

    /// Waits for a signal. True if the connection has ended.
    fn wait_for_events(&self) -> bool {
        let mut wanted = vec![PollFd::new(self.with.signals, PollFlags::IN)];
        // A server sends nothing unasked: anything to read is the end.
        let end = PollFlags::IN | PollFlags::RDHUP;
        let connection = self.with.connection.as_ref();
        wanted.extend(connection.map(|connection| PollFd::new(connection, end)));
        let left = self.killed_at.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let events = poll(&mut wanted, left.as_ref());
        events.is_ok() && wanted.get(1).is_some_and(|wanted| !wanted.revents().is_empty())
    }

    fn lose(&mut self) {
        self.with.connection = None;
        self.was_lost = true;
        let what_follows = match self.with.on_lost {
            OnLost::Warn => "the command continues",
            OnLost::Kill => self.stop_the_command(),
        };
        self.with.stderr.print(&format!(
            "the connection to the server is lost, and with it the lock; {what_follows}"
        ));
    }

    fn stop_the_command(&mut self) -> &'static str {
        let signalled = self.descendants.terminate();
        self.was_stopped = signalled != Signalled::NotTheCommand;
        self.killed_at = Instant::now().checked_add(self.with.kill_after);
        match signalled {
            Signalled::All => "stopping the command",
            Signalled::Some => "stopping the command, except processes that it may not signal",
            Signalled::NotTheCommand => "not allowed to signal the command, so it continues",
        }
    }

    fn pass_on(&mut self, signal: Arrived) {
        let is_for_it = signal.was_sent_here && signal.number != Signal::CHILD.as_raw();
        match self.descendants.command {
            Some(command) if is_for_it => send(command, signal.number),
            Some(_) => {}
            // Processes that it has left behind are waited for.
            None => self.is_killed |= is_for_it && ends_a_process(signal.number),
        }
    }
}

fn ends_a_process(signal: i32) -> bool {
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].iter().any(|it| it.as_raw() == signal)
}

fn ended(status: WaitStatus) -> Option<JobEnd> {
    if let Some(code) = status.exit_status() {
        return Some(JobEnd::Exited(code as u8));
    }
    status.terminating_signal().map(JobEnd::Killed)
}

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
        let is_own = info.ssi_pid == std::process::id();
        let number = info.ssi_signo as i32;
        let was_sent_here = !is_own && (info.ssi_code <= 0 || is_for_this_process(number));
        Some(Arrived { number, was_sent_here })
    }

    /// Starts the command: in the same process group, with the signal mask of before, and
    /// killed when this process dies.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let (mask, on_child) = (self.before, self.on_child);
        let parent = std::process::id();
        // SAFETY: between fork and exec only async-signal-safe functions are called:
        // prctl, getppid, _exit, signal, sigprocmask.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent died before that, so no process can read an error.
                if libc::getppid() as u32 != parent {
                    libc::_exit(0);
                }
                libc::signal(libc::SIGCHLD, on_child);
                libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                Ok(())
            });
        }
        command.spawn()
    }

    /// Ends this process by a signal that has ended the command, so that a shell sees
    /// what it would see without `poolcounter run`. Returns if the signal does not end it.
    pub(super) fn die_by(&self, signal: i32) {
        use rustix::process::{Resource, Rlimit, setrlimit};
        // The core of interest is the command's.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        // SAFETY: the set is initialized by sigemptyset; kill(2) takes any numbers.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
            // It arrives before this returns.
            libc::kill(libc::getpid(), signal);
        }
    }
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
        libc::SIGHUP | libc::SIGCONT => {
            rustix::process::getsid(None) == Ok(rustix::process::getpid())
        }
        // Timers outlive an exec, as in `perl -e 'alarm 60; exec @ARGV'`.
        libc::SIGALRM | libc::SIGVTALRM | libc::SIGPROF => true,
        _ => false,
    }
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

/// How often to look for processes that were started while others were being stopped. Only a
/// process that must not be stopped starts more.
const LOOKS_MAX: u32 = 100;

/// The processes below this one, except those that existed before the command.
#[derive(Default)]
pub(super) struct Descendants {
    /// The command, until it is reaped.
    pub(super) command: Option<Pid>,
    others: Vec<Pid>,
}

/// Which processes got SIGTERM.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Signalled {
    All,
    /// Not those that have another user's rights.
    Some,
    /// The command has another user's rights.
    NotTheCommand,
}

impl Descendants {
    /// Adopts orphans from now on. The command is not started yet.
    pub(super) fn adopt() -> Descendants {
        // On a kernel that can't, they are not found.
        let _ = set_child_subreaper(Some(getpid()));
        // A shell that executed this process in its place has left its children. Usually there
        // are none, and /proc need not be read.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let before = Descendants { command: None, others: Vec::new() };
        match waitid(WaitId::All, look) {
            // With their descendants, whose parents may end.
            Ok(_) => Descendants { others: before.running(), ..before },
            Err(_) => before,
        }
    }

    /// A child was reaped: another process may get its number.
    pub(super) fn forget(&mut self, child: Pid) {
        self.others.retain(|&other| other != child);
        self.command = self.command.filter(|&command| command != child);
    }

    /// Sends SIGTERM to all. Stops them first, to miss no process that is started meanwhile,
    /// and to signal none that a script's trap starts to clean up.
    pub(super) fn terminate(&self) -> Signalled {
        let mut found = Vec::new();
        for _ in 0..LOOKS_MAX {
            let mut new = self.signalable();
            new.retain(|process| !found.contains(process));
            if new.is_empty() {
                break;
            }
            send_all(&new, Signal::STOP);
            found.append(&mut new);
        }
        send_all(&found, Signal::TERM);
        send_all(&found, Signal::CONT);
        if self.command.is_some_and(|command| test_kill_process(command).is_err()) {
            return Signalled::NotTheCommand;
        }
        // Others may have been started meanwhile, to clean up.
        let may_not = |process: &Pid| test_kill_process(*process) == Err(Errno::PERM);
        if self.running().iter().any(may_not) { Signalled::Some } else { Signalled::All }
    }

    /// Sends SIGKILL to all. The end of a process is the moment to look for more.
    pub(super) fn kill(&self) {
        send_all(&self.signalable(), Signal::KILL);
    }

    /// Whether no process is left that this one may signal.
    pub(super) fn are_gone(&self) -> bool {
        self.signalable().is_empty()
    }

    fn signalable(&self) -> Vec<Pid> {
        let mut found = self.running();
        found.retain(|&process| test_kill_process(process).is_ok());
        found
    }

    /// Without /proc, only the command is known.
    fn running(&self) -> Vec<Pid> {
        let Some(processes) = processes() else { return self.command.into_iter().collect() };
        let mut found: Vec<&ProcessStat> = Vec::new();
        let mut parent = getpid();
        // Parents that change meanwhile could make a circle.
        for next in 0..=processes.len() {
            let children = processes.iter().filter(|process| process.parent == Some(parent));
            found.extend(children.filter(|child| !self.others.contains(&child.pid)));
            let Some(process) = found.get(next) else { break };
            parent = process.pid;
        }
        found.iter().filter(|process| !process.has_ended).map(|process| process.pid).collect()
    }
}

fn send_all(processes: &[Pid], signal: Signal) {
    for &process in processes {
        let _ = kill_process(process, signal);
    }
}

struct ProcessStat {
    pid: Pid,
    parent: Option<Pid>,
    /// It may still have children, as long as it is in the list.
    has_ended: bool,
}

/// All processes. `None` without /proc, or if that has the numbers of another namespace.
fn processes() -> Option<Vec<ProcessStat>> {
    let own = fs::read_link("/proc/self").ok()?;
    if own.to_str()?.parse() != Ok(std::process::id()) {
        return None;
    }
    let numbers = fs::read_dir("/proc").ok()?.flatten();
    Some(numbers.filter_map(|entry| process(entry.file_name().to_str()?)).collect())
}

fn process(number: &str) -> Option<ProcessStat> {
    let pid = Pid::from_raw(number.parse().ok()?)?;
    let stat = fs::read(format!("/proc/{number}/stat")).ok()?;
    parse(pid, &String::from_utf8_lossy(&stat))
}

/// Parses proc_pid_stat(5).
fn parse(pid: Pid, stat: &str) -> Option<ProcessStat> {
    // The name may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let (state, parent, threads) = (fields[0], fields.get(1)?, fields.get(17)?);
    // Other threads of a process may outlive its first one.
    let has_ended = matches!(state, "Z" | "X") && matches!(*threads, "0" | "1");
    Some(ProcessStat { pid, parent: Pid::from_raw(parent.parse().ok()?), has_ended })
}

/// How long `run` waits at its end until its lines are read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints lines in a thread of its own, which the first line starts. A full pipe, or a
/// terminal that was stopped by Ctrl-S, blocks that thread alone.
#[derive(Default)]
pub(super) struct StderrThread {
    thread: RefCell<Option<Thread>>,
}

struct Thread {
    lines: Sender<String>,
    /// Sends nothing; closes when all lines are printed.
    end: Receiver<()>,
}

impl StderrThread {
    /// Prints a line, immediately if possible.
    pub(super) fn print(&self, line: &str) {
        let mut thread = self.thread.borrow_mut();
        if thread.is_none() {
            *thread = Thread::start();
        }
        if let Some(thread) = &*thread {
            let _ = thread.lines.send(line.to_owned());
        }
    }

    /// Waits until all lines are printed, or for `PATIENCE`.
    pub(super) fn finish(&self) {
        if let Some(Thread { lines, end }) = self.thread.take() {
            drop(lines);
            let _ = end.recv_timeout(PATIENCE);
        }
    }
}

impl Thread {
    /// `None` if there can't be another thread: then nothing is printed.
    fn start() -> Option<Thread> {
        let (lines, received) = channel::<String>();
        let (ended, end) = channel();
        let print_all = move || {
            received.iter().for_each(|line| print_error(&line));
            drop(ended);
        };
        // Signals are for the thread that passes them on.
        let thread = with_signals_blocked(|| std::thread::Builder::new().spawn(print_all));
        thread.ok().map(|_| Thread { lines, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_with_its_last_thread() {
        for (state, threads, has_ended) in
            [("S", 1, false), ("Z", 1, true), ("Z", 2, false), ("Z", 10, false), ("X", 0, true)]
        {
            let stat =
                format!("7 (a) b) {state} 5 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 9 0");
            let pid = Pid::from_raw(7).expect("a number");
            let process = parse(pid, &stat).expect("a process");
            assert_eq!(process.has_ended, has_ended, "{stat}");
            assert_eq!(process.parent, Pid::from_raw(5));
        }
        assert!(parse(getpid(), "7 (a) Z 5").is_none());
    }
}
