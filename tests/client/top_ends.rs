//! `poolcounter top` ends on request, and when its terminal hangs up.

use crate::command::{binary, lists, scripted};
use crate::support::restart::children;
use crate::support::terminal::terminal;
use crate::support::{PATIENCE, eventually, launched, read_some, skip, wait_for_exit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Action, LocalModes, Winsize, tcflow, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// As leader of the terminal's session, and with a terminal of another session: then a
/// hangup sends it no signal.
const LAUNCHERS: [&[&str]; 2] = [&["setsid", "--ctty"], &["setsid"]];

/// `top` that shows its lists, the user's side of the terminal, and its own side.
struct Shown {
    top: Child,
    master: File,
    slave: OwnedFd,
}

impl Shown {
    fn start(launcher: &[&str]) -> Shown {
        Shown::start_at(launcher, &scripted(lists))
    }

    fn start_at(launcher: &[&str], server: &str) -> Shown {
        Shown::start_with((80, 24), launcher, server)
    }

    fn start_with((columns, lines): (u16, u16), launcher: &[&str], server: &str) -> Shown {
        let (master, slave) = terminal();
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("a size");
        let ends = || slave.try_clone().expect("a descriptor");
        let mut command = launched(launcher, binary(), &["-s", server, "top"]);
        command.env("COLUMNS", "70").env_remove("LINES");
        command.env("TERM", "xterm").stdin(ends()).stdout(ends());
        let top = command.spawn().expect("start it");
        drop(command);
        let mut shown = Shown { top, master, slave };
        shown.read_until("article:stuck");
        shown
    }

    /// Reads the screen output until it contains `wanted`.
    #[track_caller]
    fn read_until(&mut self, wanted: &str) {
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains(wanted) {
            let patience = Timespec::try_from(PATIENCE).expect("a timeout");
            let mut readable = [PollFd::new(&self.master, PollFlags::IN)];
            let polled = retry_on_intr(|| poll(&mut readable, Some(&patience)));
            let count = polled.expect("poll");
            assert!(count > 0, "it shows {:?}", String::from_utf8_lossy(&text));
            let mut buffer = [0; 4096];
            let read = read_some(&mut self.master, &mut buffer).expect("read");
            text.extend_from_slice(&buffer[..read]);
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.top), signal).expect("a signal");
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.slave).expect("modes").local_modes;
        !modes.contains(LocalModes::ICANON)
    }
}

/// As that of some serial consoles and of containers.
#[test]
fn a_terminal_without_a_size_has_the_usual_one() {
    let mut shown = Shown::start_with((0, 0), LAUNCHERS[0], &scripted(lists));
    // The help, on the last line of 24, cut to the columns of the environment.
    shown.read_until("\x1b[24;1H");
    shown.read_until(" h o c s lists  < > sort  n ne\x1b");
    shown.signal(Signal::TERM);
    assert_eq!(wait_for_exit(&mut shown.top).signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn a_terminal_that_hangs_up_ends_it() {
    for launcher in LAUNCHERS {
        let Shown { mut top, master, slave } = Shown::start(launcher);
        drop(slave);
        drop(master);
        assert_eq!(wait_for_exit(&mut top).signal(), Some(Signal::HUP.as_raw()), "{launcher:?}");
    }
}

#[test]
fn a_signal_ends_it_and_restores_the_terminal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let mut shown = Shown::start(LAUNCHERS[0]);
        assert!(shown.is_raw());
        // The beginning of an arrow: the rest may never come.
        shown.master.write_all(b"\x1b[").expect("type");
        shown.signal(signal);
        shown.read_until("\x1b[?1049l");
        assert_eq!(wait_for_exit(&mut shown.top).signal(), Some(signal.as_raw()));
        assert!(!shown.is_raw());
    }
}

/// For the first process of a container the kernel has no default actions.
#[test]
fn a_signal_ends_it_as_the_first_process_of_a_container() {
    let namespace = ["unshare", "-Urpf", "--kill-child", "--mount-proc"];
    if Command::new(namespace[0])
        .args(&namespace[1..])
        .arg("true")
        .status()
        .is_ok_and(|s| !s.success())
    {
        return skip("no user and pid namespaces");
    }
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let mut shown = Shown::start(&namespace);
        let [top] = children(shown.top.id())[..] else { panic!("one child") };
        kill_process(Pid::from_raw(top as i32).expect("a process"), signal).expect("a signal");
        assert_eq!(wait_for_exit(&mut shown.top).code(), Some(128 + signal.as_raw()));
    }
}

/// As after Ctrl-S.
#[test]
fn a_signal_ends_it_while_the_terminal_takes_no_output() {
    for is_drawing in [false, true] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let server = scripted(move |question| {
            counted.fetch_add(1, Ordering::Relaxed);
            lists(question)
        });
        let mut shown = Shown::start_at(LAUNCHERS[0], &server);
        tcflow(&shown.slave, Action::OOff).expect("stop the output");
        // It draws after each answer of the server, and then blocks.
        let before = asked.load(Ordering::Relaxed);
        assert!(!is_drawing || eventually(|| asked.load(Ordering::Relaxed) >= before + 2));
        shown.signal(Signal::TERM);
        assert_eq!(wait_for_exit(&mut shown.top).signal(), Some(Signal::TERM.as_raw()));
        assert!(!shown.is_raw());
    }
}
