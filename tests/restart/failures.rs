//! Each way a hot restart can fail: the old image keeps serving, unchanged
//! (docs/operate/procedures.md).

use crate::support::restart::{
    CONTINUED, Environment, Place, REFUSED, children, ignores, refused_restart, restart, wait_until,
};
use crate::support::{Client, DAEMON, Server, is_alive, skip};
use rustix::process::{Resource, Rlimit, Signal};
use std::fs;
use std::path::Path;

/// A daemon with a holder, a waiter and half a line, and its state before the test breaks
/// its binary.
struct Observed {
    place: Place,
    server: Server,
    holder: Client,
    waiter: Client,
    /// Waits until the daemon is idle: a new connection for each question would show
    /// among its descriptors.
    control: Client,
    before: Environment,
}

impl Observed {
    fn start() -> Observed {
        Observed::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Observed {
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
        let before = Environment::of(server.pid());
        Observed { place, server, holder, waiter, control, before }
    }

    /// Asks for a restart, which must be refused for this reason and leave no
    /// trace.
    #[track_caller]
    fn refuses(self, reason: &str) {
        let refusal = refused_restart(&self.server);
        assert!(refusal.contains(reason), "{refusal:?}");
        self.expect_unchanged();
    }

    #[track_caller]
    fn expect_unchanged(mut self) {
        let pid = self.server.pid();
        self.control.settle();
        let mut after = Environment::of(pid);
        // The name of the executable changed when its file was replaced.
        after.executable.clone_from(&self.before.executable);
        assert_eq!(after, self.before);
        let sockets = after.descriptors.values().filter(|(what, _)| what.starts_with("socket:"));
        let kept = sockets.filter(|(_, close_on_exec)| !close_on_exec).count();
        let connections = [&self.holder, &self.waiter, &self.control].len();
        assert_eq!(kept, connections, "{:#?}", after.descriptors);
        assert!(ignores(pid, Signal::PIPE));
        self.server.log.wait_for(REFUSED);
        assert_eq!(self.server.log.count(REFUSED), 1);
        assert_eq!(self.server.log.count(CONTINUED), 0);
        self.holder.send_bytes(b"ASE\n");
        self.holder.expect("RELEASED");
        self.waiter.expect("LOCKED");
        self.server.connect().exchange("ACQ4ME k 1 1 0", "QUEUE_FULL");
        // With a working binary, a restart succeeds.
        self.place.install(Path::new(DAEMON));
        restart(&self.server);
        self.waiter.exchange("RELEASE", "RELEASED");
    }
}

#[test]
fn the_binary_is_missing() {
    let daemon = Observed::start();
    fs::remove_file(daemon.place.binary()).expect("remove");
    daemon.refuses("can't be asked: No such file or directory");
}

#[test]
fn the_binary_is_another_program() {
    for (script, reason) in [
        ("exit 0", "exit status: 0, it said nothing"),
        ("echo 'not today'; exit 1", "exit status: 1, it said \"not today\""),
        // As the dynamic loader does.
        ("echo 'libfoo.so: not found' >&2; exit 127", "127, it said \"libfoo.so: not found\""),
        ("exec $REAL --read-snapshot --new-option", "unexpected argument '--new-option'"),
        ("kill -SEGV $$", "signal: 11 (SIGSEGV)"),
        // An answer about another snapshot.
        (
            "echo '{\"poolcounterd\":\"2.0.0\",\"process\":'$$',\"taken\":1,\"connections\":3,\"locks\":2,\"wanted\":[]}'",
            "exit status: 0, it said \"{\\\"poolcounterd\\\":",
        ),
        ("exec cat /proc/self/fd/${POOLCOUNTERD_HANDOFF#*:}", "poolcounterd_snapshot"),
        // The size of an answer is limited.
        ("exec yes", "exit status: 1, it said \"y\\ny\\n"),
        // As for an older binary: a version above its newest.
        (
            "file=/proc/self/fd/${POOLCOUNTERD_HANDOFF#*:}\n\
             at=$(LC_ALL=C grep -abo poolcounterd_snapshot $file | head -n 1 | cut -d: -f1)\n\
             printf '\\x09' | dd of=$file bs=1 seek=$((at + 21)) conv=notrunc 2> /dev/null\n\
             exec $REAL \"$@\"",
            "it said \"snapshot version 9 is newer than 1, the newest known here\"",
        ),
        ("cp $0 $0.new; mv $0.new $0; exec $REAL \"$@\"", "was replaced while it was being asked"),
        ("chmod a-x $0; exec $REAL \"$@\"", "can't be executed: execve: Permission denied"),
    ] {
        let daemon = Observed::start();
        daemon.place.install_script(script);
        daemon.refuses(reason);
    }
}

/// Waits for the end of the process whose pid the script has written.
fn expect_ended(place: &Place, name: &str) {
    let child = place.wait_for_file(name).trim().parse().expect("a pid");
    let child = rustix::process::Pid::from_raw(child).expect("a pid");
    wait_until("the child of the script ends", || (!is_alive(child)).then_some(()));
}

#[test]
fn the_binary_hangs_with_a_child() {
    let daemon = Observed::start();
    daemon.place.install_script("sleep 600 & echo $! > $HERE/child; wait");
    let refusal = refused_restart(&daemon.server);
    assert!(refusal.contains("did not answer within 15 s"), "{refusal:?}");
    expect_ended(&daemon.place, "child");
    daemon.expect_unchanged();
}

#[test]
fn the_binary_leaves_a_child_that_holds_its_output() {
    let daemon = Observed::start();
    daemon.place.install_script("sleep 600 & echo $! > $HERE/child; exit 1");
    let refusal = refused_restart(&daemon.server);
    assert!(refusal.contains("it said nothing"), "{refusal:?}");
    expect_ended(&daemon.place, "child");
    daemon.expect_unchanged();
}

/// A daemon refuses a hot restart for want of `resource`, which the administrator changes at run
/// time (prlimit(1)): first `at_first` of it, which lets no trial begin; then, once the trial has
/// begun, `later`, which is too little for the restart itself.
#[track_caller]
fn expect_refused_without(
    resource: Resource,
    (at_first, why): (u64, &str),
    (later, why_later): (impl Fn(&Server) -> u64, &str),
) {
    let daemon = Observed::start();
    let pid = rustix::process::Pid::from_raw(daemon.server.pid() as i32);
    let limit = rustix::process::getrlimit(resource);
    let set = |current| {
        let limit = Rlimit { current, ..limit };
        rustix::process::prlimit(pid, resource, limit).expect("prlimit");
    };
    set(Some(at_first));
    let refusal = refused_restart(&daemon.server);
    assert!(refusal.contains(&format!("can't be asked: {why}")), "{refusal:?}");
    set(limit.maximum);
    daemon.place.install_delayed();
    daemon.server.signal(Signal::USR1);
    daemon.place.wait_for_file("asked");
    set(Some(later(&daemon.server)));
    daemon.place.touch("go");
    daemon.server.log.wait_for(why_later);
    set(limit.maximum);
    let mut holder = daemon.holder;
    holder.send_bytes(b"ASE\n");
    holder.expect("RELEASED");
    daemon.place.install(Path::new(DAEMON));
    restart(&daemon.server);
}

/// The new image would have no descriptor for its signals.
#[test]
fn the_descriptor_limit_was_lowered_meanwhile() {
    // Two descriptors are free: one for the snapshot, and too few for the new image.
    let third_free = |server: &Server| {
        let open = Environment::of(server.pid()).descriptors;
        (0..).filter(|number| !open.contains_key(number)).nth(2).expect("a number") as u64
    };
    let why_later = "too few descriptors are free: fcntl(F_DUPFD_CLOEXEC): Too many open files";
    let at_first = (5, "memfd_create: Too many open files");
    expect_refused_without(Resource::Nofile, at_first, (third_free, why_later));
}

/// As with `ulimit -f`: writing beyond the limit raises SIGXFSZ first.
#[test]
fn the_size_of_files_is_limited() {
    let why_later = "the snapshot could not be written: ftruncate: File too large";
    let at_first = (0, "ftruncate: File too large");
    expect_refused_without(Resource::Fsize, at_first, (|_: &_| 0, why_later));
}

#[test]
fn the_reference_replaced_the_binary() {
    let reference =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/reference/usr/bin/poolcounterd");
    if !reference.exists() {
        skip("no reference: run tests/support/fetch-reference.sh first");
        return;
    }
    let daemon = Observed::start();
    daemon.place.install(&reference);
    let refusal = refused_restart(&daemon.server);
    assert!(refusal.starts_with("the new binary"), "{refusal:?}");
    daemon.expect_unchanged();
}

/// The trial differs from the restart only in what it lacks: the sockets, and access to
/// the service manager.
#[test]
fn the_trial_has_the_environment_of_the_new_image() {
    let place = Place::with_daemon();
    let ours = ["-l", "127.0.0.1", "-p", "0"];
    let mut command = place.command(&ours);
    command.env("KEPT", "as it is").env("NOTIFY_SOCKET", place.path("nobody"));
    let server = Server::spawn(&mut command);
    let mut client = server.connect();
    client.settle();
    place.install_script(
        "ls -l /proc/$$/fd/ > $HERE/fds.txt; tr '\\0' '\\n' < /proc/$$/environ > $HERE/env.txt\n\
         echo $$ > $HERE/pid; exec grep -e SigBlk -e SigIgn /proc/self/status > $HERE/signals.txt",
    );
    const SNAPSHOT: &str = "/memfd:poolcounterd-snapshot (deleted)";
    let before = Environment::of(server.pid());
    refused_restart(&server);
    let read = |name: &str| fs::read_to_string(place.path(name)).expect("written");
    let fds = read("fds.txt");
    let target = |number: i32| {
        let mut ends = fds.lines().filter_map(|line| line.split_once(&format!(" {number} -> ")));
        ends.next().map(|(_, target)| target)
    };
    assert!(!fds.contains("socket:") && !fds.contains("anon_inode:"), "{fds}");
    for (number, (what, _)) in &before.descriptors {
        if what.starts_with("socket:") || what.contains("eventpoll") {
            assert_eq!(target(*number), Some(SNAPSHOT), "{number} was {what}: {fds}");
        }
    }
    let environment = read("env.txt");
    assert!(environment.contains("KEPT=as it is\n"), "{environment}");
    assert!(!environment.contains("NOTIFY_SOCKET"), "{environment}");
    let handoff = environment.lines().find_map(|line| line.strip_prefix("POOLCOUNTERD_HANDOFF="));
    let (process, number) = handoff.and_then(|it| it.split_once(':')).expect("a handoff");
    assert_eq!(process, read("pid").trim());
    let snapshot = target(number.parse().expect("a number"));
    assert_eq!(snapshot, Some(SNAPSHOT), "{fds}");
    assert_eq!(read("signals.txt").lines().collect::<Vec<_>>(), before.signals[..2]);
    wait_until("the daemon has no child", || children(server.pid()).is_empty().then_some(()));
}
