//! The control socket and `--reload` (docs/reference/orders.md).

use crate::support::operated::{Operated, Operator};
use crate::support::restart::{
    self, CONTINUED, Environment, Gap, Place, wait_for_unaccepted, wait_until,
};
use crate::support::status::{NO_ADDRESS, WRONG_OPTIONS};
use crate::support::{DAEMON, daemon_command, finish, launched, leave_stale_socket};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

impl Operated {
    /// Asserts that it serves and has not restarted.
    #[track_caller]
    fn expect_no_restart(&self) {
        assert_eq!(self.server.log.count(CONTINUED), 0);
        self.server.connect().settle();
    }
}

#[test]
fn only_its_user_may_open_the_socket() {
    let daemon = Operated::start();
    let meta = fs::metadata(daemon.path()).expect("the socket");
    assert_eq!(meta.mode() & 0o7777, 0o600);
}

#[test]
fn control_group_may_open_the_socket() {
    let (name, id) = some_group();
    for group in [&name, &id.to_string()] {
        let daemon = Operated::start_with(&["--control-group", group]);
        let meta = fs::metadata(daemon.path()).expect("the socket");
        assert_eq!((meta.mode() & 0o7777, meta.gid()), (0o660, id));
    }
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

/// Sixteen forgotten connections must not lock out operators or a reload.
#[test]
fn the_longest_idle_operator_is_disconnected_for_a_new_one() {
    let daemon = Operated::start();
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
    // Now the second one has been idle longest.
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
    let daemon = Operated::start();
    let mut operator = daemon.operator();
    for _ in 0..400 {
        assert_eq!(operator.ask("LOG"), "OK log filter: info");
    }
    // They must not hide what an operator changes.
    for n in 0..3 {
        assert!(operator.ask(&format!("RULE SET bots{n} bot:{n} deny")).starts_with("OK "));
    }
    assert_eq!(daemon.ask("UNDRAIN").split(' ').next(), Some("OK"));
    daemon.server.log.wait_for("asks: UNDRAIN");
    let logged = daemon.server.log.count("asks: LOG");
    assert!((100..200).contains(&logged), "{logged} lines");
    assert_eq!(daemon.server.log.count("asks: RULE SET bots"), 3);
}

/// The daemon hung for so long that the operator gave up, and perhaps took to other means.
#[test]
fn orders_of_an_operator_that_has_left_are_not_executed() {
    let daemon = Operated::start();
    for orders in ["LOG warn\n", "STATS JSON\nLOG warn\n", "DRAINED\nLOG warn\nDRAIN\n"] {
        daemon.server.signal(Signal::STOP);
        let mut operator = daemon.operator();
        operator.send(orders.as_bytes());
        drop(operator);
        daemon.server.signal(Signal::CONT);
        // It is served after the one that has left.
        assert_eq!(daemon.ask("LOG"), "OK log filter: info", "{orders:?}");
    }
    daemon.server.log.wait_for("has left; not executed: LOG warn");
}

/// The operator has given up: poolcounter said that the daemon would not execute.
#[test]
fn a_restart_whose_operator_has_left_is_refused() {
    let daemon = Operated::start();
    daemon.place.install_delayed();
    let mut operator = daemon.operator();
    operator.send(b"RESTART\n");
    daemon.place.wait_for_file("asked");
    drop(operator);
    assert!(daemon.ask("LOG").starts_with("OK "));
    daemon.place.touch("go");
    daemon.server.log.wait_for("continuing to serve: the operator that asked for it has left");
    daemon.expect_no_restart();
}

/// What a restart drops is in the log, even if no operator is there to read the answer.
#[test]
fn a_restart_by_a_signal_logs_the_settings_that_it_drops() {
    let daemon = Operated::start_with_rules("bots bot:* deny\n", &[]);
    let answer = daemon.ask("RULE SET slow slow:* deny");
    assert!(answer.starts_with("OK "), "{answer}");
    fs::write(daemon.place.path("rules"), "bots bot:* workers=1\n").expect("a file of rules");
    daemon.server.signal(Signal::USR1);
    daemon.server.log.wait_for("no longer set: RULE SET slow slow:* deny");
    let rules = daemon.operator().list(b"RULES");
    assert!(rules[3].ends_with(" workers=1"), "{rules:?}");
}

/// They are more than the kernel takes while the operator does something else, and meanwhile
/// others are answered and there is a hot restart.
#[test]
fn an_operator_who_reads_late_loses_no_answer() {
    let daemon = Operated::start();
    let long = "k".repeat(90);
    let mut holders: Vec<_> = (0..50).map(|_| daemon.server.connect()).collect();
    for (n, holder) in holders.iter_mut().enumerate() {
        (0..4).for_each(|m| holder.exchange(&format!("ACQ4ME {long}{n}:{m} 1 1 0"), "LOCKED"));
    }
    let mut operator = daemon.operator();
    operator.send("STATS JSON KEYS 200\n".repeat(20).as_bytes());
    operator.send(b"RULE SET late late:* deny\nLOG\n");
    operator.shut_writing();
    let mut other = daemon.operator();
    for _ in 0..100 {
        assert_eq!(other.ask("LOG"), "OK log filter: info");
    }
    assert!(other.ask("RESTART").starts_with("OK restarted"));
    for n in 0..20 {
        let (json, blank) = (operator.line(), operator.line());
        assert!(json.starts_with('{') && json.ends_with('}') && blank.is_empty(), "answer {n}");
    }
    assert_eq!(operator.line(), "OK rule late late:* deny");
    assert_eq!(operator.line(), "OK log filter: info");
    assert!(operator.has_ended());
}

#[test]
fn requests_are_logged_with_their_sender() {
    let daemon = Operated::start();
    daemon.ask("UNDRAIN");
    let (uid, pid) = (rustix::process::getuid().as_raw(), std::process::id());
    daemon.server.log.wait_for(&format!("control socket: uid {uid}, pid {pid} asks: UNDRAIN"));
}

#[test]
fn a_stale_socket_file_is_replaced() {
    let place = Place::with_daemon();
    let path = place.path("control.sock");
    leave_stale_socket(&path);
    assert!(path.exists());
    let mut daemon = Operated::start_in(place, &[]);
    assert!(daemon.ask("UNDRAIN").starts_with("OK "));
    // Killed, it leaves its file behind.
    daemon.server.signal(Signal::KILL);
    daemon.server.wait_for_exit();
    let mut daemon = Operated::start_in(daemon.place, &[]);
    assert!(daemon.ask("UNDRAIN").starts_with("OK "));
    // Stopped by a signal, it removes the file.
    daemon.server.signal(Signal::TERM);
    assert_eq!(daemon.server.wait_for_exit().code(), Some(0));
    assert!(!path.exists());
}

/// A daemon that ends with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both daemons find the socket file of a daemon that was killed, and replace it.
#[test]
fn of_daemons_started_at_once_with_one_path_one_runs() {
    for _ in 0..10 {
        let place = Place::new();
        let path = place.path("one.sock");
        leave_stale_socket(&path);
        let path = path.display().to_string();
        let options = ["-l", "127.0.0.1", "-p", "0", "--control", &path];
        let start =
            |()| Started(daemon_command(&options).stderr(Stdio::null()).spawn().expect("a daemon"));
        let mut daemons = [(); 4].map(start);
        let mut reasons = Vec::new();
        wait_until("all but one have ended", || {
            reasons.clear();
            for daemon in &mut daemons {
                reasons.extend(daemon.0.try_wait().expect("a child"));
            }
            (reasons.len() == 3).then_some(())
        });
        assert!(reasons.iter().all(|status| status.code() == Some(NO_ADDRESS)), "{reasons:?}");
        UnixStream::connect(&path).expect("the one that runs listens");
    }
}

/// As above, when the first one is slow to listen.
#[test]
fn a_socket_that_does_not_listen_yet_is_not_taken_for_stale() {
    if !restart::can_inject() {
        return;
    }
    let place = Place::new();
    let path = place.path("one.sock").display().to_string();
    let options = ["-l", "127.0.0.1", "-p", "0", "--control", &path];
    // Over TCP it listens first.
    let delay = "inject=listen:delay_enter=200000:when=2";
    let trace = place.path("trace").display().to_string();
    let strace = ["strace", "-D", "-f", "-qq", "-o", &trace, "-e", "trace=listen", "-e", delay];
    let slow = launched(&strace, DAEMON, &options).stderr(Stdio::null()).spawn();
    let _slow = Started(slow.expect("a daemon"));
    wait_until("it has bound its socket", || fs::symlink_metadata(&path).ok().map(drop));
    let late = finish(&mut daemon_command(&options));
    assert_eq!(late.code, Some(NO_ADDRESS), "{}", late.stderr);
    assert!(Operator::connect(&path).ask("LOG").starts_with("OK "));
}

#[test]
fn a_file_that_is_not_a_socket_is_left_alone() {
    let place = Place::new();
    fs::write(place.path("precious"), "data").expect("write");
    let path = place.path("precious").display().to_string();
    let finished = finish(&mut daemon_command(&["-l", "127.0.0.1", "-p", "0", "--control", &path]));
    assert_eq!(finished.code, Some(WRONG_OPTIONS));
    assert_eq!(fs::read_to_string(&path).expect("still there"), "data");
}

#[test]
fn reload_succeeds_when_the_restart_is_done() {
    let daemon = Operated::start();
    let done = daemon.reload(&[]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    assert!(done.stdout.starts_with("OK restarted, poolcounterd "), "{:?}", done.stdout);
    daemon.server.log.wait_for(CONTINUED);
    // It kept its options: the port, which is not the default one, and this socket.
    daemon.server.connect().settle();
    assert_eq!(daemon.reload(&[]).code, Some(0));
}

/// Its answer would pass for one to an edit of ARGS.
#[test]
fn a_restart_without_options_says_so() {
    let daemon = Operated::start();
    let says = |text: &str| text.contains("; options unchanged");
    let asks = "whether it can take over";
    assert!(says(&restart::restart(&daemon.server)));
    let done = daemon.reload(&[]);
    assert!(says(&done.stdout), "{}", done.stdout);
    assert!(says(&daemon.server.log.wait_for_count(CONTINUED, 2)));
    assert!(says(&daemon.server.log.wait_for_count(asks, 2)));
    let done = daemon.reload(&["-l", "127.0.0.1", "-p", "0"]);
    assert!(done.code == Some(0) && !says(&done.stdout), "{}", done.stdout);
    assert!(!says(&daemon.server.log.wait_for_count(CONTINUED, 3)));
    assert!(!says(&daemon.server.log.wait_for_count(asks, 3)));
}

/// Another restart comes first and closes the connection.
#[test]
fn reload_retries_when_another_restart_came_first() {
    let daemon = Operated::start();
    daemon.place.install_delayed();
    daemon.place.stop_after_trial(&daemon.server);
    let path = daemon.path();
    let reload =
        std::thread::spawn(move || finish(&mut daemon_command(&["--reload", "--control", &path])));
    wait_for_unaccepted(&daemon.path());
    daemon.server.signal(Signal::CONT);
    let done = reload.join().expect("reload");
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    daemon.server.log.wait_for_count(CONTINUED, 2);
}

/// A start takes a long list of networks, so a reload must too.
#[test]
fn a_reload_takes_as_many_options_as_a_start() {
    let daemon = Operated::start();
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
fn reload_fails_when_there_is_no_daemon() {
    let place = Place::new();
    let path = place.path("control.sock").display().to_string();
    let failed = finish(&mut daemon_command(&["--reload", "--control", &path]));
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains(&path), "{:?}", failed.stderr);
}

#[test]
fn reload_fails_when_the_daemon_ends_instead() {
    let daemon = Operated::start();
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
fn bad_options_are_refused() {
    let daemon = Operated::start();
    let before = Environment::of(daemon.server.pid());
    let port = daemon.port();
    let taken = TcpListener::bind("127.0.0.2:0").expect("bind");
    let taken_port = taken.local_addr().expect("address").port().to_string();
    let rules = daemon.place.path("rules").display().to_string();
    fs::write(&rules, "a *\nb deny\n").expect("write");
    for (arguments, reason) in [
        (["-l", "nonsense", "-p", &port], "Address `nonsense` is not valid to listen on."),
        (["-l", "127.0.0.1,", "-p", &port], "is not valid to listen on."),
        // TEST-NET-1 (RFC 5737): no machine has it.
        (["-l", "192.0.2.1", "-p", &port], "Couldn't bind to 192.0.2.1:"),
        (["-l", "127.0.0.2", "-p", &taken_port], "Address already in use"),
        (["-l", "127.0.0.1", "--rules", &rules], "line 2: rule b has no pattern"),
    ] {
        let refused = daemon.reload(&arguments);
        assert_eq!(refused.code, Some(1), "{arguments:?}");
        assert!(refused.stderr.contains(reason), "{arguments:?}: {:?}", refused.stderr);
    }
    daemon.expect_no_restart();
    let quiet = || (Environment::of(daemon.server.pid()) == before).then_some(());
    wait_until("the process is unchanged", quiet);
}

#[test]
fn an_option_unknown_to_the_new_binary_is_refused() {
    let daemon = Operated::start();
    let mut operator = daemon.operator();
    let answer = operator.ask(r#"RESTART ["--no-such-option"]"#);
    assert!(answer.starts_with("ERROR refused: "), "{answer:?}");
    assert!(answer.contains("--no-such-option"), "{answer:?}");
    // The client side of --reload rejects it on its own.
    let refused = daemon.reload(&["--no-such-option"]);
    assert_eq!(refused.code, Some(WRONG_OPTIONS));
    daemon.expect_no_restart();
}

/// An option was meant. An empty word is passed over.
#[test]
fn a_word_that_is_not_an_option_is_refused_by_a_restart() {
    let daemon = Operated::start_with(&["", "--allow", "127.0.0.0/8"]);
    let (path, port) = (daemon.path(), daemon.port());
    for (words, why) in [
        (&["allow", "127.0.0.0/8"][..], "\"allow\" is not an option"),
        (&["127.0.0.0/8"], "\"127.0.0.0/8\" is not an option"),
        (&["-"], "\"-\" is not an option"),
        (&["—allow", "127.0.0.0/8"], "type --allow"),
        (&["--", "--allow=::1"], "\"--allow=::1\" is not an option"),
        (&["--", "—allow"], "type --allow"),
    ] {
        let options = [&["-l", "127.0.0.1", "-p", &port, "--control", &path], words].concat();
        let answer = daemon.operator().restart(&options);
        let answer = answer.replace("\\\"", "\"");
        assert!(answer.starts_with("ERROR refused: ") && answer.contains(why), "{answer}");
        for options in [&options[2..], words] {
            let refused = daemon.reload(options);
            assert_eq!(refused.code, Some(1), "{options:?}: {}", refused.stdout);
            assert!(refused.stderr.contains(why), "{options:?}: {}", refused.stderr);
        }
    }
    daemon.expect_no_restart();
    assert!(daemon.ask("RESTART").starts_with("OK restarted"));
    let done = daemon.reload(&[""]);
    assert!(done.stdout.ends_with("; options unchanged\n"), "{}", done.stdout);
    let done = daemon.reload(&["-l", "127.0.0.1", "", "-p", &port]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
}

/// A new image that does not serve would lose every lock.
#[test]
fn options_that_are_not_for_serving_are_refused() {
    let daemon = Operated::start();
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    let path = daemon.path();
    let options =
        ["--reload", "--check", "--check-options", "--help", "--version", "-V", "--read-snapshot"];
    for option in options.into_iter().chain(["--check-rules=/dev/null"]) {
        let request = format!("RESTART [\"{option}\", \"--control\", \"{path}\"]");
        let answer = daemon.ask(&request);
        assert!(answer.starts_with("ERROR refused: "), "{option}: {answer:?}");
    }
    client.exchange("RELEASE", "RELEASED");
    daemon.expect_no_restart();
}

/// Options that a reload does not name get their defaults, but what an operator has set
/// stays unless the reload sets it, and tells so.
#[test]
fn a_reload_changes_what_is_logged() {
    let daemon = Operated::start();
    let port = daemon.port();
    let listen = ["-l", "127.0.0.1", "-p", &port];
    let version = env!("CARGO_PKG_VERSION");
    let reload = |options: &[&str], filter, ended| {
        let done = daemon.reload(&[&listen[..], options].concat());
        assert_eq!(done.stdout, format!("OK restarted, poolcounterd {version}{ended}\n"));
        assert_eq!(daemon.ask("LOG"), format!("OK log filter: {filter}"));
    };
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME quiet 1 1 0", "LOCKED");
    reload(&["--log", "debug"], "debug", "");
    client.exchange("ACQ4ME loud 1 1 0", "LOCKED");
    daemon.server.log.wait_for("ACQ4ME loud 1 1 0");
    assert_eq!(daemon.server.log.count("ACQ4ME quiet"), 0);
    // SIGUSR1 keeps the current options, not those of the start.
    restart::restart(&daemon.server);
    client.exchange("ACQ4ME after 1 1 0", "LOCKED");
    daemon.server.log.wait_for("ACQ4ME after 1 1 0");
    reload(&[], "info", "");
    assert_eq!(daemon.ask("LOG error"), "OK log filter: error");
    reload(&[], "error", "");
    reload(&["--log", "warn"], "warn", "; no longer set: LOG error");
}

/// Whoever waits in its queue has connected by the group that it had.
#[test]
fn an_open_control_socket_keeps_its_group() {
    let (name, id) = some_group();
    let id = id.to_string();
    for (before, after) in [
        (None, Some(&name)),
        (Some(&name), None),
        (Some(&name), Some(&id)),
        (Some(&id), Some(&name)),
    ] {
        let option = |group: &String| format!("--control-group={group}");
        let first = before.map(option);
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        let Operated { place, server } = Operated::start_with(&first);
        let path = |name: &str| place.path(name).display().to_string();
        let ours = path("control.sock");
        let reload = |path: &str, group: Option<&String>| {
            let all = ["-l", "127.0.0.1", "-p", "0", "--control", path].map(str::to_owned);
            let all: Vec<String> = all.into_iter().chain(group.map(option)).collect();
            Operator::connect(&ours).restart(&all)
        };
        let mut holder = server.connect();
        holder.exchange("ACQ4ME k 1 1 0", "LOCKED");
        let mode = || fs::metadata(&ours).expect("the socket").mode() & 0o7777;
        let mode_before = mode();
        // The other way to write the path leads to the same file.
        for spelling in ["control.sock", "./control.sock"] {
            let answer = reload(&path(spelling), after);
            let why = "--control-group can't change while it is open: that needs a restart";
            assert!(answer.starts_with("ERROR refused: ") && answer.contains(why), "{answer}");
            assert_eq!(mode(), mode_before);
        }
        assert!(reload(&ours, before).starts_with("OK restarted"));
        // Nobody can connect to a socket whose file is gone.
        fs::remove_file(&ours).expect("remove");
        server.signal(Signal::USR1);
        server.log.wait_for_count(CONTINUED, 2);
        let other = path("other.sock");
        let moved = reload(&other, after);
        assert!(moved.starts_with("OK restarted"), "{moved}");
        let expected = if after.is_some() { 0o660 } else { 0o600 };
        assert_eq!(fs::metadata(&other).expect("the socket").mode() & 0o7777, expected);
        assert!(Operator::connect(&other).ask("LOG").starts_with("OK "));
        holder.exchange("RELEASE", "RELEASED");
    }
}

/// Operators who have asked, and are in the queue. Their connections need no daemon that runs.
fn queued_operators(path: &str) -> Vec<Operator> {
    let ask = |_| {
        let mut operator = Operator::connect(path);
        operator.send(b"LOG\n");
        operator
    };
    (0..200).map(ask).collect()
}

#[track_caller]
fn expect_answers(what: &str, operators: Vec<Operator>) {
    for (n, mut operator) in operators.into_iter().enumerate() {
        let answer = operator.line();
        let is_answer = answer.starts_with("OK ") || answer.starts_with("ERROR ");
        assert!(is_answer, "{what}: {n}: {answer:?}");
    }
}

#[test]
fn operators_in_the_queue_of_a_socket_that_closes_are_answered() {
    let other = Place::new();
    let other = format!("--control={}", other.path("other.sock").display());
    for more in
        [&[&*other, "--backlog", "1"][..], &["--control=none"], &["--control=none", "--backlog=1"]]
    {
        let Operated { place, server } = Operated::start_with(&["--backlog", "4096"]);
        let (path, gap) = (place.path("control.sock").display().to_string(), Gap { place });
        let options = [&["-l", "127.0.0.1", "-p", "0"], more].concat();
        let mut operator = Operator::connect(&path);
        gap.install();
        operator.send(format!("RESTART {}\n", serde_json::json!(options)).as_bytes());
        gap.place.wait_for_file("gap");
        let mut queued = queued_operators(&path);
        gap.close(&server);
        queued.push(operator);
        expect_answers(&format!("{more:?}"), queued);
    }
}

#[test]
fn operators_in_the_queue_of_a_daemon_that_ends_are_answered() {
    // The last one begins a drain.
    for end in [Signal::TERM, Signal::INT, Signal::USR2] {
        let mut daemon = Operated::start_with(&["--backlog", "4096"]);
        daemon.server.signal(Signal::STOP);
        let queued = queued_operators(&daemon.path());
        daemon.server.signal(end);
        daemon.server.signal(Signal::CONT);
        expect_answers(&format!("{end:?}"), queued);
        daemon.server.wait_for_exit();
    }
}

/// The file at the path was removed, so a restart makes another one.
#[test]
fn operators_in_the_queue_of_a_socket_without_a_file_are_answered() {
    let daemon = Operated::start_with(&["--backlog", "4096"]);
    daemon.server.signal(Signal::STOP);
    let queued = queued_operators(&daemon.path());
    fs::remove_file(daemon.path()).expect("remove");
    daemon.server.signal(Signal::USR1);
    daemon.server.signal(Signal::CONT);
    expect_answers("a new file", queued);
    daemon.server.log.wait_for(CONTINUED);
    assert!(daemon.ask("LOG").starts_with("OK "));
}

/// What an attacker puts in the place of the control socket.
const TRAPS: [&str; 5] = ["link", "file", "socket", "FIFO", "nothing"];

/// Replaces the daemon's file as soon as it is there, again and again. Returns how often.
fn replace_file(place: &Place, ends: &AtomicBool) -> usize {
    let (path, trap) = (place.path("control.sock"), place.path("trap"));
    let mut replaced = 0;
    while !ends.load(Ordering::Relaxed) {
        let kind = TRAPS[replaced % TRAPS.len()];
        let _ = fs::remove_file(&trap);
        match kind {
            "link" => std::os::unix::fs::symlink(place.path("victim"), &trap).expect("a link"),
            "file" => fs::hard_link(place.path("victim"), &trap).expect("a link"),
            "socket" => fs::hard_link(place.path("victim.sock"), &trap).expect("a link"),
            "FIFO" => fs::hard_link(place.path("victim.fifo"), &trap).expect("a link"),
            _ => {}
        }
        let is_ours = || {
            let meta = fs::symlink_metadata(&path).ok()?;
            (meta.file_type().is_socket() && meta.nlink() == 1).then_some(())
        };
        while is_ours().is_none() && !ends.load(Ordering::Relaxed) {}
        // The later, the more often.
        (0..replaced % 7 * 300).for_each(|_| std::hint::spin_loop());
        if kind == "nothing" {
            let _ = fs::remove_file(&path);
        } else {
            let _ = fs::rename(&trap, &path);
        }
        replaced += 1;
        // The next daemon finds an empty place.
        while fs::symlink_metadata(&path).is_ok() && !ends.load(Ordering::Relaxed) {}
    }
    replaced
}

/// Who may write the directory of the control socket can replace its file at any moment: that
/// leads its group and mode to no other file.
#[test]
fn whoever_replaces_the_file_changes_no_other_file() {
    let (group, id) = some_group();
    let place = Place::new();
    fs::write(place.path("victim"), "precious").expect("a file");
    let _victim = UnixListener::bind(place.path("victim.sock")).expect("a socket");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let (fifo, kind) = (place.path("victim.fifo"), rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).expect("a FIFO");
    let victims = ["victim", "victim.sock", "victim.fifo"].map(|name| place.path(name));
    let state = || {
        victims.each_ref().map(|path| {
            let meta = fs::metadata(path).expect("a victim");
            (meta.mode(), meta.gid())
        })
    };
    let before = state();
    let path = place.path("control.sock");
    let options = ["-l", "127.0.0.1", "-p", "0", "--control-group", &group, "--control"];
    let ends = AtomicBool::new(false);
    let replaced = std::thread::scope(|scope| {
        let attacker = scope.spawn(|| replace_file(&place, &ends));
        for _ in 0..100 {
            let mut command = daemon_command(&options);
            let child = command.arg(&path).stderr(Stdio::piped()).spawn();
            let mut daemon = Started(child.expect("a daemon"));
            // It serves, or has ended.
            let stderr = daemon.0.stderr.take().expect("stderr");
            let _ = BufReader::new(stderr)
                .lines()
                .find(|line| line.as_ref().is_ok_and(|line| line.contains("listening on ")));
            drop(daemon);
            let _ = fs::remove_file(&path);
        }
        ends.store(true, Ordering::Relaxed);
        attacker.join().expect("the attacker")
    });
    assert!(replaced > 0, "nothing was replaced");
    assert_eq!(state(), before);
    assert!(before.iter().all(|(_, gid)| *gid != id || !rustix::process::getuid().is_root()));
}
