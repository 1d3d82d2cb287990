//! The control socket and `--reload` (docs/restart.md).

use crate::addresses::quiet_port;
use crate::support::restart::{
    self, ConnectingLoop, Place, REFUSED, Surroundings, WENT_ON, wait_until,
};
use crate::support::{
    Client, Finished, PATIENCE, Server, daemon_command, finish, launched, leave_stale_socket,
};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;

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

/// A group that this user may give a file to; if possible, not the file's default one.
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
    assert_eq!(
        words,
        ["RESTART", "DRAIN", "DRAINED", "UNDRAIN", "LOG", "MAX-HOLD", "STATS", "HELP"]
    );
}

#[test]
fn a_restart_is_answered_when_it_is_done() {
    let daemon = Daemon::start();
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    let mut operator = daemon.operator();
    let answer = operator.ask("RESTART");
    assert_eq!(answer, format!("OK restarted, poolcounterd {}", env!("CARGO_PKG_VERSION")));
    // The new image answered.
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
    let expected = "ERROR refused: the new binary can't take over: \
                    exit status: 1, it said \"not today\"";
    assert_eq!(answer, expected);
    daemon.server.log.wait_for(REFUSED);
    assert_eq!(daemon.server.log.count(REFUSED), 1);
    daemon.serves_on();
    // The connection stays usable.
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
    assert_eq!(second.ask("RESTART"), "ERROR a hot restart is already under way");
    daemon.place.touch("go");
    assert!(first.line().starts_with("OK restarted"));
    assert!(second.has_ended(), "the old image's other connections are closed");
}

/// An operator asks for a restart and goes, and a bystander gets the number of that
/// connection; then the new binary answers with `verdict`, and the log has `outcome`.
#[track_caller]
fn expect_bystander_told_nothing(verdict: &str, outcome: &str) {
    let daemon = Daemon::start();
    daemon.place.install_script(&format!(
        "case $1 in --read-snapshot)\n\
         echo begun > $HERE/begun; while [ ! -e $HERE/go ]; do sleep 0.01; done; {verdict};;\n\
         esac\n\
         exec $REAL \"$@\""
    ));
    let mut operator = daemon.operator();
    operator.send(b"RESTART\n");
    daemon.place.wait_for_file("begun");
    // Disconnects before the answer to one more request, so that the daemon forgets it
    // at once.
    daemon.server.signal(Signal::STOP);
    operator.send(b"HELP\n");
    drop(operator);
    daemon.server.signal(Signal::CONT);
    daemon.server.log.wait_for("asks: HELP");
    let mut bystander = daemon.operator();
    assert!(bystander.ask("nonsense").starts_with("ERROR no such request"));
    daemon.place.touch("go");
    daemon.server.log.wait_for(outcome);
    if outcome == WENT_ON {
        assert!(bystander.has_ended(), "it was told of a restart that another one asked for");
    } else {
        let answer = bystander.ask("more nonsense");
        assert!(answer.starts_with("ERROR no such request"), "{answer:?} was for another one");
    }
}

#[test]
fn an_operator_is_not_answered_in_place_of_one_that_has_gone() {
    expect_bystander_told_nothing("true", WENT_ON);
}

#[test]
fn an_operator_hears_of_no_refusal_in_place_of_one_that_has_gone() {
    expect_bystander_told_nothing("exit 1", "hot restart refused");
}

#[test]
fn an_operator_that_leaves_before_the_answer_does_no_harm() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    operator.send(b"RESTART\n");
    drop(operator);
    daemon.server.log.wait_for(WENT_ON);
    let mut client = daemon.server.connect();
    client.settle();
    let mut operator = daemon.operator();
    operator.send(b"DRAIN\nUNDRAIN\n");
    drop(operator);
    daemon.server.log.wait_for("no longer draining");
    daemon.server.connect().settle();
}

/// As `echo DRAIN | nc -UN` does, or socat.
#[test]
fn an_operator_that_half_closes_is_answered() {
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
    // An incomplete line is not a request.
    assert_eq!(asked(b"DRAIN"), "");
}

#[test]
fn nonsense_is_answered_with_an_error() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    for nonsense in ["", "help", "RESTART now", "RESTART {}", "DRAIN 5", "STATS NONE", "\u{7f}"] {
        let answer = operator.ask(nonsense);
        assert!(answer.starts_with("ERROR "), "{nonsense:?}: {answer:?}");
    }
    operator.send(b"\xff\0\x1b[31m\n");
    assert!(operator.line().starts_with("ERROR "));
    // Even what root sends must be logged as one line of plain text.
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
fn an_operator_that_sends_without_end_is_disconnected() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    let chunk = [b'x'; 4096];
    // Until the daemon closes its end.
    let ended = (0..10_000).any(|_| operator.stream.get_mut().write_all(&chunk).is_err());
    assert!(ended);
    assert!(daemon.operator().ask("UNDRAIN").starts_with("OK "));
    daemon.serves_on();
}

/// Its connection stays until the answer to the request before, and whatever happens on
/// it meanwhile, nothing of the refused bytes is taken for a request.
#[test]
fn requests_that_are_too_long_are_not_obeyed_later() {
    let daemon = Daemon::start();
    daemon.place.install_script(
        "echo begun > $HERE/begun; while [ ! -e $HERE/go ]; do sleep 0.01; done; exit 1",
    );
    let _client = daemon.server.connect();
    let mut operator = daemon.operator();
    operator.send(b"RESTART\n");
    daemon.place.wait_for_file("begun");
    operator.send(&vec![b'x'; 1 << 20]);
    operator.send(b"\nDRAIN\n");
    assert_eq!(operator.line(), "ERROR that is more than 1048576 bytes");
    operator.stream.get_mut().shutdown(Shutdown::Write).expect("shutdown");
    assert!(daemon.operator().ask("UNDRAIN").starts_with("OK "));
    assert_eq!(daemon.server.log.count("asks: DRAIN"), 0);
    daemon.place.touch("go");
    assert!(operator.line().starts_with("ERROR refused"));
    assert!(operator.has_ended());
    daemon.serves_on();
}

/// Sixteen forgotten connections must not lock operators out, nor a reload.
#[test]
fn the_operator_that_is_silent_for_longest_goes_for_another_one() {
    let daemon = Daemon::start();
    daemon.place.install_script(
        "echo begun > $HERE/begun; while [ ! -e $HERE/go ]; do sleep 0.01; done; exit 1",
    );
    let mut waiting = daemon.operator();
    waiting.send(b"RESTART\n");
    daemon.place.wait_for_file("begun");
    let mut operators: Vec<Operator> = (1..16).map(|_| daemon.operator()).collect();
    for operator in &mut operators {
        assert!(operator.ask("UNDRAIN").starts_with("OK "));
    }
    // Now the second one is silent for longest.
    assert!(operators[0].ask("UNDRAIN").starts_with("OK "));
    let mut one_more = daemon.operator();
    assert!(one_more.ask("UNDRAIN").starts_with("OK "));
    assert_eq!(operators[1].line(), "ERROR too many control connections");
    assert!(operators[1].has_ended());
    daemon.server.log.wait_for("connections to the control socket");
    let refused = daemon.reload(&[]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("already under way"), "{:?}", refused.stderr);
    for stays in [&mut operators[0], &mut one_more] {
        assert!(stays.ask("UNDRAIN").starts_with("OK "));
    }
    daemon.place.touch("go");
    assert!(waiting.line().starts_with("ERROR refused"));
}

#[test]
fn a_crowd_of_requests_does_not_fill_the_log() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    for _ in 0..400 {
        assert_eq!(operator.ask("LOG"), "OK log filter: info");
    }
    assert_eq!(daemon.operator().ask("UNDRAIN").split(' ').next(), Some("OK"));
    daemon.server.log.wait_for("asks: UNDRAIN");
    let logged = daemon.server.log.count("asks: LOG");
    assert!((100..200).contains(&logged), "{logged} lines");
}

/// It takes no answer any more, but what it has asked for is done.
#[test]
fn what_an_operator_who_has_left_has_sent_is_obeyed() {
    let daemon = Daemon::start();
    daemon.server.signal(Signal::STOP);
    let mut operator = daemon.operator();
    operator.send(&b"STATS JSON\n".repeat(1_000));
    operator.send(b"LOG warn\n");
    drop(operator);
    daemon.server.signal(Signal::CONT);
    wait_until("its last order is obeyed", || {
        (daemon.operator().ask("LOG") == "OK log filter: warn").then_some(())
    });
}

/// A list and what follows it are answered one after the other.
#[test]
fn answers_come_in_the_order_of_the_requests() {
    let daemon = Daemon::start();
    let mut operator = daemon.operator();
    operator.send(b"STATS KEYS\nLOG\nSTATS JSON\nUNDRAIN\n");
    for beginning in ["keys: 0 of 0", "", "OK log filter", "{", "", "OK listening"] {
        let mut line = operator.line();
        while line.starts_with("seen: ") || line.starts_with("holders ") {
            line = operator.line();
        }
        assert!(line.starts_with(beginning), "{line:?} instead of {beginning:?}");
    }
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
    leave_stale_socket(&path);
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
fn a_socket_in_use_is_left_alone() {
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

/// A relative path is seen from where the operator is, by the daemon too.
#[test]
fn the_control_socket_stays_where_it_is_reloaded_by_a_relative_path() {
    let daemon = Daemon::start();
    let options = ["--reload", "--control", "control.sock", "-l", "127.0.0.1", "-p", "0"];
    for options in [&options[..], &["--reload", "--control=control.sock", "-p", "0"]] {
        let mut command = daemon_command(options);
        let done = finish(command.current_dir(daemon.place.directory()));
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    }
    assert!(daemon.operator().ask("UNDRAIN").starts_with("OK "));
}

/// A socket that stays is known by its file, however its path is written.
#[test]
fn sockets_stay_when_a_reload_writes_their_paths_in_another_way() {
    let place = Place::with_daemon();
    let [control, clients] = ["control.sock", "clients.sock"];
    let mut command = place.command(&["--control", control, "--listen-unix", clients, "-p", "0"]);
    let server = Server::spawn(command.current_dir(place.directory()));
    let inode = |name| fs::metadata(place.path(name)).expect("a socket").ino();
    let before = [control, clients].map(inode);
    let absolute = place.path(clients).display().to_string();
    let options = ["--reload", "--control", control, "--listen-unix", &absolute, "-p", "0"];
    let done = finish(daemon_command(&options).current_dir(place.directory()));
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    server.log.wait_for(WENT_ON);
    assert_eq!([control, clients].map(inode), before);
}

/// Another restart comes first, and takes the connection with it.
#[test]
fn reload_asks_again_when_another_restart_came_first() {
    let daemon = Daemon::start();
    daemon.place.install_script(
        "echo $$ > $HERE/asked; while [ ! -e $HERE/go ]; do sleep 0.01; done; exec $REAL \"$@\"",
    );
    daemon.server.signal(Signal::USR1);
    let child = daemon.place.wait_for_file("asked");
    // So the daemon hears of both in one turn.
    daemon.server.signal(Signal::STOP);
    daemon.place.touch("go");
    let stat = format!("/proc/{}/stat", child.trim());
    wait_until("the new binary has answered", || {
        std::fs::read_to_string(&stat).ok()?.contains(") Z ").then_some(())
    });
    let path = daemon.path();
    let reload =
        std::thread::spawn(move || finish(&mut daemon_command(&["--reload", "--control", &path])));
    wait_until("it has asked", || {
        let list = std::fs::read_to_string("/proc/net/unix").expect("/proc");
        // The listener, and a connection that nobody has accepted.
        (list.matches(&daemon.path()).count() == 2).then_some(())
    });
    daemon.server.signal(Signal::CONT);
    let done = reload.join().expect("reload");
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    daemon.server.log.wait_for_count(WENT_ON, 2);
}

/// A start takes a long list of networks, so a reload must.
#[test]
fn a_reload_takes_as_many_options_as_a_start() {
    let daemon = Daemon::start();
    let networks: Vec<String> =
        (0..2_000).map(|n| format!("--allow=127.{}.0.0/16", n % 256)).collect();
    let mut options = vec!["-l", "127.0.0.1", "-p", "0"];
    options.extend(networks.iter().map(String::as_str));
    let done = daemon.reload(&options);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    daemon.server.connect().settle();
    let again = daemon.reload(&[]);
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""));
    let line = daemon.server.log.wait_for("asks: RESTART [");
    assert!(line.len() < 2_000, "{} bytes in the log", line.len());
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
        // TEST-NET-1 (RFC 5737): no machine has it.
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
    assert_eq!(refused.code, Some(78));
    daemon.serves_on();
}

/// A new image that does not serve would lose every lock.
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
    // SIGUSR1 keeps the current options, not those of the start.
    restart::restart(&daemon.server);
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
    // No other process may share the port afterwards.
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
    let new = SocketAddr::from(([127, 0, 0, 1], quiet_port()));
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

/// Keys are bytes, and lists print them as `\xNN`.
#[test]
fn what_a_list_prints_every_order_understands() {
    let daemon = Daemon::start();
    let mut holder = daemon.server.connect();
    for key in [&b"caf\xc3\xa9"[..], b"\xff\x01\x7f", b"k\xc2\xa0", b"a\\x41", b"k\t"] {
        holder.send_bytes(&[b"ACQ4ME ", key, b" 1 1 0\n"].concat());
        holder.expect("LOCKED");
        let mut operator = daemon.operator();
        let mut asked = |request: &[u8]| {
            operator.send(&[request, b"\n"].concat());
            let lines = std::iter::from_fn(|| Some(operator.line()).filter(|l| !l.is_empty()));
            lines.collect::<Vec<_>>()
        };
        let keys = asked(b"STATS KEYS");
        let printed = keys[3].split(' ').next_back().expect("a key");
        let answer = asked(format!("STATS KEY {printed}").as_bytes());
        assert_eq!(answer[..2], [format!("key: {printed}"), "holders: 1".to_owned()]);
        if !key.contains(&b'\\') {
            assert_eq!(asked(&[b"STATS KEY ", key].concat())[1], "holders: 1", "{printed}");
        }
        let mut operator = daemon.operator();
        let limited = operator.ask(&format!("MAX-HOLD *:x=9 {printed}=600"));
        assert_eq!(limited, format!("OK hold limits: *:x=9 {printed}=600"));
        let answer = asked(format!("STATS KEY {printed}").as_bytes());
        assert!(answer.iter().any(|line| line.starts_with("max_hold: 600")), "{answer:?}");
        holder.exchange("RELEASE", "RELEASED");
    }
}

#[track_caller]
fn expect(daemon: &Daemon, request: &str, answer: &str) {
    assert_eq!(daemon.operator().ask(request), answer);
}

#[test]
fn the_log_filter_changes_at_run_time_and_survives_a_hot_restart() {
    let daemon = Daemon::start();
    expect(&daemon, "LOG", "OK log filter: info");
    let why = "expected error, warn, info, debug, trace or off, or a module with its level such as \
               poolcounterd::server::control=debug";
    expect(&daemon, "LOG loud", &format!("ERROR \"loud\": {why}"));
    expect(&daemon, "LOG debug", "OK log filter: debug");
    daemon.server.connect().exchange("RELEASE", "NOT_LOCKED");
    daemon.server.log.wait_for("> RELEASE");
    restart::restart(&daemon.server);
    expect(&daemon, "LOG", "OK log filter: debug");
    // A reload without the log option, then one with it.
    assert_eq!(daemon.reload(&["-l", "127.0.0.1", "-p", &daemon.port()]).code, Some(0));
    expect(&daemon, "LOG", "OK log filter: debug");
    let warn = ["-l", "127.0.0.1", "-p", &daemon.port(), "--log", "warn"];
    assert_eq!(daemon.reload(&warn).code, Some(0));
    expect(&daemon, "LOG", "OK log filter: warn");
}

#[test]
fn hold_limits_change_at_run_time_and_survive_a_hot_restart() {
    let daemon = Daemon::start_with(&["--max-hold", "a*=60"]);
    expect(&daemon, "MAX-HOLD", "OK hold limits: a*=60");
    expect(&daemon, "MAX-HOLD b", "ERROR b: not PATTERN=SECONDS");
    let mut holder = daemon.server.connect();
    holder.exchange("ACQ4ME k 1 1 0", "LOCKED");
    expect(&daemon, "MAX-HOLD x*=600 k=1", "OK hold limits: x*=600 k=1");
    restart::restart(&daemon.server);
    expect(&daemon, "MAX-HOLD", "OK hold limits: x*=600 k=1");
    daemon.server.connect().wait_for_counter("expired_locks", |n| n == 1);
    // A reload without hold limits, then one with them.
    let port = daemon.port();
    assert_eq!(daemon.reload(&["-l", "127.0.0.1", "-p", &port]).code, Some(0));
    expect(&daemon, "MAX-HOLD", "OK hold limits: x*=600 k=1");
    assert_eq!(daemon.reload(&["-l", "127.0.0.1", "-p", &port, "--max-hold", "c=7"]).code, Some(0));
    expect(&daemon, "MAX-HOLD", "OK hold limits: c=7");
    expect(&daemon, "MAX-HOLD none", "OK hold limits: none");
    restart::restart(&daemon.server);
    expect(&daemon, "MAX-HOLD", "OK hold limits: none");
}

#[test]
fn a_client_in_the_queue_never_becomes_an_operator() {
    let place = Place::with_daemon();
    let [clients, control] =
        ["clients.sock", "control.sock"].map(|name| place.path(name).display().to_string());
    let sockets = ["--listen-unix", &clients, "--control", &control];
    let options = [&["-l", "127.0.0.1", "-p", "0"], &sockets[..]].concat();
    let server =
        Server::spawn(&mut launched(&["prlimit", "--nofile=64:64"], place.binary(), &options));
    // The last of them are in the queue: clients get no more descriptors.
    let mut crowd: Vec<_> =
        (0..60).map(|_| UnixStream::connect(&clients).expect("connect")).collect();
    server.log.wait_for("out of descriptors");
    let port = server.address().port().to_string();
    let swapped =
        ["--listen-unix", &control, "--control", &clients, "-l", "127.0.0.1", "-p", &port];
    let mut operator = Operator::connect(&control);
    let answer = operator.ask(&format!("RESTART {}", serde_json::json!(swapped)));
    assert!(answer.starts_with("OK restarted"), "{answer}");
    let mut last = crowd.pop().expect("a client");
    drop(crowd);
    last.write_all(b"DRAIN\n").expect("send");
    let mut said = String::new();
    BufReader::new(last).read_line(&mut said).expect("an answer");
    assert_eq!(said, "ERROR BAD_COMMAND\n");
    assert!(Operator::connect(&clients).ask("DRAIN").starts_with("OK draining"));
}
