//! Many `poolcounter run` for one key while the daemon is hot-restarted.

use crate::command::binary;
use crate::support::restart::{Place, restart};
use crate::support::{eventually, launched};
use std::fs;
use std::process::{Child, Stdio};

const RUNS: usize = 200;
const WORKERS: usize = 3;
const RESTARTS: usize = 5;

/// Writes its begin and end times by the machine's clock; takes a while in between.
const WORK: &str = r#"begin=$(date +%s%N); sleep 0.02; echo "$begin $(date +%s%N)" > "$0""#;

/// The maximum number of overlapping intervals.
fn at_once(intervals: &[(u64, u64)]) -> usize {
    let begins = intervals.iter().map(|&(begin, _)| begin);
    let running =
        |at: u64| intervals.iter().filter(|(begin, end)| *begin <= at && at < *end).count();
    begins.map(running).max().unwrap_or(0)
}

#[test]
fn intervals_at_once_are_counted() {
    assert_eq!(at_once(&[(1, 3), (3, 5), (2, 4)]), 2);
    assert_eq!(at_once(&[(1, 9), (2, 9), (3, 9)]), 3);
}

#[test]
fn two_hundred_runs_race_for_one_key_through_hot_restarts() {
    let place = Place::with_daemon();
    let server = place.start(&[]);
    let address = server.address().to_string();
    let workers = WORKERS.to_string();
    let one = |number: usize| -> Child {
        let file = place.path(&format!("ran-{number}"));
        // A seventh of them may get QUEUE_FULL.
        let queue = if number % 7 == 0 { "40" } else { "1000" };
        let file = file.to_str().expect("text");
        let words =
            ["-s", &address, "run", "-n", &workers, "-q", queue, "-t", "600", "-E", "99", "race"];
        let mut command =
            launched(&[], binary(), &[&words[..], &["--", "sh", "-c", WORK, file]].concat());
        command.stderr(Stdio::piped()).spawn().expect("start it")
    };
    let mut children: Vec<Child> = (0..RUNS).map(one).collect();
    for _ in 0..RESTARTS {
        restart(&server);
    }
    let (mut served, mut refused) = (Vec::new(), 0);
    for (number, child) in children.iter_mut().enumerate() {
        // Ten times, because the first run may be the last one to end.
        let has_ended = (0..10).any(|_| eventually(|| child.try_wait().expect("wait").is_some()));
        assert!(has_ended, "run {number} does not end");
        let status = child.wait().expect("wait");
        let mut printed = String::new();
        let mut stderr = child.stderr.take().expect("a pipe");
        std::io::Read::read_to_string(&mut stderr, &mut printed).expect("text");
        let ran = fs::read_to_string(place.path(&format!("ran-{number}"))).ok();
        match (status.code(), ran) {
            (Some(0), Some(ran)) => {
                let (begin, end) = ran.trim().split_once(' ').expect("two times");
                served.push((begin.parse().unwrap(), end.parse().unwrap()));
                assert_eq!(printed, "");
            }
            (Some(99), None) => {
                refused += 1;
                assert!(printed.contains("the queue is full"), "{printed:?}");
            }
            other => {
                panic!("run {number} got neither the lock nor a reason: {other:?}, {printed:?}")
            }
        }
    }
    assert_eq!(served.len() + refused, RUNS);
    assert!(served.len() >= RUNS - RUNS / 7 - 1, "only {} were served", served.len());
    assert_eq!(at_once(&served), WORKERS, "all workers busy, and never more");
    assert_eq!(server.counter("processing_workers"), 0);
}
