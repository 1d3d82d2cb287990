//! Rules as reports show them: `RULES` and `--check-rules`.

use super::lists::{bounded, seen};
use super::report_view::{ROWS_BYTES_MAX, ReportView, seconds};
use super::scan::Scan;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use engine::Time;
use engine::rules::rule::Rule;
use engine::rules::{RULES_MAX, Rules};
use protocol::key_text;
use schema::reports::{ListReport, RulesReport};
use schema::rows::RuleRow;
use schema::words;

/// A rule, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSource {
    /// The rule.
    pub rule: Rule,
    /// Where it comes from.
    pub origin: RuleOrigin,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOrigin {
    /// The file of rules.
    File,
    /// `--max-hold`.
    Option,
    /// An operator has set it.
    Set {
        /// When it ends.
        until: Option<Time>,
    },
    /// Not in force: it lies below an order for a time, and applies again after that.
    Below,
    /// Not in force: an operator has turned it off.
    Off,
}

/// What applies to `key`, as a line: its group, and each setting with the rule that it comes
/// from.
pub fn explain(rules: &Rules, key: &[u8]) -> String {
    let matches = rules.matching(key);
    let group = &rules.groups()[rules.group_of(matches)].name;
    let settings = matches.iter().flat_map(|n| {
        let name = rules.in_force()[n].rule.shown_name();
        rules.settings(matches, n).map(move |(_, word)| format!(" {word} ({name})"))
    });
    format!("{}: group {group}{}\n", key_text(key), settings.collect::<String>())
}

/// The rules in force in the order in which they apply, then the others.
pub fn list(view: &ReportView<'_>, scan: &Scan, sources: &[RuleSource]) -> ListReport {
    let in_force = view.engine.rules().in_force();
    let row = |source: &RuleSource| {
        // An order during the scan may have changed it, or ended it.
        let now = in_force.iter().find(|now| now.rule.identity() == source.rule.identity());
        let (from, is_in_force, until) = match source.origin {
            RuleOrigin::File => (words::RuleOrigin::File, true, None),
            RuleOrigin::Option => (words::RuleOrigin::Option, true, None),
            RuleOrigin::Set { until } => (words::RuleOrigin::Set, true, until),
            RuleOrigin::Below => (words::RuleOrigin::Below, false, None),
            RuleOrigin::Off => (words::RuleOrigin::Off, false, None),
        };
        let now = now.filter(|_| is_in_force);
        let seen = now.map(|_| scan.of_rule(&source.rule));
        RuleRow {
            rule: source.rule.shown_name().to_owned(),
            pattern: source.rule.pattern.to_string(),
            settings: source.rule.settings.words().map(|(_, word)| word).collect(),
            from,
            keys: seen.map(|seen| seen.keys),
            holders: seen.map(|seen| seen.holders),
            waiters: seen.map(|seen| seen.waiters),
            changed: now.map(|now| now.changed),
            left_s: until.map(|until| seconds(until.ns_since(view.now))),
        }
    };
    ListReport::Rules(RulesReport {
        rules_total: sources.len(),
        rules_max: RULES_MAX,
        seen: seen(view, scan),
        rules: bounded(sources.iter().map(row), ROWS_BYTES_MAX),
    })
}
