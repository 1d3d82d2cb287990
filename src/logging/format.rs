//! How lines look: as env_logger formats them, or as the journal reads them. [`stderr`] writes
//! them.

use crate::logging::stderr;
use log::{Level, LevelFilter, Record};
use std::io::{self, Write};

/// Formats each line that it is given, whatever its level, and passes it to [`stderr`].
pub(super) fn formatter() -> env_logger::Logger {
    let mut builder = env_logger::Builder::new();
    builder.filter_level(LevelFilter::Trace);
    builder.target(env_logger::Target::Pipe(Box::new(LogWriter)));
    if stderr::goes_to_journal() {
        builder.format(write_for_journal);
    }
    builder.build()
}

/// env_logger's target: it writes one line a call.
struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !stderr::write_line(line) {
            stderr::count_dropped(1);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The journal adds time and name itself, and reads the priority from the start of
/// the line (sd-daemon(3)).
fn write_for_journal(out: &mut env_logger::fmt::Formatter, record: &Record<'_>) -> io::Result<()> {
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    writeln!(out, "<{priority}>{}", record.args())
}
