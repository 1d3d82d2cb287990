//! Drain (docs/restart.md): no new clients, and exit when the last has left.

use crate::support::restart::{Place, WENT_ON, restart, wait_until};
use crate::support::{
    Client, DAEMON, PATIENCE, Server, backlog, backlog_granted, daemon_command, eventually,
    launched,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

/// The exit status of a daemon that was drained.
const DRAINED: i32 = 75;

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
    let before = server.log.count("no longer draining");
    server.signal(Signal::USR2);
    server.log.wait_for_count("no longer draining", before + 1);
}

/// Asks at a control socket.
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
fn newcomers_are_refused_and_clients_are_served_to_their_end() {
    let mut server = Server::start_apart(&[]);
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
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
}

#[test]
fn clients_in_the_backlog_are_served() {
    let mut server = Server::start_apart(&[]);
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
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
}

#[test]
fn a_daemon_without_clients_ends_at_once() {
    for signal in [Signal::USR2, Signal::QUIT] {
        let mut server = Server::start_apart(&[]);
        server.signal(signal);
        assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
    }
}

/// As a service manager sends it to stop the daemon, which may be draining already.
#[test]
fn sigquit_drains_and_goes_on_draining() {
    let mut server = Server::start_apart(&[]);
    let mut holder = server.connect();
    holder.exchange("ACQ4ME k 1 9 60", "LOCKED");
    server.signal(Signal::QUIT);
    server.log.wait_for("draining: no new clients");
    server.signal(Signal::QUIT);
    restart(&server);
    server.signal(Signal::QUIT);
    holder.settle();
    expect_refused(server.address());
    assert_eq!(server.log.count("no longer draining"), 0);
    holder.exchange("RELEASE", "RELEASED");
    drop(holder);
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
}

#[test]
fn who_waits_for_the_end_of_a_drain_hears_it() {
    let place = Place::new();
    let path = place.path("c");
    let mut server = Server::start_apart(&["--control", &text(&path)]);
    assert_eq!(ask(&path, "DRAINED\n"), "ERROR not draining\n");
    let client = server.connect();
    server.settle();
    let mut waiting = Waiting::begin(&path);
    assert_eq!(ask(&path, "UNDRAIN\n").split(' ').next(), Some("OK"));
    assert_eq!(waiting.hear(), "ERROR not draining\n");
    waiting = Waiting::begin(&path);
    restart(&server);
    assert_eq!(waiting.hear(), "ERROR a hot restart came first; ask again\n");
    assert_eq!(waiting.hear(), "");
    waiting = Waiting::begin(&path);
    drop(client);
    assert_eq!(waiting.hear(), "OK drained\n");
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
}

/// The control socket has few places.
#[test]
fn who_no_longer_waits_for_the_end_of_a_drain_keeps_no_place() {
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

/// One that asks without end, and reads nothing, must not fill the daemon's memory.
#[test]
fn a_connection_waits_for_the_end_of_a_drain_once() {
    let place = Place::new();
    let path = place.path("c");
    let server = Server::start_apart(&["--control", &text(&path)]);
    let mut client = server.connect();
    client.settle();
    let mut waiting = Waiting::begin(&path);
    waiting.0.get_mut().write_all(b"DRAINED\n").expect("send");
    let refused = waiting.hear();
    assert_eq!(refused, "ERROR this connection already waits for the end of the drain\n");
    drop(client);
    assert_eq!(waiting.hear(), "OK drained\n");
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
        let draining = waiting.hear();
        assert!(draining.starts_with("OK draining, "), "{draining}");
        waiting
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line, or the end");
        line
    }
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

/// This process holds the socket too, as systemd does.
#[test]
fn an_inherited_socket_is_closed_and_works_for_its_next_owner() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let theirs = OwnedFd::from(listener.try_clone().expect("dup"));
    let mut server = Server::spawn(daemon_command(&[]).stdin(theirs));
    let mut client = Client::connect(address);
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    drain(&server);
    server.log.wait_for("still holds it: newcomers wait there until this daemon ends");
    // As much fits in as before.
    assert_eq!(backlog(address), backlog_granted(4096));
    let mut newcomer = Client::connect(address);
    newcomer.send("ACQ4ME k 1 1 0");
    // It can't be reopened, and is not half open either.
    server.signal(Signal::USR2);
    server.log.wait_for("still draining: ");
    restart(&server);
    server.signal(Signal::USR2);
    let why = server.log.wait_for_count("still draining: ", 2);
    assert!(why.contains(&format!("{address} was passed by systemd or as standard")), "{why}");
    client.exchange("RELEASE", "RELEASED");
    newcomer.expect_nothing();
    drop(client);
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
    let next = Server::spawn(daemon_command(&[]).stdin(OwnedFd::from(listener)));
    newcomer.expect("LOCKED");
    assert_eq!(next.address(), address);
}

#[test]
fn an_inherited_socket_that_nobody_else_holds_refuses_newcomers() {
    let place = Place::new();
    let path = place.path("clients.sock");
    let server = server_with_two_of_a_launcher(&path);
    let _client = server.connect();
    server.settle();
    drain(&server);
    server.log.wait_for_count("newcomers are refused", 2);
    expect_refused(server.address());
    let error = UnixStream::connect(&path).expect_err("is refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    // The file is not ours.
    assert!(path.exists());
}

#[test]
fn a_drain_survives_a_restart() {
    let mut server = Server::start_apart(&[]);
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
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
}

#[test]
fn a_unix_socket_is_shut_and_opened_again() {
    let place = Place::new();
    let path = place.path("clients.sock");
    let path_text = path.display().to_string();
    let server = Server::start_apart(&["--listen-unix", &path_text]);
    let mut client = server.connect();
    client.settle();
    for is_restarted in [false, true] {
        UnixStream::connect(&path).expect("it listens");
        drain(&server);
        if is_restarted {
            restart(&server);
        }
        let error = UnixStream::connect(&path).expect_err("is refused");
        assert_eq!(error.kind(), ErrorKind::NotFound);
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

/// Perl makes the sockets and becomes the daemon. Sockets of this process would not do: a
/// child that another test starts at the same time has a copy of them until it executes
/// its program.
fn server_with_two_of_a_launcher(path: &Path) -> Server {
    // They become descriptors 3 and 4, the first two that are free.
    let script = "use Socket; $^F = 4; \
        socket(TCP, PF_INET, SOCK_STREAM, 0) && bind(TCP, sockaddr_in(0, INADDR_LOOPBACK)) \
            && listen(TCP, 9) or die $!; \
        socket(UNIX, PF_UNIX, SOCK_STREAM, 0) && bind(UNIX, sockaddr_un(shift)) \
            && listen(UNIX, 9) or die $!; \
        ($ENV{LISTEN_PID}, $ENV{LISTEN_FDS}) = ($$, 2); exec @ARGV or die $!";
    Server::spawn(&mut launched(&["perl", "-e", script, &text(path)], DAEMON, &[]))
}

/// The two descriptors are the daemon's and, for a moment, those of children that other
/// tests start.
fn server_with_two_of_systemd(tcp: TcpListener, unix: UnixListener) -> Server {
    let shell = "exec 3<&0 4>&1 0</dev/null 1>/dev/null; \
                 LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"";
    let mut command = launched(&["sh", "-c", shell, "sh"], DAEMON, &[]);
    Server::spawn(command.stdin(OwnedFd::from(tcp)).stdout(OwnedFd::from(unix)))
}

#[test]
fn an_inherited_unix_socket_is_held_elsewhere_and_that_is_said() {
    let place = Place::new();
    let path = place.path("clients.sock");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("bind");
    let unix = UnixListener::bind(&path).expect("bind");
    let theirs = unix.try_clone().expect("dup");
    let server = server_with_two_of_systemd(tcp, theirs);
    let _client = server.connect();
    server.settle();
    drain(&server);
    server.log.wait_for(&format!("unix:{} is closed here, but another process", path.display()));
    UnixStream::connect(&path).expect("waits");
    drop(unix);
}

#[test]
fn how_many_are_left_is_logged_now_and_then() {
    let server = Server::start_apart(&[]);
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(Client::settle);
    let before = server.descriptors();
    clients.pop();
    assert!(eventually(|| server.descriptors() < before));
    let begin = Instant::now();
    drain(&server);
    let line = server.log.wait_for("draining: connections left");
    assert!(line.contains("draining: connections left: 2"), "{line:?}");
    // After ten seconds, though no client stirred.
    assert!(begin.elapsed().as_secs() >= 9);
}

#[test]
fn told_to_stop_it_does_not_wait_for_the_last() {
    let mut server = Server::start_apart(&[]);
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
    let mut server = Server::start_apart(&["--control", &path_text]);
    let mut client = server.connect();
    client.settle();
    wait_until("the control socket is there", || path.exists().then_some(()));
    let ask = |request: &str| ask(&path, request);
    // UNDRAIN without a drain: nothing happens, nothing is logged.
    assert_eq!(ask("UNDRAIN\n"), format!("OK listening on {}\n", server.address()));
    assert_eq!(ask("DRAIN\n"), "OK draining, connections left: 1\n");
    expect_refused(server.address());
    // Twice is once.
    assert_eq!(ask("DRAIN\n"), "OK draining, connections left: 1\n");
    assert_eq!(ask("UNDRAIN\n"), format!("OK listening on {}\n", server.address()));
    server.connect().settle();
    wait_until("that one has left", || {
        (ask("DRAIN\n") == "OK draining, connections left: 1\n").then_some(())
    });
    drop(client);
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
    server.log.wait_for("drained: the last client has left");
    assert_eq!(server.log.count("no longer draining"), 1);
    let [asked, began] = ["asks: DRAIN", "draining: no new clients"].map(|t| server.log.count(t));
    assert!(began < asked, "began to drain {began} times, asked {asked} times");
    assert!(!path.exists());
}

/// Another holder has shut it down: accept(2) always fails.
#[test]
fn a_socket_that_was_shut_does_not_keep_the_daemon_from_its_end() {
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

/// A daemon with few descriptors: some clients are served, many wait outside.
struct Full {
    server: Server,
    inside: Vec<Client>,
    outside: Vec<Client>,
}

impl Full {
    const CROWD: usize = 100;

    fn new() -> Full {
        let launcher = ["prlimit", "--nofile=64:64"];
        let arguments = ["-l", "127.0.0.1", "-p", "0"];
        let server = Server::spawn(&mut launched(&launcher, DAEMON, &arguments));
        let mut clients: Vec<Client> = (0..Self::CROWD).map(|_| server.connect()).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            client.send(&format!("ACQ4ME k{n} 1 1 0"));
        }
        server.log.wait_for("out of descriptors");
        let inside = clients[0].counter_after_locked("processing_workers") as usize;
        assert!(inside < Self::CROWD);
        let outside = clients.split_off(inside);
        clients[1..].iter_mut().for_each(|client| client.expect("LOCKED"));
        Full { server, inside: clients, outside }
    }

    /// As each leaves, the next is served; the daemon ends after the last.
    fn expect_all_served(mut self) {
        drop(self.inside);
        for mut client in self.outside {
            client.expect("LOCKED");
        }
        assert_eq!(self.server.wait_for_exit().code(), Some(DRAINED));
    }
}

impl Client {
    /// The answer to what was asked before is `LOCKED`.
    fn counter_after_locked(&mut self, name: &str) -> u64 {
        self.expect("LOCKED");
        self.counter(name)
    }
}

#[test]
fn out_of_descriptors_the_backlog_is_served_still() {
    let full = Full::new();
    drain(&full.server);
    // And grows no more.
    assert_eq!(backlog(full.server.address()), 0);
    full.expect_all_served();
}

#[test]
fn a_drain_that_still_accepts_survives_a_restart() {
    let full = Full::new();
    drain(&full.server);
    restart(&full.server);
    restart(&full.server);
    full.expect_all_served();
}

#[test]
fn a_drain_that_still_accepts_can_be_called_off() {
    for restarts in 0..2 {
        let mut full = Full::new();
        drain(&full.server);
        (0..restarts).for_each(|_| drop(restart(&full.server)));
        undrain(&full.server);
        full.inside.clear();
        full.outside.drain(..).for_each(|mut client| client.expect("LOCKED"));
        full.server.connect().exchange("ACQ4ME new 1 1 0", "LOCKED");
        assert_eq!(backlog(full.server.address()), backlog_granted(4096));
        assert!(full.server.is_running());
    }
}

/// By then, the file at the path is another daemon's.
#[test]
fn a_successor_keeps_its_unix_sockets() {
    let place = Place::new();
    let [clients, control] = ["clients.sock", "control.sock"].map(|name| place.path(name));
    let options =
        ["--listen-unix", &text(&clients), "--control", &text(&control)].map(str::to_owned);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut server = Server::start_with(&options);
    let client = server.connect();
    server.settle();
    drain(&server);
    // It asks the operator for this: the control socket stays open.
    std::fs::remove_file(&control).expect("the control socket's file");
    let _successor = Server::start_with(&options);
    drop(client);
    assert_eq!(server.wait_for_exit().code(), Some(DRAINED));
    UnixStream::connect(&clients).expect("the successor's");
    assert!(ask(&control, "UNDRAIN\n").starts_with("OK "));
}

#[test]
fn a_free_port_is_had_again() {
    let server = Server::spawn(&mut daemon_command(&["-l", "127.0.0.1,127.0.0.2", "-p", "0"]));
    let mut client = server.connect();
    client.settle();
    for is_restarted in [false, true] {
        drain(&server);
        if is_restarted {
            restart(&server);
        }
        undrain(&server);
        for &address in server.addresses() {
            Client::connect(address).settle();
        }
    }
}

#[test]
fn after_a_reload_meanwhile_the_new_addresses_are_opened() {
    let place = Place::with_daemon();
    let [old, new, control] = ["old.sock", "new.sock", "c.sock"].map(|name| place.path(name));
    let server = place.start(&["--listen-unix", &text(&old), "--control", &text(&control)]);
    let mut client = server.connect();
    client.settle();
    assert!(ask(&control, "DRAIN\n").starts_with("OK "));
    let port = server.address().port().to_string();
    let arguments = serde_json::json!([
        "-l",
        "127.0.0.2",
        "-p",
        port,
        "--listen-unix",
        text(&new),
        "--control",
        text(&control)
    ]);
    assert!(ask(&control, &format!("RESTART {arguments}\n")).starts_with("OK restarted"));
    // It drains on.
    assert!(!new.exists() && !old.exists());
    expect_refused(server.address());
    let address = SocketAddr::from(([127, 0, 0, 2], server.address().port()));
    let expected = format!("OK listening on {address}, unix:{}\n", text(&new));
    assert_eq!(ask(&control, "UNDRAIN\n"), expected);
    Client::connect(address).settle();
    UnixStream::connect(&new).expect("the new one");
    expect_refused(server.address());
    assert!(!old.exists());
    client.settle();
}

#[test]
fn listeners_that_can_not_be_reopened_are_named_and_the_drain_continues() {
    let place = Place::new();
    let [clients, control] = ["clients.sock", "control.sock"].map(|name| place.path(name));
    let options = ["--listen-unix", &text(&clients), "--control", &text(&control)];
    let arguments = [&["-l", "127.0.0.1,127.0.0.2,127.0.0.3", "-p", "0"], &options[..]].concat();
    let server = Server::spawn(&mut daemon_command(&arguments));
    let mut client = server.connect();
    client.settle();
    drain(&server);
    let taken: Vec<TcpListener> = server.addresses()[1..]
        .iter()
        .map(|address| TcpListener::bind(address).expect("it is free"))
        .collect();
    let their_unix = UnixListener::bind(&clients).expect("it is free");
    let answer = ask(&control, "UNDRAIN\n");
    assert!(answer.starts_with("ERROR "), "{answer:?}");
    for name in server.addresses()[1..].iter().map(SocketAddr::to_string).chain([text(&clients)]) {
        assert!(answer.contains(&name), "{name}: {answer:?}");
    }
    // All or nothing.
    expect_refused(server.address());
    assert!(ask(&control, "DRAIN\n").starts_with("OK draining, connections left: 1"));
    restart(&server);
    assert_eq!(server.log.count(WENT_ON), 1);
    client.settle();
    drop((taken, their_unix));
    // A child that another test starts may have a copy of them for a moment.
    let is_open = || ask(&control, "UNDRAIN\n").starts_with("OK listening on 127.0.0.1:");
    assert!(eventually(is_open), "{:?}", ask(&control, "UNDRAIN\n"));
    server.addresses().iter().for_each(|&address| Client::connect(address).settle());
    UnixStream::connect(&clients).expect("it listens again");
}
