//! Runs the operations of `checks/engine.rs` under libFuzzer. Put an input that fails
//! into `seeds/engine/`: `cargo test --test fuzz_seeds` shrinks it and prints
//! it as a script.
#![no_main]

#[path = "../checks/engine.rs"]
mod engine;
// Not all of it is used here.
#[allow(dead_code)]
#[path = "../../tests/support/random.rs"]
mod random;
#[path = "../../crates/engine/tests/model/simulation/mod.rs"]
mod simulation;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(what) = engine::script(data).run(|_, _| ()) {
        panic!("{what}");
    }
});
