//! Log lines: to standard error, in the form that whoever reads it wants.

use super::clock;
use crate::engine::Time;
use env_logger::{Builder, Env, Target};
use log::{Level, Record};
use std::io::{self, Write};

/// Starts logging. `filter` chooses what is logged; `RUST_LOG` without it, and
/// `info` without both.
pub(super) fn start(filter: Option<&str>) {
    let mut builder = Builder::from_env(Env::default().default_filter_or("info"));
    if let Some(filter) = filter {
        builder.parse_filters(filter);
    }
    builder.target(Target::Stderr);
    if goes_to_journal() {
        builder.format(write_for_journal);
    }
    // Fails only when a logger is set already; then that one serves.
    let _ = builder.try_init();
}

/// Whether standard error is the journal's: systemd.exec(5), `JOURNAL_STREAM`
/// names the device and inode of that stream.
fn goes_to_journal() -> bool {
    let Ok(stat) = rustix::fs::fstat(rustix::stdio::stderr()) else {
        return false;
    };
    let stderr = format!("{}:{}", stat.st_dev, stat.st_ino);
    std::env::var("JOURNAL_STREAM").is_ok_and(|stream| stream == stderr)
}

/// The journal adds the time and the name itself; the priority it reads from the
/// start of the line (sd-daemon(3)).
fn write_for_journal(out: &mut env_logger::fmt::Formatter, record: &Record) -> io::Result<()> {
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    writeln!(out, "<{priority}>{}", record.args())
}

/// Lets one log line of a kind through every ten seconds and counts the rest.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    last: Option<Time>,
    suppressed: u64,
}

impl RateLimit {
    const INTERVAL_NS: u64 = 10_000_000_000;

    /// Whether a line may be written now; and if so, what to append to it about
    /// those that were not.
    pub(super) fn admit(&mut self) -> Option<String> {
        let now = clock::now();
        if self.last.is_some_and(|last| now.ns_since(last) < Self::INTERVAL_NS) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(match std::mem::take(&mut self.suppressed) {
            0 => String::new(),
            n => format!(" ({n} more like this were not logged)"),
        })
    }
}
