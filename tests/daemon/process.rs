//! The daemon as a process: signals, what it inherits, limits, its end.

use std::fs;
use std::net::TcpStream;
use std::process::Command;

use crate::support::operated::Operated;
use crate::support::status::SYSTEM_REFUSED;
use crate::support::{DAEMON, Server, finish, launched, skip};
use rustix::process::Signal;

#[test]
fn sigterm_and_sigint_end_it_at_once_with_status_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start();
        let (mut holder, mut waiter) = (server.connect(), server.connect());
        let mut talker = server.connect();
        holder.exchange("ACQ4ME k 1 9 0", "LOCKED");
        waiter.send("ACQ4ME k 1 9 60");
        talker.send_bytes(b"half a li");
        server.settle();
        server.signal(signal);
        for client in [&mut holder, &mut waiter, &mut talker] {
            client.expect_end();
        }
        assert_eq!(server.wait_for_exit().code(), Some(0), "{signal:?}");
        assert!(TcpStream::connect(server.address()).is_err());
    }
}

#[test]
fn sigpipe_and_sigchld_do_not_end_it() {
    let mut server = Server::start();
    for signal in [Signal::PIPE, Signal::CHILD] {
        server.signal(signal);
        server.settle();
    }
    assert!(server.is_running());
}

/// The state that the reference leaves after SIGUSR1: nearly every signal blocked,
/// SIGCHLD and SIGPIPE ignored.
#[test]
fn an_inherited_signal_mask_is_reset() {
    for signal in [Signal::TERM, Signal::INT] {
        let launcher = ["env", "--block-signal", "--ignore-signal=CHLD", "--ignore-signal=PIPE"];
        let arguments = ["-l", "127.0.0.1", "-p", "0"];
        let mut server = Server::spawn(&mut launched(&launcher, DAEMON, &arguments));
        server.settle();
        server.signal(signal);
        assert_eq!(server.wait_for_exit().code(), Some(0), "{signal:?}");
    }
}

/// A shell that starts something in the background ignores SIGINT for it.
#[test]
fn an_inherited_ignored_sigterm_is_handled() {
    let launcher = ["env", "--ignore-signal=TERM", "--ignore-signal=INT"];
    let arguments = ["-l", "127.0.0.1", "-p", "0"];
    let mut server = Server::spawn(&mut launched(&launcher, DAEMON, &arguments));
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

/// After the exec nothing is left that can fail; if it does all the same, systemd starts the
/// daemon again. Here it gets the number of a descriptor that is closed.
#[test]
fn a_hot_restart_that_can_t_be_resumed_ends_with_a_status_that_is_retried() {
    let line = r#"export POOLCOUNTERD_HANDOFF=$$:999; exec "$@""#;
    let launcher = ["sh", "-c", line, "sh"];
    let ended = finish(&mut launched(&launcher, DAEMON, &["-l", "127.0.0.1", "-p", "0"]));
    assert_eq!(ended.code, Some(SYSTEM_REFUSED), "{}", ended.stderr);
    assert!(ended.stderr.contains("Can't start: "), "{}", ended.stderr);
}

/// As when a container is entered from outside: the daemon can't see the session leader's
/// process, nor the operator's.
#[test]
fn a_session_leader_and_an_operator_outside_of_its_container_are_handled() {
    if Command::new("unshare").args(["-Urpf", "true"]).status().is_ok_and(|s| !s.success()) {
        return skip("this kernel, or container, gives no pid namespaces");
    }
    // Without --kill-child the daemon would outlive its launcher.
    let daemon = Operated::launched(&["unshare", "-Urpf", "--kill-child"]);
    daemon.ask("UNDRAIN");
    daemon.server.log.wait_for(", outside of this container asks: UNDRAIN");
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_to_the_hard_one() {
    let launcher = ["prlimit", "--nofile=100:1000"];
    let arguments = ["-l", "127.0.0.1", "-p", "0"];
    let server = Server::spawn(&mut launched(&launcher, DAEMON, &arguments));
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("limits");
    let line = limits.lines().find(|l| l.starts_with("Max open files")).expect("a line");
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[3..5], ["1000", "1000"], "{line}");
    // More clients are served than the initial soft limit allows.
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.settle();
    }
}

#[test]
fn its_name_is_poolcounterd() {
    let server = Server::start();
    let name = fs::read_to_string(format!("/proc/{}/comm", server.pid())).expect("comm");
    assert_eq!(name, "poolcounterd\n");
}
