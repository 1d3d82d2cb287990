//! Drain (docs/operate/procedures.md): no new clients, and exit when the last one has left.

use crate::support::hosts::own_network;
use crate::support::restart::{Place, restart};
use crate::support::status::DRAINED;
use crate::support::{
    Client, DAEMON, PATIENCE, Server, backlog, backlog_granted, daemon_command, launched,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

#[track_caller]
fn expect_refused(address: SocketAddr) {
    let error = TcpStream::connect_timeout(&address, PATIENCE).expect_err("is refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

fn drain(server: &Server) {
    let before = server.log.count("draining: no new clients");
    server.signal(Signal::USR2);
    server.log.wait_for_count("draining: no new clients", before + 1);
}

/// Sends requests to a control socket; returns all answers.
fn ask(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("send");
    stream.shutdown(Shutdown::Write).expect("shutdown");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn an_operator_that_waits_for_a_drain_is_answered() {
    let place = Place::new();
    let path = place.path("c");
    let mut server = Server::start_apart(&["--control", &text(&path)]);
    assert_eq!(ask(&path, "DRAINED\n"), "ERROR not draining\n");
    let client = server.connect();
    server.settle();
    let mut waiting = Waiting::begin(&path);
    assert_eq!(ask(&path, "UNDRAIN\n").split(' ').next(), Some("OK"));
    assert_eq!(waiting.line(), "ERROR not draining\n");
    waiting = Waiting::begin(&path);
    restart(&server);
    drop(client);
    assert_eq!(waiting.line(), "OK drained\n");
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
}

/// The control socket takes few connections.
#[test]
fn an_operator_that_no_longer_waits_for_a_drain_frees_its_connection() {
    let place = Place::new();
    let path = place.path("c");
    let server = Server::start_apart(&["--control", &text(&path)]);
    let mut client = server.connect();
    client.settle();
    for _ in 0..20 {
        let answers = ask(&path, "DRAIN\nDRAINED\n");
        assert!(answers.ends_with("\nERROR still draining\n"), "{answers}");
        drop(Waiting::begin(&path));
    }
    assert!(ask(&path, "HELP\n").contains("DRAINED"));
    client.settle();
}

/// Later requests are executed after it, also if a hot restart or the end of input comes first.
#[test]
fn requests_behind_one_for_the_end_of_a_drain_wait() {
    let place = Place::new();
    let path = place.path("c");
    let server = Server::start_apart(&["--control", &text(&path)]);
    let mut client = server.connect();
    client.settle();
    let mut waiting = Waiting::begin(&path);
    waiting.0.get_mut().write_all(b"LOG warn\nDRAIN\nDRAINED\nLOG\n").expect("send");
    restart(&server);
    assert_eq!(ask(&path, "LOG\n"), "OK log filter: info\n");
    assert_eq!(ask(&path, "UNDRAIN\n").split(' ').next(), Some("OK"));
    assert_eq!(waiting.line(), "ERROR not draining\n");
    assert_eq!(waiting.line(), "OK log filter: warn\n");
    assert_eq!(waiting.line(), "OK draining, connections left: 1\n");
    waiting.0.get_mut().shutdown(Shutdown::Write).expect("shutdown");
    assert_eq!(waiting.line(), "ERROR still draining\n");
    assert_eq!(waiting.line(), "OK log filter: warn\n");
    assert_eq!(waiting.line(), "");
}

/// An operator's connection.
struct Waiting(BufReader<UnixStream>);

impl Waiting {
    /// Drains, and waits for the end.
    fn begin(path: &Path) -> Waiting {
        let stream = UnixStream::connect(path).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut waiting = Waiting(BufReader::new(stream));
        waiting.0.get_mut().write_all(b"DRAIN\nDRAINED\n").expect("send");
        let draining = waiting.line();
        assert!(draining.starts_with("OK draining, "), "{draining}");
        waiting
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line, or the end");
        line
    }
}

/// What a drain says of a socket that another process may hold.
const HELD: &str = "still holds it, new clients wait there until this daemon ends";

/// From a container, systemd's socket outside of it can't be seen.
#[test]
fn an_inherited_socket_of_another_network_may_be_held() {
    let Some(launcher) = own_network() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let theirs = OwnedFd::from(listener.try_clone().expect("dup"));
    let server = Server::spawn(launched(&launcher, DAEMON, &[]).stdin(theirs));
    let mut client = server.connect();
    client.settle();
    drain(&server);
    server.log.wait_for(HELD);
    assert!(TcpStream::connect(server.address()).is_ok(), "{}", server.address());
}

/// This process keeps a copy of the socket, as systemd does.
#[test]
fn an_inherited_socket_is_closed_and_still_works_for_its_next_owner() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let theirs = OwnedFd::from(listener.try_clone().expect("dup"));
    let mut server = Server::spawn(daemon_command(&[]).stdin(theirs));
    let mut client = Client::connect(address);
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    drain(&server);
    server.log.wait_for(HELD);
    // The backlog is as deep as before.
    assert_eq!(backlog(address), backlog_granted(4096));
    let mut new_client = Client::connect(address);
    new_client.send("ACQ4ME k 1 1 0");
    // It can't be reopened, and doesn't end up half open.
    server.signal(Signal::USR2);
    server.log.wait_for("still draining: ");
    restart(&server);
    server.signal(Signal::USR2);
    let why = server.log.wait_for_count("still draining: ", 2);
    assert!(why.contains(&format!("{address} was passed by systemd or as standard")), "{why}");
    client.exchange("RELEASE", "RELEASED");
    new_client.expect_nothing();
    drop(client);
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
    let next = Server::spawn(daemon_command(&[]).stdin(OwnedFd::from(listener)));
    new_client.expect("LOCKED");
    assert_eq!(next.address(), address);
}

/// Another process has shut it down: accept(2) always fails.
#[test]
fn a_socket_that_was_shut_down_does_not_keep_the_daemon_running() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let theirs = OwnedFd::from(listener.try_clone().expect("dup"));
    let mut server = Server::spawn(daemon_command(&[]).stdin(theirs));
    let mut client = server.connect();
    client.settle();
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Read).expect("shutdown");
    server.log.wait_for("accepting a connection failed");
    drain(&server);
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    drop(client);
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
}

#[test]
fn a_failed_undrain_is_explained() {
    let place = Place::new();
    let control = place.path("control.sock");
    let options = ["-l", "127.0.0.1,127.0.0.2", "-p", "0", "--control", &text(&control)];
    let server = Server::spawn(&mut daemon_command(&options));
    let mut client = server.connect();
    client.settle();
    assert_eq!(ask(&control, "DRAIN\n"), "OK draining, connections left: 1\n");
    let taken = server.addresses()[1];
    let _theirs = TcpListener::bind(taken).expect("it is free");
    let answer = ask(&control, "UNDRAIN\n");
    assert!(answer.starts_with("ERROR ") && answer.contains(&taken.to_string()), "{answer:?}");
    // All or nothing.
    expect_refused(server.address());
}
