//! Shared by the tests that observe the daemon from outside: a [`Server`] (our daemon, or
//! Debian's as the reference) and a [`Client`].
//!
//! Nothing here sleeps to let something happen. It waits for the answer, the log line
//! or the exit itself, and gives up after [`PATIENCE`], far longer than a healthy run
//! takes.

// Each test crate uses a different part of this.
#![allow(dead_code)]

pub(crate) mod base64;
pub(crate) mod command;
pub(crate) mod crowd;
pub(crate) mod denied_calls;
pub(crate) mod hosts;
pub(crate) mod http;
pub(crate) mod keys;
pub(crate) mod notified;
pub(crate) mod operated;
pub(crate) mod random;
pub(crate) mod restart;
pub(crate) mod shape;
mod skipping;
pub(crate) mod stopwatch;
pub(crate) mod terminal;

pub(crate) use skipping::skip;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid,
};
pub(crate) use stopwatch::PATIENCE;
use stopwatch::{Stopwatch, ask_until_answered};

/// The twelve whole-number counters, in the order of `STATS FULL`.
pub(crate) const COUNTERS: [&str; 12] = [
    "total_acquired",
    "total_releases",
    "hashtable_entries",
    "processing_workers",
    "waiting_workers",
    "connect_errors",
    "failed_sends",
    "full_queues",
    "lock_mismatch",
    "lock_while_waiting",
    "release_mismatch",
    "processed_count",
];

/// Exit statuses of our daemon (poolcounterd(8)).
pub(crate) mod status {
    /// No retry helps: other options, another address or file of rules are needed.
    pub(crate) const WRONG_OPTIONS: i32 = 1;
    /// An address can't be had now.
    pub(crate) const NO_ADDRESS: i32 = 69;
    /// The system refused something.
    pub(crate) const SYSTEM_REFUSED: i32 = 71;
    /// The last client of a drain has left.
    pub(crate) const DRAINED: i32 = 75;
}

/// Our daemon's binary.
pub(crate) const DAEMON: &str = env!("CARGO_BIN_EXE_poolcounterd");

/// A running daemon, ours or the reference; killed when dropped.
pub(crate) struct Server {
    child: Child,
    addresses: Vec<SocketAddr>,
    /// What the daemon wrote to stderr; empty if stderr is not a pipe.
    pub(crate) log: Log,
}

impl Server {
    /// Our daemon on a free port of 127.0.0.1.
    pub(crate) fn start() -> Server {
        Server::start_with(&[])
    }

    /// Our daemon on a free port of 127.0.0.1, with more arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Server {
        let mut command = daemon_command(&["-l", "127.0.0.1", "-p", "0"]);
        command.args(arguments);
        Server::spawn(&mut command)
    }

    /// Our daemon on a loopback address of its own, with more arguments: no other test
    /// takes a port that it closes.
    pub(crate) fn start_apart(arguments: &[&str]) -> Server {
        let ip = next_address().to_string();
        let mut command = daemon_command(&["-l", &ip, "-p", "0"]);
        command.args(arguments);
        Server::spawn(&mut command)
    }

    /// Runs a command made by [`daemon_command`] or [`launched`] and waits until it
    /// logs its addresses.
    pub(crate) fn spawn(command: &mut Command) -> Server {
        let child = command.stderr(Stdio::piped()).spawn();
        let mut server = Server::of(child.expect("start the daemon"));
        let line = server.log.wait_for("listening on ");
        server.addresses = addresses_in(&line);
        assert!(!server.addresses.is_empty(), "no address in {line:?}");
        server
    }

    /// As [`Server::spawn`], for a command whose stderr is set already; reads the
    /// other end of it.
    pub(crate) fn spawn_logging(command: &mut Command, stderr: impl Into<OwnedFd>) -> Server {
        let mut server = Server::of(command.spawn().expect("start the daemon"));
        server.log = Log::read_from(stderr);
        server.addresses = addresses_in(&server.log.wait_for("listening on "));
        server
    }

    /// Debian's daemon on a loopback address of its own. `None`, with a message, if
    /// `tests/support/fetch-reference.sh` did not run; a failure if CI is set.
    pub(crate) fn reference() -> Option<Server> {
        Server::reference_under(&[])
    }

    /// As [`Server::reference`], executed by a launcher such as `prlimit`.
    pub(crate) fn reference_under(launcher: &[&str]) -> Option<Server> {
        if !reference_binary().exists() {
            skip("no reference: run tests/support/fetch-reference.sh first");
            return None;
        }
        // Another process may use the address: then takes the next one.
        for _ in 0..20 {
            let address = SocketAddr::from((next_address(), 7531));
            let mut command = reference_command(launcher, &address.ip().to_string());
            let child = command.stderr(Stdio::piped()).spawn();
            let mut server = Server::of(child.expect("start the reference"));
            server.addresses.push(address);
            if server.wait_until_it_accepts() {
                return Some(server);
            }
        }
        panic!("20 addresses were taken before the reference could listen on them");
    }

    fn of(mut child: Child) -> Server {
        let log = match child.stderr.take() {
            Some(stderr) => Log::read_from(stderr),
            None => Log::default(),
        };
        Server { child, addresses: Vec::new(), log }
    }

    /// False if its address is taken. The reference does not report when it is ready,
    /// so the only event to wait for is a connect that works.
    fn wait_until_it_accepts(&mut self) -> bool {
        let accepts = ask_until_answered(|| {
            if let Some(status) = self.child.try_wait().expect("wait") {
                let log = self.log.wait_for_end().join("\n");
                assert!(log.contains("Couldn't bind"), "the reference ended, {status}: {log}");
                return Some(false);
            }
            // Afterwards the reference has no connection but those of the test.
            let mut client = Client::of(TcpStream::connect(self.address()).ok()?);
            client.shut_writing();
            client.read_to_end();
            Some(true)
        });
        accepts.expect("the reference listens or exits")
    }

    /// The first address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All addresses that it listens on, in the order of its log line.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A stop has come into effect when this returns.
    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(&self.child, signal);
    }

    /// True while the process lives.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }

    /// Waits for the process to exit by itself.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for_exit(&mut self.child)
    }

    /// Returns once all input sent so far is handled and all its answers can be read. The
    /// daemon's single thread handles input in the order of arrival, and handles the
    /// second question after it has sent the answers of the first one's turn. (On a busy
    /// machine the kernel may deliver packets of two connections out of order. Use this
    /// to check that nothing happened; to see an effect, wait for it.)
    pub(crate) fn settle(&self) {
        let mut control = self.connect();
        control.settle();
    }

    /// One counter, asked by name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.connect().counter(name)
    }

    /// User and system time that the process has used.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("stat");
        // Fields 14 and 15 of proc_pid_stat(5). Counts from after the second field, a
        // name in brackets that may contain any character. A tick is 10 ms.
        let fields = stat.rsplit(')').next().expect("name").split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|f| f.parse::<u64>().unwrap()).sum();
        Duration::from_millis(10 * ticks)
    }

    /// Open descriptors of the process.
    pub(crate) fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.pid());
        std::fs::read_dir(folder).expect("fd folder").count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Our daemon, without environment variables that change its behaviour.
pub(crate) fn daemon_command(arguments: &[&str]) -> Command {
    launched(&[], DAEMON, arguments)
}

/// `program` executed by a launcher (`env --block-signal`, `prlimit`, a line of shell
/// that ends in `exec "$@"`), which sets up what the process inherits without unsafe
/// code here.
pub(crate) fn launched(
    launcher: &[&str],
    program: impl AsRef<OsStr>,
    arguments: &[&str],
) -> Command {
    let mut command = match launcher.split_first() {
        None => Command::new(program),
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command.args(arguments);
    for name in [
        "RUST_LOG",
        "RUST_LOG_STYLE",
        "JOURNAL_STREAM",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A command executed by a line of shell that ends in `exec "$@"`.
pub(crate) fn in_shell(line: &str, arguments: &[&str]) -> Command {
    launched(&["sh", "-c", line, "sh"], DAEMON, arguments)
}

/// The result of a command that ends by itself.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command that should end by itself; kills it if it does not.
pub(crate) fn finish(command: &mut Command) -> Finished {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("start the command");
    let stdout = read_in_background(child.stdout.take().expect("stdout"));
    let stderr = read_in_background(child.stderr.take().expect("stderr"));
    let status = wait_for_exit(&mut child);
    Finished {
        code: status.code(),
        stdout: stdout.join().expect("stdout"),
        stderr: stderr.join().expect("stderr"),
    }
}

fn read_in_background(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Kills the child if it does not exit, so that no process is left behind.
pub(crate) fn wait_for_exit(child: &mut Child) -> ExitStatus {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("pidfd");
    let exited = wait_readable(&pidfd, PATIENCE);
    if !exited {
        let _ = child.kill();
    }
    let status = child.wait().expect("wait");
    assert!(exited, "the process does not exit");
    status
}

/// Waits until there is something to read, or an end; false if it times out.
pub(crate) fn wait_readable(descriptor: &impl AsFd, timeout: Duration) -> bool {
    let timeout = timeout.try_into().expect("timeout");
    let mut wanted = [PollFd::new(descriptor, PollFlags::IN)];
    retry_on_intr(|| poll(&mut wanted, Some(&timeout))).expect("poll") > 0
}

/// The kernel's backlog of a listening socket: `Send-Q` of `ss`.
pub(crate) fn backlog(address: SocketAddr) -> u32 {
    number_of_listener(address, 2)
}

/// A stop has come into effect when this returns.
pub(crate) fn send_signal(child: &Child, signal: Signal) {
    let process = Pid::from_child(child);
    kill_process(process, signal).expect("send a signal");
    if signal == Signal::STOP {
        let ended = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(process), ended).expect("it stops");
    }
}

/// How many connections wait to be accepted: `Recv-Q` of `ss`.
pub(crate) fn queued(address: SocketAddr) -> u32 {
    number_of_listener(address, 1)
}

fn number_of_listener(address: SocketAddr, column: usize) -> u32 {
    let mut ss = Command::new("ss");
    let output = ss.args(["-ltnH", "src", &address.to_string()]).output();
    let output = output.expect("run ss, of iproute2");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let field = text.split_whitespace().nth(column).and_then(|f| f.parse().ok());
    field.unwrap_or_else(|| panic!("ss prints {text:?} for {address}"))
}

/// The backlog that a daemon gets if it asks for `wanted`.
pub(crate) fn backlog_granted(wanted: u32) -> u32 {
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
    let somaxconn = somaxconn.expect("somaxconn");
    wanted.min(somaxconn.trim().parse().expect("a number"))
}

/// Lets this process have as many descriptors as it may: an ordinary user's soft
/// limit is 1024, and tests that run at the same time share it.
pub(crate) fn allow_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a higher limit of descriptors");
}

/// Whether a process is alive. A zombie is not: PID 1 of a plain container may never reap
/// it.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The state follows the name, which may contain any character.
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// Waits until `is_met`, for a state without an event; false if it times out.
pub(crate) fn eventually(mut is_met: impl FnMut() -> bool) -> bool {
    ask_until_answered(|| is_met().then_some(())).is_some()
}

/// Reads what is there. With a timeout, a socket's read fails when a signal has stopped and
/// continued this process, or when it has handled one: signal(7).
pub(crate) fn read_some(stream: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Debian's daemon on an address, executed by a launcher.
pub(crate) fn reference_command(launcher: &[&str], ip: &str) -> Command {
    let mut command = launched(launcher, reference_binary(), &["-l", ip]);
    // `tests/support/fetch-reference.sh` puts a library that the machine lacks here.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    command.env("LD_LIBRARY_PATH", manifest.join("target/reference/libraries"));
    command
}

/// A file of the project.
pub(crate) fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// Where `tests/support/fetch-reference.sh` puts Debian's daemon.
pub(crate) fn reference_binary() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/reference/usr/bin/poolcounterd")
}

/// An address of 127.0.0.0/8 for one daemon, made from the pid of the test process and a
/// count. The reference has a fixed port, so each instance needs one.
pub(crate) fn next_address() -> Ipv4Addr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let [_, _, high, low] = pid.to_be_bytes();
    let count = COUNT.fetch_add(1, Ordering::Relaxed) % 200;
    // 127.0.x.y stays free: people and other tests listen there.
    Ipv4Addr::new(127, high.max(1), low, 20 + count as u8)
}

/// Leaves the file of a socket without a listener, as a killed daemon does. Closing it is
/// not enough: a child that another test starts may briefly have a copy.
pub(crate) fn leave_stale_socket(path: &Path) {
    let listener = std::os::unix::net::UnixListener::bind(path).expect("bind");
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("shutdown");
}

fn addresses_in(line: &str) -> Vec<SocketAddr> {
    let (_, list) = line.split_once("listening on ").expect("address list");
    let words = list.split(", ");
    words.map_while(|word| word.trim().parse().ok()).collect()
}

/// What a process has written to its stderr.
#[derive(Default)]
struct Written {
    pipe: Option<Arc<OwnedFd>>,
    lines: Vec<String>,
    /// A line without its end.
    rest: Vec<u8>,
    /// No process that could write more is alive.
    has_ended: bool,
}

impl Written {
    /// More than any test reads; the reference can write 20 MB a second.
    const LINES_MAX: usize = 100_000;

    /// Takes what is in the pipe, without waiting for more.
    fn take(&mut self) {
        let mut bytes = [0; 65536];
        while let Some(pipe) = self.pipe.clone() {
            match retry_on_intr(|| rustix::io::read(&*pipe, &mut bytes[..])) {
                Err(Errno::AGAIN) => break,
                Ok(0) | Err(_) => {
                    // The last line may have no end.
                    if !self.rest.is_empty() {
                        self.add(b"\n");
                    }
                    self.has_ended = true;
                    self.pipe = None;
                }
                Ok(n) => self.add(&bytes[..n]),
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.rest.extend(bytes);
        let whole = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        for line in self.rest[..whole].split_inclusive(|&byte| byte == b'\n') {
            if self.lines.len() < Written::LINES_MAX {
                self.lines.push(String::from_utf8_lossy(&line[..line.len() - 1]).into_owned());
            }
        }
        self.rest.drain(..whole);
    }
}

/// Lines of a process's stderr. A thread takes them, so that the process never waits; whoever asks for
/// them takes first what the thread has left, so that no line of the past is missing.
#[derive(Clone, Default)]
pub(crate) struct Log {
    shared: Arc<(Mutex<Written>, Condvar)>,
    reader: Arc<Mutex<Option<std::thread::JoinHandle<()>>>>,
}

impl Log {
    pub(crate) fn read_from(pipe: impl Into<OwnedFd>) -> Log {
        let pipe = Arc::new(pipe.into());
        ioctl_fionbio(&*pipe, true).expect("a pipe that does not block");
        let written = Written { pipe: Some(Arc::clone(&pipe)), ..Written::default() };
        let shared = Arc::new((Mutex::new(written), Condvar::new()));
        let reader = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let (written, changed) = &*shared;
                loop {
                    let mut wanted = [PollFd::new(&*pipe, PollFlags::IN)];
                    retry_on_intr(|| poll(&mut wanted, None)).expect("poll");
                    let mut written = written.lock().expect("log");
                    written.take();
                    changed.notify_all();
                    if written.has_ended {
                        break;
                    }
                }
            }
        });
        Log { shared, reader: Arc::new(Mutex::new(Some(reader))) }
    }

    /// All lines, once every process that could write more has ended.
    pub(crate) fn wait_for_end(&self) -> Vec<String> {
        if let Some(reader) = self.reader.lock().expect("reader").take() {
            reader.join().expect("the thread that reads stderr");
        }
        self.lines()
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        let (written, changed) = &*self.shared;
        let mut written = written.lock().expect("log");
        written.take();
        changed.notify_all();
        written.lines.clone()
    }

    /// How many lines so far contain this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.lines().iter().filter(|l| l.contains(text)).count()
    }

    /// Waits for the first line that contains this text.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_for_count(text, 1)
    }

    /// Waits until `count` lines contain this text; returns the last of them.
    pub(crate) fn wait_for_count(&self, text: &str, count: usize) -> String {
        let find = |written: &Written| {
            written.lines.iter().filter(|l| l.contains(text)).nth(count - 1).cloned()
        };
        let (written, changed) = &*self.shared;
        let written = written.lock().expect("log");
        let lacks_it = |written: &mut Written| find(written).is_none() && !written.has_ended;
        let (written, _) = changed.wait_timeout_while(written, PATIENCE, lacks_it).expect("log");
        if let Some(line) = find(&written) {
            return line;
        }
        let (lines, has_ended) = (written.lines.clone(), written.has_ended);
        drop(written);
        panic!("no log line with {text:?} (has ended: {has_ended}) in {lines:#?}");
    }
}

/// The result of one read.
#[derive(Debug, PartialEq)]
enum Arrived {
    Bytes,
    Nothing,
    End,
}

/// One connection. Panics at once, with the reason, if an answer is wrong.
pub(crate) struct Client {
    stream: TcpStream,
    /// Received, but not yet taken by the test.
    pending: Vec<u8>,
    ended: bool,
}

impl Drop for Client {
    /// Ends the connection now, even if a process that another test starts has a copy for a moment.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let connecting = Stopwatch::start();
        // With a full backlog, a connect may need a second or third SYN.
        let stream = loop {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => break stream,
                Err(e) if e.kind() == ErrorKind::Interrupted => connecting.within_patience(),
                Err(e) => panic!("connect to {address}: {e}"),
            }
        };
        Client::of(stream)
    }

    /// With a receive buffer so small that the kernel soon accepts no more data for
    /// it.
    pub(crate) fn connect_with_small_buffer(address: SocketAddr) -> Client {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
        let flags = SocketFlags::CLOEXEC;
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("socket");
        // Before the connect: afterwards it no longer shrinks the window.
        sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("SO_RCVBUF");
        connect(&socket, &address).expect("connect");
        Client::of(TcpStream::from(socket))
    }

    /// From this address, such as another one of the loopback device.
    pub(crate) fn connect_from(ip: Ipv4Addr, server: SocketAddr) -> Client {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
        let flags = SocketFlags::CLOEXEC;
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("socket");
        bind(&socket, &SocketAddr::from((ip, 0))).expect("bind");
        connect(&socket, &server).expect("connect");
        Client::of(TcpStream::from(socket))
    }

    fn of(stream: TcpStream) -> Client {
        stream.set_nodelay(true).expect("nodelay");
        Client { stream, pending: Vec::new(), ended: false }
    }

    /// Sends a line, with a line feed.
    #[track_caller]
    pub(crate) fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    /// Sends bytes as they are, in one segment if they fit.
    #[track_caller]
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("send");
    }

    /// Sends a line and reads the line that answers it.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    /// Sends a line and expects exactly this answer.
    #[track_caller]
    pub(crate) fn exchange(&mut self, line: &str, answer: &str) {
        let got = self.ask(line);
        assert_eq!(got, answer, "the answer to {line:?}");
    }

    /// The next line, without its end.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        match self.next_line(PATIENCE) {
            Some(line) => line,
            None if self.ended => panic!("the connection ended; unread: {:?}", self.rest()),
            None => panic!("no line arrived; half a line: {:?}", self.rest()),
        }
    }

    /// Expects exactly this as the next line.
    #[track_caller]
    pub(crate) fn expect(&mut self, answer: &str) {
        assert_eq!(self.line(), answer);
    }

    /// The next line, or `None` if the connection ends or sends nothing for this long first.
    pub(crate) fn next_line(&mut self, timeout: Duration) -> Option<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            match self.receive(timeout) {
                Arrived::Bytes => {}
                Arrived::Nothing | Arrived::End => return None,
            }
        }
    }

    /// Expects the end of the connection next, by a normal close or a reset.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        let arrived = self.receive(PATIENCE);
        assert!(self.pending.is_empty(), "before the end: {:?}", self.rest());
        assert_eq!(arrived, Arrived::End);
    }

    /// Expects that nothing is readable now. Proves nothing without [`Server::settle`]
    /// before it.
    #[track_caller]
    pub(crate) fn expect_nothing(&mut self) {
        self.receive(Duration::ZERO);
        assert!(self.pending.is_empty(), "unexpected: {:?}", self.rest());
        assert!(!self.ended, "the connection ended");
    }

    /// Takes everything that is readable now, and returns whether the connection has
    /// ended.
    pub(crate) fn take_all(&mut self) -> (Vec<u8>, bool) {
        while self.receive(Duration::ZERO) == Arrived::Bytes {}
        (std::mem::take(&mut self.pending), self.ended)
    }

    /// Waits briefly for input, which may not come.
    pub(crate) fn wait_a_moment(&mut self) {
        self.receive(Duration::from_millis(300));
    }

    /// Everything until the other side closes.
    #[track_caller]
    pub(crate) fn read_to_end(&mut self) -> String {
        loop {
            match self.receive(PATIENCE) {
                Arrived::Bytes => {}
                Arrived::End => return self.rest(),
                Arrived::Nothing => panic!("the connection did not end; so far: {:?}", self.rest()),
            }
        }
    }

    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }

    fn receive(&mut self, timeout: Duration) -> Arrived {
        if self.ended {
            return Arrived::End;
        }
        if !wait_readable(&self.stream, timeout) {
            return Arrived::Nothing;
        }
        let mut buffer = [0; 65536];
        match read_some(&mut self.stream, &mut buffer) {
            Ok(0) => self.ended = true,
            Ok(n) => self.pending.extend_from_slice(&buffer[..n]),
            // A reset ends the connection as well.
            Err(_) => self.ended = true,
        }
        if self.ended { Arrived::End } else { Arrived::Bytes }
    }

    /// The reply to `STATS FULL`, line by line, without the blank line.
    #[track_caller]
    pub(crate) fn stats_full(&mut self) -> Vec<String> {
        self.send("STATS FULL");
        let mut lines = Vec::new();
        loop {
            match self.line() {
                line if line.is_empty() => return lines,
                line => lines.push(line),
            }
        }
    }

    /// One counter, asked by name.
    #[track_caller]
    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        let line = self.ask(&format!("STATS {name}"));
        let value = line.strip_prefix(&format!("{name}: "));
        let value = value.and_then(|v| v.parse().ok());
        value.unwrap_or_else(|| panic!("STATS {name} answered {line:?}"))
    }

    /// Waits until a counter has a wanted value, for effects without a reply.
    #[track_caller]
    pub(crate) fn wait_for_counter(&mut self, name: &str, is_wanted: impl Fn(u64) -> bool) {
        let mut value = 0;
        let came = eventually(|| {
            value = self.counter(name);
            is_wanted(value)
        });
        assert!(came, "{name} stays {value}");
    }

    /// The value of a time in `STATS FULL`, such as `gained time`, in seconds.
    #[track_caller]
    pub(crate) fn seconds(&mut self, name: &str) -> f64 {
        let lines = self.stats_full();
        let mut values = lines.iter().filter_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
        shape::seconds(values.next().expect("a line of that name"))
    }

    /// See [`Server::settle`].
    #[track_caller]
    pub(crate) fn settle(&mut self) {
        for _ in 0..2 {
            let answer = self.ask("STATS UPTIME");
            assert!(answer.starts_with("uptime: "), "{answer:?}");
        }
    }

    /// Shuts down the writing side; answers can still be read.
    pub(crate) fn shut_writing(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("shutdown");
    }

    /// Ends the connection with a reset instead of a normal close.
    pub(crate) fn reset(self) {
        rustix::net::connect_unspec(&self.stream).expect("AF_UNSPEC");
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
