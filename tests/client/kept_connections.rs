//! The command and what it starts keep the connection, and with it the lock.

use crate::command::{binary, start};
use crate::running::{first_line, lasting};
use crate::support::{Server, eventually, finish, launched, wait_for_exit};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_killed_run_leaves_the_lock_to_what_its_command_has_started() {
    let server = Server::start();
    let script = "setsid sleep 1000 > /dev/null 2>&1 & echo $!; exec sleep 1000";
    let mut run = start(&server, &["k", "--", "sh", "-c", script]);
    let left = first_line(&mut run).parse().ok().and_then(Pid::from_raw).expect("a pid");
    run.kill().expect("kill");
    wait_for_exit(&mut run);
    let asked = |key: &str| server.connect().ask(&format!("ACQ4ME {key} 1 9 0"));
    assert_eq!(asked("k"), "TIMEOUT", "it works on");
    kill_process(left, Signal::KILL).expect("it is there");
    assert!(eventually(|| asked("k") == "LOCKED"));
}

/// Also if a process that it has left behind has a copy.
#[test]
fn the_end_of_the_command_ends_the_lock_for_all() {
    let server = Server::start();
    for code in [0, 3] {
        let script = format!("setsid sleep 1000 > /dev/null 2>&1 & echo $!; exit {code}");
        let mut run = start(&server, &["k", "--", "sh", "-c", &script]);
        let left = first_line(&mut run).parse().ok().and_then(Pid::from_raw).expect("a pid");
        assert_eq!(wait_for_exit(&mut run).code(), Some(code));
        assert!(eventually(|| server.counter("processing_workers") == 0));
        kill_process(left, Signal::KILL).expect("it is there");
    }
}

#[test]
fn the_connection_has_a_high_number_if_there_is_one() {
    let server = Server::start();
    // A process that a parallel test forks may leave it low numbers of that test's sockets.
    let count = "ls -l /proc/self/fd | awk '/socket:/ && $9 >= 100 { print 1; exit }'";
    for (limit, expected) in [("64", ""), ("1024", "1\n")] {
        let launcher = ["sh", "-c", "ulimit -n $0; exec \"$@\"", limit];
        let words = ["run", "k", "--", "sh", "-c", count];
        let mut run = launched(&launcher, binary(), &words);
        let done = finish(run.env("POOLCOUNTER_SERVERS", server.address().to_string()));
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), expected), "{}", done.stderr);
    }
}

#[test]
fn what_a_command_writes_there_by_mistake_is_no_loss() {
    let server = Server::start();
    let script =
        "open F, '>&=', 100; syswrite F, qq(STATS UPTIME\\n); $| = 1; print qq(up\\n); <STDIN>";
    let mut run = start(&server, &["--on-lost", "kill", "k", "--", "perl", "-e", script]);
    assert_eq!(first_line(&mut run), "up");
    let mut other = server.connect();
    other.settle();
    drop(run.stdin.take());
    assert_eq!(wait_for_exit(&mut run).code(), Some(0));
    let (holder, _) = lasting(&server, &["k"]);
    crate::running::end(holder);
}
