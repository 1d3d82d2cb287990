//! `poolcounter-bench suite`: builds what is compared, measures it in turn,
//! round after round, and writes the report.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::figures::human;
use crate::outcome::{EngineRow, Outcome, Sample};
use crate::scenario::{Figures, METRICS, SCENARIOS, Scale, Scenario};
use crate::server::Program;
use crate::{fleet, process, report};

/// Builds the daemon, gets Debian's C daemon, compiles the floor (bench/floor.c),
/// then measures them in turn, round after round: daemon on one core, load on
/// another. The figures are CPU time and the ratios within a round; both tolerate a
/// machine that is not quite idle.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples, from the repository's top:
  make bench                                                       all of it
  make bench BENCH_FLAGS=--quick                                   all of it in short
  make bench BENCH_FLAGS='--only kept-50,kept-1000 --rounds 15'    two scenarios, closely
  make bench BENCH_FLAGS='--only kept-50 --other old=/tmp/before'  this build against another one
  make bench BENCH_FLAGS=--list                                    what can be measured")]
pub struct Args {
    /// Few and short rounds
    #[arg(long)]
    quick: bool,
    /// Measure only these scenarios
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure only these programs: floor, reference, ours, or the name of an --other
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    programs: Vec<String>,
    /// How often each scenario is measured
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Also measure another program, e.g. an older build
    #[arg(long, value_name = "NAME=PATH")]
    other: Vec<String>,
    /// Use this binary as ours instead of building it
    #[arg(long, value_name = "PATH")]
    ours: Option<PathBuf>,
    /// Core of the servers
    #[arg(long, value_name = "N")]
    server_core: Option<usize>,
    /// Core of the load
    #[arg(long, value_name = "N")]
    load_core: Option<usize>,
    /// List the scenarios and end
    #[arg(long)]
    list: bool,
}

/// Runs the suite: progress on stderr, the tables on stdout.
pub fn run(args: &Args) -> Result<()> {
    if args.list {
        for s in SCENARIOS {
            println!("{:<12} {}", s.name, s.words);
        }
        println!("{:<12} the engine alone, 10 to 1,000,000 live keys", "engine");
        return Ok(());
    }
    let top = top_folder()?;
    let scenarios = chosen(args)?;
    let with_engine = args.only.is_empty() || args.only.iter().any(|n| n == "engine");
    let programs = programs(args, &top)?;
    let engine = if with_engine { Some(build_engine(&top)?) } else { None };
    let (server_core, load_core) = choose_cores(args)?;
    process::pin_to(load_core)?;
    fleet::raise_descriptor_limit()?;

    let rounds = args.rounds.unwrap_or(if args.quick { 3 } else { 21 });
    let scale = Scale {
        window: if args.quick { 0.3 } else { 0.7 },
        warm_up: if args.quick { 0.1 } else { 0.2 },
        timeout_s: if args.quick { 1 } else { 2 },
    };
    let mut outcome = measure_all(&scenarios, &programs, server_core, rounds, &scale);
    if let Some(engine) = engine {
        outcome.engine = run_engine(&engine, server_core, args.quick)?;
    }
    print!("{}{}", report::targets(&outcome), report::table(&outcome));
    match outcome.failures.len() {
        0 => Ok(()),
        n => Err(format!("{n} measurements failed; see the end of the table").into()),
    }
}

fn chosen(args: &Args) -> Result<Vec<&'static Scenario>> {
    if args.only.is_empty() {
        return Ok(SCENARIOS.iter().collect());
    }
    let mut found = Vec::new();
    for name in args.only.iter().filter(|n| *n != "engine") {
        let one = SCENARIOS.iter().find(|s| s.name == name);
        found.push(one.ok_or_else(|| format!("no scenario `{name}`: see suite --list"))?);
    }
    Ok(found)
}

/// The top of the repository: this crate was built in one of its folders.
fn top_folder() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let top = here.parent().ok_or("the bench has no folder above it")?;
    Ok(top.canonicalize()?)
}

fn programs(args: &Args, top: &Path) -> Result<Vec<Program>> {
    let wanted = |name: &str| args.programs.is_empty() || args.programs.iter().any(|p| p == name);
    let mut programs = Vec::new();
    let mut add = |name: &str, path: PathBuf| programs.push(Program { name: name.into(), path });
    if wanted("floor") {
        add("floor", build_floor(top)?);
    }
    if wanted("reference") {
        let printed = output(Command::new(top.join("tests/support/fetch-reference.sh")))?;
        add("reference", PathBuf::from(printed.trim()));
    }
    if wanted("ours") {
        let built = match &args.ours {
            Some(path) => path.canonicalize()?,
            None => build_ours(top)?,
        };
        add("ours", built);
    }
    for other in &args.other {
        let (name, path) = other.split_once('=').ok_or("--other needs NAME=PATH")?;
        add(name, Path::new(path).canonicalize()?);
    }
    if programs.is_empty() {
        Err("no such program: floor, reference, ours".into())
    } else {
        Ok(programs)
    }
}

fn build_floor(top: &Path) -> Result<PathBuf> {
    eprintln!("compiling bench/floor.c");
    let dir = top.join("target/bench");
    std::fs::create_dir_all(&dir)?;
    let floor = dir.join("floor");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(&floor).arg(top.join("bench/floor.c"));
    output(cc)?;
    Ok(floor)
}

fn cargo(top: &Path, args: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(args).current_dir(top).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", args.join(" ")).into()) }
}

fn build_ours(top: &Path) -> Result<PathBuf> {
    eprintln!("building the daemon");
    cargo(top, &["build", "--release", "--locked", "-p", "poolcounterd"])?;
    Ok(target_dir(top).join("release/poolcounterd"))
}

fn build_engine(top: &Path) -> Result<PathBuf> {
    eprintln!("building the engine's benchmark");
    let bench = ["--manifest-path", "bench/Cargo.toml", "--bin", "engine-times"];
    cargo(top, &[&["build", "--release", "--locked"], &bench[..]].concat())?;
    Ok(target_dir(&top.join("bench")).join("release/engine-times"))
}

fn target_dir(folder: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder.join("target"), PathBuf::from)
}

/// What `command` prints. Fails if the command fails.
fn output(mut command: Command) -> Result<String> {
    let name = format!("{:?}", command.get_program());
    let done = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{name}: {e}"))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(format!("{name} failed").into())
    }
}

/// The engine's benchmark on the servers' core; one line for each number of keys.
fn run_engine(engine: &Path, core: usize, quick: bool) -> Result<Vec<EngineRow>> {
    eprintln!("measuring the engine alone");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["confine", "--core", &core.to_string(), "--"]).arg(engine);
    if quick {
        command.arg("--quick");
    }
    let rows: Option<Vec<EngineRow>> = output(command)?.lines().map(parse_engine_row).collect();
    rows.ok_or_else(|| "unexpected output of the engine's benchmark".into())
}

fn parse_engine_row(line: &str) -> Option<EngineRow> {
    let mut fields = line.split_whitespace();
    Some(EngineRow {
        keys: fields.next()?.parse().ok()?,
        pair_ns: fields.next()?.parse().ok()?,
        worst_insert_ms: fields.next()?.parse().ok()?,
    })
}

/// One core for the servers, another for the load.
fn choose_cores(args: &Args) -> Result<(usize, usize)> {
    let cores = process::cores()?;
    if cores.len() < 2 && (args.server_core.is_none() || args.load_core.is_none()) {
        return Err("two cores are needed: one for the server, one for the load".into());
    }
    Ok((args.server_core.unwrap_or_else(|| cores[0]), args.load_core.unwrap_or_else(|| cores[1])))
}

/// Runs all rounds. Within a round, each scenario measures all programs one right
/// after the other; each round begins with a different program.
fn measure_all(
    scenarios: &[&'static Scenario],
    programs: &[Program],
    core: usize,
    rounds: usize,
    scale: &Scale,
) -> Outcome {
    let steps =
        |s: &Scenario| programs.iter().filter(|p| s.suits(p)).count() * rounds.min(s.rounds_max);
    let mut progress = Progress::new(scenarios.iter().map(|s| steps(s)).sum());
    let mut outcome = Outcome {
        samples: Vec::new(),
        failures: Vec::new(),
        programs: programs.iter().map(|p| p.name.clone()).collect(),
        rounds,
        engine: Vec::new(),
    };
    for round in 0..rounds {
        for scenario in scenarios.iter().filter(|s| round < s.rounds_max) {
            let turns = (0..programs.len()).map(|turn| &programs[(round + turn) % programs.len()]);
            for program in turns.filter(|p| scenario.suits(p)) {
                progress.begin(round, rounds, scenario.name, &program.name);
                let result = (scenario.run)(program, core, scale);
                outcome.take(scenario.name, program, round, &mut progress, result);
            }
        }
    }
    outcome
}

impl Outcome {
    /// Takes the figures of `program`, or why there are none.
    fn take(
        &mut self,
        scenario: &'static str,
        program: &Program,
        round: usize,
        progress: &mut Progress,
        result: Result<Figures>,
    ) {
        let program = program.name.clone();
        match result {
            Ok(figures) => {
                progress.end(&figures);
                self.samples.push(Sample { scenario, program, round, figures });
            }
            Err(why) => {
                progress.fail(&why.to_string());
                self.failures.push(format!("{scenario}, {program}, round {}: {why}", round + 1));
            }
        }
    }
}

/// Shows on stderr what is being measured: one line that changes on a terminal,
/// otherwise a line for each measurement.
struct Progress {
    total: usize,
    done: usize,
    start: Instant,
    terminal: bool,
    headline: String,
}

impl Progress {
    fn new(total: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { total, done: 0, start: Instant::now(), terminal, headline: String::new() }
    }

    fn begin(&mut self, round: usize, rounds: usize, scenario: &str, program: &str) {
        let passed_s = self.start.elapsed().as_secs_f64();
        let left = match self.done {
            0 => String::new(),
            done => {
                let left_s = passed_s / done as f64 * (self.total - done) as f64;
                format!(", about {left_s:.0} s left")
            }
        };
        self.headline = format!(
            "[{}/{}{left}] round {}/{rounds} {scenario} {program}",
            self.done + 1,
            self.total,
            round + 1
        );
        if self.terminal {
            eprint!("\r\x1b[K{}", self.headline);
            let _ = std::io::stderr().flush();
        }
    }

    fn end(&mut self, figures: &Figures) {
        self.done += 1;
        if !self.terminal {
            let first = figures.first().map(|(name, value)| {
                let unit = METRICS.iter().find(|m| m.name == *name).map_or("", |m| m.unit);
                format!(": {} {unit}", human(*value))
            });
            eprintln!("{}{}", self.headline, first.unwrap_or_default());
        } else if self.done == self.total {
            eprint!("\r\x1b[K");
        }
    }

    fn fail(&mut self, why: &str) {
        self.done += 1;
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{} FAILED: {why}", self.headline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_rows_are_three_numbers() {
        let row = EngineRow { keys: 1000, pair_ns: 151.5, worst_insert_ms: 0.02 };
        assert_eq!(parse_engine_row("1000 151.5 0.02"), Some(row));
        assert_eq!(parse_engine_row("keys pair worst"), None);
    }
}
