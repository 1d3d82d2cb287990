//! `drain`, `undrain` and `control`, on the control socket.

use crate::command::{ask, binary, poolcounter, shell};
use crate::support::denied_calls::injected;
use crate::support::operated::Operated;
use crate::support::restart::{
    CONTINUED, Place, can_inject, children, restart, wait_for_unaccepted,
};
use crate::support::{
    Client, Finished, daemon_command, eventually, finish, launched, skip, wait_for_exit,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn order(path: &str, arguments: &[&str]) -> Finished {
    ask("", &[arguments, &["--control-socket", path]].concat())
}

#[test]
fn orders_reach_the_daemon() {
    let mut daemon = Operated::start();
    let mut client = daemon.server.connect();
    assert_eq!(client.ask("ACQ4ME k 1 1 0"), "LOCKED");
    for (arguments, answer) in [
        (&["drain"][..], "OK draining, "),
        (&["undrain"], "OK listening on "),
        (&["control", "LOG"], "OK "),
        (&["control", "LOG", "debug"], "OK "),
        (&["control", "RESTART"], "OK restarted, poolcounterd "),
    ] {
        let output = daemon.poolcounter(arguments);
        assert_eq!(output.code, Some(0), "{arguments:?}: {}{}", output.stdout, output.stderr);
        assert!(output.stdout.starts_with(answer), "{arguments:?}: {}", output.stdout);
    }
    daemon.server.log.wait_for(CONTINUED);
    let help = daemon.poolcounter(&["control", "HELP"]).stdout;
    assert!(help.lines().any(|line| line.starts_with("UNDRAIN ")), "{help}");
    assert!(!help.contains("\n\n"), "{help}");
    let wrong = daemon.poolcounter(&["control", "NONSENSE", "--json"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stdout.starts_with("{\"answer\":\"ERROR "), "{}", wrong.stdout);
    assert_eq!(client.ask("RELEASE"), "RELEASED");
    daemon.server.signal(Signal::TERM);
    daemon.server.wait_for_exit();
    let nowhere = daemon.poolcounter(&["undrain"]);
    assert_eq!(nowhere.code, Some(75));
    assert!(nowhere.stderr.contains("no daemon has this socket"), "{}", nowhere.stderr);
}

#[test]
fn an_order_takes_no_server_option() {
    let daemon = Operated::start();
    for order in [&["drain"][..], &["undrain"], &["control", "LOG"]] {
        let before = [&["-s", "127.0.0.1:1"][..], order].concat();
        let behind = [order, &["--server", "127.0.0.1:1"][..]].concat();
        for arguments in [before, behind] {
            let output = daemon.poolcounter(&arguments);
            assert_eq!((output.code, output.stdout.as_str()), (Some(64), ""), "{arguments:?}");
            assert!(output.stderr.contains("--control-socket"), "{}", output.stderr);
        }
        let help = ask("", &[order[0], "--help"]).stdout;
        assert!(help.contains("--control-socket") && !help.contains("--server"), "{help}");
    }
    assert_eq!(ask("", &["--help"]).stdout.matches("--server").count(), 1);
}

#[test]
fn an_order_needs_no_list_of_servers() {
    let daemon = Operated::start();
    let path = daemon.path();
    for list in ["wiki1:port", ":::"] {
        let output = ask(list, &["undrain", "--control-socket", &path]);
        assert_eq!(output.code, Some(0), "{list}: {}", output.stderr);
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let daemon = Operated::start();
    let path = daemon.path();
    for order in ["undrain", "control LOG", "control LOG --json", "drain --wait"] {
        let output = shell("", &format!("exec \"$0\" {order} --control-socket {path} > /dev/full"));
        assert_eq!(output.code, Some(1), "{order}: {}", output.stderr);
        assert!(output.stderr.contains("No space left on device"), "{order}: {}", output.stderr);
    }
}

/// As when another hot restart came first.
#[test]
fn an_order_is_repeated_when_its_connection_is_closed() {
    let place = Place::with_daemon();
    let path = place.path("c");
    let listener = UnixListener::bind(&path).expect("a socket");
    let daemon = std::thread::spawn(move || {
        drop(listener.accept().expect("a client"));
        let (stream, _) = listener.accept().expect("the client again");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("an order");
        (&stream).write_all(b"OK done\n").expect("written");
        line
    });
    let output = order(&path.display().to_string(), &["control", "LOG", "info"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "OK done\n"), "{}", output.stderr);
    assert_eq!(daemon.join().expect("no panic"), "LOG info\n");
}

#[test]
fn a_full_backlog_is_not_waited_for() {
    let place = Place::with_daemon();
    let path = place.path("c");
    let (_listener, _first) = full(&path);
    let output = order(&path.display().to_string(), &["undrain", "--timeout", "0.2"]);
    assert_eq!(output.code, Some(75), "{}", output.stdout);
    assert!(output.stderr.contains("timed out"), "{}", output.stderr);
}

/// With a timeout on the socket, even a stop interrupts connect(2) (signal(7)).
#[test]
fn signals_do_not_abort_a_connect() {
    let place = Place::with_daemon();
    let path = place.path("c");
    let (listener, _first) = full(&path);
    let words = ["control", "LOG", "--control-socket", path.to_str().expect("UTF-8")];
    let mut order = poolcounter("", &words).stdout(Stdio::piped()).spawn().expect("start it");
    let is_in_state = |state| eventually(|| stat_of(&order).contains(state) && has_socket(&order));
    for _ in 0..3 {
        assert!(is_in_state(") S "), "it does not connect");
        kill_process(Pid::from_child(&order), Signal::STOP).expect("a signal");
        assert!(is_in_state(") T "), "it does not stop");
        kill_process(Pid::from_child(&order), Signal::CONT).expect("a signal");
    }
    drop(listener.accept().expect("the first"));
    let (mut ours, _) = listener.accept().expect("the second");
    ours.write_all(b"OK info\n").expect("room");
    drop(ours);
    assert_eq!(wait_for_exit(&mut order).code(), Some(0));
}

/// A listener whose backlog stays full as long as both are kept.
fn full(path: &Path) -> (UnixListener, UnixStream) {
    let listener = UnixListener::bind(path).expect("a socket");
    rustix::net::listen(&listener, 0).expect("a backlog");
    let first = UnixStream::connect(path).expect("room for one");
    (listener, first)
}

fn stat_of(order: &Child) -> String {
    std::fs::read_to_string(format!("/proc/{}/stat", order.id())).unwrap_or_default()
}

fn has_socket(order: &Child) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", order.id())).into_iter().flatten();
    let mut links = descriptors.flatten().filter_map(|one| std::fs::read_link(one.path()).ok());
    links.any(|link| link.to_string_lossy().starts_with("socket:"))
}

/// The order was meant for the daemon that has ended.
#[test]
fn an_order_is_not_repeated_to_another_daemon() {
    let place = Place::with_daemon();
    let [path, next] = ["c", "next"].map(|name| place.path(name));
    let listener = UnixListener::bind(&path).expect("a socket");
    let there = path.clone();
    let daemons = std::thread::spawn(move || {
        let client = listener.accept().expect("a client");
        let newer = UnixListener::bind(&next).expect("a socket");
        std::fs::rename(&next, &there).expect("in its place");
        drop(client);
        newer
    });
    let output = order(&path.display().to_string(), &["undrain"]);
    assert_eq!(output.code, Some(75), "{}", output.stdout);
    assert!(output.stderr.contains("ended without an answer"), "{}", output.stderr);
    drop(daemons.join().expect("no panic"));
}

/// The daemon may have executed it, and another holder may have the lock by now.
#[test]
fn an_order_whose_answer_is_cut_is_not_repeated() {
    for (options, heard) in [
        (&[][..], "OK closed 1 connec\n"),
        (&["--json"], "{\"answer\":\"OK closed 1 connec\",\"ok\":false}\n"),
    ] {
        for is_silent in [false, true] {
            let place = Place::new();
            let path = place.path("c").display().to_string();
            let daemon = UnixListener::bind(&path).expect("a socket");
            let asked = std::thread::spawn(move || {
                let (mut operator, _) = daemon.accept().expect("an operator");
                let mut order = String::new();
                operator.read_to_string(&mut order).expect("an order");
                operator.write_all(b"OK closed 1 connec").expect("send");
                let kept = is_silent.then_some(operator);
                (order, kept, daemon)
            });
            let free = ["free", "--key", "k", "--timeout", "1"];
            let output = order(&path, &[&free, options].concat());
            let (ordered, _kept, daemon) = asked.join().expect("no panic");
            assert_eq!(ordered.split(' ').next(), Some("FREE"), "{ordered}");
            assert_eq!((output.code, output.stdout.as_str()), (Some(76), heard));
            assert!(output.stderr.contains("may have executed the order"), "{}", output.stderr);
            daemon.set_nonblocking(true).expect("non-blocking");
            assert!(daemon.accept().is_err(), "it was sent again");
        }
    }
}

/// `drain --wait` with a daemon that has a client, and the client.
struct Wait {
    daemon: Operated,
    client: Client,
    waiting: Child,
}

impl Wait {
    fn begin(wait: &[&str]) -> Wait {
        let daemon = Operated::start();
        let mut client = daemon.server.connect();
        assert_eq!(client.ask("ACQ4ME k 1 1 0"), "LOCKED");
        let mut command = daemon.command(&[&["drain", "--wait"], wait].concat());
        let waiting = command.stdout(Stdio::piped()).spawn().expect("start");
        daemon.server.log.wait_for("asks: DRAINED");
        Wait { daemon, client, waiting }
    }

    /// The exit status and the answers.
    fn end(mut self) -> (Option<i32>, String) {
        let status = wait_for_exit(&mut self.waiting);
        let mut printed = String::new();
        self.waiting.stdout.take().expect("stdout").read_to_string(&mut printed).expect("text");
        (status.code(), printed)
    }
}

#[test]
fn waiting_for_a_drain_ends_with_the_daemon() {
    for wait in [&[][..], &["600"]] {
        let mut wait = Wait::begin(wait);
        assert_eq!(wait.client.ask("RELEASE"), "RELEASED");
        wait.client.shut_writing();
        assert_eq!(wait.daemon.server.wait_for_exit().code(), Some(75));
        assert_eq!(
            wait.end(),
            (Some(0), "OK draining, connections left: 1\nOK ended\n".to_owned())
        );
    }
    let daemon = Operated::start();
    let at_once = daemon.poolcounter(&["drain", "--wait", "--json"]);
    assert_eq!(at_once.code, Some(0));
    let last = at_once.stdout.lines().last().map(str::to_owned);
    assert_eq!(last.as_deref(), Some(r#"{"answer":"OK ended","ok":true}"#));
}

/// Who waits wants to know for whom, and whether it still drains after Ctrl-C.
#[test]
fn waiting_for_a_drain_shows_who_is_left_and_that_an_interrupted_one_continues() {
    let daemon = Operated::start();
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    let mut drain = daemon.command(&["drain", "--wait"]);
    let mut drain = drain.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(drain.stderr.take().expect("stderr")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    let left = "still draining, connections left: 1 (127.0.0.1 1), locks held: 1";
    assert_eq!(next(), format!("poolcounter: {left}"));
    rustix::process::kill_process(Pid::from_child(&drain), Signal::INT).expect("kill");
    assert_eq!(next(), "poolcounter: interrupted; that ends no drain (undrain does)");
    let status = wait_for_exit(&mut drain);
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
    let answer = daemon.poolcounter(&["undrain"]).stdout;
    assert!(answer.starts_with("OK listening on "), "{answer}");
}

/// nohup(1) ignores SIGHUP; a script that must not be interrupted ignores all.
#[test]
fn ignored_signals_end_no_wait_for_a_drain() {
    let ignores_all = "trap '' HUP INT QUIT TERM; exec \"$@\"";
    for before in [&["nohup"][..], &["sh", "-c", ignores_all, "sh"]] {
        let mut daemon = Operated::start();
        let path = daemon.path();
        let mut client = daemon.server.connect();
        client.exchange("ACQ4ME k 1 1 0", "LOCKED");
        let drain = ["drain", "--wait", "--control-socket", &path];
        let mut drain = launched(before, binary(), &drain);
        let mut drain = drain.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("start");
        daemon.server.log.wait_for("asks: DRAINED");
        kill_process(Pid::from_child(&drain), Signal::HUP).expect("kill");
        client.exchange("RELEASE", "RELEASED");
        client.shut_writing();
        assert_eq!(daemon.server.wait_for_exit().code(), Some(75), "{before:?}");
        assert_eq!(wait_for_exit(&mut drain).code(), Some(0), "{before:?}");
    }
}

/// The signal arrives between the calls that install the handlers.
#[test]
fn a_signal_at_the_start_of_a_wait_for_a_drain_ends_it() {
    if !can_inject() {
        return;
    }
    for call in ["rt_sigaction", "sendto", "rt_sigprocmask"] {
        let daemon = Operated::start();
        let path = daemon.path();
        let mut client = daemon.server.connect();
        client.exchange("ACQ4ME k 1 1 0", "LOCKED");
        let drain = ["drain", "--wait", "--control-socket", &path];
        let mut drain = injected(&format!("{call}:delay_exit=50000"), binary(), &drain);
        let mut drain = drain.stdout(Stdio::null()).spawn().expect("strace");
        let status = format!("/proc/{}/status", drain.id());
        let catches_it = || {
            let status = std::fs::read_to_string(&status).expect("it is alive");
            let set = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a set");
            let set = u64::from_str_radix(set.trim(), 16).expect("a set");
            // Before, it is strace.
            status.starts_with("Name:\tpoolcounter\n") && set & 1 << (Signal::INT.as_raw() - 1) != 0
        };
        assert!(eventually(catches_it), "{call}");
        kill_process(Pid::from_child(&drain), Signal::INT).expect("kill");
        assert_eq!(wait_for_exit(&mut drain).signal(), Some(Signal::INT.as_raw()), "{call}");
    }
}

/// The daemon may have read the order, and execute it.
#[test]
fn an_order_without_an_answer_claims_nothing_about_the_daemon() {
    let place = Place::new();
    let path = place.path("c").display().to_string();
    let daemon = UnixListener::bind(&path).expect("a socket");
    let silent = "no answer within 0.1 seconds; the daemon may have executed the order";
    for (words, signal, said) in [
        (&["drain", "--wait"][..], Some(Signal::TERM), "answered; it may drain (undrain ends it)"),
        (&["drain", "--wait"], Some(Signal::QUIT), "answered; it may drain (undrain ends it)"),
        (&["drain", "--wait", "--timeout", "0.1"], None, silent),
        (&["undrain", "--timeout", "0.1"], None, silent),
        (&["free", "--key", "k", "--timeout", "0.1"], None, silent),
    ] {
        let mut order = poolcounter("", &[words, &["--control-socket", &path]].concat());
        let mut order = order.stderr(Stdio::piped()).spawn().expect("start");
        let (operator, _) = daemon.accept().expect("an operator");
        let mut line = String::new();
        BufReader::new(&operator).read_line(&mut line).expect("the order");
        if let Some(signal) = signal {
            kill_process(Pid::from_child(&order), signal).expect("a signal");
        }
        let status = wait_for_exit(&mut order);
        assert_eq!(status.signal(), signal.map(Signal::as_raw), "{words:?}");
        assert_eq!(status.code(), signal.is_none().then_some(75), "{words:?}");
        let mut stderr = String::new();
        order.stderr.take().expect("stderr").read_to_string(&mut stderr).expect("text");
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    }
}

/// The daemon ends by a signal, not by the drain.
#[test]
fn waiting_for_a_drain_ends_when_the_daemon_is_stopped() {
    let mut wait = Wait::begin(&[]);
    wait.daemon.server.signal(Signal::TERM);
    wait.daemon.server.wait_for_exit();
    assert_eq!(wait.end().0, Some(0));
}

#[test]
fn waiting_for_a_drain_survives_a_hot_restart() {
    let mut wait = Wait::begin(&[]);
    for _ in 0..2 {
        restart(&wait.daemon.server);
    }
    // Without a control socket the daemon can't be asked, but its process is still
    // visible.
    let closes = r#"RESTART ["-l","127.0.0.1","-p","0","--control=none"]"#;
    assert_eq!(wait.daemon.poolcounter(&["control", closes]).code, Some(0));
    wait.client.settle();
    assert!(wait.waiting.try_wait().expect("a child").is_none());
    wait.client.shut_writing();
    assert_eq!(wait.end().0, Some(0));
}

/// The daemon accepts its connection in the turn whose end executes the hot restart.
#[test]
fn waiting_for_a_drain_survives_a_hot_restart_in_the_same_turn() {
    let mut daemon = Operated::start();
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    daemon.place.install_delayed();
    daemon.place.stop_after_trial(&daemon.server);
    let mut drain = daemon.command(&["drain", "--wait"]);
    let mut drain = drain.stdout(Stdio::null()).spawn().expect("the command");
    wait_for_unaccepted(&daemon.path());
    daemon.server.signal(Signal::CONT);
    daemon.server.log.wait_for(CONTINUED);
    daemon.server.log.wait_for("draining: no new clients");
    client.exchange("RELEASE", "RELEASED");
    drop(client);
    assert_eq!(wait_for_exit(&mut drain).code(), Some(0));
    assert_eq!(daemon.server.wait_for_exit().code(), Some(75));
}

/// The daemon closes the first connection before it reads the order.
#[test]
fn a_drain_is_ordered_again_until_it_is_executed() {
    let place = Place::new();
    let path = place.path("c").display().to_string();
    let daemon = UnixListener::bind(&path).expect("bind");
    let drain = std::thread::spawn(move || order(&path, &["drain", "--wait", "1"]));
    drop(daemon.accept().expect("a connection"));
    for (ordered, answer) in
        [("DRAIN\nDRAINED\n", "OK draining, connections left: 1\n"), ("DRAINED\n", "OK drained\n")]
    {
        let (mut operator, _) = daemon.accept().expect("a connection");
        let mut read = vec![0; ordered.len()];
        operator.read_exact(&mut read).expect("an order");
        assert_eq!(String::from_utf8_lossy(&read), ordered);
        operator.write_all(answer.as_bytes()).expect("send");
    }
    // This process, which plays the daemon, has not ended.
    let drain = drain.join().expect("the command");
    assert_eq!((drain.code, drain.stderr.as_str()), (Some(1), ""));
    assert!(drain.stdout.starts_with("OK draining, "), "{}", drain.stdout);
}

/// A daemon that hangs: the order is given up, and not carried out when it continues.
#[test]
fn an_order_that_is_given_up_is_not_executed() {
    let daemon = Operated::start();
    for given_up in [&["control", "LOG", "warn"][..], &["drain"], &["drain", "--wait"]] {
        daemon.server.signal(Signal::STOP);
        let late = daemon.poolcounter(&[given_up, &["--timeout", "1"]].concat());
        daemon.server.signal(Signal::CONT);
        assert_eq!((late.code, late.stdout.as_str()), (Some(75), ""), "{given_up:?}");
        let log = daemon.poolcounter(&["control", "LOG"]).stdout;
        assert_eq!(log, "OK log filter: info\n", "{given_up:?}");
    }
    assert_eq!(daemon.server.log.count("draining: "), 0);
}

/// For the first process of a container the kernel has no default actions.
#[test]
fn a_signal_ends_a_wait_that_is_the_first_process_of_a_container() {
    let namespace = ["-Urpf", "--kill-child", "--mount-proc"];
    if Command::new("unshare").args(namespace).arg("true").status().is_ok_and(|s| !s.success()) {
        return skip("no user and pid namespaces");
    }
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let daemon = Operated::start();
        let path = daemon.path();
        let mut client = daemon.server.connect();
        client.exchange("ACQ4ME k 1 1 0", "LOCKED");
        let mut inside = Command::new("unshare");
        inside.args(namespace).arg(binary()).args(["drain", "--wait", "--control-socket", &path]);
        let mut inside = inside.stdout(Stdio::null()).spawn().expect("unshare, of util-linux");
        daemon.server.log.wait_for("asks: DRAINED");
        let [first] = children(inside.id())[..] else { panic!("one child") };
        kill_process(Pid::from_raw(first as i32).expect("a process"), signal).expect("a signal");
        assert_eq!(wait_for_exit(&mut inside).code(), Some(128 + signal.as_raw()));
    }
}

/// The kernel reports its process as 0 then: only the connection tells when it ends.
#[test]
fn waiting_for_a_drain_of_a_daemon_outside_of_this_pid_namespace() {
    let mut daemon = Operated::start();
    let path = daemon.path();
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    let drain = ["drain", "--wait", "--control-socket", &path];
    let namespace = ["-Urpf", "--kill-child", "--mount-proc"];
    if Command::new("unshare").args(namespace).arg("true").status().is_ok_and(|s| !s.success()) {
        return skip("no user and pid namespaces");
    }
    let mut inside = Command::new("unshare");
    inside.args(namespace).arg(binary()).args(drain).stdout(Stdio::piped());
    let mut inside = inside.spawn().expect("unshare, of util-linux");
    daemon.server.log.wait_for("asks: DRAINED");
    client.exchange("RELEASE", "RELEASED");
    drop(client);
    assert_eq!(daemon.server.wait_for_exit().code(), Some(75));
    assert_eq!(wait_for_exit(&mut inside).code(), Some(0));
    let mut printed = String::new();
    inside.stdout.take().expect("stdout").read_to_string(&mut printed).expect("text");
    assert!(printed.ends_with("OK ended\n"), "{printed}");
}

/// The kernel has room for 108 bytes, without an end.
#[test]
fn the_longest_path_of_a_socket_is_served() {
    let place = Place::with_daemon();
    let directory = place.path("").display().to_string();
    let path = format!("{directory}{}", "x".repeat(108 - directory.len()));
    let server = place.start(&["--control", &path]);
    for arguments in [&["control", "LOG"][..], &["undrain"], &["rules"]] {
        let output = order(&path, arguments);
        assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.stderr);
    }
    for words in [&["--check", &path][..], &["--reload", "--control", &path]] {
        let answered = finish(&mut daemon_command(words));
        assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    }
    let drained = order(&path, &["drain", "--wait"]);
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    drop(server);
}

/// A script's variable that is not set: without it, the order would mean something else.
#[test]
fn empty_arguments_are_refused() {
    for arguments in [
        &["free", "--key", ""][..],
        &["free", "--host", ""],
        &["free", "--client", ""],
        &["free", "--key", "k", "--max", ""],
        &["control", "LOG", ""],
        &["control", ""],
        &["rule", "set", "", "*"],
        &["rule", "set", "a", ""],
        &["rule", "set", "a", "*", ""],
        &["rule", "set", "a", "*", "deny", "--for", ""],
        &["rule", "off", ""],
        &["rule", "reset", ""],
        &["drain", "--wait", ""],
        &["undrain", "--timeout", ""],
        &["rules", "--control-socket", ""],
        &["run", "", "--", "true"],
        &["run", "--", "", "--", "true"],
        &["run", "k", "-t", "", "--", "true"],
        &["key", ""],
        &["which", ""],
        &["which", "k", "--hash-slots", ""],
        &["keys", ""],
        &["top", "--interval", ""],
        &["stats", "-s", ""],
    ] {
        let output = ask("", arguments);
        assert_eq!((output.code, output.stdout.as_str()), (Some(64), ""), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let check = ask("", &["check", "--waiting", ""]);
    assert_eq!(check.code, Some(3), "{}", check.stderr);
}

#[test]
fn waiting_for_a_drain_ends_at_its_timeout() {
    let wait = Wait::begin(&["1"]);
    let printed = "OK draining, connections left: 1\nERROR still draining\n".to_owned();
    assert_eq!(wait.end(), (Some(1), printed));
}

#[test]
fn waiting_for_a_drain_ends_with_undrain() {
    let mut wait = Wait::begin(&[]);
    assert_eq!(wait.daemon.poolcounter(&["undrain"]).code, Some(0));
    wait.client.settle();
    let printed = "OK draining, connections left: 1\nERROR not draining\n".to_owned();
    assert_eq!(wait.end(), (Some(2), printed));
    let nowhere = order("/nowhere/control.sock", &["drain", "--wait", "1"]);
    assert_eq!(nowhere.code, Some(75));
}

/// Another process at the same path is another daemon, which does not drain.
#[test]
fn waiting_for_a_drain_ends_when_another_daemon_takes_the_path() {
    let mut wait = Wait::begin(&[]);
    // A killed daemon does not remove its socket file.
    wait.daemon.server.signal(Signal::KILL);
    wait.daemon.server.wait_for_exit();
    let _next = wait.daemon.place.start(&["--control", &wait.daemon.path()]);
    assert_eq!(wait.end().0, Some(0));
}
