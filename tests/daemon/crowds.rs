//! Many clients at once, and clients that disconnect at any point: nobody is refused,
//! nothing is left behind.

use crate::support::crowd::{crowd_size, expect_empty, wait_until};
use crate::support::{Client, Server, eventually};
use rustix::net::{SendFlags, send};
use rustix::process::Signal;
use std::io::Write;

/// All states of a client: it holds, waits, holds four locks, has sent a line that is
/// too long, has answers that it may not have read.
const SCRIPT: &str = "ACQ4ME a 9 999 30\nACQ4ANY held 1 999 30\nRELEASE\nACQ4ME b 9 999 30\r\n\
    STATS FULL\nACQ4ME c 9 999 30\nACQ4ME d 9 999 30\nACQ4ME e 9 999 30\nRELEASE\nACQ4ME held 1 \
    999 30\nQUIT\n";

/// How a client disconnects.
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    Close,
    /// Shuts down its writing side and stays.
    HalfClose,
}

/// Disconnects after each byte of the script. With `look_first`, waits until the
/// daemon has handled the bytes; otherwise it may see the bytes and the end at once.
fn break_off_everywhere(server: &Server, end: End, look_first: bool) -> Vec<Client> {
    let mut control = server.connect();
    let mut half_closed = Vec::new();
    for len in 0..=SCRIPT.len() {
        let mut client = server.connect();
        client.send_bytes(&SCRIPT.as_bytes()[..len]);
        if look_first {
            control.settle();
        }
        match end {
            End::Reset => client.reset(),
            End::Close => drop(client),
            End::HalfClose => {
                client.shut_writing();
                half_closed.push(client);
            }
        }
    }
    half_closed
}

#[test]
fn clients_that_break_off_anywhere_leave_nothing_behind() {
    let server = Server::start();
    let before = server.descriptors();
    let mut holder = server.connect();
    holder.exchange("ACQ4ME held 1 999 30", "LOCKED");
    for end in [End::Reset, End::Close, End::HalfClose] {
        for look_first in [true, false] {
            for mut client in break_off_everywhere(&server, end, look_first) {
                // The daemon closes a connection that the client has half closed.
                client.read_to_end();
            }
            let mut control = server.connect();
            wait_until(&format!("{end:?} gave back all"), || {
                control.counter("processing_workers") == 1
                    && control.counter("waiting_workers") == 0
            });
        }
    }
    holder.exchange("RELEASE", "RELEASED");
    drop(holder);
    expect_empty(&server);
    wait_until("their descriptors are closed", || server.descriptors() <= before);
    assert_eq!(server.counter("connect_errors"), 0);
}

#[test]
fn clients_that_broke_off_while_the_daemon_was_busy_leave_nothing_behind() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.exchange("ACQ4ME held 1 999 30", "LOCKED");
    for end in [End::Reset, End::Close] {
        // Each connection is in the backlog, with all its bytes and its end.
        server.signal(Signal::STOP);
        for len in 0..=SCRIPT.len() {
            let mut client = Client::connect(server.address());
            client.send_bytes(&SCRIPT.as_bytes()[..len]);
            if matches!(end, End::Reset) {
                client.reset();
            }
        }
        server.signal(Signal::CONT);
        holder.settle();
    }
    holder.exchange("RELEASE", "RELEASED");
    expect_empty(&server);
    assert_eq!(server.counter("connect_errors"), 0);
}

#[test]
fn five_thousand_connect_at_once_and_all_are_answered() {
    // An even number.
    let count = crowd_size(5_000) / 2 * 2;
    let server = Server::start();
    let mut crowd: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    for (n, client) in crowd.iter_mut().enumerate() {
        client.send(&format!("ACQ4ME k{} 1 9 60", n / 2));
    }
    // Two clients for each key: one gets it at once, the other after the first has
    // left.
    let mut waiters = Vec::new();
    for (n, mut client) in crowd.into_iter().enumerate() {
        if n % 2 == 0 { client.expect("LOCKED") } else { waiters.push(client) }
    }
    for mut waiter in waiters {
        waiter.expect("LOCKED");
    }
    let mut control = server.connect();
    control.wait_for_counter("processed_count", |n| n >= count as u64);
    assert_eq!(control.counter("total_acquired"), count as u64);
    assert_eq!(control.counter("processed_count"), count as u64);
    assert_eq!(control.counter("hashtable_entries"), 0);
    assert_eq!(control.counter("connect_errors"), 0);
}

/// A crowd that connects and aborts before the daemon accepts it is no error.
#[test]
fn connections_aborted_in_the_backlog_are_no_error() {
    let server = Server::start();
    let mut control = server.connect();
    control.settle();
    server.signal(Signal::STOP);
    for n in 0..300 {
        let mut client = server.connect();
        if n % 3 == 0 {
            client.send("ACQ4ME k 1 1000 0");
        }
        client.reset();
    }
    server.signal(Signal::CONT);
    server.settle();
    control.wait_for_counter("processing_workers", |n| n == 0);
    server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
    assert_eq!(control.counter("connect_errors"), 0);
}

#[test]
fn a_client_that_never_reads_is_cut_off() {
    let server = Server::start();
    let mut control = server.connect();
    let mut slow = Client::connect_with_small_buffer(server.address());
    slow.exchange("ACQ4ME k 1 9 0", "LOCKED");
    let questions = "STATS FULL\n".repeat(50);
    let mut asked = 0;
    while control.counter("failed_sends") == 0 {
        asked += 50;
        assert!(asked < 200_000, "nothing bounds what a client leaves unread");
        // The connection may end between two of these.
        let _ = slow.stream().write_all(questions.as_bytes());
        // Meanwhile, the others are served.
        control.exchange("ACQ4ME other 1 1 0", "LOCKED");
        control.exchange("RELEASE", "RELEASED");
    }
    assert_eq!(control.counter("failed_sends"), 1);
    // Its lock is free.
    control.wait_for_counter("hashtable_entries", |n| n == 0);
    control.exchange("ACQ4ME k 1 1 0", "LOCKED");
    // The client notices when it finally reads.
    slow.read_to_end();
    assert_eq!(control.counter("failed_sends"), 1);
    assert_eq!(control.counter("connect_errors"), 0);
}

/// Stops the daemon, so that everything sent meanwhile has arrived when it reads
/// again.
fn while_stopped(server: &Server, send: impl FnOnce()) {
    server.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", server.pid());
    assert!(eventually(|| std::fs::read_to_string(&stat).expect("stat").contains(") T ")));
    send();
    server.signal(Signal::CONT);
}

#[test]
fn urgent_data_hides_nothing_that_comes_after_it() {
    let server = Server::start();
    let mut client = server.connect();
    client.settle();
    while_stopped(&server, || {
        client.send("STATS total_acquired");
        send(client.stream(), b"!", SendFlags::OOB).expect("send urgent data");
        client.send("STATS total_releases");
    });
    client.expect("total_acquired: 0");
    client.expect("total_releases: 0");
}
