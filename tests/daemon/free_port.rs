//! `--free-port`, with which the Debian package prepares the end of a daemon.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::support::denied_calls::{Chosen, DeniedCall, calls_in, can_deny, recorded};
use crate::support::hosts::own_network;
use crate::support::restart::{Place, can_inject, restart};
use crate::support::status::WRONG_OPTIONS;
use crate::support::{
    DAEMON, Finished, Log, PATIENCE, Server, daemon_command, finish, launched, next_address, skip,
    wait_for_exit,
};
use rustix::net::sockopt::socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::process::{Pid, Signal, kill_process};

const RESETS: Option<Duration> = Some(Duration::ZERO);

fn free_port(pid: u32) -> Finished {
    finish(&mut daemon_command(&[&format!("--free-port={pid}")]))
}

fn is_forbidden(freed: &Finished) -> bool {
    let is_forbidden = freed.stderr.contains("pidfd_getfd: Operation not permitted");
    if is_forbidden {
        skip("this kernel, or container, lets no process copy another's descriptors");
    }
    is_forbidden
}

/// A client that has a lock, so that the daemon has accepted it.
fn holder(address: SocketAddr, key: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connect");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    writeln!(client, "ACQ4ME {key} 1 1 0").expect("send");
    let mut answer = [0; 7];
    client.read_exact(&mut answer).expect("an answer");
    client
}

/// A port that the kernel chooses for nobody, and that nothing remains of: a connection of another
/// test, on any address, would keep it.
fn next_port() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let [.., high, low] = std::process::id().to_be_bytes();
    let own = u16::from_be_bytes([high, low]) % 600;
    let next = || 10_000 + (own * 30 + COUNT.fetch_add(1, Ordering::Relaxed)) % 20_000;
    // As proc_net_tcp.txt has it: the local address comes first.
    let is_free = |port: &u16| !sockets.contains(&format!(":{port:04X} "));
    std::iter::repeat_with(next).find(is_free).expect("a port")
}

/// A daemon with such a port.
fn started() -> Server {
    let (ip, port) = (next_address().to_string(), next_port().to_string());
    Server::spawn(&mut daemon_command(&["-l", &ip, "-p", &port]))
}

fn stop(server: &mut Server) {
    server.settle();
    server.signal(Signal::TERM);
    server.wait_for_exit();
}

#[test]
fn what_the_daemon_closes_from_then_on_it_resets() {
    let mut server = started();
    let mut client = holder(server.address(), "k");
    let freed = free_port(server.pid());
    if is_forbidden(&freed) {
        return;
    }
    assert_eq!(freed.code, Some(0), "{}", freed.stderr);
    assert!(freed.stdout.contains(&server.address().port().to_string()), "{}", freed.stdout);
    // It still serves, and accepts.
    let mut later = holder(server.address(), "other");
    stop(&mut server);
    for client in [&mut client, &mut later] {
        let error = client.read(&mut [0]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    // Without SO_REUSEADDR, as the C daemon binds it.
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    bind(socket.expect("a socket"), &server.address()).expect("the port is free");
}

/// A daemon with a listening socket of which this test has a copy.
fn served() -> (TcpListener, Server) {
    let listener = TcpListener::bind((next_address(), next_port())).expect("a port");
    let ours = listener.try_clone().expect("a copy");
    let server = Server::spawn(daemon_command(&[]).stdin(OwnedFd::from(listener)));
    (ours, server)
}

fn expect_ends(clients: &mut [TcpStream]) {
    for client in clients {
        assert_eq!(client.read(&mut [0]).expect("an end, not a reset"), 0);
    }
}

/// No listener is left that tells of it.
#[test]
fn a_hot_restart_of_a_drained_daemon_undoes_it() {
    let mut server = started();
    let client = holder(server.address(), "a");
    if is_forbidden(&free_port(server.pid())) {
        return;
    }
    server.signal(Signal::QUIT);
    server.log.wait_for("no longer listening on");
    restart(&server);
    server.signal(Signal::TERM);
    server.wait_for_exit();
    expect_ends(&mut [client]);
}

/// The listener was opened later.
#[test]
fn a_hot_restart_after_a_drain_that_ended_undoes_it() {
    let mut server = started();
    let clients = ["a", "b"].map(|key| holder(server.address(), key));
    if is_forbidden(&free_port(server.pid())) {
        return;
    }
    server.signal(Signal::QUIT);
    server.log.wait_for("no longer listening on");
    server.signal(Signal::USR2);
    server.log.wait_for("no longer draining");
    restart(&server);
    stop(&mut server);
    expect_ends(&mut { clients });
}

/// A hot restart of many connections would take twice as long.
#[test]
fn nothing_is_undone_that_was_not_done() {
    if !can_inject() {
        return;
    }
    let place = Place::new();
    let trace = place.path("trace").display().to_string();
    let strace = ["strace", "-D", "-f", "-qq", "-o", &trace, "-e", "trace=setsockopt"];
    let arguments = ["-l", "127.0.0.1", "-p", "0"];
    let server = Server::spawn(&mut launched(&strace, DAEMON, &arguments));
    let _clients = ["a", "b", "c", "d", "e"].map(|key| holder(server.address(), key));
    restart(&server);
    server.settle();
    let calls = std::fs::read_to_string(&trace).expect("strace's file");
    assert!(calls.contains("SO_KEEPALIVE") && !calls.contains("SO_LINGER"), "{calls}");
}

#[test]
fn a_hot_restart_undoes_it() {
    let (ours, mut server) = served();
    let before = holder(server.address(), "a");
    let freed = free_port(server.pid());
    if is_forbidden(&freed) {
        return;
    }
    assert_eq!(freed.code, Some(0), "{}", freed.stderr);
    let between = holder(server.address(), "b");
    assert_eq!(socket_linger(&ours), Ok(RESETS));
    restart(&server);
    assert_eq!(socket_linger(&ours), Ok(None));
    let after = holder(server.address(), "c");
    stop(&mut server);
    expect_ends(&mut [before, between, after]);
}

/// A closed connection of this port, on another address: it stays as long as the two sockets.
fn remains(port: u16) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((next_address(), port)).expect("the port");
    let client = TcpStream::connect(listener.local_addr().expect("its address")).expect("connect");
    let (closed, _) = listener.accept().expect("a connection");
    closed.shutdown(Shutdown::Write).expect("shutdown");
    (closed, client)
}

/// `--free-port`, which waits, and what it prints.
fn waiting(pid: u32) -> (Child, Log) {
    let mut command = daemon_command(&[&format!("--free-port={pid}")]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("spawn");
    let output = Log::read_from(child.stderr.take().expect("stderr"));
    output.wait_for("old connections keep the port");
    (child, output)
}

#[test]
fn a_wait_that_ends_early_undoes_it() {
    let (ours, mut server) = served();
    if is_forbidden(&free_port(server.pid())) {
        return;
    }
    // Not SIGHUP, which nohup(1) has it ignore.
    for (signal, key) in [(Signal::INT, "x"), (Signal::TERM, "y")] {
        let client = holder(server.address(), key);
        let remains = remains(server.address().port());
        let (mut child, output) = waiting(server.pid());
        assert_eq!(socket_linger(&ours), Ok(RESETS));
        kill_process(Pid::from_child(&child), signal).expect("send a signal");
        assert_eq!(wait_for_exit(&mut child).code(), Some(1));
        output.wait_for("a signal has ended the wait");
        assert_eq!(socket_linger(&ours), Ok(None));
        drop((client, remains));
    }
    let clients = ["a", "b"].map(|key| holder(server.address(), key));
    stop(&mut server);
    expect_ends(&mut { clients });
}

#[test]
fn closed_connections_of_another_network_do_not_count() {
    let Some(launcher) = own_network() else { return };
    let arguments = ["-l", "0.0.0.0", "-p", "0"];
    let server = Server::spawn(&mut launched(&launcher, DAEMON, &arguments));
    let _here = remains(server.address().port());
    let freed = free_port(server.pid());
    if !is_forbidden(&freed) {
        assert_eq!(freed.code, Some(0), "{}", freed.stderr);
        assert!(!freed.stderr.contains("waiting"), "{}", freed.stderr);
    }
}

#[test]
fn a_process_that_is_no_daemon_is_refused() {
    // The first process is the system's.
    for nonsense in ["", "-1", "0", "1", "x", "4294967297", "12 13"] {
        let refused = finish(&mut daemon_command(&[&format!("--free-port={nonsense}")]));
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{nonsense:?}: {}", refused.stderr);
    }
    let mut ended = Command::new("true").spawn().expect("true");
    ended.wait().expect("its end");
    let refused = free_port(ended.id());
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("No such process"), "{}", refused.stderr);

    // This process listens, but has another name.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let refused = free_port(std::process::id());
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("is no poolcounterd"), "{}", refused.stderr);
    assert_eq!(socket_linger(&listener), Ok(None));

    // This one has the name, but does not listen.
    let place = Place::new();
    place.install_script("echo begun; read -r line");
    let mut silent = Command::new(place.binary());
    let mut silent = silent.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a script");
    // The kernel lets spawn return before it gives the process its name.
    let output = silent.stdout.as_mut().expect("its output");
    BufReader::new(output).read_line(&mut String::new()).expect("its first line");
    let refused = free_port(silent.id());
    drop(silent.stdin.take());
    silent.wait().expect("its end");
    if !is_forbidden(&refused) {
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr.contains("it listens on no TCP port"), "{}", refused.stderr);
    }
}

/// An upgrade has replaced it.
#[test]
fn a_daemon_whose_binary_is_gone_is_found() {
    let place = Place::with_daemon();
    let (ip, port) = (next_address().to_string(), next_port().to_string());
    let server = place.start(&["-l", &ip, "-p", &port]);
    std::fs::remove_file(place.binary()).expect("remove the binary");
    let freed = free_port(server.pid());
    if !is_forbidden(&freed) {
        assert_eq!(freed.code, Some(0), "{}", freed.stderr);
    }
}

/// What `make test` denies. Only `--free-port` makes the first; the next are of its own use.
const OF_INTEREST: [&str; 6] = [
    "pidfd_getfd",
    "pidfd_open",
    "setsockopt(SO_LINGER)",
    "getsockopt(SO_ACCEPTCONN)",
    "getsockopt(SO_DOMAIN)",
    "signalfd4",
];

/// An old kernel, or a container's profile: the message names the call, and nothing has changed.
#[test]
fn a_denied_call_is_named() {
    if !can_deny() {
        return;
    }
    let (_, server) = served();
    let place = Place::new();
    let argument = format!("--free-port={}", server.pid());
    let freed = finish(&mut recorded(DAEMON, &[&argument], &place.path("trace")));
    if !is_forbidden(&freed) {
        assert_eq!(freed.code, Some(0), "{}", freed.stderr);
        Chosen::from_environment(&OF_INTEREST).deny(calls_in(&place.path("trace")), with_denied);
    }
}

fn with_denied(call: &DeniedCall, error: u16) -> String {
    let (ours, server) = served();
    let argument = format!("--free-port={}", server.pid());
    let freed = finish(&mut call.denied_to(error, DAEMON, &[&argument]));
    let is_of_interest = OF_INTEREST.contains(&&*call.shown());
    assert!(!is_of_interest || call.is_named_in(&freed.stderr), "{}", freed.stderr);
    assert!(freed.code == Some(0) || socket_linger(&ours) == Ok(None), "not undone");
    freed.stderr
}
