//! `--max-hold`: the connection of a client that holds a lock for too long is closed.

use crate::support::Server;

#[test]
fn the_first_matching_pattern_applies_and_other_keys_are_unlimited() {
    let server = Server::start_with(&["--max-hold", "a:slow*=600", "--max-hold", "a:*=1"]);
    let (mut slow, mut quick, mut other) = (server.connect(), server.connect(), server.connect());
    slow.exchange("ACQ4ME a:slow:k 1 9 30", "LOCKED");
    other.exchange("ACQ4ME b:k 1 9 30", "LOCKED");
    quick.exchange(&format!("ACQ4ME a:{} 1 9 30", "x".repeat(3_000)), "LOCKED");
    let line = server.log.wait_for(", which held a:xxx");
    // Long keys must not fill the log.
    assert!(line.len() < 400, "{line:?}");
    quick.expect_end();
    slow.exchange("RELEASE", "RELEASED");
    other.exchange("RELEASE", "RELEASED");
}
