//! What a new binary does when the daemon asks it, in a forked child, whether it could
//! take over.

use crate::simulation::kernel::kernel;
use crate::{Task, dry_run};
use std::ffi::OsString;

/// Runs it, as `main` would; returns the exit status.
pub(super) fn run(arguments: &[OsString]) -> i32 {
    // Its standard error is /dev/null; the logger here is that of the daemon itself.
    let level = log::max_level();
    log::set_max_level(log::LevelFilter::Off);
    let (answer, status) = match Task::from_words(arguments) {
        Ok(Task::ReadSnapshot(options)) => match dry_run(&options) {
            Ok(answer) => (answer, 0),
            Err(why) => (why.to_string(), 1),
        },
        Ok(other) => panic!("a trial that is none: {other:?}"),
        Err(e) => (e.to_string().lines().next().unwrap_or_default().to_owned(), 1),
    };
    log::set_max_level(level);
    let line = format!("{answer}\n");
    let written = kernel(|k| k.write(1, line.as_bytes()));
    if written.is_err() { 1 } else { status }
}
