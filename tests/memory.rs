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
use std::io::Write;
use std::time::{Duration, Instant};

/// What half a line may take: docs/protocol.md.
const LINE_BYTES_MAX: usize = 4096;
/// What a client may leave unread.
const UNREAD_BYTES_MAX: usize = 64 * 1024;
/// A connection without either, allocator and all.
const CONNECTION_BYTES_MAX: usize = 300;

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

/// Asks for `STATS FULL` until that is cut off, and returns how often it could.
fn questions_until_cut_off(server: &Server) -> usize {
    const AT_ONCE: usize = 4;
    let mut control = server.connect();
    let pilot = Client::connect_with_small_buffer(server.address());
    let already = control.counter("failed_sends");
    let mut asked = 0;
    while control.counter("failed_sends") == already {
        let _ = pilot.stream().write_all("STATS FULL\n".repeat(AT_ONCE).as_bytes());
        control.settle();
        asked += AT_ONCE;
        assert!(asked < 100_000, "nothing bounds what a client leaves unread");
    }
    asked - AT_ONCE
}

#[test]
fn thousands_that_do_not_read_their_stats() {
    let _alone = have_the_machine();
    // A gigabyte takes its time without optimization; FULL_CROWD=1 does it.
    let full = std::env::var_os("FULL_CROWD").is_some();
    let count = crowd_size(if full { 16_000 } else { 400 });
    let server = start_apart(4, &[]);
    let questions = questions_until_cut_off(&server);
    let questions = "STATS FULL\n".repeat(questions * 19 / 20);
    let before = private_bytes(&server);
    let mut crowd: Vec<Client> =
        (0..count).map(|_| Client::connect_with_small_buffer(server.address())).collect();
    for client in &mut crowd {
        client.send_bytes(questions.as_bytes());
    }
    server.settle();
    let used = private_bytes(&server) - before;
    assert!(used > count * UNREAD_BYTES_MAX / 2, "{used} bytes: they do read");
    let each = LINE_BYTES_MAX + UNREAD_BYTES_MAX + CONNECTION_BYTES_MAX;
    assert_bounded(&server, before, count, each);
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
    server.connect().exchange("ACQ4ME k 1 9 0", "LOCKED");
    expect_empty(&server);
    let before = private_bytes(&server);
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

#[test]
fn clients_and_keys_that_come_and_go_leave_nothing() {
    let _alone = have_the_machine();
    let server = start_apart(6, &[]);
    server.connect().exchange("ACQ4ME k 1 9 0", "LOCKED");
    expect_empty(&server);
    let before = private_bytes(&server);
    // 40,000 clients, never more than 50 at a time, and half a million keys.
    for round in 0..800 {
        let mut few: Vec<Client> = (0..50).map(|_| server.connect()).collect();
        for (n, client) in few.iter_mut().enumerate() {
            let mut lines = String::new();
            for k in 0..12 {
                lines += &format!("ACQ4ME {round}:{n}:{k} 1 9 0\nRELEASE\n");
            }
            client.send_bytes(lines.as_bytes());
        }
        for mut client in few {
            for _ in 0..12 {
                client.expect("LOCKED");
                client.expect("RELEASED");
            }
            client.reset();
        }
    }
    expect_empty(&server);
    assert_eq!(server.counter("total_acquired"), 1 + 800 * 50 * 12);
    expect_memory_back(&server, before);
}
