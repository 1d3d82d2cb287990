//! Reports over a real socket: what the simulation does not check.
//! crates/reports/tests/reports/texts.rs has the texts.

use crate::support::operated::Operated;
use crate::support::{Client, Server};
use rustix::process::Signal;
use std::io::Write;

/// The answer to `STATS words`, without the blank line.
fn asked(client: &mut Client, words: &str) -> Vec<String> {
    client.send(&format!("STATS {words}"));
    lines(client)
}

fn lines(client: &mut Client) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match client.line() {
            line if line.is_empty() => return lines,
            line => lines.push(line),
        }
    }
}

fn port_of(client: &Client) -> String {
    client.stream().local_addr().expect("an address").to_string()
}

/// A report may take a millisecond: a client that asks for several waits for later turns,
/// which serve others too.
#[test]
fn many_reports_are_made_in_many_turns() {
    const CROWD: u64 = 60;
    let server = Server::start();
    let mut operator = server.connect();
    let mut turns = || {
        let report = asked(&mut operator, "JSON").remove(0);
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        report["turns"]["seconds"]["count"].as_u64().expect("a count")
    };
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| server.connect()).collect();
    crowd.iter_mut().for_each(Client::settle);
    for (words, turns_min) in
        [("TOP hour", CROWD / 2), ("TOP clients", CROWD / 10), ("JSON", CROWD)]
    {
        let before = turns();
        // So that all requests are there when it continues.
        server.signal(Signal::STOP);
        for client in &mut crowd {
            client.send(&format!("STATS {words}"));
        }
        server.signal(Signal::CONT);
        for client in &mut crowd {
            assert!(!lines(client).is_empty());
        }
        let took = turns() - before;
        assert!(took >= turns_min, "{words}: {took} turns");
    }
}

/// Reports for a client that has gone would only delay freeing its locks.
#[test]
fn no_reports_are_made_for_a_client_that_has_gone() {
    // Some hundreds of answers fill the kernel's buffers, if the client is slow to leave.
    const ASKED: usize = 20_000;
    let server = Server::start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.exchange("ACQ4ME k 1 9 60", "LOCKED");
    waiter.send("ACQ4ME k 1 9 60");
    let mut control = server.connect();
    control.wait_for_counter("waiting_workers", |n| n == 1);
    // If this takes long, the daemon closes the connection before all is sent.
    let _ = holder.stream().write_all(&b"STATS JSON\n".repeat(ASKED));
    holder.reset();
    waiter.expect("LOCKED");
    assert!(control.counter("failed_sends") <= 1);
    let report = asked(&mut control, "JSON").remove(0);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let made = report["turns"]["seconds"]["count"].as_u64().expect("a count");
    assert!(made < ASKED as u64 / 4, "{made} turns");
}

/// A client that leaves while its report waits behind those of a crowd: its locks pass on before
/// even those of the crowd are made.
#[test]
fn a_client_that_leaves_before_its_report_loses_its_locks_first() {
    const CROWD: usize = 60;
    /// Returns the client if it can still read.
    type Leave = fn(Client) -> Option<Client>;
    let ways: [(&str, Leave); 4] = [
        ("shuts its side", |mut client| {
            client.shut_writing();
            Some(client)
        }),
        ("shuts its side within a line", |mut client| {
            client.send_bytes(b"REL");
            client.shut_writing();
            Some(client)
        }),
        ("closes", |_| None),
        ("resets", |client| {
            client.reset();
            None
        }),
    ];
    for (way, leave) in ways {
        let server = Server::start();
        let (mut holder, mut waiter) = (server.connect(), server.connect());
        holder.exchange("ACQ4ME k 1 9 60", "LOCKED");
        waiter.send("ACQ4ME k 1 9 60");
        server.connect().wait_for_counter("waiting_workers", |n| n == 1);
        let mut crowd: Vec<Client> = (0..CROWD).map(|_| server.connect()).collect();
        crowd.iter_mut().for_each(Client::settle);
        // So that all requests are there when it continues.
        server.signal(Signal::STOP);
        for client in crowd.iter_mut().chain([&mut holder]) {
            client.send("STATS JSON");
        }
        let reader = leave(holder);
        server.signal(Signal::CONT);
        waiter.expect("LOCKED");
        let last = lines(crowd.last_mut().expect("a client")).remove(0);
        let last: serde_json::Value = serde_json::from_str(&last).expect("JSON");
        assert_eq!(last["counters"]["waiting_workers"], 0, "{way}: {last}");
        if let Some(mut reader) = reader {
            assert!(lines(&mut reader)[0].starts_with('{'), "it gets its report");
            reader.expect_end();
        } else {
            let mut next = server.connect();
            asked(&mut next, "JSON");
            assert_eq!(next.counter("failed_sends"), 0, "{way}: a report was made for nobody");
        }
    }
}

/// The kernel forgets the address of a connection that is reset (say, its host lost
/// power), but an operator needs it.
#[test]
fn a_slow_holder_that_is_reset_is_named() {
    let server = Server::start_with(&["--slow", "0"]);
    let mut holder = server.connect();
    let address = port_of(&holder);
    holder.exchange("ACQ4ME k 1 9 0", "LOCKED");
    holder.reset();
    server.log.wait_for(&format!("slow: hold on k by {address} took "));
    let slow = asked(&mut server.connect(), "SLOW");
    assert!(slow[3].ends_with(&format!(" {address}    -         - k")), "{slow:?}");
}

#[test]
fn with_private_operators_still_see_keys_and_addresses() {
    let daemon = Operated::start_with(&["--private"]);
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME secret 1 9 0", "LOCKED");
    for (words, shown) in [
        ("KEYS", " secret"),
        ("KEY secret", &*port_of(&client)),
        ("CLIENTS", " 127.0.0.1"),
        ("JSON", "\"key\":\"secret\""),
    ] {
        let lines = daemon.operator().list(format!("STATS {words}").as_bytes());
        assert!(lines.iter().any(|line| line.contains(shown)), "{words}: {lines:?}");
    }
}
