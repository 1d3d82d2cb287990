//! What operators see: which report answers which `STATS`, in text or JSON, what the scan must
//! collect for it, and Prometheus's text. The daemon calls it, for `STATS` and for its HTTP pages. It
//! may know the protocol and read-only views of the engine; without std, it names no socket, file,
//! clock or thread.
//!
//! `STATS FULL`, `STATS UPTIME` and single counters are answered at once ([`stats`]).
//! The others are made from a [`ReportView`], and some from a [`scan::Scan`], which walks all keys or all
//! connections in steps. Each is one value, which is written as JSON or, if it is a list, as a
//! [`text()`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// Appends a line. Writing to a `String` never fails.
macro_rules! line {
    ($text:expr, $($format:tt)+) => {
        writeln!($text, $($format)+).expect("a String")
    };
}

pub mod history;
pub mod json;
pub mod lists;
pub mod metrics;
mod metrics_text;
mod report_view;
pub mod rules;
pub mod scan;
#[cfg(test)]
mod tests;
mod text;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use engine::counts::statistics::{COUNTERS_IN_FULL, Counters, Times};
use engine::rules::pattern::Pattern;
use engine::{Engine, Time};
use protocol::{List, Query};
use report_view::Seconds;
pub use report_view::{Peers, ROWS_MAX, ReportView, RuleOrders, ServerFigures};
use scan::ScanParts;
use schema::table::Uptime;
pub use text::text;

/// The answer to `STATS`, if it needs no view.
#[derive(Debug, PartialEq, Eq)]
pub enum StatsAnswer {
    /// The text.
    Text(Vec<u8>),
    /// It is a report.
    Report,
    /// There is no such statistic.
    Unknown,
}

/// The answer if keys that match a pattern are hidden: who may not see keys can't guess them either.
pub const HIDDEN_MATCHES: &str = "ERROR PRIVATE keys are hidden here; as root on the daemon's host: \
    poolcounter control STATS JSON KEYS 200 PATTERN\n";

/// Answers `STATS`, as far as the engine alone can; keys are hidden if `is_private`.
pub fn stats(query: &Query, engine: &Engine, now: Time, is_private: bool) -> StatsAnswer {
    let uptime = Uptime(now.ns_since(engine.started()) / 1_000_000_000);
    let text = match query {
        Query::Full => full(engine, uptime),
        Query::Uptime => format!("uptime: {uptime}\n"),
        Query::Counter(name) => match Counters::ALL.iter().find(|counter| counter.name == name) {
            Some(counter) => format!("{name}: {}\n", (counter.get)(&engine.counters)),
            None => return StatsAnswer::Unknown,
        },
        Query::MatchingKeys(query) if Pattern::parse(&query.pattern).is_err() => {
            return StatsAnswer::Unknown;
        }
        Query::MatchingKeys(query) if is_private && query.pattern != b"*" => HIDDEN_MATCHES.into(),
        Query::Json
        | Query::History
        | Query::MatchingKeys(_)
        | Query::List(_)
        | Query::JsonList(_) => return StatsAnswer::Report,
    };
    StatsAnswer::Text(text.into_bytes())
}

/// What has to be scanned before `query` can be answered.
pub fn wants_of(query: &Query) -> ScanParts {
    let (keys, clients) = match query {
        Query::Json => (true, true),
        Query::MatchingKeys(_) => (true, false),
        Query::List(list) | Query::JsonList(list) => {
            (matches!(list, List::Keys(_)), matches!(list, List::Clients(_)))
        }
        _ => (false, false),
    };
    ScanParts { keys, clients }
}

/// Existing scrapers expect this order and wording, and wait for the blank line at the end.
fn full(engine: &Engine, uptime: Uptime) -> String {
    let mut text = format!("uptime: {uptime}\n");
    let (counters, times) = (&engine.counters, engine.times());
    for line in Times::LINES {
        line!(text, "{}: {}", line.label, Seconds((line.ns)(counters, times)));
    }
    for counter in &Counters::ALL[..COUNTERS_IN_FULL] {
        line!(text, "{}: {}", counter.name, (counter.get)(counters));
    }
    text + "\n"
}
