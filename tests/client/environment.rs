//! `poolcounter run` under unusual parents and with unusual commands.

use crate::command::{FOR_EVER, binary, poolcounter, start, stderr_line, until_it_reports};
use crate::running::{complaint, first_line};
use crate::support::restart::Place;
use crate::support::{Server, eventually, launched, skip, wait_for_exit};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `run` with a full standard error, and the other end of it, which nothing reads.
fn start_unread(servers: &str, options: &[&str]) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    theirs.set_nonblocking(true).expect("set");
    while (&theirs).write(&[b'x'; 512]).is_ok() {}
    theirs.set_nonblocking(false).expect("set");
    let command = ["k", "--", "sh", "-c", "echo up; exec sleep 60"];
    let mut run = poolcounter(servers, &[&["run"], options, &command].concat());
    run.stdout(Stdio::piped()).stderr(Stdio::from(OwnedFd::from(theirs)));
    (run.spawn().expect("start it"), ours)
}

#[test]
fn a_lost_lock_stops_the_command_with_a_full_stderr() {
    let server = Server::start();
    let (mut run, _unread) = start_unread(&server.address().to_string(), &["--on-lost", "kill"]);
    assert_eq!(first_line(&mut run), "up");
    drop(server);
    assert_eq!(wait_for_exit(&mut run).code(), Some(74));
}

/// `run` can report neither the lost lock nor the missing server.
#[test]
fn signals_are_passed_on_with_a_full_stderr() {
    for is_lost in [true, false] {
        let server = Server::start();
        let address = server.address().to_string();
        let servers = if is_lost { &address } else { "127.0.0.1:1" };
        let (mut run, _unread) = start_unread(servers, &["--no-server", "run"]);
        assert_eq!(first_line(&mut run), "up");
        drop(server);
        until_it_reports(&run);
        kill_process(Pid::from_child(&run), Signal::TERM).expect("a signal");
        assert_eq!(wait_for_exit(&mut run).signal(), Some(15));
    }
}

#[test]
fn the_command_inherits_an_alarm() {
    let server = Server::start();
    let alarm = ["perl", "-e", "alarm 1; exec @ARGV"];
    let mut run = launched(&alarm, binary(), &["run", "k", "--", "sleep", "60"]);
    run.env("POOLCOUNTER_SERVERS", server.address().to_string());
    let mut run = run.spawn().expect("perl");
    assert_eq!(wait_for_exit(&mut run).signal(), Some(Signal::ALARM.as_raw()));
}

/// `poolcounter run --on-lost kill` as an ordinary user, with a command that can execute
/// the setuid program `$ROOT`. `None`, with a message, if setuid doesn't work here.
fn with_a_setuid_program(server: &Server, options: &[&str], script: &str) -> Option<Child> {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return None;
    }
    let place = Place::with_daemon();
    let (run, setuid) = (place.path("poolcounter"), place.path("setpriv"));
    let setpriv = Path::new("/usr/bin/setpriv");
    for (mode, from, to) in [("755", binary(), &run), ("4755", setpriv, &setuid)] {
        // Another process copies it, so that no child of this one has it open for
        // writing.
        let mut install = Command::new("install");
        assert!(install.args(["-m", mode]).arg(from).arg(to).status().expect("run it").success());
    }
    let mode = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.directory(), mode).expect("chmod");
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let command = ["k", "--", "sh", "-c", script];
    let words = [&["run", "--on-lost", "kill"], options, &command].concat();
    let mut command = launched(&nobody, &run, &words);
    command.env("POOLCOUNTER_SERVERS", server.address().to_string());
    command.env("ROOT", format!("{} --reuid 0", setuid.display()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start it");
    if first_line(&mut child) != "0" {
        drop(child.stdin.take());
        wait_for_exit(&mut child);
        skip("no setuid programs here");
        return None;
    }
    Some(child)
}

/// Like sudo(8), the command runs as root, and `run` doesn't.
#[test]
fn an_unstoppable_command_is_not_reported_as_stopped() {
    let server = Server::start();
    let script = "exec $ROOT sh -c 'id -u; read line; exit 3'";
    let Some(mut child) = with_a_setuid_program(&server, &[], script) else { return };
    drop(server);
    let line = stderr_line(&mut child);
    assert!(line.contains("not allowed to signal the command"), "{line}");
    drop(child.stdin.take());
    assert_eq!(wait_for_exit(&mut child).code(), Some(3));
    assert_eq!(complaint(&mut child), "");
}

#[test]
fn a_script_is_stopped_even_if_it_runs_a_setuid_program() {
    let server = Server::start();
    let script = "$ROOT sh -c 'id -u; read line'; echo went on";
    let Some(mut child) = with_a_setuid_program(&server, &[], script) else { return };
    drop(server);
    assert_eq!(wait_for_exit(&mut child).code(), Some(74));
    // The program ends now too.
    drop(child.stdin.take());
    let text = complaint(&mut child);
    assert!(text.contains("except processes that it may not signal"), "{text}");
    assert_eq!(first_line(&mut child), "");
}

/// As `sudo -u` the user that runs it: the program may not be signalled, but its child may. The
/// kernel reports the child's end to the program alone.
#[test]
fn the_end_of_another_users_child_is_noticed() {
    for (kill_after, trap) in [("1", "\\\"\\\""), (FOR_EVER, "\\\"sleep 0.2; exit\\\"")] {
        let server = Server::start();
        let child = format!("trap {trap} TERM; echo \\$U; while :; do sleep 0.1; done");
        let as_nobody = format!("setpriv --reuid 65534 --clear-groups sh -c '{child}'");
        let script = format!("$ROOT sh -c \"export U=\\$(id -u); {as_nobody} & read line\"; :");
        let options = ["--kill-after", kill_after];
        let Some(mut child) = with_a_setuid_program(&server, &options, &script) else { return };
        drop(server);
        assert_eq!(wait_for_exit(&mut child).code(), Some(74));
        drop(child.stdin.take());
    }
}

/// As in a container: the kernel drops the signals that PID 1 does not handle.
#[test]
fn it_can_be_ended_while_it_waits_as_the_first_process() {
    let namespace = ["unshare", "--pid", "--fork", "--kill-child"];
    if !rustix::process::geteuid().is_root() {
        return skip("PID namespaces need root");
    }
    let server = Server::start();
    let mut holder = start(&server, &["k", "--", "sh", "-c", "echo up; exec cat"]);
    first_line(&mut holder);
    let mut run = launched(&namespace, binary(), &["run", "k", "--", "echo", "ran"]);
    run.env("POOLCOUNTER_SERVERS", server.address().to_string()).stdout(Stdio::piped());
    let mut run = run.spawn().expect("unshare, of util-linux");
    if !eventually(|| server.counter("waiting_workers") == 1) {
        run.kill().expect("kill");
        wait_for_exit(&mut run);
        return skip("this kernel, or container, gives no pid namespaces");
    }
    let children = format!("/proc/{0}/task/{0}/children", run.id());
    let first = std::fs::read_to_string(children).expect("children");
    let first = Pid::from_raw(first.trim().parse().expect("one")).expect("a pid");
    kill_process(first, Signal::TERM).expect("a signal");
    assert_eq!(wait_for_exit(&mut run).code(), Some(143));
    drop(holder.stdin.take());
    wait_for_exit(&mut holder);
}
