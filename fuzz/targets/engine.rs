//! Runs `checks/engine.rs` under libFuzzer: see there.
#![no_main]

#[path = "../checks/engine.rs"]
mod engine;
#[path = "../../tests/simulation/mod.rs"]
mod simulation;

libfuzzer_sys::fuzz_target!(|data: &[u8]| engine::check(data));
