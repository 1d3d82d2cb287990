//! Sets logging up, for panics too; passes each line that [`filter`] selects to
//! [`format`](super::format); reports lines that could not be written; prints messages for the
//! person at the terminal. Lines about the log itself come from here.

use crate::logging::filter::{DEFAULT_FILTER, Filter, FilterError};
use crate::logging::format::formatter;
#[cfg(test)]
use crate::logging::rate_limit;
use crate::logging::stderr;
pub(crate) use crate::logging::stderr::{LoggingState, next_deadline, resume, state};
use crate::platform::os::env;
use engine::Time;
use log::{Level, Log, Metadata, Record};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::sync::{OnceLock, PoisonError, RwLock};

/// The variable that env_logger uses too.
const FILTER_VARIABLE: &str = "RUST_LOG";

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Starts logging, panics included. `filter` selects what is logged; without it
/// `RUST_LOG` does, without both [`DEFAULT_FILTER`].
pub(crate) fn start(filter: Option<&str>) {
    let from_environment = env::var(FILTER_VARIABLE).ok().filter(|text| !text.is_empty());
    let wanted = filter.map(str::to_owned).or(from_environment);
    let parsed = Filter::parse(wanted.as_deref().unwrap_or(DEFAULT_FILTER));
    let (filter, problem) = match parsed {
        Ok(filter) => (filter, None),
        Err(why) => (Filter::default(), Some(why)),
    };
    let level = filter.parsed.filter();
    let logger = LOGGER.get_or_init(Logger::new);
    logger.replace_filter(filter);
    // Fails only if a logger is already set, which is then used.
    let _ = log::set_logger(logger);
    log::set_max_level(level);
    std::panic::set_hook(Box::new(log_panic));
    if let Some(why) = problem {
        log::warn!("{FILTER_VARIABLE} is ignored, logging {DEFAULT_FILTER}: {why}");
    }
}

/// Replaces the filter of the running daemon.
///
/// # Errors
/// What is expected; the filter is unchanged.
pub(crate) fn set_filter(text: &str) -> Result<(), FilterError> {
    let filter = Filter::parse(text)?;
    if let Some(logger) = LOGGER.get() {
        log::set_max_level(filter.parsed.filter());
        logger.replace_filter(filter);
    }
    Ok(())
}

/// The filter in use, as it was given.
pub(crate) fn filter() -> String {
    let default = || DEFAULT_FILTER.to_owned();
    LOGGER.get().map_or_else(default, |logger| logger.read_filter().text.clone())
}

/// Retries writing the rest of a line and the number of dropped lines. To be called
/// in each turn of the loop; costs nothing before its deadline.
pub(crate) fn retry(now: Time) {
    if next_deadline().is_some_and(|deadline| deadline <= now) {
        log_pending();
    }
}

/// Writes pending lines; waits once, briefly, if standard error is full. To be called
/// before the daemon exits.
pub(crate) fn flush_briefly() {
    log_pending();
    if next_deadline().is_some() {
        stderr::wait_a_moment();
        log_pending();
    }
}

fn log_pending() {
    if stderr::flush() {
        if let Some(logger) = LOGGER.get() {
            logger.log_dropped();
        }
    }
}

/// As in a new process.
#[cfg(test)]
pub(crate) fn forget() {
    resume(LoggingState::default());
    rate_limit::forget();
    if let Some(logger) = LOGGER.get() {
        logger.replace_filter(Filter::default());
    }
}

/// Writes a message for the person at the terminal to standard error, without time or level.
/// Waits once, briefly, if standard error is full.
pub fn print(message: &str) {
    let line = format!("{message}\n");
    if !stderr::write_line(line.as_bytes()) {
        stderr::wait_a_moment();
        stderr::write_line(line.as_bytes());
    }
    flush_briefly();
}

/// The logger of the `log` crate: filters lines and formats them.
struct Logger {
    filter: RwLock<Filter>,
    formatter: env_logger::Logger,
}

impl Logger {
    fn new() -> Logger {
        Logger { filter: RwLock::new(Filter::default()), formatter: formatter() }
    }

    fn read_filter(&self) -> std::sync::RwLockReadGuard<'_, Filter> {
        self.filter.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace_filter(&self, filter: Filter) {
        *self.filter.write().unwrap_or_else(PoisonError::into_inner) = filter;
    }

    /// Logs how many lines were dropped since the last report, if any were. Returns
    /// false if that can't be written now.
    fn log_dropped(&self) -> bool {
        let dropped = stderr::take_dropped();
        if dropped == 0 {
            return true;
        }
        let text = format!("{dropped} log lines could not be written and were dropped");
        self.write(Level::Warn, &text);
        // The report itself does not count as a dropped line.
        let was_written = stderr::take_dropped() == 0;
        if !was_written {
            stderr::count_dropped(dropped);
        }
        was_written
    }

    /// Writes a line, whatever the filter says.
    fn write(&self, level: Level, text: &str) {
        let mut record = Record::builder();
        record.level(level).target(module_path!());
        self.formatter.log(&record.args(format_args!("{text}")).build());
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.read_filter().parsed.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.read_filter().parsed.matches(record) {
            return;
        }
        if self.log_dropped() {
            self.formatter.log(record);
        } else {
            stderr::count_dropped(1);
        }
    }

    fn flush(&self) {}
}

/// Logs a panic regardless of the filter. The standard library's own message could
/// block.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let Some(logger) = LOGGER.get() else {
        return;
    };
    logger.log_dropped();
    let backtrace = Backtrace::capture();
    let text = match backtrace.status() {
        BacktraceStatus::Captured => format!("{panic}\n{backtrace}"),
        _ => panic.to_string(),
    };
    logger.write(Level::Error, &text);
    flush_briefly();
}
