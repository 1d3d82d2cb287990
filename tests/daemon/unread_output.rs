//! Output never blocks the daemon, even if no process reads it: neither its log nor the
//! service manager's socket.

use crate::support::notified::{Notified, Unread, temporary};
use crate::support::status::{NO_ADDRESS, WRONG_OPTIONS};
use crate::support::stopwatch::Stopwatch;
use crate::support::terminal::terminal;
use crate::support::{Client, DAEMON, Log, eventually, launched, skip, wait_for_exit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fstat, open};
use rustix::net::{SendFlags, send};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Commands in a [`Unread::converse`], enough to fill every buffer.
const COMMANDS: usize = 200;

impl Unread {
    fn logging_all(stderr: &OwnedFd, launcher: &[&str]) -> Unread {
        let stderr = stderr.try_clone().expect("dup");
        let stat = fstat(&stderr).expect("fstat");
        let stream = format!("{}:{}", stat.st_dev, stat.st_ino);
        let journal = match launcher {
            [] => vec![("JOURNAL_STREAM", stream.as_str())],
            _ => vec![],
        };
        Unread::start(stderr, launcher, &[&journal[..], &[("RUST_LOG", "debug")]].concat())
    }

    /// Logs two lines per command with `RUST_LOG=debug`, 1 kB per pair. Afterwards
    /// nothing is logged until the client is dropped.
    fn converse(&self, name: &str) -> Client {
        let key = format!("{name}:{}", "x".repeat(1000));
        let mut client = Client::connect(self.address);
        for _ in 0..COMMANDS / 2 {
            client.exchange(&format!("ACQ4ME {key} 1 9 5"), "LOCKED");
            client.exchange("RELEASE", "RELEASED");
        }
        client
    }
}

/// A log destination that accepts nothing.
struct Stuck {
    writer: OwnedFd,
    reader: File,
    /// What to send there to make it accept output again.
    resume: &'static [u8],
}

impl Stuck {
    fn pipe() -> Stuck {
        let (reader, writer) = pipe().expect("pipe");
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let filler = open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).expect("open");
        while rustix::io::write(&filler, &filling()).is_ok() {}
        Stuck { writer, reader: reader.into(), resume: b"" }
    }

    fn unix_stream() -> Stuck {
        let (reader, writer) = UnixStream::pair().expect("pair");
        while send(&writer, &filling(), SendFlags::DONTWAIT).is_ok() {}
        while send(&writer, b"\n", SendFlags::DONTWAIT).is_ok() {}
        Stuck { writer: writer.into(), reader: OwnedFd::from(reader).into(), resume: b"" }
    }

    /// As if a user had pressed ^S.
    fn terminal() -> Stuck {
        let (mut master, writer) = terminal();
        master.write_all(b"\x13").expect("^S");
        // The terminal reacts with a delay.
        assert!(eventually(|| !has_room(&writer)), "^S has no effect");
        Stuck { writer, reader: master, resume: b"\x11" }
    }

    /// Reads from now on.
    fn read(mut self) -> Log {
        self.reader.write_all(self.resume).expect("^Q");
        drop(self.writer);
        Log::read_from(self.reader)
    }
}

fn has_room(writer: &OwnedFd) -> bool {
    let mut wanted = [PollFd::new(writer, PollFlags::OUT)];
    poll(&mut wanted, Some(&Timespec::default())).expect("poll") > 0
}

fn filling() -> [u8; 4096] {
    let mut line = [b'.'; 4096];
    line[4095] = b'\n';
    line
}

/// The daemon serves while no process reads its log. A later reader gets the number of
/// missing lines, and complete lines before and after. The flags of the inherited
/// description are unchanged.
#[track_caller]
fn serves_while(stuck: Stuck, launcher: &[&str]) {
    let flags = fcntl_getfl(&stuck.writer).expect("flags");
    let daemon = Unread::logging_all(&stuck.writer, launcher);
    let client = daemon.converse("unread");
    assert_eq!(fcntl_getfl(&stuck.writer), Ok(flags));
    let log = stuck.read();
    log.wait_for("were dropped");
    drop(client);
    let waiting = Stopwatch::start();
    while !log.lines().iter().any(|line| line.contains("read:")) {
        waiting.within_patience();
        daemon.converse("read");
    }
    daemon.expect_to_end();
    let lines = log.lines();
    // Drops the filler.
    let lines = lines.iter().map(|line| line.trim_end().trim_start_matches('.'));
    for line in lines.filter(|line| !line.is_empty()) {
        assert!(is_complete(line), "{line:?}");
    }
}

fn is_complete(line: &str) -> bool {
    let begins = line.starts_with('[') || line.starts_with('<');
    let ends = !line.contains("ACQ4ME") || line.ends_with(" 1 9 5");
    begins && ends && line.matches("poolcounterd::").count() + line.matches("<7>").count() <= 1
}

/// SIGTERM works while no process reads.
#[track_caller]
fn ends_while(stuck: Stuck, launcher: &[&str]) {
    let daemon = Unread::logging_all(&stuck.writer, launcher);
    daemon.converse("unread");
    daemon.expect_to_end();
}

#[test]
fn a_full_pipe_does_not_block_it() {
    serves_while(Stuck::pipe(), &[]);
    ends_while(Stuck::pipe(), &[]);
}

#[test]
fn a_full_stream_to_the_journal_does_not_block_it() {
    serves_while(Stuck::unix_stream(), &[]);
    ends_while(Stuck::unix_stream(), &[]);
}

#[test]
fn a_stopped_terminal_does_not_block_it() {
    serves_while(Stuck::terminal(), &[]);
    ends_while(Stuck::terminal(), &[]);
}

/// Another user's pipe can't be reopened.
#[test]
fn another_users_pipe_or_terminal_does_not_block_it() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return;
    }
    let launcher = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let probe = launched(&launcher, DAEMON, &["--version"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        skip("another user can't execute the daemon here");
        return;
    }
    for stuck in [Stuck::pipe, Stuck::terminal, Stuck::unix_stream] {
        serves_while(stuck(), &launcher);
        ends_while(stuck(), &launcher);
    }
}

/// A shared file: what others wrote before stays, and what they write later comes after.
#[test]
fn a_file_gets_every_line_in_order() {
    let path = temporary("shared.log");
    let mut file = OpenOptions::new().create_new(true).write(true).open(&path).expect("a file");
    file.write_all(b"before\n").expect("write");
    let daemon = Unread::logging_all(&file.try_clone().expect("dup").into(), &["env"]);
    daemon.converse("key");
    daemon.expect_to_end();
    file.write_all(b"after\n").expect("write");
    let text = std::fs::read_to_string(&path).expect("read");
    std::fs::remove_file(&path).expect("remove");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[lines.len() - 1]), ("before", "after"));
    assert_eq!(text.matches("> ACQ4ME key:").count(), COMMANDS / 2);
    assert_eq!(text.matches("were dropped").count(), 0);
}

#[test]
fn a_device_that_is_full_does_not_end_it() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let daemon = Unread::logging_all(&full.into(), &["env"]);
    daemon.converse("key");
    daemon.expect_to_end();
}

/// `ulimit -f`: writing beyond the limit raises SIGXFSZ first.
#[test]
fn a_log_file_that_may_not_grow_does_not_end_it() {
    let path = temporary("limited.log");
    let file = File::create(&path).expect("a file");
    let daemon = Unread::logging_all(&file.into(), &["prlimit", "--fsize=2000"]);
    daemon.converse("key");
    daemon.expect_to_end();
    let len = std::fs::metadata(&path).expect("stat").len();
    std::fs::remove_file(&path).expect("remove");
    assert_eq!(len, 2000);
}

#[test]
fn a_closed_stderr_does_not_end_it() {
    let null = File::open("/dev/null").expect("/dev/null");
    let daemon = Unread::logging_all(&null.into(), &["sh", "-c", "exec \"$@\" 2>&-", "sh"]);
    daemon.converse("key");
    daemon.expect_to_end();
}

/// The other end is closed.
#[test]
fn a_broken_pipe_does_not_end_it() {
    let (reader, writer) = pipe().expect("pipe");
    let daemon = Unread::logging_all(&writer, &[]);
    drop((reader, writer));
    daemon.converse("key");
    daemon.expect_to_end();
}

/// A failed start reports its reason, but does not wait forever to do so: here no address
/// is available.
#[test]
fn a_start_that_fails_is_not_blocked_by_a_full_pipe() {
    for (arguments, status) in
        [(&["-l", "192.0.2.1"][..], NO_ADDRESS), (&["--no-such-option"], WRONG_OPTIONS)]
    {
        let stuck = Stuck::pipe();
        let mut command = launched(&[], DAEMON, arguments);
        let mut child = command.stderr(stuck.writer).spawn().expect("start");
        assert_eq!(wait_for_exit(&mut child).code(), Some(status), "{arguments:?}");
    }
}

/// A failed allocation ends the daemon, with the standard library's message.
#[test]
fn a_failed_allocation_exits_with_a_full_stderr() {
    let stuck = Stuck::pipe();
    let mut daemon = Unread::logging_all(&stuck.writer, &["prlimit", "--core=0"]);
    daemon.converse("key");
    let pid = daemon.child.id().to_string();
    let limited = Command::new("prlimit").args(["--data=1:1", "--as=1:1", "--pid", &pid]).status();
    assert!(limited.expect("run prlimit, of util-linux").success());
    let mut clients: Vec<_> = (0..200).map(|_| TcpStream::connect(daemon.address)).collect();
    for client in clients.iter_mut().flatten() {
        // It may be gone already.
        let _ = client.write_all(&[b'x'; 4000]);
    }
    assert_eq!(wait_for_exit(&mut daemon.child).code(), None, "killed by a signal");
}

/// A panic, forced by a kernel that gives no random numbers.
#[test]
fn a_panic_is_logged_and_exits_with_a_full_stderr() {
    let launcher = ["strace", "-D", "-qq", "-o", "/dev/null", "-e", "inject=getrandom:error=EIO"];
    let probe = launched(&launcher, DAEMON, &["--version"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        skip("no strace that may inject faults");
        return;
    }
    for stuck in [Stuck::pipe, Stuck::unix_stream] {
        let Stuck { writer, reader: _reader, .. } = stuck();
        let mut daemon = Unread::start(writer, &launcher, &[]);
        assert!(!wait_for_exit(&mut daemon.child).success());
    }
    let finished = crate::support::finish(&mut launched(&launcher, DAEMON, &["-l", "127.0.0.1"]));
    let first = finished.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with('[') && first.contains("ERROR"), "{:?}", finished.stderr);
    assert!(finished.stderr.contains("panicked at"), "{:?}", finished.stderr);
}

/// A pipe that other daemons started by this test do not inherit.
fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
}

#[test]
fn ready_and_stopping_are_sent_when_the_manager_reads() {
    for notified in [Notified::at_path("late"), Notified::abstract_name("late")] {
        notified.fill();
        let daemon = notified.daemon(&[]);
        daemon.converse("key");
        notified.expect("READY=1");
        std::thread::scope(|scope| {
            scope.spawn(|| notified.expect("STOPPING=1"));
            daemon.expect_to_end();
        });
    }
}
