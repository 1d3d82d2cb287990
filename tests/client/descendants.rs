//! The processes that a command has started, and how they end when the lock is lost.

use crate::command::{FOR_EVER, binary, start};
use crate::running::{complaint, first_line, pid};
use crate::support::stopwatch::Stopwatch;
use crate::support::{
    PATIENCE, Server, eventually, is_alive, launched, skip, wait_for_exit, wait_readable,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Starts `run` with this shell script; returns the pids that it prints first, one per
/// line.
fn started(server: &Server, options: &[&str], script: &str, count: usize) -> (Child, Vec<Pid>) {
    let mut run = start(server, &[options, &["k", "--", "sh", "-c", script]].concat());
    let pids = read_pids(&mut run, count);
    (run, pids)
}

/// Reads the next `count` lines, each a pid.
fn read_pids(run: &mut Child, count: usize) -> Vec<Pid> {
    let lines = BufReader::new(run.stdout.as_mut().expect("a pipe")).lines();
    lines.take(count).map(|line| pid(line.expect("a line").trim())).collect()
}

/// A child, an orphan with a session of its own, and the command itself.
const FAMILY: &str = "sleep 1000 & echo $!; setsid -f sh -c 'echo $$; exec sleep 1000'; \
                      sleep 1000";

#[test]
fn a_lost_lock_stops_all_that_the_command_has_started() {
    let server = Server::start();
    // In the test's process group, as another job of a script.
    let mut neighbour = launched(&[], "sleep", &["1000"]).spawn().expect("sleep");
    let (mut run, family) = started(&server, &["--on-lost", "kill"], FAMILY, 2);
    drop(server);
    assert_eq!(wait_for_exit(&mut run).code(), Some(74));
    let living: Vec<&Pid> = family.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(living.is_empty(), "{living:?} of {family:?}");
    assert!(complaint(&mut run).contains("stopping the command"));
    assert!(
        neighbour.try_wait().expect("a child").is_none(),
        "the test's process group was signalled"
    );
    neighbour.kill().expect("kill");
    wait_for_exit(&mut neighbour);
}

#[test]
fn processes_that_ignore_sigterm_are_killed_after_a_while() {
    let server = Server::start();
    // The command ends by SIGTERM; a child and an orphan don't.
    let ignores_term = "trap '' TERM; echo $$; while :; do sleep 0.1; done";
    let script = format!(
        "sh -c \"{0}\" & setsid -f sh -c \"{0}\"; exec sleep 1000",
        ignores_term.replace('$', "\\$")
    );
    let options = ["--on-lost", "kill", "--kill-after", "1"];
    let (mut run, family) = started(&server, &options, &script, 2);
    let since_loss = Stopwatch::start();
    drop(server);
    assert_eq!(wait_for_exit(&mut run).code(), Some(74));
    since_loss.at_least(Duration::from_secs(1));
    assert!(family.iter().all(|&pid| !is_alive(pid)), "{family:?}");
}

/// Each process starts the next one and ends, so that a look through /proc may miss both.
#[test]
fn a_process_that_starts_another_and_ends_does_not_escape() {
    let script = "perl -e '$SIG{TERM} = q(IGNORE); syswrite STDOUT, qq(started\\n); \
                  for (1..100000) { fork and exit; select undef, undef, undef, rand .002 }' & \
                  exec sleep 1000";
    for _ in 0..5 {
        let server = Server::start();
        let mut run = start(&server, &["--on-lost", "kill", "-k0", "k", "--", "sh", "-c", script]);
        assert_eq!(first_line(&mut run), "started");
        drop(server);
        assert_eq!(wait_for_exit(&mut run).code(), Some(74));
        // All that is left has it open.
        let stdout = run.stdout.take().expect("a pipe");
        assert!(wait_readable(&stdout, PATIENCE), "one has escaped");
    }
}

/// A script's trap may start programs.
#[test]
fn programs_that_clean_up_are_not_stopped() {
    // The child prints its own pid: until its exec, it has the trap too.
    let script = "trap 'sh -c \"echo cleaned\"; exit 0' TERM; \
                  sh -c 'echo $$; exec sleep 1000' & while :; do sleep 0.01; done";
    for _ in 0..5 {
        let server = Server::start();
        let (mut run, _) = started(&server, &["--on-lost", "kill", "-k", FOR_EVER], script, 1);
        drop(server);
        assert_eq!(first_line(&mut run), "cleaned");
        assert_eq!(wait_for_exit(&mut run).code(), Some(74));
        assert!(!complaint(&mut run).contains("may not"));
    }
}

/// Starts a shell that runs `before` and then execs `run`; returns the pids that both
/// print.
fn started_in_place(server: &Server, before: &str, count: usize) -> (Child, Vec<Pid>) {
    let words = ["run", "--on-lost", "kill", "k", "--", "sh", "-c", "echo $$; sleep 1000"];
    let line = format!("{before} exec \"$@\"");
    let mut run = launched(&["sh", "-c", &line, "sh"], binary(), &words);
    run.env("POOLCOUNTER_SERVERS", server.address().to_string()).stdout(Stdio::piped());
    let mut run = run.spawn().expect("sh");
    let pids = read_pids(&mut run, count);
    (run, pids)
}

/// Children of the shell that has exec'd `poolcounter run`.
#[test]
fn a_lost_lock_does_not_stop_earlier_children() {
    let server = Server::start();
    let (mut run, pids) = started_in_place(&server, "sleep 1000 > /dev/null & echo $!;", 2);
    drop(server);
    assert_eq!(wait_for_exit(&mut run).code(), Some(74));
    kill_process(pids[0], Signal::KILL).expect("it is there");
}

/// Orphans of a program that ran before are not the command's.
#[test]
fn a_lost_lock_does_not_stop_orphans_of_earlier_children() {
    let server = Server::start();
    let mark = std::env::temp_dir().join(format!("pool-before-{}", std::process::id()));
    let before = format!(
        "sh -c 'sleep 1000 > /dev/null & echo $!; echo $$; : > {0}; exec sleep 1000' & \
         until [ -e {0} ]; do sleep 0.01; done;",
        mark.display()
    );
    let (mut run, pids) = started_in_place(&server, &before, 3);
    std::fs::remove_file(&mark).expect("remove");
    kill_process(pids[1], Signal::KILL).expect("it is there");
    let parent = format!("PPid:\t{}\n", run.id());
    let status = || std::fs::read_to_string(format!("/proc/{}/status", pids[0].as_raw_nonzero()));
    assert!(eventually(|| status().is_ok_and(|status| status.contains(&parent))), "no orphan");
    drop(server);
    assert_eq!(wait_for_exit(&mut run).code(), Some(74));
    kill_process(pids[0], Signal::KILL).expect("it is there");
}

/// `run` waits for processes that the command left, but a signal ends the wait.
#[test]
fn a_signal_ends_the_wait_for_left_processes() {
    let server = Server::start();
    let script = "echo $$; sh -c \"trap '' TERM; echo \\$\\$; while :; do sleep 0.1; done\" & \
                  exec sleep 1000";
    let options = ["--on-lost", "kill", "--kill-after", FOR_EVER];
    let (mut run, family) = started(&server, &options, script, 2);
    let [command, orphan] = family[..] else { panic!("{family:?}") };
    drop(server);
    // Until the command is reaped, signals go to it.
    let process = format!("/proc/{}", command.as_raw_nonzero());
    assert!(eventually(|| !std::path::Path::new(&process).exists()), "the command is still alive");
    kill_process(Pid::from_child(&run), Signal::TERM).expect("a signal");
    assert_eq!(wait_for_exit(&mut run).code(), Some(74));
    assert!(!is_alive(orphan));
}

#[test]
fn a_signal_is_for_the_command_alone() {
    let server = Server::start();
    let script = "trap 'exit 5' TERM; sleep 1000 > /dev/null 2>&1 & echo $!; wait";
    let (mut run, family) = started(&server, &["--on-lost", "kill"], script, 1);
    kill_process(Pid::from_child(&run), Signal::TERM).expect("a signal");
    assert_eq!(wait_for_exit(&mut run).code(), Some(5));
    assert!(is_alive(family[0]));
    kill_process(family[0], Signal::KILL).expect("it is there");
}

/// Ends when an orphan that has ended is reaped.
const REAPED: &str = "p=$(setsid -f sh -c 'echo $$'); \
                      while [ -e /proc/$p ]; do sleep 0.01; done; echo reaped";

#[test]
fn orphans_that_end_are_reaped() {
    let server = Server::start();
    let output =
        crate::command::run(&server, &["--on-lost", "kill", "k", "--", "sh", "-c", REAPED]);
    assert_eq!(output.stdout, "reaped\n");
}

/// As in a container.
#[test]
fn the_first_process_reaps_orphans() {
    if !rustix::process::geteuid().is_root() {
        return skip("PID namespaces need root");
    }
    let server = Server::start();
    let namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut run = launched(&namespace, binary(), &["run", "k", "--", "sh", "-c", REAPED]);
    run.env("POOLCOUNTER_SERVERS", server.address().to_string());
    run.stdout(Stdio::piped());
    let mut run = run.spawn().expect("unshare, of util-linux");
    if !eventually(|| server.counter("total_acquired") == 1) {
        run.kill().expect("kill");
        wait_for_exit(&mut run);
        return skip("this kernel, or container, gives no pid namespaces");
    }
    assert_eq!(wait_for_exit(&mut run).code(), Some(0));
    assert_eq!(first_line(&mut run), "reaped");
}

/// Without /proc, a command's descendants can't be found.
#[test]
fn without_proc_only_the_command_is_stopped() {
    if !rustix::process::geteuid().is_root() {
        return skip("mount namespaces need root");
    }
    let server = Server::start();
    // A container may have several mounts on top of each other.
    let line = "while umount -l /proc 2> /dev/null; do :; done; exec \"$@\"";
    let namespace = ["unshare", "--mount", "sh", "-c", line, "sh"];
    let script = "sleep 1000 > /dev/null 2>&1 & echo $!; exec sleep 1000";
    let words = ["run", "--on-lost", "kill", "k", "--", "sh", "-c", script];
    let mut run = launched(&namespace, binary(), &words);
    run.env("POOLCOUNTER_SERVERS", server.address().to_string());
    let mut run = run.stdout(Stdio::piped()).spawn().expect("unshare, of util-linux");
    let left = first_line(&mut run);
    if left.is_empty() {
        wait_for_exit(&mut run);
        return skip("this container gives no mount namespaces");
    }
    drop(server);
    assert_eq!(wait_for_exit(&mut run).code(), Some(74));
    kill_process(pid(&left), Signal::KILL).expect("it is there");
}
