//! Failing system calls: strace makes each return errors that its man page lists, and the
//! daemon keeps serving. Where a daemon is slow to try again, one error stands for its
//! kind: the simulation (tests/simulation/kernel.rs) has the others, at any moment.

use crate::support::{Client, DAEMON, PATIENCE, Server, finish, launched, skip};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// How many calls fail.
const FAILURES: usize = 3;

/// Which calls to `name` fail, and how.
struct Fault {
    name: &'static str,
    error: &'static str,
    /// The first call that fails: 1 is the first of the process.
    first: usize,
    /// The distance from one failing call to the next.
    step: usize,
}

impl Fault {
    /// strace's command line, up to the program that it is to run. It detaches
    /// itself, so that the program is our child.
    fn launcher(&self, trace: &str) -> Vec<String> {
        let Fault { name, error, first, step } = self;
        let last = first + (FAILURES - 1) * step;
        let inject = format!("inject={name}:error={error}:when={first}..{last}+{step}");
        let words = ["strace", "-D", "-f", "-qq", "-o", trace, "-e", &inject];
        words.map(str::to_owned).to_vec()
    }
}

fn trace_path(fault: &Fault) -> PathBuf {
    let Fault { name, error, first, .. } = fault;
    let file = format!("pool-{name}-{error}-{first}-{}.trace", std::process::id());
    std::env::temp_dir().join(file.replace('?', ""))
}

/// Whether strace can do that here; says so if not.
fn can_inject() -> bool {
    let probe = ["-qq", "-o", "/dev/null", "-e", "inject=getpid:error=EPERM:when=1..2", "true"];
    let works = Command::new("strace").args(probe).output().is_ok_and(|o| o.status.success());
    if !works {
        skip("no strace that may inject faults");
    }
    works
}

/// The daemon under a fault.
struct Faulty {
    began: Instant,
    server: Server,
    trace: PathBuf,
}

impl Faulty {
    fn start(fault: &Fault) -> Faulty {
        Faulty::start_with(fault, &[])
    }

    fn start_with(fault: &Fault, more: &[&str]) -> Faulty {
        let trace = trace_path(fault);
        let began = Instant::now();
        Faulty { began, server: Server::spawn(&mut command(fault, &trace, more)), trace }
    }

    /// A recurring problem must not fill the log: one line in ten seconds.
    #[track_caller]
    fn expect_said_rarely(&self, text: &str) {
        self.server.log.expect_rarely(text, self.began);
    }

    /// Checks that the fault happened and the daemon survived it.
    fn expect_survived(&mut self, fault: &str) {
        assert!(self.server.is_running(), "{fault} has ended the daemon");
        serves(&self.server, fault);
        let trace = std::fs::read_to_string(&self.trace).expect("strace's file");
        let failures = trace.lines().filter(|line| line.ends_with("(INJECTED)")).count();
        assert_eq!(failures, FAILURES, "{fault}: so many calls have failed");
    }
}

fn command(fault: &Fault, trace: &Path, more: &[&str]) -> Command {
    let launcher = fault.launcher(trace.to_str().expect("path"));
    let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
    let mut arguments = vec!["-l", "127.0.0.1", "-p", "0"];
    arguments.extend(more);
    launched(&launcher, DAEMON, &arguments)
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.trace);
    }
}

/// The outcome of a conversation.
#[derive(Debug, PartialEq)]
enum Outcome {
    Answered,
    /// The daemon ended the connection.
    Ended,
}

/// All that a client does, on a connection of its own. It may be ended, but not
/// left waiting, and no answer may be missing before others.
fn converse(server: &Server, key: &str) -> Outcome {
    let mut client = Client::connect(server.address());
    for (line, answer) in [
        (format!("ACQ4ME {key} 1 9 5\n"), "LOCKED"),
        ("RELEASE\n".to_owned(), "RELEASED"),
        ("STATS UPTIME\n".to_owned(), "uptime: "),
    ] {
        // Fails if the end has come meanwhile; then there is no answer either.
        let _ = client.stream().write_all(line.as_bytes());
        match client.next_line(PATIENCE) {
            Some(got) => assert!(got.starts_with(answer), "{line:?} is answered with {got:?}"),
            None => {
                let (_, has_ended) = client.take_all();
                assert!(has_ended, "{line:?} is left without an answer");
                return Outcome::Ended;
            }
        }
    }
    Outcome::Answered
}

/// Starts a daemon whose calls to `name` fail with `error` from the `first` on. Clients
/// are answered or, at most `ended` of them, disconnected. Once the call works again,
/// everything does.
fn survives(name: &'static str, error: &'static str, first: usize, ended: usize) -> Faulty {
    survives_each(Fault { name, error, first, step: 1 }, ended)
}

fn survives_each(fault: Fault, ended: usize) -> Faulty {
    let Fault { name, error, .. } = fault;
    let mut faulty = Faulty::start(&fault);
    let outcomes = (0..2 * FAILURES).map(|n| converse(&faulty.server, &format!("k{n}")));
    let seen = outcomes.filter(|outcome| *outcome == Outcome::Ended).count();
    assert!(seen <= ended, "{name} → {error}: {seen} connections were ended");
    faulty.expect_survived(&format!("{name} → {error}"));
    faulty
}

/// Checks that every command is answered and no lock was left behind.
fn serves(server: &Server, after: &str) {
    let (mut one, mut two) = (server.connect(), server.connect());
    one.exchange("ACQ4ME after 1 9 60", "LOCKED");
    two.send("ACQ4ME after 1 9 60");
    one.wait_for_counter("waiting_workers", |n| n >= 1);
    one.exchange("RELEASE", "RELEASED");
    two.expect("LOCKED");
    drop(two);
    let deadline = Instant::now() + PATIENCE;
    while one.counter("processing_workers") > 0 {
        assert!(Instant::now() < deadline, "{after}: a lock was left behind");
    }
    assert_eq!(one.counter("waiting_workers"), 0, "{after}");
    assert_eq!(one.counter("total_acquired"), one.counter("processed_count"), "{after}");
}

/// Errors of the new connection's network: the next is accepted.
#[test]
fn accept_that_meets_an_aborted_connection() {
    if !can_inject() {
        return;
    }
    for error in ["EINTR", "ECONNABORTED", "EPERM", "EPROTO", "ENETDOWN", "ENOPROTOOPT"]
        .into_iter()
        .chain(["EHOSTDOWN", "ENONET", "EHOSTUNREACH", "EOPNOTSUPP", "ENETUNREACH"])
    {
        // The first call finds nobody.
        let faulty = survives("accept4", error, 2, 0);
        assert_eq!(faulty.server.counter("connect_errors"), 0, "{error}");
    }
}

/// Retried a second later, or when a connection closes; logged once.
#[test]
fn accept_that_finds_no_descriptor_or_memory() {
    if !can_inject() {
        return;
    }
    let faulty = survives("accept4", "EMFILE", 2, 0);
    assert_eq!(faulty.server.counter("connect_errors"), 1);
    faulty.expect_said_rarely("out of descriptors");
}

#[test]
fn accept_that_fails_for_no_known_reason() {
    if !can_inject() {
        return;
    }
    let faulty = survives("accept4", "EINVAL", 2, 0);
    assert_eq!(faulty.server.counter("connect_errors"), FAILURES as u64);
    faulty.expect_said_rarely("accepting a connection failed");
}

#[test]
fn receiving() {
    if !can_inject() {
        return;
    }
    survives("recvfrom", "EINTR", 1, 0);
    for error in ["ECONNRESET", "ETIMEDOUT", "EHOSTUNREACH", "ENOMEM", "ENOBUFS", "EIO"]
        .into_iter()
        .chain(["ECONNREFUSED", "ENOTCONN", "EBADF", "EFAULT", "EINVAL", "ENOTSOCK"])
    {
        survives("recvfrom", error, 1, FAILURES);
    }
}

#[test]
fn sending() {
    if !can_inject() {
        return;
    }
    // Delays that no client may notice.
    survives("sendto", "EINTR", 1, 0);
    // A socket reports room only once, so one failure on each connection: three
    // answers in four calls.
    survives_each(Fault { name: "sendto", error: "EAGAIN", first: 1, step: 4 }, 0);
    for error in ["ENOBUFS", "ENOMEM", "ETIMEDOUT", "EHOSTUNREACH", "EACCES", "EMSGSIZE"]
        .into_iter()
        .chain(["ENOTCONN", "EBADF", "EFAULT", "EINVAL", "ENOTSOCK", "EOPNOTSUPP", "EDESTADDRREQ"])
    {
        let faulty = survives("sendto", error, 1, FAILURES);
        assert_eq!(faulty.server.counter("failed_sends"), FAILURES as u64, "{error}");
    }
}

/// The kernel returns these two only for a client that has gone.
#[test]
fn sending_to_clients_that_have_gone() {
    if !can_inject() {
        return;
    }
    for error in ["EPIPE", "ECONNRESET"] {
        let mut faulty = Faulty::start(&Fault { name: "sendto", error, first: 1, step: 1 });
        for _ in 0..FAILURES {
            let mut client = faulty.server.connect();
            client.send("ACQ4ME k 9 9 5");
            client.shut_writing();
            client.expect_end();
        }
        faulty.expect_survived(error);
        assert_eq!(faulty.server.counter("failed_sends"), FAILURES as u64, "{error}");
    }
}

#[test]
fn waiting_for_events() {
    if !can_inject() {
        return;
    }
    for error in ["EINTR", "EBADF", "EFAULT", "EINVAL"] {
        let faulty = survives("?epoll_wait,?epoll_pwait", error, 2, 0);
        if error != "EINTR" {
            faulty.expect_said_rarely("waiting for events failed");
        }
    }
}

/// Listener and signals are watched first; a connection that can't be is closed.
#[test]
fn watching_a_connection() {
    if !can_inject() {
        return;
    }
    for error in ["ENOMEM", "ENOSPC", "EPERM", "EEXIST", "EBADF", "EINVAL", "ELOOP", "ENOENT"] {
        let faulty = survives("epoll_ctl", error, 3, FAILURES);
        assert_eq!(faulty.server.counter("connect_errors"), FAILURES as u64, "{error}");
        faulty.expect_said_rarely("could not be watched");
    }
}

/// Output has blocked and can't be watched: the client is disconnected instead of
/// waiting forever.
#[test]
fn watching_for_room() {
    if !can_inject() {
        return;
    }
    // Listener, signals, the first connection; then each is watched twice.
    let fault = Fault { name: "epoll_ctl", error: "ENOMEM", first: 5, step: 2 };
    let mut faulty = Faulty::start(&fault);
    let mut control = faulty.server.connect();
    control.settle();
    for failures in 1..=FAILURES as u64 {
        let mut slow = Client::connect_with_small_buffer(faulty.server.address());
        slow.exchange("ACQ4ME k 1 9 0", "LOCKED");
        while control.counter("failed_sends") < failures {
            // The end may come between two of these.
            let _ = slow.stream().write_all("STATS FULL\n".repeat(50).as_bytes());
        }
        slow.read_to_end();
    }
    faulty.expect_said_rarely("can't be watched any more");
    drop(control);
    faulty.expect_survived("ENOMEM");
}

/// Log lines that can't be written are lost; nothing else is.
#[test]
fn logging() {
    if !can_inject() {
        return;
    }
    for error in ["ENOSPC", "EIO", "EPIPE", "EAGAIN", "EINTR"] {
        let fault = Fault { name: "write", error, first: 2, step: 1 };
        let mut faulty = Faulty::start_with(&fault, &["--log", "debug"]);
        for n in 0..FAILURES {
            assert_eq!(converse(&faulty.server, &format!("k{n}")), Outcome::Answered, "{error}");
        }
        faulty.expect_survived(error);
    }
}

/// Failures of calls that serving needs: status 1, and the reason.
#[test]
fn starting() {
    if !can_inject() {
        return;
    }
    for (name, error) in [
        ("?epoll_create,?epoll_create1", "EMFILE"),
        ("epoll_ctl", "ENOMEM"),
        ("?signalfd,?signalfd4", "EMFILE"),
        ("socket", "ENFILE"),
        ("bind", "EACCES"),
        ("listen", "EADDRINUSE"),
    ] {
        let fault = Fault { name, error, first: 1, step: 1 };
        let trace = trace_path(&fault);
        let finished = finish(&mut command(&fault, &trace, &[]));
        let _ = std::fs::remove_file(&trace);
        assert_eq!(finished.code, Some(1), "{name} → {error}: {}", finished.stderr);
        assert!(finished.stderr.contains("os error"), "{name} → {error}: {}", finished.stderr);
    }
}
