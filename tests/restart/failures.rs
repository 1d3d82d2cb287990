//! Each way in which a hot restart can fail: the old image keeps serving, unchanged
//! (docs/restart.md).

use crate::support::restart::{
    Place, REFUSED, Surroundings, WENT_ON, children, ignores, refused_restart, restart, stop,
    wait_until,
};
use crate::support::{Client, DAEMON, Server, skip};
use rustix::process::{Resource, Rlimit, Signal};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A daemon with a holder, a waiter and half a line, and its state before its binary
/// was broken.
struct Daemon {
    place: Place,
    server: Server,
    holder: Client,
    waiter: Client,
    /// Asks whether the daemon is idle: a new connection for each question would show
    /// among the descriptors.
    control: Client,
    before: Surroundings,
}

impl Daemon {
    fn start() -> Daemon {
        Daemon::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Daemon {
        let place = Place::with_daemon();
        let server = place.start(arguments);
        // The old file stays reachable, so that the link in /proc does not change.
        fs::hard_link(place.binary(), place.path("kept")).expect("link");
        let [mut holder, mut waiter, mut control] = [(); 3].map(|()| server.connect());
        holder.exchange("ACQ4ME k 1 9 600", "LOCKED");
        waiter.send("ACQ4ME k 1 9 600");
        control.settle();
        holder.send_bytes(b"RELE");
        control.settle();
        let before = Surroundings::of(server.pid());
        Daemon { place, server, holder, waiter, control, before }
    }

    /// Asks for a restart, which must be refused for this reason and leave no
    /// trace.
    #[track_caller]
    fn refuses(self, reason: &str) {
        let said = refused_restart(&self.server);
        assert!(said.contains(reason), "{said:?}");
        self.serves_on();
    }

    #[track_caller]
    fn serves_on(mut self) {
        let pid = self.server.pid();
        self.control.settle();
        let mut after = Surroundings::of(pid);
        // Its name on disk changed with the file that took its place.
        after.executable.clone_from(&self.before.executable);
        assert_eq!(after, self.before);
        let mut sockets =
            after.descriptors.values().filter(|(what, _)| what.starts_with("socket:"));
        assert!(sockets.all(|(_, close_on_exec)| *close_on_exec), "{:#?}", after.descriptors);
        assert!(ignores(pid, Signal::PIPE));
        self.server.log.wait_for(REFUSED);
        assert_eq!(self.server.log.count(REFUSED), 1);
        assert_eq!(self.server.log.count(WENT_ON), 0);
        self.holder.send_bytes(b"ASE\n");
        self.holder.expect("RELEASED");
        self.waiter.expect("LOCKED");
        self.server.connect().exchange("ACQ4ME k 1 1 0", "QUEUE_FULL");
        // And once the binary is well, a restart goes well.
        self.place.install(Path::new(DAEMON));
        restart(&self.server);
        self.waiter.exchange("RELEASE", "RELEASED");
    }
}

#[test]
fn the_binary_is_missing() {
    let daemon = Daemon::start();
    fs::remove_file(daemon.place.binary()).expect("remove");
    daemon.refuses("can't be asked: No such file or directory");
}

#[test]
fn the_binary_is_not_executable() {
    let daemon = Daemon::start();
    daemon.place.install_script("exec $REAL \"$@\"");
    fs::set_permissions(daemon.place.binary(), Permissions::from_mode(0o644)).expect("chmod");
    daemon.refuses("can't be asked: Permission denied");
}

#[test]
fn the_binary_is_no_program() {
    let daemon = Daemon::start();
    fs::write(daemon.place.path("text"), "\x7fELF, or so they say\n").expect("write");
    fs::set_permissions(daemon.place.path("text"), Permissions::from_mode(0o755)).expect("chmod");
    daemon.place.install(&daemon.place.path("text"));
    // A shell then reads it (execvp(3)).
    daemon.refuses("the new binary can't take over: exit status: 127");
}

#[test]
fn the_binary_exits_with_0_and_says_nothing() {
    let daemon = Daemon::start();
    daemon.place.install(Path::new("/bin/true"));
    daemon.refuses("exit status: 0, it said nothing");
}

#[test]
fn the_binary_answers_for_another_snapshot() {
    let daemon = Daemon::start();
    daemon.place.install_script("$REAL \"$@\" | sed 's/\"locks\":[0-9]*/\"locks\":77/'");
    daemon.refuses("exit status: 0, it said \"{\\\"poolcounterd\\\":");
}

#[test]
fn the_binary_repeats_what_it_is_given() {
    let daemon = Daemon::start();
    daemon.place.install_script("exec cat");
    daemon.refuses("poolcounterd_snapshot");
}

#[test]
fn the_binary_gives_the_right_answer_and_exits_with_1() {
    let daemon = Daemon::start();
    daemon.place.install_script("$REAL \"$@\"; exit 1");
    daemon.refuses("exit status: 1, it said \"{\\\"poolcounterd\\\":");
}

#[test]
fn the_binary_says_no() {
    let daemon = Daemon::start();
    daemon.place.install_script("echo 'not today'; exit 1");
    daemon.refuses("exit status: 1, it said \"not today\"");
}

#[test]
fn the_binary_crashes() {
    let daemon = Daemon::start();
    daemon.place.install_script("kill -SEGV $$");
    daemon.refuses("signal: 11 (SIGSEGV)");
}

/// Its answer counts only with its exit status.
#[test]
fn the_binary_answers_and_hangs() {
    let daemon = Daemon::start();
    daemon.place.install_script("$REAL \"$@\"; exec sleep 600");
    daemon.refuses("did not answer within 15 s");
}

#[test]
fn the_binary_leaves_a_child_with_its_output_behind() {
    let daemon = Daemon::start();
    daemon.place.install_script("sleep 60 & echo $! > $HERE/child; exit 1");
    let child = {
        let said = refused_restart(&daemon.server);
        assert!(said.contains("it said nothing"), "{said:?}");
        daemon.place.wait_for_file("child")
    };
    daemon.serves_on();
    let child: i32 = child.trim().parse().expect("a pid");
    let child = rustix::process::Pid::from_raw(child).expect("a pid");
    rustix::process::kill_process(child, Signal::KILL).expect("it waits still");
}

#[test]
fn the_binary_talks_without_end() {
    let daemon = Daemon::start();
    daemon.place.install_script("exec yes");
    // The room for an answer is limited.
    daemon.refuses("exit status: 1, it said \"y\\ny\\n");
}

#[test]
fn the_binary_is_too_old_for_the_snapshot() {
    let daemon = Daemon::start();
    // What an older binary would see: a version above its newest.
    daemon.place.install_script(
        "LC_ALL=C sed 's/poolcounterd_snapshot\\x01/poolcounterd_snapshot\\x09/' | $REAL \"$@\"",
    );
    daemon.refuses("it said \"snapshot version 9 is newer than 1, the newest known here\"");
}

#[test]
fn the_binary_is_replaced_while_it_is_asked() {
    let daemon = Daemon::start();
    daemon.place.install_script("$REAL \"$@\"; cp $0 $0.new; mv $0.new $0");
    daemon.refuses("was replaced while it was being asked");
}

#[test]
fn the_binary_can_be_asked_but_not_executed_in_earnest() {
    let daemon = Daemon::start();
    daemon.place.install_script("$REAL \"$@\"; chmod a-x $0");
    daemon.refuses("can't be executed: Permission denied");
}

/// As prlimit(1) does. The new image would have no descriptor for its signals.
#[test]
fn the_limit_of_descriptors_was_lowered_since() {
    let daemon = Daemon::start();
    let pid = rustix::process::Pid::from_raw(daemon.server.pid() as i32);
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let lower = |current| {
        let limit = Rlimit { current, ..limit };
        rustix::process::prlimit(pid, Resource::Nofile, limit).expect("prlimit");
    };
    lower(Some(5));
    let said = refused_restart(&daemon.server);
    assert!(said.contains("can't be asked: Too many open files"), "{said:?}");
    lower(limit.maximum);
    daemon.place.install_script(
        "echo $$ > $HERE/asked; while [ ! -e $HERE/go ]; do sleep 0.01; done; exec $REAL \"$@\"",
    );
    daemon.server.signal(Signal::USR1);
    daemon.place.wait_for_file("asked");
    // Two are free: one for the snapshot, and too few for the new image.
    let open = Surroundings::of(daemon.server.pid()).descriptors;
    let third_free = (0..).filter(|number| !open.contains_key(number)).nth(2);
    lower(third_free.map(|number| number as u64));
    daemon.place.touch("go");
    daemon.server.log.wait_for("too few descriptors are free: Too many open files");
    lower(limit.maximum);
    let mut holder = daemon.holder;
    holder.send_bytes(b"ASE\n");
    holder.expect("RELEASED");
    daemon.place.install(Path::new(DAEMON));
    restart(&daemon.server);
}

/// As `ulimit -f` and prlimit(1) do: writing beyond it is a signal first.
#[test]
fn the_size_of_files_is_limited() {
    let daemon = Daemon::start();
    let pid = rustix::process::Pid::from_raw(daemon.server.pid() as i32);
    let limit = rustix::process::getrlimit(Resource::Fsize);
    let set = |current| {
        let limit = Rlimit { current, ..limit };
        rustix::process::prlimit(pid, Resource::Fsize, limit).expect("prlimit");
    };
    set(Some(0));
    let said = refused_restart(&daemon.server);
    assert!(said.contains("can't be asked: File too large"), "{said:?}");
    set(limit.maximum);
    daemon.place.install_script(
        "echo $$ > $HERE/asked; while [ ! -e $HERE/go ]; do sleep 0.01; done; exec $REAL \"$@\"",
    );
    daemon.server.signal(Signal::USR1);
    daemon.place.wait_for_file("asked");
    set(Some(0));
    daemon.place.touch("go");
    daemon.server.log.wait_for("the snapshot could not be written: File too large");
    set(limit.maximum);
    let mut holder = daemon.holder;
    holder.send_bytes(b"ASE\n");
    holder.expect("RELEASED");
    daemon.place.install(Path::new(DAEMON));
    restart(&daemon.server);
}

#[test]
fn the_reference_is_back_in_our_place() {
    let reference =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/reference/usr/bin/poolcounterd");
    if !reference.exists() {
        skip("no reference: run tests/support/fetch-reference.sh first");
        return;
    }
    let daemon = Daemon::start();
    daemon.place.install(&reference);
    let said = refused_restart(&daemon.server);
    assert!(said.starts_with("the new binary"), "{said:?}");
    daemon.serves_on();
}

#[test]
fn told_to_stop_while_the_new_binary_is_asked() {
    let mut daemon = Daemon::start();
    daemon.place.install_script("echo $$ > $HERE/asked; exec sleep 600");
    daemon.server.signal(Signal::USR1);
    let child = daemon.place.wait_for_file("asked");
    daemon.server.signal(Signal::TERM);
    assert_eq!(daemon.server.wait_for_exit().code(), Some(0));
    let child = format!("/proc/{}", child.trim());
    assert!(!Path::new(&child).exists(), "the child is left behind");
    daemon.holder.expect_end();
}

#[test]
fn told_to_stop_when_the_new_binary_has_answered() {
    let mut daemon = Daemon::start();
    daemon.place.install_script(
        "case $1 in --read-snapshot)\n\
         echo $$ > $HERE/asked; while [ ! -e $HERE/go ]; do sleep 0.01; done;;\n\
         esac\n\
         exec $REAL \"$@\"",
    );
    daemon.server.signal(Signal::USR1);
    let child = daemon.place.wait_for_file("asked");
    // Sends both at once, the signal first. The daemon must have stopped before, or the
    // signal alone would wake it.
    stop(&daemon.server);
    daemon.server.signal(Signal::TERM);
    daemon.place.touch("go");
    wait_until("the new binary has answered", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim())).ok()?;
        stat.contains(") Z ").then_some(())
    });
    daemon.server.signal(Signal::CONT);
    assert_eq!(daemon.server.wait_for_exit().code(), Some(0));
    assert_eq!(daemon.server.log.count(WENT_ON), 0);
}

#[test]
fn the_daemon_serves_while_the_new_binary_is_asked() {
    let daemon = Daemon::start();
    daemon.place.install_script("echo $$ > $HERE/asked; exec sleep 600");
    daemon.server.signal(Signal::USR1);
    daemon.place.wait_for_file("asked");
    let mut client = daemon.server.connect();
    let before = daemon.server.counter("total_acquired");
    for _ in 0..100 {
        client.exchange("ACQ4ME busy 1 1 0", "LOCKED");
        client.exchange("RELEASE", "RELEASED");
    }
    assert_eq!(daemon.server.counter("total_acquired"), before + 100);
    assert_eq!(daemon.server.log.count(REFUSED), 0);
}

#[test]
fn the_child_that_is_asked_is_given_nothing_but_the_snapshot() {
    let daemon = Daemon::start();
    daemon.place.install_script(
        "ls -l /proc/$$/fd/ > $HERE/fds.txt; cat /proc/$$/environ | tr '\\0' '\\n' > $HERE/env.txt\n\
         grep -e SigBlk -e SigIgn /proc/$$/status > $HERE/signals.txt; exit 1",
    );
    let place = &daemon.place;
    refused_restart(&daemon.server);
    let read = |name: &str| fs::read_to_string(place.path(name)).expect("written");
    let fds = read("fds.txt");
    let fds: Vec<&str> = fds.lines().filter(|line| line.contains(" -> ")).collect();
    assert!(fds.iter().any(|line| line.contains(" 0 -> /memfd:poolcounterd-snapshot")), "{fds:#?}");
    let is_ours = |line: &&str| line.contains("socket:") || line.contains("anon_inode:");
    assert!(!fds.iter().any(is_ours), "{fds:#?}");
    let environment = read("env.txt");
    assert!(environment.trim().is_empty(), "{environment:?}");
    wait_until("the daemon has no child", || {
        children(daemon.server.pid()).is_empty().then_some(())
    });
}
