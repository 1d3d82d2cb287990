//! Runs `checks/http.rs` under libFuzzer.
#![no_main]

#[path = "../checks/http.rs"]
mod http;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http::check(data));
