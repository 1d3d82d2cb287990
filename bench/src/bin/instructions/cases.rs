//! What is counted. Each case sets up an engine and gives back the work to be
//! measured on it, which checks its own answers: a case that measured something
//! else than it says would be worse than none.

use std::hash::RandomState;
use std::hint::black_box;

use poolcounterd::engine::{ClientId, Engine, Time};
use poolcounterd::protocol::lines::{Line, Lines};
use poolcounterd::protocol::{Acquire, Command, Mode, Reply};
use poolcounterd::server::reports;

/// The work, ready to be measured.
type Work = Box<dyn FnMut()>;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// By which the total is divided.
    pub(crate) operations: u32,
    pub(crate) prepare: fn() -> Work,
}

const PAIRS: u32 = 10_000;
const WAITERS: u32 = 1000;
const STATS: u32 = 100;
const ROUNDS: u32 = 20;

pub(crate) const CASES: &[Case] = &[
    Case { name: "lock-release-1000-keys", operations: PAIRS, prepare: || pairs_beside(1000) },
    Case { name: "lock-release-100000-keys", operations: PAIRS, prepare: || pairs_beside(100_000) },
    Case { name: "wait", operations: WAITERS, prepare: waiting },
    Case { name: "hand-on", operations: WAITERS, prepare: handing_on },
    Case { name: "wake-by-done", operations: WAITERS, prepare: waking },
    Case { name: "timeout", operations: WAITERS, prepare: timing_out },
    Case { name: "disconnect-of-waiter", operations: WAITERS, prepare: disconnecting },
    Case { name: "line-whole", operations: ROUNDS * LINES, prepare: || reading(usize::MAX) },
    Case { name: "line-in-pieces", operations: ROUNDS * LINES, prepare: || reading(16) },
    Case { name: "stats-full", operations: STATS, prepare: stats_full },
];

/// Uncontended locks, each given back, while others hold so many other keys.
fn pairs_beside(live_keys: u32) -> Work {
    let mut engine = new_engine();
    for n in 0..live_keys {
        acquire(&mut engine, n, Mode::ForMe, &key(n));
        expect(&mut engine, n, Reply::Locked);
    }
    let keys: Vec<String> = (0..PAIRS).map(|n| key(live_keys + n)).collect();
    Box::new(move || {
        for key in &keys {
            acquire(&mut engine, live_keys, Mode::ForMe, key);
            expect(&mut engine, live_keys, Reply::Locked);
            engine.release(client(live_keys), Time::from_ns(2_000));
            expect(&mut engine, live_keys, Reply::Released);
        }
    })
}

/// Joining a queue, and the timer wheel.
fn waiting() -> Work {
    let mut engine = held();
    // The slab's growth belongs to whoever makes it grow; here it has room.
    join(&mut engine, Mode::ForMe);
    (1..=WAITERS).for_each(|n| engine.disconnect(client(n), Time::from_ns(1_000)));
    Box::new(move || join(&mut engine, Mode::ForMe))
}

/// Each holder gives back, and the next waiter gets the lock.
fn handing_on() -> Work {
    let mut engine = queued(Mode::ForMe);
    Box::new(move || {
        for n in 0..WAITERS {
            engine.release(client(n), Time::from_ns(3_000));
            expect(&mut engine, n + 1, Reply::Locked);
            expect(&mut engine, n, Reply::Released);
        }
    })
}

/// One holder gives back, and all waiters are content with its work.
fn waking() -> Work {
    let mut engine = queued(Mode::ForAnyone);
    Box::new(move || {
        engine.release(client(0), Time::from_ns(3_000));
        for n in 1..=WAITERS {
            expect(&mut engine, n, Reply::Done);
        }
        expect(&mut engine, 0, Reply::Released);
    })
}

/// All waits run out, at times over some seconds; a turn every 10 ms.
fn timing_out() -> Work {
    let mut engine = queued(Mode::ForMe);
    Box::new(move || {
        let mut ended = 0;
        for turn in 0..2_000 {
            engine.expire(Time::from_ns(turn * 10_000_000));
            while let Some((_, reply)) = engine.take_answer() {
                assert_eq!(reply, Reply::Timeout);
                ended += 1;
            }
            black_box(engine.next_deadline());
        }
        assert_eq!(ended, WAITERS);
    })
}

/// The waiters leave, in no order.
fn disconnecting() -> Work {
    let mut engine = queued(Mode::ForMe);
    Box::new(move || {
        for n in 0..WAITERS {
            // 7 and 1000 have no common divisor: each comes once.
            engine.disconnect(client(1 + n * 7 % WAITERS), Time::from_ns(3_000));
        }
        assert_eq!(engine.counters.waiting_workers, 0);
    })
}

/// Bytes to lines to commands, as they come in segments of so many bytes.
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

/// What MediaWiki says: locks and releases, a look at the statistics.
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
    for (n, counter) in poolcounterd::engine::statistics::Counters::ALL.iter().enumerate() {
        *(counter.get_mut)(&mut engine.counters) = 667_967 * (n as u64 + 1);
    }
    Box::new(move || {
        for n in 0..STATS {
            let now = Time::from_ns(356_437_000_000_000 + u64::from(n));
            let text = reports::stats(b"FULL", &engine, now).expect("STATS FULL");
            assert!(black_box(text).ends_with(b"\n\n"));
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

fn new_engine() -> Engine {
    Engine::new(RandomState::new(), Time::from_ns(0))
}

fn acquire(engine: &mut Engine, n: u32, mode: Mode, key: &str) {
    // Timeouts of 1 to 15 seconds, so that the wheel has work.
    let timeout_s = u64::from(1 + n % 15);
    let key = key.as_bytes();
    let request = Acquire { mode, key, workers: 1, max_queue: 10_000, timeout_s };
    engine.acquire(client(n), &request, Time::from_ns(u64::from(n) * 1_000_000));
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
