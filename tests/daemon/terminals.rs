//! What a daemon does when the terminal that it was started from hangs up.

use crate::support::terminal::terminal;
use crate::support::{DAEMON, Server, launched};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::Command;

const CONTINUED: &str = "continued after a pause";

/// Handles SIGHUP as a shell does: passes it on to the daemon. Prints the daemon's
/// process id and exit status.
const SHELL: &str = r#"trap 'kill -HUP $daemon' HUP
"$@" & daemon=$!
echo "process $daemon" >&2
wait $daemon; wait $daemon; echo "status $?" >&2"#;

/// A daemon, and the terminal that it was started from.
struct AtTerminal {
    server: Server,
    master: File,
}

impl AtTerminal {
    /// `launcher` leads the session of the terminal.
    fn start(launcher: &[&str]) -> AtTerminal {
        let (master, slave) = terminal();
        let mut command = at_terminal(launcher);
        AtTerminal { server: Server::spawn(command.stdin(slave)), master }
    }

    fn hang_up(self) -> Server {
        drop(self.master);
        self.server
    }
}

fn at_terminal(launcher: &[&str]) -> Command {
    // The tests themselves may run under nohup(1).
    let leader = ["env", "--default-signal=HUP", "setsid", "--ctty"];
    let launcher = [&leader, launcher].concat();
    launched(&launcher, DAEMON, &["-l", "127.0.0.1", "-p", "0"])
}

/// The daemon behind a shell, which is the child of the test; killed when dropped.
struct Process(OwnedFd);

impl Process {
    fn of(server: &Server) -> Process {
        let line = server.log.wait_for("process ");
        let number = line.trim_end().rsplit(' ').next().and_then(|word| word.parse().ok());
        let pid = Pid::from_raw(number.expect("a number")).expect("a process id");
        Process(pidfd_open(pid, PidfdFlags::empty()).expect("pidfd"))
    }

    fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.0, signal).expect("signal");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it has ended, as it should have.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

#[test]
fn it_stops_when_its_terminal_hangs_up() {
    let mut server = AtTerminal::start(&[]).hang_up();
    server.log.wait_for("the terminal hung up");
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

/// `docker kill --signal HUP` of a container with a terminal.
#[test]
fn a_session_leader_restarts_on_a_sighup_from_a_process() {
    let at_terminal = AtTerminal::start(&[]);
    at_terminal.server.signal(Signal::HUP);
    at_terminal.server.log.wait_for(CONTINUED);
    let mut server = at_terminal.hang_up();
    server.log.wait_for("the terminal hung up");
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

#[test]
fn it_stops_when_the_terminal_of_its_shell_hangs_up() {
    let at_terminal = AtTerminal::start(&["sh", "-c", SHELL, "sh"]);
    let _daemon = Process::of(&at_terminal.server);
    let mut server = at_terminal.hang_up();
    server.log.wait_for("the terminal hung up");
    server.log.wait_for("status 0");
    server.wait_for_exit();
    assert!(TcpStream::connect(server.address()).is_err());
}

/// The new image still has to notice the hangup.
#[test]
fn it_stops_after_a_hot_restart_too() {
    let at_terminal = AtTerminal::start(&["sh", "-c", SHELL, "sh"]);
    let daemon = Process::of(&at_terminal.server);
    for restarts in 1..=2 {
        daemon.signal(Signal::USR1);
        at_terminal.server.log.wait_for_count(CONTINUED, restarts);
    }
    let mut server = at_terminal.hang_up();
    server.log.wait_for("the terminal hung up");
    server.log.wait_for("status 0");
    server.wait_for_exit();
}

/// The daemon restarts after its terminal hung up, but before any signal reports it.
#[test]
fn a_hangup_during_a_hot_restart_is_not_taken_for_an_operators_sighup() {
    let shell = SHELL.replace("trap 'kill -HUP $daemon' HUP", "trap '' HUP");
    let with_default = [&["sh", "-c", &shell, "sh"][..], &["env", "--default-signal=HUP"]].concat();
    let at_terminal = AtTerminal::start(&with_default);
    let daemon = Process::of(&at_terminal.server);
    let mut server = at_terminal.hang_up();
    daemon.signal(Signal::USR1);
    server.log.wait_for(CONTINUED);
    daemon.signal(Signal::HUP);
    server.log.wait_for("the terminal hung up");
    server.log.wait_for("status 0");
    server.wait_for_exit();
}

#[test]
fn under_nohup_it_stays_across_hot_restarts() {
    let mut server = AtTerminal::start(&["nohup"]).hang_up();
    for restarts in 1..=2 {
        server.signal(Signal::HUP);
        server.settle();
        server.signal(Signal::USR1);
        server.log.wait_for_count(CONTINUED, restarts);
    }
    server.signal(Signal::HUP);
    server.settle();
    assert_eq!(server.log.count("asking "), 2);
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

/// `stty tostop` stops background processes that write to the terminal, but must not stop
/// the daemon.
#[test]
fn logging_to_a_terminal_in_the_background_does_not_stop_it() {
    let (master, slave) = terminal();
    let shell = format!("set -m; stty tostop; {SHELL}");
    let mut command = at_terminal(&["sh", "-c", &shell, "sh"]);
    command.stdin(slave.try_clone().expect("dup")).stderr(slave);
    let mut server = Server::spawn_logging(&mut command, master);
    drop(command);
    let daemon = Process::of(&server);
    server.connect().exchange("ACQ4ME k 1 9 0", "LOCKED");
    daemon.signal(Signal::TERM);
    server.log.wait_for("status 0");
    server.wait_for_exit();
}
