//! Failures of system calls whose effects only the real kernel shows: strace injects
//! errors that their man pages list. The simulation (tests/simulation/kernel.rs) makes
//! all others fail, at any moment.

use crate::support::restart::{Place, can_inject};
use crate::support::status::{NO_ADDRESS, SYSTEM_REFUSED};
use crate::support::{DAEMON, Server, eventually, finish, launched};
use std::path::Path;
use std::process::Command;

/// A daemon under strace: its calls to `name` with the numbers `when` fail. strace
/// detaches itself, so that the daemon is a child of the test.
fn failing(name: &str, error: &str, when: &str, trace: &Path) -> Command {
    let inject = format!("inject={name}:error={error}:when={when}");
    let shown = format!("trace=?epoll_wait,?epoll_pwait,{name}");
    let trace = trace.to_str().expect("a path");
    let strace = ["strace", "-D", "-f", "-qq", "-o", trace, "-e", &shown, "-e", &inject];
    launched(&strace, DAEMON, &["-l", "127.0.0.1", "-p", "0"])
}

#[test]
fn waiting_for_events() {
    if !can_inject() {
        return;
    }
    for error in ["EINTR", "EBADF", "EFAULT", "EINVAL"] {
        let place = Place::new();
        let trace = place.path("trace");
        let mut command = failing("?epoll_wait,?epoll_pwait", error, "2..4", &trace);
        let server = Server::spawn(&mut command);
        for _ in 0..6 {
            let mut client = server.connect();
            client.exchange("ACQ4ME k 1 9 5", "LOCKED");
            client.exchange("RELEASE", "RELEASED");
        }
        let trace = std::fs::read_to_string(&trace).expect("strace's file");
        let failures = trace.lines().filter(|line| line.ends_with("(INJECTED)")).count();
        assert_eq!(failures, 3, "{error}: wrong number of injected failures");
    }
}

/// Failures of calls that serving needs: a status after which systemd tries again, and the
/// reason.
#[test]
fn starting() {
    if !can_inject() {
        return;
    }
    let place = Place::new();
    for (name, error, status) in [
        ("?epoll_create,?epoll_create1", "EMFILE", SYSTEM_REFUSED),
        ("epoll_ctl", "ENOMEM", SYSTEM_REFUSED),
        ("?signalfd,?signalfd4", "EMFILE", SYSTEM_REFUSED),
        ("socket", "ENFILE", SYSTEM_REFUSED),
        ("socket", "ENOBUFS", SYSTEM_REFUSED),
        ("bind", "ENOMEM", SYSTEM_REFUSED),
        ("bind", "EACCES", SYSTEM_REFUSED),
        ("bind", "ENOSPC", SYSTEM_REFUSED),
        ("bind", "EADDRNOTAVAIL", NO_ADDRESS),
        ("listen", "EADDRINUSE", NO_ADDRESS),
    ] {
        let finished = finish(&mut failing(name, error, "1..3", &place.path("trace")));
        assert_eq!(finished.code, Some(status), "{name} → {error}: {}", finished.stderr);
        assert!(finished.stderr.contains("os error"), "{name} → {error}: {}", finished.stderr);
    }
}

/// The client stays in the queue, so that its event remains true: the daemon tries again after a
/// while, and does not spin.
#[test]
fn accepting_for_good() {
    if !can_inject() {
        return;
    }
    for error in ["EPERM", "EACCES", "ECONNABORTED", "EPROTO", "EOPNOTSUPP", "EMFILE", "EBADF"] {
        let place = Place::new();
        let trace = place.path("trace");
        // The daemon's start tries it once.
        let server = Server::spawn(&mut failing("accept4", error, "2+", &trace));
        let _client = server.connect();
        // From a failure on until the daemon waits with a timeout: until it tries again.
        let sleeps = || {
            let trace = std::fs::read_to_string(&trace).expect("strace's file");
            let failed = trace.find("(INJECTED)")?;
            let lines: Vec<&str> = trace[failed..].lines().collect();
            let busy = lines.iter().position(|line| waits_some_time(line))?;
            Some(lines[..busy].iter().filter(|line| line.ends_with("(INJECTED)")).count())
        };
        let mut failures = None;
        let slept = eventually(|| {
            failures = sleeps();
            failures.is_some()
        });
        assert!(slept && failures <= Some(500), "{error}: it spins: {failures:?}");
    }
}

/// Whether a line of strace is a wait for events, at most 1024, that has a timeout.
fn waits_some_time(line: &str) -> bool {
    let timeout = line.split_once(", 1024, ").map(|(_, rest)| rest.split([',', ')']).next());
    let timeout_ms = timeout.flatten().and_then(|timeout| timeout.parse::<i32>().ok());
    timeout_ms.is_some_and(|timeout_ms| timeout_ms > 0)
}
