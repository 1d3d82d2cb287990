//! What simulation, fuzzing and the replay of fuzz seeds share: operations in virtual
//! time ([`script`]), the protocol as a simple model ([`model`]), and the engine and
//! the model side by side ([`pair`]). Fuzzing and tests of hot restarts include it by its path.

pub(crate) mod model;
pub(crate) mod pair;
pub(crate) mod script;
