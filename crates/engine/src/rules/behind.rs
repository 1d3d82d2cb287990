//! Which rules are behind a slow hold or wait, or limit a key, by name: what reports keep, because
//! the numbers of rules change with an order.

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

/// One word: `search`, `bots(denied)`, `search,bots(denied)`, or a dash without rules.
impl Display for RulesBehind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.rule, &self.denied_by) {
            (None, None) => f.write_str("-"),
            (Some(rule), None) => f.write_str(rule),
            (Some(rule), Some(denied_by)) if rule != denied_by => {
                write!(f, "{rule},{denied_by}(denied)")
            }
            (_, Some(denied_by)) => write!(f, "{denied_by}(denied)"),
        }
    }
}
