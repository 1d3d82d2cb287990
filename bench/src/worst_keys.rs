//! Keys that cost the comparison with given rules the most: as long as a key may be, made from
//! the rules' patterns.

use engine::rules::Rules;
use engine::rules::rule::Rule;
use protocol::lines::LINE_BYTES_MAX;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Rules that wait for a piece each, as long as the key lasts.
pub(crate) fn caches() -> Rules {
    rules(|n| format!("*:pcache{n}:*"))
}

/// Rules with pieces that are ends of one another, in front of or behind one that no key has.
pub(crate) fn nested() -> Rules {
    rules(|n| match n % 2 {
        0 => format!("*z*{}*{}*", "a".repeat(n + 1), "a".repeat(n + 65)),
        _ => format!("*{}*z*", "a".repeat(n + 1)),
    })
}

fn rules(pattern: impl Fn(usize) -> String) -> Rules {
    let rules = (0..64).map(|n| Rule::parse(&format!("r{n} {}", pattern(n))).expect("a rule"));
    Rules::new(rules.collect(), &[])
}

/// The key that takes longest, most often the same one.
pub(crate) fn worst_of(rules: &Rules) -> Vec<u8> {
    let cost = |key: &Vec<u8>| (0..3).map(|_| time(rules, key)).min();
    worst_keys(rules).into_iter().max_by_key(cost).expect("there are rules")
}

/// How long the comparison of one key takes.
pub(crate) fn time(rules: &Rules, key: &[u8]) -> Duration {
    let began = Instant::now();
    std::hint::black_box(rules.matching(key));
    began.elapsed()
}

/// Each byte of a pattern, each beginning of a piece, all of these in a row, and all pieces but
/// for their last byte, again and again. No key contains a whole piece of all rules: a rule
/// that matches waits for nothing.
pub(crate) fn worst_keys(rules: &Rules) -> Vec<Vec<u8>> {
    let patterns = rules.in_force().iter().map(|rule| rule.rule.pattern.to_string());
    let pieces: BTreeSet<Vec<u8>> =
        patterns.flat_map(|p| p.split('*').map(|piece| piece.into()).collect::<Vec<_>>()).collect();
    let mut units: BTreeSet<Vec<u8>> = BTreeSet::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        units.extend(piece.iter().map(|&byte| vec![byte]));
        units.extend((1..=piece.len()).map(|len| piece[..len].to_vec()));
    }
    let near_misses: Vec<&[u8]> =
        pieces.iter().filter_map(|piece| piece.split_last().map(|(_, rest)| rest)).collect();
    let near_misses = near_misses.concat();
    let all = units.iter().flatten().copied().collect();
    units.into_iter().chain([near_misses, all]).map(|unit| repeated(&unit)).collect()
}

fn repeated(unit: &[u8]) -> Vec<u8> {
    // The rest of the line is the command and its numbers.
    unit.iter().copied().cycle().take(LINE_BYTES_MAX - 64).collect()
}
