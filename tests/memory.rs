//! User memory is bounded whatever clients do, and given back when they leave.
//! The bounds are those of docs/operations.md.

#![cfg(feature = "daemon")]

mod common;
#[path = "common/crowd.rs"]
mod crowd;

use common::{Client, PATIENCE, Server};
use crowd::{
    connect_crowd, crowd_size, expect_empty, have_the_machine, private_bytes, start_apart,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What half a line may take: docs/protocol.md.
const LINE_BYTES_MAX: usize = 4096;
/// What a client may leave unread, 64 KiB, and room for what comes next.
const UNREAD_BYTES_MAX: usize = 68 * 1024;
/// A lock: its key, which is in a line, and what knows it.
const LOCK_BYTES_MAX: usize = LINE_BYTES_MAX + 256;
/// A connection without any of these, allocator and all.
const CONNECTION_BYTES_MAX: usize = 1024;

fn assert_bounded(server: &Server, before: usize, clients: usize, bytes_each: usize) {
    let used = private_bytes(server).saturating_sub(before);
    println!(
        "{clients} clients take {used} bytes, {} each; the bound is {bytes_each}",
        used / clients
    );
    assert!(used <= clients * bytes_each, "{} bytes each", used / clients);
}

#[test]
fn sixteen_thousand_with_the_longest_line_half_sent() {
    let _alone = have_the_machine();
    let half = vec![b'x'; LINE_BYTES_MAX - 1];
    // At once, and in pieces, all clients in turn: what the allocator likes least.
    for (clients, piece) in [(16_000, half.len()), (4_000, 512)] {
        let count = crowd_size(clients);
        let server = start_apart(3, &[]);
        let before = private_bytes(&server);
        let mut crowd = connect_crowd(server.address(), count);
        for piece in half.chunks(piece) {
            crowd.iter_mut().for_each(|client| client.send_bytes(piece));
        }
        server.settle();
        assert_bounded(&server, before, count, LINE_BYTES_MAX + CONNECTION_BYTES_MAX);
        // It was half a line, and none too long: the rest makes it one.
        let mut first = crowd.swap_remove(0);
        first.exchange("", "ERROR BAD_COMMAND");
    }
}

#[test]
fn thousands_with_four_locks_of_the_longest_keys() {
    let _alone = have_the_machine();
    let count = crowd_size(4_000);
    let server = start_apart(7, &[]);
    let before = private_bytes(&server);
    let mut crowd = connect_crowd(server.address(), count);
    let rest = " 1 9 60\n";
    for (n, client) in crowd.iter_mut().enumerate() {
        for depth in 0..4 {
            let mut line = format!("ACQ4ME {depth}:{n}:");
            let padding = LINE_BYTES_MAX - line.len() - rest.len();
            line += &"k".repeat(padding);
            client.send_bytes((line + rest).as_bytes());
        }
        client.send_bytes(&[b'x'; LINE_BYTES_MAX - 1]);
    }
    for client in &mut crowd {
        (0..4).for_each(|_| client.expect("LOCKED"));
    }
    server.settle();
    let each = LINE_BYTES_MAX + 4 * LOCK_BYTES_MAX + CONNECTION_BYTES_MAX;
    assert_bounded(&server, before, count, each);
}

/// A client that asks that often for `STATS FULL`, reads nothing, and begins the
/// longest line. Over a Unix
/// socket, for there the kernel's buffer has one size; TCP's grows by up to 4 MiB
/// as it sees fit.
fn ask_and_look_away(path: &str, times: usize) -> UnixStream {
    let mut client = UnixStream::connect(path).expect("connect");
    client.write_all("STATS FULL\n".repeat(times).as_bytes()).expect("send");
    // Fails if it was cut off already.
    let _ = client.write_all(&[b'x'; LINE_BYTES_MAX - 1]);
    client
}

/// All that was sent by [`ask_and_look_away`] has been handled: three shares of
/// 4096 bytes at most, one a turn.
fn expect_all_handled(control: &mut Client) {
    (0..4).for_each(|_| control.settle());
}

/// How often a client may ask without being cut off.
fn questions_until_cut_off(server: &Server, path: &str) -> usize {
    const STEP: usize = 4;
    let mut control = server.connect();
    for times in (STEP..100_000).step_by(STEP) {
        let _pilot = ask_and_look_away(path, times);
        expect_all_handled(&mut control);
        if control.counter("failed_sends") > 0 {
            return times - STEP;
        }
    }
    panic!("nothing bounds what a client leaves unread");
}

#[test]
fn thousands_that_do_not_read_their_stats() {
    let _alone = have_the_machine();
    // 16,000 take a gigabyte, and the kernel three more for its buffers: only when
    // asked for, by FULL_CROWD=1.
    let full = std::env::var_os("FULL_CROWD").is_some();
    let count = crowd_size(if full { 16_000 } else { 1_000 });
    let path = std::env::temp_dir().join(format!("pool-unread-{}.sock", std::process::id()));
    let path = path.to_str().expect("path");
    let server = start_apart(4, &["--listen-unix", path]);
    let times = questions_until_cut_off(&server, path);
    let before = private_bytes(&server);
    let crowd: Vec<UnixStream> = (0..count).map(|_| ask_and_look_away(path, times)).collect();
    // Accepted after all of them, it is answered when they have had their first.
    let mut last = ask_and_look_away(path, 1);
    last.read_exact(&mut [0]).expect("an answer");
    expect_all_handled(&mut server.connect());
    let used = private_bytes(&server) - before;
    assert!(used > count * UNREAD_BYTES_MAX / 2, "{used} bytes: somebody reads");
    let each = LINE_BYTES_MAX + UNREAD_BYTES_MAX + CONNECTION_BYTES_MAX;
    assert_bounded(&server, before, count, each);
    assert_eq!(crowd.len(), count);
    assert_eq!(server.counter("failed_sends"), 1, "that of the last pilot");
}

/// The memory of a daemon that has served a few already: nothing that it does for
/// the first time is left.
fn private_bytes_in_use(server: &Server) -> usize {
    let mut few = connect_crowd(server.address(), 100);
    few.iter_mut().for_each(|client| client.exchange("ACQ4ME k 999 999 0", "LOCKED"));
    drop(few);
    expect_empty(server);
    private_bytes(server)
}

/// Waits until the daemon's memory is within a tenth of what it was.
#[track_caller]
fn expect_memory_back(server: &Server, before: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = private_bytes(server);
        if now * 10 <= before * 11 {
            println!("{before} bytes before, {now} after all had left");
            return;
        }
        assert!(Instant::now() < deadline, "{now} bytes, and it was {before}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn memory_comes_back_when_a_crowd_has_left() {
    let _alone = have_the_machine();
    let count = crowd_size(16_000);
    let server = start_apart(5, &[]);
    let before = private_bytes_in_use(&server);
    let mut crowd = connect_crowd(server.address(), count);
    for (n, client) in crowd.iter_mut().enumerate() {
        for depth in 0..4 {
            client.send(&format!("ACQ4ME {depth}:{n}:{} 1 9 60", "k".repeat(200)));
        }
        client.send_bytes(&[b'x'; 1000]);
    }
    for client in &mut crowd {
        (0..4).for_each(|_| client.expect("LOCKED"));
    }
    println!("{} bytes with {count} clients", private_bytes(&server));
    drop(crowd);
    expect_empty(&server);
    expect_memory_back(&server, before);
}

/// How many keys each of [`fifty_come_and_go`] takes and gives back.
const KEYS: usize = 50;

fn fifty_come_and_go(server: &Server, round: usize) {
    let mut fifty: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    for (n, client) in fifty.iter_mut().enumerate() {
        let line = |k| format!("ACQ4ME {round}:{n}:{k} 1 9 0\nRELEASE\n");
        client.send_bytes((0..KEYS).map(line).collect::<String>().as_bytes());
    }
    for mut client in fifty {
        for _ in 0..KEYS {
            client.expect("LOCKED");
            client.expect("RELEASED");
        }
        client.reset();
    }
}

#[test]
fn clients_and_keys_that_come_and_go_leave_nothing() {
    let _alone = have_the_machine();
    let server = start_apart(6, &[]);
    fifty_come_and_go(&server, 0);
    expect_empty(&server);
    let before = private_bytes(&server);
    // 40,000 clients, never more than 50 at a time, and two million keys.
    for round in 1..=800 {
        fifty_come_and_go(&server, round);
    }
    expect_empty(&server);
    assert_eq!(server.counter("total_acquired"), 801 * 50 * KEYS as u64);
    expect_memory_back(&server, before);
}
