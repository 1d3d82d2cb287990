//! Which rules are behind a slow hold or wait, or limit a key, by name: what reports keep, because
//! the numbers of rules change with an order.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt::{self, Display, Formatter};
use serde::{Deserialize, Serialize};

/// Which rules are behind a hold or a wait, or limit a key, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RulesBehind {
    /// The rule that ended it; otherwise the first one that limits the key.
    pub rule: Option<String>,
    /// The rule that denies the key to newcomers.
    pub denied_by: Option<String>,
}

impl Display for RulesBehind {
    /// One word: `search`, `bots(denied)`, `search,bots(denied)`, or a dash without rules.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(&match (self.rule.as_deref(), self.denied_by.as_deref()) {
            (None, None) => "-".to_owned(),
            (Some(rule), None) => rule.to_owned(),
            (Some(rule), Some(denied_by)) if rule != denied_by => {
                format!("{rule},{denied_by}(denied)")
            }
            (_, Some(denied_by)) => format!("{denied_by}(denied)"),
        })
    }
}
