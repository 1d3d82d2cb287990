//! Runs the operations of `checks/engine.rs` under libFuzzer. What fails is shrunk
//! and printed as a script by `cargo test --test fuzz_seeds`, once it lies in
//! `seeds/engine/`.
#![no_main]

#[path = "../checks/engine.rs"]
mod engine;
#[path = "../../tests/simulation/mod.rs"]
mod simulation;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(what) = engine::script(data).run(|_, _| ()) {
        panic!("{what}");
    }
});
