//! What the daemon listens on: a cold start, a reload and UNDRAIN agree, and each opens
//! all wanted listeners or changes nothing.

use crate::support::http;
use crate::support::operated::Operated;
use crate::support::status::NO_ADDRESS;
use crate::support::{Client, PATIENCE, daemon_command, eventually, finish};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with, sockopt,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

impl Operated {
    fn text(&self, name: &str) -> String {
        self.place.path(name).display().to_string()
    }

    /// Reloads with `arguments` added to `--control`.
    fn reload_to(&self, arguments: &[&str]) -> String {
        self.operator().restart(&[&["--control", &self.path()], arguments].concat())
    }
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

/// Whether no process listens there. Binds but does not listen: a child that another test
/// starts may briefly hold a copy of the socket.
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

/// A cold start would get another port from the kernel.
#[test]
fn http_is_refused_the_port_that_clients_got_from_port_0() {
    let daemon = Operated::start();
    let address = daemon.server.address().to_string();
    let answer = daemon.reload_to(&["-l", "127.0.0.1", "-p", "0", "--http", &address]);
    assert!(answer.starts_with("ERROR refused: Couldn't bind to 127.0.0.1:"), "{answer:?}");
    assert!(answer.ends_with("for HTTP: clients have that address (-l, -p)"), "{answer:?}");
    daemon.server.connect().settle();
}

/// Whoever waits in its queue has connected for the purpose that it had.
#[test]
fn an_open_address_gets_no_other_purpose() {
    let clients = |ip: &str, port: u16| format!("-l {ip} -p {port}");
    let http = |ip: &str, port: u16| format!("--http {ip}:{port}");
    let [p, q, r] = [(); 3].map(|()| quiet_port());
    let any_and_one =
        [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("127.0.0.1", "127.0.0.1")];
    let mut changes = Vec::new();
    for (ip, other) in any_and_one {
        changes.extend([
            (clients(ip, p), format!("{} {}", http(other, p), clients(ip, q))),
            (format!("{} {}", http(ip, p), clients(ip, q)), clients(other, p)),
            // Both at once.
            (
                format!("{} {}", clients(ip, p), http(ip, q)),
                format!("{} {}", clients(other, q), http(other, p)),
            ),
        ]);
    }
    if has_ipv6() {
        changes.extend([
            (clients("::", p), format!("{} {}", http("127.0.0.1", p), clients("::", q))),
            (format!("{} {}", http("127.0.0.1", p), clients("::", q)), clients("::", p)),
            (format!("{} {}", http("[::]", p), clients("::", q)), clients("127.0.0.1,::1", p)),
        ]);
    }
    for (before, after) in changes {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let reload = |daemon: &Operated, line: &str| {
            daemon.reload_to(&words(line).iter().map(String::as_str).collect::<Vec<_>>())
        };
        let daemon =
            Operated::start_at(&words(&before).iter().map(String::as_str).collect::<Vec<_>>());
        let port = daemon.server.address().port();
        let mut holder = Client::connect(([127, 0, 0, 1], port).into());
        holder.exchange("ACQ4ME k 1 1 0", "LOCKED");
        let answer = reload(&daemon, &after);
        let why =
            "that address is open for another purpose: that needs a restart, which loses the locks";
        let is_refused =
            answer.starts_with("ERROR refused: Couldn't bind to ") && answer.ends_with(why);
        assert!(is_refused, "{before} → {after}: {answer}");
        // It serves as before, and may go on so.
        for _ in 0..2 {
            holder.exchange("RELEASE", "RELEASED");
            holder.exchange("ACQ4ME k 1 1 0", "LOCKED");
            Client::connect(([127, 0, 0, 1], port).into()).settle();
            if before.contains("--http") {
                let http = if port == p { q } else { p };
                let (head, _) = http::get(([127, 0, 0, 1], http).into(), "/metrics");
                assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            }
            assert!(reload(&daemon, &before).starts_with("OK restarted"), "{before}");
        }
        // Nobody is in the queue of an address that is closed.
        let apart = reload(&daemon, &clients("127.0.0.1", r));
        assert!(apart.starts_with("OK restarted"), "{apart}");
        let answer = reload(&daemon, &after);
        assert!(answer.starts_with("OK restarted"), "{before} → {after}: {answer}");
        holder.exchange("RELEASE", "RELEASED");
    }
}

fn mode_and_group(path: &Path) -> (u32, u32) {
    let meta = std::fs::metadata(path).expect("the socket's file");
    (meta.permissions().mode() & 0o7777, meta.gid())
}

/// The new binary passes the trial, then fails to execute.
#[test]
fn a_hot_restart_that_fails_late_leaves_no_new_socket() {
    let daemon = Operated::start();
    let port = daemon.server.address().port();
    let group = if mode_and_group(daemon.place.directory()).1 == 0 { "0" } else { "" };
    daemon.place.install_script("chmod a-x $0; exec $REAL \"$@\"");
    let fine = daemon.text("fine.sock");
    let mut arguments =
        vec!["-l", "0.0.0.0", "-p", "0", "--control", &fine, "--control-group", group];
    if group.is_empty() {
        arguments.truncate(6);
    }
    let answer = daemon.operator().restart(&arguments);
    assert!(answer.contains("can't be executed"), "{answer:?}");
    assert!(!Path::new(&fine).exists());
    assert!(!is_served(([127, 0, 0, 2], port).into()));
    assert_eq!(mode_and_group(&daemon.place.path("control.sock")).0, 0o600);
    daemon.server.connect().settle();
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
fn a_socket_in_use_is_not_replaced_even_if_its_owner_does_not_accept() {
    let daemon = Operated::start();
    let path = daemon.text("theirs.sock");
    let _theirs = full_queue(&path);
    let moved = ["-l", "127.0.0.1", "-p", "0", "--control", &path];
    let answer = daemon.operator().restart(&moved);
    assert!(answer.starts_with("ERROR refused: Can't open the control socket"), "{answer:?}");
    assert_eq!(finish(&mut daemon_command(&moved)).code, Some(NO_ADDRESS));
    daemon.server.connect().settle();
    assert!(Path::new(&path).exists());
}

/// An operator who gives one option more may forget that all others go.
#[test]
fn a_restart_answers_what_it_has_closed() {
    let tcp = ["-l", "127.0.0.1", "-p", "0"];
    let other = ["-l", "127.0.0.2", "-p", "0"];
    let http = ["--http", "127.0.0.1:0"];
    let daemon = Operated::start_with(&http);
    let clients = daemon.server.address();
    let http_line = daemon.server.log.wait_for("HTTP on ");
    let http = http_line.split("HTTP on ").last().expect("an address").trim();
    let version = env!("CARGO_PKG_VERSION");
    let restarted = |closed: &str| format!("OK restarted, poolcounterd {version}{closed}");
    assert_eq!(daemon.reload_to(&tcp), restarted(&format!("; closed: HTTP on {http}")));
    assert_eq!(daemon.reload_to(&tcp), restarted(""));
    assert_eq!(daemon.reload_to(&other), restarted(&format!("; closed: {clients}")));
    daemon.server.log.wait_for(&format!("hot restart; closed: {clients}"));
    let (before, after) = (daemon.path(), daemon.text("other.sock"));
    let answer = daemon.operator().restart(&[&other[..], &["--control", &after]].concat());
    assert_eq!(answer, restarted(&format!("; closed: control socket {before}")));
}

/// Without it nobody can reload the daemon, or end its drain.
#[test]
fn a_restart_closes_the_control_socket_only_if_told_to() {
    let daemon = Operated::start();
    let path = daemon.path();
    let why = format!(
        "ERROR refused: without --control, the socket {path} would close: \
         add --control={path}, or --control=none to close it"
    );
    for arguments in
        [r#"["-l","127.0.0.1","-p","0","--slow","5"]"#, r#"["-p","0","--control-group","0"]"#, "[]"]
    {
        assert_eq!(daemon.ask(&format!("RESTART {arguments}")), why, "{arguments}");
    }
    daemon.server.connect().settle();
    let answer = daemon.ask(r#"RESTART ["-l","127.0.0.1","-p","0","--control=none"]"#);
    assert!(answer.ends_with(&format!("; closed: control socket {path}")), "{answer}");
    daemon.server.connect().settle();
    assert!(UnixStream::connect(&path).is_err());
}

/// prlimit(1) takes effect at once, in both directions.
#[test]
fn a_changed_descriptor_limit_takes_effect() {
    let daemon = Operated::launched(&["prlimit", "--nofile=200:200"]);
    let server = &daemon.server;
    let pid = Pid::from_raw(server.pid() as i32);
    let set = |current| {
        let limit = Rlimit { current: Some(current), maximum: Some(200) };
        prlimit(pid, Resource::Nofile, limit).expect("prlimit");
    };
    set(64);
    let mut crowd: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    server.log.wait_for("out of descriptors");
    // Once enough clients have left, the reserve is free again.
    crowd.drain(..crowd.len() / 2);
    let mut answer = String::new();
    let is_restarted = eventually(|| {
        answer = daemon.ask("RESTART");
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
