//! Log lines: filter, format, rate limits ([`limited`]), counts of dropped lines. [`stderr`]
//! writes them without ever blocking.

use crate::logging::stderr;
use crate::platform::clock;
use crate::platform::os::env;
use engine::Time;
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde::{Deserialize, Serialize};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// The filter if nothing else is given.
const DEFAULT_FILTER: &str = "info";

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

/// Checks the argument of `--log`.
pub(crate) fn check_filter(text: &str) -> Result<String, String> {
    Filter::parse(text).map(|filter| filter.text)
}

/// Replaces the filter of the running daemon.
///
/// # Errors
/// What is expected; the filter is unchanged.
pub(crate) fn set_filter(text: &str) -> Result<(), String> {
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

/// What a hot restart carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggingState {
    /// The rest of a partly written line.
    rest: Vec<u8>,
    /// Dropped lines that are not reported yet.
    dropped: u64,
}

/// The state to hand over.
pub(crate) fn state() -> LoggingState {
    let (rest, dropped) = stderr::left();
    LoggingState { rest, dropped }
}

/// Continues from the old image's state. To be called before the first line is logged.
pub(crate) fn resume(state: LoggingState) {
    stderr::resume(state.rest, state.dropped);
}

/// When [`retry`] has work to do.
pub(crate) fn next_deadline() -> Option<Time> {
    stderr::next_deadline()
}

/// Retries writing the rest of a line and the number of dropped lines. To be called
/// in each turn of the loop; costs nothing before its deadline.
pub(crate) fn retry(now: Time) {
    if stderr::next_deadline().is_some_and(|deadline| deadline <= now) {
        log_suppressed();
    }
}

/// Writes pending lines; waits once, briefly, if standard error is full. To be called
/// before the daemon exits.
pub(crate) fn flush_briefly() {
    log_suppressed();
    if stderr::next_deadline().is_some() {
        stderr::wait_a_moment();
        log_suppressed();
    }
}

fn log_suppressed() {
    if stderr::flush() {
        if let Some(logger) = LOGGER.get() {
            logger.log_dropped();
        }
    }
}

/// As in a new process.
#[cfg(test)]
pub(crate) fn forget() {
    stderr::resume(Vec::new(), 0);
    forget_limits();
    if let Some(logger) = LOGGER.get() {
        logger.replace_filter(Filter::default());
    }
}

/// Writes a message for the person at the terminal to standard error, without time or level.
/// Waits once, briefly, if standard error is full.
pub fn print(message: &str) {
    let line = format!("{message}\n");
    if stderr::write_line(line.as_bytes()) != stderr::Written::Taken {
        stderr::wait_a_moment();
        stderr::write_line(line.as_bytes());
    }
    flush_briefly();
}

/// Filters lines, formats them with env_logger, and passes them to [`stderr`].
struct Logger {
    filter: RwLock<Filter>,
    formatter: env_logger::Logger,
}

impl Logger {
    fn new() -> Logger {
        let mut builder = env_logger::Builder::new();
        builder.filter_level(LevelFilter::Trace);
        builder.target(env_logger::Target::Pipe(Box::new(LogWriter)));
        if stderr::goes_to_journal() {
            builder.format(write_for_journal);
        }
        Logger { filter: RwLock::new(Filter::default()), formatter: builder.build() }
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
    fn enabled(&self, metadata: &Metadata) -> bool {
        self.read_filter().parsed.enabled(metadata)
    }

    fn log(&self, record: &Record) {
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

/// env_logger's target: it writes one line a call.
struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if stderr::write_line(line) == stderr::Written::Refused {
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
fn write_for_journal(out: &mut env_logger::fmt::Formatter, record: &Record) -> io::Result<()> {
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    writeln!(out, "<{priority}>{}", record.args())
}

/// Logs a panic regardless of the filter. The standard library's own message could
/// block.
fn log_panic(panic: &PanicHookInfo) {
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

/// Selects the lines to log.
struct Filter {
    parsed: env_filter::Filter,
    text: String,
}

impl Default for Filter {
    fn default() -> Self {
        let parsed = env_filter::Builder::new().filter_level(LevelFilter::Info).build();
        Filter { parsed, text: DEFAULT_FILTER.to_owned() }
    }
}

impl Filter {
    fn parse(text: &str) -> Result<Filter, String> {
        let refuse = |word: &str| {
            Err(format!(
                "{word:?}: expected error, warn, info, debug, trace or off, or a module with its \
                 level such as poolcounterd::operator::control_socket=debug"
            ))
        };
        let words = text.split_once('/').map_or(text, |(words, _)| words);
        if words.trim().is_empty() {
            return refuse(text);
        }
        // env_filter takes an unknown word as a module to log at every level.
        if let Some(word) = words.split(',').map(str::trim).find(|word| !is_directive(word)) {
            return refuse(word);
        }
        match env_filter::Builder::new().try_parse(text) {
            Ok(builder) => Ok(Filter { parsed: builder.build(), text: text.to_owned() }),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// Whether a word is a level, or a module of the daemon with or without a level.
fn is_directive(word: &str) -> bool {
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let is_ours = |module: &str| {
        let rest = module.strip_prefix(env!("CARGO_PKG_NAME"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    match word.split_once('=') {
        Some((module, level)) => is_ours(module.trim()) && is_level(level.trim()),
        None => word.is_empty() || is_level(word) || is_ours(word),
    }
}

/// The limits that were used.
static KNOWN: Mutex<Vec<&'static Limit>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<&'static Limit>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs how many lines were dropped and not reported yet, and resets all limits.
pub(crate) fn report_suppressed() {
    for limit in known().iter() {
        match limit.reset() {
            0 => {}
            n => (limit.report)(n),
        }
    }
}

/// As in a new process.
#[cfg(test)]
fn forget_limits() {
    known().iter().for_each(|limit| _ = limit.reset());
}

/// The limit of one place in the source, made by [`limited`]: admits a line every ten
/// seconds, and counts the rest.
pub(crate) struct Limit {
    /// Logs how many lines were dropped.
    report: fn(u64),
    state: Mutex<LimitState>,
}

struct LimitState {
    is_known: bool,
    last: Option<Time>,
    suppressed: u64,
}

impl Limit {
    const INTERVAL_NS: u64 = 10_000_000_000;

    pub(crate) const fn new(report: fn(u64)) -> Self {
        let state = LimitState { is_known: false, last: None, suppressed: 0 };
        Limit { report, state: Mutex::new(state) }
    }

    /// `None` if the line must be dropped; otherwise what to append to it about
    /// earlier dropped lines.
    pub(crate) fn allow(&'static self) -> Option<String> {
        let was_known = std::mem::replace(&mut self.lock().is_known, true);
        if !was_known {
            known().push(self);
        }
        let now = clock::now();
        let mut state = self.lock();
        if state.last.is_some_and(|last| now.ns_since(last) < Self::INTERVAL_NS) {
            state.suppressed += 1;
            return None;
        }
        state.last = Some(now);
        Some(match std::mem::take(&mut state.suppressed) {
            0 => String::new(),
            n => format!(" ({n} more like this were not logged)"),
        })
    }

    /// Admits the next line again. Returns how many were dropped.
    fn reset(&self) -> u64 {
        let mut state = self.lock();
        state.last = None;
        std::mem::take(&mut state.suppressed)
    }

    fn lock(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs like `warn!` or `error!`, but at most one line every ten seconds for each
/// place of use. The next line, or a line before a hot restart, reports how many were omitted.
/// Arguments are evaluated only for a written line.
///
/// ```text
/// limited!(warn, "{} does not read its answers and is disconnected", peer_of(&socket));
/// ```
macro_rules! limited {
    ($level:ident, $format:literal $($arguments:tt)*) => {{
        static LIMIT: $crate::logging::logger::Limit =
            $crate::logging::logger::Limit::new(|count| {
                log::$level!("{count} more like this were not logged: {}", $format)
            });
        if let Some(suppressed) = LIMIT.allow() {
            log::$level!("{}{suppressed}", format_args!($format $($arguments)*));
        }
    }};
}
pub(crate) use limited;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn filters_that_would_log_nothing_are_refused() {
        for right in [
            "off",
            "DEBUG",
            "warn,poolcounterd::operator::control_socket=debug",
            "poolcounterd=trace",
            "poolcounterd",
            "info/max-hold",
        ] {
            assert_eq!(check_filter(right), Ok(right.to_owned()));
        }
        for wrong in ["", "loud", "info,loud", "info=debug", "poolcounterd=loud", "control=debug"] {
            let why = check_filter(wrong).expect_err(wrong);
            assert!(why.contains("error, warn, info, debug"), "{wrong}: {why}");
        }
    }

    #[test]
    fn what_was_dropped_is_reported_once_before_a_restart() {
        let _alone = crate::simulation::alone();
        static SAID: AtomicU64 = AtomicU64::new(0);
        static LIMIT: Limit = Limit::new(|count| _ = SAID.fetch_add(count, Ordering::Relaxed));
        (0..4).for_each(|_| drop(LIMIT.allow()));
        (0..2).for_each(|_| report_suppressed());
        assert_eq!(SAID.load(Ordering::Relaxed), 3);
        assert_eq!(LIMIT.allow().as_deref(), Some(""));
    }

    #[test]
    fn each_place_has_a_limit_of_its_own() {
        let mut evaluated = 0;
        let mut count = || {
            evaluated += 1;
            evaluated
        };
        let _alone = crate::simulation::alone();
        log::set_max_level(log::LevelFilter::Error);
        for _ in 0..3 {
            limited!(error, "one place: {}", count());
        }
        limited!(error, "another place: {}", count());
        log::set_max_level(log::LevelFilter::Off);
        assert_eq!(evaluated, 2);
    }
}
