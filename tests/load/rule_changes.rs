//! How long a change of rules takes, which reaches all keys in one turn (docs/development/evidence.md).

use crate::reports::{acquire, at_us, timed};
use engine::rules::rule::Rule;
use engine::{Engine, HashSeed};
use std::time::Duration;

/// Takes the time in which 64 rules come into force, whose patterns are all new.
fn check(what: &str, keys: u32, key: impl Fn(u32) -> String, promised: Duration) {
    let mut engine = Engine::new(HashSeed::new([1, 2]), at_us(0));
    for n in 0..keys {
        acquire(&mut engine, n, key(n).as_bytes(), at_us(n.into()));
    }
    let rules = (0..64).map(|n| Rule::parse(&format!("r{n} *:pcache{n}:* total=9 max-hold=600")));
    let rules: Vec<Rule> = rules.map(|rule| rule.expect("a rule")).collect();
    let now = at_us(2_000_000);
    let ((), all) = timed(|| engine.set_rules(rules.clone(), &[], now, || {}));
    let mut one = rules;
    one[7] = Rule::parse("r7 *:pcache7:* total=3").expect("a rule");
    let ((), setting) = timed(|| engine.set_rules(one.clone(), &[], now, || {}));
    one[7] = Rule::parse("r7 *:rcache7:* total=3").expect("a rule");
    let ((), pattern) = timed(|| engine.set_rules(one, &[], now, || {}));
    println!(
        "{keys} {what}: 64 new rules take {all:.1?} (promised {promised:?}); \
         a new setting of one {setting:.1?}, a new pattern of one {pattern:.1?}"
    );
    assert!(all < promised * 4, "{all:?}");
}

#[test]
fn ordinary_keys() {
    let key = |n| format!("enwiki:pcache:idhash:{n}-0!canonical:revid:7");
    check("ordinary keys", 10_000, key, Duration::from_millis(5));
    check("ordinary keys", 1_000_000, key, Duration::from_millis(1_000));
}

#[test]
fn the_worst_keys() {
    let key = |n| format!("{n}{}", ":".repeat(4_000));
    check("of the worst keys", 10_000, key, Duration::from_millis(500));
}
