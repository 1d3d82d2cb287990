//! Operators' rules in force: which match a key, their numbers instead of the client's,
//! exhausted totals.
//!
//! `enforcement` applies them to pools and requests.

pub mod groups;
mod matcher;
pub mod pattern;
pub mod rule;

use crate::protocol::Acquire;
use groups::Group;
use matcher::Matcher;
pub use matcher::Matches;
pub use rule::RULES_MAX;
use rule::{Rule, RuleSettings, StuckAfter};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// After how many seconds a lock that is still held counts as stuck, unless a rule says so.
pub const STUCK_AFTER_S: u32 = 300;

/// All pools have the matches of the current rules.
pub(super) const APPLIED: usize = usize::MAX;

/// A rule, and what it has done.
#[derive(Clone, Debug)]
pub struct RuleInForce {
    /// The rule.
    pub rule: Rule,
    /// How many answers it changed: requests that it refused, granted or let wait where the
    /// client's own numbers would not have, waits that it ended, connections that it closed.
    pub changed: u64,
    /// The number of its group; 0 if it has none.
    group: usize,
    /// Holders of all keys that get their `total` from it.
    pub(super) holders: u32,
}

/// What a hot restart carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RulesState {
    /// The rules in force.
    pub rules: Vec<Rule>,
    /// How many answers each of them changed.
    pub changed: Vec<u64>,
    /// The groups; the first is `other`.
    pub groups: Vec<Group>,
}

/// The rules that have a setting: bit n stands for rule n.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Having {
    pub(super) workers: u64,
    pub(super) max_queue: u64,
    pub(super) timeout: u64,
    pub(super) total: u64,
    pub(super) max_hold: u64,
    pub(super) stuck_after: u64,
    pub(super) deny: u64,
    pub(super) group: u64,
}

/// The rules in force, in the order in which they apply, and the groups of keys.
#[derive(Clone, Debug)]
pub struct Rules {
    pub(super) in_force: Vec<RuleInForce>,
    matcher: Matcher,
    pub(super) having: Having,
    /// The rules that have a setting by which requests are decided.
    pub(super) deciding: u64,
    /// The rules that count or time holds; all, while new rules are applied.
    pub(super) holding: u64,
    /// The first is `other`, for the keys that no rule with a group matches.
    pub(super) groups: Vec<Group>,
    is_active: bool,
    /// The pools in the places before this one have the matches of the current rules, and
    /// their holders are counted.
    pub(super) applied: usize,
}

/// A request as rules limit it.
pub(super) struct Limited<'a> {
    pub(super) request: Acquire<'a>,
    pub(super) is_denied: bool,
    /// The rule that changes the answer.
    pub(super) changed_by: Option<usize>,
}

/// What is decided about a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Full,
    Granted,
    Waits,
    TimedOut,
}

/// How many clients hold a key, and how many hold it or wait for it.
#[derive(Clone, Copy, Default)]
pub(super) struct QueueLen {
    pub(super) holders: u32,
    pub(super) all: u32,
}

/// Decides about a request from the numbers in it.
#[inline(always)]
pub(super) fn verdict(request: &Acquire, queue: QueueLen) -> Verdict {
    if queue.all >= request.max_queue {
        Verdict::Full
    } else if queue.holders < request.workers {
        Verdict::Granted
    } else if request.timeout_s == 0 {
        Verdict::TimedOut
    } else {
        Verdict::Waits
    }
}

impl Rules {
    /// These rules, at most [`RULES_MAX`], and a group for each of these names.
    pub fn new(in_force: Vec<Rule>, groups: &[String]) -> Self {
        let mut rules = Rules {
            in_force: Vec::new(),
            matcher: Matcher::default(),
            having: Having::default(),
            deciding: 0,
            holding: 0,
            groups: Vec::new(),
            is_active: false,
            applied: APPLIED,
        };
        rules.replace(in_force, groups);
        rules
    }

    /// Keeps what was counted for rules and groups of the same name.
    pub(super) fn replace(&mut self, in_force: Vec<Rule>, groups: &[String]) {
        let old = std::mem::take(&mut self.in_force);
        let changed = |rule: &Rule| {
            let is_same = |old: &&RuleInForce| match rule.has_name() {
                true => old.rule.name == rule.name,
                false => old.rule == *rule,
            };
            old.iter().find(is_same).map_or(0, |old| old.changed)
        };
        let group = |rule: &Rule| groups.iter().position(|g| *g == rule.name).map_or(0, |n| n + 1);
        let renew = |rule: Rule| RuleInForce {
            changed: changed(&rule),
            group: group(&rule),
            rule,
            holders: 0,
        };
        self.in_force = in_force.into_iter().map(renew).collect();
        self.matcher = Matcher::new(self.in_force.iter().map(|rule| &rule.rule.pattern));
        self.groups = groups::renewed(std::mem::take(&mut self.groups), groups);
        let bits = |has: fn(&RuleInForce) -> bool| {
            let set = |bits, (n, rule)| bits | u64::from(has(rule)) << n;
            self.in_force.iter().enumerate().fold(0, set)
        };
        self.having = Having {
            workers: bits(|r| r.rule.settings.workers.is_some()),
            max_queue: bits(|r| r.rule.settings.max_queue.is_some()),
            timeout: bits(|r| r.rule.settings.timeout_s.is_some()),
            total: bits(|r| r.rule.settings.total.is_some()),
            max_hold: bits(|r| r.rule.settings.max_hold_s.is_some()),
            stuck_after: bits(|r| r.rule.settings.stuck_after.is_some()),
            deny: bits(|r| r.rule.settings.denies),
            group: bits(|r| r.group > 0),
        };
        let Having { workers, max_queue, timeout, total, max_hold, deny, .. } = self.having;
        self.deciding = workers | max_queue | timeout | total | deny;
        self.holding = total | max_hold;
        self.is_active = !self.in_force.is_empty() || self.has_groups();
    }

    pub(super) fn state(&self) -> RulesState {
        RulesState {
            rules: self.in_force.iter().map(|rule| rule.rule.clone()).collect(),
            changed: self.in_force.iter().map(|rule| rule.changed).collect(),
            groups: self.groups.clone(),
        }
    }

    pub(super) fn resume(state: RulesState) -> Result<Self, &'static str> {
        if state.rules.len() > RULES_MAX {
            return Err("more rules than can be in force");
        }
        let names: Vec<String> = state.groups.iter().skip(1).map(|g| g.name.clone()).collect();
        let mut rules = Rules::new(state.rules, &names);
        for (rule, changed) in rules.in_force.iter_mut().zip(state.changed) {
            rule.changed = changed;
        }
        for (group, of_state) in rules.groups.iter_mut().zip(state.groups) {
            group.counts = of_state.counts;
        }
        Ok(rules)
    }

    /// Whether any rule counts holders or limits how long they hold.
    #[inline(always)]
    pub(super) fn limit_holds(&self) -> bool {
        self.holding != 0
    }

    /// Whether anything is limited or counted.
    #[inline(always)]
    pub(super) fn are_active(&self) -> bool {
        self.is_active
    }

    /// Whether there are groups besides `other`.
    pub fn has_groups(&self) -> bool {
        self.groups.len() > 1
    }

    /// The rules in force, in the order in which they apply.
    pub fn in_force(&self) -> &[RuleInForce] {
        &self.in_force
    }

    /// The groups; the first is `other`.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Which rules match `key`.
    pub fn matching(&self, key: &[u8]) -> Matches {
        self.matcher.matches(key)
    }

    /// The number of the group of keys that have these matches.
    pub fn group_of(&self, matches: Matches) -> usize {
        matches.first_of(self.having.group).map_or(0, |n| self.in_force[n].group)
    }

    /// How long a lock may be held, in seconds. `None` means no limit.
    pub fn max_hold_s(&self, matches: Matches) -> Option<u32> {
        let rule = matches.first_of(self.having.max_hold)?;
        self.in_force[rule].rule.settings.max_hold_s.map(Into::into)
    }

    /// From how many seconds on a lock that is held counts as stuck. `None` means never.
    pub fn stuck_after_s(&self, matches: Matches) -> Option<u32> {
        let rule = matches.first_of(self.having.stuck_after);
        match rule.and_then(|n| self.in_force[n].rule.settings.stuck_after) {
            Some(StuckAfter::Seconds(seconds)) => Some(seconds.into()),
            Some(StuckAfter::Never) => None,
            None => Some(STUCK_AFTER_S),
        }
    }

    /// All that applies to keys that have these matches: each setting as operators write it,
    /// and the rule that it comes from.
    pub fn settings_of(&self, matches: Matches) -> Vec<(String, &Rule)> {
        let mut settings = Vec::new();
        let mut seen = Vec::new();
        for n in matches.iter() {
            let rule = &self.in_force[n].rule;
            for setting in rule.settings.to_string().split_whitespace() {
                let name = setting.split('=').next().unwrap_or_default().to_owned();
                if !seen.contains(&name) {
                    seen.push(name);
                    settings.push((setting.to_owned(), rule));
                }
            }
        }
        settings
    }

    /// Limits a request for a key that has these matches and this queue.
    pub(super) fn limit<'a>(
        &self,
        matches: Matches,
        request: &Acquire<'a>,
        queue: QueueLen,
    ) -> Limited<'a> {
        let mut limited = self.with_numbers(matches, request);
        let denies = matches.first_of(self.having.deny);
        let refuses = denies.or_else(|| self.exhausted_total(matches, verdict(&limited, queue)));
        if refuses.is_some() {
            // Makes any queue full.
            limited.max_queue = 0;
        }
        let (without, with) = (verdict(request, queue), verdict(&limited, queue));
        let changed_by = match (without, with) {
            _ if without == with => None,
            _ if refuses.is_some() => refuses,
            (Verdict::Full, _) | (_, Verdict::Full) => matches.first_of(self.having.max_queue),
            _ => matches.first_of(self.having.workers),
        };
        Limited { request: limited, is_denied: denies.is_some(), changed_by }
    }

    /// The request with the numbers of rules.
    fn with_numbers<'a>(&self, matches: Matches, request: &Acquire<'a>) -> Acquire<'a> {
        let Having { workers, max_queue, timeout, .. } = self.having;
        let number = |having, of: fn(&RuleSettings) -> Option<NonZeroU32>| {
            let rule = matches.first_of(having)?;
            of(&self.in_force[rule].rule.settings).map(NonZeroU32::get)
        };
        let timeout_s = number(timeout, |settings| settings.timeout_s).map_or(u64::MAX, u64::from);
        Acquire {
            workers: number(workers, |settings| settings.workers).unwrap_or(request.workers),
            max_queue: number(max_queue, |settings| settings.max_queue)
                .unwrap_or(request.max_queue),
            timeout_s: request.timeout_s.min(timeout_s),
            ..*request
        }
    }

    /// The rule whose `total` allows no more holders, if there would be one more.
    fn exhausted_total(&self, matches: Matches, verdict: Verdict) -> Option<usize> {
        let rule = matches.first_of(self.having.total).filter(|_| verdict == Verdict::Granted)?;
        let RuleInForce { rule: of, holders, .. } = &self.in_force[rule];
        of.settings.total.filter(|total| *holders >= total.get()).map(|_| rule)
    }

    pub(super) fn record_changed(&mut self, rule: Option<usize>) {
        if let Some(rule) = rule {
            self.in_force[rule].changed += 1;
        }
    }
}
