//! Prints what was measured: targets and all figures.

use crate::figures::{Spread, human, quantile, ratio, spread};
use crate::outcome::Outcome;
use crate::scenario::{DISTURBED, METRICS, SCENARIOS};
use std::fmt::Write;

/// The target for a figure.
struct Target {
    scenario: &'static str,
    metric: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    /// At most this multiple of the floor's figure.
    Floor(f64),
    /// At most this multiple of the reference's figure.
    Reference(f64),
    /// At most this, in the unit of the figure.
    AtMost(f64),
}

const fn target(scenario: &'static str, metric: &'static str, bound: Bound) -> Target {
    Target { scenario, metric, bound }
}

const TARGETS: &[Target] = &[
    target("kept-1", "cpu_request", Bound::Floor(1.05)),
    target("kept-50", "cpu_request", Bound::Floor(1.05)),
    target("kept-50", "cpu_request", Bound::Reference(0.70)),
    target("kept-1000", "cpu_request", Bound::Floor(1.05)),
    target("kept-1000", "cpu_request", Bound::Reference(0.70)),
    target("kept-10000", "cpu_request", Bound::Floor(1.05)),
    target("cycle-20", "cpu_cycle", Bound::Floor(1.05)),
    target("cycle-20", "cpu_cycle", Bound::Reference(0.95)),
    target("cycle-100", "cpu_cycle", Bound::Floor(1.05)),
    target("cycle-100", "cpu_cycle", Bound::Reference(0.95)),
    target("cycle-300", "cpu_cycle", Bound::Floor(1.05)),
    target("cycle-300", "cpu_cycle", Bound::Reference(0.95)),
    target("burst-5000", "late_900", Bound::AtMost(0.0)),
    target("wake-any", "cpu_woken", Bound::Reference(0.95)),
    target("timeouts", "cpu_timeout", Bound::Reference(1.00)),
    target("timeouts", "early", Bound::AtMost(0.0)),
    target("memory", "idle_bytes", Bound::AtMost(80.0)),
    target("memory", "holding_bytes", Bound::AtMost(260.0)),
    target("one-key", "waiting_bytes", Bound::AtMost(150.0)),
];

/// (live keys, ns for a pair at most)
const ENGINE_TARGETS: &[(u64, f64)] = &[(1000, 200.0), (1_000_000, 600.0)];
const WORST_INSERT_MS: f64 = 50.0;

/// Target against result, one line each.
pub fn targets(outcome: &Outcome) -> String {
    let mut rows = String::new();
    for t in TARGETS {
        let (result, limit, against) = match t.bound {
            Bound::Floor(limit) => (ratio_to(outcome, t, "floor"), limit, " of the floor"),
            Bound::Reference(limit) => {
                (ratio_to(outcome, t, "reference"), limit, " of the reference")
            }
            Bound::AtMost(limit) => (worst(outcome, t), limit, ""),
        };
        let Some(result) = result else { continue };
        let (words, unit) = words(t.metric);
        let unit =
            if against.is_empty() && !unit.is_empty() { format!(" {unit}") } else { String::new() };
        let met = match result {
            result if result.median <= limit + 1e-9 => "met",
            result if result.low <= limit => "met, within noise",
            _ => "**missed**",
        };
        let _ = writeln!(
            rows,
            "| {}: {words} | ≤ {}{unit}{against} | {} | {met} |",
            t.scenario,
            plain(limit),
            cell(result)
        );
    }
    for row in &outcome.engine {
        let Some((_, limit)) = ENGINE_TARGETS.iter().find(|(keys, _)| *keys == row.keys) else {
            continue;
        };
        let met = |ok| if ok { "met" } else { "**missed**" };
        let keys = human(row.keys as f64);
        let _ = writeln!(
            rows,
            "| engine, {keys} live keys: uncontended ACQ4ME and RELEASE | ≤ {} ns | {} | {} |",
            plain(*limit),
            human(row.pair_ns),
            met(row.pair_ns <= *limit)
        );
        if row.keys == 1_000_000 {
            let _ = writeln!(
                rows,
                "| engine, growing to {keys} keys: worst single insert | ≤ {} ms | {} | {} |",
                plain(WORST_INSERT_MS),
                human(row.worst_insert_ms),
                met(row.worst_insert_ms <= WORST_INSERT_MS)
            );
        }
    }
    if rows.is_empty() {
        rows
    } else {
        format!(
            "## Targets\n\n| scenario and figure | target | result | met? |\n|---|---|---|---|\n{rows}\n"
        )
    }
}

fn ratio_to(outcome: &Outcome, t: &Target, base: &str) -> Option<Spread> {
    let of = |program| outcome.by_round(t.scenario, program, t.metric);
    ratio(&of("ours"), &of(base))
}

/// For a target of 0, a median would hide the rounds that missed it.
fn worst(outcome: &Outcome, t: &Target) -> Option<Spread> {
    let values = outcome.values(t.scenario, "ours", t.metric);
    let mut s = spread(&values)?;
    if matches!(t.bound, Bound::AtMost(0.0)) {
        s.median = values.into_iter().fold(0.0, f64::max);
        s.high = s.median;
        s.low = s.median;
    }
    Some(s)
}

/// Every figure of every scenario.
pub fn table(outcome: &Outcome) -> String {
    let mut out = String::from("## All figures\n\n");
    out += &disturbance(outcome);
    out += "| figure |";
    for program in &outcome.programs {
        let _ = write!(out, " {program} |");
    }
    let bases: Vec<&String> = outcome.programs.iter().filter(|p| *p != "ours").collect();
    for base in &bases {
        let _ = write!(out, " ours / {base} |");
    }
    let columns = 1 + outcome.programs.len() + bases.len();
    let _ = writeln!(out, "\n|{}", "---|".repeat(columns));
    for scenario in SCENARIOS {
        let mut rows = String::new();
        for metric in METRICS {
            rows += &row(outcome, scenario.name, metric.name, &bases);
        }
        if !rows.is_empty() {
            let empty = "|".repeat(columns - 1);
            let _ = writeln!(out, "| **{}**: {} |{empty}", scenario.name, scenario.words);
            out += &rows;
        }
    }
    out += &engine_table(outcome);
    if !outcome.failures.is_empty() {
        out += "\nFailed measurements:\n\n";
        for failure in &outcome.failures {
            let _ = writeln!(out, "- {failure}");
        }
    }
    out
}

/// A warning if the machine had other work.
fn disturbance(outcome: &Outcome) -> String {
    const PERCENT_MAX: f64 = 5.0;
    let figures = outcome.samples.iter().flat_map(|s| &s.figures);
    let shares: Vec<f64> = figures.filter(|(n, _)| *n == DISTURBED).map(|(_, v)| *v).collect();
    match quantile(&shares, 0.75) {
        Some(share) if share > PERCENT_MAX => format!(
            "**The machine was not quiet**: in a quarter of the measurements the server waited for its core for \
             {} % of its time or more. These figures are only a rough idea.\n\n",
            human(share)
        ),
        _ => String::new(),
    }
}

fn row(outcome: &Outcome, scenario: &str, metric: &str, bases: &[&String]) -> String {
    let by_round = |program: &str| outcome.by_round(scenario, program, metric);
    let (words, unit) = words(metric);
    let mut out = match unit {
        "" => format!("| {words} |"),
        unit => format!("| {words}, {unit} |"),
    };
    let mut any = false;
    for program in &outcome.programs {
        let median = quantile(&outcome.values(scenario, program, metric), 0.5);
        any |= median.is_some();
        let _ = write!(out, " {} |", median.map(human).unwrap_or_default());
    }
    for base in bases {
        let s = ratio(&by_round("ours"), &by_round(base)).filter(|_| has_ratio(metric, unit));
        let _ = write!(out, " {} |", s.map(cell).unwrap_or_default());
    }
    if any { out + "\n" } else { String::new() }
}

/// Ratios of counts and differences mean nothing.
fn has_ratio(metric: &str, unit: &str) -> bool {
    !unit.is_empty() && metric != "earliest"
}

fn engine_table(outcome: &Outcome) -> String {
    let mut out = String::new();
    if !outcome.engine.is_empty() {
        out += "\n### The engine alone\n\n\
                `cargo run --release --manifest-path bench/Cargo.toml --bin engine-times`: keys of 40 bytes, each held by a client; a pair is an\n\
                uncontended ACQ4ME and its RELEASE on another key, chosen at random.\n\n\
                | live keys | a pair, ns | worst single insert while growing, ms |\n|---|---|---|\n";
    }
    for row in &outcome.engine {
        let _ = writeln!(
            out,
            "| {} | {} | {} |",
            human(row.keys as f64),
            human(row.pair_ns),
            row.worst_insert_ms
        );
    }
    out
}

fn words(metric: &str) -> (&'static str, &'static str) {
    METRICS.iter().find(|m| m.name == metric).map_or(("", ""), |m| (m.words, m.unit))
}

/// Median, and its interval where that is not a single number.
fn cell(s: Spread) -> String {
    let (low, median, high) = (human(s.low), human(s.median), human(s.high));
    if low == high { median } else { format!("{median} <sub>{low}–{high}</sub>") }
}

/// A limit as it was set: 0.7 as 0.70, 160 as 160.
fn plain(limit: f64) -> String {
    if limit.fract() == 0.0 && limit != 1.0 { format!("{limit:.0}") } else { format!("{limit:.2}") }
}
