//! Runs `checks/handoff.rs` under libFuzzer.
#![no_main]

#[path = "../checks/handoff.rs"]
mod handoff;
#[path = "../../tests/support/snapshot.rs"]
mod whole_snapshot;

libfuzzer_sys::fuzz_target!(|data: &[u8]| handoff::check(data));
