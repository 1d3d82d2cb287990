//! What `LOG` and `RULE` set at run time, and what of it a hot restart ends.

use crate::logging::filter::FilterError;
use crate::logging::logger;
use crate::operator::rule_book::RuleBook;
use crate::options::Options;
use engine::rules::rule::Rule;
use serde::{Deserialize, Serialize};

/// The settings. A filter set by `LOG` overrides the option until a hot restart changes the
/// option.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunTimeSettings {
    log_option: Option<String>,
    log_order: Option<String>,
    /// The rules.
    pub rules: RuleBook,
}

impl RunTimeSettings {
    pub(crate) fn new(options: &Options, rules: RuleBook) -> Self {
        RunTimeSettings { log_option: options.log.clone(), log_order: None, rules }
    }

    /// Replaces the filter of the log.
    ///
    /// # Errors
    /// What is expected; the filter is unchanged.
    pub(crate) fn set_log(&mut self, filter: String) -> Result<(), FilterError> {
        logger::set_filter(&filter)?;
        self.log_order = Some(filter);
        Ok(())
    }

    /// Continues in a new image with these options and these rules of the file. Returns
    /// the orders that end, because their option or these rules have changed.
    pub(crate) fn resume(&mut self, options: &Options, file: Vec<Rule>) -> Vec<String> {
        let mut ended = Vec::new();
        if self.log_option != options.log {
            let filter =
                self.log_order.take().filter(|filter| Some(filter) != options.log.as_ref());
            ended.extend(filter.map(|filter| format!("LOG {filter}")));
            self.log_option = options.log.clone();
        }
        ended.extend(self.rules.resume(file, options.max_hold.clone()));
        ended
    }

    /// Applies the ordered filter in a new image, which has started with that of its
    /// options.
    pub(crate) fn apply_log(&self) {
        if let Some(filter) = &self.log_order {
            // The old image has checked it. If this image does not accept it, the option
            // applies.
            let _ = logger::set_filter(filter);
        }
    }
}
