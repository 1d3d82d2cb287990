//! New rules while many keys are held: they apply to all of them at once.

use crate::simulation::pair::any_seed;
use engine::rules::rule::Rule;
use engine::{ClientId, Engine, Time};
use protocol::{Acquire, Mode};

const KEYS: u32 = 5_000;

const START: Time = Time::from_ns(1_000_000_000);

fn client(slot: u32) -> ClientId {
    ClientId { slot, serial: slot + 100 }
}

/// Returns how often the engine said that it goes on.
fn set_rules(engine: &mut Engine, rules: &[&str]) -> usize {
    let rules = rules.iter().map(|&rule| Rule::try_from(rule.to_owned()).expect("a rule"));
    let mut reports = 0;
    engine.set_rules(rules.collect(), &[], START, || reports += 1);
    engine.check_invariants();
    reports
}

/// An engine with rules, in which each client holds a key.
fn with_holders(rules: &[&str]) -> Engine {
    let mut engine = Engine::new(any_seed(), START);
    set_rules(&mut engine, rules);
    for n in 0..KEYS {
        let key = format!("k{n}");
        let key = key.as_bytes();
        let request = Acquire { mode: Mode::ForMe, key, workers: 1, max_queue: 9, timeout_s: 0 };
        engine.acquire(client(n), &request, START);
    }
    engine
}

fn expired(engine: &mut Engine, after_s: u64) -> usize {
    engine.expire(START.plus_seconds(after_s));
    engine.check_invariants();
    engine.take_expired().len()
}

#[test]
fn a_change_of_rules_reports_each_thousand_keys() {
    let mut engine = with_holders(&[]);
    assert_eq!(set_rules(&mut engine, &["r k* total=3"]), 5);
    assert_eq!(set_rules(&mut engine, &["r k* total=3"]), 0, "nothing has changed");
}

#[test]
fn a_rule_that_is_gone_ends_no_hold() {
    let mut engine = with_holders(&["r k* max-hold=5"]);
    set_rules(&mut engine, &[]);
    assert_eq!(expired(&mut engine, 1_000), 0);
}

#[test]
fn a_rule_that_allows_longer_holds_ends_none_early() {
    let mut engine = with_holders(&["r k* max-hold=5"]);
    set_rules(&mut engine, &["r k* max-hold=60"]);
    assert_eq!(expired(&mut engine, 59), 0);
    assert_eq!(expired(&mut engine, 61), KEYS as usize);
}

#[test]
fn a_rule_that_allows_shorter_holds_ends_all_of_them() {
    let mut engine = with_holders(&["r k* max-hold=60"]);
    set_rules(&mut engine, &["r k* max-hold=5"]);
    assert_eq!(expired(&mut engine, 4), 0);
    assert_eq!(expired(&mut engine, 6), KEYS as usize);
}
