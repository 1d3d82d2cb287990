//! `poolcounter run`, seen from outside.

use crate::command::{
    ask, binary, first_server, full, key_of, key_of_first, poolcounter, run, servers, shell, start,
    stderr_line, until_it_reports,
};
use crate::support::denied_calls::injected;
use crate::support::restart::can_inject;
use crate::support::stopwatch::Stopwatch;
use crate::support::{Server, eventually, finish, is_alive, launched, wait_for_exit};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Reads the first line that the command writes.
pub(crate) fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

/// The rest of its standard error, up to its end.
pub(crate) fn complaint(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut text).expect("text");
    text
}

pub(crate) fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().expect("a pid")).expect("a pid")
}

/// A command that prints its pid, then runs until its standard input ends.
const LASTING: [&str; 4] = ["--", "sh", "-c", "echo $$; exec cat"];

pub(crate) fn lasting(server: &Server, options: &[&str]) -> (Child, Pid) {
    let mut child = start(server, &[options, &LASTING].concat());
    let command = pid(&first_line(&mut child));
    (child, command)
}

/// Closes its standard input and waits for its end.
pub(crate) fn end(mut child: Child) -> std::process::ExitStatus {
    drop(child.stdin.take());
    wait_for_exit(&mut child)
}

#[track_caller]
fn becomes_free(server: &Server) {
    assert!(eventually(|| server.counter("processing_workers") == 0), "the lock is still held");
}

/// Without it, a job that did not run looks like one that printed nothing.
#[test]
fn verbose_says_whether_another_client_did_the_work() {
    let server = Server::start();
    let alone = run(&server, &["--any", "-v", "k", "--", "echo", "ran"]);
    assert_eq!((alone.code, alone.stdout.as_str()), (Some(0), "ran\n"));
    assert!(alone.stderr.contains("k: no other client did the work\n"), "{}", alone.stderr);
    let (holder, _) = lasting(&server, &["--any", "k"]);
    let mut waiter = start(&server, &["--any", "-v", "k", "--", "echo", "ran"]);
    assert!(eventually(|| server.counter("waiting_workers") == 1));
    assert_eq!(end(holder).code(), Some(0));
    assert_eq!(wait_for_exit(&mut waiter).code(), Some(0));
    let said = complaint(&mut waiter);
    assert!(said.ends_with("k: another client did the work; \"echo\" was not run\n"), "{said}");
}

#[test]
fn the_lock_is_held_while_the_command_runs() {
    for server in servers() {
        let (child, _) = lasting(&server, &["k"]);
        assert_eq!(server.counter("processing_workers"), 1);
        let refused = run(&server, &["-t", "0", "k", "--", "echo", "ran"]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
        let stderr = refused.stderr;
        assert!(stderr.starts_with("poolcounter: k: locked"), "{stderr}");
        assert!(stderr.ends_with("; \"echo\" was not run\n"), "{stderr}");
        assert_eq!(end(child).code(), Some(0));
        assert_eq!(server.counter("processing_workers"), 0);
        assert_eq!(server.counter("total_releases"), 1);
        assert_eq!(run(&server, &["-t", "0", "k", "--", "echo", "ran"]).stdout, "ran\n");
    }
}

#[test]
fn the_exit_status_is_the_commands_own() {
    let server = Server::start();
    for status in [0, 1, 42, 255] {
        let line = format!("exit {status}");
        assert_eq!(run(&server, &["k", "--", "sh", "-c", &line]).code, Some(status));
    }
    let missing = run(&server, &["k", "--", "/does/not/exist"]);
    assert_eq!(missing.code, Some(69), "{}", missing.stderr);
    assert!(missing.stderr.contains("can't execute \"/does/not/exist\""), "{}", missing.stderr);
    assert_eq!(server.counter("processing_workers"), 0);
}

/// The command ends between the calls with which `run` waits for it.
#[test]
fn the_end_of_the_command_is_noticed_whenever_it_comes() {
    if !can_inject() {
        return;
    }
    let server = Server::start();
    let name = server.address().to_string();
    for call in ["wait4", "read", "?poll,?ppoll"] {
        for delay in ["delay_enter", "delay_exit"] {
            let fault = format!("{call}:{delay}=100000");
            let words = ["-s", &name, "run", "k", "--", "sh", "-c", "exit 3"];
            let done = finish(&mut injected(&fault, binary(), &words));
            assert_eq!((done.code, &done.stderr[..]), (Some(3), ""), "{fault}");
        }
    }
}

/// Ctrl-C reaches only `run` then.
#[test]
fn a_signal_before_the_command_is_there_starts_nothing() {
    if !can_inject() {
        return;
    }
    let server = Server::start();
    let name = server.address().to_string();
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        let words = ["-s", &name, "run", "k", "--", "echo", "it ran"];
        let fault = format!("signalfd4:signal={}", signal.as_raw());
        let mut run = injected(&fault, binary(), &words);
        let mut run = run.stdout(Stdio::piped()).spawn().expect("strace");
        assert_eq!(wait_for_exit(&mut run).signal(), Some(signal.as_raw()));
        let mut stdout = String::new();
        run.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("text");
        assert_eq!(stdout, "", "{signal:?}");
    }
    becomes_free(&server);
}

#[test]
fn each_refusal_has_its_status_and_line() {
    for server in servers() {
        let (child, _) = lasting(&server, &["k"]);
        let full = run(&server, &["-q", "1", "k", "--", "true"]);
        assert_eq!(full.code, Some(1));
        assert_eq!(full.stderr, "poolcounter: k: the queue is full; \"true\" was not run\n");
        for limits in [["-q", "1"], ["-t", "1"]] {
            let chosen = run(&server, &[&limits[..], &["-E", "99", "k", "--", "true"]].concat());
            assert_eq!(chosen.code, Some(99), "{limits:?}");
        }
        // Two holders at a time.
        assert_eq!(run(&server, &["-n", "2", "-t", "0", "k", "--", "true"]).code, Some(0));
        end(child);
    }
}

/// A missing key or a wrong option runs nothing; a value may directly follow its option.
#[test]
fn a_word_that_looks_like_an_option_is_not_a_key() {
    let server = Server::start();
    for wrong in [&["-t0"][..], &["--anny"], &["--tiemout=3"], &["-x", "k"], &["k", "-x"]] {
        let output = run(&server, &[wrong, &["--", "echo", "ran"]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (Some(64), ""), "{wrong:?}");
    }
    for right in [&["-t3"][..], &["-n2"], &["-q5"], &["-E0"], &["-n", "2", "-t5"]] {
        let output = run(&server, &[right, &["k", "--", "echo", "ran"]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), "ran\n"), "{right:?}");
    }
}

#[test]
fn without_a_server_it_fails_or_runs_without_a_lock() {
    let none = "127.0.0.1:1";
    let run = ["run", "--connect-timeout", "0.1"];
    let failed = ask(none, &[&run[..], &["k", "--", "echo", "ran"]].concat());
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(75), ""));
    assert!(failed.stderr.contains("127.0.0.1:1: Connection refused"), "{}", failed.stderr);
    let ran = ask(none, &[&run[..], &["--no-server", "run", "k", "--", "echo", "ran"]].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "ran\n"));
    assert!(ran.stderr.contains("without a lock"), "{}", ran.stderr);
    let wrong = ask("a:b:c", &["run", "k", "--", "true"]);
    assert_eq!(wrong.code, Some(64), "{}", wrong.stderr);
}

/// A server that refuses the connection may have given the lock to another client.
#[test]
fn a_server_that_refuses_the_client_does_not_count_as_missing() {
    for limit in [["--allow", "10.0.0.0/8"], ["--max-connections", "1"]] {
        let server = Server::start_with(&limit);
        let _first = std::net::TcpStream::connect(server.address()).expect("connected");
        let output = run(&server, &["--no-server", "run", "k", "--", "echo", "ran"]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(75), ""), "{limit:?}");
        assert!(output.stderr.contains("may not admit this host"), "{limit:?}: {}", output.stderr);
    }
}

/// A waiter with `--any` that is already in the queue.
fn waiter_for_anyone(server: &Server) -> Child {
    let waiter = start(server, &["--any", "k", "--", "echo", "ran"]);
    assert!(eventually(|| server.counter("waiting_workers") == 1), "it does not wait");
    waiter
}

#[test]
fn work_done_by_another_is_success() {
    for server in servers() {
        let (holder, _) = lasting(&server, &["--any", "k"]);
        let mut waiter = waiter_for_anyone(&server);
        end(holder);
        assert_eq!(wait_for_exit(&mut waiter).code(), Some(0));
        assert_eq!(first_line(&mut waiter), "", "it must not run");
    }
}

#[test]
fn failed_work_is_repeated_by_the_next_waiter() {
    for server in servers() {
        let mut holder =
            start(&server, &["--any", "k", "--", "sh", "-c", "echo x; read x; exit 3"]);
        first_line(&mut holder);
        let mut waiter = waiter_for_anyone(&server);
        assert_eq!(end(holder).code(), Some(3));
        assert_eq!(first_line(&mut waiter), "ran");
        assert_eq!(wait_for_exit(&mut waiter).code(), Some(0));
    }
}

#[test]
fn killing_it_kills_the_command() {
    for server in servers() {
        let (mut child, command) = lasting(&server, &["k"]);
        child.kill().expect("kill");
        wait_for_exit(&mut child);
        assert!(eventually(|| !is_alive(command)), "the command is still alive");
        becomes_free(&server);
    }
}

#[test]
fn a_command_that_is_killed_frees_the_lock() {
    for server in servers() {
        let (mut child, command) = lasting(&server, &["k"]);
        kill_process(command, Signal::KILL).expect("kill");
        let status = wait_for_exit(&mut child);
        assert_eq!(status.signal(), Some(9), "the command's own signal");
        becomes_free(&server);
    }
}

#[test]
fn processes_that_the_command_leaves_do_not_keep_the_lock() {
    let server = Server::start();
    let line = "sleep 60 > /dev/null 2>&1 < /dev/null & echo $!";
    for policy in ["warn", "kill"] {
        let mut child = start(&server, &["--on-lost", policy, "k", "--", "sh", "-c", line]);
        let left = pid(&first_line(&mut child));
        assert_eq!(wait_for_exit(&mut child).code(), Some(0));
        assert_eq!(server.counter("processing_workers"), 0);
        kill_process(left, Signal::KILL).expect("it is there");
    }
}

#[test]
fn signals_sent_to_it_are_passed_on() {
    let server = Server::start();
    let script = "trap 'echo usr1; kill $!' USR1; trap 'echo term; exit 5' TERM; \
                  sleep 60 & echo $$; while :; do wait; done";
    let mut child = start(&server, &["k", "--", "sh", "-c", script]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    lines.next().expect("a pid").expect("a line");
    for (signal, expected) in [(Signal::USR1, "usr1"), (Signal::TERM, "term")] {
        kill_process(Pid::from_child(&child), signal).expect("a signal");
        assert_eq!(lines.next().expect("a line").expect("text"), expected);
    }
    assert_eq!(wait_for_exit(&mut child).code(), Some(5));
}

/// Except CHLD, by which the kernel reports the command's end, and the signals that stop
/// a job, which stop `run`.
#[test]
fn signals_that_do_not_kill_or_stop_it_are_passed_on() {
    let server = Server::start();
    let stops = [Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU];
    let not_passed_on = [&stops[..], &[Signal::KILL, Signal::CHILD]].concat();
    let all = (1..32).filter_map(Signal::from_named_raw).filter(|s| !not_passed_on.contains(s));
    // A shell can't trap what was ignored when it started, as a background job ignores INT.
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let ignored = ignored_signals(&status);
    let all: Vec<Signal> = all.filter(|s| ignored & 1 << (s.as_raw() - 1) == 0).collect();
    assert!(all.len() > 20, "{all:?}");
    let numbers: Vec<String> = all.iter().map(|signal| signal.as_raw().to_string()).collect();
    let script = "for n in $1; do trap \"echo $n\" $n; done; sleep 60 > /dev/null 2>&1 & \
                  echo ready; while kill -0 $!; do wait; done";
    let mut child =
        start(&server, &["k", "--", "bash", "-c", script, "script", &numbers.join(" ")]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert_eq!(line(), "ready");
    for signal in all {
        kill_process(Pid::from_child(&child), signal).expect("a signal");
        assert_eq!(line(), signal.as_raw().to_string());
    }
    child.kill().expect("kill");
    wait_for_exit(&mut child);
}

/// A write to a pipe without a reader raises SIGPIPE.
#[test]
fn its_own_broken_pipe_does_not_end_the_command() {
    let server = Server::start();
    let (mut child, _) = lasting(&server, &["k"]);
    drop(child.stderr.take());
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    drop(server);
    // Once `run` has tried to report the loss, the command still echoes its input.
    until_it_reports(&child);
    child.stdin.as_mut().expect("a pipe").write_all(b"alive\n").expect("written");
    stdout.read_line(&mut line).expect("a line");
    assert_eq!(line, "alive\n");
    assert_eq!(end(child).code(), Some(0));
}

#[test]
fn the_command_inherits_the_signal_mask() {
    let server = Server::start();
    let mask = "grep -E 'SigBlk|SigIgn' /proc/self/status";
    let with = run(&server, &["k", "--", "sh", "-c", mask]);
    let without = finish(&mut crate::support::launched(&[], "sh", &["-c", mask]));
    assert_eq!(with.stdout, without.stdout);
}

/// A bit for each signal that is ignored, the lowest for number 1.
fn ignored_signals(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    u64::from_str_radix(line.expect("SigIgn").trim(), 16).expect("a mask")
}

#[test]
fn the_command_inherits_ignored_signals() {
    let perl = ["perl", "-e", "$SIG{HUP} = $SIG{CHLD} = 'IGNORE'; exec @ARGV"];
    let look = ["grep", "SigIgn", "/proc/self/status"];
    let options = ["run", "--connect-timeout", "0.1", "--no-server", "run", "k", "--"];
    let run = [&["-s", "127.0.0.1:1"], &options[..], &look[..]].concat();
    let with = finish(&mut launched(&perl, crate::command::binary(), &run));
    let without = finish(&mut launched(&perl, look[0], &look[1..]));
    for output in [without, with] {
        const HUP_AND_CHLD: u64 = 0x10001;
        let ignored = ignored_signals(&output.stdout);
        assert_eq!(ignored & HUP_AND_CHLD, HUP_AND_CHLD, "{}", output.stderr);
    }
}

#[test]
fn a_lost_lock_is_reported_and_the_command_continues() {
    for server in servers() {
        let (mut child, _) = lasting(&server, &["k"]);
        drop(server);
        let line = stderr_line(&mut child);
        assert!(line.contains("the lock; the command continues"), "{line}");
        assert_eq!(end(child).code(), Some(0));
    }
}

/// It gives the lock to nobody, so there is nothing to say, nor to wait for.
#[test]
fn a_daemon_that_hangs_while_the_command_ends_causes_no_complaint() {
    let server = Server::start();
    let (mut run, _) = lasting(&server, &["k"]);
    server.signal(Signal::STOP);
    drop(run.stdin.take());
    assert_eq!(wait_for_exit(&mut run).code(), Some(0));
    assert_eq!(complaint(&mut run), "");
    server.signal(Signal::CONT);
}

#[test]
fn a_run_that_asks_for_the_key_that_has_started_it_says_so() {
    let server = Server::start();
    let inner = "\"$0\" run $1 k -- true";
    for (options, line) in [
        ("-t1", "poolcounter: k: a run that holds this key"),
        ("-t1 --quiet", ""),
        // It does not wait.
        ("-t0", "poolcounter: k: locked"),
    ] {
        let program = crate::command::binary().to_str().expect("text");
        let output = run(&server, &["k", "--", "sh", "-c", inner, program, options]);
        assert!(output.stderr.starts_with(line), "{}", output.stderr);
        assert_eq!(output.stderr.is_empty(), line.is_empty(), "{}", output.stderr);
    }
}

#[test]
fn a_key_goes_to_its_own_server_unless_that_is_down() {
    let (one, other) = (Server::start(), Server::start());
    let list = format!("{},{}", one.address(), other.address());
    let mut asked_one = 0;
    for number in 0..20 {
        let key = format!("key {number}");
        asked_one += u64::from(first_server(&list, &key) == one.address().to_string());
        assert_eq!(ask(&list, &["run", &key, "--", "true"]).code, Some(0));
        assert_eq!(one.counter("total_acquired"), asked_one, "{key}");
    }
    assert!(asked_one > 0 && asked_one < 20);
    drop(one);
    for number in 0..5 {
        let key = format!("key {number}");
        let options = ["run", "--fallback", "--connect-timeout", "0.1"];
        let output = ask(&list, &[&options[..], &[&key, "--", "true"]].concat());
        assert_eq!(output.code, Some(0), "{}", output.stderr);
    }
    assert_eq!(other.counter("total_acquired"), 20 - asked_one + 5);
}

/// A drain, or a server that is briefly unreachable, causes no second run.
#[test]
fn without_a_fallback_no_other_server_is_asked() {
    let (own, other) = (Server::start(), Server::start());
    let list = format!("{},{}", own.address(), other.address());
    let key = key_of([&own, &other]);
    let run = |options: &[&str]| {
        let command = [&key, "--", "echo", "ran"];
        finish(&mut poolcounter(&list, &[&["run", "-t", "0"], options, &command].concat()))
    };
    let (holder, _) = lasting(&own, &[&key]);
    assert_eq!(run(&[]).code, Some(1));
    // The server takes no new clients, and the holder keeps its lock.
    own.signal(Signal::QUIT);
    assert!(eventually(|| std::net::TcpStream::connect(own.address()).is_err()));
    // Not as if somebody else did it.
    for options in [&[][..], &["-E", "0", "--quiet"]] {
        let output = run(options);
        assert_eq!((output.code, output.stdout.as_str()), (Some(75), ""), "{}", output.stderr);
        assert!(output.stderr.contains("Connection refused"), "{}", output.stderr);
        assert!(!output.stderr.contains(&other.address().to_string()), "{}", output.stderr);
    }
    assert_eq!(run(&["--no-server", "run"]).stdout, "ran\n");
    let output = run(&["--fallback", "-E", "0", "--quiet"]);
    assert_eq!(output.stdout, "ran\n");
    let gave = format!("{key}: {} gave the lock\n", other.address());
    assert!(output.stderr.ends_with(&gave), "{}", output.stderr);
    assert_eq!(other.counter("total_acquired"), 1);
    end(holder);
}

#[test]
fn the_time_to_connect_can_be_chosen() {
    let (full, _queued) = full();
    let address = full.local_addr().expect("an address");
    let options = ["run", "--connect-timeout", "0.4", "k", "--", "echo", "ran"];
    let trying = Stopwatch::start();
    let output = ask(&address.to_string(), &options);
    assert_eq!((output.code, output.stdout.as_str()), (Some(75), ""), "{}", output.stderr);
    trying.at_least(Duration::from_millis(400));
    // With a time for the wait, it is that, but at least two seconds.
    for (time, s) in [("0", 2), ("3", 3)] {
        let trying = Stopwatch::start();
        let output = ask(&address.to_string(), &["run", "-t", time, "k", "--", "echo", "ran"]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(75), ""), "{}", output.stderr);
        trying.at_least(Duration::from_secs(s));
    }
    for wrong in ["0", "-1", "soon"] {
        let options = ["run", "--connect-timeout", wrong, "k", "--", "true"];
        assert_eq!(ask("127.0.0.1:1", &options).code, Some(64), "{wrong}");
    }
}

#[test]
fn the_commands_environment_names_its_lock_and_all_servers() {
    let server = Server::start();
    let look = ["--", "sh", "-c", "echo \"${POOLCOUNTER_KEY-none}, $POOLCOUNTER_SERVERS\""];
    let asked = |servers: &str, options: &[&str]| {
        let mut command = poolcounter(servers, &[&["run"], options, &look].concat());
        // As set by an outer run.
        finish(command.env("POOLCOUNTER_KEY", "outer")).stdout
    };
    let address = server.address().to_string();
    assert_eq!(asked(&address, &["a b"]), format!("a b, {address}\n"));
    let options = ["-s", "127.0.0.1:1", "-s", "127.0.0.1:2,127.0.0.1:3", "--no-server", "run"];
    let named = asked(&address, &[&options[..], &["--connect-timeout", "0.1", "k"]].concat());
    assert_eq!(named, "none, 127.0.0.1:1 127.0.0.1:2 127.0.0.1:3\n");
}

/// Whichever server has given the outer lock, and also without one.
#[test]
fn a_run_within_a_run_asks_the_keys_own_server() {
    let (own, other) = (Server::start(), Server::start());
    let names = [&own, &other].map(|server| server.address().to_string());
    let key = key_of_first(&names);
    let (holder, _) = lasting(&own, &[&key]);
    let list = names.join(",");
    let outer = key_of_first(&[names[1].clone(), names[0].clone()]);
    for options in ["", "--connect-timeout 0.1 --no-server run"] {
        let line = format!(
            "unset POOLCOUNTER_SERVERS; \"$0\" -s {list} run {options} '{outer}' -- \
             \"$0\" run -t 0 '{key}' -- echo ran"
        );
        let output = shell("", &line);
        let said = (output.code, output.stdout.as_str());
        assert_eq!(said, (Some(1), ""), "{options}: {}", output.stderr);
    }
    end(holder);
}
