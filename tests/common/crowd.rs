//! Crowds of clients, and what they cost the daemon.

// Each test file is a crate of its own and uses another part of this.
#![allow(dead_code)]

use crate::common::{Client, PATIENCE, Server};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What a test and the daemon need beside the crowd's connections.
const OTHER_DESCRIPTORS: u64 = 300;

/// Waits until no other test has a crowd: thousands of descriptors and both
/// cores are more than two of them get at once. Let go when dropped.
pub(crate) fn have_the_machine() -> OwnedFd {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/crowd.lock");
    let file = open(path, OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RWXU);
    let file = file.expect("create the lock file");
    flock(&file, FlockOperation::LockExclusive).expect("lock");
    file
}

/// `wanted`, or as many as the limit of descriptors allows this process and the
/// daemon each; then it says so.
pub(crate) fn crowd_size(wanted: usize) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("raise the limit of descriptors");
    let limit = limit.maximum.unwrap_or(u64::MAX);
    let possible = usize::try_from(limit.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(usize::MAX);
    if possible < wanted {
        println!("the limit of descriptors is {limit}: {possible} clients, not {wanted}");
    }
    wanted.min(possible)
}

/// A daemon at a loopback address of this test's own: the ports that its crowd
/// leaves in TIME_WAIT are nobody else's.
pub(crate) fn start_apart(third: u8, arguments: &[&str]) -> Server {
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = format!("127.{}.{low}.{third}", high.max(1));
    let mut all = vec!["-l", ip.as_str()];
    all.extend(arguments);
    Server::start_with(&all)
}

/// That many connections, all of them accepted.
pub(crate) fn connect_crowd(address: SocketAddr, len: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..len).map(|_| Client::connect(address)).collect();
    // Accepted in the order in which they came: who is answered was the last.
    clients.last_mut().expect("a crowd").settle();
    clients
}

/// Bytes of memory that the daemon alone has written to: what it takes from the
/// machine beyond its executable.
pub(crate) fn private_bytes(server: &Server) -> usize {
    let path = format!("/proc/{}/smaps_rollup", server.pid());
    let text = std::fs::read_to_string(path).expect("smaps_rollup");
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")).expect("Private_Dirty");
    1024 * kib.parse::<usize>().expect("a number")
}

/// Waits until `is_so`, for what nothing announces.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All that came has gone: nothing is held or waited for, and each lock given
/// has ended once.
#[track_caller]
pub(crate) fn expect_empty(server: &Server) {
    let mut control = server.connect();
    for gauge in ["processing_workers", "waiting_workers", "hashtable_entries"] {
        let mut value = 0;
        wait_until(&format!("{gauge} is 0"), || {
            value = control.counter(gauge);
            value == 0
        });
    }
    assert_eq!(control.counter("total_acquired"), control.counter("processed_count"));
}
