//! `STATS TOP` under load: what it counts is right, and it shows when it estimates.

use crate::random::Random;
use crate::texts::{FIGURES, SEED, START, asked, client, new_engine, view};
use engine::observe::windows::Counted;
use engine::state::BadState;
use engine::{Engine, Time};
use protocol::{Acquire, Mode, Span, Subject};
use reports::{metrics, scan::Scan};
use std::collections::HashMap;

const SECOND_NS: u64 = 1_000_000_000;

fn at_us(us: u64) -> Time {
    START.plus_ns(us * 1_000)
}

fn at_s(seconds: u64) -> Time {
    START.plus_seconds(seconds)
}

fn acquire(engine: &mut Engine, slot: u32, key: &str, now: Time) {
    let key = key.as_bytes();
    let request = Acquire { mode: Mode::ForMe, key, workers: 9, max_queue: 9, timeout_s: 0 };
    engine.acquire(client(slot), &request, now);
    deliver(engine, now);
}

fn release(engine: &mut Engine, slot: u32, now: Time) {
    engine.release(client(slot), now);
    deliver(engine, now);
}

/// As the caller does: takes the answers, and passes the addresses of sampled clients.
fn deliver(engine: &mut Engine, now: Time) {
    while engine.take_answer().is_some() {}
    while let Some(sample) = engine.observer.take_sample() {
        engine.observer.count_sample(&sample, b"10.0.0.1", now);
    }
}

fn pair(engine: &mut Engine, slot: u32, key: &str, now: Time) {
    acquire(engine, slot, key, now);
    release(engine, slot, now);
}

/// `count` requests for `key`, and as many releases, from `from` on.
fn flood(engine: &mut Engine, key: &str, from: Time, (count, ns_between): (u64, u64)) {
    (0..count).for_each(|n| pair(engine, 900, key, from.plus_ns(n * ns_between)));
}

fn minute(engine: &mut Engine, now: Time) -> Counted {
    top(engine, Span::Minute, Subject::Keys, now)
}

fn hour(engine: &mut Engine, now: Time) -> Counted {
    top(engine, Span::Hour, Subject::Keys, now)
}

/// As the caller does: lets minutes and hours end first.
fn top(engine: &mut Engine, span: Span, subject: Subject, now: Time) -> Counted {
    engine.expire(now);
    engine.observer.top(span, subject, now)
}

/// What `by_requests` counts for a name.
fn requests(counted: &Counted, name: &str) -> u64 {
    let row = counted.by_requests.iter().find(|row| row.name == name.as_bytes());
    row.map_or(0, |row| row.count)
}

/// What `by_time` counts for a name, in nanoseconds.
fn time_ns(counted: &Counted, name: &str) -> u64 {
    let row = counted.by_time.iter().find(|row| row.name == name.as_bytes());
    row.map_or(0, |row| row.count)
}

/// Within four standard deviations, if each request that was counted stands for `unit`.
#[track_caller]
fn assert_near(count: u64, truth: u64, unit: u64) {
    let bound = 4.0 * (unit as f64 * truth as f64).sqrt();
    assert!(count.abs_diff(truth) as f64 <= bound, "{count}, not {truth} ± {bound}");
}

#[test]
fn after_a_burst_a_slow_rate_is_counted_exactly() {
    for (burst, per_second) in [(600_000, 2), (300_000, 1), (100_000, 10)] {
        let mut engine = new_engine();
        flood(&mut engine, "burst", at_s(0), (burst, 300_000_000 / burst));
        for n in 0..125 * per_second {
            let now = at_s(1).plus_ns(n * SECOND_NS / per_second);
            pair(&mut engine, 1, "quiet", now);
        }
        let calm = minute(&mut engine, at_s(121));
        assert_eq!((requests(&calm, "quiet"), calm.sampled_one_in), (60 * per_second, 1));
        assert_eq!(requests(&calm, "burst"), 0);
        let hour = hour(&mut engine, at_s(121));
        assert_eq!(hour.sampled_one_in, 64);
        assert_eq!(requests(&hour, "quiet"), 125 * per_second);
        assert_near(requests(&hour, "burst"), burst, 64);
    }
}

/// The first request of a sample may be the only one, and still stands for others.
#[test]
fn one_sampled_request_makes_a_sampled_minute() {
    for (requests, one_in) in [(2_500, 1), (2_501, 64), (2_502, 64)] {
        let mut engine = new_engine();
        flood(&mut engine, "burst", at_s(0), (requests, 0));
        assert_eq!(minute(&mut engine, at_s(59)).sampled_one_in, one_in, "{requests}");
    }
}

/// The second minute lacks the end of a hold that was not followed, and shows that; the third lacks
/// nothing.
#[test]
fn sampling_is_shown_in_the_minute_in_which_it_happens() {
    let mut engine = new_engine();
    flood(&mut engine, "burst", at_s(58), (2_500, 0));
    (0..40).for_each(|n| acquire(&mut engine, n, "held", at_s(58)));
    (0..40).for_each(|n| release(&mut engine, n, at_s(61)));
    for (asked_at_s, one_in) in [(59, 64), (61, 64), (121, 64), (181, 1)] {
        assert_eq!(minute(&mut engine, at_s(asked_at_s)).sampled_one_in, one_in);
    }
}

#[test]
fn the_running_hour_is_shown_once_it_is_ten_minutes_old() {
    let mut engine = new_engine();
    for minute in 0..=131 {
        let now = at_s(60 * minute);
        pair(&mut engine, 1, "k", now);
        let (from, to, counted) = match minute {
            0..60 => (0, minute, minute + 1),
            60..70 => (0, 60, 60),
            70..120 => (60, minute, minute - 59),
            120..130 => (60, 120, 60),
            _ => (120, minute, minute - 119),
        };
        let top = hour(&mut engine, now);
        assert_eq!((top.began, top.ended), (at_s(60 * from), at_s(60 * to)));
        assert_eq!(requests(&top, "k"), counted, "in minute {minute}");
    }
}

/// A flood must show within seconds: also after a hot restart, and after minutes of sleep.
#[test]
fn the_running_minute_is_shown_once_it_is_ten_seconds_old() {
    let mut engine = new_engine();
    (0..=200).for_each(|second| pair(&mut engine, 1, "k", at_s(second)));
    for (asked_at_ms, shown_ms, counted) in [
        // The request of this moment counts.
        (200_000, 180_000..200_000, 21),
        (239_999, 180_000..239_999, 21),
        (240_000, 180_000..240_000, 21),
        (249_999, 180_000..240_000, 21),
        (250_000, 240_000..250_000, 0),
        (310_001, 300_000..310_001, 0),
        (905_500, 840_000..900_000, 0),
        (912_250, 900_000..912_250, 0),
    ] {
        let at_ms = |ms: u64| at_us(ms * 1_000);
        engine = restarted(&engine, at_ms(asked_at_ms));
        let top = minute(&mut engine, at_ms(asked_at_ms));
        let shown = at_ms(shown_ms.start)..at_ms(shown_ms.end);
        assert_eq!(top.began..top.ended, shown, "at {asked_at_ms} ms");
        assert_eq!(requests(&top, "k"), counted, "at {asked_at_ms} ms");
    }
}

/// Of the first minute there is what there is. Whoever computes a rate needs the seconds.
#[test]
fn the_header_has_the_seconds_that_the_counts_cover() {
    for (asked_at_ms, minute_ms, hour_ms) in [
        (0, 0, 0),
        (7, 7, 7),
        (59_999, 59_999, 59_999),
        (60_000, 60_000, 60_000),
        (69_999, 60_000, 69_999),
        (70_000, 10_000, 70_000),
        (3_600_000, 60_000, 3_600_000),
        (4_199_999, 59_999, 3_600_000),
        (4_200_000, 60_000, 600_000),
    ] {
        let (mut engine, now) = (new_engine(), at_us(asked_at_ms * 1_000));
        pair(&mut engine, 1, "k", at_s(0));
        engine.expire(now);
        for (span, ms) in [("minute", minute_ms), ("hour", hour_ms)] {
            for subject in ["keys", "clients"] {
                let text = asked(&mut engine, &format!("TOP {span} {subject}"), now, false);
                let line = format!("\ncovered_s: {}.{:03}\n", ms / 1_000, ms % 1_000);
                assert!(text.contains(&line), "{line}: {text}");
                let json = asked(&mut engine, &format!("JSON TOP {span} {subject}"), now, false);
                let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
                assert_eq!(json["covered_s"], ms as f64 / 1_000.0, "{json}");
            }
        }
    }
}

/// A series needs equal times.
#[test]
fn metrics_show_the_last_full_minute() {
    let mut engine = new_engine();
    pair(&mut engine, 1, "k", at_s(1));
    (0..5).for_each(|_| pair(&mut engine, 1, "k", at_s(70)));
    for (asked_at_s, counted) in [(71, 1), (119, 1), (120, 5), (179, 5)] {
        engine.expire(at_s(asked_at_s));
        let text = metrics::metrics(
            &view(&engine, at_s(asked_at_s), false),
            &FIGURES,
            &Scan::new(START, None),
            5,
        );
        let line = format!("\npoolcounter_hot_key_requests{{key=\"k\"}} {counted}\n");
        assert!(text.contains(&line), "{line}: {text}");
    }
}

#[test]
fn up_to_2500_requests_a_second_are_all_counted() {
    for pieces in [1, 5, 50] {
        let mut engine = new_engine();
        for second in 0..61 {
            for piece in 0..pieces {
                let now = at_s(second).plus_ns(piece * 1_000);
                flood(&mut engine, "k", now, (2_500 / pieces, 0));
            }
        }
        let counted = minute(&mut engine, at_s(61));
        assert_eq!((requests(&counted, "k"), counted.sampled_one_in), (150_000, 1), "{pieces}");
    }
}

/// Clients may ask for one key with every second, tenth or 64th request.
#[test]
fn no_rhythm_escapes_sampling() {
    for period in [2, 10, 64, 100, 127, 128] {
        let mut engine = new_engine();
        for n in 0..period * 2_000 {
            let key = if n % period == 0 { "k" } else { "other" };
            pair(&mut engine, 1, key, at_us(n));
        }
        assert_near(requests(&minute(&mut engine, at_s(1)), "k"), 2_000, 64);
    }
}

/// More keys than places, and a hot restart.
#[test]
fn counts_are_within_their_error() {
    let (mut engine, mut random) = (new_engine(), Random(3));
    let mut truth: HashMap<Vec<u8>, u64> = HashMap::new();
    acquire(&mut engine, 2, "long", at_s(0));
    for n in 0..100_000 {
        // The smaller its number, the more often a key is asked for.
        let uniform = (random.next() >> 40) as f64 / (1_u64 << 24) as f64;
        let mut key = format!("key:{}", 50_000_f64.powf(uniform) as u64);
        if n == 1 || n >= 99_800 {
            // It loses its place, and gets another one.
            key = "late".to_owned();
        }
        let now = at_us(n * 500);
        acquire(&mut engine, 1, &key, now);
        release(&mut engine, 1, now.plus_ns(100_000));
        *truth.entry(key.into_bytes()).or_default() += 1;
        if n == 50_000 {
            engine = restarted(&engine, now.plus_ns(100_000));
            release(&mut engine, 2, now.plus_ns(100_000));
        }
    }
    let top = minute(&mut engine, at_s(50));
    assert_eq!((top.by_requests.len(), top.sampled_one_in), (100, 1));
    for row in &top.by_requests {
        let (most, exact) = (row.count, truth[&row.name]);
        assert!(row.error <= 200 && (most - row.error..=most).contains(&exact), "{row:?}, {exact}");
    }
    let mut counts: Vec<u64> = truth.into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    for (row, exact) in top.by_requests.iter().zip(&counts[..20]) {
        assert_eq!((row.count, row.error), (*exact, 0));
    }
    assert!(top.by_requests.iter().any(|row| row.name == b"late" && row.error > 0));
    assert_eq!(hour(&mut engine, at_s(50)), top);
    // Asked for only once, it has its place by time.
    let long = &top.by_time[0];
    assert_eq!((&long.name[..], long.count - long.error), (&b"long"[..], 25_000_100_000));
}

fn restarted(engine: &Engine, now: Time) -> Engine {
    let state = rmp_serde::to_vec_named(&engine.state()).expect("bytes");
    let state = rmp_serde::from_slice(&state).expect("a state");
    let pools = engine.pool_states().map(Ok::<_, BadState>);
    Engine::resume(state, pools, SEED, now).expect("an engine")
}

/// A hold counts for as many requests as the one that began it.
#[test]
fn times_are_estimated_as_requests_are() {
    let mut engine = new_engine();
    let (mut random, mut truth_ns) = (Random(5), 0);
    for n in 0..200_000 {
        let now = at_us(n * 20);
        let held_ns = random.next() % 1_000_000;
        acquire(&mut engine, 1, "k", now);
        release(&mut engine, 1, now.plus_ns(held_ns));
        truth_ns += held_ns;
    }
    let top = minute(&mut engine, at_s(5));
    assert_eq!(top.sampled_one_in, 64);
    assert_near(time_ns(&top, "k"), truth_ns, 64 * 1_000_000);
    assert_near(requests(&top, "k"), 200_000, 64);
    assert_eq!(top.by_requests[0].columns.held_ns, time_ns(&top, "k"));
}

/// All at once, before the caller has passed the addresses.
#[test]
fn a_crowd_is_also_counted_for_clients() {
    let mut engine = new_engine();
    for n in 0..15_000 {
        let request = Acquire {
            mode: Mode::ForAnyone,
            key: b"k",
            workers: 1,
            max_queue: 99_999,
            timeout_s: 99,
        };
        engine.acquire(client(n), &request, at_us(u64::from(n) * 1_000));
        deliver(&mut engine, at_us(u64::from(n) * 1_000));
    }
    release(&mut engine, 0, at_s(16));
    let clients = top(&mut engine, Span::Minute, Subject::Clients, at_s(17));
    let truth = (1..15_000).map(|n| 16 * SECOND_NS - n * 1_000_000).sum::<u64>() + 16 * SECOND_NS;
    assert_eq!(time_ns(&clients, "10.0.0.1"), truth);
    assert_eq!(time_ns(&minute(&mut engine, at_s(17)), "k"), truth);
}

/// The place by time is taken when the first hold ends, the one by requests before it.
#[test]
fn rows_by_time_also_have_requests() {
    let mut engine = new_engine();
    for n in 0..5 {
        acquire(&mut engine, n, "k", at_s(1));
    }
    (0..5).for_each(|n| release(&mut engine, n, at_s(2)));
    let top = minute(&mut engine, at_s(3));
    let columns = top.by_time[0].columns;
    assert_eq!((columns.requests, columns.acquired), (5, 5));
    assert_eq!(columns.held_ns, 5 * SECOND_NS);
    assert_eq!(columns, top.by_requests[0].columns);
}

#[test]
fn metrics_show_whether_hot_keys_are_sampled() {
    let mut engine = new_engine();
    pair(&mut engine, 1, "k", at_s(1));
    let sampled = |engine: &mut Engine, now: Time| {
        engine.expire(now);
        let view = view(engine, now, false);
        let text = metrics::metrics(&view, &FIGURES, &Scan::new(now, None), 5);
        let name = "poolcounter_hot_key_sampled_one_in ";
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.parse::<u64>().expect("a number")
    };
    assert_eq!(sampled(&mut engine, at_s(2)), 1);
    flood(&mut engine, "k", at_s(3), (50_000, 1_000));
    assert_eq!(sampled(&mut engine, at_s(5)), 64);
}
