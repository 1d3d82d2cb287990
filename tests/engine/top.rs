//! `STATS TOP` under load: what it says of its own exactness is true.

use crate::reports::{START, asked, client, figures, new_engine, tops, view};
use crate::support::random::Random;
use poolcounterd::engine::windows::Closed;
use poolcounterd::engine::{Engine, Time};
use poolcounterd::protocol::{Acquire, Mode, Span, Subject};
use poolcounterd::reports::{json, prometheus, survey::Survey};
use serde_json::Value;
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

/// As the caller does: takes the answers, and tells whose address a client is.
fn deliver(engine: &mut Engine, now: Time) {
    while engine.take_answer().is_some() {}
    while let Some(sample) = engine.take_sample() {
        engine.note_sample(&sample, b"10.0.0.1", now);
    }
}

fn pair(engine: &mut Engine, slot: u32, key: &str, now: Time) {
    acquire(engine, slot, key, now);
    release(engine, slot, now);
}

/// So many requests for `key`, and as many releases, from `from` on.
fn flood(engine: &mut Engine, key: &str, from: Time, (count, ns_between): (u64, u64)) {
    (0..count).for_each(|n| pair(engine, 900, key, from.plus_ns(n * ns_between)));
}

fn minute(engine: &mut Engine, now: Time) -> Closed {
    engine.top(Span::Minute, Subject::Keys, now)
}

/// What `by_requests` has of a name.
fn requests(closed: &Closed, name: &str) -> u64 {
    let row = closed.by_requests.rows.iter().find(|row| row.name == name.as_bytes());
    row.map_or(0, |row| row.count)
}

/// What `by_time` has of a name, in nanoseconds.
fn time_ns(closed: &Closed, name: &str) -> u64 {
    let row = closed.by_time.rows.iter().find(|row| row.name == name.as_bytes());
    row.map_or(0, |row| row.count)
}

/// Within four standard deviations: more than is shown, for a test must not fail.
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
        assert_eq!((requests(&calm, "quiet"), calm.weight), (60 * per_second, 1));
        assert_eq!(requests(&calm, "burst"), 0);
        let hour = engine.top(Span::Hour, Subject::Keys, at_s(121));
        assert!(hour.weight > 1, "{}", hour.weight);
        assert_eq!(requests(&hour, "quiet"), 119 * per_second);
        assert_near(requests(&hour, "burst"), burst, hour.weight);
    }
}

/// Nobody takes a sample in the second minute, and still it was not counted exactly.
#[test]
fn what_was_in_force_is_shown_without_a_sample() {
    let mut engine = new_engine();
    flood(&mut engine, "burst", at_s(59), (500_000, 1_999));
    assert!(minute(&mut engine, at_s(60)).weight > 1);
    // The second goes on into the next minute, with a request that nobody looks at.
    let quiet = at_s(60).plus_ns(500);
    pair(&mut engine, 1, "quiet", quiet);
    let next = minute(&mut engine, at_s(121));
    assert!(next.weight > 1 && next.long_ns > 0, "{next:?}");
    assert_eq!(minute(&mut engine, at_s(181)).weight, 0);
}

#[test]
fn up_to_2500_requests_a_second_each_is_counted_however_they_come() {
    for pieces in [1, 5, 50] {
        let mut engine = new_engine();
        for second in 0..61 {
            for piece in 0..pieces {
                let now = at_s(second).plus_ns(piece * 1_000);
                flood(&mut engine, "k", now, (2_500 / pieces, 0));
            }
        }
        let closed = minute(&mut engine, at_s(61));
        assert_eq!((requests(&closed, "k"), closed.weight), (150_000, 1), "{pieces}");
    }
}

/// Forty holds of three seconds in a flood of requests, of which one in some is sampled.
#[test]
fn long_holds_are_counted_exactly_under_load() {
    for per_second in [10_000, 100_000] {
        let mut engine = new_engine();
        let ns_between = SECOND_NS / per_second;
        flood(&mut engine, "flood", at_s(0), (per_second * 5 / 2, ns_between));
        // In the middle of a second, where it is sampled.
        (0..40).for_each(|n| acquire(&mut engine, n, &format!("slow{n}"), at_us(2_500_000)));
        flood(&mut engine, "flood", at_us(2_500_001), (per_second * 3, ns_between));
        (0..40).for_each(|n| release(&mut engine, n, at_us(5_500_001)));
        let top = minute(&mut engine, at_s(10));
        assert!(top.weight > 1);
        for n in 0..40 {
            assert_eq!(time_ns(&top, &format!("slow{n}")), 3 * SECOND_NS + 1_000);
        }
        let clients = engine.top(Span::Minute, Subject::Clients, at_s(10));
        assert!(time_ns(&clients, "10.0.0.1") >= 40 * 3 * SECOND_NS);
    }
}

/// Short ones are sampled: the sum is within the bound that is shown.
#[test]
fn short_holds_are_within_the_bound_that_is_shown() {
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
    let (by_requests, by_time) = top.sampled_units();
    assert!(by_requests > 1 && by_time > 1_000_000);
    assert_near(time_ns(&top, "k"), truth_ns, by_time);
    assert_near(requests(&top, "k"), 200_000, by_requests);
    let text = asked(&mut engine, "TOP", at_s(5), false);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).expect(name);
    assert_eq!(line("sampled: "), format!("sampled: 1 request in {by_requests}"));
    let factor = 2.0 * (by_time as f64 / 1e9).sqrt();
    assert_eq!(
        line("sampling_error_of_time: "),
        format!(
            "sampling_error_of_time: a time of n s is within {factor:.2} * sqrt(n) s, as often"
        )
    );
}

/// The lists as they are seen: the names of each, and the bound on all others.
fn seen(engine: &mut Engine, now: Time) -> Vec<(Vec<String>, f64)> {
    let text = asked(engine, "TOP", now, false);
    let list = |text: &str| {
        let (_, rest) = text.split_once("\nnot_listed: none above ").expect("a bound");
        let (bound, rows) = rest.split_once('\n').expect("rows");
        let rows = rows.lines().skip(1).take_while(|line| line.starts_with(' '));
        let names = rows.filter_map(|row| row.split_whitespace().next_back());
        (names.map(str::to_owned).collect(), bound.trim_end_matches('s').parse().expect("a number"))
    };
    let (first, second) = text.split_once("\nby_time: ").expect("two lists");
    let json = json_of(engine, now);
    let of_json = |by: &str| {
        let list = &json["top"]["keys"]["minute"][by];
        let names = list["rows"].as_array().expect("rows").iter().map(|row| &row["name"]);
        let names = names.map(|name| name.as_str().expect("text").to_owned()).collect();
        (names, list["not_listed_max"].as_f64().expect("a number"))
    };
    vec![list(first), of_json("by_requests"), list(second), of_json("by_time")]
}

fn json_of(engine: &mut Engine, now: Time) -> Value {
    let (figures, tops) = (figures(), tops(engine, now));
    let report = json::report(&view(engine, &figures, now, false), &Survey::new(now), &tops);
    serde_json::to_value(&report).expect("JSON")
}

#[test]
fn what_is_not_listed_is_bounded_in_the_list_that_one_sees() {
    let mut engine = new_engine();
    for n in 0..30 {
        for _ in 0..5 {
            acquire(&mut engine, 1, &format!("n{n}"), at_s(1));
            release(&mut engine, 1, at_us(1_100_000));
        }
    }
    let bounds: Vec<(usize, f64)> =
        seen(&mut engine, at_s(2)).iter().map(|(names, bound)| (names.len(), *bound)).collect();
    assert_eq!(bounds, [(20, 5.0), (10, 5.0), (20, 0.5), (10, 0.5)]);
}

/// Names that are rare among samples, or have none.
#[test]
fn what_is_not_listed_is_bounded_under_sampling() {
    let mut engine = new_engine();
    let (mut random, mut requests, mut time_s) = (Random(3), HashMap::new(), HashMap::new());
    for n in 0..400_000_u64 {
        let (name, now) = (format!("n{}", random.next() % 600), at_us(5 * n));
        let held_ns = random.next() % 3_000_000;
        acquire(&mut engine, 1, &name, now);
        release(&mut engine, 1, now.plus_ns(held_ns));
        *requests.entry(name.clone()).or_insert(0.0) += 1.0;
        *time_s.entry(name).or_insert(0.0) += held_ns as f64 / 1e9;
    }
    let lists = seen(&mut engine, at_s(3));
    for ((names, bound), truth) in lists.iter().zip([&requests, &requests, &time_s, &time_s]) {
        let others = truth.iter().filter(|(name, _)| !names.contains(name));
        let most = others.map(|(_, n)| *n).fold(0.0, f64::max);
        assert!(most > 0.0 && most <= *bound, "{most}, {bound}");
    }
}

/// The caller hears of so many at once only if it asks in between.
#[test]
fn what_a_crowd_did_is_not_forgotten_for_clients() {
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
    let clients = engine.top(Span::Minute, Subject::Clients, at_s(17));
    let truth = (1..15_000).map(|n| 16 * SECOND_NS - n * 1_000_000).sum::<u64>() + 16 * SECOND_NS;
    let (seen, too_low) = (time_ns(&clients, "10.0.0.1"), clients.by_time.too_low);
    assert!(seen < truth && seen + too_low >= truth, "{seen} + {too_low}, {truth}");
    assert_eq!(time_ns(&minute(&mut engine, at_s(17)), "k"), truth);
}

/// The place by time is taken when the first hold ends, the one by requests before it.
#[test]
fn rows_by_time_have_the_requests_too() {
    let mut engine = new_engine();
    for n in 0..5 {
        acquire(&mut engine, n, "k", at_s(1));
    }
    (0..5).for_each(|n| release(&mut engine, n, at_s(2)));
    let top = minute(&mut engine, at_s(3));
    let columns = top.by_time.rows[0].columns;
    assert_eq!((columns.requests, columns.acquired), (5, 5));
    assert_eq!(columns.held_ns, 5 * SECOND_NS);
    assert_eq!(columns, top.by_requests.rows[0].columns);
}

#[test]
fn metrics_say_how_exact_the_hot_keys_are() {
    let mut engine = new_engine();
    pair(&mut engine, 1, "k", at_s(1));
    let sampled = |engine: &mut Engine, now: Time| {
        let (top, figures) = (minute(engine, now), figures());
        let view = view(engine, &figures, now, false);
        let text = prometheus::metrics(&view, &Survey::new(now), Some((&top, 5)));
        let name = "poolcounter_hot_key_sampled_one_in ";
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        (line.parse::<u64>().expect("a number"), top.weight)
    };
    assert_eq!(sampled(&mut engine, at_s(2)), (1, 1));
    flood(&mut engine, "k", at_s(3), (50_000, 1_000));
    let (shown, weight) = sampled(&mut engine, at_s(5));
    assert!(shown > 1 && shown == weight);
}
