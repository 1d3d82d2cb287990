//! Writes the page `docs/development/benchmarks.md`: machine, targets, table and plots.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::figures::{Spread, human, quantile, ratio, spread};
use crate::outcome::Outcome;
use crate::plots::plots;
use crate::scenario::{DISTURBED, METRICS, RESTART, SCENARIOS, WORST_TURN};

/// Everything after this line in the page is kept when the page is rewritten.
const BY_HAND: &str = "<!-- What follows is written by hand and kept by `make bench`. -->";

/// Figures that plots show and the table omits.
const NOT_IN_TABLE: &[&str] = &["p75", "p90"];

/// The parts of a hot restart's pauses, which have a table of their own.
const PARTS_OF_RESTART: &[&str] = &["fork", "to_image", "reading", "serving", "pause"];

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

/// The machine on which it was measured, and the commands that describe it.
pub struct Machine {
    facts: Vec<(&'static str, String, &'static str)>,
}

impl Machine {
    /// Runs the commands; omits those that fail.
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
        std::fs::write(plot_folder.join(format!("{name}.svg")), plot.svg()?)?;
    }

    let path = folder.join("benchmarks.md");
    let by_hand = std::fs::read_to_string(&path)
        .ok()
        .and_then(|old| old.split_once(BY_HAND).map(|(_, rest)| rest.to_owned()))
        .unwrap_or_else(|| "\n".into());
    let mut page = summary(outcome);
    let mut pictures = plots
        .iter()
        .filter(|(_, plot)| !plot.is_empty())
        .map(|(name, plot)| format!("![{}](benchmarks/{name}.svg)\n\n", plot.title));
    page += &pictures.next().unwrap_or_default();
    page += &method(outcome);
    page.extend(pictures);
    page += &targets(outcome);
    page += &table(outcome);
    page += &machine_table(machine);
    let _ = write!(page, "\n{BY_HAND}{by_hand}");
    Ok(std::fs::write(path, page)?)
}

/// What a reader in a hurry wants to know; omits lines without measurements.
fn summary(outcome: &Outcome) -> String {
    let median = |scenario, program, metric| {
        spread(&outcome.values(scenario, program, metric)).map(|s| s.median)
    };
    let both = |scenario, metric| {
        Some((median(scenario, "ours", metric)?, median(scenario, "reference", metric)?))
    };
    let pair = |scenario, metric, words: &str, unit: &str| {
        let (ours, reference) = both(scenario, metric)?;
        let (ours, reference) = (human(ours), human(reference));
        Some(format!("- {words}: **{ours}{unit}**, the C daemon {reference}{unit}\n"))
    };
    let restart = || {
        let silence_ms = human(median("restart", "ours", "silence")?);
        let forgotten = human(median("restart", "ours", "forgotten")?);
        Some(format!(
            "- a hot restart with 10,000 held locks: no answer for **{silence_ms} ms**, {forgotten} locks lost\n"
        ))
    };
    // What MediaWiki does: it keeps no connection.
    let cycle = || {
        let (ours, reference) = both("cycle-100", "cpu_cycle")?;
        let (a_second, theirs) = (human(1e6 / ours), human(1e6 / reference));
        let (ours, reference) = (human(ours), human(reference));
        Some(format!(
            "- a lock as MediaWiki takes it (connect, lock, release, close): **{ours} µs** of CPU time, so {a_second} a \
             second on one core; the C daemon {reference} µs, {theirs}\n"
        ))
    };
    let lines = [
        cycle(),
        pair("kept-50", "rate", "requests a second on one core over 50 kept connections", ""),
        pair("kept-50", "cpu_request", "CPU time of a request there", " µs"),
        pair("memory", "holding_bytes", "memory of a connection that holds a lock", " bytes"),
        restart(),
    ];
    let lines: String = lines.into_iter().flatten().collect();
    format!(
        "# Benchmarks

For those who compare this daemon with Debian's C daemon, and for developers who want to make it faster: what a lock costs, in time and in
memory. In short:

{lines}
"
    )
}

fn method(outcome: &Outcome) -> String {
    format!(
        "## Method

`make bench` writes this page ({} rounds in {:.0} s, fewer of what takes long). To run one scenario, say `kept-50`:
`cargo run --release --manifest-path bench/Cargo.toml -- suite --only kept-50`. Every run leaves its samples in
`bench/target/samples.csv`.

*Floor* is `bench/floor.c`: one `recv` and one `send` per request with a fixed answer, no keys, no locks. It
shows what the kernel charges for the protocol. *Reference* is Debian's C daemon. All servers run on one core and the load on
another, with a new process and loopback address for each measurement; in every round the servers take turns, one right after
another. A figure is the median of the rounds; a ratio is taken within each round, then its median. The small numbers are the 95 %
interval of that median: where it lies in 2,000 draws from the rounds with replacement (bootstrap). A target is met if it is above the
median, or in the interval (*within noise*). CPU time is what the scheduler charged the process (`/proc/PID/task/*/schedstat`), including
kernel work, read when the process sleeps. Memory is `Private_Dirty` of `/proc/PID/smaps_rollup`.

With 100 and 300 connects at once, the reference's median latency is low because it leaves most connects without an answer (a row of
their own): these wait to the end of the measurement and have no latency, and the few that are served find a short queue.

",
        outcome.rounds, outcome.took_s
    )
}

fn machine_table(machine: &Machine) -> String {
    let mut out = String::from("\n## The machine\n\n| what | value | command |\n|---|---|---|\n");
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
    let elsewhere = [NOT_IN_TABLE, PARTS_OF_RESTART].concat();
    for scenario in SCENARIOS.iter().filter(|s| s.name != WORST_TURN) {
        let mut rows = String::new();
        for metric in METRICS.iter().filter(|m| !elsewhere.contains(&m.name)) {
            rows += &row(outcome, scenario.name, metric.name, &bases);
        }
        if !rows.is_empty() {
            let empty = "|".repeat(columns - 1);
            let _ = writeln!(out, "| **{}**: {} |{empty}", scenario.name, scenario.words);
            out += &rows;
        }
    }
    out += &engine_table(outcome);
    out += &restart_table(outcome);
    out += &worst_turn_table(outcome);
    for (scenario, program) in &outcome.unsupported {
        let _ =
            writeln!(out, "\nNot measured: {scenario} of {program}, which does not support it.");
    }
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
        let s = spread(&outcome.values(scenario, program, metric));
        any |= s.is_some();
        let _ = write!(out, " {} |", s.map(cell).unwrap_or_default());
    }
    for base in bases {
        let s = ratio(&by_round("ours"), &by_round(base)).filter(|_| has_ratio(metric, unit));
        let _ = write!(out, " {} |", s.map(cell).unwrap_or_default());
    }
    if any { out + "\n" } else { String::new() }
}

/// Ratios of counts, shares and differences mean nothing.
fn has_ratio(metric: &str, unit: &str) -> bool {
    !matches!(unit, "" | "%") && metric != "earliest"
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

/// Where the time of a hot restart goes.
fn restart_table(outcome: &Outcome) -> String {
    let rows = rows_of(outcome, RESTART, |metric| PARTS_OF_RESTART.contains(&metric));
    if rows.is_empty() {
        return rows;
    }
    format!(
        "
### Where the time of a hot restart goes

10,000 connections with a lock each (`suite --only restart`; the daemon's log at `RUST_LOG=info,poolcounterd::serving::resume=debug`).
The fork comes before the trial of the new binary, the final pause after it.

| step | ms |
|---|---|
{rows}"
    )
}

/// The longest turns.
fn worst_turn_table(outcome: &Outcome) -> String {
    let mut rows = rows_of(outcome, WORST_TURN, |_| true);
    if rows.is_empty() {
        return rows;
    }
    for row in outcome.engine.iter().filter(|row| [100_000, 1_000_000].contains(&row.keys)) {
        let keys = human(row.keys as f64);
        let ms = human(row.worst_insert_ms);
        let _ = writeln!(rows, "| the tables of the engine alone grow, up to {keys} keys | {ms} |");
    }
    format!(
        "
### The worst turn

10,000 clients hold 40,000 keys, and another one locks and releases without a break. The longest time for which it waited for an answer
while this happened (`suite --only worst-turn`):

| what happens | ms |
|---|---|
{rows}"
    )
}

/// Figures of ours in `scenario`, one line each.
fn rows_of(outcome: &Outcome, scenario: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut rows = String::new();
    for metric in METRICS.iter().filter(|m| wanted(m.name)) {
        if let Some(s) = spread(&outcome.values(scenario, "ours", metric.name)) {
            let _ = writeln!(rows, "| {} | {} |", metric.words, cell(s));
        }
    }
    rows
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
