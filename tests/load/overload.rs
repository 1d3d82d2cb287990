//! More clients, more input and more output than the daemon can or will accept.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Client, DAEMON, PATIENCE, Server, allow_descriptors, backlog, launched};
use rustix::process::Signal;

/// 64 descriptors and 200 clients.
fn short_of_descriptors() -> Server {
    let launcher = ["prlimit", "--nofile=64:64"];
    Server::spawn(&mut launched(&launcher, DAEMON, &["-l", "127.0.0.1", "-p", "0"]))
}

#[test]
fn without_descriptors_everybody_is_served_in_the_end() {
    let server = short_of_descriptors();
    let mut control = server.connect();
    control.settle();
    let lines_before = server.log.lines().len();
    let mut crowd: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for (n, client) in crowd.iter_mut().enumerate() {
        client.send(&format!("ACQ4ME k{n} 1 1 0"));
    }
    control.wait_for_counter("connect_errors", |n| n >= 1);

    // The daemon is full: it serves the connections that it has, and does not spin.
    let cpu_before = server.cpu_time();
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(100));
        control.settle();
    }
    let (used, elapsed) = (server.cpu_time() - cpu_before, watched.elapsed());
    println!("{used:?} of CPU time in {elapsed:?}, at most a tenth");
    assert!(used * 10 < elapsed, "{used:?} of CPU time in {elapsed:?}");
    let inside = control.counter("processing_workers");
    assert!((30..64).contains(&inside), "{inside} clients are inside");

    // As each client leaves, the next one is accepted: none is refused.
    for mut client in crowd {
        client.expect("LOCKED");
        client.exchange("RELEASE", "RELEASED");
    }
    assert_eq!(control.counter("total_acquired"), 200);
    assert_eq!(control.counter("connect_errors"), 1, "one episode");
    server.log.wait_for_count("", lines_before + 1);
    let lines = server.log.lines().split_off(lines_before);
    assert_eq!(lines.len(), 1, "one episode: {lines:#?}");
}

#[test]
fn repeated_trouble_is_logged_at_a_limited_rate() {
    let server = short_of_descriptors();
    let mut control = server.connect();
    control.settle();
    let lines_before = server.log.lines().len();
    for episode in 1..=5 {
        let mut crowd: Vec<Client> = (0..100).map(|_| server.connect()).collect();
        control.wait_for_counter("connect_errors", |n| n >= episode);
        crowd.iter_mut().for_each(|client| client.send("STATS UPTIME"));
        for mut client in crowd {
            client.line();
        }
        control.settle();
    }
    assert_eq!(control.counter("connect_errors"), 5);
    server.log.wait_for_count("", lines_before + 1);
    let lines = server.log.lines().split_off(lines_before);
    println!("five episodes, {} lines, fewer than 5", lines.len());
    assert!(lines.len() < 5, "{lines:#?}");
}

/// The kernel completes connects by itself as long as the backlog has room; after
/// that, a client waits a second before its next SYN. A stopped daemon is the extreme
/// case of a busy one.
#[test]
fn four_thousand_connect_at_once_to_a_busy_daemon() {
    let server = Server::start();
    let room = backlog(server.address()) as usize;
    let count = room.min(4096) - 96;
    allow_descriptors();
    server.signal(Signal::STOP);
    let mut crowd: Vec<Client> = (0..count).map(|_| server.connect_at_once()).collect();
    crowd.iter_mut().for_each(|client| client.send("STATS UPTIME"));
    server.signal(Signal::CONT);
    for client in &mut crowd {
        let answer = client.line();
        assert!(answer.starts_with("uptime: "), "{answer}");
    }
    assert_eq!(server.counter("connect_errors"), 0);
}

/// While other clients flood the daemon with commands, a client that sends one at a
/// time gets each answer after a bounded number of theirs.
#[test]
fn a_flood_does_not_keep_others_waiting() {
    const FLOODERS: usize = 3;
    const EXCHANGES: u64 = 200;
    let server = Server::start();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let floods: Vec<_> = (0..FLOODERS).map(|_| flood(scope, &server, &stop)).collect();
        let mut victim = server.connect();
        victim.wait_for_counter("release_mismatch", |n| n >= 10_000);
        let before = victim.counter("release_mismatch");
        for _ in 0..EXCHANGES {
            victim.exchange("ACQ4ME k 1 1 0", "LOCKED");
            victim.exchange("RELEASE", "RELEASED");
        }
        let flooded = victim.counter("release_mismatch") - before;
        stop.store(true, Ordering::Relaxed);
        for stream in floods {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let share = flooded / (2 * EXCHANGES);
        // One turn per round trip, two if the command arrived in the middle of a
        // turn; doubled.
        let bound = (4 * 4096 / "RELEASE\n".len() * FLOODERS) as u64;
        println!("{share} commands of {FLOODERS} flooders for each of the victim, below {bound}");
        assert!(share < bound, "{share} commands of flooders for each of the victim");
    });
}

/// A client that sends without a pause, and reads as fast as it sends.
fn flood<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    server: &Server,
    stop: &'scope AtomicBool,
) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("connect");
    let (mut reader, mut writer) = (clone(&stream), clone(&stream));
    scope.spawn(move || {
        let junk = b"RELEASE\n".repeat(8192);
        while !stop.load(Ordering::Relaxed) && writer.write_all(&junk).is_ok() {}
    });
    scope.spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while reader.read(&mut buffer).is_ok_and(|n| n > 0) {}
    });
    stream
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.try_clone().expect("a copy")
}
