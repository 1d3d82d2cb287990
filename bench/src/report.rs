//! The page: machine, targets, table and plots as `docs/benchmarks.md`.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::figures::{Spread, human, ratio, spread};
use crate::plot::{Plot, Series, Shape};
use crate::scenario::{DISTURBED, METRICS, SCENARIOS};
use crate::suite::Outcome;

/// What follows this line in the page is kept when it is written anew.
const BY_HAND: &str = "<!-- What follows is written by hand and kept by `make bench`. -->";

/// Figures that plots show and the table leaves out.
const NOT_IN_TABLE: &[&str] = &["p75", "p90"];

/// What a figure must be for the project to be content.
struct Target {
    scenario: &'static str,
    metric: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    /// Of the floor's, at most.
    Floor(f64),
    /// Of the reference's, at most.
    Reference(f64),
    /// In its unit, at most.
    AtMost(f64),
}

const fn target(scenario: &'static str, metric: &'static str, bound: Bound) -> Target {
    Target { scenario, metric, bound }
}

const TARGETS: &[Target] = &[
    target("kept-50", "cpu_request", Bound::Floor(1.05)),
    target("kept-50", "cpu_request", Bound::Reference(0.70)),
    target("kept-1000", "cpu_request", Bound::Floor(1.05)),
    target("kept-1000", "cpu_request", Bound::Reference(0.70)),
    target("cycle-20", "cpu_cycle", Bound::Floor(1.05)),
    target("cycle-20", "cpu_cycle", Bound::Reference(0.95)),
    target("cycle-100", "cpu_cycle", Bound::Floor(1.05)),
    target("cycle-100", "cpu_cycle", Bound::Reference(0.95)),
    target("cycle-300", "cpu_cycle", Bound::Floor(1.05)),
    target("cycle-300", "cpu_cycle", Bound::Reference(0.95)),
    target("burst-5000", "late_900", Bound::AtMost(0.0)),
    target("wake-any", "cpu_woken", Bound::Reference(0.90)),
    target("timeouts", "cpu_timeout", Bound::Reference(1.00)),
    target("timeouts", "early", Bound::AtMost(0.0)),
    target("memory", "idle_bytes", Bound::AtMost(160.0)),
    target("memory", "holding_bytes", Bound::AtMost(320.0)),
    target("one-key", "waiting_bytes", Bound::AtMost(240.0)),
];

/// (live keys, ns for a pair at most)
const ENGINE_TARGETS: &[(u64, f64)] = &[(1000, 200.0), (1_000_000, 600.0)];
const WORST_INSERT_MS: f64 = 50.0;

/// Where it was measured, and the commands that tell.
pub struct Machine {
    facts: Vec<(&'static str, String, &'static str)>,
}

impl Machine {
    /// Asks the machine; what it does not know is left out.
    pub fn look(top: &Path) -> Self {
        const COMMANDS: &[(&str, &str)] = &[
            ("date", "date -u '+%F %H:%M UTC'"),
            ("source", "git describe --always --dirty --tags"),
            ("processor", "lscpu | sed -n 's/^Model name: *//p'"),
            ("cores", "nproc"),
            ("virtual machine", "lscpu | sed -n 's/^Hypervisor vendor: *//p'"),
            ("memory", "awk '/MemTotal/ {printf \"%d MiB\", $2/1024}' /proc/meminfo"),
            ("kernel", "uname -sr"),
            ("load before", "cut -d' ' -f1-3 /proc/loadavg"),
            ("Rust", "rustc --version"),
            ("C compiler", "cc --version | head -n1"),
            ("reference", "for f in target/reference/download/*.deb; do dpkg-deb -W \"$f\"; done"),
        ];
        let facts = COMMANDS
            .iter()
            .filter_map(|&(name, command)| Some((name, shell(top, command)?, command)))
            .collect();
        Self { facts }
    }
}

fn shell(top: &Path, command: &str) -> Option<String> {
    let done = Command::new("sh").args(["-c", command]).current_dir(top).output().ok()?;
    let text = String::from_utf8_lossy(&done.stdout).trim().replace('\t', " ");
    (done.status.success() && !text.is_empty()).then_some(text)
}

/// Writes page and plots to `folder`.
pub fn write(folder: &Path, outcome: &Outcome, machine: &Machine) -> Result<()> {
    let plots = plots(outcome);
    let plot_folder = folder.join("benchmarks");
    std::fs::create_dir_all(&plot_folder)?;
    for (name, plot) in plots.iter().filter(|(_, plot)| !plot.is_empty()) {
        std::fs::write(plot_folder.join(format!("{name}.svg")), plot.svg())?;
    }
    std::fs::write(plot_folder.join("samples.csv"), csv(outcome))?;

    let path = folder.join("benchmarks.md");
    let by_hand = std::fs::read_to_string(&path)
        .ok()
        .and_then(|old| old.split_once(BY_HAND).map(|(_, rest)| rest.to_owned()))
        .unwrap_or_else(|| "\n".into());
    let mut page = head(outcome);
    for (name, plot) in plots.iter().filter(|(_, plot)| !plot.is_empty()) {
        let _ = writeln!(page, "![{}](benchmarks/{name}.svg)\n", plot.title);
    }
    page += &targets(outcome);
    page += &table(outcome);
    page += &machine_table(machine);
    let _ = write!(page, "\n{BY_HAND}{by_hand}");
    Ok(std::fs::write(path, page)?)
}

fn head(outcome: &Outcome) -> String {
    format!(
        "# Benchmarks

Written by `make bench` ({} rounds in {:.0} s). One scenario again, say `kept-50`:
`cargo run --release --manifest-path bench/Cargo.toml -- suite --only kept-50`. Every sample:
[samples.csv](benchmarks/samples.csv).

*Floor* is [bench/floor.c](../bench/floor.c): one `recv` and one `send` a request with a fixed
answer, no keys, no locks; what the kernel charges for the protocol. *Reference* is Debian's C
daemon. All run on one core, one fresh process and loopback address for each measure, the load on
another core; in every round they take turns right after one another. A figure is the median
of the rounds with the quartiles behind it; a ratio is taken within each round, then its median.
CPU time is what the scheduler charged the process (`/proc/PID/task/*/schedstat`), kernel work
included, read when the process sleeps; memory is `Private_Dirty` of `/proc/PID/smaps_rollup`.

",
        outcome.rounds, outcome.took_s
    )
}

fn machine_table(machine: &Machine) -> String {
    let mut out = String::from("\n## The machine\n\n| | | told by |\n|---|---|---|\n");
    for (name, value, command) in &machine.facts {
        let command = command.replace('|', "\\|");
        let _ = writeln!(out, "| {name} | {} | `{command}` |", value.replace('|', "\\|"));
    }
    out
}

/// Target against result, one line each.
fn targets(outcome: &Outcome) -> String {
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
        let met = if result.median <= limit + 1e-9 { "met" } else { "**missed**" };
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
    match rows.is_empty() {
        true => rows,
        false => format!("## Targets\n\n| | target | result | |\n|---|---|---|---|\n{rows}\n"),
    }
}

fn ratio_to(outcome: &Outcome, t: &Target, base: &str) -> Option<Spread> {
    let of = |program| outcome.by_round(t.scenario, program, t.metric);
    ratio(&of("ours"), &of(base))
}

/// Where 0 is asked for, a median would hide the rounds that broke it.
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
    out += "| |";
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
        for metric in METRICS.iter().filter(|m| !NOT_IN_TABLE.contains(&m.name)) {
            rows += &row(outcome, scenario.name, metric.name, &bases);
        }
        if !rows.is_empty() {
            let empty = "|".repeat(columns - 1);
            let _ = writeln!(out, "| **{}**: {} |{empty}", scenario.name, scenario.words);
            out += &rows;
        }
    }
    out += &engine_table(outcome);
    for (scenario, program) in &outcome.unables {
        let _ = writeln!(out, "\nNot measured: {scenario} of {program}, which can't do it.");
    }
    if !outcome.failures.is_empty() {
        out += "\nFailed measures:\n\n";
        for failure in &outcome.failures {
            let _ = writeln!(out, "- {failure}");
        }
    }
    out
}

/// Says so when the machine had other work.
fn disturbance(outcome: &Outcome) -> String {
    const PERCENT_MAX: f64 = 5.0;
    let figures = outcome.samples.iter().flat_map(|s| &s.figures);
    let shares: Vec<f64> = figures.filter(|(n, _)| *n == DISTURBED).map(|(_, v)| *v).collect();
    match spread(&shares) {
        Some(s) if s.high > PERCENT_MAX => format!(
            "**The machine was not quiet**: in a quarter of the measures the server waited for its core for \
             {} % of its time or more. Take these figures for a rough idea.\n\n",
            human(s.high)
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
        let s = spread(&outcome.values(scenario, program, metric));
        any |= s.is_some();
        let _ = write!(out, " {} |", s.map(cell).unwrap_or_default());
    }
    for base in bases {
        let s = ratio(&by_round("ours"), &by_round(base)).filter(|_| has_ratio(metric, unit));
        let _ = write!(out, " {} |", s.map(cell).unwrap_or_default());
    }
    match any {
        true => out + "\n",
        false => String::new(),
    }
}

/// Ratios of counts, shares and differences tell nothing.
fn has_ratio(metric: &str, unit: &str) -> bool {
    !matches!(unit, "" | "%") && metric != "earliest"
}

fn engine_table(outcome: &Outcome) -> String {
    let mut out = String::new();
    if !outcome.engine.is_empty() {
        out += "\n### The engine alone\n\n\
                `cargo run --release --bin engine` in `bench/`: keys of 40 bytes, each held by somebody; a pair is an\n\
                uncontended ACQ4ME and its RELEASE on another key, chosen at random among as many.\n\n\
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

/// Median, and the quartiles where they differ from it.
fn cell(s: Spread) -> String {
    let (low, median, high) = (human(s.low), human(s.median), human(s.high));
    match low == high {
        true => median,
        false => format!("{median} <sub>{low}–{high}</sub>"),
    }
}

/// A limit as it was set: 0.7 as 0.70, 160 as 160.
fn plain(limit: f64) -> String {
    if limit.fract() == 0.0 && limit != 1.0 { format!("{limit:.0}") } else { format!("{limit:.2}") }
}

/// All samples, for whoever wants to reckon otherwise.
fn csv(outcome: &Outcome) -> String {
    let mut out = String::from("scenario,program,round,figure,value\n");
    for s in &outcome.samples {
        for (name, value) in &s.figures {
            let _ = writeln!(out, "{},{},{},{name},{value:.3}", s.scenario, s.program, s.round + 1);
        }
    }
    out
}

/// (file name, plot)
fn plots(outcome: &Outcome) -> Vec<(&'static str, Plot)> {
    let series = |points: &[(&str, &str)]| -> Vec<Series> {
        let of = |program: &String| Series {
            name: program.clone(),
            values: points
                .iter()
                .map(|(scenario, metric)| spread(&outcome.values(scenario, program, metric)))
                .collect(),
        };
        outcome.programs.iter().map(of).filter(|s| s.values.iter().any(Option::is_some)).collect()
    };
    let kept = ["kept-1", "kept-50", "kept-1000", "kept-10000"].map(|s| (s, "cpu_request"));
    let cycle = ["cycle-20", "cycle-100", "cycle-300"].map(|s| (s, "cpu_cycle"));
    let percentiles = ["p50", "p75", "p90", "p99", "p99.9"].map(|p| ("paced-50", p));
    let beside = ["kept-50", "keys-1000", "keys-10000", "keys-50000"].map(|s| (s, "cpu_request"));
    let names = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
    let mut plots = vec![
        (
            "cpu-per-request",
            Plot {
                title: "CPU time of the server for one request".into(),
                unit: "µs, by number of kept connections; less is better".into(),
                places: names(&["1", "50", "1000", "10,000"]),
                series: series(&kept),
                shape: Shape::Bars,
            },
        ),
        (
            "cpu-per-cycle",
            Plot {
                title: "CPU time of the server for connect, lock, release, close".into(),
                unit: "µs, by number of clients at once; less is better".into(),
                places: names(&["20", "100", "300"]),
                series: series(&cycle),
                shape: Shape::Bars,
            },
        ),
        (
            "latency",
            Plot {
                title: "Latency at 40,000 requests a second on 50 connections".into(),
                unit: "µs from when a request was due, by percentile; logarithmic; less is better"
                    .into(),
                places: names(&["50 %", "75 %", "90 %", "99 %", "99.9 %"]),
                series: series(&percentiles),
                shape: Shape::Lines,
            },
        ),
        (
            "keys-daemon",
            Plot {
                title: "CPU time for one request beside held keys".into(),
                unit: "µs, 50 kept connections, by number of keys that others hold; less is better"
                    .into(),
                places: names(&["0", "1000", "10,000", "50,000"]),
                series: series(&beside).into_iter().filter(|s| s.name != "floor").collect(),
                shape: Shape::Bars,
            },
        ),
    ];
    plots.push(("keys-engine", engine_plot(outcome)));
    plots
}

fn engine_plot(outcome: &Outcome) -> Plot {
    let flat = |x| Some(Spread { low: x, median: x, high: x });
    Plot {
        title: "The engine alone: an uncontended lock and release".into(),
        unit: "ns, by number of live keys; logarithmic; less is better".into(),
        places: outcome.engine.iter().map(|r| human(r.keys as f64)).collect(),
        series: vec![Series {
            name: "ours".into(),
            values: outcome.engine.iter().map(|r| flat(r.pair_ns)).collect(),
        }],
        shape: Shape::Lines,
    }
}
