//! The list of rules, for operators.

use super::report_view::{ReportView, ShortDuration};
use super::scan::Scan;
use crate::engine::Time;
use crate::engine::rules::rule::Rule;
use crate::engine::rules::{RULES_MAX, Rules};
use crate::protocol::key_text;
use std::fmt::Write as _;

/// A rule, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSource {
    /// The rule.
    pub rule: Rule,
    /// An operator has set it, or turned it off.
    pub is_set: bool,
    /// It is not in force.
    pub is_off: bool,
    /// When it ends.
    pub until: Option<Time>,
}

impl RuleSource {
    fn word(&self) -> &'static str {
        match self {
            RuleSource { is_off: true, .. } => "off",
            RuleSource { is_set: true, .. } => "set",
            RuleSource { rule, .. } if rule.name.is_empty() => "option",
            _ => "file",
        }
    }
}

/// What applies to `key`, as a line: its group, and each setting with the rule that it comes
/// from.
pub fn explain(rules: &Rules, key: &[u8]) -> String {
    let matches = rules.matching(key);
    let group = &rules.groups()[rules.group_of(matches)].name;
    let settings = rules.settings_of(matches).into_iter().map(|(setting, rule)| {
        let name = if rule.name.is_empty() { "--max-hold" } else { &rule.name };
        format!(" {setting} ({name})")
    });
    format!("{}: group {group}{}\n", key_text(key), settings.collect::<String>())
}

/// Those in force in the order in which they apply, then those that are off. A blank line
/// ends it.
pub fn rules(view: &ReportView, scan: &Scan, sources: &[RuleSource]) -> String {
    let mut text = String::new();
    let rules = view.engine.rules();
    line!(text, "rules: {} of {RULES_MAX}", rules.in_force().len());
    line!(text, "seen: {}", super::lists::seen(view, scan));
    line!(text, "   keys holders waiters    changed from          left rule");
    for source in sources {
        let number = rules.in_force().iter().position(|r| r.rule == source.rule);
        let [keys, holders, waiters, changed] = match number.filter(|_| !source.is_off) {
            Some(n) => {
                let seen = scan.of_rule(n);
                [seen.keys, seen.holders, seen.waiters, rules.in_force()[n].changed]
                    .map(|count| count.to_string())
            }
            None => ["-"; 4].map(str::to_owned),
        };
        let left = source.until.map(|until| ShortDuration(until.ns_since(view.now)));
        let left = left.map_or_else(|| "-".to_owned(), |left| left.to_string());
        let (word, rule) = (source.word(), &source.rule);
        line!(text, "{keys:>7} {holders:>7} {waiters:>7} {changed:>10} {word:6} {left:>11} {rule}");
    }
    text.push('\n');
    text
}
