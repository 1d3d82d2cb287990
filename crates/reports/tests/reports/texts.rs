//! The text of each report.

use engine::observe::heavy_hitters::NAME_BYTES_MAX;
use engine::rules::rule::Rule;
use engine::state::BadState;
use engine::view::Phase;
use engine::{ClientId, Engine, HashSeed, Time};
use protocol::{Acquire, Command, List, MatchingKeys, Mode, Query, Span, Subject, key_text};
use reports::history::History;
use reports::rules::{RuleOrigin, RuleSource};
use reports::scan::Scan;
use reports::{HIDDEN_MATCHES, Peers, ReportView, RuleOrders, ServerFigures, StatsAnswer};
use reports::{json, lists, metrics, rules, stats, text};
use schema::reports::{ListReport, ProcessFigures};
use schema::words::Event;

/// What a client may leave unread (docs/reference/sizing.md).
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

pub(crate) const SEED: HashSeed = HashSeed::new([1, 2]);

pub(crate) const START: Time = Time::from_ns(1_000_000_000);

/// 2026-11-21T18:00:00Z.
const WALL_NS: u64 = 1_795_284_000_000_000_000;

/// Clients with the longest names that they can have.
struct LongNames;

impl Peers for LongNames {
    fn peer(&self, _: ClientId) -> Option<String> {
        Some(long_name())
    }
}

/// A path of bytes that are not text, cut as the daemon cuts it.
fn long_name() -> String {
    format!("unix:abc{}\\...", "\\xff".repeat(30))
}

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
    Engine::new(SEED, START)
}

/// As the server does: passes the addresses of sampled clients, and logs what is slow.
fn note_observed(engine: &mut Engine, now: Time) {
    note_observed_of(engine, now, &Addresses);
}

fn note_observed_of(engine: &mut Engine, now: Time, peers: &dyn Peers) {
    while let Some(sample) = engine.observer.take_sample() {
        let address = format!("10.0.0.{}", sample.client.slot);
        engine.observer.count_sample(&sample, address.as_bytes(), now);
    }
    while let Some(slow) = engine.observer.take_slow() {
        let peer = peers.peer(slow.client).expect("a peer");
        engine.observer.log_slow(slow, peer);
    }
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

pub(crate) static FIGURES: ServerFigures = ServerFigures {
    version: "1.2.3",
    connections: 7,
    is_draining: false,
    started_wall_ns: WALL_NS,
    rule_orders: RuleOrders {
        rules: 2,
        since: Some(Time::from_ns(3_000_000_000)),
        endless: 1,
        endless_since: Some(Time::from_ns(13_000_000_000)),
    },
    process: ProcessFigures {
        cpu_s: 1.5,
        resident_bytes: 4_096,
        virtual_bytes: 8_192,
        open_descriptors: 9,
        descriptors_max: 1_024,
    },
};

pub(crate) fn view(engine: &Engine, now: Time, is_private: bool) -> ReportView<'_> {
    ReportView { engine, now, wall_ns: WALL_NS, peers: &Addresses, is_private }
}

fn scan(engine: &Engine, now: Time, places_per_turn: usize) -> Scan {
    walked(Scan::new(now, None), engine, places_per_turn)
}

fn walked(mut scan: Scan, engine: &Engine, places_per_turn: usize) -> Scan {
    loop {
        scan.count_turn();
        if scan.step(engine, places_per_turn) {
            return scan;
        }
    }
}

/// With six clients of two addresses.
fn scanned(engine: &Engine, now: Time) -> Scan {
    let mut scan = scan(engine, now, usize::MAX / 2);
    for slot in 0..6 {
        let address = format!("10.0.0.{}", slot % 2);
        scan.add_connection(&address, u64::from(slot < 2), u64::from(slot == 2));
    }
    scan
}

pub(crate) fn asked(engine: &mut Engine, words: &str, now: Time, is_private: bool) -> String {
    let line = format!("STATS {words}");
    let Command::Stats(query) = Command::parse(line.as_bytes()) else { panic!("{words}") };
    let (scan, view) = (scanned(engine, now), view(engine, now, is_private));
    match &query {
        Query::List(list) => text_of(list, &view, &scan),
        Query::JsonList(list) => line_of(&lists::list(list, &view, &scan)),
        Query::MatchingKeys(query) => {
            let scan = walked(Scan::new(now, Some(&query.pattern)), engine, 9_999);
            line_of(&lists::matching_keys(query, &view, &scan))
        }
        other => panic!("{other:?}"),
    }
}

fn text_of(list: &List, view: &ReportView<'_>, scan: &Scan) -> String {
    text(&lists::list(list, view, scan)) + "\n"
}

fn line_of(report: &impl serde::Serialize) -> String {
    let text = lists::written(report);
    assert!(text.ends_with("}\n\n") && text.lines().count() == 2, "{text}");
    text
}

/// All that operators see of an engine in which waits of both modes have ended with a lock, and
/// others with a shared result or without any. One histogram stands for all.
#[test]
fn reports_are_as_recorded() {
    let mut engine = engine();
    engine.observer.set_slow(Some(500_000_000));
    engine.release(client(1), at_ms(1_100));
    engine.release(client(2), at_ms(31_100));
    engine.disconnect(client(4), at_ms(40_000));
    let request = Acquire { mode: Mode::ForMe, key: b"c", workers: 1, max_queue: 9, timeout_s: 1 };
    engine.acquire(client(6), &request, at_ms(40_000));
    engine.expire(at_ms(42_000));
    acquire(&mut engine, 7, Mode::ForMe, b"c", at_ms(43_000));
    acquire(&mut engine, 8, Mode::ForAnyone, b"c", at_ms(44_000));
    let rules = ["c c max-hold=1m workers=1 stuck-after=5s", "- D* max-hold=5s"];
    let rules = rules.map(|rule| Rule::try_from(rule.to_owned()).expect("a rule"));
    engine.set_rules(rules.into(), &["c".to_owned()], START, || {});
    acquire(&mut engine, 9, Mode::ForMe, b"c", at_ms(45_000));
    engine.measures.turns.count(2_000_000, 3);
    note_observed(&mut engine, at_ms(50_000));
    let now = at_ms(62_000);
    engine.expire(now);
    let StatsAnswer::Text(full) = stats(&Query::Full, &engine, now, false) else {
        panic!("no text")
    };
    let mut text = String::from_utf8(full).expect("UTF-8");
    for words in [
        "KEYS",
        "KEYS 1",
        "KEY c",
        "KEY b\\x5c\\xff",
        "KEY Da",
        "CLIENTS",
        "TOP",
        "TOP hour clients",
        "SLOW",
        "SLOW 1",
        "JSON KEYS",
        "JSON KEYS 1",
        "JSON KEY c",
        "JSON KEY Da",
        "JSON CLIENTS",
        "JSON TOP",
        "JSON TOP hour clients",
        "JSON SLOW 1",
        "JSON KEYS 9 *c",
    ] {
        text += &format!("== {words}\n{}", asked(&mut engine, words, now, false));
    }
    let (view, scan) = (view(&engine, now, false), scanned(&engine, now));
    let json = serde_json::to_string(&json::report(&view, &FIGURES, &scan)).expect("JSON");
    text += &format!("== JSON\n{json}\n");
    let metrics = metrics::metrics(&view, &FIGURES, &scan, 9);
    for (page, metrics) in [("metrics", metrics), ("prometheus", metrics::legacy(&view))] {
        text += &format!("== /{page}\n");
        let is_left_out = |line: &str| {
            line.starts_with("# HELP") || line.contains("_bucket{") && !line.contains("done")
        };
        let lines = metrics.lines().filter(|line| !is_left_out(line));
        lines.for_each(|line| text += &format!("{line}\n"));
    }
    // A rule makes it wait.
    let request = Acquire { workers: 2, ..request };
    engine.acquire(client(10), &request, at_ms(61_500));
    let (view, scan) = (self::view(&engine, now, false), scanned(&engine, now));
    let freed = lists::freed(&view, &[client(5), client(10)], false);
    for (order, report) in
        [("RULES", rules::list(&view, &scan, &sources())), ("FREE", ListReport::Freed(freed))]
    {
        text += &format!("== {order}\n{}\n{}", reports::text(&report), line_of(&report));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reports/reports.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &text).expect("write");
    }
    let recorded = std::fs::read_to_string(path).expect("what is recorded");
    assert!(
        text == recorded,
        "UPDATE=1 cargo test -p poolcounter-reports recorded records\n\n{text}"
    );
}

/// The rules in force, and others, from wherever they may come.
fn sources() -> Vec<RuleSource> {
    let until = Some(at_ms(92_500));
    let sources = [
        ("c c max-hold=1m workers=1 stuck-after=5s", RuleOrigin::Set { until }),
        ("- D* max-hold=5s", RuleOrigin::Option),
        ("c c deny", RuleOrigin::Below),
        ("d d total=2", RuleOrigin::Off),
    ];
    let source = |(rule, origin): (&str, _)| {
        let rule = Rule::try_from(rule.to_owned()).expect("a rule");
        RuleSource { rule, origin }
    };
    sources.map(source).into()
}

#[test]
fn a_scan_in_steps_finds_what_one_step_finds() {
    let mut engine = new_engine();
    for n in 0..1_000 {
        acquire(&mut engine, n, Mode::ForMe, format!("key{n}").as_bytes(), at_ms(n.into()));
    }
    for n in 1_000..1_010 {
        let key = format!("key{}", (n - 1_000) * 77);
        acquire(&mut engine, n, Mode::ForMe, key.as_bytes(), at_ms(n.into()));
    }
    let view = view(&engine, at_ms(2_000), false);
    let list = |scan: &Scan| text_of(&List::Keys(200), &view, scan);
    let (whole, steps) = (scan(&engine, START, 9_999), scan(&engine, at_ms(1_500), 33));
    let (whole, steps) = (list(&whole), list(&steps));
    let mut lines: Vec<&str> = steps.lines().collect();
    let seen: Vec<&str> = lines.drain(1..3).collect();
    assert!(seen[0].starts_with("turns: ") && seen[1] == "took_s: 0.500", "{seen:?}");
    assert_eq!(whole.lines().collect::<Vec<_>>(), lines);
    assert_eq!(lines.len(), 1 + 1 + 200 + 1);
    assert!(whole.starts_with("keys: 200 of 1000\nholders "), "{whole}");
    let listed: Vec<&str> =
        whole.lines().skip(2).filter_map(|row| row.split_whitespace().last()).collect();
    let waited_for = (0..10).map(|n| n * 77);
    let oldest = (0..1_000).filter(|n| n % 77 > 0 || *n > 693);
    let important = waited_for.chain(oldest).take(200).map(|n| format!("key{n}"));
    assert_eq!(listed, important.collect::<Vec<_>>());
}

#[test]
fn private_reports_hide_clients() {
    let mut engine = engine();
    engine.observer.set_slow(Some(1));
    engine.release(client(1), at_ms(900));
    note_observed(&mut engine, at_ms(900));
    let lists = ["KEYS", "KEY c", "CLIENTS", "TOP", "TOP hour clients", "SLOW"];
    let mut texts: Vec<String> = lists
        .into_iter()
        .map(str::to_owned)
        .chain(lists.map(|words| format!("JSON {words}")))
        .chain(["JSON KEYS 9 *".to_owned()])
        .map(|words| asked(&mut engine, &words, at_ms(1_000), true))
        .collect();
    let named = texts.len() + 1;
    // A pattern would tell whether a key is there.
    for (pattern, is_private, is_hidden) in
        [("c*", true, true), ("*", true, false), ("c*", false, false)]
    {
        let query =
            Query::MatchingKeys(MatchingKeys { rows: 9, pattern: pattern.as_bytes().to_vec() });
        let refused = StatsAnswer::Text(HIDDEN_MATCHES.into());
        let expected = if is_hidden { refused } else { StatsAnswer::Report };
        assert_eq!(stats(&query, &engine, at_ms(1_000), is_private), expected, "{pattern}");
    }
    let view = view(&engine, at_ms(1_000), true);
    let mut scan = scan(&engine, at_ms(1_000), 100);
    scan.add_connection("10.0.0.7", 1, 0);
    texts.push(serde_json::to_string(&json::report(&view, &FIGURES, &scan)).expect("JSON"));
    texts.push(metrics::metrics(&view, &FIGURES, &scan, 9));
    texts.push(metrics::legacy(&view));
    for text in &texts {
        for secret in ["10.0.0.", "2001:", "x5c"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    assert!(texts[..named].iter().all(|text| text.contains("hidden")), "{texts:#?}");
}

/// As much of everything as possible, with keys of control characters, whose text is four times as
/// long.
fn crowded() -> (Engine, Scan) {
    let mut engine = new_engine();
    engine.observer.set_slow(Some(0));
    // Without the one that denies.
    set_rules(&mut engine, &long_rules()[..5]);
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
    // A key with many holders and waiters.
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
    note_observed_of(&mut engine, now, &LongNames);
    for n in 0..300 {
        let key: Vec<u8> = odd_key(n).collect();
        acquire(&mut engine, 10_000 + n, Mode::ForMe, &key, now);
    }
    let mut scan = Scan::new(START, None);
    scan.count_turn();
    scan.step(&engine, 100_000);
    for n in 0..20_000 {
        let address = format!("2001:db8:1234:5678:9abc:def0:1234:{n:04x}");
        scan.add_connection(&address, 4, 1);
    }
    (engine, scan)
}

#[test]
fn the_address_with_most_connections_is_seen_among_many() {
    let engine = new_engine();
    let mut scan = Scan::new(START, None);
    for n in 0..25_000 {
        scan.add_connection(&format!("10.1.{}.{}", n / 250, n % 250), 0, 0);
        if n % 50 == 0 {
            scan.add_connection("10.9.9.9", 1, 0);
        }
    }
    let view = view(&engine, START, false);
    let text = text_of(&List::Clients(1), &view, &scan);
    let rows: Vec<Vec<&str>> =
        text.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(text.lines().nth(1), Some("connections: 25500"));
    let (worst, others) = (&rows[0], &rows[1]);
    assert_eq!(worst[3], "10.9.9.9");
    assert_eq!(others[3], "others");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    // Its connections from before there were many may count among the others.
    assert!(number(worst[0]) > 480 && number(worst[1]) > 480, "{text}");
    assert!(number(others[0]) <= 25_000, "{text}");
}

#[test]
fn the_history_shows_what_happened_in_its_hour() {
    let engine = new_engine();
    let mut history = History::new(START);
    history.mark(Event::Drain, "", START);
    let is_shown = |age_ms: u64| {
        let report = history.report(&view(&engine, at_ms(age_ms), false));
        line_of(&report).contains(r#""what":"drain""#)
    };
    assert_eq!([0, 10_000, 3_600_000, 3_600_001].map(is_shown), [true, true, true, false]);
}

/// Their number is the bound of what a crowd of hosts takes.
#[test]
fn ten_thousand_addresses_are_counted_each_by_itself() {
    let engine = new_engine();
    let mut scan = Scan::new(START, None);
    let mut has_others = |addresses: std::ops::Range<u32>| {
        for n in addresses {
            scan.add_connection(&format!("10.1.{}.{}", n / 250, n % 250), 0, 0);
        }
        let view = view(&engine, START, false);
        text_of(&List::Clients(1), &view, &scan).contains(" others\n")
    };
    assert!(!has_others(0..10_000));
    assert!(has_others(10_000..10_001));
}

#[test]
fn no_report_exceeds_what_a_client_may_leave_unread() {
    let (engine, scan) = crowded();
    for seconds in [1, 8_000_000] {
        let now = START.plus_seconds(seconds);
        let view = ReportView { peers: &LongNames, ..view(&engine, now, false) };
        let key = engine.pools().max_by_key(|pool| pool.count(Phase::Holding));
        let key = key.expect("a key").key();
        for query in [
            List::Keys(u32::MAX),
            List::Key(key.to_vec()),
            List::Clients(u32::MAX),
            List::Top(Span::Minute, Subject::Keys),
            List::Slow(u32::MAX),
        ] {
            let text = text_of(&query, &view, &scan);
            assert!(text.ends_with("\n\n") && !text.trim_end().contains("\n\n"), "{text}");
            assert!(text.len() < OUTPUT_BYTES_MAX, "{query:?}: {}", text.len());
            let json = lists::list(&query, &view, &scan);
            let json = line_of(&json);
            assert!(json.len() < OUTPUT_BYTES_MAX, "{query:?}: {}", json.len());
            let is_over = matches!(query, List::Top(..));
            assert!(is_over || json.len() > 8_000, "{query:?}: {}", json.len());
        }
        let all = MatchingKeys { rows: u32::MAX, pattern: b"*".to_vec() };
        let found = walked(Scan::new(START, Some(b"*")), &engine, 9_999);
        let json = line_of(&lists::matching_keys(&all, &view, &found));
        assert!((20_000..OUTPUT_BYTES_MAX).contains(&json.len()), "{}", json.len());
        let text = serde_json::to_string(&json::report(&view, &FIGURES, &scan)).expect("JSON");
        assert!(text.len() < OUTPUT_BYTES_MAX, "{}", text.len());
    }
}

/// The answer about the keys that match, when a turn looks at so many places.
fn matching(engine: &Engine, rows: u32, pattern: &str, places: usize) -> serde_json::Value {
    let query = MatchingKeys { rows, pattern: pattern.as_bytes().to_vec() };
    let scan = walked(Scan::new(START, Some(&query.pattern)), engine, places);
    let view = view(engine, at_ms(2_000), false);
    let text = line_of(&lists::matching_keys(&query, &view, &scan));
    serde_json::from_str(&text).expect("JSON")
}

fn keys_in(answer: &serde_json::Value) -> Vec<&str> {
    let rows = answer["keys"].as_array().expect("rows").iter();
    rows.map(|row| row["key"].as_str().expect("text")).collect()
}

#[test]
fn keys_that_match_are_whole_and_those_held_for_longest_come_first() {
    let mut engine = new_engine();
    let long = "x".repeat(4_000);
    for n in 0..1_000 {
        // Older ones in later places.
        let key = if n == 990 { format!("key{long}") } else { format!("key{n:03}") };
        acquire(&mut engine, n, Mode::ForMe, key.as_bytes(), at_ms((1_000 - n).into()));
    }
    for n in [500, 501] {
        acquire(&mut engine, n + 1_000, Mode::ForMe, format!("key{n}").as_bytes(), at_ms(1_500));
    }
    for places in [7, 9_999] {
        let some = matching(&engine, 3, "key*", places);
        let left_out = [&some["keys_total"], &some["matching"], &some["left_out"]];
        assert_eq!(left_out, [1_000, 1_000, 997]);
        assert_eq!(keys_in(&some), ["key999", "key998", "key997"]);
        let some = matching(&engine, 20, "*9", places);
        assert_eq!((&some["matching"], &some["left_out"]), (&100.into(), &80.into()));
        assert_eq!(keys_in(&some)[..2], ["key999", "key989"]);
        let most = matching(&engine, u32::MAX, "*", places);
        assert_eq!((keys_in(&most).len(), &most["left_out"]), (200, &800.into()));
        assert_eq!(keys_in(&most)[9], format!("key{long}"));
        let none = matching(&engine, 9, "key", places);
        assert_eq!((keys_in(&none).len(), &none["matching"]), (0, &0.into()));
    }
}

/// Their text is the bound, and what is left out is less important than what is listed.
#[test]
fn long_keys_leave_others_out() {
    let mut engine = new_engine();
    for n in 0..100 {
        let key = format!("{n:03}{}", "x".repeat(if n == 30 { 9 } else { 3_000 }));
        acquire(&mut engine, n, Mode::ForMe, key.as_bytes(), at_ms((n * 7 % 100).into()));
    }
    let answer = matching(&engine, 200, "*", 9_999);
    let keys = keys_in(&answer);
    assert!((15..22).contains(&keys.len()), "{}", keys.len());
    assert_eq!(answer["left_out"], 100 - keys.len());
    let expected = (0..100).map(|age| format!("{:03}", age * 43 % 100));
    assert!(keys.iter().zip(expected).all(|(key, start)| key.starts_with(&start)));
}

/// However few keys these are, no turn compares much more than a MiB.
#[test]
fn long_keys_take_more_turns() {
    let mut engine = new_engine();
    for n in 0..800 {
        acquire(
            &mut engine,
            n,
            Mode::ForMe,
            format!("{n:03}{}", "x".repeat(4_000)).as_bytes(),
            START,
        );
    }
    let answer = matching(&engine, 1, "*y", 9_999);
    assert!(answer["turns"].as_u64().is_some_and(|turns| turns >= 3), "{answer}");
}

#[test]
fn what_is_no_pattern_is_no_query() {
    let engine = new_engine();
    for pattern in ["a\\", "\"a\"", "a\tb", &"*".repeat(257)] {
        let query =
            Query::MatchingKeys(MatchingKeys { rows: 9, pattern: pattern.as_bytes().to_vec() });
        assert_eq!(stats(&query, &engine, START, false), StatsAnswer::Unknown, "{pattern}");
    }
}

/// For a key of odd bytes that fills a line, with a crowd that has waited for long.
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
    set_rules(&mut engine, &long_rules());
    let now = START.plus_seconds(9_999_000);
    for (peers, holders) in [(&Addresses as &dyn Peers, 60), (&LongNames, 40)] {
        let view = ReportView { peers, ..view(&engine, now, false) };
        let text = text_of(&List::Key(key.clone()), &view, &Scan::default());
        assert_eq!(text.matches(" by rule ").count(), 6, "{text}");
        let listed = |what: &str| text.matches(&format!("\n{what} ")).count();
        assert!(listed("holder") >= holders, "{text}");
        let all = listed("holder") + listed("waiter");
        assert!(text.contains(&format!("\nlocks: {all} of 900\n")), "{text}");
        assert!(text.len() < OUTPUT_BYTES_MAX, "{}", text.len());
        let json = lists::list(&List::Key(key.clone()), &view, &Scan::default());
        let json = line_of(&json);
        assert!(json.len() < OUTPUT_BYTES_MAX, "{}", json.len());
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((&json["holders"], &json["for_me"]), (&300.into(), &300.into()));
        let locks = json["locks"].as_array().expect("rows");
        let listed = |what: &str| locks.iter().filter(|lock| lock["what"] == what).count();
        assert!(listed("holder") >= 40 && listed("waiter") >= 80, "{json}");
        assert_eq!(json["limits"].as_array().expect("rules").len(), 6);
        assert!(json["denied_by"].is_string(), "{json}");
    }
}

/// As long as a name may be, with a number of two digits.
fn long_rule_name(n: usize) -> String {
    format!("{}{n:02}", "r".repeat(30))
}

/// Six rules, each with a limit of its own for all keys.
fn long_rules() -> Vec<String> {
    let most = u32::MAX;
    let numbers = ["maxqueue", "timeout", "total", "max-hold"].map(|name| format!("{name}={most}"));
    let settings = numbers.into_iter().chain(["workers=300".into(), "deny".into()]).enumerate();
    settings.map(|(n, setting)| format!("{} * {setting}", long_rule_name(n))).collect()
}

fn set_rules(engine: &mut Engine, rules: &[impl AsRef<str>]) {
    let rules = rules.iter().map(|rule| Rule::try_from(rule.as_ref().to_owned()).expect("a rule"));
    engine.set_rules(rules.collect(), &[], START, || {});
}

#[test]
fn the_list_of_a_key_names_the_rules_that_limit_it() {
    let mut engine = new_engine();
    let of_key = |engine: &mut Engine, key: &str| {
        let text = asked(engine, &format!("KEY {key}"), at_ms(0), false);
        let lines = text.lines().filter(|line| line.contains(" by "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(of_key(&mut engine, "a").is_empty());
    // Granted before a rule denies it.
    for (client, key) in ["ab", "abc", "b"].iter().enumerate() {
        acquire(&mut engine, client as u32, Mode::ForMe, key.as_bytes(), at_ms(0));
    }
    set_rules(
        &mut engine,
        &[
            "search a* workers=2 maxqueue=5",
            "late * stuck-after=9s",
            "narrow a* workers=1",
            "bots ab* total=7 deny stuck-after=9s",
            "- *b max-hold=1m",
            "all * total=9 max-hold=1m30s",
        ],
    );
    let search = "limited by rule search: workers=2 maxqueue=5";
    // "ab" and "abc" have their total from another rule.
    let all = "limited by rule all: total=9 max-hold=1m30s (1 held)";
    assert_eq!(of_key(&mut engine, "a"), [search, all]);
    assert_eq!(
        of_key(&mut engine, "ab"),
        [
            search,
            "limited by rule bots: total=7 (2 held)",
            "denied by rule bots: deny",
            "limited by rule --max-hold: max-hold=1m",
        ],
    );
    // The same with `--private`: nothing in it is a client's.
    assert!(asked(&mut engine, "KEY ab", at_ms(0), true).contains(search));
    set_rules(&mut engine, &["jobs a* stuck-after=never"]);
    assert!(of_key(&mut engine, "a").is_empty());
}

/// The rows of `RULES` for these rules, in words, without those of other rules.
fn rule_rows(engine: &Engine, scan: &Scan, rules: &[&str]) -> Vec<String> {
    let source = |rule: &&str| {
        let rule = Rule::try_from((*rule).to_owned()).expect("a rule");
        let origin = if rule.name.is_empty() { RuleOrigin::Option } else { RuleOrigin::File };
        RuleSource { rule, origin }
    };
    let sources: Vec<RuleSource> = rules.iter().map(source).collect();
    let text = text(&rules::list(&view(engine, at_ms(0), false), scan, &sources));
    let rows = text.lines().skip(3).filter(|line| !line.is_empty());
    rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Twenty keys of each of two rules, of which an order in the middle changes the numbers.
#[test]
fn an_order_during_a_scan_mixes_up_no_rules() {
    let mut engine = new_engine();
    let rules = ["a a* total=90", "b b* workers=1", "- b* max-hold=1m", "- b* max-hold=1m"];
    set_rules(&mut engine, &rules);
    for n in 0..40 {
        let key = format!("{}{n}", if n % 2 == 0 { 'a' } else { 'b' });
        acquire(&mut engine, n, Mode::ForMe, key.as_bytes(), at_ms(0));
    }
    let mut scan = Scan::new(at_ms(0), None);
    assert!(!scan.step(&engine, 20));
    set_rules(&mut engine, &[&["new zz* deny", "b b* workers=1 maxqueue=9"], &rules[2..]].concat());
    assert!(!scan.step(&engine, 10));
    set_rules(&mut engine, &[&["new zz* deny"][..], &rules].concat());
    while !scan.step(&engine, 5) {}
    assert_eq!(
        rule_rows(&engine, &scan, &[&["new zz* deny"][..], &rules, &["gone x* deny"]].concat()),
        [
            "0 0 0 0 file - new zz* deny",
            // While it was not in force, no key was its own.
            "15 15 0 0 file - a a* total=90",
            "20 20 0 0 file - b b* workers=1",
            "20 20 0 0 option - --max-hold b* max-hold=1m",
            "20 20 0 0 option - --max-hold b* max-hold=1m",
            "- - - - file - gone x* deny",
        ],
    );
    // Each key is limited by what limited it when it was seen.
    let list = text_of(&List::Keys(200), &view(&engine, at_ms(0), false), &scan);
    let limits = |row: &str, rule: &str| row.split_whitespace().nth(5) == Some(rule);
    let limited = |rule| list.lines().filter(|row| limits(row, rule)).count();
    assert_eq!((limited("a"), limited("b,--max-hold"), limited("-")), (15, 20, 5), "{list}");
}

/// The outcome, the rules and the key of each row of `STATS SLOW`, the oldest first.
fn slow_rows(engine: &mut Engine) -> Vec<[String; 4]> {
    let text = asked(engine, "SLOW", at_ms(0), false);
    let rows = text.lines().skip(3).filter(|line| !line.is_empty());
    let words = rows.map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let columns = words.map(|row| [3, 7, 8, 9].map(|n: usize| row[n].clone()));
    columns.collect::<Vec<_>>().into_iter().rev().collect()
}

#[test]
fn the_slow_log_names_the_rule_behind_each_row() {
    let mut engine = new_engine();
    engine.observer.set_slow(Some(1));
    let wait = |engine: &mut Engine, slot, key: &[u8], timeout_s| {
        let request = Acquire { mode: Mode::ForMe, key, workers: 1, max_queue: 9, timeout_s };
        engine.acquire(client(slot), &request, at_ms(10));
    };
    for (slot, key) in [(0, &b"none"[..]), (1, b"na"), (2, b"bx"), (3, b"nbx"), (4, b"long")] {
        acquire(&mut engine, slot, Mode::ForMe, key, at_ms(0));
    }
    engine.release(client(0), at_ms(1));
    let rules = ["narrow n* workers=1 maxqueue=9", "late na timeout=2s", "idle * stuck-after=9s"];
    let others =
        ["bots *bx deny", "long long max-hold=1m30s", "- l* max-hold=1m", "- * max-hold=15m"];
    set_rules(&mut engine, &[&rules[..], &others].concat());
    wait(&mut engine, 5, b"na", 100);
    wait(&mut engine, 6, b"na", 1);
    engine.expire(at_ms(5_000));
    // An order that changes the numbers of rules does not change what a wait was shortened by.
    wait(&mut engine, 7, b"na", 100);
    set_rules(&mut engine, &[&["new z* deny"], &rules[..], &others].concat());
    engine.expire(at_ms(9_000));
    for slot in [1, 2, 3] {
        engine.release(client(slot), at_ms(10_000));
    }
    engine.expire(at_ms(95_000));
    acquire(&mut engine, 8, Mode::ForMe, b"x", at_ms(0));
    engine.release(client(8), at_ms(1));
    note_observed(&mut engine, at_ms(95_000));
    let expected = [
        ["released", "-", "-", "none"],
        ["timeout", "narrow", "-", "na"],
        ["timeout", "late", "-", "na"],
        ["timeout", "late", "-", "na"],
        ["released", "narrow", "-", "na"],
        ["released", "bots", "bots", "bx"],
        ["released", "narrow", "bots", "nbx"],
        ["expired", "long", "-", "long"],
        ["released", "--max-hold", "-", "x"],
    ];
    assert_eq!(slow_rows(&mut engine), expected);
    let pools: Vec<_> = engine.pool_states().map(Ok::<_, BadState>).collect();
    let resumed = Engine::resume(engine.state(), pools, SEED, at_ms(95_000));
    assert_eq!(slow_rows(&mut resumed.expect("a state")), expected, "after a hot restart");
}

#[test]
fn long_keys_are_counted_separately_and_shown_truncated() {
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
fn json_names_the_oldest_holders_with_any_number_of_queues() {
    let mut engine = new_engine();
    acquire(&mut engine, 0, Mode::ForMe, b"stuck", at_ms(0));
    for n in 1..=30 {
        let key = format!("busy:{n}");
        acquire(&mut engine, 2 * n, Mode::ForAnyone, key.as_bytes(), at_ms(u64::from(n)));
        acquire(&mut engine, 2 * n + 1, Mode::ForAnyone, key.as_bytes(), at_ms(100));
    }
    for places_per_turn in [1, 7, 100] {
        let scan = scan(&engine, at_ms(1_000), places_per_turn);
        let report = json::report(&view(&engine, at_ms(1_000), false), &FIGURES, &scan);
        let report = serde_json::to_value(&report).expect("JSON");
        let list = |name: &str| report[name].as_array().expect("a list").clone();
        assert!(list("keys").iter().all(|row| row["key"] != "stuck"));
        let holds = list("oldest_holds");
        let oldest = serde_json::json!({
            "key": "stuck", "group": "other", "held_s": 1.0, "kind": "me", "waiters": 0,
            "client": client(0).serial, "address": Addresses.peer(client(0)).expect("a peer"),
            "limited_by": [], "denied_by": null,
        });
        assert_eq!(holds[0], oldest);
        let keys: Vec<&str> = holds.iter().filter_map(|hold| hold["key"].as_str()).collect();
        let expected: Vec<String> = (1..20).map(|n| format!("busy:{n}")).collect();
        assert_eq!(keys[1..], expected);
        assert_eq!(holds[1]["waiters"], 1);
        // The report also has the number of all keys of which the list shows the first.
        assert_eq!((list("keys").len(), &report["keys_waited_for"]), (20, &30.into()));
    }
}

/// Prometheus refuses two samples of one series.
/// While no rule is set, nothing is counted for groups: neither zeros nor old counts are shown.
#[test]
fn groups_are_shown_while_they_are_counted() {
    let mut engine = new_engine();
    let rule = Rule::try_from("a x workers=9".to_owned()).expect("a rule");
    let shown = |engine: &mut Engine, slot: u32| {
        let now = at_ms(slot.into());
        acquire(engine, slot, Mode::ForMe, b"a", now);
        let view = view(engine, now, false);
        let json = line_of(&json::report(&view, &FIGURES, &scanned(engine, now)));
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let groups = json["groups"].as_array().expect("groups").iter();
        let groups: Vec<_> =
            groups.map(|it| (it["group"].clone(), it["requests"].clone())).collect();
        let metrics = metrics::metrics(&view, &FIGURES, &scanned(engine, now), 0);
        let is_in_metrics = metrics.contains("poolcounter_group_requests_total{");
        assert_eq!(is_in_metrics, !groups.is_empty());
        groups
    };
    let set = |engine: &mut Engine, rules: &[Rule], groups: &[String]| {
        engine.set_rules(rules.to_vec(), groups, at_ms(0), || {});
    };
    assert_eq!(shown(&mut engine, 0), []);
    set(&mut engine, std::slice::from_ref(&rule), &[]);
    assert_eq!(shown(&mut engine, 1), [("other".into(), 1.into())]);
    set(&mut engine, &[], &[]);
    assert_eq!(shown(&mut engine, 2), [], "the last rule is off");
    set(&mut engine, &[], &["named".to_owned()]);
    let named = [("other".into(), 2.into()), ("named".into(), 0.into())];
    assert_eq!(shown(&mut engine, 3), named, "a group of the file counts, its rule on or off");
    set(&mut engine, &[rule], &[]);
    assert_eq!(shown(&mut engine, 4), [("other".into(), 3.into())]);
}

#[test]
fn hot_keys_that_look_the_same_are_one_series_and_private_keys_have_no_series() {
    let mut engine = new_engine();
    let long = "x".repeat(300);
    for (slot, key) in
        [format!("{long}1"), format!("{long}2"), "short".to_owned()].iter().enumerate()
    {
        acquire(&mut engine, slot as u32, Mode::ForMe, key.as_bytes(), at_ms(0));
        engine.release(client(slot as u32), at_ms(500));
    }
    note_observed(&mut engine, at_ms(500));
    let scan = Scan::new(START, None);
    let text = |is_private| {
        let view = view(&engine, at_ms(1_000), is_private);
        metrics::metrics(&view, &FIGURES, &scan, 9)
    };
    let shown = text(false);
    let series: Vec<&str> =
        shown.lines().filter(|line| line.starts_with("poolcounter_hot_key_requests{")).collect();
    assert_eq!(series.len(), 2, "{series:?}");
    assert!(series.iter().any(|line| line.ends_with("...\"} 2")), "{series:?}");
    assert!(!text(true).contains("hot_key"));
}

/// What PoolCounterLostLocks needs (monitoring/alerts.yml).
#[test]
fn a_drain_is_safe_to_end_once_no_lock_is_held() {
    let metrics = |engine: &Engine, is_draining: bool| {
        let figures = ServerFigures { is_draining, ..FIGURES.clone() };
        let view = view(engine, at_ms(600), false);
        let text = metrics::metrics(&view, &figures, &Scan::default(), 0);
        let names =
            ["process_start_time", "poolcounter_safe_to_end", "poolcounter_unsafe_start_time"];
        names.map(|name| {
            let line = text.lines().find(|line| line.starts_with(name)).expect(name);
            line.rsplit(' ').next().expect("a value").to_owned()
        })
    };
    const WALL_S: &str = "1795284000";
    let mut engine = engine();
    assert_eq!(metrics(&engine, false), [WALL_S, "0", WALL_S]);
    assert_eq!(metrics(&engine, true), [WALL_S, "0", WALL_S]);
    (0..6).for_each(|slot| engine.disconnect(client(slot), at_ms(550)));
    assert_eq!(metrics(&engine, true), [WALL_S, "1", "0"]);
    assert_eq!(metrics(&engine, false), [WALL_S, "0", WALL_S]);
}
