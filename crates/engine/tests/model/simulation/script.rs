//! Operations on an engine in virtual time, made from any source of numbers: a seeded
//! generator, or the bytes of a fuzzer.

use crate::random::Random;
use protocol::Mode;
use std::fmt::{self, Display, Formatter};

/// One operation. Any list of operations, in any order, is valid, so that steps can
/// be removed from a script that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// From the client in `slot`. Key 0 means no key.
    Acquire {
        slot: u32,
        mode: Mode,
        key: u8,
        workers: u32,
        max_queue: u32,
        timeout_s: u64,
    },
    Release {
        slot: u32,
    },
    /// The client disconnects. The next one in `slot` is a new client.
    Disconnect {
        slot: u32,
    },
    /// The clients in all these slots disconnect together, as after `FREE`.
    DisconnectAll {
        first: u32,
        count: u32,
    },
    /// Time passes. Nothing expires before the next `Expire`.
    Advance {
        by_ns: u64,
    },
    /// Time passes until the earliest deadline, which usually lies within a tick.
    AdvanceToDeadline,
    /// Time passes until this long before the next wait or hold expires.
    AdvanceToRunOut {
        early_ns: u64,
    },
    /// Time passes until the engine's next deadline.
    AdvanceToNextLook,
    Expire,
    /// The engine is written as a snapshot, and another engine is made from that.
    Restart,
    /// The engine frees unused memory.
    Shrink,
    /// An operator sets the rules of this number.
    SetRules {
        number: u8,
    },
}

/// A whole run: when it starts, the number of its rules, and its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) start_ns: u64,
    pub(crate) rules: u8,
    pub(crate) steps: Vec<Step>,
}

/// The source of the choices in a script.
pub(crate) trait Choices {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64;

    /// Whether the choices have run out.
    fn is_empty(&self) -> bool;
}

impl Choices for Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// A step that is in [`KINDS`] more often is chosen more often.
#[derive(Clone, Copy)]
enum Kind {
    Acquire,
    Release,
    Disconnect,
    DisconnectAll,
    Advance,
    AdvanceToDeadline,
    AdvanceToRunOut,
    AdvanceToNextLook,
    Expire,
    Restart,
    Shrink,
    SetRules,
}

/// Another kind changes what the seeds in fuzz/seeds/engine mean.
const KINDS: &[Kind] = &[
    Kind::Acquire,
    Kind::Acquire,
    Kind::Acquire,
    Kind::Acquire,
    Kind::Acquire,
    Kind::Acquire,
    Kind::Release,
    Kind::Release,
    Kind::Disconnect,
    Kind::DisconnectAll,
    Kind::Advance,
    Kind::AdvanceToDeadline,
    Kind::AdvanceToRunOut,
    Kind::AdvanceToNextLook,
    Kind::Expire,
    Kind::Expire,
    Kind::Expire,
    Kind::Restart,
    Kind::Shrink,
    Kind::SetRules,
];

/// How many sets of rules there are.
pub(crate) const RULE_SETS: u64 = 12;

const SECOND_NS: u64 = 1_000_000_000;
const YEAR_S: u64 = 365 * 86_400;
/// What the clients of one run ask for: scarce locks make waiters, plentiful ones let
/// clients hold as many as they may.
const WORKERS: &[&[u32]] = &[&[1], &[1, 1, 2, 3], &[1, 1, 2, 2, 3, 5, 0, u32::MAX]];
const MAX_QUEUES: &[&[u32]] = &[&[u32::MAX], &[1, 2, 3, 4, 6, 10, 30, 0, u32::MAX]];
const TIMEOUTS_S: &[&[u64]] = &[
    &[1, 1, 2, 3],
    &[0, 1, 1, 2, 3, 15, 60, 86_400, YEAR_S, 500 * YEAR_S, 600 * YEAR_S, u64::MAX],
];

impl Script {
    /// At most `len_max` steps, fewer when `choices` run out.
    pub(crate) fn generate(choices: &mut impl Choices, len_max: usize) -> Self {
        let start_ns = match choices.below(8) {
            0 => 0,
            1 => u64::MAX - ns(choices, 40),
            _ => ns(choices, 60),
        };
        let habits = Habits::choose(choices);
        let mut steps = Vec::new();
        while steps.len() < len_max && !choices.is_empty() {
            steps.push(habits.step(choices));
        }
        Script { start_ns, rules: habits.rules, steps }
    }
}

/// The kind of a run. Few clients and keys make many conflicts; many make long
/// queues.
struct Habits {
    slots: u64,
    keys: u64,
    workers: &'static [u32],
    max_queues: &'static [u32],
    timeouts_s: &'static [u64],
    restarts: bool,
    rules: u8,
    changes_rules: bool,
}

impl Habits {
    fn choose(choices: &mut impl Choices) -> Self {
        Habits {
            slots: one_of(choices, &[2, 3, 6, 12, 40]),
            keys: one_of(choices, &[1, 1, 2, 5]),
            workers: one_of(choices, WORKERS),
            max_queues: one_of(choices, MAX_QUEUES),
            timeouts_s: one_of(choices, TIMEOUTS_S),
            restarts: choices.below(4) == 0,
            rules: one_of(choices, &[0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            changes_rules: choices.below(4) == 0,
        }
    }

    fn step(&self, choices: &mut impl Choices) -> Step {
        let kind = one_of(choices, KINDS);
        let mut slot = || choices.below(self.slots) as u32;
        match kind {
            Kind::Acquire => Step::Acquire {
                slot: slot(),
                mode: one_of(choices, &[Mode::ForMe, Mode::ForAnyone]),
                // 1 in 32 has no key.
                key: if choices.below(32) == 0 { 0 } else { 1 + choices.below(self.keys) as u8 },
                workers: one_of(choices, self.workers),
                max_queue: one_of(choices, self.max_queues),
                timeout_s: one_of(choices, self.timeouts_s),
            },
            Kind::Release => Step::Release { slot: slot() },
            Kind::Disconnect => Step::Disconnect { slot: slot() },
            Kind::DisconnectAll => {
                Step::DisconnectAll { first: slot(), count: 1 + choices.below(4) as u32 }
            }
            Kind::Advance => Step::Advance { by_ns: advance_ns(choices) },
            Kind::AdvanceToDeadline => Step::AdvanceToDeadline,
            Kind::AdvanceToRunOut => Step::AdvanceToRunOut { early_ns: choices.below(3) / 2 },
            Kind::AdvanceToNextLook => Step::AdvanceToNextLook,
            Kind::Restart if self.restarts => Step::Restart,
            Kind::Restart | Kind::Expire => Step::Expire,
            Kind::Shrink => Step::Shrink,
            Kind::SetRules if self.changes_rules => {
                Step::SetRules { number: choices.below(RULE_SETS) as u8 }
            }
            Kind::SetRules => Step::Expire,
        }
    }
}

fn advance_ns(choices: &mut impl Choices) -> u64 {
    match choices.below(16) {
        // Whole seconds, so that deadlines coincide.
        0..4 => SECOND_NS * choices.below(4),
        4..8 => ns(choices, 20),
        8..14 => ns(choices, 32),
        14 => ns(choices, 46),
        _ => ns(choices, 58),
    }
}

/// Less than 2^`bits` nanoseconds, spread evenly over magnitudes.
fn ns(choices: &mut impl Choices, bits: u64) -> u64 {
    let bits = choices.below(bits + 1);
    choices.below(1 << bits)
}

fn one_of<T: Copy>(choices: &mut impl Choices, these: &[T]) -> T {
    these[choices.below(these.len() as u64) as usize]
}

/// In a form that can be pasted into a test.
impl Display for Script {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "Script {{")?;
        writeln!(f, "    start_ns: {},", self.start_ns)?;
        writeln!(f, "    rules: {},", self.rules)?;
        writeln!(f, "    steps: vec![")?;
        for step in &self.steps {
            writeln!(f, "        {step:?},")?;
        }
        writeln!(f, "    ],")?;
        write!(f, "}}")
    }
}
