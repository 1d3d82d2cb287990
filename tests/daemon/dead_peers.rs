//! The locks of hosts that vanish silently become free; the kernel's default keepalive
//! would take over two hours. tests/load/timely.rs measures how soon.

use crate::support::hosts::{Host, neighbour, start_with_cable};
use crate::support::{Client, Server, daemon_command, eventually};
use rustix::net::sockopt;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

/// `--keepalive`, then what the kernel is told: idle time, interval, number of probes,
/// TCP_USER_TIMEOUT in milliseconds.
const TIMES: [(u32, u64, u64, u32, u32); 21] = [
    (1, 1, 1, 1, 1_500),
    (2, 1, 1, 1, 2_500),
    (3, 2, 1, 2, 4_000),
    (4, 2, 1, 3, 5_500),
    (5, 3, 1, 4, 7_000),
    (10, 5, 1, 9, 14_500),
    (30, 15, 1, 29, 44_500),
    (59, 30, 1, 58, 88_000),
    (60, 30, 1, 59, 89_500),
    (61, 31, 1, 60, 91_000),
    (119, 60, 1, 118, 178_000),
    (120, 60, 2, 59, 179_000),
    (121, 61, 2, 59, 180_500),
    (179, 90, 2, 88, 267_500),
    (180, 90, 3, 59, 268_500),
    (200, 100, 3, 66, 298_500),
    (3_599, 1_800, 59, 60, 5_369_000),
    (3_600, 1_800, 60, 59, 5_370_000),
    (7_199, 3_600, 119, 59, 10_739_000),
    (15_999, 8_000, 266, 59, 23_865_500),
    (16_000, 8_000, 266, 59, 23_867_000),
];

/// The listener of a daemon, which a test can ask for its options. Its connections inherit them.
fn listener_with(keepalive_s: u32) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let ours = listener.try_clone().expect("a copy");
    let mut command = daemon_command(&["--keepalive", &keepalive_s.to_string()]);
    let _server = Server::spawn(command.stdin(OwnedFd::from(listener)));
    ours
}

#[test]
fn the_kernel_is_told_when_a_silent_host_is_lost() {
    for (keepalive_s, idle_s, interval_s, probes, user_timeout_ms) in TIMES {
        let listener = listener_with(keepalive_s);
        let is = "an option";
        assert!(sockopt::socket_keepalive(&listener).expect(is), "{keepalive_s}");
        let told = (
            keepalive_s,
            sockopt::tcp_keepidle(&listener).expect(is).as_secs(),
            sockopt::tcp_keepintvl(&listener).expect(is).as_secs(),
            sockopt::tcp_keepcnt(&listener).expect(is),
            sockopt::tcp_user_timeout(&listener).expect(is),
        );
        assert_eq!(told, (keepalive_s, idle_s, interval_s, probes, user_timeout_ms));
    }
    let listener = listener_with(0);
    assert!(!sockopt::socket_keepalive(&listener).expect("an option"));
    assert_eq!(sockopt::tcp_user_timeout(&listener).expect("an option"), 0);
}

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

/// Its connection made systemd start the daemon.
#[test]
fn the_lock_of_a_host_that_came_before_the_daemon_becomes_free() {
    const ADDRESS: &str = "192.0.2.1:7531";
    let (Some(mut here), Some(mut host)) = (Host::boot(), Host::boot()) else { return };
    here.lay_cable(&mut host);
    let listener = here.act(|| TcpListener::bind(ADDRESS).expect("bind"));
    host.send("ACQ4ME k 1 9 30");
    let mut command = daemon_command(&["--keepalive", "2"]);
    let _server = Server::spawn(command.stdin(OwnedFd::from(listener)));
    assert_eq!(host.answer(), "LOCKED");
    let mut neighbour = here.act(|| Client::connect(ADDRESS.parse().expect("an address")));
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
