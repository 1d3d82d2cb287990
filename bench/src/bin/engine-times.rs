//! The engine alone, without sockets: the cost of an uncontended `ACQ4ME` and its
//! `RELEASE` with a number of live keys, and the slowest single insert on the way to
//! them (a table that grows stalls all clients).
//!
//! Prints one line for each number of keys: keys, nanoseconds per pair, milliseconds
//! of the slowest insert; both times are medians of several engines. `--quick`: fewer
//! and shorter runs. `--rules N`: with N rules, of which the last matches all keys.
//!
//! `--matching` prints instead how long 64 rules `*:pcacheN:*` take to be compared with a
//! key of MediaWiki's and with the worst key, and 64 rules whose pieces are ends of one
//! another with their worst key, in microseconds.

#[path = "../worst_keys.rs"]
mod worst_keys;

use std::time::Instant;

use engine::rules::rule::Rule;
use engine::{ClientId, Engine, HashSeed, Time};
use protocol::{Acquire, Mode, Reply};

const KEY_COUNTS: &[u32] = &[10, 100, 1000, 10_000, 100_000, 1_000_000];

/// Pairs between two readings of the clock. Their keys are written before and are in
/// the cache, like input that was just received.
const BATCH: usize = 256;

fn main() {
    if std::env::args().any(|a| a == "--matching") {
        return time_matching();
    }
    let quick = std::env::args().any(|a| a == "--quick");
    let (growths, batches) = if quick { (3, 500) } else { (9, 4000) };
    let words: Vec<String> = std::env::args().collect();
    let rules = words.iter().position(|word| word == "--rules").map(|n| words[n + 1].parse());
    let rules = rules.map_or(0, |rules| rules.expect("a number of rules"));
    for &keys in KEY_COUNTS {
        let mut pairs_ns = Vec::new();
        let mut worst_ns = Vec::new();
        for _ in 0..growths {
            let (mut engine, worst) = grown(keys, rules);
            pairs_ns.push(pair_ns(&mut engine, keys, batches));
            worst_ns.push(worst as f64);
        }
        println!("{keys} {:.1} {:.3}", median(pairs_ns), median(worst_ns) / 1e6);
    }
}

fn time_matching() {
    let (caches, nested) = (worst_keys::caches(), worst_keys::nested());
    for (name, rules, key) in [
        ("an ordinary key", &caches, key(7).to_vec()),
        ("the worst key", &caches, worst_keys::worst_of(&caches)),
        ("nested pieces, the worst key", &nested, worst_keys::worst_of(&nested)),
    ] {
        let times = (0..10_000).map(|_| worst_keys::time(rules, &key).as_secs_f64() * 1e6);
        let start = String::from_utf8_lossy(&key[..20]);
        println!("{name}, {start}…, {} bytes: {:.2} µs", key.len(), median(times.collect()));
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// An engine in which `keys` clients hold one key each, and the time of the slowest
/// insert.
fn grown(keys: u32, rules: u32) -> (Engine, u64) {
    let mut engine = Engine::new(HashSeed::new([1, 2]), Time::from_ns(0));
    let others = (1..rules).map(|n| format!("r{n} *:Other{n}:* workers=2"));
    let rules = others.chain((rules > 0).then(|| "all *".to_owned()));
    let rules: Vec<Rule> = rules.map(|rule| Rule::parse(&rule).expect("a rule")).collect();
    let names: Vec<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    engine.set_rules(rules, &names, Time::from_ns(0), || {});
    let mut worst_ns = 0;
    for n in 0..keys {
        let name = key(n);
        let start = Instant::now();
        acquire(&mut engine, client(n), &name, u64::from(n));
        worst_ns = worst_ns.max(start.elapsed().as_nanos() as u64);
    }
    (engine, worst_ns)
}

/// Nanoseconds for one lock and release. The keys come in random order, so that each
/// is as cold in the cache as with this many live keys in use.
fn pair_ns(engine: &mut Engine, keys: u32, batches: u64) -> f64 {
    let one = client(keys);
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut others = [[0; 40]; BATCH];
    let mut spent_ns = 0;
    for batch in 0..batches {
        for name in &mut others {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            *name = key(keys + (random >> 33) as u32 % 1_000_000_000);
        }
        let now_ns = 1_000_000_000 * (batch + 1);
        let start = Instant::now();
        for name in &others {
            acquire(engine, one, name, now_ns);
            engine.release(one, Time::from_ns(now_ns + 500));
            assert_eq!(engine.take_answer(), Some((one, Reply::Released)));
        }
        spent_ns += start.elapsed().as_nanos();
    }
    spent_ns as f64 / (batches * BATCH as u64) as f64
}

fn acquire(engine: &mut Engine, client: ClientId, key: &[u8], now_ns: u64) {
    let request = Acquire { mode: Mode::ForMe, key, workers: 1, max_queue: 100, timeout_s: 15 };
    engine.acquire(client, &request, Time::from_ns(now_ns));
    assert_eq!(engine.take_answer(), Some((client, Reply::Locked)));
}

fn client(n: u32) -> ClientId {
    ClientId { slot: n, serial: n }
}

/// 40 bytes, like MediaWiki's.
fn key(n: u32) -> [u8; 40] {
    let mut key = *b"enwiki:pcache:idhash:000000000000-0!cano";
    let mut rest = n;
    for digit in key[21..33].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}
