//! `--max-hold`: a lock held for too long is taken away from its holder.

use crate::support::{Client, Server};
use std::time::Instant;

/// Keys that begin with `short:` may be held for a second.
const SHORT: [&str; 2] = ["--max-hold", "short:*=1"];

/// Waits until that many locks were taken away.
fn wait_for_expired(server: &Server, count: u64) {
    server.connect().wait_for_counter("expired_locks", |n| n >= count);
}

#[test]
fn the_log_names_key_client_and_age() {
    let server = Server::start_with(&SHORT);
    let mut holder = server.connect();
    holder.exchange("ACQ4ME short:Main%20Page 1 9 30", "LOCKED");
    let line = server.log.wait_for("--max-hold");
    let peer = holder.stream().local_addr().expect("address").to_string();
    for part in ["short:Main%20Page", &peer] {
        assert!(line.contains(part), "no {part:?} in {line:?}");
    }
    let (_, age) = line.rsplit_once(" after ").expect("an age");
    let seconds: Option<u64> = age.strip_suffix(" s").and_then(|age| age.parse().ok());
    assert!(seconds.is_some_and(|seconds| seconds >= 1), "{line}");
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

/// Many hanging clients must not fill the log, nor long keys a line.
#[test]
fn locks_taken_away_from_a_crowd_are_logged_at_a_limited_rate() {
    let began = Instant::now();
    let server = Server::start_with(&SHORT);
    let key = format!("short:{}", "x".repeat(3_000));
    let mut crowd: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    for client in &mut crowd {
        client.exchange(&format!("ACQ4ME {key} 100 100 0"), "LOCKED");
    }
    wait_for_expired(&server, 100);
    server.log.expect_rarely("taken away", began);
    let lines = server.log.lines();
    let mut lines = lines.iter().filter(|line| line.contains("taken away"));
    assert!(lines.all(|line| line.len() < 400), "{:?}", server.log.lines());
}
