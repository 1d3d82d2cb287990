//! The bytes are operations on the engine. The model of the simulation must agree
//! with the engine after each of them.

use crate::simulation::script::{Choices, Script};

/// Short scripts explore more in the same time: each step compares everything.
const STEPS_MAX: usize = 500;

pub(crate) fn script(data: &[u8]) -> Script {
    Script::generate(&mut Bytes(data), STEPS_MAX)
}

/// The choices of a fuzzer: its bytes, in order.
struct Bytes<'a>(&'a [u8]);

impl Choices for Bytes<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        let mut number: u64 = 0;
        let mut reach: u64 = 1;
        // Uses no more bytes than the bound needs.
        while reach < bound {
            let (&byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
            self.0 = rest;
            number = number << 8 | u64::from(byte);
            reach = reach.saturating_mul(256);
        }
        number % bound
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
