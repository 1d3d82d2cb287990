//! How many instructions the operations of the engine and of the whole daemon take,
//! counted by callgrind. Unlike times, the counts are the same on a busy machine, so a
//! test can check them.
//!
//! Each case of [`cases`] runs in its own process under callgrind, which counts only
//! within [`measured`]. [`whole_daemon`] runs the daemon instead. The counts are compared
//! with those in `bench/instructions.txt`; a count more than [`TOLERANCE`] above its record
//! is a failure. The record is valid for one compiler and one C library: with others, the
//! counts are shown and nothing fails.
//!
//! `--record` rewrites the file. `--case NAME` runs one case; callgrind runs that.

mod cases;
mod whole_daemon;
#[path = "../../worst_keys.rs"]
mod worst_keys;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cases::CASES;
use whole_daemon::EXCHANGES;

/// How much a count may rise. Runs differ by 0.1 %, because each hashes keys with a
/// different seed.
const TOLERANCE: f64 = 0.05;

const COUNTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");

/// Errors are messages for the user.
type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [] => compare(),
        ["--record"] => record(),
        ["--case", name] => run_case(name),
        _ => Err("usage: instructions [--record | --case NAME]".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run_case(name: &str) -> Result<()> {
    let case = CASES.iter().find(|case| case.name == name);
    let mut work = (case.ok_or_else(|| format!("no case {name}"))?.prepare)();
    measured(&mut work);
    Ok(())
}

/// Callgrind counts while this function runs.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
}

fn record() -> Result<()> {
    let mut text = String::from(
        "# Instructions an operation; written by `make bench-instructions RECORD=--record`.\n",
    );
    writeln!(text, "{}", environment()?).expect("a string");
    for measurement in measurements() {
        let line = format!("{} {:.1}", measurement.name(), measurement.count()?);
        println!("{line}");
        text += &line;
        text.push('\n');
    }
    std::fs::write(COUNTS, text).map_err(|e| format!("{COUNTS}: {e}"))
}

fn compare() -> Result<()> {
    if let Err(why) = output_of(Command::new(valgrind()).arg("--version")) {
        println!("SKIPPED: instruction counts: {why}");
        let is_ci = std::env::var_os("CI").is_some();
        return if is_ci { Err("SKIPPED, but CI is set".to_owned()) } else { Ok(()) };
    }
    let text = std::fs::read_to_string(COUNTS).map_err(|e| format!("{COUNTS}: {e}"))?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let recorded_with = lines.next().unwrap_or_default();
    let here = environment()?;
    let recorded: Vec<(&str, f64)> = lines.map(parse_count).collect::<Result<_>>()?;

    let mut risen = Vec::new();
    println!("{:28} {:>10} {:>10} {:>8}", "instructions", "recorded", "now", "");
    for measurement in measurements() {
        let name = measurement.name();
        let before = recorded.iter().find(|(recorded, _)| *recorded == name);
        let &(_, before) = before.ok_or_else(|| format!("{COUNTS} has no {name}"))?;
        let now = measurement.count()?;
        let change = now / before - 1.0;
        println!("{name:28} {before:>10.1} {now:>10.1} {:>+7.1}%", change * 100.0);
        if change > TOLERANCE {
            risen.push(name);
        }
    }
    if here != recorded_with {
        println!("Not checked against the recorded counts, which are of\n  {recorded_with}");
        println!("and not of\n  {here}");
        return Ok(());
    }
    if risen.is_empty() {
        return Ok(());
    }
    Err(format!(
        "More instructions than recorded by over {:.0} %: {}.\n\
         Where they go: callgrind_annotate {}/NAME.out\n\
         If they are worth it: make bench-instructions RECORD=--record, and say why in the commit.",
        TOLERANCE * 100.0,
        risen.join(", "),
        profile_directory().display(),
    ))
}

enum Measurement {
    Engine(&'static cases::Case),
    Daemon(&'static whole_daemon::Exchange),
}

fn measurements() -> impl Iterator<Item = Measurement> {
    let of_engine = CASES.iter().map(Measurement::Engine);
    of_engine.chain(EXCHANGES.iter().map(Measurement::Daemon))
}

impl Measurement {
    fn name(&self) -> &'static str {
        match self {
            Measurement::Engine(case) => case.name,
            Measurement::Daemon(exchange) => exchange.name,
        }
    }

    /// Instructions per operation.
    fn count(&self) -> Result<f64> {
        match self {
            Measurement::Engine(case) => count(case),
            Measurement::Daemon(exchange) => exchange.count(),
        }
    }
}

fn parse_count(line: &str) -> Result<(&str, f64)> {
    let words = line.split_once(' ');
    let count = words.and_then(|(name, count)| Some((name, count.parse().ok()?)));
    count.ok_or_else(|| format!("{COUNTS}: {line:?} is not a name and a count"))
}

/// What the counts depend on besides the source: the compiler, and the C library,
/// whose allocator and memcpy are counted too.
fn environment() -> Result<String> {
    let compiler = output_of(Command::new("rustc").arg("-V"))?;
    let library = output_of(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    Ok(format!("{}, {}, {}", compiler.trim(), std::env::consts::ARCH, library.trim()))
}

/// Instructions per operation of `case`.
fn count(case: &cases::Case) -> Result<f64> {
    let profile = profile_directory().join(format!("{}.out", case.name));
    let this_program = std::env::current_exe().map_err(|e| e.to_string())?;
    std::fs::create_dir_all(profile_directory()).map_err(|e| e.to_string())?;
    let mut option = OsString::from("--callgrind-out-file=");
    option.push(&profile);
    output_of(
        Command::new(valgrind())
            .args(["-q", "--tool=callgrind", "--toggle-collect=instructions::measured"])
            .arg(option)
            .arg(this_program)
            .args(["--case", case.name]),
    )?;
    let total = total_in(&profile)?;
    if total == 0 {
        return Err(format!("callgrind never saw measured() in {}", case.name));
    }
    Ok(total as f64 / case.operations as f64)
}

fn valgrind() -> OsString {
    std::env::var_os("VALGRIND").unwrap_or_else(|| "valgrind".into())
}

fn profile_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/callgrind")
}

/// The line `totals: N` of callgrind's output.
fn total_in(profile: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(profile).map_err(|e| e.to_string())?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.and_then(|total| total.trim().parse().ok());
    total.ok_or_else(|| format!("{} has no total", profile.display()))
}

fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name}: {}\n{stderr}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
