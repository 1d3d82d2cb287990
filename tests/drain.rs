//! Drain (docs/restart.md): no new clients, and the end when the last has left.

mod common;
#[path = "common/restart.rs"]
mod hot;

use common::{Client, DAEMON, PATIENCE, Server, daemon_command, launched};
use hot::{Place, restart, wait_until};
use rustix::process::Signal;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

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

fn undrain(server: &Server) {
    let before = server.log.count("draining no more");
    server.signal(Signal::USR2);
    server.log.wait_for_count("draining no more", before + 1);
}

#[test]
fn newcomers_are_refused_and_clients_are_served_to_their_end() {
    let mut server = Server::start();
    let [mut holder, mut waiter] = [(); 2].map(|()| server.connect());
    holder.exchange("ACQ4ME k 1 9 60", "LOCKED");
    waiter.send("ACQ4ME k 1 9 60");
    server.settle();
    drain(&server);
    expect_refused(server.address());
    holder.exchange("RELEASE", "RELEASED");
    waiter.expect("LOCKED");
    holder.exchange("ACQ4ME other 1 1 0", "LOCKED");
    drop(holder);
    waiter.exchange("ACQ4ME other 1 9 60", "LOCKED");
    assert!(server.is_running());
    drop(waiter);
    server.log.wait_for("drained: the last client has left");
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

#[test]
fn whoever_is_in_the_backlog_is_served() {
    let mut server = Server::start();
    let _stays = server.connect();
    server.settle();
    server.signal(Signal::STOP);
    // More than are accepted in a turn.
    let mut clients: Vec<Client> = (0..500).map(|_| server.connect()).collect();
    server.signal(Signal::USR2);
    server.signal(Signal::CONT);
    for (n, client) in clients.iter_mut().enumerate() {
        client.exchange(&format!("ACQ4ME k{n} 1 1 0"), "LOCKED");
    }
    expect_refused(server.address());
    drop(clients);
    drop(_stays);
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

#[test]
fn a_daemon_without_clients_ends_at_once() {
    let mut server = Server::start();
    server.signal(Signal::USR2);
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

#[test]
fn every_address_is_shut_and_opened_again() {
    let server = Server::spawn(&mut daemon_command(&["-l", "127.0.0.1,127.0.0.2", "-p", "0"]));
    let mut client = server.connect();
    client.settle();
    assert_eq!(server.addresses().len(), 2);
    for _ in 0..3 {
        drain(&server);
        server.addresses().iter().for_each(|&address| expect_refused(address));
        undrain(&server);
        for &address in server.addresses() {
            Client::connect(address).settle();
        }
        client.settle();
    }
}

#[test]
fn newcomers_are_refused_even_where_another_process_holds_the_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    // As systemd does, this process keeps the socket.
    let theirs = OwnedFd::from(listener.try_clone().expect("dup"));
    let server = Server::spawn(daemon_command(&[]).stdin(theirs));
    let mut client = Client::connect(address);
    client.settle();
    drain(&server);
    expect_refused(address);
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    undrain(&server);
    Client::connect(address).exchange("ACQ4ME k 1 1 0", "QUEUE_FULL");
    drop(listener);
}

#[test]
fn a_drain_survives_a_restart() {
    let mut server = Server::start();
    let mut client = server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    drain(&server);
    restart(&server);
    expect_refused(server.address());
    restart(&server);
    expect_refused(server.address());
    undrain(&server);
    server.connect().exchange("ACQ4ME k 1 1 0", "QUEUE_FULL");
    drain(&server);
    restart(&server);
    client.exchange("RELEASE", "RELEASED");
    drop(client);
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

#[test]
fn a_unix_socket_is_shut_and_opened_again() {
    let place = Place::new();
    let path = place.path("clients.sock");
    let path_text = path.display().to_string();
    let server = Server::start_with(&["--listen-unix", &path_text]);
    let mut client = server.connect();
    client.settle();
    for is_restarted in [false, true] {
        UnixStream::connect(&path).expect("it listens");
        drain(&server);
        if is_restarted {
            restart(&server);
        }
        let error = UnixStream::connect(&path).expect_err("is refused");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        undrain(&server);
        let mut stream = UnixStream::connect(&path).expect("it listens again");
        stream.write_all(b"RELEASE\n").expect("send");
        stream.shutdown(Shutdown::Write).expect("shutdown");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer, "NOT_LOCKED\n");
        client.settle();
    }
}

/// Linux has no way back for a Unix socket that was shut, and the daemon cannot
/// bind one that somebody else did.
#[test]
fn an_inherited_unix_socket_stays_shut_and_that_is_said() {
    let place = Place::new();
    let tcp = TcpListener::bind("127.0.0.1:0").expect("bind");
    let unix = UnixListener::bind(place.path("clients.sock")).expect("bind");
    let shell = "exec 3<&0 4>&1 0</dev/null 1>/dev/null; \
                 LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"";
    let mut command = launched(&["sh", "-c", shell, "sh"], DAEMON, &[]);
    command.stdin(OwnedFd::from(tcp)).stdout(OwnedFd::from(unix));
    let server = Server::spawn(&mut command);
    let mut client = server.connect();
    client.settle();
    drain(&server);
    server.signal(Signal::USR2);
    server.log.wait_for("could not be opened again: an inherited Unix socket stays shut");
    // The other one is open.
    server.connect().settle();
}

#[test]
fn how_many_are_left_is_logged_now_and_then() {
    let server = Server::start();
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(Client::settle);
    let begin = Instant::now();
    // settle() may have left others, who are gone when the daemon has seen it.
    drain(&server);
    clients.pop();
    let line = server.log.wait_for("clients are left");
    assert!(line.contains("draining: 2 clients are left"), "{line:?}");
    // After ten seconds, though no client stirred.
    assert!(begin.elapsed().as_secs() >= 9);
}

#[test]
fn told_to_stop_it_does_not_wait_for_the_last() {
    let mut server = Server::start();
    let mut client = server.connect();
    client.settle();
    drain(&server);
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
    client.expect_end();
}

#[test]
fn the_control_socket_drains_as_well() {
    let place = Place::new();
    let path = place.path("control.sock");
    let path_text = path.display().to_string();
    let mut server = Server::start_with(&["--control", &path_text]);
    let mut client = server.connect();
    client.settle();
    wait_until("the control socket is there", || path.exists().then_some(()));
    let ask = |request: &str| {
        let mut stream = UnixStream::connect(&path).expect("connect");
        stream.write_all(request.as_bytes()).expect("send");
        stream.shutdown(Shutdown::Write).expect("shutdown");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    assert_eq!(ask("DRAIN\n"), "OK draining, 1 connections left\n");
    expect_refused(server.address());
    // Twice is once.
    assert_eq!(ask("DRAIN\n"), "OK draining, 1 connections left\n");
    assert_eq!(ask("UNDRAIN\n"), format!("OK listening on {}\n", server.address()));
    server.connect().settle();
    wait_until("that one has left", || {
        (ask("DRAIN\n") == "OK draining, 1 connections left\n").then_some(())
    });
    drop(client);
    assert_eq!(server.wait_for_exit().code(), Some(0));
    assert!(!path.exists());
}
