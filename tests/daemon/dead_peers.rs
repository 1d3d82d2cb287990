//! Hosts that vanish without a word: two network namespaces, a cable between
//! them, and the far end pulled out.

use crate::support::{Client, DAEMON, PATIENCE, Server, launched, skip};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A host at the other end of the cable: a shell in a network namespace, which
/// ends with the shell and leaves nothing behind.
struct Host {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Host {
    /// Boots without a cable. `None`, with a message, if namespaces are unavailable.
    fn boot() -> Option<Host> {
        if !rustix::process::geteuid().is_root() {
            skip("network namespaces need root");
            return None;
        }
        if Command::new("ip").arg("-V").output().is_err() {
            skip("no ip: install iproute2");
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["--net", "bash"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().expect("unshare, of util-linux");
        let input = shell.stdin.take().expect("stdin");
        let output = BufReader::new(shell.stdout.take().expect("stdout"));
        let mut host = Host { shell, input, output };
        if host.run("echo booted") != "booted" {
            skip("this kernel, or container, gives no network namespaces");
            return None;
        }
        Some(host)
    }

    /// Runs a line of shell; its output is one line.
    fn run(&mut self, line: &str) -> String {
        let _ = writeln!(self.input, "{line}");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("the shell's output");
        answer.trim_end().to_owned()
    }

    /// Connects to the daemon and sends a line.
    fn send(&mut self, line: &str) {
        let connect = "exec 3<>/dev/tcp/192.0.2.1/7531";
        let sent = self.run(&format!("{connect} && echo '{line}' >&3 && echo sent"));
        assert_eq!(sent, "sent");
    }

    fn answer(&mut self) -> String {
        self.run(r#"read -r -t 30 answer <&3; echo "$answer""#)
    }

    /// Cuts the cable, as a loss of power would.
    fn vanish(&mut self) -> Instant {
        assert_eq!(self.run("ip link set cable down && echo down"), "down");
        Instant::now()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The daemon in a network namespace of its own, with a cable to `host`; and a
/// Unix socket, by which the test watches from neither of the two.
fn start_beside(host: &mut Host, name: &str, keepalive: &str) -> (Server, String) {
    let path = std::env::temp_dir().join(format!("pool-dead-{name}-{}", std::process::id()));
    let path = path.to_str().expect("path").to_owned();
    let set_up = format!(
        "ip link add cable type veth peer name cable netns {} && \
         ip addr add 192.0.2.1/24 dev cable && ip link set cable up && exec \"$0\" \"$@\"",
        host.shell.id()
    );
    let launcher = ["unshare", "--net", "bash", "-c", &set_up];
    let arguments = ["-l", "192.0.2.1", "--keepalive", keepalive, "--listen-unix", &path];
    let server = Server::spawn(&mut launched(&launcher, DAEMON, &arguments));
    let up = "ip addr add 192.0.2.2/24 dev cable && ip link set cable up && echo up";
    assert_eq!(host.run(up), "up");
    (server, path)
}

/// A client that does not use the cable.
struct Neighbour(BufReader<UnixStream>);

impl Neighbour {
    fn connect(path: &str) -> Neighbour {
        let stream = UnixStream::connect(path).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Neighbour(BufReader::new(stream))
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.0.get_ref(), "{line}").expect("send");
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("an answer");
        answer.trim_end().to_owned()
    }
}

/// The promise is twice `--keepalive`; a busy machine may be late itself. The
/// kernel's own keepalive would take over two hours.
fn assert_in_time(since: Instant, keepalive_s: u64) {
    let elapsed = since.elapsed();
    println!("free {elapsed:?} after the host vanished, with --keepalive {keepalive_s}");
    let late = Duration::from_secs(5);
    assert!(elapsed < Duration::from_secs(2 * keepalive_s) + late, "{elapsed:?}");
}

#[test]
fn the_lock_of_a_vanished_host_is_free_within_twice_keepalive() {
    let Some(mut host) = Host::boot() else { return };
    let (_server, path) = start_beside(&mut host, "holder", "2");
    host.send("ACQ4ME k 1 9 30");
    assert_eq!(host.answer(), "LOCKED");
    let mut neighbour = Neighbour::connect(&path);
    let vanished = host.vanish();
    assert_eq!(neighbour.ask("ACQ4ME k 1 9 30"), "LOCKED");
    assert_in_time(vanished, 2);
}

#[test]
fn a_lock_handed_to_a_vanished_host_is_free_within_twice_keepalive() {
    let Some(mut host) = Host::boot() else { return };
    let (_server, path) = start_beside(&mut host, "waiter", "2");
    let mut neighbour = Neighbour::connect(&path);
    assert_eq!(neighbour.ask("ACQ4ME k 1 9 30"), "LOCKED");
    host.send("ACQ4ME k 1 9 30");
    while neighbour.ask("STATS waiting_workers") != "waiting_workers: 1" {}
    let vanished = host.vanish();
    // The kernel now has something to send that nobody acknowledges.
    assert_eq!(neighbour.ask("RELEASE"), "RELEASED");
    assert_eq!(neighbour.ask("ACQ4ME k 1 9 30"), "LOCKED");
    assert_in_time(vanished, 2);
}

#[test]
fn a_host_that_is_merely_silent_keeps_its_lock() {
    let Some(mut host) = Host::boot() else { return };
    let (_server, path) = start_beside(&mut host, "silent", "1");
    host.send("ACQ4ME k 1 9 30");
    assert_eq!(host.answer(), "LOCKED");
    let mut neighbour = Neighbour::connect(&path);
    // Twice the time in which a vanished one would have lost it.
    assert_eq!(neighbour.ask("ACQ4ME k 1 9 4"), "TIMEOUT");
    assert_eq!(host.run("echo RELEASE >&3; echo sent"), "sent");
    assert_eq!(host.answer(), "RELEASED");
}

/// The limit of docs/operations.md for a client that is alive: its window stays
/// closed, so the kernel can't tell it from one that has gone. `KEEPALIVE=60` shows it for
/// the default.
#[test]
fn a_client_that_takes_no_answers_is_taken_for_lost() {
    let keepalive = std::env::var("KEEPALIVE").unwrap_or_else(|_| "2".to_owned());
    let keepalive_s: u64 = keepalive.parse().expect("seconds");
    let server = Server::start_with(&["--keepalive", &keepalive]);
    let mut slow = Client::connect_with_small_buffer(server.address());
    slow.exchange("ACQ4ME k 1 9 30", "LOCKED");
    slow.send_bytes("STATS FULL\n".repeat(60).as_bytes());
    let begin = Instant::now();
    let mut next = server.connect();
    next.send("ACQ4ME k 1 9 999");
    let patience = PATIENCE + Duration::from_secs(2 * keepalive_s);
    assert_eq!(next.next_line(patience).as_deref(), Some("LOCKED"));
    assert_in_time(begin, keepalive_s);
    // It was not cut off for the sum of what it left unread.
    assert_eq!(server.counter("failed_sends"), 0);
}
