//! With a million live keys no report delays the loop, and the records about keys stay
//! within the promised memory (docs/reference/sizing.md).

use crate::support::crowd::{connect_crowd, crowd_size, start_apart};
use crate::support::http::{WithHttp, get};
use crate::support::operated::Operator;
use crate::support::restart::Place;
use engine::state::EngineState;
use engine::{ClientId, Engine, HashSeed, Time};
use protocol::{Acquire, List, MatchingKeys, Mode, Span, Subject};
use reports::ServerFigures;
use reports::json;
use reports::lists::{self, written};
use reports::scan::{PLACES_PER_TURN, Scan};
use reports::{Peers, ReportView, metrics, text};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

const LIVE_KEYS: u32 = 1_000_000;

/// Promised (docs/reference/sizing.md).
const STEP_MAX: Duration = Duration::from_millis(20);

struct NoPeers;

impl Peers for NoPeers {
    fn peer(&self, _: ClientId) -> Option<String> {
        Some("10.0.0.1:4711".to_owned())
    }
}

fn view(engine: &Engine, now: Time) -> ReportView<'_> {
    ReportView { engine, now, wall_ns: 0, peers: &NoPeers, is_private: false }
}

/// Processor time of this thread, without the time that other processes use the core.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// What `work` returns, and how long it takes.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = cpu_time();
    let result = work();
    (result, cpu_time() - begin)
}

pub(crate) fn at_us(us: u64) -> Time {
    Time::from_ns(1_000_000_000 + us * 1_000)
}

pub(crate) fn acquire(engine: &mut Engine, slot: u32, key: &[u8], now: Time) {
    let request = Acquire { mode: Mode::ForMe, key, workers: 1, max_queue: 9, timeout_s: 900 };
    engine.acquire(ClientId { slot, serial: slot }, &request, now);
    while engine.take_answer().is_some() {}
}

#[test]
fn with_a_million_live_keys_no_step_of_a_report_takes_long() {
    let mut engine = Engine::new(HashSeed::new([1, 2]), at_us(0));
    for n in 0..LIVE_KEYS {
        acquire(
            &mut engine,
            n,
            format!("enwiki:pcache:idhash:{n}-0!canonical:revid:7").as_bytes(),
            at_us(n.into()),
        );
    }
    for n in 0..LIVE_KEYS / 10 {
        let key = format!("enwiki:pcache:idhash:{}-0!canonical:revid:7", n * 7 % LIVE_KEYS);
        acquire(&mut engine, LIVE_KEYS + n, key.as_bytes(), at_us(2_000_000));
    }
    let now = at_us(200_000_000);
    let scan = walked("scan", Scan::new(now, None), &engine);
    // Each key is compared to its end.
    let pattern = b"*revid:*!*";
    let found = walked("scan with a pattern", Scan::new(now, Some(pattern)), &engine);
    let figures = ServerFigures::default();
    let mut texts = Vec::new();
    for query in
        [List::Keys(200), List::Key(b"enwiki:pcache:idhash:7-0!canonical:revid:7".to_vec())]
    {
        let view = view(&engine, now);
        let (made, took) = timed(|| text(&lists::list(&query, &view, &scan)));
        texts.push((format!("{query:?}"), made.len(), took));
    }
    let view = view(&engine, now);
    let (text, took) = timed(|| serde_json::to_string(&json::report(&view, &figures, &scan)));
    texts.push(("JSON".to_owned(), text.expect("JSON").len(), took));
    let (text, took) = timed(|| written(&lists::list(&List::Keys(200), &view, &scan)));
    texts.push(("JSON KEYS".to_owned(), text.len(), took));
    let query = MatchingKeys { rows: 200, pattern: pattern.to_vec() };
    let (text, took) = timed(|| written(&lists::matching_keys(&query, &view, &found)));
    texts.push(("JSON KEYS with a pattern".to_owned(), text.len(), took));
    let (text, took) = timed(|| metrics::metrics(&view, &figures, &scan, 100));
    texts.push(("/metrics".to_owned(), text.len(), took));
    for (what, bytes, took) in &texts {
        println!("{what}: {bytes} bytes in {took:?}, at most {STEP_MAX:?}");
        assert!(*took < STEP_MAX, "{what} took {took:?}");
    }
}

/// Walks over all keys.
fn walked(what: &str, mut scan: Scan, engine: &Engine) -> Scan {
    let (mut steps, mut longest, mut sum) = (0, Duration::ZERO, Duration::ZERO);
    loop {
        let (is_done, took) = timed(|| scan.step(engine, PLACES_PER_TURN));
        (steps, longest, sum) = (steps + 1, longest.max(took), sum + took);
        if is_done {
            break;
        }
    }
    println!(
        "{what}: {steps} steps, the longest {longest:?} (at most {STEP_MAX:?}), together {sum:?}"
    );
    assert!(longest < STEP_MAX, "a step took {longest:?}");
    assert!(steps >= LIVE_KEYS as usize / PLACES_PER_TURN);
    scan
}

/// Ten thousand hosts are connected, and a crowd of clients asks at once: all are
/// answered from one scan.
#[test]
fn many_requests_for_addresses_cost_little_more_than_one() {
    let engine = Engine::new(HashSeed::new([1, 2]), at_us(0));
    let mut scan = Scan::new(at_us(0), None);
    for n in 0..10_000 {
        scan.add_connection(&format!("2001:db8:1234:5678:9abc:def0:1234:{n:04x}"), 1, 0);
    }
    let view = view(&engine, at_us(0));
    let ask = || text(&lists::list(&List::Clients(1), &view, &scan));
    let (made, took) = timed(|| (1..400).fold(ask(), |_, _| ask()));
    println!("400 times STATS CLIENTS 1 of 10,000 addresses: {took:?}, at most {STEP_MAX:?}");
    assert!(made.starts_with("addresses: 1 of 10000\nconnections: 10000\n"), "{made}");
    assert!(took < STEP_MAX, "{took:?}");
}

/// Keys of every length, all different, at full rate: the lists of the last hour fill up.
#[test]
fn records_take_bounded_memory_whatever_the_keys() {
    let mut engine = Engine::new(HashSeed::new([1, 2]), at_us(0));
    engine.observer.set_slow(Some(0));
    let before = resident_bytes();
    let mut longest = Duration::ZERO;
    for minute in 0..75_u32 {
        for n in 0..20_000_u32 {
            // 2,000 a second: each is recorded, not sampled.
            let now = at_us(u64::from(minute) * 60_000_000 + u64::from(n) * 500);
            let key = format!("{minute}:{n}:{}", "x".repeat(150));
            let ((), took) = timed(|| {
                acquire(&mut engine, 0, key.as_bytes(), now);
                engine.release(ClientId { slot: 0, serial: 0 }, now.plus_ns(1_000_000));
                while let Some(sample) = engine.observer.take_sample() {
                    let address = format!("2001:db8:1234:5678:9abc:def0:{minute:04x}:{n:04x}");
                    engine.observer.count_sample(&sample, address.as_bytes(), now);
                }
                while let Some(slow) = engine.observer.take_slow() {
                    engine
                        .observer
                        .log_slow(slow, "[2001:db8:1234:5678:9abc:def0:1234:5678]:99".into());
                }
                while engine.take_answer().is_some() {}
            });
            longest = longest.max(took);
        }
    }
    let used = resident_bytes() - before;
    println!(
        "{used} bytes for the records (fewer than 5,000,000); the longest request took \
         {longest:?} (at most {STEP_MAX:?})"
    );
    let now = at_us(75 * 60_000_000);
    let (rows, took) = timed(|| {
        let mut rows = 0;
        for (span, subject) in [Span::Minute, Span::Hour]
            .into_iter()
            .flat_map(|span| [Subject::Keys, Subject::Clients].map(|subject| (span, subject)))
        {
            rows += engine.observer.top(span, subject, now).by_requests.len();
        }
        rows
    });
    println!("all of STATS TOP, {rows} rows: {took:?}, at most {STEP_MAX:?}");
    assert!(rows == 400 && took < STEP_MAX, "{rows} rows in {took:?}");
    let (snapshot, written) = timed(|| rmp_serde::to_vec_named(&engine.state()).expect("bytes"));
    let (_, read) = timed(|| rmp_serde::from_slice::<EngineState>(&snapshot).expect("a state"));
    println!(
        "in a hot restart: {} bytes, written in {written:?}, read in {read:?}",
        snapshot.len()
    );
    assert!(used < 5_000_000, "{used} bytes");
    assert!(longest < STEP_MAX, "closing a minute took {longest:?}");
}

/// Operators and Prometheus need their reports most when a crowd asks for reports.
#[test]
fn operators_and_monitoring_do_not_wait_for_a_crowd_that_asks_for_reports() {
    let place = Place::new();
    let path = place.path("control.sock").display().to_string();
    let daemon = WithHttp::of(start_apart(7, &["--http", "127.0.0.1:0", "--control", &path]));
    let mut crowd = connect_crowd(daemon.server.address(), crowd_size(10_000));
    // So that all requests are there when it continues.
    daemon.server.signal(Signal::STOP);
    crowd.iter_mut().for_each(|client| client.send("STATS JSON"));
    let mut operator = Operator::connect(&path);
    operator.send(b"STATS KEYS\n");
    daemon.server.signal(Signal::CONT);
    let began = Instant::now();
    // The daemon has started on the crowd's requests.
    crowd[0].line();
    get(daemon.http, "/metrics");
    let monitoring = began.elapsed();
    operator.line();
    let operator = began.elapsed();
    for client in &mut crowd[1..] {
        client.line();
    }
    let all = began.elapsed();
    println!(
        "{} clients have STATS JSON after {all:?}; /metrics came after {monitoring:?}, STATS KEYS \
         to an operator after {operator:?}: within a tenth of that",
        crowd.len()
    );
    assert!(monitoring * 10 < all && operator * 10 < all);
}

fn resident_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    let kib = line.trim().trim_end_matches("kB").trim().parse::<i64>().expect("a number");
    kib * 1024
}
