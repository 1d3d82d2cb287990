//! Hot restart (docs/operate/procedures.md): what clients and operators must not notice.

use crate::support::restart::{
    CONTINUED, ConnectingLoop, Environment, Gap, Place, can_inject, children, executable, restart,
    wait_until,
};
use crate::support::{Client, DAEMON, Server, launched};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_line_of_any_length_survives_being_cut() {
    // 4096 bytes with the line feed is the longest one that is read.
    let server = Server::start();
    let key = |len: usize| "k".repeat(len - "ACQ4ME  1 1 0\n".len());
    let mut clients = Vec::new();
    for len in [4094, 4095, 4096, 4097] {
        let line = format!("ACQ4ME {} 1 1 0\n", key(len));
        assert_eq!(line.len(), len);
        for cut in [1, len / 2, len - 1] {
            let mut client = server.connect();
            client.send_bytes(&line.as_bytes()[..cut]);
            clients.push((client, line.clone(), cut));
        }
    }
    server.settle();
    restart(&server);
    for (client, line, cut) in &mut clients {
        client.send_bytes(&line.as_bytes()[*cut..]);
        if line.len() <= 4096 {
            client.expect("LOCKED");
            client.exchange("RELEASE", "RELEASED");
        } else {
            client.expect("ERROR LINE_TOO_LONG a line has at most 4096 bytes");
            client.exchange("RELEASE", "NOT_LOCKED");
        }
    }
}

#[test]
fn keys_of_any_bytes_survive() {
    let server = Server::start();
    let any: Vec<u8> = (0..=255).filter(|b| !b" \n\r".contains(b)).collect();
    let keys =
        [any.as_slice(), b"\0", b"\xff\xfe", "Schlüssel\u{1f511}".as_bytes(), b"\"\\", b"\r"];
    let mut pairs = Vec::new();
    for key in keys {
        let line = [b"ACQ4ME ", key, b" 1 9 60\n"].concat();
        let [mut holder, mut waiter] = [(); 2].map(|()| server.connect());
        holder.send_bytes(&line);
        holder.expect("LOCKED");
        waiter.send_bytes(&line);
        pairs.push((holder, waiter));
    }
    server.settle();
    let entries = server.counter("hashtable_entries");
    assert_eq!(entries, keys.len() as u64);
    restart(&server);
    restart(&server);
    assert_eq!(server.counter("hashtable_entries"), entries);
    for (holder, waiter) in &mut pairs {
        holder.exchange("RELEASE", "RELEASED");
        waiter.expect("LOCKED");
    }
}

#[test]
fn clients_that_connect_while_the_new_image_starts_are_served() {
    let gap = Gap::new();
    let server = gap.place.start(&[]);
    gap.open(&server);
    let mut clients: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(&format!("ACQ4ME k{n} 1 1 0"));
    }
    gap.close(&server);
    for client in &mut clients {
        client.expect("LOCKED");
    }
}

#[test]
fn signals_sent_while_the_new_image_starts_are_handled() {
    let gap = Gap::new();
    let mut server = gap.place.start(&[]);
    gap.open(&server);
    server.signal(Signal::TERM);
    gap.place.touch("go");
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

/// A connection that the daemon closes while its fork has a copy would stay open, and its
/// events would be taken for those of the next client in its slot. strace stops the fork
/// after the daemon's only close_range(2), before it writes the snapshot.
#[test]
fn the_fork_that_writes_the_trial_snapshot_has_no_sockets() {
    if !can_inject() {
        return;
    }
    let inject = "inject=close_range:signal=SIGSTOP";
    let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", inject];
    let place = Place::new();
    let path = place.path("control.sock").display().to_string();
    let arguments = ["-l", "127.0.0.1", "-p", "0", "--control", &path];
    let starting = AtomicBool::new(true);
    let server = std::thread::scope(|scope| {
        // The daemon's start tries the call in a child, and waits for it.

        scope.spawn(|| {
            wait_until("it has started", || {
                continue_with(&path);
                (!starting.load(Ordering::Relaxed)).then_some(())
            });
        });
        let server = Server::spawn(&mut launched(&strace, DAEMON, &arguments));
        starting.store(false, Ordering::Relaxed);
        server
    });
    let mut clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.exchange(&format!("ACQ4ME {n} 1 1 0"), "LOCKED");
    }
    server.signal(Signal::USR1);
    server.log.wait_for("asking ");
    let fork = Orphan(children(server.pid())[0]);
    wait_until("the fork has no sockets", || (sockets_of(fork.0) == 0).then_some(()));
    assert!(is_fork(fork.0), "the fork has already executed the new binary");
    assert!(sockets_of(server.pid()) > clients.len());
    fork.signal(Signal::CONT);
    server.log.wait_for(CONTINUED);
}

/// Lets the processes with this argument continue.
fn continue_with(argument: &str) {
    let all = std::fs::read_dir("/proc").expect("proc");
    for pid in all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok()) {
        // It may end meanwhile.
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        if line.is_ok_and(|line| line.contains(argument)) {
            let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
            let _ = rustix::process::kill_process(pid, Signal::CONT);
        }
    }
}

fn sockets_of(pid: u32) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("fd");
    // A descriptor may be closed meanwhile.
    let targets = entries.flat_map(|entry| std::fs::read_link(entry.expect("fd").path()));
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Whether it has not executed the new binary yet.
fn is_fork(pid: u32) -> bool {
    let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
    arguments.is_ok_and(|line| !line.is_empty() && !line.contains("--read-snapshot"))
}

#[test]
fn the_file_now_at_the_path_is_executed() {
    let place = Place::with_daemon();
    let server = place.start(&[]);
    let old = Environment::of(server.pid());
    assert_eq!(old.executable, place.binary());
    place.install(Path::new(DAEMON));
    assert_ne!(executable(server.pid()), place.binary(), "the running file is deleted");
    let line = restart(&server);
    assert!(line.contains(&format!("poolcounterd {}", env!("CARGO_PKG_VERSION"))), "{line:?}");
    assert_eq!(executable(server.pid()), place.binary());
    assert_eq!(process_name(server.pid()), "poolcounterd");
}

#[test]
fn a_bare_name_is_looked_up_in_the_path_as_at_the_start() {
    let place = Place::with_daemon();
    let path = format!("{}:/usr/bin:/bin", place.directory().display());
    let mut command = launched(&[], "poolcounterd", &["-l", "127.0.0.1", "-p", "0"]);
    let server = Server::spawn(command.env("PATH", path).current_dir("/"));
    place.install(Path::new(DAEMON));
    restart(&server);
    assert_eq!(executable(server.pid()), place.binary());
    restart(&server);
}

/// A parent may choose any argv[0] (`exec -a`).
#[test]
fn a_name_that_is_not_a_file_does_not_matter() {
    use std::os::unix::process::CommandExt;
    for name in ["./lock-daemon", "/nonexistent/lock-daemon", "lock-daemon", ""] {
        let mut command = launched(&[], DAEMON, &["-l", "127.0.0.1", "-p", "0"]);
        let server = Server::spawn(command.arg0(name));
        restart(&server);
        restart(&server);
        assert_eq!(executable(server.pid()), Path::new(DAEMON), "{name:?}");
    }
}

/// As when a deployment recreates its directory.
#[test]
fn the_working_directory_may_be_replaced() {
    let place = Place::new();
    let directory = place.path("release");
    let install = || {
        std::fs::create_dir(&directory).expect("a directory");
        // Another process copies, as in `Place::install`.
        let copied = Command::new("cp").arg(DAEMON).arg(&directory).status();
        assert!(copied.expect("cp").success());
    };
    install();
    let mut command = launched(&[], "./poolcounterd", &["-l", "127.0.0.1", "-p", "0"]);
    let server = Server::spawn(command.current_dir(&directory));
    let mut client = server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    for _ in 0..2 {
        std::fs::remove_dir_all(&directory).expect("remove");
        install();
        restart(&server);
        assert_eq!(executable(server.pid()), directory.join("poolcounterd"));
    }
    client.exchange("RELEASE", "RELEASED");
}

/// A parent may leave any signal ignored; an ignored SIGCHLD would hide the end of a
/// trial.
#[test]
fn signals_that_were_ignored_at_the_start_do_not_matter() {
    let env = ["env", "--ignore-signal=CHLD,TERM,USR1"];
    let mut server = Server::spawn(&mut launched(&env, DAEMON, &["-l", "127.0.0.1", "-p", "0"]));
    restart(&server);
    assert!(!crate::support::restart::ignores(server.pid(), Signal::CHILD));
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

/// Without a terminal; the tests themselves may run under nohup(1).
const LEADER: [&str; 3] = ["env", "--default-signal=HUP", "setsid"];

#[test]
fn sighup_restarts_as_well_without_a_terminal() {
    let arguments = ["-l", "127.0.0.1", "-p", "0"];
    let server = Server::spawn(&mut launched(&LEADER, DAEMON, &arguments));
    server.signal(Signal::HUP);
    server.log.wait_for(CONTINUED);
}

#[test]
fn a_hundred_restarts_leave_nothing_behind() {
    let server = Server::start_with(&["--log", "warn,poolcounterd=info"]);
    let [mut holder, mut waiter] = [(); 2].map(|()| server.connect());
    holder.exchange("ACQ4ME k 1 9 600", "LOCKED");
    waiter.send("ACQ4ME k 1 9 600");
    // The first restarts may open what later ones reuse.
    for _ in 0..3 {
        restart(&server);
    }
    let before = Environment::of(server.pid());
    for _ in 0..100 {
        restart(&server);
    }
    let after = Environment::of(server.pid());
    assert_eq!(after.kinds(), before.kinds());
    assert_eq!((after.signals, after.children), (before.signals, before.children));
    holder.exchange("RELEASE", "RELEASED");
    waiter.expect("LOCKED");
}

/// On SIGUSR1, a running reference executes the file at its path with its listener as
/// standard input, and serves its old clients until they leave.
#[test]
fn a_running_reference_hands_over_to_us() {
    let place = Place::new();
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join(REFERENCE);
    if reference.exists() {
        place.install(&reference);
    }
    let binary = place.binary().display().to_string();
    let launcher = ["sh", "-c", "shift; exec \"$0\" \"$@\"", &binary];
    let Some(mut server) = Server::reference_under(&launcher) else {
        return;
    };
    let address = server.address();
    let mut old = Client::connect(address);
    old.exchange("ACQ4ME k 1 1 0", "LOCKED");
    let connecting = ConnectingLoop::start(address);
    place.install(Path::new(DAEMON));
    server.signal(Signal::USR1);
    // It forks, and its child becomes this daemon, which logs its address.
    let line = server.log.wait_for("listening on ");
    assert!(line.contains(&address.to_string()), "{line:?}");
    let ours = Orphan(children(server.pid())[0]);
    assert_eq!(executable(ours.0), place.binary());
    let mut new = wait_until("ours accepts", || {
        let mut new = Client::connect(address);
        // The reference reads this number as 0 (tests/reference/differential/differences.rs).
        (new.ask("ACQ4ME zero 4294967296 9 0") == "LOCKED").then_some(new)
    });
    old.exchange("RELEASE", "RELEASED");
    drop(old);
    connecting.stop();
    assert_eq!(server.wait_for_exit().code(), Some(0), "it exits with its last client");
    new.exchange("ACQ4ME k 1 1 0", "LOCKED");
    // The signals that the reference left blocked and ignored are reset.
    ours.signal(Signal::TERM);
    new.expect_end();
}

const REFERENCE: &str = "target/reference/usr/bin/poolcounterd";

/// A process that is not our child, killed when dropped.
struct Orphan(u32);

impl Orphan {
    fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(self.0 as i32).expect("a pid");
        // It may be gone already.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn process_name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("comm");
    name.trim_end().to_owned()
}
