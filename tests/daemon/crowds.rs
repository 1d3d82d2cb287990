//! Many clients at once: no client is refused, and the log tells when many are lost. The simulation
//! checks how they leave.

use crate::support::crowd::crowd_size;
use crate::support::{Client, Server, eventually, file};
use rustix::process::Signal;
use std::net::SocketAddr;

#[test]
fn five_thousand_connect_at_once_and_all_are_answered() {
    let count = crowd_size(5_000) / 2 * 2;
    let server = Server::start();
    let mut crowd: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    for (n, client) in crowd.iter_mut().enumerate() {
        client.send(&format!("ACQ4ME k{} 1 9 60", n / 2));
    }
    // Two clients for each key: one gets it at once, the other after the first has left.
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

/// The kernel forgets the address of a broken connection for getpeername(2).
#[test]
fn the_log_tells_how_many_connections_broke_and_where_they_came_from() {
    for (listened, host) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")] {
        let server = Server::start_with(&["-l", listened]);
        let address = SocketAddr::new(host.parse().expect("an address"), server.address().port());
        let crowd: Vec<Client> = (0..12).map(|_| Client::connect(address)).collect();
        server.settle();
        server.signal(Signal::STOP);
        crowd.into_iter().for_each(Client::reset);
        // A process that another test starts may have copies for a moment.
        assert!(eventually(|| !has_connections(address.port())));
        server.signal(Signal::CONT);
        let line = server.log.wait_for("connections broke at once: ");
        let told =
            format!("12 connections broke at once: 12 were reset (ECONNRESET); from {host} (12)");
        assert!(line.ends_with(&told), "{line}");
    }
}

/// Whether the kernel has an established connection to this port (proc_net_tcp(5)).
fn has_connections(port: u16) -> bool {
    let local = format!(":{port:04X}");
    let is_established = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|address| address.ends_with(&local)) && words.nth(1) == Some("01")
    };
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|list| file(list).lines().any(is_established))
}
