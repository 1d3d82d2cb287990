//! Which lines are logged: the filter of `--log`, `RUST_LOG` and the operators.

use log::LevelFilter;

/// The filter if nothing else is given.
pub(super) const DEFAULT_FILTER: &str = "info";

/// Selects the lines to log.
pub(super) struct Filter {
    pub(super) parsed: env_filter::Filter,
    /// As it was given.
    pub(super) text: String,
}

errors! {
    /// Why a text is no filter.
    pub enum FilterError {
        /// This word selects nothing.
        Word(word: String) =
            "{word:?}: expected error, warn, info, debug, trace or off, or a module with its \
             level such as poolcounterd::operator::control_socket=debug";
        /// It can't be parsed.
        Text(e: env_filter::ParseError) = "{e}";
    }
}

impl Default for Filter {
    fn default() -> Self {
        let parsed = env_filter::Builder::new().filter_level(LevelFilter::Info).build();
        Filter { parsed, text: DEFAULT_FILTER.to_owned() }
    }
}

impl Filter {
    /// # Errors
    /// What is expected.
    pub(super) fn parse(text: &str) -> Result<Filter, FilterError> {
        let words = text.split_once('/').map_or(text, |(words, _)| words);
        if words.trim().is_empty() {
            return Err(FilterError::Word(text.to_owned()));
        }
        // env_filter takes an unknown word as a module to log at every level.
        if let Some(word) = words.split(',').map(str::trim).find(|word| !is_directive(word)) {
            return Err(FilterError::Word(word.to_owned()));
        }
        let parsed = env_filter::Builder::new().try_parse(text).map_err(FilterError::Text)?.build();
        Ok(Filter { parsed, text: text.to_owned() })
    }
}

/// Checks the argument of `--log`.
pub(crate) fn check_filter(text: &str) -> Result<String, String> {
    Filter::parse(text).map(|filter| filter.text).map_err(|e| e.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
