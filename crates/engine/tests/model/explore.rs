//! The engine in every state of a small scope: three clients, one key, few locks,
//! time in half seconds. The search is breadth first, so that a failure has a
//! shortest path.
//!
//! Two states are the same if the model distinguishes them only by the names of the clients. To
//! visit a state, a real engine with a random past follows the path to it; then a copy of the
//! engine takes each possible step.

use crate::simulation::model::{Lock, State};
use crate::simulation::pair::Pair;
use crate::simulation::script::{Choices, Step};
use engine::Time;
use protocol::Mode;
use std::collections::HashMap;
use std::panic::{self, AssertUnwindSafe};

const CLIENTS: u32 = 3;
const HALF_SECOND_NS: u64 = 500_000_000;
const OVERDUE_NS_MAX: i128 = 1_000_000_000;

/// What is explored.
pub(crate) struct Scope {
    /// The numbers of the rules that are in force at first, and of those that may follow.
    pub(crate) rules: &'static [u8],
    /// The most locks in a state, held or waited for.
    pub(crate) locks_max: usize,
}

/// How much was explored.
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) transitions: usize,
}

/// A state, and the path on which it was first reached.
struct Found {
    place: Place,
    from: usize,
    step: Step,
}

/// The model's shape, and whether the engine was restarted on the path. A restart
/// does not change the model, and must not be visible in the engine.
type Place = (Shape, bool);

/// Takes every step in every state of `scope`.
///
/// # Panics
/// When the engine and the model differ. The message has the path.
pub(crate) fn explore<C: Choices>(scope: &Scope, choices: impl Fn(u64) -> C) -> Explored {
    let start: Place = (Shape { rules: scope.rules[0], locks: Vec::new() }, false);
    let mut known = HashMap::from([(start.clone(), 0)]);
    let mut found = vec![Found { place: start, from: 0, step: Step::Expire }];
    let mut explored = Explored { states: 0, transitions: 0 };
    while explored.states < found.len() {
        let number = explored.states;
        let path = path_to(&found, number);
        let pair = reach(scope, &path, choices(number as u64));
        let here = found[number].place.clone();
        assert_eq!(Shape::of(&pair), here.0, "another state after {path:?}");
        for step in steps(scope, &here.0) {
            let after = (take(&pair, &path, step), here.1 || step == Step::Restart);
            explored.transitions += 1;
            if after.0.len() <= scope.locks_max && !known.contains_key(&after) {
                known.insert(after.clone(), found.len());
                found.push(Found { place: after, from: number, step });
            }
        }
        explored.states += 1;
    }
    explored
}

/// Everything that a model's future depends on. Two models with one key have the same
/// shape if they differ only in the names of their clients, in absolute times and in
/// their pasts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    /// The number of the rules in force.
    rules: u8,
    locks: Vec<LockShape>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LockShape {
    /// Clients are numbered in the order in which they appear.
    client: usize,
    state: &'static str,
    /// The time until the deadline; negative once it has passed.
    left_ns: Option<i128>,
    /// In the order in which waits and holds began.
    place: usize,
    /// In the order in which timers were started.
    timer_place: usize,
    /// What the request of a waiter allows.
    workers: Option<u64>,
    /// The rule that has shortened the wait.
    shortened: Option<String>,
}

impl Shape {
    fn of(pair: &Pair) -> Self {
        let (locks, now) = (&pair.model.locks, pair.now);
        let mut names = Vec::new();
        let place = |number: fn(&Lock) -> u64, of: &Lock| {
            locks.iter().filter(|lock| number(lock) < number(of)).count()
        };
        let mut shape_of = |lock: &Lock| {
            let name = names.iter().position(|&client| client == lock.client);
            let left_ns = lock.deadline_ns.map(|at_ns| at_ns as i128 - i128::from(now.as_ns()));
            LockShape {
                client: name.unwrap_or_else(|| {
                    names.push(lock.client);
                    names.len() - 1
                }),
                state: match lock.state {
                    State::Held => "held",
                    State::Waiting(Mode::ForMe) => "waits for me",
                    State::Waiting(Mode::ForAnyone) => "waits for anyone",
                },
                left_ns,
                place: place(|lock| lock.nth, lock),
                timer_place: place(|lock| lock.started, lock),
                workers: (lock.state != State::Held).then_some(lock.workers),
                shortened: lock.shortened.clone(),
            }
        };
        Shape { rules: pair.rules, locks: locks.iter().map(&mut shape_of).collect() }
    }

    /// The number of locks.
    fn len(&self) -> usize {
        self.locks.len()
    }

    /// How long ago the earliest deadline was; negative before it.
    fn overdue_ns(&self) -> i128 {
        self.locks
            .iter()
            .filter_map(|lock| lock.left_ns)
            .map(|left_ns| -left_ns)
            .max()
            .unwrap_or(-1)
    }
}

/// All that can happen in the state `shape`.
fn steps(scope: &Scope, shape: &Shape) -> impl Iterator<Item = Step> {
    let others = scope.rules.iter().filter(|&&rules| rules != shape.rules);
    let changes: Vec<Step> = others.map(|&number| Step::SetRules { number }).collect();
    // Once everything that can be overdue is overdue, more time changes nothing.
    let may_advance = shape.overdue_ns() < OVERDUE_NS_MAX;
    let advance = may_advance.then_some(Step::Advance { by_ns: HALF_SECOND_NS });
    let acquire = |slot, mode, workers, timeout_s| Step::Acquire {
        slot,
        mode,
        key: 1,
        workers,
        max_queue: 4,
        timeout_s,
    };
    let of_client = move |slot| {
        [
            acquire(slot, Mode::ForMe, 1, 1),
            acquire(slot, Mode::ForAnyone, 1, 1),
            acquire(slot, Mode::ForMe, 2, 2),
            Step::Release { slot },
            Step::Disconnect { slot },
        ]
    };
    let of_all = [Step::Expire, Step::Restart].into_iter().chain(advance);
    (0..CLIENTS).flat_map(of_client).chain(of_all).chain(changes)
}

fn path_to(found: &[Found], number: usize) -> Vec<Step> {
    let before = |&number: &usize| Some(found[number].from);
    let numbers = std::iter::successors(Some(number), before).take_while(|&number| number > 0);
    let mut path: Vec<Step> = numbers.map(|number| found[number].step).collect();
    path.reverse();
    path
}

/// An engine and a model that have followed `path` after a random past.
fn reach(scope: &Scope, path: &[Step], mut choices: impl Choices) -> Pair {
    let mut pair = Pair::new(choices.below(1 << 60), scope.rules[0]);
    let mut past = Vec::new();
    for _ in 0..choices.below(16) {
        past.push(step_of_past(&mut choices));
    }
    past.extend((0..6).map(|slot| Step::Disconnect { slot }));
    past.push(Step::Expire);
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        past.iter().try_for_each(|step| pair.take(step))?;
        advance_into_tick(&mut pair);
        path.iter().try_for_each(|step| pair.take(step))
    }));
    if !matches!(result, Ok(Ok(()))) {
        panic!("{result:?}\nafter the past {past:?}\nand {path:?}");
    }
    pair
}

/// Moves to a time from which half seconds never lead to the start of a tick: 2^20 ns
/// divides no odd number plus a multiple of 2^8.
fn advance_into_tick(pair: &mut Pair) {
    let next_tick_ns = pair.now.as_ns().next_multiple_of(1 << 20);
    pair.now = Time::from_ns(next_tick_ns + 12_345);
}

fn step_of_past(choices: &mut impl Choices) -> Step {
    let slot = choices.below(6) as u32;
    match choices.below(8) {
        0 => Step::Release { slot },
        1 => Step::Disconnect { slot },
        2 => Step::Advance { by_ns: choices.below(1 << 31) },
        3 => Step::Expire,
        n => Step::Acquire {
            slot,
            mode: if n < 6 { Mode::ForMe } else { Mode::ForAnyone },
            key: 1 + choices.below(3) as u8,
            workers: 1 + choices.below(2) as u32,
            max_queue: 10,
            timeout_s: choices.below(4),
        },
    }
}

/// The state that a copy of `pair` reaches by `step`.
fn take(pair: &Pair, path: &[Step], step: Step) -> Shape {
    let mut pair = pair.clone();
    match panic::catch_unwind(AssertUnwindSafe(|| pair.take(&step))) {
        Ok(Ok(())) => Shape::of(&pair),
        failure => panic!("{failure:?}\nat {step:?} after {path:?}"),
    }
}
