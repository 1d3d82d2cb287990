//! What `STATS JSON` says about rules that orders have set, in words, for `top` and `check`.

use schema::reports::RuleFigures;

/// How many rules orders have set or turned off, and since when; `None` if there are none, or the
/// server does not say.
pub(super) fn by_orders(rules: &RuleFigures) -> Option<String> {
    counted("rules set by orders", rules.by_orders, rules.orders_since.as_deref())
}

/// The same of those orders that have no end.
pub(super) fn without_end(rules: &RuleFigures) -> Option<String> {
    counted("rules set by orders without --for", rules.endless, rules.endless_since.as_deref())
}

fn counted(what: &str, count: usize, since: Option<&str>) -> Option<String> {
    let since = since.map(|since| format!(", since {since}"));
    (count > 0).then(|| format!("{what}: {count}{}", since.unwrap_or_default()))
}
