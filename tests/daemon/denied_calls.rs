//! A kernel without one of the system calls that the daemon makes, or a container's profile that
//! denies it: the daemon serves, or does not start; it restarts hot, or refuses that at once. A
//! message names the call. `DENIED_CALLS=all` tries every call.

use crate::support::denied_calls::{
    Chosen, DeniedCall, InjectedFault, calls_in, can_deny, injected, recorded,
};
use crate::support::http;
use crate::support::operated::Operator;
use crate::support::restart::{Place, REFUSED, can_inject};
use crate::support::status::{DRAINED, SYSTEM_REFUSED};
use crate::support::{
    Client, DAEMON, Log, Server, daemon_command, eventually, finish, in_shell, next_address,
    wait_for_exit,
};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// What `make test` denies: calls that only hot restart needs, that only serving needs, and
/// options of sockets.
const OF_INTEREST: [&str; 16] = [
    "accept4",
    "clock_gettime",
    "clone(CLONE_FILES)",
    "close_range",
    "epoll_create1",
    "fcntl(F_ADD_SEALS)",
    "getsockopt",
    "memfd_create",
    "pidfd_open",
    "prctl(PR_SET_PDEATHSIG)",
    "prlimit64",
    "recvfrom",
    "setsockopt",
    "setsockopt(IPV6_V6ONLY)",
    "setsockopt(TCP_USER_TIMEOUT)",
    "signalfd4",
];

/// The same of a daemon that was passed a socket.
const OF_INTEREST_IF_PASSED: [&str; 2] = ["getsockopt(SO_PROTOCOL)", "ioctl(FIONBIO)"];

/// Options that the daemon serves without, and says so.
const BEST_EFFORT: [&str; 7] = [
    "SO_KEEPALIVE",
    "SO_REUSEADDR",
    "TCP_KEEPCNT",
    "TCP_KEEPIDLE",
    "TCP_KEEPINTVL",
    "TCP_NODELAY",
    "TCP_USER_TIMEOUT",
];

/// Text of the line that a daemon logs at its start.
const WARNED: &str = "a hot restart would be refused: ";

#[test]
fn each_call() {
    if !can_deny() {
        return;
    }
    let calls = recorded_calls(Listens::Itself);
    let act = |call: &DeniedCall, error| with_denied(call, error, Listens::Itself);
    Chosen::from_environment(&OF_INTEREST).deny(calls, act);
}

#[test]
fn each_call_with_a_passed_socket() {
    if !can_deny() {
        return;
    }
    let calls = recorded_calls(Listens::Passed);
    let act = |call: &DeniedCall, error| with_denied(call, error, Listens::Passed);
    Chosen::from_environment(&OF_INTEREST_IF_PASSED).deny(calls, act);
}

/// A profile, or a shortage, that comes while the daemon runs.
#[test]
fn a_call_that_fails_later_is_named() {
    if !can_inject() {
        return;
    }
    let daemon = || {
        Serving::start(Place::new(), Listens::Itself, daemon_command)
            .unwrap_or_else(|e| panic!("{e:?}"))
    };
    for (fault, said) in [
        // On i386 the C library makes the older calls.
        ("?recv,recvfrom:error=EPERM", " is closed: recvfrom: Operation not permitted"),
        ("?send,sendto:error=EPERM", " is closed: sendto: Operation not permitted"),
        ("recvmsg:error=EPERM", "an order can't be received: recvmsg: Operation not permitted"),
        ("accept4:error=ENOSYS", "accepting a connection failed: accept4: Function not"),
        ("?epoll_wait,?epoll_pwait:error=EPERM", "waiting for events failed: epoll_wait: "),
    ] {
        let mut daemon = daemon();
        let mut operator = daemon.operator();
        let _fault = InjectedFault::into(daemon.process.0.id(), fault);
        daemon.holder.send("RELEASE");
        operator.send(b"LOG info\n");
        let _client = Client::connect(daemon.address);
        daemon.log.wait_for(said);
    }
    // C libraries word it differently.
    let too_many_files = std::io::Error::from(rustix::io::Errno::MFILE);
    for (fault, said) in [
        (
            "?epoll_create,?epoll_create1:error=EMFILE",
            &*format!("it said \"epoll_create1: {too_many_files}"),
        ),
        ("getpid:error=EPERM", "can't be asked: getpid: Operation not permitted"),
    ] {
        let mut daemon = daemon();
        let _fault = InjectedFault::into(daemon.process.0.id(), fault);
        let why = daemon.reload().expect_err("it can't");
        assert!(why.contains(said), "{fault}: {why}");
    }
}

/// Shortages that concern only a hot restart, and a signal at the wrong moment.
#[test]
fn it_serves_and_warns_of_a_hot_restart() {
    if !can_inject() {
        return;
    }
    let serving = ["-l", "127.0.0.1", "-p", "0"];
    for (mut command, warning) in [
        (injected("memfd_create:error=ENOSPC", DAEMON, &serving), Some("memfd_create: No space")),
        (in_shell("ulimit -n 10; exec \"$@\"", &serving), Some("too few descriptors are free: ")),
        (injected("?epoll_wait,?epoll_pwait:error=EINTR:when=1", DAEMON, &serving), None),
    ] {
        let server = Server::spawn(&mut command);
        server.connect().exchange("ACQ4ME k 1 9 5", "LOCKED");
        match warning {
            Some(why) => drop(server.log.wait_for(&format!("{WARNED}{why}"))),
            None => assert_eq!(server.log.count(WARNED), 0, "{:#?}", server.log.lines()),
        }
    }
}

/// As a container's health check runs where no more processes may be made.
#[test]
fn a_check_needs_no_thread() {
    if !can_inject() {
        return;
    }
    let server = Server::start();
    let address = server.address().to_string();
    for error in ["EAGAIN", "EPERM", "ENOSYS"] {
        let fault = format!("?clone3,clone:error={error}");
        let checked = finish(&mut injected(&fault, DAEMON, &[&format!("--check={address}")]));
        assert!(checked.stdout.starts_with("uptime: "), "{error}: {}", checked.stderr);
        // Only a thread keeps the time while a name is looked up.
        let checked = finish(&mut injected(&fault, DAEMON, &["--check=localhost"]));
        assert!(checked.stderr.contains("clone3, clone: "), "{error}: {}", checked.stderr);
    }
}

/// Who has opened the socket for clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listens {
    Itself,
    /// Another process, as standard input.
    Passed,
}

/// The calls of a daemon that serves, restarts hot and drains.
fn recorded_calls(listens: Listens) -> Vec<DeniedCall> {
    let place = Place::new();
    let trace = place.path("trace");
    let daemon = Serving::start(place, listens, |arguments| recorded(DAEMON, arguments, &trace));
    let mut daemon = daemon.expect("it serves");
    daemon.serve();
    daemon.reload().expect("it reloads");
    daemon.drain();
    let mut calls = calls_in(&trace);
    // The standard library ends a process that can't close a directory.
    calls.retain(|call| call.name != "close");
    calls
}

/// What happens if the daemon is denied this call.
fn with_denied(call: &DeniedCall, error: u16, listens: Listens) -> String {
    let start = |arguments: &[&str]| call.denied_to(error, DAEMON, arguments);
    let mut daemon = match Serving::start(Place::new(), listens, start) {
        Ok(daemon) => daemon,
        // Before its first line: the linker, the C library and Rust's start need it.
        Err(_) if finish(&mut start(&["--version"])).code != Some(0) => {
            return "not even --version works".to_owned();
        }
        Err((status, said)) => {
            assert!(call.is_named_in(&said), "status {status:?}, not named: {said}");
            assert_eq!(status, Some(SYSTEM_REFUSED), "{said}");
            return format!("does not start: {said}");
        }
    };
    daemon.serve();
    let reloads = match daemon.reload() {
        Ok(()) => "reloads".to_owned(),
        Err(why) => {
            assert!(call.is_named_in(&why), "reload refused, not named: {why}");
            let warned = |lines: &[String]| {
                lines.iter().any(|line| line.contains(WARNED) && call.is_named_in(line))
            };
            let lines = daemon.log.lines();
            // Nothing is said where nothing can be written.
            assert!(lines.is_empty() || warned(&lines), "reload refused, without a warning: {why}");
            format!("does not reload: {why}")
        }
    };
    daemon.drain();
    daemon.log.wait_for_end();
    let lines = daemon.log.lines();
    let of_both_images = lines.split(|line| line.contains("whether it can take over"));
    for lines in of_both_images.filter(|_| !call.has_several_uses()) {
        let is_warning = |line: &&String| !line.contains(REFUSED) && call.is_named_in(line);
        let warnings: Vec<_> = lines.iter().filter(is_warning).collect();
        let is_option = call.used_for.as_deref().is_some_and(|it| BEST_EFFORT.contains(&it));
        assert!(warnings.len() == 1 || warnings.is_empty() && !is_option, "{warnings:#?}");
    }
    format!("serves, {reloads}; {}", complaints(&lines).join("; "))
}

/// A daemon that serves clients, operators and HTTP.
struct Serving {
    place: Place,
    process: Process,
    log: Log,
    address: SocketAddr,
    http: SocketAddr,
    /// Has a lock from the start on.
    holder: Client,
}

/// Killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Serving {
    /// Starts it, and takes a lock. If it ends instead, its status and what it said.
    fn start(
        place: Place,
        listens: Listens,
        command: impl FnOnce(&[&str]) -> Command,
    ) -> Result<Serving, (Option<i32>, String)> {
        let ip = next_address();
        // Where SO_REUSEADDR is denied, an address can't be used again.
        static COUNT: AtomicU16 = AtomicU16::new(0);
        let port = 7600 + 2 * COUNT.fetch_add(1, Ordering::Relaxed);
        let [address, http] = [port, port + 1].map(|port| SocketAddr::from((ip, port)));
        let path = |name| place.path(name).display().to_string();
        let (ip, control) = (ip.to_string(), path("control.sock"));
        let group = rustix::process::getgid().as_raw().to_string();
        let (port, http_text) = (port.to_string(), http.to_string());
        let mut arguments = vec!["-l", &ip, "-p", &port, "--control", &control];
        arguments.extend(["--control-group", &group, "--http", &http_text]);
        // A machine may have no IPv6.
        if TcpListener::bind("[::1]:0").is_ok() {
            arguments.extend(["--http", "[::1]:0"]);
        }
        let mut command = command(&arguments);
        if listens == Listens::Passed {
            command.stdin(OwnedFd::from(TcpListener::bind(address).expect("bind")));
        }
        let child = command.stderr(Stdio::piped()).spawn().expect("start the daemon");
        let mut process = Process(child);
        let log = Log::read_from(process.0.stderr.take().expect("stderr"));
        // Its copy of a passed socket.
        drop(command);
        let (mut has_ended, mut listens) = (false, false);
        let decided = eventually(|| {
            has_ended = process.0.try_wait().expect("wait").is_some();
            // The last one of TCP: the control socket listens before it has its group.
            listens = TcpStream::connect(http).is_ok() && UnixStream::connect(&control).is_ok();
            has_ended || listens
        });
        assert!(decided, "it neither serves nor ends: {:#?}", log.lines());
        if has_ended {
            let status = process.0.wait().expect("wait");
            return Err((status.code(), log.wait_for_end().join("; ")));
        }
        let mut holder = Client::connect(address);
        holder.exchange("ACQ4ME held 1 9 5", "LOCKED");
        Ok(Serving { place, process, log, address, http, holder })
    }

    /// Uses all that it serves.
    fn serve(&mut self) {
        let mut client = Client::connect(self.address);
        client.exchange("ACQ4ME k 1 9 5", "LOCKED");
        client.exchange("RELEASE", "RELEASED");
        client.stats_full();
        client.settle();
        client.shut_writing();
        client.read_to_end();
        let (head, _) = http::get(self.http, "/metrics");
        assert!(head.contains(" 200 "), "{head}");
        let answer = self.operator().ask("LOG off");
        assert!(answer.starts_with("OK"), "{answer}");
        let answer = self.operator().ask("LOG info");
        assert!(answer.starts_with("OK"), "{answer}");
    }

    fn operator(&self) -> Operator {
        Operator::connect(&self.place.path("control.sock").display().to_string())
    }

    /// Restarts it hot. Afterwards the first client has its lock, whether that was refused or not.
    fn reload(&mut self) -> Result<(), String> {
        let control = self.place.path("control.sock").display().to_string();
        let done = finish(&mut daemon_command(&["--reload", "--control", &control]));
        self.holder.exchange("RELEASE", "RELEASED");
        self.holder.exchange("ACQ4ME held 1 9 5", "LOCKED");
        if done.code == Some(0) { Ok(()) } else { Err(done.stderr.trim().to_owned()) }
    }

    /// Drains it until it ends.
    fn drain(&mut self) {
        let answer = self.operator().ask("DRAIN");
        assert!(answer.starts_with("OK"), "{answer}");
        self.holder.exchange("RELEASE", "RELEASED");
        self.holder.shut_writing();
        self.holder.read_to_end();
        assert_eq!(wait_for_exit(&mut self.process.0).code(), Some(DRAINED));
    }
}

/// The texts of warnings and errors.
fn complaints(lines: &[String]) -> Vec<&str> {
    let of = |line: &'_ String| line.split_once(" WARN ").or(line.split_once(" ERROR ")).is_some();
    let texts = lines.iter().filter(|line| of(line));
    texts.map(|line| line.split_once("] ").map_or(line.as_str(), |(_, text)| text)).collect()
}
