//! The numbers that decide what Linux leaves open. A seed draws them, and they are recorded; a
//! recorded list repeats those of a turn, whatever other turns draw.

use crate::simulation::random::Random;
use std::fmt::{self, Debug, Formatter};

/// What decides a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choices {
    Seed(u64),
    /// These numbers, in this order, and 0 from then on.
    Drawn(&'static [u64]),
}

impl Choices {
    /// Nothing unusual happens.
    pub(crate) const USUAL: Choices = Choices::Drawn(&[]);
}

/// As a pasted script needs it.
impl Debug for Choices {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Choices::Seed(seed) => write!(f, "Choices::Seed({seed})"),
            Choices::Drawn(numbers) => write!(f, "Choices::Drawn(&{numbers:?})"),
        }
    }
}

enum Source {
    Seed(Random),
    Recorded(&'static [u64]),
}

/// Where the kernel draws all its random numbers.
pub(crate) struct Draws {
    source: Source,
    /// What each turn has drawn.
    turns: Vec<Vec<u64>>,
}

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Draws { source: Source::Seed(Random(seed)), turns: Vec::new() }
    }

    pub(crate) fn begin_turn(&mut self, choices: Choices) {
        self.source = match choices {
            Choices::Seed(seed) => Source::Seed(Random(seed)),
            Choices::Drawn(numbers) => Source::Recorded(numbers),
        };
        self.turns.push(Vec::new());
    }

    /// What each turn has drawn, from the first one on.
    pub(crate) fn recorded(&self) -> &[Vec<u64>] {
        &self.turns
    }

    /// A number below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.draw(bound, |random, bound| random % bound)
    }

    /// A number below the bound, for a draw in which 0 is usual: a seed gives `bound - 1`
    /// where [`Draws::below`] gives 0.
    pub(crate) fn below_reversed(&mut self, bound: u64) -> u64 {
        self.draw(bound, |random, bound| bound - 1 - random % bound)
    }

    fn draw(&mut self, bound: u64, reduce: impl FnOnce(u64, u64) -> u64) -> u64 {
        let bound = bound.max(1);
        let number = match &mut self.source {
            Source::Seed(random) => reduce(random.next(), bound),
            Source::Recorded([]) => 0,
            Source::Recorded([first, rest @ ..]) => {
                let number = (*first).min(bound - 1);
                self.source = Source::Recorded(rest);
                number
            }
        };
        if let Some(turn) = self.turns.last_mut() {
            turn.push(number);
        }
        number
    }
}
