//! Reports as pure functions of an engine: no socket, no clock.

use crate::schema;
use poolcounterd::engine::summary::NAME_BYTES_MAX;
use poolcounterd::engine::{ClientId, Engine, Time};
use poolcounterd::protocol::{Acquire, Command, Mode, Query, Span, Subject, key_text};
use poolcounterd::reports::figures::{Figures, Process};
use poolcounterd::reports::json::{self, Tops};
use poolcounterd::reports::survey::Survey;
use poolcounterd::reports::{Answer, Peers, View, exporter, prometheus, report, stats};
use std::collections::BTreeMap;
use std::hash::RandomState;

/// What a client may leave unread (docs/operations.md).
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

pub(crate) const START: Time = Time::from_ns(1_000_000_000);

/// 2026-11-21T18:00:00Z.
const WALL_NS: u64 = 1_795_284_000_000_000_000;

struct Addresses;

impl Peers for Addresses {
    fn peer(&self, client: ClientId) -> Option<String> {
        Some(format!("[2001:db8:1234:5678:9abc:def0:1234:5678]:{}", 10_000 + client.slot))
    }
}

pub(crate) fn client(slot: u32) -> ClientId {
    ClientId { slot, serial: slot + 100 }
}

fn at_ms(ms: u64) -> Time {
    START.plus_ns(ms * 1_000_000)
}

fn acquire(engine: &mut Engine, slot: u32, mode: Mode, key: &[u8], now: Time) {
    let request = Acquire { mode, key, workers: 1, max_queue: 1_000, timeout_s: 100 };
    engine.acquire(client(slot), &request, now);
}

pub(crate) fn new_engine() -> Engine {
    Engine::new(RandomState::new(), START)
}

/// Three keys: `a` with two waiters, `b` held for longest, `c` with a waiter.
fn engine() -> Engine {
    let mut engine = new_engine();
    acquire(&mut engine, 0, Mode::ForMe, b"b\\\xff", at_ms(0));
    acquire(&mut engine, 1, Mode::ForMe, b"a", at_ms(100));
    acquire(&mut engine, 2, Mode::ForMe, b"a", at_ms(200));
    acquire(&mut engine, 3, Mode::ForAnyone, b"a", at_ms(300));
    acquire(&mut engine, 4, Mode::ForAnyone, b"c", at_ms(400));
    acquire(&mut engine, 5, Mode::ForAnyone, b"c", at_ms(500));
    engine
}

pub(crate) fn figures() -> Figures {
    let process = Process { cpu_ns: 1, ..Process::default() };
    let version = "1.2.3";
    Figures { version, connections: 7, is_draining: false, started_wall_ns: WALL_NS, process }
}

pub(crate) fn view<'a>(
    engine: &'a Engine,
    figures: &'a Figures,
    now: Time,
    is_private: bool,
) -> View<'a> {
    View { engine, now, wall_ns: WALL_NS, figures, peers: &Addresses, is_private }
}

fn survey(engine: &Engine, now: Time, places_per_turn: usize) -> Survey {
    let mut survey = Survey::new(now);
    loop {
        survey.note_turn();
        if survey.step(engine, places_per_turn) {
            return survey;
        }
    }
}

pub(crate) fn asked(engine: &mut Engine, words: &str, now: Time, is_private: bool) -> String {
    let line = format!("STATS {words}");
    let Command::Stats(query) = Command::parse(line.as_bytes()) else { panic!("{words}") };
    let top = match query {
        Query::Top(span, subject) => Some(engine.watch.top(span, subject, now)),
        _ => None,
    };
    let mut survey = survey(engine, now, usize::MAX / 2);
    for slot in 0..6 {
        let address = format!("10.0.0.{}", slot % 2);
        survey.add_connection(&address, u64::from(slot < 2), u64::from(slot == 2));
    }
    let figures = figures();
    report(&query, &view(engine, &figures, now, is_private), &survey, top.as_ref())
}

#[test]
fn keys_are_listed_by_waiters_then_by_age() {
    let text = asked(&mut engine(), "KEYS", at_ms(1_000), false);
    let expected = "keys: 3 of 3\n\
        seen: in 1 turn of the loop\n\
        holders for_me for_anyone oldest_hold oldest_wait key\n      \
        1      1          1      0.900s      0.800s a\n      \
        1      0          1      0.600s      0.500s c\n      \
        1      0          0      1.000s           - b\\x5c\\xff\n\n";
    assert_eq!(text, expected);
    let text = asked(&mut engine(), "KEYS 1", at_ms(1_000), false);
    assert!(text.starts_with("keys: 1 of 3\n") && text.ends_with(" a\n\n"), "{text}");
}

#[test]
fn a_survey_in_steps_finds_what_one_step_finds_and_says_so() {
    let mut engine = new_engine();
    for n in 0..1_000 {
        acquire(&mut engine, n, Mode::ForMe, format!("key{n}").as_bytes(), at_ms(n.into()));
    }
    for n in 1_000..1_010 {
        let key = format!("key{}", (n - 1_000) * 77);
        acquire(&mut engine, n, Mode::ForMe, key.as_bytes(), at_ms(n.into()));
    }
    let figures = figures();
    let view = view(&engine, &figures, at_ms(2_000), false);
    let list = |survey: &Survey| report(&Query::Keys(200), &view, survey, None);
    let (whole, steps) = (survey(&engine, START, 9_999), survey(&engine, at_ms(1_500), 33));
    let rows = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    let (whole, steps) = (list(&whole), list(&steps));
    assert_eq!(rows(&whole), rows(&steps));
    assert_eq!(rows(&whole).len(), 1 + 200 + 1);
    assert!(whole.starts_with("keys: 200 of 1000\nseen: in 1 turn of the loop\n"), "{whole}");
    let turns = steps.lines().nth(1).expect("a line");
    assert!(turns.starts_with("seen: in ") && turns.ends_with("over 0.500s"), "{turns}");
}

#[test]
fn one_key_shows_each_holder_and_waiter() {
    let text = asked(&mut engine(), "KEY a", at_ms(1_000), false);
    let expected = "key: a\nholders: 1\nfor_me: 1\nfor_anyone: 1\nmax_hold: -\n\
        what   mode   since                    for         left        client  address\n\
        holder me     2026-11-21T17:59:59.100Z 0.900s      -           #101    \
        [2001:db8:1234:5678:9abc:def0:1234:5678]:10001\n\
        waiter me     2026-11-21T17:59:59.200Z 0.800s      99.200s     #102    \
        [2001:db8:1234:5678:9abc:def0:1234:5678]:10002\n\
        waiter anyone 2026-11-21T17:59:59.300Z 0.700s      99.300s     #103    \
        [2001:db8:1234:5678:9abc:def0:1234:5678]:10003\n\n";
    assert_eq!(text, expected);
    let text = asked(&mut engine(), "KEY b\\x5c\\xff", at_ms(1_000), false);
    assert!(text.starts_with("key: b\\x5c\\xff\nholders: 1\n"), "{text}");
    let text = asked(&mut engine(), "KEY A", at_ms(1_000), false);
    let expected = "key: A\nholders: 0\nfor_me: 0\nfor_anyone: 0\nmax_hold: -\n\
        what   mode   since                    for         left        client  address\n\n";
    assert_eq!(text, expected);
}

/// So an operator learns which limit a key has before somebody holds it.
#[test]
fn the_limit_of_a_key_is_shown_whether_it_is_held_or_not() {
    let mut engine = engine();
    engine.set_hold_limits(vec!["a=30".parse().unwrap(), "A*=5".parse().unwrap()]);
    for (key, shown) in
        [("a", "max_hold: 30.000s"), ("Ab", "max_hold: 5.000s"), ("c", "max_hold: -")]
    {
        let text = asked(&mut engine, &format!("KEY {key}"), at_ms(1_000), false);
        assert_eq!(text.lines().nth(4), Some(shown), "{text}");
    }
}

#[test]
fn clients_are_listed_by_address() {
    let text = asked(&mut engine(), "CLIENTS", at_ms(1_000), false);
    let expected = "addresses: 2 of 2\nconnections: 6\nseen: in 1 turn of the loop\n\
        connections holds waits address\n          \
        3     1     1 10.0.0.0\n          \
        3     1     0 10.0.0.1\n\n";
    assert_eq!(text, expected);
}

#[test]
fn the_top_shows_requests_and_times() {
    let mut engine = engine();
    engine.release(client(0), at_ms(2_000));
    while let Some(sample) = engine.watch.take_sample() {
        let address = format!("10.0.0.{}", sample.client.slot);
        engine.watch.note_sample(&sample, address.as_bytes(), at_ms(2_000));
    }
    let row = |text: &str, key: &str| -> Vec<Vec<String>> {
        let rows = text.lines().filter(|line| line.split(' ').next_back() == Some(key));
        rows.map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let text = asked(&mut engine, "TOP", at_ms(3_000), false);
    assert!(text.starts_with("top: keys of the last minute\nfrom: 2026-11-21T17:59:57.000Z\n"));
    assert!(text.contains("\nsampled: 1 request in 1\nby_requests: 3 of 3\n    count   error "));
    assert_eq!(row(&text, "a"), [["3", "0", "3", "1", "0", "0", "0", "0.000s", "0.000s", "a"]]);
    let (b, held) = ("b\\x5c\\xff", "2.000s");
    let by_requests = ["1", "0", "1", "1", "0", "0", "0", "0.000s", held, b];
    // The place by time was taken when the hold ended; the requests are known all the same.
    let by_time = [held, "0.000s", "1", "1", "0", "0", "0", "0.000s", held, b];
    assert_eq!(row(&text, b), [by_requests, by_time]);
    // A full minute later that minute is shown, and nothing of this one.
    acquire(&mut engine, 7, Mode::ForMe, b"new", at_ms(61_000));
    let text = asked(&mut engine, "TOP minute keys", at_ms(62_000), false);
    assert_eq!((row(&text, "a").len(), row(&text, "new").len()), (1, 0));
    let text = asked(&mut engine, "TOP clients", at_ms(62_000), false);
    assert_eq!(row(&text, "10.0.0.0").len(), 2, "{text}");
}

#[test]
fn slow_holds_and_waits_are_listed_the_newest_first() {
    let mut engine = new_engine();
    engine.watch.set_slow(Some(1_000_000_000));
    acquire(&mut engine, 0, Mode::ForMe, b"k", at_ms(0));
    acquire(&mut engine, 1, Mode::ForAnyone, b"k", at_ms(500));
    acquire(&mut engine, 2, Mode::ForMe, b"quick", at_ms(500));
    engine.release(client(2), at_ms(600));
    engine.release(client(0), at_ms(2_500));
    while let Some(slow) = engine.watch.take_slow() {
        engine.watch.log_slow(slow, "10.0.0.7:1".to_owned());
    }
    let text = asked(&mut engine, "SLOW", at_ms(3_000), false);
    let expected = "slow: 2 of 2\nover: 1.000s\n\
        when                     what mode   ended        took        client  address key\n\
        2026-11-21T17:59:59.500Z wait anyone done         2.000s      #101    10.0.0.7:1 k\n\
        2026-11-21T17:59:59.500Z hold me     released     2.500s      #100    10.0.0.7:1 k\n\n";
    assert_eq!(text, expected);
    assert!(asked(&mut engine, "SLOW 1", at_ms(3_000), false).starts_with("slow: 1 of 2\n"));
}

#[test]
fn private_reports_name_nobody() {
    let mut engine = engine();
    engine.watch.set_slow(Some(1));
    engine.release(client(1), at_ms(900));
    while let Some(slow) = engine.watch.take_slow() {
        engine.watch.log_slow(slow, "10.0.0.7:1".to_owned());
    }
    while let Some(sample) = engine.watch.take_sample() {
        engine.watch.note_sample(&sample, b"10.0.0.7", at_ms(900));
    }
    let mut texts: Vec<String> = ["KEYS", "KEY c", "CLIENTS", "TOP", "TOP hour clients", "SLOW"]
        .into_iter()
        .map(|words| asked(&mut engine, words, at_ms(1_000), true))
        .collect();
    let figures = figures();
    let tops = tops(&mut engine, at_ms(1_000));
    let top = engine.watch.top(Span::Minute, Subject::Keys, at_ms(1_000));
    let view = view(&engine, &figures, at_ms(1_000), true);
    let mut survey = survey(&engine, at_ms(1_000), 100);
    survey.add_connection("10.0.0.7", 1, 0);
    texts.push(serde_json::to_string(&json::report(&view, &survey, &tops)).expect("JSON"));
    texts.push(prometheus::metrics(&view, &survey, Some((&top, 9))));
    texts.push(exporter::metrics(&view));
    for text in &texts {
        for secret in ["10.0.0.", "2001:", "x5c"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    assert!(texts[..7].iter().all(|text| text.contains("hidden")), "{texts:#?}");
}

pub(crate) fn tops(engine: &mut Engine, now: Time) -> Tops {
    let mut both =
        |subject| [Span::Minute, Span::Hour].map(|span| engine.watch.top(span, subject, now));
    Tops { keys: both(Subject::Keys), clients: both(Subject::Clients) }
}

/// As much of everything as there may be, and as long: keys of control characters, whose
/// text is four times as long.
fn crowded() -> (Engine, Survey) {
    let mut engine = new_engine();
    engine.watch.set_slow(Some(0));
    let odd_key = |n: u32| [&n.to_be_bytes()[..], &[1; 4_000]].concat();
    let odd_key =
        |n| odd_key(n).into_iter().map(|byte| if byte == 32 || byte == 10 { 0 } else { byte });
    let mut slot = 0;
    for n in 0..300 {
        let key: Vec<u8> = odd_key(n).collect();
        for mode in [Mode::ForMe, Mode::ForMe, Mode::ForAnyone] {
            acquire(&mut engine, slot, mode, &key, at_ms(0));
            slot += 1;
        }
    }
    // One with many holders and waiters.
    let key: Vec<u8> = odd_key(5).collect();
    for n in 0..3_000 {
        let mode = if n % 2 == 0 { Mode::ForMe } else { Mode::ForAnyone };
        let workers = if n < 1_000 { 3_000 } else { 1 };
        let request = Acquire { mode, key: &key, workers, max_queue: 9_999, timeout_s: 100_000 };
        engine.acquire(client(slot + n), &request, at_ms(1));
    }
    let now = at_ms(8_000_000_000);
    engine.expire(now);
    for n in 0..slot {
        engine.disconnect(client(n), now);
    }
    while let Some(slow) = engine.watch.take_slow() {
        engine.watch.log_slow(slow, "[2001:db8:1234:5678:9abc:def0:1234:5678]:10000".to_owned());
    }
    let mut survey = Survey::new(START);
    survey.note_turn();
    survey.step(&engine, 100_000);
    for n in 0..20_000 {
        let address = format!("2001:db8:1234:5678:9abc:def0:1234:{n:04x}");
        survey.add_connection(&address, 4, 1);
    }
    (engine, survey)
}

#[test]
fn the_address_with_most_connections_is_seen_among_many() {
    let engine = new_engine();
    let mut survey = Survey::new(START);
    for n in 0..25_000 {
        survey.add_connection(&format!("10.1.{}.{}", n / 250, n % 250), 0, 0);
        if n % 50 == 0 {
            survey.add_connection("10.9.9.9", 1, 0);
        }
    }
    let figures = figures();
    let view = view(&engine, &figures, START, false);
    let text = report(&Query::Clients(1), &view, &survey, None);
    let rows: Vec<Vec<&str>> =
        text.lines().skip(4).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(text.lines().nth(1), Some("connections: 25500"));
    let (worst, others) = (&rows[0], &rows[1]);
    assert_eq!(worst[3], "10.9.9.9");
    assert_eq!(others[3], "others");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    // What was counted of it before there were many may be among the others.
    assert!(number(worst[0]) > 480 && number(worst[1]) > 480, "{text}");
    assert!(number(others[0]) <= 25_000, "{text}");
}

#[test]
fn no_report_exceeds_what_a_client_may_leave_unread() {
    let (mut engine, survey) = crowded();
    let figures = figures();
    for seconds in [1, 8_000_000] {
        let now = START.plus_seconds(seconds);
        let tops = tops(&mut engine, now);
        let tops_of_keys = tops.keys[0].clone();
        let view = view(&engine, &figures, now, false);
        let key = engine.pools().max_by_key(|pool| pool.holders().len()).expect("a key").key();
        for query in [
            Query::Keys(u32::MAX),
            Query::Key(key.to_vec()),
            Query::Clients(u32::MAX),
            Query::Top(Span::Minute, Subject::Keys),
            Query::Slow(u32::MAX),
        ] {
            let text = report(&query, &view, &survey, Some(&tops_of_keys));
            assert!(text.ends_with("\n\n") && !text.trim_end().contains("\n\n"), "{text}");
            assert!(text.len() < OUTPUT_BYTES_MAX, "{query:?}: {}", text.len());
        }
        let text = serde_json::to_string(&json::report(&view, &survey, &tops)).expect("JSON");
        assert!(text.len() < OUTPUT_BYTES_MAX, "{}", text.len());
    }
}

/// Of a key as long as a line has room for, and of odd bytes, with a crowd that has been
/// there for long.
#[test]
fn the_longest_answer_about_a_key_is_within_the_bound() {
    let mut engine = new_engine();
    let key = vec![1; 4_080];
    for n in 0..900 {
        let mode = if n < 600 { Mode::ForMe } else { Mode::ForAnyone };
        let (workers, timeout_s) = (300, 10_000_000);
        let request = Acquire { mode, key: &key, workers, max_queue: 900, timeout_s };
        engine.acquire(ClientId { slot: n, serial: u32::MAX - n }, &request, START);
    }
    let (figures, now) = (figures(), START.plus_seconds(9_999_000));
    let view = view(&engine, &figures, now, false);
    let text = report(&Query::Key(key), &view, &Survey::default(), None);
    assert_eq!(text.matches("\nwaiter and ").count(), 2, "{text}");
    assert!(text.len() < OUTPUT_BYTES_MAX, "{}", text.len());
}

#[test]
fn long_keys_are_counted_apart_and_shown_cut() {
    let mut engine = new_engine();
    for last in [b'x', b'y'] {
        let mut key = vec![b'k'; NAME_BYTES_MAX + 50];
        key.push(last);
        for n in 0..3 {
            acquire(&mut engine, n, Mode::ForMe, &key, at_ms(1));
            engine.release(client(n), at_ms(2));
        }
    }
    let text = asked(&mut engine, "TOP", at_ms(3), false);
    let shown = "k".repeat(128) + "\\...";
    let rows = text.lines().filter(|line| line.ends_with(&format!(" {shown}")));
    // Two by requests, two by time.
    assert_eq!(rows.count(), 4, "{text}");
    assert!(key_text(&[b'k'; 129]).len() == 129);
}

#[test]
fn json_is_as_its_schema_says() {
    let schema = schema::read("docs/stats.schema.json");
    let figures = figures();
    let (mut crowded, survey_of_crowd) = crowded();
    let mut busy = engine();
    busy.watch.set_slow(Some(1));
    busy.release(client(0), at_ms(2_000));
    let empty = new_engine();
    for (engine, survey) in [
        (&mut crowded, survey_of_crowd),
        (&mut busy, Survey::new(START)),
        (&mut empty.clone(), Survey::new(START)),
    ] {
        let now = START.plus_seconds(9_000_000);
        let tops = tops(engine, now);
        let report = json::report(&view(engine, &figures, now, false), &survey, &tops);
        let text = serde_json::to_string(&report).expect("JSON");
        schema.check(&serde_json::from_str(&text).expect("JSON"));
    }
}

/// `STATS FULL` of an engine in which something of everything has ended, by name; times
/// in seconds.
fn full(engine: &Engine, now: Time) -> BTreeMap<String, f64> {
    let Answer::Text(text) = stats(&Query::Full, engine, now) else { panic!("no text") };
    let text = String::from_utf8(text).expect("UTF-8");
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|(name, _)| *name != "uptime")
        .map(|(name, value)| {
            let number = value.strip_suffix('s').unwrap_or(value);
            (name.to_owned(), number.parse().expect("less than a minute"))
        })
        .collect()
}

/// Waits of both kinds that ended with a lock, a result shared, and one in vain.
fn worn() -> Engine {
    let mut engine = engine();
    engine.release(client(1), at_ms(1_100));
    engine.release(client(2), at_ms(1_500));
    engine.disconnect(client(4), at_ms(2_000));
    let request = Acquire { mode: Mode::ForMe, key: b"c", workers: 1, max_queue: 9, timeout_s: 1 };
    engine.acquire(client(6), &request, at_ms(2_000));
    engine.expire(at_ms(4_000));
    engine
}

#[test]
fn json_has_all_that_full_has() {
    let now = at_ms(4_000);
    let mut engine = worn();
    let (figures, tops) = (figures(), tops(&mut engine, now));
    let report = json::report(&view(&engine, &figures, now, false), &Survey::new(now), &tops);
    let report = serde_json::to_value(&report).expect("JSON");
    for (name, value) in full(&engine, now) {
        let key = name.trim_start_matches("total ").trim_end_matches(" time").replace(' ', "_");
        let key = key.replace("waiting_time_", "waiting_");
        let there = match name.contains(' ') {
            true => &report["times_s"][&key],
            false => &report["counters"][&name],
        };
        let there = there.as_f64().unwrap_or_else(|| panic!("no {key}"));
        // Microseconds are all that FULL shows.
        assert!((there - value).abs() < 1e-6, "{name}: {there}, not {value}");
        assert!(value > 0.0 || !name.contains("time"), "{name} shows nothing");
    }
}

/// What the exporters give that read `STATS FULL`: these names and types, its values.
#[test]
fn old_names_have_the_values_of_full() {
    let now = at_ms(4_000);
    let engine = worn();
    let figures = figures();
    let text = exporter::metrics(&view(&engine, &figures, now, false));
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut values: BTreeMap<&str, f64> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            types.extend(rest.split_once(' '));
        } else if let Some((name, value)) = line.split_once(' ').filter(|(name, _)| *name != "#") {
            values.insert(name, value.parse().expect("a number"));
        }
    }
    let full = full(&engine, now);
    let expected = [
        ("total_processing_time_seconds", "total processing time", "counter"),
        ("total_gained_time_seconds", "gained time", "counter"),
        ("total_excl_wait_time_seconds", "waiting time for me", "counter"),
        ("total_shared_wait_time_seconds", "waiting time for anyone", "counter"),
        ("total_acquired", "total_acquired", "counter"),
        ("total_releases", "total_releases", "counter"),
        ("connect_errors", "connect_errors", "counter"),
        ("full_queues", "full_queues", "counter"),
        ("lock_mismatch", "lock_mismatch", "counter"),
        ("release_mismatch", "release_mismatch", "counter"),
        ("processed_count", "processed_count", "counter"),
        ("avg_processing_time_seconds", "average processing time", "gauge"),
        ("hashtable_entries", "hashtable_entries", "gauge"),
        ("processing_workers", "processing_workers", "gauge"),
        ("waiting_workers", "waiting_workers", "gauge"),
    ];
    for (name, line, kind) in expected {
        let name = format!("poolcounter_{name}");
        assert_eq!(types.get(&*name), Some(&kind), "{name}");
        let (value, shown) = (values[&*name], full[line]);
        assert!((value - shown).abs() < 1e-6, "{name}: {value}, not {shown}");
    }
    assert_eq!((types["poolcounter_up"], values["poolcounter_up"]), ("gauge", 1.0));
    assert_eq!((types.len(), values.len()), (expected.len() + 1, expected.len() + 1), "{text}");
}

#[test]
fn json_names_who_has_held_a_key_for_longest_however_many_queues_there_are() {
    let mut engine = new_engine();
    acquire(&mut engine, 0, Mode::ForMe, b"stuck", at_ms(0));
    for n in 1..=30 {
        let key = format!("busy:{n}");
        acquire(&mut engine, 2 * n, Mode::ForAnyone, key.as_bytes(), at_ms(u64::from(n)));
        acquire(&mut engine, 2 * n + 1, Mode::ForAnyone, key.as_bytes(), at_ms(100));
    }
    let (figures, tops) = (figures(), tops(&mut engine, at_ms(1_000)));
    for places_per_turn in [1, 7, 100] {
        let survey = survey(&engine, at_ms(1_000), places_per_turn);
        let report = json::report(&view(&engine, &figures, at_ms(1_000), false), &survey, &tops);
        let report = serde_json::to_value(&report).expect("JSON");
        let list = |name: &str| report[name].as_array().expect("a list").clone();
        assert!(list("keys").iter().all(|row| row["key"] != "stuck"));
        let holds = list("oldest_holds");
        let oldest = serde_json::json!({
            "key": "stuck", "held_s": 1.0, "kind": "me", "waiters": 0,
            "client": client(0).serial, "address": Addresses.peer(client(0)).expect("a peer"),
        });
        assert_eq!(holds[0], oldest);
        let keys: Vec<&str> = holds.iter().filter_map(|hold| hold["key"].as_str()).collect();
        let expected: Vec<String> = (1..20).map(|n| format!("busy:{n}")).collect();
        assert_eq!(keys[1..], expected);
        assert_eq!(holds[1]["waiters"], 1);
        // The lists say of how many they are the first.
        assert_eq!((list("keys").len(), &report["keys_waited_for"]), (20, &30.into()));
    }
}

/// Prometheus refuses two samples of one series.
#[test]
fn hot_keys_that_look_the_same_are_one_series_and_private_ones_none() {
    let mut engine = new_engine();
    let long = "x".repeat(300);
    for (slot, key) in
        [format!("{long}1"), format!("{long}2"), "short".to_owned()].iter().enumerate()
    {
        acquire(&mut engine, slot as u32, Mode::ForMe, key.as_bytes(), at_ms(0));
        engine.release(client(slot as u32), at_ms(500));
    }
    while let Some(sample) = engine.watch.take_sample() {
        engine.watch.note_sample(&sample, b"10.0.0.7", at_ms(500));
    }
    let top = engine.watch.top(Span::Minute, Subject::Keys, at_ms(1_000));
    let (figures, survey) = (figures(), Survey::new(START));
    let text = |is_private| {
        let view = view(&engine, &figures, at_ms(1_000), is_private);
        prometheus::metrics(&view, &survey, Some((&top, 9)))
    };
    let shown = text(false);
    let series: Vec<&str> =
        shown.lines().filter(|line| line.starts_with("poolcounter_hot_key_requests{")).collect();
    assert_eq!(series.len(), 2, "{series:?}");
    assert!(series.iter().any(|line| line.ends_with("...\"} 2")), "{series:?}");
    assert!(!text(true).contains("hot_key"));
}

#[test]
fn histograms_count_by_kind_and_outcome() {
    let mut engine = engine();
    engine.release(client(1), at_ms(1_100));
    engine.release(client(2), at_ms(31_100));
    engine.disconnect(client(4), at_ms(40_000));
    engine.expire(START.plus_seconds(3_600));
    let figures = figures();
    let now = START.plus_seconds(3_600);
    let view = view(&engine, &figures, now, false);
    let text = prometheus::metrics(&view, &survey(&engine, now, 99), None);
    let value = |sample: &str| -> f64 {
        let mut lines =
            text.lines().filter_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        lines.next().unwrap_or_else(|| panic!("no {sample} in {text}")).parse().expect("a number")
    };
    let wait = "poolcounter_wait_seconds";
    assert_eq!(value(&format!("{wait}_count{{kind=\"anyone\",outcome=\"done\"}}")), 1.0);
    assert_eq!(value(&format!("{wait}_sum{{kind=\"anyone\",outcome=\"done\"}}")), 0.8);
    let bucket =
        |le: &str| format!("{wait}_bucket{{kind=\"anyone\",outcome=\"done\",le=\"{le}\"}}");
    assert_eq!(
        (value(&bucket("0.5")), value(&bucket("1")), value(&bucket("+Inf"))),
        (0.0, 1.0, 1.0)
    );
    assert_eq!(value(&format!("{wait}_count{{kind=\"me\",outcome=\"locked\"}}")), 1.0);
    assert_eq!(value(&format!("{wait}_sum{{kind=\"anyone\",outcome=\"locked\"}}")), 39.5);
    let hold = "poolcounter_hold_seconds";
    assert_eq!(value(&format!("{hold}_sum{{kind=\"me\",outcome=\"released\"}}")), 31.0);
    assert_eq!(value(&format!("{hold}_count{{kind=\"anyone\",outcome=\"disconnected\"}}")), 1.0);
    let replies = "poolcounter_replies_total";
    assert_eq!(value(&format!("{replies}{{command=\"ACQ4ANY\",answer=\"DONE\"}}")), 1.0);
    assert_eq!(value(&format!("{replies}{{command=\"RELEASE\",answer=\"RELEASED\"}}")), 2.0);
    assert_eq!(value("poolcounter_acquired_total"), 5.0);
    assert_eq!(value("poolcounter_oldest_hold_seconds"), 3_600.0);
    assert_eq!(value("poolcounter_build_info{version=\"1.2.3\"}"), 1.0);
    // In the exporter's names, the same.
    let text = exporter::metrics(&view);
    for line in [
        "poolcounter_total_acquired 5",
        "poolcounter_total_excl_wait_time_seconds 0.9",
        "poolcounter_total_shared_wait_time_seconds 39.5",
        "poolcounter_avg_processing_time_seconds 23.533333333",
        "poolcounter_processing_workers 2",
        "poolcounter_up 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in {text}");
    }
}

/// What PoolCounterLostLocks needs (monitoring/alerts.yml).
#[test]
fn a_drain_is_safe_to_end_once_no_lock_is_held() {
    let metrics = |engine: &Engine, is_draining: bool| {
        let figures = Figures { is_draining, started_wall_ns: 2_500_000_000, ..figures() };
        let now = at_ms(600);
        let view = view(engine, &figures, now, false);
        let text = prometheus::metrics(&view, &survey(engine, now, 99), None);
        let names =
            ["process_start_time", "poolcounter_safe_to_end", "poolcounter_unsafe_start_time"];
        names.map(|name| {
            let line = text.lines().find(|line| line.starts_with(name)).expect(name);
            line.rsplit(' ').next().expect("a value").to_owned()
        })
    };
    let mut engine = engine();
    assert_eq!(metrics(&engine, false), ["2.5", "0", "2.5"]);
    assert_eq!(metrics(&engine, true), ["2.5", "0", "2.5"]);
    (0..6).for_each(|slot| engine.disconnect(client(slot), at_ms(550)));
    assert_eq!(metrics(&engine, true), ["2.5", "1", "0"]);
    assert_eq!(metrics(&engine, false), ["2.5", "0", "2.5"]);
}
