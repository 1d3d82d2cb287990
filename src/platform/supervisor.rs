//! What a supervisor such as systemd passes in variables of the environment: the time of its
//! watchdog, and how many descriptors are sockets to serve. A value that is not meant for this
//! process is ignored.

use crate::platform::os::fd::RawFd;
use crate::platform::os::{env, process};
use log::warn;
use std::io;
use std::ops::Range;

/// The first descriptor that is passed: SD_LISTEN_FDS_START.
const FIRST_PASSED: RawFd = 3;

/// How long the supervisor waits for a sign of life, in nanoseconds: sd_watchdog_enabled(3).
/// `None` if it does not wait. A value that is no time is ignored with a warning.
pub(crate) fn watchdog_ns() -> Option<u64> {
    let text = text_of("WATCHDOG_USEC").filter(|text| !text.is_empty())?;
    let is_for_us = env::var("WATCHDOG_PID").map_or(true, |pid| is_ours(&pid));
    let us: Option<u64> = digits(&text).filter(|&us| us > 0);
    if us.is_none() && is_for_us {
        warn!("ignored: WATCHDOG_USEC={text:?} is not a number of microseconds, at least 1");
    }
    us.filter(|_| is_for_us).map(|us| us.saturating_mul(1_000))
}

/// The descriptors that are sockets to serve: sd_listen_fds(3). None if they are meant for another
/// process.
///
/// # Errors
/// They are for this process, but their number can't be one.
pub(crate) fn passed_descriptors() -> io::Result<Range<RawFd>> {
    let none = FIRST_PASSED..FIRST_PASSED;
    if !env::var("LISTEN_PID").is_ok_and(|pid| is_ours(&pid)) {
        return Ok(none);
    }
    let Some(text) = text_of("LISTEN_FDS") else { return Ok(none) };
    let end = digits(&text).and_then(|count: RawFd| FIRST_PASSED.checked_add(count));
    let end = end.ok_or_else(|| io::Error::other(format!("{text:?} is not a number of them")))?;
    Ok(FIRST_PASSED..end)
}

/// Bytes that are not UTF-8 are no number either.
fn text_of(variable: &str) -> Option<String> {
    Some(env::var_os(variable)?.to_string_lossy().into_owned())
}

fn is_ours(pid: &str) -> bool {
    digits(pid) == Some(process::id())
}

/// A number in decimal digits alone: unlike `parse`, without a sign.
fn digits<Number: std::str::FromStr>(text: &str) -> Option<Number> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}
