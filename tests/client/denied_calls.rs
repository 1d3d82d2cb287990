//! A kernel without one of the system calls that the command makes, or a container's profile that
//! denies it: the command does what it is for, or says which call it lacks. `DENIED_CALLS=all`
//! tries every call.

use crate::command::binary;
use crate::support::denied_calls::{Chosen, calls_in, can_deny, injected, recorded};
use crate::support::restart::{Place, can_inject};
use crate::support::{Finished, Server, finish};
use crate::terminal_jobs::Terminal;
use std::process::Command;

#[test]
fn each_call_of_run() {
    let of_interest = ["clone", "clone3", "prctl(PR_SET_PDEATHSIG)", "signalfd4", "wait4"];
    each_call(&["run", "KEY", "--", "echo", "it ran"], "it ran", &of_interest);
}

#[test]
fn each_call_of_top() {
    each_call(&["top"], "locks 0", &["connect", "setsockopt(TCP_NODELAY)"]);
}

#[test]
fn each_call_of_check() {
    each_call(&["check"], "OK", &["connect", "clone3"]);
}

/// Other errors than those of a call that is lacking, and several calls at once.
#[test]
fn each_failure_of_run_is_named() {
    if !can_inject() {
        return;
    }
    let server = Server::start();
    let name = server.address().to_string();
    for (fault, said) in [
        (
            "?clone3,clone:error=EAGAIN",
            "can't execute \"echo\": clone: Resource temporarily unavailable",
        ),
        ("?clone3,clone:error=EPERM", "can't execute \"echo\": clone: Operation not permitted"),
        ("?clone3,clone:error=ENOSYS", "can't execute \"echo\": clone: Function not implemented"),
        ("socketpair:error=EMFILE", "can't execute \"echo\": socketpair: Too many open files"),
        ("signalfd4:error=EINVAL", "signalfd4: Invalid argument (os error 22); \"echo\" was not"),
        ("recvfrom:error=EPERM", "recvfrom: Operation not permitted (os error 1); \"echo\" was"),
        ("socket:error=EMFILE", "could be connected to: NAME: socket: Too many open files"),
        ("connect:error=EACCES", "could be connected to: NAME: connect: Permission denied"),
        // No attempt can succeed, so there is no second one.
        ("setsockopt:error=EPERM", "is lost: setsockopt(SO_RCVTIMEO): Op"),
        ("sendto:error=EIO", "is lost: sendto: Input/output error"),
    ] {
        let words = ["-s", &name, "run", "KEY", "--", "echo", "it ran"];
        let done = finish(&mut injected(fault, binary(), &words));
        let said = said.replace("NAME", &name);
        assert!(done.stderr.contains(&said), "{fault}: {} instead of {said}", done.stderr);
        assert_eq!(done.stdout, "", "{fault}");
        assert_ne!(done.code, Some(0), "{fault}");
    }
}

#[test]
fn a_file_that_is_no_program_is_told_from_a_lack_of_processes() {
    let server = Server::start();
    let name = server.address().to_string();
    for (command, said) in [
        ("/nonexistent", "can't execute \"/nonexistent\": No such file or directory (os error 2)"),
        ("/etc/passwd", "can't execute \"/etc/passwd\": execve: Permission denied (os error 13)"),
    ] {
        let words = ["-s", &name, "run", "KEY", "--", command];
        let done = finish(Command::new(binary()).args(words));
        assert_eq!(done.stderr, format!("poolcounter: {said}\n"));
    }
}

/// Where it can have no thread: one gives the terminal back when a signal comes.
#[test]
fn top_names_the_thread_that_a_terminal_needs() {
    if !can_inject() {
        return;
    }
    let server = Server::start();
    let strace = "strace -qq -f -o /dev/null -e inject=?clone3,clone:error=EPERM";
    let top = format!("{} -s {} top", binary().display(), server.address());
    let line = format!("{strace} {top}; echo left with $?; exec cat");
    let Some(terminal) = Terminal::start(90, 24, &line) else { return };
    terminal.shows(|screen| {
        screen.contains("the terminal: clone3, clone: Operation not permitted")
            && screen.contains("left with 1")
    });
}

/// What threads need: those of the C library never end without `exit`, and the standard library
/// ends a process whose locks don't work.
const OF_THREADS: [&str; 2] = ["exit", "futex"];

/// Denies each call of a subcommand, which prints this text. In `make test`, those `of_interest`.
fn each_call(words: &'static [&'static str], wanted: &'static str, of_interest: &[&str]) {
    if !can_deny() {
        return;
    }
    let server = Server::start();
    let name: &'static str = server.address().to_string().leak();
    let ask = move |mut command: Command| {
        finish(command.env("POOLCOUNTER_SERVERS", name).env_remove("NO_COLOR"))
    };
    let place = Place::new();
    let done = ask(recorded(binary(), words, &place.path("trace")));
    assert!(done.stdout.contains(wanted), "{}{}", done.stdout, done.stderr);
    let mut calls = calls_in(&place.path("trace"));
    calls.retain(|call| !OF_THREADS.contains(&call.shown().as_str()));
    Chosen::from_environment(of_interest).deny(calls, move |call, error| {
        let start = |words: &[&str]| ask(call.denied_to(error, binary(), words));
        // A case that is slow keeps no other waiting.
        let key = format!("{} {error}", call.shown());
        let own = words.iter().map(|&word| if word == "KEY" { &key } else { word });
        let done = start(&own.collect::<Vec<_>>());
        let Finished { code, stdout, stderr } = &done;
        if *code == Some(0) && stdout.contains(wanted) {
            return format!("works; {}", stderr.trim());
        }
        if start(&["--version"]).code != Some(0) {
            return "not even --version works".to_owned();
        }
        let said = format!("{stdout}{stderr}");
        assert!(call.is_named_in(&said), "status {code:?}, not named: {said}");
        assert_ne!(*code, Some(0), "{said}");
        format!("status {code:?}: {}", said.trim())
    });
}
