//! Runs `checks/control.rs` under libFuzzer.
#![no_main]

#[path = "../checks/control.rs"]
mod control;

libfuzzer_sys::fuzz_target!(|data: &[u8]| control::check(data));
