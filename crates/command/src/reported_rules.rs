//! What `STATS JSON` says about rules: those that orders have set, in words, for `top` and
//! `check`; the rules that limit a key, for lists.

use protocol::rules_text;
use serde_json::Value;

/// How many rules orders have set or turned off, and since when; `None` if there are none, or the
/// server does not say.
pub(super) fn by_orders(report: &Value) -> Option<String> {
    let rules = &report["rules"];
    counted("rules set by orders", &rules["by_orders"], &rules["orders_since"])
}

/// The same of those orders that have no end.
pub(super) fn without_end(report: &Value) -> Option<String> {
    let rules = &report["rules"];
    counted("rules set by orders without --for", &rules["endless"], &rules["endless_since"])
}

fn counted(what: &str, count: &Value, since: &Value) -> Option<String> {
    let count = count.as_u64().filter(|&count| count > 0)?;
    let since = since.as_str().map(|since| format!(", since {since}"));
    Some(format!("{what}: {count}{}", since.unwrap_or_default()))
}

/// The first rule that limits a key, and the one that denies it, as `STATS KEYS` shows them.
pub(super) fn limiting_rules(key: &Value) -> String {
    rules_text(key["limited_by"][0].as_str(), key["denied_by"].as_str())
}
