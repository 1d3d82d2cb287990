//! The bytes are operations on the engine, and the model of the simulation has
//! to agree with it after each. `make test` shrinks what fails and prints it as
//! a script, once it lies in `fuzz/seeds/engine/`.

use crate::simulation::script::{Bytes, Script};

/// libFuzzer's inputs are shorter than that many steps.
const STEPS_MAX: usize = 4_096;

pub(crate) fn script(data: &[u8]) -> Script {
    Script::generate(&mut Bytes(data), STEPS_MAX)
}

/// # Panics
/// When the engine does, or differs from the model.
pub(crate) fn check(data: &[u8]) {
    if let Err(what) = script(data).run(|_, _| ()) {
        panic!("{what}");
    }
}
