//! The locks of hosts that vanish silently become free; the kernel's default keepalive
//! would take over two hours. tests/load/timely.rs measures how soon.

use crate::support::hosts::{Host, neighbour, start_with_cable};
use crate::support::{Client, Server, eventually};

#[test]
fn the_lock_of_a_vanished_host_becomes_free() {
    let Some(mut host) = Host::boot() else { return };
    let server = start_with_cable(&mut host, "2");
    host.send("ACQ4ME k 1 9 30");
    assert_eq!(host.answer(), "LOCKED");
    let mut neighbour = neighbour(&server);
    host.vanish();
    assert_eq!(neighbour.ask("ACQ4ME k 1 9 30"), "LOCKED");
}

#[test]
fn a_lock_handed_to_a_vanished_host_becomes_free() {
    let Some(mut host) = Host::boot() else { return };
    let server = start_with_cable(&mut host, "2");
    let mut neighbour = neighbour(&server);
    assert_eq!(neighbour.ask("ACQ4ME k 1 9 30"), "LOCKED");
    host.send("ACQ4ME k 1 9 30");
    assert!(eventually(|| neighbour.ask("STATS waiting_workers") == "waiting_workers: 1"));
    host.vanish();
    // The kernel now sends data that no host acknowledges.
    assert_eq!(neighbour.ask("RELEASE"), "RELEASED");
    assert_eq!(neighbour.ask("ACQ4ME k 1 9 30"), "LOCKED");
}

#[test]
fn a_host_that_is_merely_silent_keeps_its_lock() {
    let Some(mut host) = Host::boot() else { return };
    let server = start_with_cable(&mut host, "1");
    host.send("ACQ4ME k 1 9 30");
    assert_eq!(host.answer(), "LOCKED");
    let mut neighbour = neighbour(&server);
    // Twice the time after which a vanished host loses its lock.
    assert_eq!(neighbour.ask("ACQ4ME k 1 9 4"), "TIMEOUT");
    assert_eq!(host.run("echo RELEASE >&3; echo sent"), "sent");
    assert_eq!(host.answer(), "RELEASED");
}

/// The limit of docs/reference/sizing.md for a client that is alive: its window stays closed,
/// so to the kernel it looks dead.
#[test]
fn a_client_that_reads_no_answers_counts_as_dead() {
    let server = Server::start_with(&["--keepalive", "2"]);
    let mut slow = Client::connect_with_small_buffer(server.address());
    slow.exchange("ACQ4ME k 1 9 30", "LOCKED");
    slow.send_bytes("STATS FULL\n".repeat(60).as_bytes());
    let mut next = server.connect();
    next.exchange("ACQ4ME k 1 9 999", "LOCKED");
    // It was not disconnected for the amount that it left unread.
    assert_eq!(server.counter("failed_sends"), 0);
}
