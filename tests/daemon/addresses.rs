//! What the daemon listens on: a cold start, a reload and UNDRAIN agree, and each opens
//! all wanted listeners or changes nothing.

use crate::support::crowd::full_daemon;
use crate::support::restart::{
    ConnectingLoop, Place, Surroundings, refused_restart, restart, wait_until,
};
use crate::support::{
    Client, DAEMON, PATIENCE, Server, daemon_command, eventually, finish, launched,
    leave_stale_socket, skip,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with, sockopt,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A daemon with a control socket, and what it asks.
pub(crate) struct Daemon {
    pub(crate) place: Place,
    pub(crate) server: Server,
}

impl Daemon {
    /// With arguments beside `--control`.
    pub(crate) fn start(arguments: &[&str]) -> Daemon {
        let place = Place::with_daemon();
        let control = place.path("control.sock").display().to_string();
        let all = [&["--control", &control], arguments].concat();
        let server = Server::spawn(&mut place.command(&all));
        Daemon { place, server }
    }

    fn text(&self, name: &str) -> String {
        self.place.path(name).display().to_string()
    }

    fn ask(&self, request: &str) -> String {
        ask(&self.place.path("control.sock"), request)
    }

    /// A reload with arguments beside `--control`.
    fn reload(&self, arguments: &[&str]) -> String {
        let control = self.text("control.sock");
        let all = [&["--control", &control], arguments].concat();
        self.ask(&format!("RESTART {}", serde_json::json!(all)))
    }
}

/// Asks at a control socket.
pub(crate) fn ask(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    writeln!(stream, "{request}").expect("send");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    answer.trim_end().to_owned()
}

fn is_served(address: SocketAddr) -> bool {
    match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(_) => true,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::ConnectionRefused, "{address}");
            false
        }
    }
}

/// A port below the kernel's ephemeral range, free on every address. Tests that run at
/// the same time get different ones.
pub(crate) fn quiet_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Far from the ports of a process that was started just before or after this one.
        let port = 12_000 + ((std::process::id() * 127 + count) % 18_000) as u16;
        let all: [SocketAddr; 2] =
            [(IpAddr::from([0; 4]), port).into(), (IpAddr::from([0; 16]), port).into()];
        // `::` serves both if there is IPv6.
        if all.into_iter().all(is_free) {
            return port;
        }
    }
}

/// Whether nobody listens there. Binds, but does not listen: a child that another test
/// starts may have a copy of the socket for a moment.
fn is_free(address: SocketAddr) -> bool {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    socket.is_ok_and(|socket| {
        sockopt::set_socket_reuseaddr(&socket, true).expect("SO_REUSEADDR");
        bind(&socket, &address).is_ok()
    })
}

pub(crate) fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

#[test]
fn an_address_that_another_one_covers_is_no_error() {
    for list in ["0.0.0.0,127.0.0.1", "127.0.0.1,127.0.0.1", "127.0.0.1,::ffff:127.0.0.1"] {
        let daemon = Daemon::start(&["-l", list, "-p", "0"]);
        let port = daemon.server.address().port().to_string();
        let answer = daemon.reload(&["-l", "127.0.0.1", "-p", &port]);
        assert!(answer.starts_with("OK restarted"), "{list}: {answer:?}");
        let answer = daemon.reload(&["-l", list, "-p", &port]);
        assert!(answer.starts_with("OK restarted"), "{list}: {answer:?}");
        Client::connect(([127, 0, 0, 1], daemon.server.address().port()).into()).settle();
    }
}

/// As for clients, so for HTTP.
#[test]
fn a_wildcard_serves_http_on_a_single_address_too() {
    let daemon = Daemon::start(&["-l", "127.0.0.1", "-p", "0"]);
    let tcp = ["-l", "127.0.0.1", "-p", &daemon.server.address().port().to_string()];
    let port = quiet_port();
    let [all, one] = ["0.0.0.0", "127.0.0.1"].map(|ip| format!("{ip}:{port}"));
    for http in [[&all, &one], [&one, &all]] {
        let http = ["--http", http[0], "--http", http[1]];
        let answer = daemon.reload(&[&tcp[..], &http].concat());
        assert!(answer.starts_with("OK restarted"), "{http:?}: {answer:?}");
        assert!(is_served(([127, 0, 0, 2], port).into()));
        assert!(daemon.reload(&tcp).starts_with("OK restarted"));
        let cold = [&["-l", "127.0.0.1", "-p", "0"][..], &http].concat();
        let cold = Server::spawn(&mut daemon_command(&cold));
        assert!(is_served(([127, 0, 0, 2], port).into()));
        drop(cold);
    }
}

/// A cold start would get another port from the kernel.
#[test]
fn http_does_not_get_the_port_that_clients_have_by_p_0() {
    let daemon = Daemon::start(&["-l", "127.0.0.1", "-p", "0"]);
    let address = daemon.server.address().to_string();
    let answer = daemon.reload(&["-l", "127.0.0.1", "-p", "0", "--http", &address]);
    assert!(answer.starts_with("ERROR refused: Couldn't bind to 127.0.0.1:"), "{answer:?}");
    assert!(answer.ends_with("for HTTP: clients have that address (-l, -p)"), "{answer:?}");
    daemon.server.connect().settle();
}

#[test]
fn ipv4_and_ipv6_are_served_on_however_the_sockets_share_them() {
    if !has_ipv6() {
        skip("no IPv6 here");
        return;
    }
    let port = quiet_port();
    let port_text = port.to_string();
    let daemon = Daemon::start(&["-l", "::,0.0.0.0", "-p", &port_text]);
    let addresses: [SocketAddr; 2] =
        [([127, 0, 0, 1], port).into(), ([0, 0, 0, 0, 0, 0, 0, 1], port).into()];
    let connecting = addresses.map(ConnectingLoop::start);
    for list in ["::", "0.0.0.0,::1", "::", "127.0.0.1,::1", "0.0.0.0,::1", "::,0.0.0.0"] {
        let answer = daemon.reload(&["-l", list, "-p", &port_text]);
        assert!(answer.starts_with("OK restarted"), "{list}: {answer:?}");
        addresses.iter().for_each(|&address| Client::connect(address).settle());
    }
    connecting.into_iter().for_each(|connecting| assert!(connecting.stop() > 0));
}

/// The kernel prefers it to a wildcard: closing it would reset the newest clients.
#[test]
fn a_socket_whose_address_is_served_still_is_not_closed() {
    let daemon = Daemon::start(&["-l", "127.0.0.1,127.0.0.2", "-p", "0"]);
    let port = daemon.server.address().port().to_string();
    let answer = daemon.reload(&["-l", "0.0.0.0", "-p", &port]);
    assert!(answer.starts_with("OK restarted"), "{answer:?}");
    assert_eq!(daemon.server.log.count("no longer listening"), 0);
    let answer = daemon.reload(&["-l", "127.0.0.1", "-p", &port]);
    assert!(answer.starts_with("OK restarted"), "{answer:?}");
    daemon.server.log.wait_for("no longer listening on 127.0.0.2:");
    daemon.server.log.wait_for("no longer listening on 0.0.0.0:");
    assert_eq!(daemon.server.log.count("no longer listening"), 2);
    daemon.server.connect().settle();
}

/// SO_REUSEPORT, which lets a reload bind beside existing sockets, is off after every
/// reload: otherwise two daemons could share a port.
#[test]
fn no_other_daemon_gets_a_part_of_the_port() {
    let daemon = Daemon::start(&["-l", "0.0.0.0", "-p", "0"]);
    let port = daemon.server.address().port().to_string();
    // Refused: only the first could be bound beside it.
    let answer = daemon.reload(&["-l", "127.0.0.1,192.0.2.1", "-p", &port]);
    assert!(answer.starts_with("ERROR refused"), "{answer:?}");
    let answer = daemon.reload(&["-l", "127.0.0.1", "-p", &port]);
    assert!(answer.starts_with("OK restarted"), "{answer:?}");
    let other = Daemon::start(&["-l", "127.0.0.2", "-p", &port]);
    let answer = other.reload(&["-l", "0.0.0.0", "-p", &port]);
    assert!(answer.starts_with("ERROR refused: Couldn't bind to 0.0.0.0:"), "{answer:?}");
    // The old socket too, after a reload that was refused.
    let answer = daemon.reload(&["-l", "0.0.0.0,192.0.2.1", "-p", &port]);
    assert!(answer.starts_with("ERROR refused"), "{answer:?}");
    let answer = other.reload(&["-l", "0.0.0.0", "-p", &port]);
    assert!(answer.starts_with("ERROR refused: Couldn't bind to 0.0.0.0:"), "{answer:?}");
}

fn mode_and_group(path: &Path) -> (u32, u32) {
    let meta = std::fs::metadata(path).expect("the socket's file");
    (meta.permissions().mode() & 0o7777, meta.gid())
}

#[test]
fn unix_sockets_that_can_not_be_opened_refuse_a_reload() {
    let daemon = Daemon::start(&["-l", "127.0.0.1", "-p", "0"]);
    let port = daemon.server.address().port().to_string();
    let before = Surroundings::of(daemon.server.pid());
    let nowhere = daemon.text("missing/x.sock");
    let long = daemon.text(&"x".repeat(120));
    let file = daemon.text("file");
    daemon.place.touch("file");
    let theirs = daemon.text("theirs.sock");
    let _theirs = UnixListener::bind(&theirs).expect("bind");
    let fine = daemon.text("fine.sock");
    let control = daemon.text("control.sock");
    let unix_and_port = ["-l", "127.0.0.1,127.0.0.2", "-p", &port];
    for bad in [
        ["--listen-unix", &nowhere, "--control", &control],
        ["--listen-unix", &long, "--control", &control],
        ["--listen-unix", &file, "--control", &control],
        ["--listen-unix", &theirs, "--control", &control],
        ["--listen-unix", &fine, "--control", &nowhere],
        ["--listen-unix", &fine, "--control", &long],
        ["--listen-unix", &fine, "--control", &file],
        ["--listen-unix", &fine, "--control", &theirs],
        ["--listen-unix", &fine, "--control-group", "no-such-group"],
    ] {
        // A second --control overrides the first.
        let answer = daemon.reload(&[&unix_and_port[..], &bad].concat());
        assert!(answer.starts_with("ERROR refused: C"), "{bad:?}: {answer:?}");
        // Nothing that could be opened remains.
        assert!(!Path::new(&fine).exists(), "{bad:?}");
        assert!(!is_served(([127, 0, 0, 2], daemon.server.address().port()).into()));
        // A cold start says the same.
        let cold = [&["-l", "127.0.0.1", "-p", "0"], &bad[..]].concat();
        let mut cold = daemon_command(&cold);
        if bad.contains(&control.as_str()) || bad.contains(&"--control-group") {
            cold.args(["--control", &daemon.text("another.sock")]);
        }
        let status = if bad.contains(&long.as_str()) { 78 } else { 1 };
        assert_eq!(finish(&mut cold).code, Some(status), "{bad:?}");
        assert!(!Path::new(&fine).exists(), "{bad:?}");
    }
    assert_eq!(mode_and_group(Path::new(&control)).0, 0o600);
    let quiet = || (Surroundings::of(daemon.server.pid()) == before).then_some(());
    wait_until("all is as before", quiet);
}

/// The second would replace the first one's file, and clients would find nobody.
#[test]
fn clients_and_operators_need_a_path_each() {
    let daemon = Daemon::start(&["-l", "127.0.0.1", "-p", "0"]);
    let control = daemon.text("control.sock");
    let answer = daemon.reload(&["-l", "127.0.0.1", "-p", "0", "--listen-unix", &control]);
    assert!(answer.starts_with("ERROR refused: "), "{answer:?}");
    assert!(answer.contains("--listen-unix"), "{answer:?}");
    // Written in another way, it still is the operators' socket.
    let again = daemon.text("./control.sock");
    let answer = daemon.reload(&["-l", "127.0.0.1", "-p", "0", "--listen-unix", &again]);
    assert!(answer.starts_with("ERROR refused: "), "{answer:?}");
    let [one, other] = ["one.sock", "./one.sock"].map(|name| daemon.text(name));
    for second in [&one, &other] {
        let paths = ["--listen-unix", &one, "--control", second];
        let tcp = ["-l", "127.0.0.1", "-p", "0"];
        let cold = finish(&mut daemon_command(&[&tcp[..], &paths].concat()));
        assert_eq!(cold.code, Some(78), "{second}");
        let answer = daemon.reload(&[&tcp[..], &paths].concat());
        assert!(answer.starts_with("ERROR refused: "), "{second}: {answer:?}");
        assert!(!Path::new(&one).exists(), "{second}");
    }
    assert!(daemon.ask("HELP").starts_with("RESTART"));
}

/// Asked, the new binary is fine; executed, it is not.
#[test]
fn a_hot_restart_that_fails_late_leaves_no_new_socket() {
    let daemon = Daemon::start(&["-l", "127.0.0.1", "-p", "0"]);
    let port = daemon.server.address().port();
    let group = if mode_and_group(daemon.place.directory()).1 == 0 { "0" } else { "" };
    daemon.place.install_script("chmod a-x $0; exec $REAL \"$@\"");
    let fine = daemon.text("fine.sock");
    let mut arguments =
        vec!["-l", "0.0.0.0", "-p", "0", "--listen-unix", &fine, "--control-group", group];
    if group.is_empty() {
        arguments.truncate(6);
    }
    let answer = daemon.reload(&arguments);
    assert!(answer.contains("can't be executed"), "{answer:?}");
    assert!(!Path::new(&fine).exists());
    assert!(!is_served(([127, 0, 0, 2], port).into()));
    assert_eq!(mode_and_group(&daemon.place.path("control.sock")).0, 0o600);
    daemon.server.connect().settle();
}

#[test]
fn a_file_that_vanished_or_was_replaced_is_made_again() {
    let place = Place::with_daemon();
    let paths = ["clients.sock", "control.sock"].map(|name| place.path(name));
    let texts = paths.each_ref().map(|path| path.display().to_string());
    let server = place.start(&["--listen-unix", &texts[0], "--control", &texts[1]]);
    let mut early = UnixStream::connect(&paths[0]).expect("connect");
    server.settle();
    let is_ours = |path: &PathBuf| UnixStream::connect(path).is_ok();
    for replaced in [false, true] {
        for path in &paths {
            std::fs::remove_file(path).expect("remove");
            if replaced {
                // A stale file: no process listens there.
                leave_stale_socket(path);
            }
        }
        assert!(!paths.iter().any(is_ours));
        // With the same options.
        restart(&server);
        assert!(paths.iter().all(is_ours));
        assert!(ask(&paths[1], "UNDRAIN").starts_with("OK listening on 127.0.0.1:"));
        assert_eq!(paths.each_ref().map(|path| mode_and_group(path).0), [0o660, 0o600]);
    }
    // Another process's socket must not be replaced.
    std::fs::remove_file(&paths[0]).expect("remove");
    let _theirs = UnixListener::bind(&paths[0]).expect("bind");
    assert!(refused_restart(&server).contains("Couldn't listen on"));
    // Clients from before the files vanished are served.
    early.write_all(b"STATS UPTIME\n").expect("send");
    let mut answer = String::new();
    BufReader::new(early).read_line(&mut answer).expect("an answer");
    assert!(answer.starts_with("uptime: "), "{answer:?}");
}

#[test]
fn a_closed_unix_socket_leaves_no_file() {
    let daemon = Daemon::start(&["-l", "127.0.0.1", "-p", "0"]);
    let port = daemon.server.address().port().to_string();
    let path = daemon.text("clients.sock");
    let tcp = ["-l", "127.0.0.1", "-p", &port];
    for _ in 0..2 {
        let answer = daemon.reload(&[&tcp[..], &["--listen-unix", &path]].concat());
        assert!(answer.starts_with("OK restarted"), "{answer:?}");
        UnixStream::connect(&path).expect("it listens");
        let answer = daemon.reload(&tcp);
        assert!(answer.starts_with("OK restarted"), "{answer:?}");
        assert!(!Path::new(&path).exists());
    }
}

#[test]
fn unix_sockets_can_change_places() {
    let daemon = Daemon::start(&["-l", "127.0.0.1", "-p", "0"]);
    let port = daemon.server.address().port().to_string();
    let [one, other] = ["control.sock", "other.sock"].map(|name| daemon.text(name));
    let options =
        ["-l", "127.0.0.1", "-p", &port, "--listen-unix", &other, "--listen-unix-mode", "666"];
    assert!(daemon.reload(&options).starts_with("OK restarted"));
    let options = ["-l", "127.0.0.1", "-p", &port, "--listen-unix", &one, "--control", &other];
    assert!(daemon.reload(&options).starts_with("OK restarted"));
    assert!(ask(Path::new(&other), "UNDRAIN").starts_with("OK listening on "));
    assert!(ask(Path::new(&one), "STATS UPTIME").starts_with("uptime: "));
    let modes = [&other, &one].map(|path| mode_and_group(Path::new(path)).0);
    assert_eq!(modes, [0o600, 0o660]);
}

/// Fills a listener's queue, so that a blocking connect would wait forever.
fn full_queue(path: &str) -> (UnixListener, Vec<OwnedFd>) {
    let listener = UnixListener::bind(path).expect("bind");
    rustix::net::listen(&listener, 0).expect("listen");
    let address = SocketAddrUnix::new(path).expect("an address");
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let mut waiting = Vec::new();
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.expect("a socket");
        if connect(&socket, &address).is_err() {
            return (listener, waiting);
        }
        waiting.push(socket);
    }
}

#[test]
fn an_owner_that_does_not_accept_is_an_owner() {
    let daemon = Daemon::start(&["-l", "127.0.0.1", "-p", "0"]);
    let port = daemon.server.address().port().to_string();
    let path = daemon.text("theirs.sock");
    let _theirs = full_queue(&path);
    let answer = daemon.reload(&["-l", "127.0.0.1", "-p", &port, "--listen-unix", &path]);
    assert!(answer.starts_with("ERROR refused: Couldn't listen on"), "{answer:?}");
    let cold = ["-l", "127.0.0.1", "-p", "0", "--listen-unix", &path];
    assert_eq!(finish(&mut daemon_command(&cold)).code, Some(1));
    daemon.server.connect().settle();
    assert!(Path::new(&path).exists());
}

/// Descriptors are reserved for operators, idle ones too, and for a hot restart.
#[test]
fn without_descriptors_for_clients_operators_are_served() {
    let place = Place::new();
    let (server, mut crowd) = full_daemon(&place);
    let control = place.path("control.sock");
    let idle: Vec<UnixStream> =
        (0..15).map(|_| UnixStream::connect(&control).expect("connect")).collect();
    for _ in 0..3 {
        let answer = ask(&control, "RESTART");
        assert!(answer.starts_with("OK restarted"), "{answer:?}");
    }
    drop(idle);
    crowd[0].settle();
    // Clients outside are served when there is room.
    for mut client in crowd {
        client.settle();
    }
    assert!(server.log.count("hot restart refused") == 0);
}

/// prlimit(1) counts at once, in both directions.
#[test]
fn a_limit_of_descriptors_that_is_changed_counts() {
    let place = Place::new();
    let control = place.path("control.sock");
    let path = control.display().to_string();
    let launcher = ["prlimit", "--nofile=200:200"];
    let arguments = ["-l", "127.0.0.1", "-p", "0", "--control", &path];
    let server = Server::spawn(&mut launched(&launcher, DAEMON, &arguments));
    let pid = Pid::from_raw(server.pid() as i32);
    let set = |current| {
        let limit = Rlimit { current: Some(current), maximum: Some(200) };
        prlimit(pid, Resource::Nofile, limit).expect("prlimit");
    };
    set(64);
    let mut crowd: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    server.log.wait_for("out of descriptors");
    // Once enough have left, the reserve is free again.
    crowd.drain(..crowd.len() / 2);
    let mut answer = String::new();
    let is_restarted = eventually(|| {
        answer = ask(&control, "RESTART");
        answer.starts_with("OK restarted")
    });
    assert!(is_restarted, "{answer:?}");
    set(64);
    crowd.extend((0..50).map(|_| server.connect()));
    server.log.wait_for_count("out of descriptors", 2);
    set(200);
    for mut client in crowd {
        client.settle();
    }
}
