//! Simulation: random operations in virtual time, on the engine and on a model that
//! is simple enough to check by reading. After each step, every answer, every
//! statistic and the order of all answers must be the same.
//!
//! Also explores every state of a small scope (`explore.rs`).
//!
//! The script of a seed that fails is shrunk and printed. `SIM_SEED=17 cargo test -p
//! poolcounter-engine --test model against_model` runs that seed alone; `SIM_RUNS=100000` runs
//! more of them.

use crate::explore::{self, Explored, Scope};
use crate::random::{Random, number_from_environment};
use crate::shrink;
use crate::simulation::pair::Pair;
use crate::simulation::script::{Script, Step};
use protocol::{Mode, Reply};
use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// 1,650,000 steps in all.
const RUNS: u64 = 1_100;
const STEPS_PER_RUN: usize = 1_500;

/// How long a seed may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// What happened, and how often.
type Tally = BTreeMap<(&'static str, &'static str), u64>;

#[test]
fn the_engine_behaves_like_the_model() {
    if let Some(seed) = number_from_environment("SIM_SEED") {
        run(seed, &mut Tally::new());
        return;
    }
    let runs = number_from_environment("SIM_RUNS").unwrap_or(RUNS);
    let tally = run_all(runs);
    for ((when, reply), times) in &tally {
        println!("{times:9} × {reply} {when}");
    }
    if runs >= RUNS {
        assert_nothing_is_rare(&tally);
    }
}

/// Runs the seeds below `runs` on another thread, so that a seed that hangs can be
/// named.
fn run_all(runs: u64) -> Tally {
    let (finished, news) = mpsc::channel();
    let runner = thread::spawn(move || {
        let mut tally = Tally::new();
        for seed in 0..runs {
            run(seed, &mut tally);
            finished.send(seed).expect("the test waits for it");
        }
        tally
    });
    let mut running = 0;
    loop {
        // Before a seed that fails panics, its script is shrunk.
        match news.recv_timeout(PATIENCE) {
            Ok(seed) => running = seed + 1,
            Err(RecvTimeoutError::Timeout) => panic!("it hangs; {}", replay(running)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn replay(seed: u64) -> String {
    format!("SIM_SEED={seed} cargo test -p poolcounter-engine --test model against_model")
}

/// A simulation shows nothing about what it never reaches.
fn assert_nothing_is_rare(tally: &Tally) {
    for (when, reply) in [
        (AT_ONCE, Reply::LockHeld),
        (AT_ONCE, Reply::WaitForResponse),
        (AT_ONCE, Reply::BadSyntax),
        (AT_ONCE, Reply::QueueFull),
        (AT_ONCE, Reply::Locked),
        (AT_ONCE, Reply::Timeout),
        (AT_RELEASE, Reply::NotLocked),
        (AT_RELEASE, Reply::Done),
        (AT_RELEASE, Reply::Locked),
        (AT_RELEASE, Reply::Released),
        (AT_DISCONNECT, Reply::Locked),
        (AT_LOOK, Reply::Timeout),
        (AT_LOOK, Reply::Locked),
    ] {
        let times = tally.get(&(when, text(reply))).copied().unwrap_or(0);
        assert!(times >= 4_000, "{reply:?} {when}: {times} times");
    }
}

const AT_ONCE: &str = "at an ACQ";
const AT_RELEASE: &str = "at a RELEASE";
const AT_DISCONNECT: &str = "at a disconnect";
const AT_LOOK: &str = "as time passed";

/// Runs the script of `seed` and counts what happens.
fn run(seed: u64, tally: &mut Tally) {
    let script = Script::generate(&mut Random(seed), STEPS_PER_RUN);
    let count = |step: &Step, pair: &Pair| {
        let when = match step {
            Step::Acquire { .. } => AT_ONCE,
            Step::Release { .. } => AT_RELEASE,
            Step::Disconnect { .. } | Step::DisconnectAll { .. } => AT_DISCONNECT,
            _ => AT_LOOK,
        };
        for &(_, reply) in &pair.answers {
            *tally.entry((when, text(reply))).or_default() += 1;
        }
    };
    shrink::check(&script, &replay(seed), count);
}

/// `SIM_LOCKS=4 cargo test -p poolcounter-engine --test model every_state` explores up to four locks
/// with rules too, which takes ten times as long.
#[test]
fn the_engine_is_right_in_every_state_of_a_small_scope() {
    explore(&[0], 4, 10_000);
}

#[test]
fn the_engine_is_right_in_every_state_of_a_small_scope_with_a_hold_limit() {
    explore(&[1], 3, 4_000);
}

#[test]
fn the_engine_is_right_in_every_state_of_a_small_scope_while_rules_change() {
    explore(&[10, 11], 3, 12_000);
}

fn explore(rules: &'static [u8], locks_max: usize, states_min: usize) {
    let locks_max = number_from_environment("SIM_LOCKS").map_or(locks_max, |locks| locks as usize);
    let Explored { states, transitions } = explore::explore(&Scope { rules, locks_max }, Random);
    println!("{states} states and {transitions} transitions, with up to {locks_max} locks");
    assert!(states >= states_min, "the scope is smaller than it was: {states} states");
}

fn text(reply: Reply) -> &'static str {
    std::str::from_utf8(reply.as_bytes()).expect("replies are text").trim_end()
}

#[test]
fn a_seed_is_always_the_same_script() {
    let script = |seed| Script::generate(&mut Random(seed), 100);
    assert_eq!(script(5), script(5));
    assert_ne!(script(5), script(6));
}

#[test]
fn shrinking_leaves_the_steps_that_matter() {
    let acquire = Step::Acquire {
        slot: 1,
        mode: Mode::ForMe,
        key: 1,
        workers: 1,
        max_queue: 1,
        timeout_s: 0,
    };
    let mut script = Script::generate(&mut Random(1), 1_000);
    script.steps.insert(300, acquire);
    script.steps.insert(700, Step::Advance { by_ns: 4_242 });
    let fails = |script: &Script| {
        let after = script.steps.iter().skip_while(|&&step| step != acquire);
        after.clone().any(|&step| step == Step::Advance { by_ns: 4_242 })
    };
    let shortest = shrink::shrink(&script, fails);
    assert_eq!(shortest.start_ns, 0);
    assert_eq!(shortest.steps, [acquire, Step::Advance { by_ns: 4_242 }]);
}
