//! Drain (docs/operate/procedures.md): no new clients, and exit when the last one has left.

use crate::support::hosts::own_network;
use crate::support::operated::{Operated, Operator};
use crate::support::restart::restart;
use crate::support::status::DRAINED;
use crate::support::{
    Client, DAEMON, PATIENCE, Server, backlog, backlog_granted, daemon_command, launched,
};
use rustix::process::Signal;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

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

#[test]
fn an_operator_that_waits_for_a_drain_is_answered() {
    let mut daemon = Operated::start_apart();
    assert_eq!(daemon.ask("DRAINED"), "ERROR not draining");
    let client = daemon.server.connect();
    daemon.server.settle();
    let mut operator = waiting(&daemon);
    assert_eq!(daemon.ask("UNDRAIN").split(' ').next(), Some("OK"));
    assert_eq!(operator.line(), "ERROR not draining");
    operator = waiting(&daemon);
    restart(&daemon.server);
    drop(client);
    assert_eq!(operator.line(), "OK drained");
    assert_eq!(daemon.server.wait_for_exit().code(), Some(DRAINED));
}

/// The control socket takes few connections.
#[test]
fn an_operator_that_no_longer_waits_for_a_drain_frees_its_connection() {
    let daemon = Operated::start_apart();
    let mut client = daemon.server.connect();
    client.settle();
    for _ in 0..20 {
        let mut operator = waiting(&daemon);
        operator.shut_writing();
        assert_eq!(operator.line(), "ERROR still draining");
        drop(waiting(&daemon));
    }
    assert!(daemon.operator().list(b"HELP").iter().any(|line| line.starts_with("DRAINED")));
    client.settle();
}

/// An operator that drains the daemon, and waits for the end.
fn waiting(daemon: &Operated) -> Operator {
    let mut operator = daemon.operator();
    operator.send(b"DRAIN\nDRAINED\n");
    let draining = operator.line();
    assert!(draining.starts_with("OK draining, "), "{draining}");
    operator
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
    let daemon = Operated::start_at(&["-l", "127.0.0.1,127.0.0.2", "-p", "0"]);
    let mut client = daemon.server.connect();
    client.settle();
    assert_eq!(daemon.ask("DRAIN"), "OK draining, connections left: 1");
    let taken = daemon.server.addresses()[1];
    let _theirs = TcpListener::bind(taken).expect("it is free");
    let answer = daemon.ask("UNDRAIN");
    assert!(answer.starts_with("ERROR ") && answer.contains(&taken.to_string()), "{answer:?}");
    // All or nothing.
    expect_refused(daemon.server.address());
}
