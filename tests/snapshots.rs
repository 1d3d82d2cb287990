//! A snapshot of each released version lives in `tests/snapshots/` and must stay
//! readable for ever: it is what a daemon of that version hands over when it is
//! upgraded to this one.
//!
//! The one of the newest version is recorded, before its release and never again, by
//! `RECORD_SNAPSHOT=tests/snapshots/v1.jsonl cargo test --test snapshots -- --ignored`.

mod common;
#[path = "common/restart.rs"]
mod hot;

use common::{DAEMON, PATIENCE, wait_for_exit};
use hot::{Place, refused_restart, wait_until};
use poolcounterd::engine::{Engine, Time};
use poolcounterd::server::snapshot::{NEWEST, Origin, Snapshot};
use std::fs::{self, File};
use std::hash::RandomState;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All of them, with their names.
fn recorded() -> Vec<(String, PathBuf)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
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
        let engine = Engine::from_image(snapshot.engine, RandomState::new(), snapshot.taken);
        engine.unwrap_or_else(|e| panic!("{name}: {e:?}")).check_invariants();
    }
}

#[test]
fn the_binary_would_go_on_from_each_recorded_snapshot() {
    for (name, path) in recorded() {
        let snapshot = Snapshot::read(&fs::read(&path).expect("the snapshot")).expect("readable");
        let listener = snapshot.listeners.iter().find(|l| l.origin == Origin::Address);
        let (_, port) = listener.expect("a listener").name.rsplit_once(':').expect("a port");
        let mut child = Command::new(DAEMON)
            .args(["--read-snapshot", "-l", "127.0.0.1", "-p", port])
            .stdin(File::open(&path).expect("the snapshot"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let mut answer = String::new();
        child.stdout.take().expect("stdout").read_to_string(&mut answer).expect("an answer");
        assert_eq!(wait_for_exit(&mut child).code(), Some(0), "{name}: {answer}");
        assert!(answer.starts_with("can go on from snapshot "), "{name}: {answer}");
    }
}

/// What today's daemon writes of the recorded state is what was recorded: a
/// version that was released does not change.
#[test]
fn the_newest_version_is_written_as_it_was_recorded() {
    let (_, path) = recorded().pop().expect("a snapshot");
    let text = fs::read_to_string(path).expect("the snapshot");
    let written = Snapshot::read(text.as_bytes()).expect("readable").write();
    let written = String::from_utf8(written).expect("text");
    let lines = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let (mut now, recorded) = (lines(&written), lines(&text));
    // The daemon that writes it names itself, and may count more than then.
    now[0]["daemon"] = recorded[0]["daemon"].clone();
    let known = recorded[1]["server"]["counters"].as_object().expect("counters");
    let counters = now[1]["server"]["counters"].as_object_mut().expect("counters");
    counters.retain(|name, value| known.contains_key(name) || *value != 0);
    assert_eq!(now.len(), recorded.len());
    for (now, recorded) in now.iter().zip(&recorded) {
        assert_eq!(now, recorded);
    }
}

/// By hand, once: that what was recorded is what was the case.
#[test]
fn version_1_says_what_was_the_case() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/v1.jsonl");
    let snapshot = Snapshot::read(&fs::read(path).expect("the snapshot")).expect("readable");
    let find = |key: &[u8]| snapshot.engine.pools.iter().find(|pool| pool.key == key);
    let plain = find(b"enwiki:article:1").expect("the key");
    let [holder] = plain.holders[..] else { panic!("{plain:?}") };
    let [first, second] = plain.waiters_for_me[..] else { panic!("{plain:?}") };
    let [anyone] = plain.waiters_for_anyone[..] else { panic!("{plain:?}") };
    assert_eq!((holder.depth, holder.deadline), (0, None));
    assert!(first.since < second.since && second.since < anyone.since);
    let waits_s = |wait: poolcounterd::engine::image::LockImage| {
        wait.deadline.expect("a deadline").ns_since(wait.since) / 1_000_000_000
    };
    assert_eq!([first, second, anyone].map(waits_s), [3600, 7200, 10]);
    assert_eq!(find(&odd_key()).expect("the odd key").holders.len(), 2);
    let stack: Vec<usize> = ["s1", "s2", "s3", "s4"]
        .iter()
        .map(|key| find(key.as_bytes()).expect("a key").holders[0].depth)
        .collect();
    assert_eq!(stack, [0, 1, 2, 3]);
    assert_eq!(snapshot.engine.spent.len(), 1);
    let has = |what: fn(&poolcounterd::server::snapshot::ConnectionState) -> bool| {
        snapshot.connections.iter().filter(|c| what(c)).count()
    };
    assert_eq!(has(|c| c.unfinished_line == b"ACQ4ME \xff\0half"), 1);
    assert_eq!(has(|c| c.skipping), 1);
    assert_eq!(has(|c| c.unsent.ends_with(b"ERROR WRONG_STAT\n")), 2);
    assert_eq!(has(|c| c.finishing), 1);
    let origins: Vec<Origin> = snapshot.listeners.iter().map(|l| l.origin).collect();
    assert_eq!(origins, [Origin::Address, Origin::Unix]);
    assert!(snapshot.control.is_some() && snapshot.requester.is_none() && !snapshot.draining);
    assert!(snapshot.engine.started > Time::default());
    let counters = snapshot.engine.counters;
    assert_eq!((counters.release_mismatch, counters.full_queues), (1, 1));
    assert!(counters.total_acquired > counters.processing_workers);
}

fn odd_key() -> Vec<u8> {
    (0..=255).filter(|b| !b" \n\r".contains(b)).collect()
}

/// A real daemon with something of everything.
#[test]
#[ignore = "writes the recorded snapshot of a new version"]
fn record() {
    let Some(target) = std::env::var_os("RECORD_SNAPSHOT") else {
        panic!("RECORD_SNAPSHOT=tests/snapshots/vN.jsonl says where to");
    };
    let place = Place::with_daemon();
    let [control, unix] =
        ["control.sock", "clients.sock"].map(|n| place.path(n).display().to_string());
    let server =
        place.start(&["--control", &control, "--listen-unix", &unix, "--max-hold", "spent=1"]);
    let mut clients: Vec<common::Client> = (0..9).map(|_| server.connect()).collect();
    clients[0].exchange("ACQ4ME enwiki:article:1 1 10 0", "LOCKED");
    for (n, line) in [
        (1, "ACQ4ME enwiki:article:1 1 10 3600"),
        (2, "ACQ4ME enwiki:article:1 1 10 7200"),
        (3, "ACQ4ANY enwiki:article:1 1 10 10"),
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
    clients[7].exchange("ACQ4ME spent 1 1 0", "LOCKED");
    clients[7].send_bytes(b"ACQ4ME \xff\0half");
    clients[8].send_bytes(&[b'x'; 5000]);
    clients[8].expect("ERROR LINE_TOO_LONG");
    let slow = [(); 2].map(|()| slow_reader(&unix, || server.settle()));
    slow[1].shutdown(Shutdown::Write).expect("shutdown");
    wait_until("the lock has been held for too long", || {
        (server.counter("hashtable_entries") == 6).then_some(())
    });
    server.settle();
    place.install_script("cat > $HERE/recorded; exit 1");
    refused_restart(&server);
    fs::copy(place.path("recorded"), target).expect("copy");
}

/// Asks until a part of the answers is not with the kernel.
fn slow_reader(path: &str, settle: impl Fn()) -> UnixStream {
    const ANSWER_BYTES: u64 = 17;
    let mut stream = UnixStream::connect(path).expect("connect");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    for requests in (100..).step_by(100) {
        stream.write_all("STATS x\n".repeat(100).as_bytes()).expect("send");
        settle();
        if rustix::io::ioctl_fionread(&stream).expect("FIONREAD") < requests * ANSWER_BYTES {
            return stream;
        }
    }
    unreachable!()
}
