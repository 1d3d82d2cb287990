//! Crowds of clients, and what they cost the daemon.

use super::operated::Operated;
use crate::support::{Client, Server, eventually};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::net::SocketAddr;

/// Descriptors that a test and the daemon need besides the crowd's connections.
const OTHER_DESCRIPTORS: u64 = 300;

/// `wanted`, or, with a message, as many as the limit of descriptors allows this process
/// and the daemon each.
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

/// A daemon on a loopback address that no other test uses, so that the ports that its
/// crowd leaves in TIME_WAIT affect no other test.
pub(crate) fn start_apart(third: u8, arguments: &[&str]) -> Server {
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = format!("127.{}.{low}.{third}", high.max(1));
    let mut all = vec!["-l", ip.as_str()];
    all.extend(arguments);
    Server::start_with(&all)
}

/// Opens `len` connections and waits until all are accepted.
pub(crate) fn connect_crowd(address: SocketAddr, len: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..len).map(|_| Client::connect(address)).collect();
    // Connections are accepted in order: the last one gets an answer after all others
    // were accepted.
    clients.last_mut().expect("a crowd").settle();
    clients
}

/// A daemon with 64 descriptors; clients use all of theirs.
pub(crate) fn full_daemon() -> (Operated, Vec<Client>) {
    let daemon = Operated::launched(&["prlimit", "--nofile=64:64"]);
    let crowd: Vec<Client> = (0..100).map(|_| daemon.server.connect()).collect();
    daemon.server.log.wait_for("out of descriptors");
    (daemon, crowd)
}

/// Private dirty memory of the daemon in bytes: what it uses beyond its executable.
pub(crate) fn private_bytes(server: &Server) -> usize {
    let path = format!("/proc/{}/smaps_rollup", server.pid());
    let text = std::fs::read_to_string(path).expect("smaps_rollup");
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")).expect("Private_Dirty");
    1024 * kib.parse::<usize>().expect("a number")
}

/// Asserts that all clients have gone: no client holds or waits, and each lock has ended
/// once.
#[track_caller]
pub(crate) fn expect_empty(server: &Server) {
    let mut control = server.connect();
    for gauge in ["processing_workers", "waiting_workers", "hashtable_entries"] {
        assert!(eventually(|| control.counter(gauge) == 0), "{gauge} is not 0");
    }
    assert_eq!(control.counter("total_acquired"), control.counter("processed_count"));
}
