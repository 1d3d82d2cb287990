//! The page at `/` in Debian's Chromium, which `make test-browser` fetches.

#![allow(
    clippy::disallowed_methods,
    reason = "they measure, and Chromium tells no event for what a page shows"
)]

mod browser;
mod page;
#[path = "../support/mod.rs"]
mod support;
