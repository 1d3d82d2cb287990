//! What operators can change at run time: the log filter (`LOG`) and the hold limits
//! (`MAX-HOLD`).

use crate::engine::HoldLimit;
use crate::server::options::Options;
use crate::server::telling::logging;
use serde::{Deserialize, Serialize};

/// The settings, by option and by order. An order beats the option until a hot restart
/// brings a different option.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunTimeSettings {
    log_option: Option<String>,
    log_order: Option<String>,
    max_hold_option: Vec<HoldLimit>,
    max_hold_order: Option<Vec<HoldLimit>>,
}

impl RunTimeSettings {
    pub(crate) fn new(options: &Options) -> Self {
        RunTimeSettings {
            log_option: options.log.clone(),
            max_hold_option: options.max_hold.clone(),
            ..RunTimeSettings::default()
        }
    }

    /// Replaces the filter of the log.
    ///
    /// # Errors
    /// What is expected; the filter is unchanged.
    pub(crate) fn set_log(&mut self, filter: String) -> Result<(), String> {
        logging::set_filter(&filter)?;
        self.log_order = Some(filter);
        Ok(())
    }

    /// Sets the hold limits. The caller passes them to the engine.
    pub(crate) fn set_max_hold(&mut self, limits: Vec<HoldLimit>) {
        self.max_hold_order = Some(limits);
    }

    pub(crate) fn hold_limits(&self) -> &[HoldLimit] {
        self.max_hold_order.as_ref().unwrap_or(&self.max_hold_option)
    }

    /// Continues in a new image with these options. Returns the orders that end, because
    /// their option has changed to something else.
    pub(crate) fn resume(&mut self, options: &Options) -> Vec<String> {
        let mut ended = Vec::new();
        if self.log_option != options.log {
            let filter =
                self.log_order.take().filter(|filter| Some(filter) != options.log.as_ref());
            ended.extend(filter.map(|filter| format!("LOG {filter}")));
        }
        if self.max_hold_option != options.max_hold {
            let limits = self.max_hold_order.take().filter(|limits| *limits != options.max_hold);
            ended.extend(limits.map(|limits| format!("MAX-HOLD {}", written(&limits))));
        }
        let kept = std::mem::replace(self, RunTimeSettings::new(options));
        self.log_order = kept.log_order;
        self.max_hold_order = kept.max_hold_order;
        ended
    }

    /// Applies the ordered filter in a new image, which has started with that of its
    /// options.
    pub(crate) fn apply_log(&self) {
        if let Some(filter) = &self.log_order {
            // The old image has checked it. If it accepted other words than this one, the
            // option applies.
            let _ = logging::set_filter(filter);
        }
    }
}

/// Hold limits as operators write them.
pub(crate) fn written(limits: &[HoldLimit]) -> String {
    let limits: Vec<String> = limits.iter().map(HoldLimit::to_string).collect();
    if limits.is_empty() { "none".to_owned() } else { limits.join(" ") }
}
