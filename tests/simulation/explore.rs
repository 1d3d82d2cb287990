//! Runs scripts from many seeds; shrinks a failing one, and prints it with the numbers that it
//! drew.

use super::invariants::Violation;
use super::kernel::draws::Choices;
use super::kernel::kernel;
use super::random::{number_from_environment, seed_of_the_day};
use super::scripts::steps::{Script, Step};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// The logger's state is process-wide: a run that logs is alone.
static LOGS: RwLock<()> = RwLock::new(());

/// Waits until no other run is under way, and keeps others from starting.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    LOGS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Plays a script.
///
/// # Errors
/// What is wrong, or a panic of the tests themselves.
pub(super) fn judge(script: &Script) -> Result<(usize, usize), Violation> {
    let _alone = script.logs.then(alone);
    let _shared = (!script.logs).then(|| LOGS.read().unwrap_or_else(PoisonError::into_inner));
    if script.logs {
        crate::logging::logger::forget();
    }
    let judged = judge_alone(script);
    if script.logs {
        log::set_max_level(log::LevelFilter::Off);
        // The daemon's panic hook would write into the simulated log.
        drop(std::panic::take_hook());
        crate::logging::logger::forget();
    }
    judged
}

fn judge_alone(script: &Script) -> Result<(usize, usize), Violation> {
    match catch_unwind(AssertUnwindSafe(|| script.play())) {
        Ok(Ok(play)) => Ok((play.turns, play.restarts)),
        Ok(Err(why)) => Err(why),
        Err(_) => Err("a panic".to_owned()),
    }
}

/// The most smaller scripts that are tried: without a bound, some failures take minutes to print.
const TRIES_MAX: usize = 2_000;

/// Makes a script that fails smaller.
struct Shrinker {
    tries_left: usize,
}

impl Shrinker {
    /// Nothing fails once all tries are used up.
    fn fails(&mut self, script: &Script) -> bool {
        let may_try = self.tries_left > 0;
        self.tries_left -= usize::from(may_try);
        may_try && judge(script).is_err()
    }

    /// Removes steps as long as the script still fails.
    fn shrink(&mut self, script: &Script) -> Script {
        let mut smallest = script.clone();
        let mut piece = smallest.steps.len().div_ceil(2);
        while piece > 0 {
            let mut at = 0;
            while at < smallest.steps.len() {
                let mut shorter = smallest.clone();
                shorter.steps.drain(at..(at + piece).min(smallest.steps.len()));
                if self.fails(&shorter) {
                    smallest = shorter;
                } else {
                    at += piece;
                }
            }
            piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
        }
        smallest
    }

    /// Replaces the seed of each turn by the numbers that the turn draws, and these by 0 where the
    /// script fails nevertheless. If it fails only with its seeds, it keeps them.
    fn record(&mut self, script: &Script) -> Script {
        let _ = judge(script);
        let count = script.steps.iter().filter(|step| matches!(step, Step::Turn { .. })).count();
        let mut turns: Vec<Vec<u64>> =
            kernel(|k| k.draws.recorded().iter().take(count).cloned().collect());
        let with = |turns: &[Vec<u64>]| {
            let choices: Vec<Choices> = turns.iter().map(|turn| drawn(turn)).collect();
            script.with_choices(&choices)
        };
        if judge(&with(&turns)).is_ok() {
            return script.clone();
        }
        for n in 0..turns.len() {
            let mut piece = turns[n].len();
            while piece > 0 {
                for at in (0..turns[n].len()).step_by(piece) {
                    let mut simpler = turns.clone();
                    simpler[n].iter_mut().skip(at).take(piece).for_each(|number| *number = 0);
                    if simpler != turns && self.fails(&with(&simpler)) {
                        turns = simpler;
                    }
                }
                piece /= 2;
            }
        }
        with(&turns)
    }
}

/// The numbers without the zeros at the end, which are drawn without a list too. They stay in
/// memory, as those of a script in the source do.
fn drawn(numbers: &[u64]) -> Choices {
    let used = numbers.iter().rposition(|&number| number > 0).map_or(0, |last| last + 1);
    Choices::Drawn(numbers[..used].to_vec().leak())
}

/// Also reports what fails only the first time: then some state outlives a script.
fn report_failure(seed: u64, turns: usize, script: &Script, first: &str) -> ! {
    let which = format!("SERVER_SIM_TURNS={turns} SERVER_SIM_SEED={seed}");
    let mut shrinker = Shrinker { tries_left: TRIES_MAX };
    let shrunk = shrinker.shrink(script);
    let shrunk = shrinker.record(&shrunk);
    match judge(&shrunk) {
        Err(why) => panic!("{which} fails: {why}\nwith\n{shrunk}"),
        Ok(_) => panic!("{which} fails, but only the first time: {first}"),
    }
}

/// The first seed, unless `SERVER_SIM_SEEDS` is set: always the same, so that a failure is due to
/// the last change. `make simulate` sets it, and plays other seeds each day.
const USUAL_SEED: u64 = 20_778_000_000;

/// Plays the seeds on two threads, from the first one on.
#[test]
fn the_server_in_a_simulated_world() {
    let turns = number_from_environment("SERVER_SIM_TURNS").unwrap_or(500) as usize;
    let seed = number_from_environment("SERVER_SIM_SEED");
    let (first, seeds) = match (seed, number_from_environment("SERVER_SIM_SEEDS")) {
        (None, None) => (USUAL_SEED, 2_000),
        (None, Some(seeds)) => (seed_of_the_day(), seeds),
        (Some(seed), seeds) => (seed, seeds.unwrap_or(1)),
    };
    let failed = AtomicBool::new(false);
    let (next, turned, restarted) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= seeds || failed.load(Ordering::Relaxed) {
                        return;
                    }
                    let script = Script::generate(first + n, turns);
                    match judge(&script) {
                        Ok((turns, restarts)) => {
                            turned.fetch_add(turns as u64, Ordering::Relaxed);
                            restarted.fetch_add(restarts as u64, Ordering::Relaxed);
                        }
                        Err(_) if failed.swap(true, Ordering::Relaxed) => return,
                        Err(why) => report_failure(first + n, turns, &script, &why),
                    }
                }
            });
        }
    });
    println!("{seeds} seeds from {first}: {turned:?} turns, {restarted:?} hot restarts");
}

/// Including its log, except the wall clock at the start of each line.
#[test]
fn a_seed_repeats_exactly() {
    let log_of = |seed| {
        let script = Script { logs: true, ..Script::generate(seed, 300) };
        let judged = judge(&script).expect("no invariant is violated");
        let lines = kernel(|k| k.log.was_read.iter().flatten().copied().collect::<Vec<u8>>());
        (judged, lines.split(|&b| b == b'\n').map(without_time).collect::<Vec<_>>())
    };
    // Nothing is left of a line that ends within its time.
    fn without_time(line: &[u8]) -> Vec<u8> {
        let end = line.iter().position(|&b| b == b' ').unwrap_or(line.len());
        line[end..].to_vec()
    }
    for seed in 0..20 {
        let (first, second) = (log_of(seed), log_of(seed));
        assert!(first.1.len() > 1 && first == second, "seed {seed}");
    }
}
