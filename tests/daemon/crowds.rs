//! Many clients at once: no client is refused. The simulation checks how they leave.

use crate::support::crowd::crowd_size;
use crate::support::{Client, Server};

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
