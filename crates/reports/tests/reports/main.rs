//! Reports as pure functions of an engine: no socket, no clock.

// Not all of it is used here.
#[allow(dead_code)]
#[path = "../../../../tests/support/random.rs"]
mod random;
mod texts;
mod top;
