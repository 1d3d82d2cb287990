//! Which rules are behind a slow hold or wait, or limit a key, by name: what reports keep, because
//! the numbers of rules change with an order.

use alloc::string::String;
use core::fmt::{self, Display, Formatter};
use protocol::rules_text;
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

/// As [`rules_text`].
impl Display for RulesBehind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(&rules_text(self.rule.as_deref(), self.denied_by.as_deref()))
    }
}
