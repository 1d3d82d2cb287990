//! What a parent process, a supervisor and the kernel pass to the daemon: environment, descriptors,
//! the name that it is started by. Whatever they pass, the daemon serves or refuses with a reason,
//! and none of it ends a daemon that runs. poolcounterd(8) lists it.

use crate::support::notified::Notified;
use crate::support::operated::Operated;
use crate::support::restart::{CONTINUED, Place, refused_restart, restart};
use crate::support::status::{SYSTEM_REFUSED, WRONG_OPTIONS};
use crate::support::stopwatch::Stopwatch;
use crate::support::{Client, DAEMON, PATIENCE, Server, daemon_command, finish, launched, skip};
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, ipproto, listen, socket_with,
};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SERVING: [&str; 4] = ["-l", "127.0.0.1", "-p", "0"];

/// The daemon, started by a shell that sets variables to what `$$`, the daemon's process id, is in.
fn by_shell(exports: &str) -> Command {
    launched(&["sh", "-c", &format!("{exports}; exec \"$@\""), "sh"], DAEMON, &SERVING)
}

#[track_caller]
fn assert_serves(command: &mut Command) -> Server {
    let server = Server::spawn(command);
    server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
    server
}

/// 0 made it spin: a message in each turn.
#[test]
fn an_odd_time_of_the_watchdog_does_not_make_it_spin() {
    const TURNS: usize = 200;
    for time in ["0", "-1", "+5", "soon", "", "18446744073709551615", "99999999999999999999"] {
        let notified = Notified::at_path(&format!("watchdog-{time}"));
        let daemon = notified.daemon(&[("WATCHDOG_USEC", time)]);
        notified.expect("READY=1");
        let mut client = Client::connect(daemon.address);
        let mut messages = 0;
        for _ in 0..TURNS {
            client.exchange("RELEASE", "NOT_LOCKED");
            while notified.has_more() {
                notified.receive();
                messages += 1;
            }
        }
        // One every five seconds.
        assert!(messages < TURNS / 2, "WATCHDOG_USEC={time}: {messages} messages in {TURNS} turns");
        daemon.expect_to_end();
    }
}

#[test]
fn a_watchdog_of_another_process_is_ignored() {
    for pid in ["1", "0", "-1", "x", ""] {
        let server = assert_serves(
            daemon_command(&SERVING).env("WATCHDOG_USEC", "0").env("WATCHDOG_PID", pid),
        );
        assert_eq!(server.log.count("WATCHDOG_USEC"), 0, "{pid}");
    }
    let server = assert_serves(daemon_command(&SERVING).env("WATCHDOG_USEC", "0"));
    server.log.wait_for("ignored: WATCHDOG_USEC=\"0\"");
}

#[test]
fn an_odd_name_of_the_service_manager_s_socket_is_ignored() {
    let long = "x".repeat(200);
    for name in ["", "vsock:2:1234", "relative", "/", "@", &format!("/{long}"), &format!("@{long}")]
    {
        let server = assert_serves(daemon_command(&SERVING).env("NOTIFY_SOCKET", name));
        if !name.is_empty() {
            server.log.wait_for(&format!("NOTIFY_SOCKET={name:?} is unusable: "));
        }
    }
    assert_serves(daemon_command(&SERVING).env("NOTIFY_SOCKET", OsStr::from_bytes(b"/\xff\xfe")));
    // A file of another kind: a device, a folder, a socket of streams.
    let place = Place::new();
    let stream = place.path("stream");
    let _listener = UnixListener::bind(&stream).expect("bind");
    let nobody = place.path("nobody");
    for path in [Path::new("/dev/null"), place.directory(), &stream, &nobody] {
        let server = assert_serves(daemon_command(&SERVING).env("NOTIFY_SOCKET", path));
        server.log.wait_for(&format!("NOTIFY_SOCKET={path:?} is unusable: connect: "));
    }
}

#[test]
fn an_odd_number_of_passed_sockets_is_refused() {
    // The last ones are numbers, but nothing was passed: descriptor 3 is the daemon's own by then.
    for number in ["", "x", "-1", "+1", "1.5", "99999999999999", "2147483647", "1", "2", "400"] {
        let exports = "export LISTEN_PID=$$";
        let refused = finish(by_shell(exports).env("LISTEN_FDS", number));
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{number}: {}", refused.stderr);
        assert!(refused.stderr.contains("LISTEN_FDS"), "{number}: {}", refused.stderr);
    }
    for (pid, number) in [("$$", "0"), ("1", "1"), ("x", "1"), ("-1", "1"), ("", "1")] {
        assert_serves(by_shell(&format!("export LISTEN_PID={pid}")).env("LISTEN_FDS", number));
    }
    assert_serves(daemon_command(&SERVING).env("LISTEN_FDS", "1"));
}

#[test]
fn an_odd_hand_over_is_refused() {
    for descriptor in ["", "x", "-1", "0", "3", "999", "99999999999"] {
        let refused =
            finish(&mut by_shell(&format!("export POOLCOUNTERD_HANDOFF=$$:{descriptor}")));
        assert_eq!(refused.code, Some(SYSTEM_REFUSED), "{descriptor}: {}", refused.stderr);
        assert!(refused.stderr.contains("Can't start: "), "{descriptor}: {}", refused.stderr);
    }
    for handoff in ["", "x", "1:3", ":", "-1:-1"] {
        assert_serves(daemon_command(&SERVING).env("POOLCOUNTERD_HANDOFF", handoff));
    }
}

#[test]
fn variables_that_are_not_text_are_ignored() {
    let odd = OsStr::from_bytes(b"\xff\xfe=\x80");
    let names = [
        "RUST_LOG",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "LISTEN_FDS",
        "LISTEN_PID",
        "JOURNAL_STREAM",
        "POOLCOUNTERD_HANDOFF",
        "PATH",
        "HOME",
    ];
    for name in names {
        let server = assert_serves(daemon_command(&SERVING).env(name, odd));
        restart(&server);
    }
}

/// Anything but a socket.
#[test]
fn standard_input_of_any_kind_is_left_alone() {
    let place = Place::new();
    let fifo = place.path("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a FIFO");
    let both_ways = OpenOptions::new().read(true).write(true).open(&fifo).expect("open");
    let files = ["/dev/null", "/dev/zero", "/dev/full", "/etc/passwd", "/tmp", "/proc/self/status"];
    let opened = files.map(|path| File::open(path).expect("open"));
    for file in opened.into_iter().chain([both_ways]) {
        let server = assert_serves(daemon_command(&SERVING).stdin(file));
        restart(&server);
    }
    assert_serves(&mut by_shell("exec <&-"));
}

/// Stream sockets that listen, but are not TCP.
#[test]
fn sockets_of_other_protocols_are_refused() {
    let mut tried = 0;
    for protocol in [Some(ipproto::SCTP), Some(ipproto::TCP)] {
        let listener = other_listener(protocol);
        let Some(listener) = listener else { continue };
        tried += 1;
        let is_tcp = protocol == Some(ipproto::TCP);
        if is_tcp {
            assert_serves(daemon_command(&[]).stdin(listener));
            continue;
        }
        let refused = finish(daemon_command(&SERVING).stdin(listener));
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{}", refused.stderr);
        assert!(refused.stderr.contains("not a listening TCP socket"), "{}", refused.stderr);
    }
    assert!(tried > 0);
}

/// `None` if this kernel lacks the protocol.
fn other_listener(protocol: Option<Protocol>) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, flags, protocol).ok()?;
    bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind");
    listen(&listener, 20).expect("listen");
    Some(listener)
}

/// What `argv[0]` says, and what PATH has under that name, does not matter.
#[test]
fn a_hot_restart_executes_the_file_that_was_executed() {
    let trap = Place::new();
    let script = trap.path("lock-daemon");
    fs::write(&script, "#!/bin/sh\necho trapped > \"$0.ran\"\n").expect("write");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("make it executable");
    let path = format!("{}:/usr/bin:/bin", trap.directory().display());
    for name in ["lock-daemon", "./lock-daemon", "", "-", "poolcounterd"] {
        let mut command = launched(&[], DAEMON, &SERVING);
        command.arg0(name).env("PATH", &path).current_dir(trap.directory());
        let server = assert_serves(&mut command);
        restart(&server);
        restart(&server);
        let executed = fs::read_link(format!("/proc/{}/exe", server.pid())).expect("a link");
        assert_eq!(executed, std::path::Path::new(DAEMON), "{name:?}");
    }
    assert!(!trap.path("lock-daemon.ran").exists());
}

/// A file has the name that the kernel reports once the program is removed.
#[test]
fn a_hot_restart_executes_no_other_file_than_the_one_that_was_executed() {
    let place = Place::with_daemon();
    let program = place.binary();
    let mut trap = program.clone().into_os_string();
    trap.push(" (deleted)");
    let trap = PathBuf::from(trap);
    fs::write(&trap, "#!/bin/sh\necho trapped > \"$0.ran\"\n").expect("write");
    fs::set_permissions(&trap, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("make it executable");
    let remove = "exec 9<\"$0\"; rm \"$0\"; exec /proc/self/fd/9 \"$@\"";
    let server = assert_serves(Command::new("sh").args(["-c", remove]).arg(&program).args(SERVING));
    let reason = refused_restart(&server);
    assert!(reason.contains("the path of the program is not known"), "{reason}");
    server.connect().exchange("ACQ4ME k 1 9 0", "LOCKED");
    assert!(!trap.with_file_name(format!("{}.ran", trap.display())).exists());
}

/// An inherited timer or a descriptor with O_ASYNC sends them, over hot restarts too.
#[test]
fn signals_that_nobody_asked_for_end_nothing() {
    let by_number = [14, 26, 27, 29, 30].into_iter().chain(34..=64);
    let numbers: Vec<String> = by_number.map(|number| number.to_string()).collect();
    let server = assert_serves(&mut daemon_command(&SERVING));
    for _ in 0..2 {
        let line = format!("for n in {}; do kill -$n {}; done", numbers.join(" "), server.pid());
        let sent = Command::new("sh").args(["-c", &line]).status().expect("sh");
        assert!(sent.success());
        server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
        restart(&server);
    }
}

/// The kernel then creates no file in memory that could be executed.
#[test]
fn a_kernel_without_executable_memory_files_serves_and_restarts() {
    let line = "echo 2 > /proc/sys/vm/memfd_noexec && exec \"$@\"";
    let launcher = ["unshare", "-Urpf", "--kill-child", "--mount-proc", "sh", "-c", line, "sh"];
    if !launched(&launcher, "/bin/true", &[]).status().is_ok_and(|status| status.success()) {
        return skip("this kernel, or container, has no vm.memfd_noexec of its own to set");
    }
    let daemon = Operated::launched(&launcher);
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    let reloaded = daemon.reload(&[]);
    assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
    client.exchange("RELEASE", "RELEASED");
}

/// A listener that the parent process still holds is left open by a stop.
#[test]
fn a_listener_of_the_parent_outlives_the_daemon() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let theirs = OwnedFd::from(listener.try_clone().expect("a copy"));
    let mut server = assert_serves(daemon_command(&[]).stdin(theirs));
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
    assert!(std::net::TcpStream::connect(address).is_ok());
}

/// systemd.service(5), `Type=notify-reload`: systemd waits for both messages, and for a time that
/// is not before its signal. The daemon's own messages meanwhile do not say that it is ready.
#[test]
fn a_service_manager_is_told_of_a_restart_and_its_end() {
    let place = Place::with_daemon();
    let notified = Notified::at_path("reload");
    let mut command = place.command(&["-l", "127.0.0.1", "-p", "0"]);
    let server = Server::spawn(
        // A message each 250 ms.
        command.env("NOTIFY_SOCKET", &notified.name).env("WATCHDOG_USEC", "1000000"),
    );
    notified.expect("READY=1");
    for is_refused in [false, true] {
        // The new binary takes a while to answer.
        let verdict = if is_refused { "exit 1" } else { "exec $REAL \"$@\"" };
        place.install_script(&format!(
            "echo yes > $HERE/asked; while [ ! -e $HERE/go ]; do sleep 0.01; done; {verdict}"
        ));
        let asked = Stopwatch::start();
        server.signal(Signal::USR1);
        let mut message = notified.receive();
        while message.contains("READY=1") {
            message = notified.receive();
        }
        let us = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("it begins");
        asked.started_by(Duration::from_micros(us.trim_end().parse().expect("a number")));
        place.wait_for_file("asked");
        for _ in 0..2 {
            let message = notified.receive();
            assert!(message.starts_with("WATCHDOG=1\n"), "{message}");
        }
        place.touch("go");
        // In case the first one was lost.
        notified.expect("RELOADING=1");
        assert!(notified.receive().starts_with("READY=1\n"));
        for name in ["asked", "go"] {
            fs::remove_file(place.path(name)).expect("it was asked");
        }
    }
    server.connect().settle();
}

/// Connections inherit what another process has set: a close that waits for its peer would stop
/// the daemon.
#[test]
fn options_of_a_passed_socket_that_make_connections_wait_are_reset() {
    use rustix::net::sockopt::{set_socket_linger, set_tcp_cork};
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    set_socket_linger(&listener, Some(3 * PATIENCE)).expect("SO_LINGER");
    set_tcp_cork(&listener, true).expect("TCP_CORK");
    let server = Server::spawn(daemon_command(&[]).stdin(OwnedFd::from(listener)));
    let mut client = server.connect();
    client.exchange("ACQ4ME k 1 1 0", "LOCKED");
    // It leaves more unread than it may, and more than the kernel can send.
    let unread = Client::connect_with_small_buffer(server.address());
    let _ = unread.stream().write_all(&b"STATS FULL\n".repeat(20_000));
    server.log.wait_for("does not read its answers and is disconnected");
    client.exchange("RELEASE", "RELEASED");
}

#[test]
fn numbers_that_are_not_utf_8_are_no_numbers() {
    let mut command = by_shell("export LISTEN_PID=$$ LISTEN_FDS=\"$(printf '1\\377')\"");
    let finished = finish(&mut command);
    assert_eq!(finished.code, Some(WRONG_OPTIONS), "{}", finished.stderr);
    assert!(finished.stderr.contains("is not a number of them"), "{}", finished.stderr);
}

/// The trial of the first restart may have read the old file of rules: systemd must not take that
/// restart for the one that it has asked for.
#[test]
fn a_signal_during_a_restart_is_followed_by_another_restart() {
    let place = Place::with_daemon();
    let rules = place.path("rules");
    fs::write(&rules, "old old:* deny\n").expect("a file of rules");
    let notified = Notified::at_path("twice");
    let rules_path = rules.display().to_string();
    let arguments = ["-l", "127.0.0.1", "-p", "0", "--rules", &rules_path];
    let server = Server::spawn(place.command(&arguments).env("NOTIFY_SOCKET", &notified.name));
    notified.expect("READY=1");
    place.install_delayed();
    place.stop_after_trial(&server);
    fs::write(&rules, "new new:* deny\n").expect("a file of rules");
    server.signal(Signal::USR1);
    server.signal(Signal::CONT);
    notified.expect("READY=1");
    let mut client = server.connect();
    assert_eq!(client.ask("ACQ4ME new:1 1 1 0"), "QUEUE_FULL");
    assert_eq!(client.ask("ACQ4ME old:1 1 1 0"), "LOCKED");
    assert_eq!(server.log.count(CONTINUED), 2);
}
