//! A host that closes a connection before it opens the next one never exceeds its limit, whenever
//! the daemon sees the end of the first.

use crate::support::restart::{Place, restart};
use crate::support::{Client, DAEMON, PATIENCE, Server, launched};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const CONNECTIONS: usize = 2_000;

/// So many clients have a daemon with 64 descriptors, and without HTTP and a control socket.
const SERVED_BY_64: usize = 30;

/// How many of this many connections are refused, if never more than `open_max` are open.
fn refused(server: SocketAddr, open_max: usize, connections: usize) -> usize {
    let mut open = VecDeque::new();
    let mut refused = 0;
    for _ in 0..connections {
        if open.len() == open_max {
            open.pop_front();
        }
        let mut client = Client::connect(server);
        client.send("ACQ4ME k 1000 1000 0");
        // A refused one gets nothing, or a reset.
        if client.next_line(PATIENCE).is_none() {
            refused += 1;
        } else {
            open.push_back(client);
        }
    }
    refused
}

/// Runs `act` while this many other hosts ask without a break.
fn beside_busy_hosts<T>(server: SocketAddr, hosts: u8, act: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for host in 0..hosts {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut client = Client::connect_from(Ipv4Addr::new(127, 1, 0, host), server);
                while !is_over.load(Ordering::Relaxed) {
                    client.send_bytes("RELEASE\n".repeat(200).as_bytes());
                    (0..200).for_each(|_| client.expect("NOT_LOCKED"));
                }
            });
        }
        let result = act();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Runs `act` on one core, and all that it starts.
fn on_one_core<T>(act: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).expect("the cores");
    let mut one = CpuSet::new();
    let core = (0..CpuSet::MAX_CPU).find(|&core| before.is_set(core)).expect("a core");
    one.set(core);
    sched_setaffinity(None, &one).expect("its own threads");
    let result = act();
    sched_setaffinity(None, &before).expect("its own threads");
    result
}

#[test]
fn who_closes_one_before_the_next_is_never_refused() {
    for (option, open_max) in
        [("--max-connections-per-ip", 1), ("--max-connections", 1), ("--max-connections-per-ip", 7)]
    {
        let count = || {
            let server = Server::start_with(&[option, &open_max.to_string()]);
            refused(server.address(), open_max, CONNECTIONS)
        };
        assert_eq!([count(), on_one_core(count)], [0, 0], "{option} {open_max}");
    }
}

#[test]
fn a_busy_daemon_refuses_nobody_within_a_limit() {
    let server = Server::start_with(&["--max-connections-per-ip", "1"]);
    let address = server.address();
    let count = || refused(address, 1, CONNECTIONS);
    assert_eq!(beside_busy_hosts(address, 4, count), 0);
}

/// Fails if a newcomer at a limit is refused at once.
#[test]
fn the_first_turn_after_a_hot_restart_refuses_nobody_within_a_limit() {
    let place = Place::with_daemon();
    let server = place.start(&["--max-connections-per-ip", "1"]);
    let address = server.address();
    let is_over = AtomicBool::new(false);
    let refused = thread::scope(|scope| {
        let all = scope.spawn(|| {
            let mut all = 0;
            while !is_over.load(Ordering::Relaxed) {
                all += refused(address, 1, 20);
            }
            all
        });
        (0..30).for_each(|_| drop(restart(&server)));
        is_over.store(true, Ordering::Relaxed);
        all.join().expect("it counts")
    });
    assert_eq!(refused, 0);
}

/// Fails if newcomers that were held are refused in the turn in which another one is served.
#[test]
fn nobody_is_refused_for_newcomers_that_have_left() {
    for (option, leaving) in [("--max-connections-per-ip", 2), ("--max-connections", 40)] {
        let server = Server::start_with(&[option, "1"]);
        for round in 0..20 {
            for _ in 0..leaving {
                drop(server.connect());
            }
            let mut last = server.connect();
            last.send("ACQ4ME k 1000 1000 0");
            assert_eq!(last.next_line(PATIENCE).as_deref(), Some("LOCKED"), "{option} {round}");
        }
    }
}

/// Fails if a client that has left counts as gone before its report is made.
#[test]
fn nobody_is_refused_for_one_that_has_left_during_a_report() {
    let server = Server::start_with(&["--max-connections", "2501"]);
    let _idle: Vec<Client> = (0..2_500).map(|_| server.connect()).collect();
    for round in 0..30 {
        let mut client = server.connect();
        client.send("STATS UPTIME");
        assert!(client.next_line(PATIENCE).is_some(), "round {round}");
        client.send(["STATS JSON", "STATS CLIENTS"][round % 2]);
    }
}

/// Fails if newcomers of one host crowd out those of another.
#[test]
fn nobody_is_refused_for_another_host_that_exceeds_its_limit() {
    let server = Server::start_with(&["--max-connections-per-ip", "1"]);
    let (address, is_over) = (server.address(), AtomicBool::new(false));
    let refused = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(Client::connect_from(Ipv4Addr::new(127, 8, 8, 8), address));
                }
            });
        }
        let refused = refused(address, 1, CONNECTIONS / 4);
        is_over.store(true, Ordering::Relaxed);
        refused
    });
    assert_eq!(refused, 0);
}

/// A burst beyond the limit, where few descriptors are left for it.
#[test]
fn newcomers_at_a_limit_use_up_no_descriptors() {
    for spare in [1, 2, 9] {
        // As many as the daemon needs itself, for operators and others.
        let limit = format!("--nofile={0}:{0}", 64 + spare);
        let served_max = SERVED_BY_64;
        let option = served_max.to_string();
        let arguments = ["-l", "127.0.0.1", "-p", "0", "--max-connections", &option];
        let server = Server::spawn(&mut launched(&["prlimit", &limit], DAEMON, &arguments));
        let mut served: Vec<_> = (0..served_max).map(|_| server.connect()).collect();
        served.iter_mut().for_each(Client::settle);
        let mut burst: Vec<_> = (0..60).map(|_| server.connect()).collect();
        burst.iter_mut().for_each(Client::expect_end);
        served.iter_mut().for_each(Client::settle);
        let errors = served[0].ask("STATS connect_errors");
        assert_eq!((errors.as_str(), server.log.count("out of desc")), ("connect_errors: 0", 0));
    }
}

/// One beyond the limit is refused, and the others keep their places.
#[test]
fn who_exceeds_a_limit_is_refused() {
    for option in ["--max-connections-per-ip", "--max-connections"] {
        let server = Server::start_with(&[option, "2"]);
        let mut served = [server.connect(), server.connect()];
        served.iter_mut().for_each(|client| client.exchange("ACQ4ME k 9 9 0", "LOCKED"));
        for _ in 0..20 {
            server.connect().expect_end();
        }
        served.iter_mut().for_each(|client| client.exchange("RELEASE", "RELEASED"));
        server.log.wait_for(&format!("{option} is reached"));
    }
}
