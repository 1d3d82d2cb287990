//! `--max-hold`: a lock held for too long is taken away from its holder.

#![cfg(feature = "daemon")]

mod common;

use common::{Client, Server};
use rustix::process::Signal;

/// Keys that begin with `short:` may be held for a second.
const SHORT: [&str; 2] = ["--max-hold", "short:*=1"];

fn assert_counters(server: &Server, expected: &[(&str, u64)]) {
    let mut control = server.connect();
    for &(name, value) in expected {
        assert_eq!(control.counter(name), value, "{name}");
    }
}

/// Waits until that many locks were taken away.
fn wait_for_expired(server: &Server, count: u64) {
    server.connect().wait_for_counter("expired_locks", |n| n >= count);
}

#[test]
fn the_slot_goes_on_as_after_a_disconnect() {
    let server = Server::start_with(&SHORT);
    let (mut holder, mut for_me, mut for_anyone) =
        (server.connect(), server.connect(), server.connect());
    holder.exchange("ACQ4ME short:k 1 9 30", "LOCKED");
    for_anyone.send("ACQ4ANY short:k 1 9 30");
    server.settle();
    for_me.send("ACQ4ME short:k 1 9 30");
    // The work was not done: who would take anyone's is not told that it was.
    for_me.expect("LOCKED");
    server.settle();
    for_anyone.expect_nothing();
    // The next holder has its own second, from when it got the lock.
    for_anyone.expect("LOCKED");
    wait_for_expired(&server, 3);
    assert_counters(&server, &[("total_acquired", 3), ("processed_count", 3)]);
}

#[test]
fn its_holder_is_told_not_locked_and_counts_no_mismatch() {
    let server = Server::start_with(&SHORT);
    let mut holder = server.connect();
    holder.exchange("ACQ4ME short:k 1 9 30", "LOCKED");
    wait_for_expired(&server, 1);
    holder.expect_nothing();
    holder.exchange("RELEASE", "NOT_LOCKED");
    assert_counters(&server, &[("release_mismatch", 0), ("total_releases", 0)]);
    // Spent once: from now on the client holds nothing, and that is a mistake.
    holder.exchange("RELEASE", "NOT_LOCKED");
    assert_counters(&server, &[("release_mismatch", 1)]);
    holder.exchange("ACQ4ME short:k 1 9 30", "LOCKED");
}

#[test]
fn the_clients_other_locks_are_released_in_their_order() {
    // Each place in the stack of four may be the one that is spent.
    let server = Server::start_with(&SHORT);
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for (spent, client) in clients.iter_mut().enumerate() {
        for place in 0..4 {
            let kind = if place == spent { "short" } else { "long" };
            client.exchange(&format!("ACQ4ME {kind}:{spent}:{place} 1 9 30"), "LOCKED");
        }
    }
    wait_for_expired(&server, 4);
    for (spent, client) in clients.iter_mut().enumerate() {
        // A spent lock still counts toward the four.
        client.exchange("ACQ4ME another 1 9 30", "LOCK_HELD");
        for place in (0..4).rev() {
            // Whether the right one was popped shows in who can have it next.
            let key = format!("long:{spent}:{place}");
            let answer = if place == spent { "NOT_LOCKED" } else { "RELEASED" };
            client.exchange("RELEASE", answer);
            if place != spent {
                server.connect().exchange(&format!("ACQ4ME {key} 1 9 0"), "LOCKED");
            }
        }
    }
    assert_counters(&server, &[("release_mismatch", 0), ("expired_locks", 4)]);
}

#[test]
fn a_wait_above_a_spent_lock_is_the_one_that_release_cancels() {
    let server = Server::start_with(&SHORT);
    let (mut other, mut client) = (server.connect(), server.connect());
    other.exchange("ACQ4ME long 1 9 30", "LOCKED");
    client.exchange("ACQ4ME short:k 1 9 30", "LOCKED");
    client.send("ACQ4ME long 1 9 30");
    wait_for_expired(&server, 1);
    client.exchange("RELEASE", "RELEASED");
    client.exchange("RELEASE", "NOT_LOCKED");
    assert_counters(&server, &[("release_mismatch", 0), ("waiting_workers", 0)]);
}

#[test]
fn a_spent_lock_is_in_no_gauge_and_is_counted_once() {
    let server = Server::start_with(&SHORT);
    let taken_away = [
        ("processing_workers", 0),
        ("waiting_workers", 0),
        ("hashtable_entries", 0),
        ("processed_count", 1),
        ("expired_locks", 1),
        ("total_acquired", 1),
    ];
    let mut holder = server.connect();
    holder.exchange("ACQ4ME short:k 1 9 30", "LOCKED");
    wait_for_expired(&server, 1);
    assert_counters(&server, &taken_away);
    let held = server.connect().seconds("total processing time");
    assert!(held >= 1.0, "held for {held} s");
    holder.shut_writing();
    holder.expect_end();
    assert_counters(&server, &taken_away);
    assert_eq!(server.connect().seconds("total processing time"), held);
}

#[test]
fn the_log_names_key_client_and_age() {
    let server = Server::start_with(&SHORT);
    let mut holder = server.connect();
    holder.exchange("ACQ4ME short:Main%20Page 1 9 30", "LOCKED");
    let line = server.log.wait_for("--max-hold");
    let peer = holder.stream().local_addr().expect("address").to_string();
    for part in ["short:Main%20Page", &peer, "after 1 s"] {
        assert!(line.contains(part), "no {part:?} in {line:?}");
    }
}

#[test]
fn the_first_pattern_that_matches_counts_and_others_are_unlimited() {
    let server = Server::start_with(&["--max-hold", "a:slow*=600", "--max-hold", "a:*=1"]);
    let (mut slow, mut quick, mut other) = (server.connect(), server.connect(), server.connect());
    slow.exchange("ACQ4ME a:slow:k 1 9 30", "LOCKED");
    other.exchange("ACQ4ME b:k 1 9 30", "LOCKED");
    quick.exchange("ACQ4ME a:k 1 9 30", "LOCKED");
    wait_for_expired(&server, 1);
    quick.exchange("RELEASE", "NOT_LOCKED");
    slow.exchange("RELEASE", "RELEASED");
    other.exchange("RELEASE", "RELEASED");
}

#[test]
fn released_in_time_it_is_not_taken_from_the_next_holder() {
    let server = Server::start_with(&SHORT);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.exchange("ACQ4ME short:k 1 9 30", "LOCKED");
    // Waits for as long as a lock may be held, and is then given one.
    second.send("ACQ4ME short:k 1 9 30");
    second.expect("LOCKED");
    second.exchange("RELEASE", "RELEASED");
    assert_counters(&server, &[("expired_locks", 1)]);
}

fn restart(server: &Server) {
    let restarts = server.log.count("went on after a pause");
    server.signal(Signal::HUP);
    server.log.wait_for_count("went on after a pause", restarts + 1);
}

#[test]
fn a_spent_lock_stays_spent_across_a_hot_restart() {
    let server = Server::start_with(&SHORT);
    let mut client = server.connect();
    client.exchange("ACQ4ME long:1 1 9 30", "LOCKED");
    client.exchange("ACQ4ME short:2 1 9 30", "LOCKED");
    client.exchange("ACQ4ME long:3 1 9 30", "LOCKED");
    wait_for_expired(&server, 1);
    restart(&server);
    assert_counters(&server, &[("expired_locks", 1), ("processing_workers", 2)]);
    for answer in ["RELEASED", "NOT_LOCKED", "RELEASED"] {
        client.exchange("RELEASE", answer);
    }
    assert_counters(&server, &[("release_mismatch", 0), ("processed_count", 3)]);
}

#[test]
fn the_time_that_a_lock_was_held_before_a_hot_restart_counts() {
    let server = Server::start_with(&["--max-hold", "*=2"]);
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.exchange("ACQ4ME k 1 9 30", "LOCKED");
    waiter.send("ACQ4ME k 1 9 30");
    server.settle();
    restart(&server);
    waiter.expect("LOCKED");
    // Of the seconds since LOCKED, the log says the whole ones.
    assert!(server.log.wait_for("--max-hold").contains("after 2 s"));
}

#[test]
fn a_limit_set_by_reload_holds_for_locks_that_are_held_already() {
    let control = format!("{}/max-hold-{}.sock", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let server = Server::start_with(&["--control", &control]);
    let mut holder = server.connect();
    holder.exchange("ACQ4ME short:k 1 9 30", "LOCKED");
    let port = server.address().port().to_string();
    let arguments =
        ["--reload", "--control", &control, "-l", "127.0.0.1", "-p", &port, SHORT[0], SHORT[1]];
    let reload = common::finish(&mut common::daemon_command(&arguments));
    assert_eq!(reload.code, Some(0), "{}{}", reload.stdout, reload.stderr);
    Client::connect(server.address()).wait_for_counter("expired_locks", |n| n >= 1);
    holder.exchange("RELEASE", "NOT_LOCKED");
}
