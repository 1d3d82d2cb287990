//! The terminal of `top`: whether standard output is one, has colours, and takes output now;
//! sets raw mode, and restores the terminal when `top` ends, is stopped or goes to the background.
//!
//! A separate thread restores it. The one that draws and reads keys may be stuck: in a
//! terminal that takes no output (Ctrl-S), or in crossterm, which reads until a key is
//! complete, and for ever from a terminal that has hung up.

use crate::output::print_error;
use crate::unsafe_calls::{ENDING_SIGNALS, end_by, may_set_modes, with_signals_blocked};
use connect::failed_call::named;
use crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, queue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::{stdin, stdout};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGTSTP, SIGTTOU};
use signal_hook::low_level::{pipe, raise};
use signal_hook::{SigId, flag};
use std::io::{self, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a drawing may take when the terminal is to be given back.
const DRAWN_WITHIN: Duration = Duration::from_secs(1);

/// How often a `top` in the background checks whether the terminal is still there.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Reversed,
    /// The row that Enter opens.
    Selected,
    Alarming,
}

/// Whether standard output is a terminal that can move its cursor.
pub(super) fn stdout_is_terminal() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    io::stdout().is_terminal() && !is_dumb
}

/// Whether colours are wanted: on a terminal, unless `NO_COLOR` is set.
pub(super) fn wants_colour() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_refused
}

/// The columns and lines of the terminal. Some do not know their size: it is 0 × 0 then, and the
/// variables of these names have it, or it is that of the first terminals.
pub(super) fn screen_size() -> (u16, u16) {
    let (columns, lines) = terminal::size().unwrap_or_default();
    known_size(columns, lines, |name| std::env::var(name).ok())
}

fn known_size(columns: u16, lines: u16, variable: impl Fn(&str) -> Option<String>) -> (u16, u16) {
    let or_variable = |size: u16, name: &str, usual: u16| match size {
        0 => variable(name)
            .and_then(|text| text.trim().parse().ok())
            .filter(|&size| size > 0)
            .unwrap_or(usual),
        size => size,
    };
    (or_variable(columns, "COLUMNS", 80), or_variable(lines, "LINES", 24))
}

/// Who has the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Shell,
    Top,
    /// `top` does not take it back.
    ShellForGood,
}

/// The terminal; given back when dropped.
pub(super) struct Terminal {
    owner: Arc<Mutex<Owner>>,
    is_retaken: Arc<AtomicBool>,
}

impl Terminal {
    /// Takes the terminal. From now on each signal that ends or stops this process first
    /// gives it back; a terminal that hangs up ends this process.
    pub(super) fn take() -> io::Result<Terminal> {
        let owner = Arc::new(Mutex::new(Owner::Shell));
        let is_retaken = Arc::new(AtomicBool::new(false));
        let (woken, waking) = UnixStream::pair().map_err(named("socketpair"))?;
        woken.set_nonblocking(true)?;
        let mut keeper = Keeper {
            owner: Arc::clone(&owner),
            is_retaken: Arc::clone(&is_retaken),
            woken,
            ending: Arc::default(),
            is_to_stop: Arc::default(),
            is_continued: Arc::default(),
        };
        // A signal that arrives between two of its calls would be lost.
        with_signals_blocked(|| keeper.catch_signals(&waking))?;
        give_back_in_panic(Arc::clone(&owner));
        let thread = thread::Builder::new().spawn(move || keeper.keep());
        thread.map_err(named("clone3, clone"))?;
        Ok(Terminal { owner, is_retaken })
    }

    /// Draws, if `top` has the terminal now.
    pub(super) fn draw(&self, draw: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let owner = locked(&self.owner);
        if *owner != Owner::Top {
            return Ok(());
        }
        // Not in `Keeper::take`: that thread must not write to a terminal that takes no output.
        if self.is_retaken.swap(false, Ordering::SeqCst) {
            queue!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        }
        draw()
    }

    /// Whether it was taken since the last drawing.
    pub(super) fn is_to_be_drawn(&self) -> bool {
        self.is_retaken.load(Ordering::SeqCst)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(let_go(&self.owner, Owner::ShellForGood));
    }
}

/// A release aborts after a panic, in any thread, and drops nothing: this gives the terminal back
/// before the panic is reported.
fn give_back_in_panic(owner: Arc<Mutex<Owner>>) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        drop(let_go(&owner, Owner::ShellForGood));
        report(panic);
    }));
}

/// Gives the terminal back. Nobody draws while the returned guard lives.
fn let_go(owner: &Mutex<Owner>, next: Owner) -> Option<MutexGuard<'_, Owner>> {
    let since = Instant::now();
    let mut owner = loop {
        match owner.try_lock() {
            Ok(owner) => break owner,
            Err(TryLockError::Poisoned(owner)) => break owner.into_inner(),
            Err(_) if since.elapsed() < DRAWN_WITHIN => thread::sleep(Duration::from_millis(5)),
            Err(_) => {
                give_back();
                return None;
            }
        }
    };
    if *owner == Owner::Top {
        give_back();
    }
    if *owner != Owner::ShellForGood {
        *owner = next;
    }
    Some(owner)
}

fn locked(owner: &Mutex<Owner>) -> MutexGuard<'_, Owner> {
    owner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of the thread.
struct Keeper {
    owner: Arc<Mutex<Owner>>,
    is_retaken: Arc<AtomicBool>,
    /// Readable when a signal has arrived.
    woken: UnixStream,
    /// The signal that ends this process, or 0.
    ending: Arc<AtomicUsize>,
    is_to_stop: Arc<AtomicBool>,
    is_continued: Arc<AtomicBool>,
}

impl Keeper {
    fn catch_signals(&self, waking: &UnixStream) -> io::Result<()> {
        let wake = |signal| -> io::Result<SigId> { pipe::register(signal, waking.try_clone()?) };
        for signal in ENDING_SIGNALS {
            flag::register_usize(signal, Arc::clone(&self.ending), signal as usize)?;
            wake(signal)?;
        }
        for (signal, flag) in [(SIGTSTP, &self.is_to_stop), (SIGCONT, &self.is_continued)] {
            flag::register(signal, Arc::clone(flag))?;
            wake(signal)?;
        }
        Ok(())
    }

    fn keep(&mut self) {
        loop {
            let signal = self.ending.load(Ordering::SeqCst);
            if signal != 0 {
                self.end_by(signal as i32);
            }
            let is_to_stop = self.is_to_stop.swap(false, Ordering::SeqCst);
            let is_continued = self.is_continued.swap(false, Ordering::SeqCst);
            // Also after a SIGSTOP: the shell has changed the terminal's modes.
            if is_to_stop || is_continued {
                drop(let_go(&self.owner, Owner::Shell));
            }
            let is_ours = (is_continued || !is_to_stop) && self.take();
            // A process that is continued in the background may have got a SIGTERM before:
            // leaves it a moment to notice.
            if !is_ours && !is_continued {
                stop();
            }
            if self.wait(is_ours) {
                self.end_by(SIGHUP);
            }
        }
    }

    /// Takes the terminal, unless this process is in the background.
    fn take(&self) -> bool {
        if !may_set_modes(stdin()) {
            return false;
        }
        let mut owner = locked(&self.owner);
        if *owner == Owner::Shell {
            if let Err(e) = terminal::enable_raw_mode() {
                print_error(&format!("the terminal: {e}"));
                std::process::exit(1);
            }
            *owner = Owner::Top;
            self.is_retaken.store(true, Ordering::SeqCst);
        }
        true
    }

    fn end_by(&self, signal: i32) -> ! {
        let _owner = let_go(&self.owner, Owner::Shell);
        end_by(signal)
    }

    /// Waits for a signal; in the background, for a while at most. True if the terminal
    /// has hung up.
    fn wait(&mut self, is_ours: bool) -> bool {
        let mut wanted = [
            PollFd::new(&self.woken, PollFlags::IN),
            // A terminal that hangs up always sends a signal.
            PollFd::from_borrowed_fd(stdin(), PollFlags::empty()),
        ];
        let timeout = if is_ours { None } else { Some(&LOOK_INTERVAL) };
        let is_told = poll(&mut wanted, timeout).is_ok();
        let has_hung_up =
            is_told && wanted[1].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let mut signals = [0; 64];
        while matches!(self.woken.read(&mut signals), Ok(1..)) {}
        has_hung_up
    }
}

/// Stops this process as a write from the background does: the kernel knows whether a shell
/// is there to continue it. (SIGTSTP is handled here, and SIGSTOP would stop it for ever.)
fn stop() {
    let _ = raise(SIGTTOU);
}

/// Restores its modes, and unless it takes no output, its screen. In the background it
/// belongs to another process, and setting its modes would stop this one.
fn give_back() {
    if !may_set_modes(stdin()) {
        return;
    }
    let mut bytes = Vec::new();
    let composed = queue!(bytes, LeaveAlternateScreen, cursor::Show);
    let mut wanted = [PollFd::from_borrowed_fd(stdout(), PollFlags::OUT)];
    let has_room = poll(&mut wanted, Some(&Timespec::default())).is_ok_and(|count| count > 0);
    if has_room && composed.is_ok() {
        // Not by `io::stdout`, which a drawing may have locked.
        let _ = rustix::io::write(stdout(), &bytes);
    }
    let _ = terminal::disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};
    use std::fs::File;
    use std::io::Write;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::Command;

    /// What this test does in a process of its own: a panic between two drawings, or in one.
    const PANICS: &str = "POOLCOUNTER_TEST_PANICS";

    /// The end of the screen of `top`.
    const LEFT: &str = "\x1b[?1049l";

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_reported() {
        if let Some(panics) = std::env::var_os(PANICS) {
            panic_at_the_terminal(panics == "drawing");
        }
        for panics in ["between", "drawing"] {
            let (mut master, slave) = pseudo_terminal();
            let mut command = Command::new("setsid");
            command.args(["--ctty", "--wait"]).arg(std::env::current_exe().expect("a path"));
            let this = "a_panic_gives_the_terminal_back_before_it_is_reported";
            command.args([this, "--nocapture", "--test-threads=1"]).env(PANICS, panics);
            let end = || slave.try_clone().expect("a descriptor");
            command.stdin(end()).stdout(end()).stderr(end());
            let mut child = command.spawn().expect("setsid, of util-linux");
            drop((command, slave));
            let mut shown = Vec::new();
            // EIO, when the last process has closed it.
            let _ = master.read_to_end(&mut shown);
            let shown = String::from_utf8_lossy(&shown);
            assert!(!child.wait().expect("a status").success());
            let entered = shown.find("\x1b[?1049h").expect("the screen of top");
            let left = shown.find(LEFT).expect("the end of that screen");
            assert!(entered < left && left < shown.find("panicked").expect("why"), "{shown:?}");
            assert!(shown[left..].contains("\x1b[?25h"), "no cursor: {shown:?}");
            let modes = tcgetattr(&master).expect("modes").local_modes;
            assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{panics}");
        }
    }

    /// As a release, which aborts then.
    fn panic_at_the_terminal(is_drawing: bool) -> ! {
        let terminal = Terminal::take().expect("a terminal");
        while !terminal.is_to_be_drawn() {
            thread::yield_now();
        }
        terminal.draw(|| io::stdout().flush()).expect("the screen of top");
        let bug = || panic!("a bug in top");
        let _ =
            catch_unwind(AssertUnwindSafe(|| if is_drawing { terminal.draw(bug) } else { bug() }));
        std::process::abort()
    }

    fn pseudo_terminal() -> (File, File) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("unlock");
        let path = ptsname(&master, Vec::new()).expect("ptsname");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = open(path.as_c_str(), flags, Mode::empty()).expect("open the terminal");
        (master.into(), slave.into())
    }

    #[test]
    fn a_terminal_that_does_not_know_its_size_has_that_of_the_environment() {
        let variable = |columns: &'static str, lines: &'static str| {
            move |name: &str| Some(if name == "COLUMNS" { columns } else { lines }.to_owned())
        };
        assert_eq!(known_size(90, 30, variable("100", "50")), (90, 30));
        assert_eq!(known_size(0, 0, variable("100", "50")), (100, 50));
        assert_eq!(known_size(0, 0, |_| None), (80, 24));
        for odd in ["", "x", "0", "-1", "99999"] {
            assert_eq!(known_size(0, 0, variable(odd, odd)), (80, 24), "{odd}");
        }
    }
}
