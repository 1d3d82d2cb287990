//! Clients that all send without end make no turn long: others are accepted and answered
//! meanwhile. tests/simulation/clients/shares.rs checks the budget of a turn and who waits how
//! long, in turns.

use crate::support::{Client, PATIENCE, Server};
use rustix::process::Signal;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How many clients pipeline.
const CLIENTS: usize = 15_000;

/// docs/development/evidence.md has the measured figures.
const MEDIAN_WAIT: Duration = Duration::from_millis(60);

/// Six shares of a turn: as much as they send anew meanwhile.
const BACKLOG_BYTES: usize = 6 * 4096;

/// How long others ask meanwhile. The daemon has more to do.
const WINDOW: Duration = Duration::from_millis(1_500);

/// How many turns of the loop took at most 25 ms, and how many longer.
fn turns(server: &Server) -> [u64; 2] {
    let report = server.connect().ask("STATS JSON");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let turns = &report["turns"]["seconds"];
    let numbers = |name: &str| turns[name].as_array().expect("numbers").clone();
    let mut counts = [0, 0];
    for (n, count) in numbers("buckets").iter().enumerate() {
        let bound = numbers("bounds").get(n).and_then(serde_json::Value::as_f64);
        let is_long = bound.is_none_or(|bound| bound > 0.025);
        counts[usize::from(is_long)] += count.as_u64().expect("a count");
    }
    counts
}

#[test]
fn clients_that_all_pipeline_make_no_turn_long() {
    let server = Server::start();
    let connect = |_| TcpStream::connect(server.address()).expect("connect");
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(connect).collect();
    server.settle();
    let before = turns(&server);
    server.signal(Signal::STOP);
    let requests = b"RELEASE\n".repeat(BACKLOG_BYTES / 8);
    clients.iter_mut().for_each(|client| client.write_all(&requests).expect("room for them"));
    server.signal(Signal::CONT);
    let began = Instant::now();
    let mut waits = Vec::new();
    while began.elapsed() < WINDOW {
        let asked = Instant::now();
        let mut stranger = Client::connect(server.address());
        stranger.exchange("ACQ4ME stranger 1 1 0", "LOCKED");
        stranger.exchange("RELEASE", "RELEASED");
        waits.push(asked.elapsed());
    }
    let released = server.counter("release_mismatch");
    let after = turns(&server);
    let counts = [0, 1].map(|n| after[n] - before[n]);
    waits.sort_unstable();
    let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!(
        "{CLIENTS} pipelining clients: another's connect, lock and release: median {median:?}, worst \
         {worst:?} of {}; {counts:?} turns of at most 25 ms and longer; {released} of {} requests",
        waits.len(),
        CLIENTS * BACKLOG_BYTES / 8,
    );
    assert!(median < MEDIAN_WAIT, "{median:?}");
    // One in a thousand, and one that the machine interrupted.
    let [short, long] = counts;
    assert!(long <= 1 + short / 1_000, "{counts:?}");
    assert!(worst < PATIENCE, "{worst:?}");
}
