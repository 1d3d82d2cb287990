//! Job control, in a terminal with an interactive shell, driven by tmux.

use crate::command::binary;
use crate::support::{Server, eventually, skip};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A terminal of tmux, with a server of its own; ended when dropped.
pub(crate) struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs a command in a terminal of this size. `None`, with a message, without tmux.
    pub(crate) fn start(columns: u32, lines: u32, command: &str) -> Option<Terminal> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if Command::new("tmux").arg("-V").output().is_err() {
            skip("no tmux: sudo apt-get install tmux");
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("poolcounter-{}-{count}", std::process::id());
        let terminal = Terminal { socket };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let size = ["-x", &columns, "-y", &lines];
        terminal.tmux(&[&["-f", "/dev/null", "new-session", "-d"], &size[..], &[command]].concat());
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket]).args(arguments).env("LC_ALL", "C.UTF-8");
        let output = command.output().expect("tmux");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types keys, by tmux's names.
    pub(crate) fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a line.
    pub(crate) fn type_line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    pub(crate) fn resize(&self, columns: u32, lines: u32) {
        let (columns, lines) = (columns.to_string(), lines.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &lines]);
    }

    /// What the terminal shows.
    pub(crate) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The only process of the group that has the terminal.
    pub(crate) fn foreground_process(&self) -> Pid {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", shell.trim()));
        let stat = stat.expect("it is alive");
        // Field 8 of proc(5), the sixth after the name.
        let group = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(5));
        Pid::from_raw(group.and_then(|pid| pid.parse().ok()).expect("a number")).expect("a pid")
    }

    /// Waits until the terminal's text satisfies `is_shown`; returns the text.
    #[track_caller]
    pub(crate) fn shows(&self, mut is_shown: impl FnMut(&str) -> bool) -> String {
        let mut screen = String::new();
        let is_met = eventually(|| {
            screen = self.screen();
            is_shown(&screen)
        });
        assert!(is_met, "the terminal shows\n{screen}");
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// An interactive shell, with `poolcounter run k --` as `$P`. `None` without tmux.
///
/// The terminal echoes the typed line too, sometimes in halves: so that line never
/// contains the text that a test waits for.
fn shell(server: &Server) -> Option<Terminal> {
    let terminal = Terminal::start(100, 30, "env PS1='ready> ' bash --norc --noprofile -i")?;
    terminal.shows(|screen| screen.contains("ready>"));
    let run = format!("{} -s {} run k --", binary().display(), server.address());
    terminal.type_line(&format!("P='{run}'"));
    Some(terminal)
}

fn holders(server: &Server, count: u64) -> bool {
    eventually(|| server.counter("processing_workers") == count)
}

/// Waits until the terminal shows `pid=N` of a living process: the pid of an ended one
/// may still be on the screen.
fn shown_pid(terminal: &Terminal) -> Pid {
    let pid = |screen: &str| {
        let mut shown = screen.lines().filter_map(|line| line.strip_prefix("pid=")?.parse().ok());
        shown.find(|pid: &i32| std::path::Path::new(&format!("/proc/{pid}")).exists())
    };
    let mut found = None;
    terminal.shows(|screen| {
        found = pid(screen);
        found.is_some()
    });
    found.and_then(Pid::from_raw).expect("shown")
}

/// The state of a process and its parent, from proc(5).
fn state_and_parent(pid: Pid) -> (char, Pid) {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let stat = stat.expect("it is alive");
    let mut rest = stat.rsplit_once(") ").expect("a name").1.split(' ');
    let state = rest.next().and_then(|state| state.chars().next()).expect("a state");
    let parent = rest.next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    (state, parent.expect("a parent"))
}

#[test]
fn job_control_works_as_without_run() {
    let server = Server::start();
    let Some(terminal) = shell(&server) else { return };
    let held = |count| holders(&server, count);
    terminal.type_line("clear; $P sh -c 'echo u\\p; exec sleep 1000'");
    terminal.shows(|screen| screen.contains("up\n"));
    assert!(held(1));
    // Stopped, it keeps the lock.
    terminal.press(&["C-z"]);
    terminal.shows(|screen| screen.contains("Stopped"));
    assert!(held(1));
    terminal.type_line("bg; jobs -r | sed s/Running/goes''-on/");
    terminal.shows(|screen| screen.contains("goes-on"));
    terminal.type_line("clear; fg");
    terminal.shows(|screen| screen.contains("1000") && !screen.contains("ready>"));
    // Interrupted, both end, and the shell sees the signal.
    terminal.press(&["C-c"]);
    terminal.type_line("echo status $?");
    terminal.shows(|screen| screen.contains("status 130"));
    assert!(held(0));
    // A command that handles the interrupt itself continues, and gets it once. It waits
    // for a child that prints the start: a shell that is about to start a program would
    // be late.
    let waiting = "trap \"echo once\" INT; sh -c \"echo u\\p; exec cat\"; cat";
    terminal.type_line(&format!("clear; $P sh -c '{waiting}'"));
    terminal.shows(|screen| screen.contains("up\n"));
    terminal.press(&["C-c"]);
    terminal.shows(|screen| screen.contains("once"));
    assert!(held(1));
    terminal.press(&["C-d"]);
    assert!(held(0));
    let screen = terminal.screen();
    assert_eq!(screen.matches("once").count(), 1, "{screen}");
}

/// The job is stopped because it reads while it is in the background.
#[test]
fn a_job_that_is_brought_to_the_foreground_stays_there() {
    let server = Server::start();
    let Some(terminal) = shell(&server) else { return };
    for round in 0..3 {
        terminal.type_line("clear; $P head -n 1 &");
        assert!(holders(&server, 1));
        terminal.shows(|screen| {
            terminal.press(&["Enter"]);
            screen.contains("Stopped")
        });
        terminal.type_line("clear; fg");
        terminal.shows(|screen| screen.contains("head") && !screen.contains("ready>"));
        terminal.type_line(&format!("line {round}"));
        assert!(holders(&server, 0), "round {round}: {}", terminal.screen());
        terminal.shows(|screen| screen.contains("ready>") && !screen.contains("Stopped"));
    }
}

/// As with `ssh -t host poolcounter run …` or `xterm -e`: the kernel signals only the
/// session leader.
#[test]
fn a_hangup_ends_the_command_too() {
    let server = Server::start();
    let run = format!("exec {} -s {} run k --", binary().display(), server.address());
    for is_stopped in [false, true] {
        let command = format!("{run} sh -c 'echo pid=$$; exec sleep 1000'");
        let Some(terminal) = Terminal::start(100, 30, &command) else { return };
        let command = shown_pid(&terminal);
        let (_, run) = state_and_parent(command);
        if is_stopped {
            kill_process(command, Signal::STOP).expect("a signal");
            assert!(eventually(|| state_and_parent(command).0 == 'T'));
        }
        drop(terminal);
        let is_free = holders(&server, 0);
        let _ = kill_process(run, Signal::KILL);
        assert!(is_free, "the command is still alive, with the lock");
    }
}
