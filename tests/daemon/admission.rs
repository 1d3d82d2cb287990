//! Which clients are admitted: `--allow`, `--max-connections`,
//! `--max-connections-per-ip`, `--listen-unix`.

use crate::support::{Client, PATIENCE, Server, daemon_command, finish, leave_stale_socket};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A connection from an address of our choice.
struct From(TcpStream);

impl From {
    fn connect(ip: &str, server: SocketAddr) -> From {
        let own: IpAddr = ip.parse().expect("address");
        let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket =
            socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("socket");
        bind(&socket, &SocketAddr::new(own, 0)).expect("bind");
        connect(&socket, &server).expect("connect");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        From(stream)
    }

    /// Whether it is served. If not, it sees the end, or a reset if its input crossed
    /// the close.
    fn is_served(&mut self) -> bool {
        is_served(&mut self.0)
    }
}

fn is_served(stream: &mut (impl Read + Write)) -> bool {
    let _ = stream.write_all(b"STATS UPTIME\n");
    let mut answer = [0; 8];
    match stream.read_exact(&mut answer) {
        Ok(()) => answer == *b"uptime: ",
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("neither served nor closed"),
        Err(_) => false,
    }
}

fn is_served_from(ip: &str, server: SocketAddr) -> bool {
    From::connect(ip, server).is_served()
}

/// Retries until there is room: a client has just left.
fn wait_until_served_from(ip: &str, server: SocketAddr) -> From {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut newcomer = From::connect(ip, server);
        if newcomer.is_served() {
            return newcomer;
        }
        assert!(Instant::now() < deadline, "no room for {ip}");
    }
}

/// IPv4-mapped notation of IPv4 networks (RFC 4291, 2.5.5.2).
#[test]
fn an_ipv4_network_may_be_written_as_a_mapped_one() {
    for allow in ["::ffff:127.0.0.0/104", "::ffff:127.0.0.1", "::ffff:127.0.0.1/128"] {
        let server = Server::start_with(&["--allow", allow]);
        assert!(is_served_from("127.0.0.1", server.address()), "{allow}");
    }
    let server = Server::start_with(&["--allow", "::ffff:127.8.0.0/112"]);
    assert!(is_served_from("127.8.0.1", server.address()));
    assert!(!is_served_from("127.9.0.1", server.address()));
}

#[test]
fn addresses_outside_of_allow_are_closed_and_counted_apart() {
    let began = Instant::now();
    let server =
        Server::start_with(&["--allow", "127.0.0.1", "--allow", "127.8.0.0/16", "--allow", "::1"]);
    assert!(is_served_from("127.0.0.1", server.address()));
    assert!(is_served_from("127.8.9.10", server.address()));
    for _ in 0..50 {
        assert!(!is_served_from("127.0.0.2", server.address()));
    }
    assert!(!is_served_from("127.9.0.1", server.address()));
    assert_eq!(server.counter("denied_connections"), 51);
    assert_eq!(server.counter("connect_errors"), 0);
    server.log.wait_for("127.0.0.2 is not in --allow");
    server.log.expect_rarely("--allow", began);
}

#[test]
fn an_ipv4_client_of_a_socket_for_both_is_judged_by_its_ipv4_address() {
    let server = Server::start_with(&["-l", "::", "--allow", "127.0.0.1"]);
    let v4 = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    assert!(is_served_from("127.0.0.1", v4));
    assert!(!is_served_from("127.0.0.2", v4));
}

#[test]
fn a_denied_client_holds_nothing_and_disturbs_nobody() {
    let server = Server::start_with(&["--allow", "127.0.0.1"]);
    let mut holder = server.connect();
    holder.exchange("ACQ4ME k 1 9 30", "LOCKED");
    let mut denied = From::connect("127.0.0.2", server.address());
    let _ = denied.0.write_all(b"ACQ4ME other 1 9 30\nACQ4ME k 1 9 30\n");
    assert!(!denied.is_served());
    assert_eq!(server.counter("total_acquired"), 1);
    assert_eq!(server.counter("waiting_workers"), 0);
    holder.exchange("RELEASE", "RELEASED");
}

/// For a client that leaves before it is accepted, the kernel no longer knows an
/// address, but still has its input.
#[test]
fn who_resets_in_the_backlog_is_not_served_either() {
    let server = Server::start_with(&["--allow", "127.0.0.1"]);
    let mut control = server.connect();
    control.settle();
    server.signal(Signal::STOP);
    for _ in 0..20 {
        let mut denied = From::connect("127.0.0.2", server.address());
        denied.0.write_all(b"ACQ4ME k 99 99 0\nRELEASE\n").expect("send");
        rustix::net::sockopt::set_socket_linger(&denied.0, Some(Duration::ZERO)).expect("linger");
    }
    server.signal(Signal::CONT);
    control.settle();
    assert!(!is_served_from("127.0.0.2", server.address()));
    assert_eq!(control.counter("total_acquired"), 0);
    assert_eq!(control.counter("connect_errors"), 0);
}

#[test]
fn one_address_has_no_more_than_its_share() {
    let began = Instant::now();
    let server = Server::start_with(&["--max-connections-per-ip", "3"]);
    let mut inside: Vec<From> =
        (0..3).map(|_| From::connect("127.0.0.2", server.address())).collect();
    assert!(inside.iter_mut().all(From::is_served));
    for _ in 0..20 {
        assert!(!is_served_from("127.0.0.2", server.address()));
    }
    // Others have their own.
    assert!(is_served_from("127.0.0.3", server.address()));
    let mut control = server.connect();
    assert_eq!(control.counter("rejected_connections_per_ip"), 20);
    assert_eq!(control.counter("connect_errors"), 0);
    server.log.expect_rarely("--max-connections-per-ip", began);
    // A leaving client makes room, also with a reset.
    for _ in 0..5 {
        let leaver = inside.pop().expect("one of three");
        let now = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&leaver.0, now).expect("SO_LINGER");
        drop(leaver);
        inside.push(wait_until_served_from("127.0.0.2", server.address()));
    }
}

#[test]
fn shares_are_counted_on_across_a_hot_restart() {
    let server = Server::start_with(&["--max-connections-per-ip", "2"]);
    let mut inside: Vec<From> =
        (0..2).map(|_| From::connect("127.0.0.2", server.address())).collect();
    assert!(inside.iter_mut().all(From::is_served));
    server.signal(Signal::USR1);
    server.log.wait_for("continued after a pause");
    assert!(!is_served_from("127.0.0.2", server.address()));
    inside.pop();
    wait_until_served_from("127.0.0.2", server.address());
}

#[test]
fn more_than_max_connections_are_closed_at_once() {
    let began = Instant::now();
    let server = Server::start_with(&["--max-connections", "2"]);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.settle();
    second.settle();
    for _ in 0..20 {
        assert!(!is_served_from("127.0.0.1", server.address()));
    }
    assert_eq!(first.counter("rejected_connections"), 20);
    assert_eq!(first.counter("connect_errors"), 0);
    server.log.expect_rarely("--max-connections is reached", began);
    drop(second);
    wait_until_served_from("127.0.0.1", server.address());
}

/// An unused path.
fn socket_path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pool-{}-{name}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn start_at(path: &std::path::Path, more: &[&str]) -> Server {
    let mut arguments = vec!["--listen-unix", path.to_str().expect("path")];
    arguments.extend(more);
    Server::start_with(&arguments)
}

fn unix_connect(path: &std::path::Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
}

#[test]
fn a_unix_socket_serves_beside_tcp_whatever_allow_says() {
    let path = socket_path("beside");
    let limits = ["--allow", "127.0.0.1", "--max-connections-per-ip", "1"];
    let mut server = start_at(&path, &limits);
    let mut over_tcp = server.connect();
    over_tcp.exchange("ACQ4ME k 1 9 30", "LOCKED");
    let mut over_unix = [unix_connect(&path), unix_connect(&path)];
    assert!(over_unix.iter_mut().all(is_served));
    // Clients of both sockets share a pool.
    over_unix[0].write_all(b"ACQ4ME k 1 1 30\n").expect("send");
    let mut answer = [0; 64];
    loop {
        // What is left of the uptime comes first.
        let len = over_unix[0].read(&mut answer).expect("answer");
        if answer[..len].ends_with(b"QUEUE_FULL\n") {
            break;
        }
        assert!(len > 0, "closed");
    }
    server.signal(Signal::TERM);
    assert!(server.wait_for_exit().success());
    assert!(!path.exists(), "the file stays behind");
}

#[test]
fn the_mode_of_the_unix_socket_decides_who_may_connect() {
    for (arguments, mode) in [(&[][..], 0o660), (&["--listen-unix-mode", "600"], 0o600)] {
        let path = socket_path(&format!("mode-{mode:o}"));
        let _server = start_at(&path, arguments);
        let actual = std::fs::metadata(&path).expect("the socket").permissions().mode();
        assert_eq!(actual & 0o777, mode);
    }
}

#[test]
fn a_stale_unix_socket_is_replaced() {
    let path = socket_path("stale");
    // As a killed daemon leaves it.
    leave_stale_socket(&path);
    let _server = start_at(&path, &[]);
    assert!(is_served(&mut unix_connect(&path)));
}

#[test]
fn the_unix_socket_of_a_daemon_that_runs_is_left_alone() {
    let path = socket_path("taken");
    let _server = start_at(&path, &[]);
    refuses_to_start_at(&path);
    assert!(is_served(&mut unix_connect(&path)));
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let path = socket_path("file");
    std::fs::write(&path, "precious").expect("write");
    refuses_to_start_at(&path);
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "precious");
    std::fs::remove_file(&path).expect("remove");
}

fn refuses_to_start_at(path: &std::path::Path) {
    let path = path.to_str().expect("path");
    let arguments = ["-l", "127.0.0.1", "-p", "0", "--listen-unix", path];
    let finished = finish(&mut daemon_command(&arguments));
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains(path), "{}", finished.stderr);
}

#[test]
fn the_unix_socket_and_its_clients_survive_a_hot_restart() {
    let path = socket_path("restart");
    let server = start_at(&path, &[]);
    let mut before = unix_connect(&path);
    assert!(is_served(&mut before));
    server.signal(Signal::USR1);
    server.log.wait_for("continued after a pause");
    let mut rest = [0; 256];
    let _ = before.read(&mut rest).expect("the rest of the first answer");
    assert!(is_served(&mut before));
    assert!(is_served(&mut unix_connect(&path)));
}

#[test]
fn a_reload_changes_who_is_admitted_but_disconnects_nobody() {
    let control = socket_path("control");
    let control = control.to_str().expect("path");
    let server = Server::start_with(&["--control", control]);
    let mut before = From::connect("127.0.0.2", server.address());
    assert!(before.is_served());
    let port = server.address().port().to_string();
    let arguments = ["--reload", "--control", control, "-l", "127.0.0.1", "-p", &port];
    let mut command = daemon_command(&arguments);
    let reload = finish(command.args(["--allow", "127.0.0.1"]));
    assert_eq!(reload.code, Some(0), "{}{}", reload.stdout, reload.stderr);
    assert!(!is_served_from("127.0.0.2", server.address()));
    let mut rest = [0; 256];
    let _ = before.0.read(&mut rest).expect("the rest of the first answer");
    assert!(before.is_served());
    Client::connect(server.address()).settle();
}
