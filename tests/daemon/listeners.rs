//! Listening sockets that the daemon did not open itself: standard input, as the
//! reference passes it in a hot restart, and those of systemd.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::support::restart::restart;
use crate::support::status::WRONG_OPTIONS;
use crate::support::{
    Client, Server, backlog, backlog_granted, daemon_command, finish, in_shell, skip,
};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, listen, socket_with, sockopt,
};
use rustix::process::Signal;

fn tcp_listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// Connections in its queue are served too.
#[test]
fn a_listening_standard_input_is_served_instead_of_l() {
    let (listener, address) = tcp_listener();
    let mut early = Client::connect(address);
    early.send("ACQ4ME k 1 1 0");
    let ours = listener.try_clone().expect("a copy");
    let mut command = daemon_command(&["-l", "192.0.2.1", "-p", "1"]);
    let server = Server::spawn(command.stdin(OwnedFd::from(listener)));
    assert_eq!(server.addresses(), [address]);
    early.expect("LOCKED");
    // The test passed it blocking, with another backlog, and without the options that
    // accepted sockets inherit.
    assert_eq!(backlog(address), backlog_granted(4096));
    assert!(fcntl_getfl(&ours).expect("flags").contains(OFlags::NONBLOCK));
    assert!(sockopt::tcp_nodelay(&ours).expect("TCP_NODELAY"));
    assert!(sockopt::socket_keepalive(&ours).expect("SO_KEEPALIVE"));
}

/// The reference's listener lacks SO_REUSEADDR, and so would every connection accepted
/// from it: those that the daemon closes first would keep the port.
#[test]
fn after_an_inherited_listener_the_port_is_free_at_once() {
    let (listener, address) = tcp_listener();
    sockopt::set_socket_reuseaddr(&listener, false).expect("SO_REUSEADDR");
    let mut command = daemon_command(&["-l", "127.0.0.1"]);
    let mut server = Server::spawn(command.stdin(OwnedFd::from(listener)));
    // The command has a copy of the listener.
    drop(command);
    let mut client = server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    server.signal(Signal::TERM);
    client.expect_end();
    assert_eq!(server.wait_for_exit().code(), Some(0));

    let port = address.port().to_string();
    let next = Server::spawn(&mut daemon_command(&["-l", "127.0.0.1", "-p", &port]));
    next.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
}

#[test]
fn another_kind_of_socket_as_standard_input_is_an_error() {
    let (listener, address) = tcp_listener();
    let connected = TcpStream::connect(address).expect("connect");
    let (accepted, _) = listener.accept().expect("accept");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (one, _other) = UnixStream::pair().expect("a pair");
    let sockets: [(&str, OwnedFd); 4] = [
        ("connected", connected.into()),
        ("accepted", accepted.into()),
        ("UDP", udp.into()),
        ("Unix pair", one.into()),
    ];
    for (kind, socket) in sockets {
        let refused = finish(daemon_command(&["-l", "127.0.0.1", "-p", "0"]).stdin(socket));
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{kind}");
        assert!(!refused.stderr.is_empty(), "{kind}: no reason");
    }
}

/// The descriptors come in as 0 and 1 and are moved to where systemd puts them.
/// LISTEN_PID must be the pid of the process that becomes the daemon.
const AS_SYSTEMD: &str = r#"export LISTEN_PID=$$; exec "$@" 3<&0 </dev/null"#;
const AS_SYSTEMD_WITH_TWO: &str =
    r#"export LISTEN_PID=$$; exec "$@" 3<&0 4<&1 </dev/null >/dev/null"#;

/// Such a socket has no TCP_USER_TIMEOUT; systemd opens one if the unit asks for it.
#[test]
fn a_socket_of_multipath_tcp_is_served() {
    const IPPROTO_MPTCP: u32 = 262;
    let protocol = std::num::NonZeroU32::new(IPPROTO_MPTCP).map(Protocol::from_raw);
    let Ok(listener) =
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)
    else {
        skip("no Multipath TCP here");
        return;
    };
    bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind");
    listen(&listener, 1).expect("listen");
    let address = TcpListener::from(listener.try_clone().expect("a copy")).local_addr();
    let in_service = in_shell(AS_SYSTEMD, &[]);
    for mut command in [daemon_command(&[]), in_service] {
        let theirs = listener.try_clone().expect("a copy");
        let server = Server::spawn(command.env("LISTEN_FDS", "1").stdin(theirs));
        assert_eq!(Some(server.address()), address.as_ref().ok().copied());
        server.log.wait_for("setsockopt(TCP_USER_TIMEOUT): Protocol not available");
        server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
        restart(&server);
        server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
    }
}

#[test]
fn sockets_of_systemd_are_served_instead_of_l() {
    let [(one, address), (other, other_address)] = [(); 2].map(|()| tcp_listener());
    let mut command = in_shell(AS_SYSTEMD_WITH_TWO, &["-l", "192.0.2.1"]);
    command.stdin(OwnedFd::from(one)).stdout(OwnedFd::from(other));
    let server = Server::spawn(command.env("LISTEN_FDS", "2"));
    assert_eq!(server.addresses(), [address, other_address]);
    // Both belong to one server.
    server.connect().exchange("ACQ4ME k 1 9 0", "LOCKED");
    let mut holder = server.connect();
    holder.exchange("ACQ4ME held 1 9 0", "LOCKED");
    Client::connect(other_address).exchange("ACQ4ME held 1 9 0", "TIMEOUT");
}

#[test]
fn sockets_meant_for_another_process_are_left_alone() {
    let (listener, address) = tcp_listener();
    let line = r#"export LISTEN_PID=1; exec "$@" 3<&0 </dev/null"#;
    let mut command = in_shell(line, &["-l", "127.0.0.1", "-p", "0"]);
    command.stdin(OwnedFd::from(listener)).env("LISTEN_FDS", "1");
    let server = Server::spawn(&mut command);
    assert_ne!(server.address(), address);
    server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
}

#[test]
fn a_socket_of_systemd_that_does_not_listen_is_an_error() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut command = in_shell(AS_SYSTEMD, &[]);
    let refused = finish(command.stdin(OwnedFd::from(udp)).env("LISTEN_FDS", "1"));
    assert_eq!(refused.code, Some(WRONG_OPTIONS));
    assert!(!refused.stderr.is_empty(), "no reason");
}

/// A restart while connections of the old process linger, on both sides.
#[test]
fn its_port_can_be_taken_again_at_once() {
    let mut server = Server::start();
    let port = server.address().port().to_string();
    for _ in 0..3 {
        let mut lingering: Vec<_> = (0..10).map(|_| server.connect()).collect();
        lingering.iter_mut().for_each(Client::settle);
        server.signal(Signal::TERM);
        assert_eq!(server.wait_for_exit().code(), Some(0));
        server = Server::spawn(&mut daemon_command(&["-l", "127.0.0.1", "-p", &port]));
        server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
    }
}
