//! `--max-hold`: a lock held for too long is taken away from its holder.

use crate::support::restart::{Place, WENT_ON};
use crate::support::{Client, Server, daemon_command, finish};
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
            // The next holder shows whether the right one was popped.
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
    let restarts = server.log.count("continued after a pause");
    server.signal(Signal::USR1);
    server.log.wait_for_count("continued after a pause", restarts + 1);
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
    let reload = finish(&mut daemon_command(&arguments));
    assert_eq!(reload.code, Some(0), "{}{}", reload.stdout, reload.stderr);
    Client::connect(server.address()).wait_for_counter("expired_locks", |n| n >= 1);
    holder.exchange("RELEASE", "NOT_LOCKED");
}

/// Many hanging clients must not fill the log, nor long keys a line.
#[test]
fn locks_taken_away_from_a_crowd_are_logged_at_a_limited_rate() {
    let server = Server::start_with(&SHORT);
    let key = format!("short:{}", "x".repeat(3_000));
    let mut crowd: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    for client in &mut crowd {
        client.exchange(&format!("ACQ4ME {key} 100 100 0"), "LOCKED");
    }
    wait_for_expired(&server, 100);
    let lines: Vec<String> =
        server.log.lines().into_iter().filter(|line| line.contains("taken away")).collect();
    assert!(matches!(lines.len(), 1 | 2), "{} lines", lines.len());
    assert!(lines.iter().all(|line| line.len() < 400), "{lines:?}");
}

/// Of many log lines of a kind the next one says how many were left out: also if a hot
/// restart comes between.
#[test]
fn a_hot_restart_remembers_how_many_log_lines_were_left_out() {
    let place = Place::with_daemon();
    let server = place.start(&["--max-hold", "*=1"]);
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().take(3).enumerate() {
        client.exchange(&format!("ACQ4ME k{n} 1 9 0"), "LOCKED");
    }
    wait_for_expired(&server, 3);
    server.signal(Signal::USR1);
    server.log.wait_for(WENT_ON);
    clients[3].exchange("ACQ4ME k3 1 9 0", "LOCKED");
    wait_for_expired(&server, 4);
    let line = server.log.wait_for("lock on k3 taken away");
    assert!(line.ends_with(" (2 more like this were not logged)"), "{line}");
}
