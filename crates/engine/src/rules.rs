//! Operators' rules in force: which match a key, how they limit a client's numbers, exhausted
//! totals.
//!
//! `enforcement` applies them to pools and requests.

pub mod behind;
pub mod groups;
pub mod matcher;
pub mod pattern;
pub mod rule;
pub mod settings;

use crate::counts::measures::LockOutcome;
use crate::pool::{QueueLen, Verdict, verdict};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use behind::RulesBehind;
use core::num::NonZeroUsize;
use groups::Group;
use matcher::{Matcher, Matches};
use protocol::Acquire;
pub use rule::RULES_MAX;
use rule::{Rule, RuleNumber};
use serde::{Deserialize, Serialize};
use settings::{Effect, RuleSettings, SETTINGS, Setting, StuckAfter};

/// After how many seconds a lock that is still held counts as stuck, unless a rule says so.
const STUCK_AFTER_S: u32 = 300;

/// A rule, and what it has done.
#[derive(Clone, Debug)]
pub struct RuleInForce {
    /// The rule.
    pub rule: Rule,
    /// How many answers it changed: requests that it refused, granted or let wait where the
    /// client's own numbers would not have, waits that it ended, connections that it closed.
    pub changed: u64,
    /// The number of its group.
    group: Option<NonZeroUsize>,
    /// Holders of all keys that get their `total` from it.
    pub holders: u32,
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

/// The rules in force, in the order in which they apply, and the groups of keys.
#[derive(Clone, Debug)]
pub struct Rules {
    pub(super) in_force: Vec<RuleInForce>,
    pub(super) matcher: Matcher,
    /// The first is `other`, for the keys that no rule with a group matches.
    pub(super) groups: Vec<Group>,
    is_active: bool,
    limits_holds: bool,
}

/// A request as rules limit it.
pub(super) struct LimitedRequest<'a> {
    pub(super) request: Acquire<'a>,
    pub(super) is_denied: bool,
    /// The rule that changes the answer.
    pub(super) changed_by: Option<usize>,
    /// The rule that shortens the wait, if it comes to one.
    pub(super) shortened_by: Option<RuleNumber>,
}

impl RuleInForce {
    /// Whether a rule with other settings continues it. Rules without a name do not change.
    fn continues_as(&self, rule: &Rule) -> bool {
        let is_same = self.rule.name == rule.name && self.rule.pattern == rule.pattern;
        is_same && (rule.has_name() || self.rule == *rule)
    }
}

impl Rules {
    /// These rules, at most [`RULES_MAX`], and a group for each of these names.
    pub fn new(in_force: Vec<Rule>, groups: &[String]) -> Self {
        let number_of = |name: &str| groups.iter().position(|group| *group == name);
        let begin = |rule: Rule| RuleInForce {
            changed: 0,
            group: number_of(&rule.name).and_then(|n| NonZeroUsize::new(n + 1)),
            holders: 0,
            rule,
        };
        let in_force: Vec<RuleInForce> = in_force.into_iter().map(begin).collect();
        let is_limit =
            |settings: &RuleSettings| settings.total.is_some() || settings.max_hold_s.is_some();
        Rules {
            matcher: Matcher::new(in_force.iter().map(|rule| &rule.rule.pattern)),
            groups: groups::named(groups),
            is_active: !in_force.is_empty() || !groups.is_empty(),
            limits_holds: in_force.iter().any(|rule| is_limit(&rule.rule.settings)),
            in_force,
        }
    }

    /// Keeps what was counted for rules of the same name and pattern, and groups of the same name.
    pub(super) fn continue_counts(&mut self, old: &Rules) {
        for rule in &mut self.in_force {
            let same = old.in_force.iter().find(|old| old.continues_as(&rule.rule));
            rule.changed = same.map_or(0, |old| old.changed);
        }
        for group in &mut self.groups {
            let same = old.groups.iter().find(|old| old.name == group.name);
            group.counts = same.map_or_else(Default::default, |old| old.counts.clone());
        }
        self.matcher.count_bytes(old.matcher.matched_bytes());
    }

    /// By the number of each of these rules, the number of the one that continues it.
    pub(super) fn continuations(&self, new: &Rules) -> Vec<Option<RuleNumber>> {
        let place =
            |old: &RuleInForce| new.in_force.iter().position(|it| old.continues_as(&it.rule));
        self.in_force.iter().map(|old| place(old).map(RuleNumber::new)).collect()
    }

    /// Whether these are the rules in force, and these the groups.
    pub(super) fn are(&self, in_force: &[Rule], groups: &[String]) -> bool {
        self.in_force.iter().map(|r| &r.rule).eq(in_force)
            && self.groups[1..].iter().map(|group| &group.name).eq(groups)
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
        self.limits_holds
    }

    /// Whether any rule limits how long locks may be held.
    pub(super) fn have_max_hold(&self) -> bool {
        self.in_force.iter().any(|rule| rule.rule.settings.max_hold_s.is_some())
    }

    /// Whether anything is limited, or counted for groups: there are rules, or groups besides `other`.
    #[inline(always)]
    pub fn are_active(&self) -> bool {
        self.is_active
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

    /// The first of these rules that has a setting, and its value.
    #[inline(always)]
    fn first<T>(
        &self,
        matches: Matches,
        setting: impl Fn(&RuleSettings) -> Option<T>,
    ) -> Option<(usize, T)> {
        matches.iter().find_map(|n| Some((n, setting(&self.in_force[n].rule.settings)?)))
    }

    /// The number of the group of keys that have these matches.
    pub fn group_of(&self, matches: Matches) -> usize {
        matches.iter().find_map(|n| self.in_force[n].group).map_or(0, NonZeroUsize::get)
    }

    /// How long a lock may be held, in seconds. `None` means no limit.
    pub fn max_hold_s(&self, matches: Matches) -> Option<u32> {
        self.max_hold(matches).map(|(_, seconds)| seconds)
    }

    /// The rule that limits how long a lock may be held, and its limit in seconds.
    pub(super) fn max_hold(&self, matches: Matches) -> Option<(usize, u32)> {
        self.first(matches, |settings| settings.max_hold_s.map(Into::into))
    }

    /// The rule that limits how many clients may hold each key, and its limit.
    pub(super) fn workers(&self, matches: Matches) -> Option<(usize, u32)> {
        self.first(matches, |settings| settings.workers.map(Into::into))
    }

    /// How many clients may hold each key, of as many as a client allows.
    pub(super) fn limit_workers(&self, matches: Matches, of_client: u32) -> u32 {
        self.workers(matches).map_or(of_client, |(_, workers)| workers.min(of_client))
    }

    /// The rule that limits the holders of all keys together, and its limit.
    pub fn total(&self, matches: Matches) -> Option<(usize, u32)> {
        self.first(matches, |settings| settings.total.map(Into::into))
    }

    /// The rule whose `total` allows no more holders.
    pub(super) fn exhausted_total(&self, matches: Matches) -> Option<usize> {
        let (rule, total) = self.total(matches)?;
        (self.in_force[rule].holders >= total).then_some(rule)
    }

    /// From how many seconds on a lock that is held counts as stuck. `None` means never.
    pub fn stuck_after_s(&self, matches: Matches) -> Option<u32> {
        match self.first(matches, |settings| settings.stuck_after) {
            Some((_, StuckAfter::Seconds(seconds))) => Some(seconds.into()),
            Some((_, StuckAfter::Never)) => None,
            None => Some(STUCK_AFTER_S),
        }
    }

    /// What this one of the rules sets for keys that have these matches: each setting that no
    /// earlier rule has, as operators write it.
    pub fn settings(&self, matches: Matches, n: usize) -> impl Iterator<Item = (Effect, String)> {
        let words = self.in_force[n].rule.settings.words();
        let words = words.filter(move |(setting, _)| self.first_with(matches, setting) == Some(n));
        words.map(|(setting, word)| (setting.effect, word))
    }

    fn first_with(&self, matches: Matches, setting: &Setting) -> Option<usize> {
        matches.iter().find(|&n| (setting.is_in)(&self.in_force[n].rule.settings))
    }

    /// The rules that limit keys that have these matches: each with at least one limit that no
    /// earlier rule sets.
    pub fn limiting(&self, matches: Matches) -> Matches {
        let limits = SETTINGS.iter().filter(|setting| setting.effect != Effect::Nothing);
        let rules = limits.filter_map(|limit| self.first_with(matches, limit));
        Matches(rules.fold(0, |rules, n| rules | 1 << n))
    }

    /// The number of the rule that denies keys that have these matches.
    pub fn denying(&self, matches: Matches) -> Option<usize> {
        self.first(matches, |settings| settings.denies).map(|(rule, ())| rule)
    }

    /// The number of the rule by which a hold or a wait of such a key has ended: the one that had
    /// shortened the wait, or the one that limits the hold.
    pub(super) fn ended_by(
        &self,
        matches: Matches,
        shortened_by: Option<RuleNumber>,
        outcome: LockOutcome,
    ) -> Option<usize> {
        match outcome {
            LockOutcome::Timeout => shortened_by.map(RuleNumber::get),
            LockOutcome::Expired => self.max_hold(matches).map(|(rule, _)| rule),
            _ => None,
        }
    }

    /// The rules behind such a key: of those that limit it, the one that matters, else the first.
    pub fn behind(&self, matches: Matches, matters: Option<usize>) -> RulesBehind {
        let name = |n: usize| self.in_force[n].rule.shown_name().to_owned();
        RulesBehind {
            rule: matters.or_else(|| self.limiting(matches).iter().next()).map(name),
            denied_by: self.denying(matches).map(name),
        }
    }

    /// Limits a request for a key that has these matches and this queue.
    pub(super) fn limit<'a>(
        &self,
        matches: Matches,
        request: &Acquire<'a>,
        queue: QueueLen,
    ) -> LimitedRequest<'a> {
        let mut limited = *request;
        let max_queue = self.first(matches, |settings| settings.max_queue);
        let timeout = self.first(matches, |settings| settings.timeout_s);
        limited.workers = self.limit_workers(matches, request.workers);
        limited.max_queue = max_queue.map_or(request.max_queue, |(_, max_queue)| max_queue.into());
        if let Some((_, timeout_s)) = timeout {
            limited.timeout_s = limited.timeout_s.min(u32::from(timeout_s).into());
        }
        let denies = self.denying(matches);
        let would_hold = verdict(&limited, queue) == Verdict::Granted;
        let exhausted = || self.exhausted_total(matches).filter(|_| would_hold);
        let refuses = denies.or_else(exhausted);
        if refuses.is_some() {
            // Makes any queue full.
            limited.max_queue = 0;
        }
        let (without, with) = (verdict(request, queue), verdict(&limited, queue));
        let changed_by = match (without, with) {
            _ if without == with => None,
            _ if refuses.is_some() => refuses,
            (Verdict::Full, _) | (_, Verdict::Full) => max_queue.map(|(rule, _)| rule),
            _ => self.workers(matches).map(|(rule, _)| rule),
        };
        let is_shortened = limited.timeout_s < request.timeout_s;
        LimitedRequest {
            request: limited,
            is_denied: denies.is_some(),
            changed_by,
            shortened_by: timeout.filter(|_| is_shortened).map(|(rule, _)| RuleNumber::new(rule)),
        }
    }

    /// Whether a rule limits how many clients hold a key that has these matches.
    pub(super) fn limit_room(&self, matches: Matches) -> bool {
        self.workers(matches).is_some() || self.total(matches).is_some()
    }

    /// So many more clients hold a key that has these matches.
    pub(super) fn count_holders(&mut self, matches: Matches, holders: u32) {
        if let Some((rule, _)) = self.total(matches) {
            self.in_force[rule].holders += holders;
        }
    }

    /// One client less holds such a key.
    pub(super) fn uncount_holder(&mut self, matches: Matches) {
        if let Some((rule, _)) = self.total(matches) {
            self.in_force[rule].holders -= 1;
        }
    }

    pub(super) fn record_changed(&mut self, rule: Option<usize>) {
        if let Some(rule) = rule {
            self.in_force[rule].changed += 1;
        }
    }
}
