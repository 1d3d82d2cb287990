//! The rules behind a key, a hold or a wait as a word.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

/// One word for the rule that limits and the one that denies: `search`, `bots(denied)`,
/// `search,bots(denied)`, or a dash without rules.
pub fn rules_text(rule: Option<&str>, denied_by: Option<&str>) -> String {
    match (rule, denied_by) {
        (None, None) => "-".to_owned(),
        (Some(rule), None) => rule.to_owned(),
        (Some(rule), Some(denied_by)) if rule != denied_by => {
            format!("{rule},{denied_by}(denied)")
        }
        (_, Some(denied_by)) => format!("{denied_by}(denied)"),
    }
}
