//! The page at `/` in Debian's Chromium, which `make test-browser` fetches.

mod browser;
mod page;
#[path = "../support/mod.rs"]
mod support;
