//! The measured cases. Each case sets up an engine and returns the work to be
//! measured on it. The work checks its own answers: a case that measures the wrong
//! thing is worse than no case.

use crate::worst_keys;

use std::hint::black_box;
use std::ops::Range;

use engine::counts::statistics::Counters;
use engine::rules::Rules;
use engine::rules::rule::Rule;
use engine::{ClientId, Engine, HashSeed, Time};
use protocol::lines::{Line, Lines};
use protocol::{Acquire, Command, Mode, Query, Reply};
use reports::{self, StatsAnswer};

/// The work, ready to be measured.
type Work = Box<dyn FnMut()>;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The total is divided by this number of operations.
    pub(crate) operations: u32,
    pub(crate) prepare: fn() -> Work,
}

const PAIRS: u32 = 10_000;
const PAIRS_PER_SECOND: u32 = 200_000;
const WAITERS: u32 = 1000;
const STATS: u32 = 100;
const ROUNDS: u32 = 20;

pub(crate) const CASES: &[Case] = &[
    Case { name: "lock-release-1000-keys", operations: PAIRS, prepare: || pairs_among(1000) },
    Case { name: "lock-release-100000-keys", operations: PAIRS, prepare: || pairs_among(100_000) },
    Case { name: "lock-release-each-watched", operations: PAIRS, prepare: pairs_watched },
    Case {
        name: "lock-release-whole-second",
        operations: PAIRS_PER_SECOND,
        prepare: pairs_of_a_second,
    },
    Case { name: "lock-release-1-rule", operations: PAIRS, prepare: || pairs_by_rules(1) },
    Case { name: "lock-release-64-rules", operations: PAIRS, prepare: || pairs_by_rules(64) },
    Case { name: "match-64-rules", operations: PAIRS, prepare: matching_ordinary_keys },
    Case {
        name: "match-64-rules-worst-key",
        operations: 1,
        prepare: || matching_the_worst_key(worst_keys::caches()),
    },
    Case {
        name: "match-64-nested-worst-key",
        operations: 1,
        prepare: || matching_the_worst_key(worst_keys::nested()),
    },
    Case { name: "wait", operations: WAITERS, prepare: waiting },
    Case { name: "hand-on", operations: WAITERS, prepare: handing_on },
    Case { name: "wake-by-done", operations: WAITERS, prepare: waking },
    Case { name: "timeout", operations: WAITERS, prepare: timing_out },
    Case { name: "disconnect-of-waiter", operations: WAITERS, prepare: disconnecting },
    Case { name: "line-whole", operations: ROUNDS * LINES, prepare: || reading(usize::MAX) },
    Case { name: "line-in-pieces", operations: ROUNDS * LINES, prepare: || reading(16) },
    Case { name: "stats-full", operations: STATS, prepare: stats_full },
];

/// Uncontended locks and releases while other clients hold this many other keys.
fn pairs_among(live_keys: u32) -> Work {
    let mut engine = new_engine();
    for n in 0..live_keys {
        acquire(&mut engine, n, Mode::ForMe, &key(n));
        expect(&mut engine, n, Reply::Locked);
    }
    pairs(engine, live_keys..live_keys + PAIRS, WARMED_UP, NS_BETWEEN)
}

/// Uncontended locks while this many rules are in force, of which the last matches: rules for
/// prefixes, for substrings, and for single keys.
fn pairs_by_rules(rules: usize) -> Work {
    let mut engine = new_engine();
    let others = (1..rules).map(|n| match n % 3 {
        0 => format!("r{n} *:CirrusSearch-Search{n}* workers=180 maxqueue=200"),
        1 => format!("r{n} thumbor-render-{n}* total=400 max-hold=120"),
        _ => format!("r{n} enwiki:ApiParse:a:198.51.100.{n} deny"),
    });
    let rules = others.chain(["articles *:pcache:*".to_owned()]);
    let rules: Vec<Rule> = rules.map(|rule| Rule::parse(&rule).expect("a rule")).collect();
    let names: Vec<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    engine.set_rules(rules, &names, WARMED_UP, || {});
    pairs(engine, 1_000..1_000 + PAIRS, WARMED_UP, NS_BETWEEN)
}

/// Which of the rules match a key of MediaWiki's.
fn matching_ordinary_keys() -> Work {
    let rules = worst_keys::caches();
    let keys: Vec<String> = (0..PAIRS).map(key).collect();
    Box::new(move || {
        for key in &keys {
            assert!(black_box(rules.matching(key.as_bytes())).is_empty());
        }
    })
}

/// Which of these rules match the key that takes longest.
fn matching_the_worst_key(rules: Rules) -> Work {
    let key = worst_keys::worst_of(&rules);
    Box::new(move || {
        black_box(rules.matching(&key));
    })
}

/// Uncontended locks at 1,000 a second: each is watched for `STATS TOP`.
fn pairs_watched() -> Work {
    let engine = Engine::new(HashSeed::new([1, 2]), Time::from_ns(0));
    pairs(engine, 0..PAIRS, WARMED_UP, 1_000_000)
}

/// Uncontended locks for a whole second. The first requests of a second are all watched.
fn pairs_of_a_second() -> Work {
    let next_second = Time::from_ns(2_000_000_000);
    pairs(warmed_up(next_second), 0..PAIRS_PER_SECOND, next_second, NS_BETWEEN)
}

/// A client locks and releases one new key after the other, from `now` on.
fn pairs(mut engine: Engine, keys: Range<u32>, now: Time, ns_between: u64) -> Work {
    let n = keys.start;
    let keys: Vec<String> = keys.map(key).collect();
    Box::new(move || {
        let mut now = now;
        for key in &keys {
            now = now.plus_ns(ns_between);
            acquire_at(&mut engine, n, Mode::ForMe, key, now);
            expect(&mut engine, n, Reply::Locked);
            engine.release(client(n), now);
            expect(&mut engine, n, Reply::Released);
            while engine.observer.take_sample().is_some() {}
        }
    })
}

/// Joining a queue, and the timer wheel.
fn waiting() -> Work {
    let mut engine = held();
    // Growth of the slab is not part of this case: the slab has room.
    join(&mut engine, Mode::ForMe);
    (1..=WAITERS).for_each(|n| engine.disconnect(client(n), WARMED_UP.plus_ns(6_000_000)));
    Box::new(move || join(&mut engine, Mode::ForMe))
}

/// Each holder releases, and the next waiter gets the lock.
fn handing_on() -> Work {
    let mut engine = queued(Mode::ForMe);
    Box::new(move || {
        for n in 0..WAITERS {
            engine.release(client(n), WARMED_UP.plus_ns(6_000_000));
            expect(&mut engine, n + 1, Reply::Locked);
            expect(&mut engine, n, Reply::Released);
        }
    })
}

/// One holder releases, and all waiters accept its work.
fn waking() -> Work {
    let mut engine = queued(Mode::ForAnyone);
    Box::new(move || {
        engine.release(client(0), WARMED_UP.plus_ns(6_000_000));
        for n in 1..=WAITERS {
            expect(&mut engine, n, Reply::Done);
        }
        expect(&mut engine, 0, Reply::Released);
    })
}

/// All waits time out, spread over some seconds; one turn every 10 ms.
fn timing_out() -> Work {
    let mut engine = queued(Mode::ForMe);
    Box::new(move || {
        let mut ended = 0;
        for turn in 0..2_000 {
            engine.expire(WARMED_UP.plus_ns(turn * 10_000_000));
            while let Some((_, reply)) = engine.take_answer() {
                assert_eq!(reply, Reply::Timeout);
                ended += 1;
            }
            black_box(engine.next_deadline());
        }
        assert_eq!(ended, WAITERS);
    })
}

/// The waiters leave, in a mixed order.
fn disconnecting() -> Work {
    let mut engine = queued(Mode::ForMe);
    Box::new(move || {
        for n in 0..WAITERS {
            // 7 and 1000 have no common divisor: each waiter comes once.
            engine.disconnect(client(1 + n * 7 % WAITERS), WARMED_UP.plus_ns(6_000_000));
        }
        assert_eq!(engine.counters.waiting_workers, 0);
    })
}

/// Bytes to lines to commands, received in segments of this many bytes.
fn reading(segment_bytes: usize) -> Work {
    let stream = conversation();
    let mut lines = Lines::default();
    Box::new(move || {
        let mut read = 0;
        for _ in 0..ROUNDS {
            for mut segment in stream.chunks(segment_bytes.min(stream.len())) {
                while let Some(line) = lines.next_line(&mut segment) {
                    let Line::Complete(line) = line else { panic!("too long") };
                    assert_ne!(black_box(Command::parse(line)), Command::Unknown);
                    read += 1;
                }
            }
        }
        assert_eq!(read, ROUNDS * LINES);
    })
}

const LINES: u32 = 100;

/// What clients send: locks and releases, a request for statistics.
fn conversation() -> Vec<u8> {
    let mut text = String::new();
    for n in 0..(LINES - 2) / 2 {
        let command = if n % 2 == 0 { "ACQ4ANY" } else { "ACQ4ME" };
        text += &format!("{command} {} 2 100 15\nRELEASE\n", key(n));
    }
    text += "STATS FULL\nSTATS uptime\n";
    text.into_bytes()
}

/// The text of `STATS FULL` of a daemon that has worked for a while.
fn stats_full() -> Work {
    let mut engine = queued(Mode::ForMe);
    engine.counters = Counters {
        total_acquired: 667_967,
        total_releases: 2 * 667_967,
        hashtable_entries: 3 * 667_967,
        processing_workers: 4 * 667_967,
        waiting_workers: 5 * 667_967,
        connect_errors: 6 * 667_967,
        failed_sends: 7 * 667_967,
        full_queues: 8 * 667_967,
        lock_mismatch: 9 * 667_967,
        lock_while_waiting: 10 * 667_967,
        release_mismatch: 11 * 667_967,
        processed_count: 12 * 667_967,
        ..Counters::default()
    };
    Box::new(move || {
        for n in 0..STATS {
            let now = Time::from_ns(356_437_000_000_000 + u64::from(n));
            let answer = reports::stats(&Query::Full, &engine, now, false);
            let StatsAnswer::Text(text) = black_box(answer) else { panic!("no text") };
            assert!(text.ends_with(b"\n\n"));
        }
    })
}

/// One key, held by client 0, with waiters 1 to `WAITERS`.
fn queued(mode: Mode) -> Engine {
    let mut engine = held();
    join(&mut engine, mode);
    engine
}

fn held() -> Engine {
    let mut engine = new_engine();
    acquire(&mut engine, 0, Mode::ForMe, &key(0));
    expect(&mut engine, 0, Reply::Locked);
    engine
}

fn join(engine: &mut Engine, mode: Mode) {
    let key = key(0);
    for n in 1..=WAITERS {
        acquire(engine, n, mode, &key);
    }
    assert_eq!(engine.counters.waiting_workers, u64::from(WAITERS));
    assert_eq!(engine.take_answer(), None);
}

/// Between two requests at full rate.
const NS_BETWEEN: u64 = 1_000_000_000 / PAIRS_PER_SECOND as u64;

/// All requests come after this time: the first ones of the second, which are all watched,
/// are over.
const WARMED_UP: Time = Time::from_ns(1_300_000_000);

/// An engine at full rate: of many requests, few are watched for `STATS TOP`.
fn new_engine() -> Engine {
    warmed_up(WARMED_UP)
}

fn warmed_up(until: Time) -> Engine {
    let mut engine = Engine::new(HashSeed::new([1, 2]), Time::from_ns(0));
    let mut now = Time::from_ns(0);
    while now < until {
        now = now.plus_ns(NS_BETWEEN);
        acquire_at(&mut engine, 0, Mode::ForMe, "warm", now);
        expect(&mut engine, 0, Reply::Locked);
        engine.release(client(0), now);
        expect(&mut engine, 0, Reply::Released);
        while engine.observer.take_sample().is_some() {}
    }
    engine
}

fn acquire(engine: &mut Engine, n: u32, mode: Mode, key: &str) {
    acquire_at(engine, n, mode, key, WARMED_UP.plus_ns(u64::from(n) * NS_BETWEEN));
}

fn acquire_at(engine: &mut Engine, n: u32, mode: Mode, key: &str, now: Time) {
    // Timeouts of 1 to 15 seconds, so that the wheel has work.
    let timeout_s = u64::from(1 + n % 15);
    let key = key.as_bytes();
    let request = Acquire { mode, key, workers: 1, max_queue: 10_000, timeout_s };
    engine.acquire(client(n), &request, now);
}

fn expect(engine: &mut Engine, n: u32, reply: Reply) {
    assert_eq!(engine.take_answer(), Some((client(n), reply)));
}

fn client(n: u32) -> ClientId {
    ClientId { slot: n, serial: n }
}

/// 40 bytes, like MediaWiki's.
fn key(n: u32) -> String {
    format!("enwiki:pcache:idhash:{n:012}-0!cano")
}
