//! A snapshot of each released version is in `snapshots/` and must stay readable forever:
//! a daemon of that version passes it on in an upgrade to this one.
//!
//! The snapshot of the newest version is recorded once, before its release, by
//! `RECORD_SNAPSHOT=tests/restart/snapshots/v1.msgpack cargo test --test restart
//! snapshots -- --ignored`.

use crate::support::operated::Operated;
use crate::support::restart::refused_restart;
use crate::support::{Client, DAEMON, Server, wait_for_exit};
use crate::whole_snapshot::Snapshot;
use engine::Time;
use poolcounterd::snapshot::NEWEST;
use poolcounterd::{Purpose, Wanted, WantedTcp};
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All of them, with their names.
fn recorded() -> Vec<(String, PathBuf)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/restart/snapshots");
    let entries = fs::read_dir(directory).expect("the snapshots");
    let mut all: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    all.sort();
    let name = |path: PathBuf| (path.file_stem().unwrap().to_string_lossy().into_owned(), path);
    all.into_iter().map(name).collect()
}

#[test]
fn each_version_is_there() {
    let expected: Vec<String> = (1..=NEWEST).map(|version| format!("v{version}")).collect();
    let names: Vec<String> = recorded().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, expected);
}

#[test]
fn each_recorded_snapshot_is_readable() {
    for (name, path) in recorded() {
        let text = fs::read(&path).expect("the snapshot");
        let snapshot = Snapshot::read(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let engine = snapshot.resume_engine(snapshot.server.taken);
        engine.unwrap_or_else(|e| panic!("{name}: {e:?}")).check_invariants();
    }
}

#[test]
fn the_binary_can_take_over_from_each_recorded_snapshot() {
    for (name, path) in recorded() {
        let snapshot = Snapshot::read(&fs::read(&path).expect("the snapshot")).expect("readable");
        let listener = &snapshot.server.listening.listeners[0];
        let (_, port) = listener.name.rsplit_once(':').expect("a port");
        let mut child = Command::new(DAEMON)
            .args(["--read-snapshot", "-l", "127.0.0.1", "-p", port])
            .stdin(File::open(&path).expect("the snapshot"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let mut answer = String::new();
        child.stdout.take().expect("stdout").read_to_string(&mut answer).expect("an answer");
        assert_eq!(wait_for_exit(&mut child).code(), Some(0), "{name}: {answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("a line of JSON");
        assert_eq!(answer["poolcounterd"], env!("CARGO_PKG_VERSION"), "{name}");
        assert_eq!(answer["connections"], snapshot.connections.len(), "{name}");
    }
}

/// The daemon writes the recorded state unchanged: the format of a released version is
/// fixed.
#[test]
fn the_newest_version_is_written_as_recorded() {
    let (_, path) = recorded().pop().expect("a snapshot");
    let recorded = fs::read(path).expect("the snapshot");
    let written = Snapshot::read(&recorded).expect("readable").write();
    let (written, recorded) = (after_header(&written), after_header(&recorded));
    let same = written.iter().zip(recorded).take_while(|(now, before)| now == before).count();
    let near = |bytes: &[u8]| {
        bytes[same.saturating_sub(40)..].iter().take(80).copied().collect::<Vec<u8>>()
    };
    assert!(
        written == recorded,
        "leave a new field out while it has its default, or raise NEWEST: \"{}\" was \"{}\"",
        near(written).escape_ascii(),
        near(recorded).escape_ascii(),
    );
}

/// The records without the first one, which names the version of the daemon.
fn after_header(snapshot: &[u8]) -> &[u8] {
    let mut rest = snapshot;
    let _: serde::de::IgnoredAny = rmp_serde::from_read(&mut rest).expect("a header");
    rest
}

/// Checks the recorded snapshot against what [`record`] put into it.
#[test]
fn version_1_holds_the_recorded_facts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/restart/snapshots/v1.msgpack");
    let snapshot = Snapshot::read(&fs::read(path).expect("the snapshot")).expect("readable");
    let find = |key: &[u8]| snapshot.pools.iter().find(|pool| *pool.key == *key);
    let plain = find(b"ArticleView:1234").expect("the key");
    let [holder] = plain.holders[..] else { panic!("{plain:?}") };
    let [first, second] = plain.waiters_for_me[..] else { panic!("{plain:?}") };
    let [anyone] = plain.waiters_for_anyone[..] else { panic!("{plain:?}") };
    assert_eq!(holder.deadline, None);
    assert!(first.since < second.since && second.since < anyone.since);
    let waits_s = |wait: engine::state::LockState| {
        wait.deadline.expect("a deadline").ns_since(wait.since) / 1_000_000_000
    };
    assert_eq!([first, second, anyone].map(waits_s), [3600, 7200, 10]);
    assert_eq!(find(&odd_key()).expect("the odd key").holders.len(), 2);
    let stack: Vec<u64> = ["s1", "s2", "s3", "s4"]
        .iter()
        .map(|key| find(key.as_bytes()).expect("a key").holders[0].sequence)
        .collect();
    assert!(stack.is_sorted(), "{stack:?}");
    let has = |what: fn(&poolcounterd::snapshot::ConnectionState) -> bool| {
        snapshot.connections.iter().filter(|c| what(c)).count()
    };
    assert_eq!(has(|c| c.unfinished_line == b"ACQ4ME \xff\0half"), 1);
    assert_eq!(has(|c| c.skipping), 1);
    assert_eq!(has(|c| c.unsent.ends_with(b"ERROR WRONG_STAT\n")), 2);
    assert_eq!(has(|c| c.finishing), 1);
    let listening = &snapshot.server.listening;
    let [clients, control] = &listening.listeners[..] else { panic!("{listening:?}") };
    assert!(matches!(
        clients.wanted,
        Some(Wanted::Tcp(WantedTcp { purpose: Purpose::Clients, .. }))
    ));
    assert!(matches!(control.wanted, Some(Wanted::Control(_))));
    assert!(snapshot.server.requester.is_none() && !listening.draining);
    assert!(snapshot.server.engine.started > Time::default());
    let counters = snapshot.server.engine.counters;
    assert_eq!((counters.release_mismatch, counters.full_queues), (1, 1));
    assert!(counters.total_acquired > counters.processing_workers);
}

fn odd_key() -> Vec<u8> {
    (0..=255).filter(|b| !b" \n\r".contains(b)).collect()
}

/// Records a daemon whose state uses every part of the snapshot.
#[test]
#[ignore = "writes the recorded snapshot of a new version"]
fn record() {
    let Some(target) = std::env::var_os("RECORD_SNAPSHOT") else {
        panic!("set RECORD_SNAPSHOT to the file to write");
    };
    let daemon = Operated::start_with(&["--max-hold", "limited=9"]);
    let (place, server) = (&daemon.place, &daemon.server);
    // First: it takes longer than the waits.
    let slow = [(); 2].map(|()| slow_reader(server));
    slow[1].stream().shutdown(Shutdown::Write).expect("shutdown");
    let mut clients: Vec<Client> = (0..9).map(|_| server.connect()).collect();
    clients[0].exchange("ACQ4ME ArticleView:1234 1 10 0", "LOCKED");
    for (n, line) in [
        (1, "ACQ4ME ArticleView:1234 1 10 3600"),
        (2, "ACQ4ME ArticleView:1234 1 10 7200"),
        (3, "ACQ4ANY ArticleView:1234 1 10 10"),
    ] {
        clients[n].send(line);
        server.settle();
    }
    for client in &mut clients[4..6] {
        client.send_bytes(&[b"ACQ4ME ", odd_key().as_slice(), b" 2 5 0\n"].concat());
        client.expect("LOCKED");
    }
    for key in ["s1", "s2", "s3", "s4"] {
        clients[6].exchange(&format!("ACQ4ME {key} 1 1 0"), "LOCKED");
    }
    clients[7].exchange("RELEASE", "NOT_LOCKED");
    clients[7].exchange("ACQ4ME s1 1 1 0", "QUEUE_FULL");
    clients[7].exchange("ACQ4ME done 1 1 0", "LOCKED");
    clients[7].exchange("RELEASE", "RELEASED");
    clients[7].send_bytes(b"ACQ4ME \xff\0half");
    clients[8].send_bytes(&[b'x'; 5000]);
    clients[8].expect("ERROR LINE_TOO_LONG a line has at most 4096 bytes");
    server.settle();
    place.install_script("cat /proc/self/fd/${POOLCOUNTERD_HANDOFF#*:} > $HERE/recorded; exit 1");
    refused_restart(server);
    let mut target = File::create_new(target).expect("a recorded snapshot stays as it is");
    io::copy(&mut File::open(place.path("recorded")).expect("open"), &mut target).expect("copy");
}

/// Asks until the kernel does not accept all of the answers.
fn slow_reader(server: &Server) -> Client {
    const ANSWER_BYTES: u64 = 17;
    const STEP: usize = 500;
    // More than they cost.
    const TURNS: usize = 100;
    let mut client = Client::connect_with_small_buffer(server.address());
    for requests in (STEP as u64..).step_by(STEP) {
        client.send_bytes("STATS x\n".repeat(STEP).as_bytes());
        let lacks_some = |_| {
            server.settle();
            let received = rustix::io::ioctl_fionread(client.stream()).expect("FIONREAD");
            received + sent_to(&client) < requests * ANSWER_BYTES
        };
        if (0..TURNS).all(lacks_some) {
            return client;
        }
    }
    unreachable!()
}

/// How many bytes the kernel has for the client, which has not acknowledged them.
fn sent_to(client: &Client) -> u64 {
    let port = client.stream().local_addr().expect("its address").port();
    let sockets = fs::read_to_string("/proc/net/tcp").expect("/proc");
    let mut rows = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let peer = rows.find(|row| row[2].ends_with(&format!(":{port:04X}"))).expect("its peer");
    let (unsent, _) = peer[4].split_once(':').expect("two queues");
    u64::from_str_radix(unsent, 16).expect("bytes")
}
