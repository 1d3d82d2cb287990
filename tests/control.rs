//! The control socket and `--reload` (docs/restart.md).

mod common;
#[path = "common/restart.rs"]
mod hot;

use common::{Client, Finished, PATIENCE, Server, daemon_command, finish};
use hot::{ConnectingLoop, Place, REFUSED, Surroundings, WENT_ON, wait_until};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};

/// A daemon with a control socket.
struct Daemon {
    place: Place,
    server: Server,
}

impl Daemon {
    fn start() -> Daemon {
        Daemon::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Daemon {
        let place = Place::with_daemon();
        let path = place.path("control.sock").display().to_string();
        let server = place.start(&[&["--control", &path], arguments].concat());
        Daemon { place, server }
    }

    fn path(&self) -> String {
        self.place.path("control.sock").display().to_string()
    }

    fn operator(&self) -> Operator {
        Operator::connect(&self.path())
    }

    /// `poolcounterd --reload` with more arguments.
    fn reload(&self, arguments: &[&str]) -> Finished {
        let path = self.path();
        let all = [&["--reload", "--control", &path], arguments].concat();
        finish(&mut daemon_command(&all))
    }

    /// Options that listen on `address` and the port that it has now.
    fn listening_on<'a>(&self, addresses: &'a str, port: &'a str) -> [&'a str; 4] {
        ["-l", addresses, "-p", port]
    }

    fn port(&self) -> String {
        self.server.address().port().to_string()
    }

    /// Nothing was restarted, and it serves.
    #[track_caller]
    fn serves_on(&self) {
        assert_eq!(self.server.log.count(WENT_ON), 0);
        self.server.connect().settle();
    }
}

struct Operator {
    stream: BufReader<UnixStream>,
}

impl Operator {
    fn connect(path: &str) -> Operator {
        let stream = UnixStream::connect(path).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Operator { stream: BufReader::new(stream) }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("send");
    }

    /// The next line; empty at the end of the connection.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("an answer");
        line.trim_end_matches('\n').to_owned()
    }

    fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\n").as_bytes());
        self.line()
    }

    fn has_ended(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(len) => len == 0,
            // Closed with something unread.
            Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn only_its_user_may_open_the_socket() {
    let daemon = Daemon::start();
    let meta = fs::metadata(daemon.path()).expect("the socket");
    assert_eq!(meta.mode() & 0o7777, 0o600);
}

#[test]
fn a_group_may_open_the_socket_where_it_is_told_so() {
    let (name, id) = some_group();
    for group in [&name, &id.to_string()] {
        let daemon = Daemon::start_with(&["--control-group", group]);
        let meta = fs::metadata(daemon.path()).expect("the socket");
        assert_eq!((meta.mode() & 0o7777, meta.gid()), (0o660, id));
    }
}

#[test]
fn a_group_that_is_none_ends_the_start() {
    let place = Place::new();
    let path = place.path("control.sock").display().to_string();
    let arguments =
        ["-l", "127.0.0.1", "-p", "0", "--control", &path, "--control-group", "no-such-group"];
    let finished = finish(&mut daemon_command(&arguments));
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("no group no-such-group"), "{:?}", finished.stderr);
}

#[test]
fn the_group_is_changed_by_a_reload() {
    let (name, id) = some_group();
    let daemon = Daemon::start();
    let port = daemon.port();
    let listen = daemon.listening_on("127.0.0.1", &port);
    let done = daemon.reload(&[&listen[..], &["--control-group", &name]].concat());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let meta = fs::metadata(daemon.path()).expect("the socket");
    assert_eq!((meta.mode() & 0o7777, meta.gid()), (0o660, id));
    assert_eq!(daemon.reload(&listen).code, Some(0));
    let meta = fs::metadata(daemon.path()).expect("the socket");
    assert_eq!(meta.mode() & 0o7777, 0o600);
}

/// A group that we may give a file to, which is not what it has anyway if
/// possible.
fn some_group() -> (String, u32) {
    if rustix::process::getuid().is_root() {
        return ("daemon".to_owned(), 1);
    }
    let id = rustix::process::getgid().as_raw();
    let groups = fs::read_to_string("/etc/group").expect("/etc/group");
    let mut entries = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = entries.find(|fields| fields[2] == id.to_string()).expect("our group");
    (entry[0].to_owned(), id)
}

#[test]
fn help_lists_the_requests() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    operator.send(b"HELP\n");
    let mut words = Vec::new();
    loop {
        match operator.line() {
            line if line.is_empty() => break,
            line => words.push(line.split(' ').next().expect("a word").to_owned()),
        }
    }
    assert_eq!(words, ["RESTART", "DRAIN", "UNDRAIN", "HELP"]);
}

#[test]
fn a_restart_is_answered_when_it_is_done() {
    let daemon = Daemon::start();
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    let mut operator = daemon.operator();
    let answer = operator.ask("RESTART");
    assert_eq!(answer, format!("OK restarted, poolcounterd {}", env!("CARGO_PKG_VERSION")));
    // It is the new image that answered.
    daemon.server.log.wait_for(WENT_ON);
    assert!(operator.has_ended());
    client.exchange("RELEASE", "RELEASED");
    // The socket is there for the next one.
    assert!(daemon.operator().ask("RESTART").starts_with("OK restarted"));
}

#[test]
fn a_restart_that_is_refused_is_answered_with_the_reason() {
    let daemon = Daemon::start();
    daemon.place.install_script("echo 'not today'; exit 1");
    let mut operator = daemon.operator();
    let answer = operator.ask("RESTART");
    let expected = "ERROR refused: the new binary can't go on from here: \
                    exit status: 1, it said \"not today\"";
    assert_eq!(answer, expected);
    daemon.server.log.wait_for(REFUSED);
    assert_eq!(daemon.server.log.count(REFUSED), 1);
    daemon.serves_on();
    // And the connection goes on.
    assert_eq!(operator.ask("RESTART"), expected);
}

#[test]
fn only_one_restart_at_a_time() {
    let daemon = Daemon::start();
    daemon.place.install_script(
        "case $1 in --read-snapshot)\n\
         echo begun > $HERE/begun; while [ ! -e $HERE/go ]; do sleep 0.01; done;;\n\
         esac\n\
         exec $REAL \"$@\"",
    );
    let [mut first, mut second] = [(); 2].map(|()| daemon.operator());
    first.send(b"RESTART\n");
    daemon.place.wait_for_file("begun");
    assert_eq!(second.ask("RESTART"), "ERROR a hot restart is under way already");
    daemon.place.touch("go");
    assert!(first.line().starts_with("OK restarted"));
    assert!(second.has_ended(), "the old image's other connections are closed");
}

#[test]
fn whoever_leaves_before_the_answer_does_no_harm() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    operator.send(b"RESTART\n");
    drop(operator);
    daemon.server.log.wait_for(WENT_ON);
    daemon.server.connect().settle();
    let mut operator = daemon.operator();
    operator.send(b"DRAIN\nUNDRAIN\n");
    drop(operator);
    daemon.server.log.wait_for("draining no more");
    daemon.server.connect().settle();
}

/// As `echo DRAIN | nc -UN` does, or socat.
#[test]
fn whoever_says_that_there_is_no_more_to_come_is_answered() {
    let daemon = Daemon::start();
    let _client = daemon.server.connect();
    daemon.server.settle();
    let asked = |requests: &[u8]| {
        let mut operator = daemon.operator();
        operator.send(requests);
        operator.stream.get_mut().shutdown(Shutdown::Write).expect("shutdown");
        let mut answers = String::new();
        operator.stream.read_to_string(&mut answers).expect("answers");
        answers
    };
    let answers = asked(b"DRAIN\nUNDRAIN\nnonsense\n");
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(lines.len(), 3, "{answers:?}");
    assert!(lines[0].starts_with("OK draining, "), "{answers:?}");
    assert!(lines[1].starts_with("OK listening on 127.0.0.1:"), "{answers:?}");
    assert!(lines[2].starts_with("ERROR "), "{answers:?}");
    assert!(asked(b"RESTART\n").starts_with("OK restarted"));
    daemon.place.install_script("exit 1");
    assert!(asked(b"RESTART\n").starts_with("ERROR refused"));
    // What is no line is no request.
    assert_eq!(asked(b"DRAIN"), "");
}

#[test]
fn nonsense_is_answered_with_an_error() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    for nonsense in ["", "help", "RESTART now", "RESTART {}", "DRAIN 5", "STATS FULL", "\u{7f}"] {
        let answer = operator.ask(nonsense);
        assert!(answer.starts_with("ERROR "), "{nonsense:?}: {answer:?}");
    }
    operator.send(b"\xff\0\x1b[31m\n");
    assert!(operator.line().starts_with("ERROR "));
    // It is root that sends it, but a log line stays one line of plain text.
    daemon.server.log.wait_for("[31m");
    let lines = daemon.server.log.lines();
    assert!(!lines.iter().any(|line| line.contains('\u{1b}')), "{lines:#?}");
    daemon.serves_on();
}

#[test]
fn a_request_in_pieces_and_two_at_once_are_read_like_others() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    operator.send(b"UNDR");
    assert!(daemon.operator().ask("UNDRAIN").starts_with("OK "));
    operator.send(b"AIN\r\nDRAIN now\nUNDRAIN\n");
    assert!(operator.line().starts_with("OK listening on "));
    assert!(operator.line().starts_with("ERROR "));
    assert!(operator.line().starts_with("OK listening on "));
}

#[test]
fn whoever_sends_without_end_is_cut_off() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    let chunk = [b'x'; 4096];
    // Until the daemon closes its end.
    let cut_off = (0..10_000).any(|_| operator.stream.get_mut().write_all(&chunk).is_err());
    assert!(cut_off);
    assert!(daemon.operator().ask("UNDRAIN").starts_with("OK "));
    daemon.serves_on();
}

#[test]
fn one_operator_too_many_is_told_so() {
    let daemon = Daemon::start();
    let mut operators: Vec<Operator> = Vec::new();
    for _ in 0..16 {
        let mut operator = daemon.operator();
        assert!(operator.ask("UNDRAIN").starts_with("OK "));
        operators.push(operator);
    }
    let mut one_more = daemon.operator();
    assert_eq!(one_more.line(), "ERROR too many control connections");
    assert!(one_more.has_ended());
    let refused = daemon.reload(&[]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("too many control connections"), "{:?}", refused.stderr);
    daemon.server.log.wait_for("connections to the control socket");
    operators.pop();
    wait_until("there is room again", || {
        let mut operator = daemon.operator();
        // It may be turned away before it has asked.
        let _ = operator.stream.get_mut().write_all(b"UNDRAIN\n");
        operator.line().starts_with("OK ").then_some(())
    });
}

#[test]
fn who_asked_for_what_is_logged() {
    let daemon = Daemon::start();
    daemon.operator().ask("UNDRAIN");
    let (uid, pid) = (rustix::process::getuid().as_raw(), std::process::id());
    daemon.server.log.wait_for(&format!("control socket: uid {uid}, pid {pid} asks: UNDRAIN"));
}

#[test]
fn a_socket_file_that_nobody_serves_is_replaced() {
    let place = Place::with_daemon();
    let path = place.path("control.sock");
    drop(UnixListener::bind(&path).expect("bind"));
    assert!(path.exists());
    let path = path.display().to_string();
    let mut server = place.start(&["--control", &path]);
    assert!(Operator::connect(&path).ask("UNDRAIN").starts_with("OK "));
    // Killed, it leaves its file behind.
    server.signal(Signal::KILL);
    server.wait_for_exit();
    let mut server = place.start(&["--control", &path]);
    assert!(Operator::connect(&path).ask("UNDRAIN").starts_with("OK "));
    // Told to stop, it does not.
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
    assert!(!place.path("control.sock").exists());
}

#[test]
fn a_socket_that_somebody_serves_is_left_alone() {
    let daemon = Daemon::start();
    let path = daemon.path();
    let second = ["-l", "127.0.0.1", "-p", "0", "--control", &path];
    let finished = finish(&mut daemon_command(&second));
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains(&path), "{:?}", finished.stderr);
    assert!(finished.stderr.contains("in use"), "{:?}", finished.stderr);
    assert!(daemon.operator().ask("UNDRAIN").starts_with("OK "));
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let place = Place::new();
    fs::write(place.path("precious"), "data").expect("write");
    let path = place.path("precious").display().to_string();
    let finished = finish(&mut daemon_command(&["-l", "127.0.0.1", "-p", "0", "--control", &path]));
    assert_eq!(finished.code, Some(1));
    assert_eq!(fs::read_to_string(&path).expect("still there"), "data");
}

#[test]
fn reload_succeeds_when_the_restart_is_done() {
    let daemon = Daemon::start();
    let done = daemon.reload(&[]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    assert!(done.stdout.starts_with("OK restarted, poolcounterd "), "{:?}", done.stdout);
    daemon.server.log.wait_for(WENT_ON);
    // It kept its options: the port, which is not the default one, and this socket.
    daemon.server.connect().settle();
    assert_eq!(daemon.reload(&[]).code, Some(0));
}

#[test]
fn reload_fails_when_the_restart_is_refused() {
    let daemon = Daemon::start();
    daemon.place.install_script("echo 'not today'; exit 1");
    let refused = daemon.reload(&[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert!(refused.stderr.contains("not today"), "{:?}", refused.stderr);
    daemon.serves_on();
}

#[test]
fn reload_fails_when_there_is_no_daemon() {
    let place = Place::new();
    let path = place.path("control.sock").display().to_string();
    let failed = finish(&mut daemon_command(&["--reload", "--control", &path]));
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains(&path), "{:?}", failed.stderr);
}

#[test]
fn reload_fails_when_the_daemon_ends_instead() {
    let daemon = Daemon::start();
    daemon.place.install_script("echo asked > $HERE/asked; exec sleep 600");
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| daemon.reload(&[]));
        daemon.place.wait_for_file("asked");
        daemon.server.signal(Signal::TERM);
        let failed = reload.join().expect("it ends");
        assert_eq!(failed.code, Some(1));
        assert!(failed.stderr.contains("ended without an answer"), "{:?}", failed.stderr);
    });
}

#[test]
fn options_that_are_no_good_are_refused() {
    let daemon = Daemon::start();
    let before = Surroundings::of(daemon.server.pid());
    let port = daemon.port();
    let taken = TcpListener::bind("127.0.0.2:0").expect("bind");
    let taken_port = taken.local_addr().expect("address").port().to_string();
    for (arguments, reason) in [
        (["-l", "nonsense", "-p", &port], "Address `nonsense` is not valid to listen on."),
        (["-l", "127.0.0.1,", "-p", &port], "is not valid to listen on."),
        // TEST-NET-1 (RFC 5737): nobody has it.
        (["-l", "192.0.2.1", "-p", &port], "Couldn't bind to 192.0.2.1:"),
        (["-l", "127.0.0.2", "-p", &taken_port], "Address already in use"),
    ] {
        let refused = daemon.reload(&arguments);
        assert_eq!(refused.code, Some(1), "{arguments:?}");
        assert!(refused.stderr.contains(reason), "{arguments:?}: {:?}", refused.stderr);
    }
    daemon.serves_on();
    let quiet = || (Surroundings::of(daemon.server.pid()) == before).then_some(());
    wait_until("all is as before", quiet);
}

#[test]
fn an_option_that_the_new_binary_does_not_know_is_refused() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    let answer = operator.ask(r#"RESTART ["--no-such-option"]"#);
    assert!(answer.starts_with("ERROR refused: "), "{answer:?}");
    assert!(answer.contains("--no-such-option"), "{answer:?}");
    // The client half of --reload notices by itself.
    let refused = daemon.reload(&["--no-such-option"]);
    assert_eq!(refused.code, Some(1));
    daemon.serves_on();
}

/// A new image that did something else than serve would end with every lock.
#[test]
fn options_that_are_not_for_serving_are_refused() {
    let daemon = Daemon::start();
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    let path = daemon.path();
    for option in ["--reload", "--check", "--help", "--version", "-V", "--read-snapshot"] {
        let request = format!("RESTART [\"{option}\", \"--control\", \"{path}\"]");
        let answer = daemon.operator().ask(&request);
        assert!(answer.starts_with("ERROR refused: "), "{option}: {answer:?}");
    }
    client.exchange("RELEASE", "RELEASED");
    daemon.serves_on();
}

#[test]
fn a_reload_changes_what_is_logged() {
    let daemon = Daemon::start();
    let port = daemon.port();
    let listen = daemon.listening_on("127.0.0.1", &port);
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME quiet 1 1 0", "LOCKED");
    assert_eq!(daemon.reload(&[&listen[..], &["--log", "debug"]].concat()).code, Some(0));
    client.exchange("ACQ4ME loud 1 1 0", "LOCKED");
    daemon.server.log.wait_for("ACQ4ME loud 1 1 0");
    assert_eq!(daemon.server.log.count("ACQ4ME quiet"), 0);
    // SIGUSR1 keeps the options of the day, not those of the start.
    hot::restart(&daemon.server);
    client.exchange("ACQ4ME after 1 1 0", "LOCKED");
    daemon.server.log.wait_for("ACQ4ME after 1 1 0");
    assert_eq!(daemon.reload(&listen).code, Some(0));
    client.exchange("ACQ4ME again 1 1 0", "LOCKED");
    daemon.server.settle();
    assert_eq!(daemon.server.log.count("ACQ4ME again"), 0);
}

#[test]
fn a_reload_changes_where_it_listens_and_refuses_no_connect() {
    let daemon = Daemon::start();
    let port = daemon.port();
    let address = daemon.server.address();
    let mut holder = daemon.server.connect();
    holder.exchange("ACQ4ME k 1 1 0", "LOCKED");
    let connecting = ConnectingLoop::start(address);
    let other = SocketAddr::from(([127, 0, 0, 9], address.port()));
    for _ in 0..3 {
        // All addresses: another one serves too.
        let done = daemon.reload(&daemon.listening_on("0.0.0.0", &port));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        Client::connect(other).exchange("ACQ4ME k 1 1 0", "QUEUE_FULL");
        // Back to one: the other refuses.
        let done = daemon.reload(&daemon.listening_on("127.0.0.1", &port));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let refused = TcpStream::connect(other).expect_err("nobody listens there");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
    let connects = connecting.stop();
    assert!(connects > 0);
    holder.exchange("RELEASE", "RELEASED");
    // Nobody else may share the port afterwards.
    let second = finish(&mut daemon_command(&daemon.listening_on("127.0.0.1", &port)));
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains("Couldn't bind to 127.0.0.1:"), "{:?}", second.stderr);
}

#[test]
fn a_reload_changes_the_port() {
    let daemon = Daemon::start();
    let old = daemon.server.address();
    let mut holder = daemon.server.connect();
    holder.exchange("ACQ4ME k 1 1 0", "LOCKED");
    // Free a moment ago; nobody else is likely to take it.
    let free = TcpListener::bind("127.0.0.1:0").expect("bind");
    let new = free.local_addr().expect("address");
    drop(free);
    let port = new.port().to_string();
    let done = daemon.reload(&daemon.listening_on("127.0.0.1", &port));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    Client::connect(new).exchange("ACQ4ME k 1 1 0", "QUEUE_FULL");
    let refused = TcpStream::connect(old).expect_err("nobody listens there");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    daemon.server.log.wait_for(&format!("no longer listening on {old}"));
    holder.exchange("RELEASE", "RELEASED");
}

#[test]
fn the_control_socket_can_move() {
    let daemon = Daemon::start();
    let port = daemon.port();
    let new = daemon.place.path("moved.sock");
    let request =
        serde_json::json!(["-l", "127.0.0.1", "-p", port, "--control", new.display().to_string()]);
    let answer = daemon.operator().ask(&format!("RESTART {request}"));
    assert!(answer.starts_with("OK restarted"), "{answer:?}");
    assert!(!daemon.place.path("control.sock").exists());
    let mode = fs::metadata(&new).expect("the new socket").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let mut operator = Operator::connect(&new.display().to_string());
    assert!(operator.ask("UNDRAIN").starts_with("OK "));
}
