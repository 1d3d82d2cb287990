//! How soon the daemon reacts: to hosts that vanish, and not to crowds that are merely silent, to
//! descriptors that become free, a slow service manager.

use crate::support::crowd::{connect_crowd, crowd_size, full_daemon};
use crate::support::hosts::{Host, neighbour, start_with_cable};
use crate::support::notified::Notified;
use crate::support::{Client, PATIENCE, Server};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The silence after which a host counts as lost.
fn silence_of(keepalive_s: u64) -> Duration {
    Duration::from_millis(1_500 * keepalive_s).max(Duration::from_secs(2))
}

/// A busy machine may add a delay.
#[track_caller]
fn assert_in_time(since: Instant, keepalive_s: u64) {
    let elapsed = since.elapsed();
    let bound = silence_of(keepalive_s) + Duration::from_secs(5);
    println!("free after {elapsed:?} with --keepalive {keepalive_s}, at most {bound:?}");
    assert!(elapsed < bound, "{elapsed:?}");
}

/// `KEEPALIVE=60` measures it for the default.
fn keepalive_s() -> u64 {
    let keepalive = std::env::var("KEEPALIVE").unwrap_or_else(|_| "2".to_owned());
    keepalive.parse().expect("seconds")
}

/// Waits for the lock of a vanished host.
fn assert_free_in_time(neighbour: &mut Client, since: Instant, keepalive_s: u64) {
    let deadline = Instant::now() + PATIENCE + 2 * silence_of(keepalive_s);
    while neighbour.ask("ACQ4ME k 1 9 10") != "LOCKED" {
        assert!(Instant::now() < deadline, "it is held after {:?}", since.elapsed());
    }
    assert_in_time(since, keepalive_s);
}

#[test]
fn the_lock_of_a_vanished_host_is_free_in_time() {
    let Some(mut host) = Host::boot() else { return };
    let keepalive_s = keepalive_s();
    let server = start_with_cable(&mut host, &keepalive_s.to_string());
    host.send("ACQ4ME k 1 9 30");
    assert_eq!(host.answer(), "LOCKED");
    let mut neighbour = neighbour(&server);
    host.vanish();
    assert_free_in_time(&mut neighbour, Instant::now(), keepalive_s);
}

#[test]
fn a_lock_handed_to_a_vanished_host_is_free_in_time() {
    let Some(mut host) = Host::boot() else { return };
    let keepalive_s = keepalive_s();
    let server = start_with_cable(&mut host, &keepalive_s.to_string());
    let mut neighbour = neighbour(&server);
    assert_eq!(neighbour.ask("ACQ4ME k 1 9 30"), "LOCKED");
    host.send("ACQ4ME k 1 9 30");
    while neighbour.ask("STATS waiting_workers") != "waiting_workers: 1" {}
    host.vanish();
    let vanished = Instant::now();
    // The kernel now sends data that no host acknowledges.
    assert_eq!(neighbour.ask("RELEASE"), "RELEASED");
    assert_free_in_time(&mut neighbour, vanished, keepalive_s);
}

/// The kernel sends the probes of many connections at once, and the loopback device drops what
/// exceeds net.core.netdev_max_backlog.
#[track_caller]
fn assert_silent_crowd_keeps_its_locks(keepalive_s: u64, wanted: usize) {
    // Once half of the local ports are in use, connects to the same address are slow.
    let arguments = ["-l", "127.0.3.1,127.0.3.2", "--keepalive", &keepalive_s.to_string()];
    let server = Server::start_with(&arguments);
    let begin = Instant::now();
    let of_each = crowd_size(wanted) / server.addresses().len();
    let crowds = server.addresses().iter().map(|&address| connect_crowd(address, of_each));
    let mut crowd: Vec<Client> = crowds.flatten().collect();
    let count = crowd.len();
    for (n, client) in crowd.iter_mut().enumerate() {
        client.send(&format!("ACQ4ME k{n} 1 1 0"));
    }
    crowd.iter_mut().for_each(|client| client.expect("LOCKED"));
    let connected = begin.elapsed();
    std::thread::sleep(silence_of(keepalive_s) + Duration::from_secs(10));
    let held = server.counter("processing_workers");
    println!(
        "{count} clients, connected in {connected:?}, with --keepalive {keepalive_s}: {} lost, at most 0",
        count as u64 - held
    );
    assert_eq!(held, count as u64);
    crowd.iter_mut().for_each(|client| client.exchange("RELEASE", "RELEASED"));
}

#[test]
fn nineteen_thousand_silent_clients_keep_their_locks() {
    assert_silent_crowd_keeps_its_locks(60, 19_000);
}

#[test]
fn five_thousand_silent_clients_keep_their_locks_with_a_short_keepalive() {
    assert_silent_crowd_keeps_its_locks(10, 5_000);
}

#[test]
fn the_lock_of_a_client_that_takes_no_answers_is_free_in_time() {
    let keepalive_s = keepalive_s();
    let server = Server::start_with(&["--keepalive", &keepalive_s.to_string()]);
    let mut slow = Client::connect_with_small_buffer(server.address());
    slow.exchange("ACQ4ME k 1 9 30", "LOCKED");
    slow.send_bytes("STATS FULL\n".repeat(60).as_bytes());
    let begin = Instant::now();
    let mut next = server.connect();
    next.send("ACQ4ME k 1 9 999");
    let patience = PATIENCE + silence_of(keepalive_s);
    assert_eq!(next.next_line(patience).as_deref(), Some("LOCKED"));
    assert_in_time(begin, keepalive_s);
}

/// Without waiting for the retry a second later.
#[test]
fn a_descriptor_that_becomes_free_is_used_at_once() {
    let (_daemon, mut crowd) = full_daemon();
    crowd.iter_mut().for_each(|client| client.send("ACQ4ME k 100 100 0"));
    crowd[0].expect("LOCKED");
    crowd[0].settle();
    let inside = crowd[0].counter("processing_workers") as usize;
    let mut outside = crowd.split_off(inside).into_iter();
    crowd[1..].iter_mut().for_each(|client| client.expect("LOCKED"));
    // In the order in which they connected.
    let begin = Instant::now();
    for client in crowd.drain(..10) {
        drop(client);
        outside.next().expect("more clients wait").expect("LOCKED");
    }
    let elapsed = begin.elapsed();
    println!("ten descriptors are used again after {elapsed:?}, at most 5 s");
    // Ten retries would take ten seconds.
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?} for ten");
}

/// When even the reserve is exhausted, an operator waits and is served eventually.
#[test]
fn an_operator_without_a_descriptor_is_served_later() {
    let (daemon, mut crowd) = full_daemon();
    let pid = daemon.server.pid().to_string();
    let mut limit = std::process::Command::new("prlimit");
    let status = limit.args(["--pid", &pid, "--nofile=16:64"]).status();
    assert!(status.expect("prlimit, of util-linux").success());
    let mut waiting = UnixStream::connect(daemon.path()).expect("connect");
    waiting.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    waiting.write_all(b"UNDRAIN\n").expect("send");
    crowd[0].settle();
    let mut answers = BufReader::new(waiting.try_clone().expect("dup"));
    let mut answer = String::new();
    answers.read_line(&mut answer).expect_err("no descriptor, no answer");
    let mut limit = std::process::Command::new("prlimit");
    let status = limit.args(["--pid", &pid, "--nofile=64:64"]).status();
    assert!(status.expect("prlimit").success());
    waiting.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    answers.read_line(&mut answer).expect("an answer");
    assert!(answer.starts_with("OK listening on "), "{answer:?}");
}

/// The daemon waits briefly before it exits. A busy test may miss that, but not always.
#[test]
fn stopping_is_sent_to_a_slow_service_manager() {
    let is_notified = |attempt: usize| {
        let notified = Notified::at_path(&format!("slow-{attempt}"));
        let mut daemon = notified.daemon(&[]);
        let mut client = Client::connect(daemon.address);
        client.settle();
        notified.fill();
        daemon.signal(Signal::TERM);
        client.expect_end();
        // Slow, but not too slow.
        std::thread::sleep(Duration::from_millis(20));
        let mut seen = Vec::new();
        notified.socket.set_nonblocking(true).expect("non-blocking");
        while daemon.child.try_wait().expect("wait").is_none() || notified.has_more() {
            seen.extend(notified.has_more().then(|| notified.receive()));
        }
        seen.iter().any(|message| message == "STOPPING=1\n")
    };
    assert!((0..20).any(is_notified));
}
