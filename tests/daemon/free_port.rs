//! `--free-port`, with which the Debian package prepares the end of a daemon.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::support::status::WRONG_OPTIONS;
use crate::support::{Finished, Server, daemon_command, finish, skip};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::process::Signal;

fn free_port(pid: &str) -> Finished {
    finish(&mut daemon_command(&[&format!("--free-port={pid}")]))
}

#[test]
fn what_the_daemon_closes_from_then_on_it_resets() {
    let mut server = Server::start();
    let mut client = TcpStream::connect(server.address()).expect("connect");
    client.write_all(b"ACQ4ME key 1 1 0\n").expect("send");
    let mut answer = [0; 7];
    client.read_exact(&mut answer).expect("an answer");
    let freed = free_port(&server.pid().to_string());
    if freed.stderr.contains("Operation not permitted") {
        return skip("this kernel, or container, lets no process copy another's descriptors");
    }
    assert_eq!(freed.code, Some(0), "{}", freed.stderr);
    assert!(freed.stdout.contains(&server.address().port().to_string()), "{}", freed.stdout);
    // It still serves, and accepts.
    server.connect().exchange("ACQ4ME other 1 1 0", "LOCKED");
    let mut later = TcpStream::connect(server.address()).expect("connect");
    server.settle();

    server.signal(Signal::TERM);
    server.wait_for_exit();
    for client in [&mut client, &mut later] {
        let error = client.read(&mut answer).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    // Without SO_REUSEADDR, as the C daemon binds it.
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    bind(socket.expect("a socket"), &server.address()).expect("the port is free");
}

#[test]
fn a_process_that_serves_nobody_is_refused() {
    // The first process is the system's.
    for nonsense in ["", "-1", "0", "1", "x", "4294967297", "12 13"] {
        let refused = free_port(nonsense);
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{nonsense:?}: {}", refused.stderr);
    }
    let mut ended = Command::new("true").spawn().expect("true");
    ended.wait().expect("its end");
    let refused = free_port(&ended.id().to_string());
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("No such process"), "{}", refused.stderr);

    let mut silent = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
    let refused = free_port(&silent.id().to_string());
    drop(silent.stdin.take());
    silent.wait().expect("its end");
    assert_eq!(refused.code, Some(1));
    let expected = ["listens on no TCP port", "Operation not permitted"];
    assert!(expected.iter().any(|why| refused.stderr.contains(why)), "{}", refused.stderr);
}
