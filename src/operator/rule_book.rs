//! Which rules are in force: those of the file, read here, and of `--max-hold`, with what
//! `RULE` changed, and until when; checks keys for `--check-rules`.

use crate::options::Options;
use crate::platform::os::Engine;
use crate::platform::os::fs::read_regular_file;
use engine::Time;
use engine::rules::rule::{FILE_BYTES_MAX, NAME_BYTES_MAX, Rule, parse_file};
use engine::rules::{RULES_MAX, Rules};
use protocol::{key_from_text, time_text};
use reports::RuleOrders;
use reports::rules::{RuleOrigin, RuleSource, explain};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io;
use std::time::Duration;

/// Reads the file of `--rules`. Without the option there are no rules, as with an empty file.
///
/// # Errors
/// Why the file can't be used, with its name.
pub(crate) fn read_rules(options: &Options) -> Result<Vec<Rule>, RulesError> {
    options.rules.as_ref().map_or(Ok(Vec::new()), |path| read_file(path))
}

fn read_file(path: &str) -> Result<Vec<Rule>, RulesError> {
    let read = || parse_file(&read_regular_file(path, FILE_BYTES_MAX)?).map_err(io::Error::other);
    read().map_err(|cause| RulesError::File(path.to_owned(), cause))
}

errors! {
    /// Why rules can't be in force, or an order about them is refused.
    pub enum RulesError {
        /// This file can't be read, or its text has a
        /// [`RuleError`](engine::rules::settings::RuleError).
        File(path: String, cause: io::Error) = "{path}: {cause}";
        /// This is no key to check.
        NoKey(text: String) = "{text}: a byte of a key is a character or \\xNN";
        /// There would be so many.
        TooMany(n: usize) = "{n} rules with those of --max-hold, more than {RULES_MAX}";
        /// Orders are about as many names as they may be.
        TooManyNames = "{RULES_MAX} names are set or off already; RULE RESET forgets one";
        /// The rule of this name would have no settings, and is not in the file.
        NoSettings(name: String) =
            "{name} has no settings and would have no effect: only the file makes groups";
        /// An order has set this rule, for other keys; and a name that is free.
        OtherPattern(rule: Rule, free: String) =
            "{rule} is in force by an order, and has another pattern: \
             choose another name, such as {free}";
        /// No rule has this name.
        NoRule(name: String) = "no rule has the name {name}";
    }
}

/// Checks the file of rules at `path`, and returns what applies to each of these keys, written
/// as in lists.
///
/// # Errors
/// Why the file can't be used, or what is not a key.
pub fn check_rules(path: &str, keys: &[String]) -> Result<String, RulesError> {
    let rules = read_file(path)?;
    let names: Vec<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    let mut answer = format!("{path}: {} rules\n", rules.len());
    let rules = Rules::new(rules, &names);
    for text in keys {
        let key = key_from_text(text.as_bytes());
        answer += &explain(&rules, &key.ok_or_else(|| RulesError::NoKey(text.clone()))?);
    }
    Ok(answer)
}

/// An order that changes the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleOrder {
    /// Replaces the rule of this name, or puts it in front of all others.
    Set {
        /// The new rule.
        rule: Rule,
        /// For how long, in seconds; without it, until another order.
        for_s: Option<u64>,
    },
    /// Ends the order on top about the rule of this name.
    Reset(String),
    /// Disables the rule of this name.
    Off(String),
}

/// What operators' orders say about the rule of a name: at most one order that lasts, and at most
/// one for a time, which lies over it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Override {
    Lasting(Lasting),
    Timed(Timed, Option<Lasting>),
}

/// An order that lasts until another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lasting {
    change: Change,
    #[serde(rename = "since_ns")]
    since: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    Set(Rule),
    /// This rule was in force before.
    Off(Rule),
}

/// An order that ends by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Timed {
    rule: Rule,
    #[serde(rename = "since_ns")]
    since: Time,
    #[serde(rename = "until_ns")]
    until: Time,
}

impl Override {
    /// The rule that the order on top sets or turns off.
    fn rule(&self) -> &Rule {
        match self {
            Override::Timed(timed, _) => &timed.rule,
            Override::Lasting(lasting) => lasting.rule(),
        }
    }

    fn name(&self) -> &str {
        &self.rule().name
    }

    fn in_force(&self) -> Option<&Rule> {
        let is_off = matches!(self, Override::Lasting(Lasting { change: Change::Off(_), .. }));
        Some(self.rule()).filter(|_| !is_off)
    }

    fn timed(&self) -> Option<&Timed> {
        match self {
            Override::Timed(timed, _) => Some(timed),
            Override::Lasting(_) => None,
        }
    }

    fn lasting(&self) -> Option<&Lasting> {
        match self {
            Override::Lasting(lasting) => Some(lasting),
            Override::Timed(_, lasting) => lasting.as_ref(),
        }
    }

    fn without_top(self) -> Option<Override> {
        match self {
            Override::Timed(_, lasting) => lasting.map(Override::Lasting),
            Override::Lasting(_) => None,
        }
    }

    /// As operators gave them.
    fn lines(&self) -> impl Iterator<Item = String> {
        let timed = self.timed().map(|timed| {
            let rule = timed.rule.to_string();
            let (name, rest) = rule.split_once(' ').unwrap_or((&rule, ""));
            let time = time_text(Duration::from_nanos(timed.until.ns_since(timed.since)));
            format!("RULE SET {name} FOR {time} {rest}")
        });
        let lasting = self.lasting().map(|lasting| match &lasting.change {
            Change::Set(rule) => format!("RULE SET {rule}"),
            Change::Off(rule) => format!("RULE OFF {}", rule.name),
        });
        timed.into_iter().chain(lasting)
    }

    /// The lasting order, if it is not a rule in force: for a list of rules.
    fn source_below(&self) -> Option<RuleSource> {
        let (rule, origin) = match (self.timed(), &self.lasting()?.change) {
            (_, Change::Off(rule)) => (rule, RuleOrigin::Off),
            (Some(_), Change::Set(rule)) => (rule, RuleOrigin::Below),
            (None, Change::Set(_)) => return None,
        };
        Some(RuleSource { rule: rule.clone(), origin })
    }
}

impl Lasting {
    fn rule(&self) -> &Rule {
        match &self.change {
            Change::Set(rule) | Change::Off(rule) => rule,
        }
    }
}

/// The rules by where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RecordedRules")]
pub struct RuleBook {
    /// In the order of the file.
    file: Vec<Rule>,
    max_hold: Vec<Rule>,
    /// The newest name first; each name stands here once.
    orders: Vec<Override>,
}

/// The rules in a snapshot, which may come from anywhere.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedRules {
    file: Vec<Rule>,
    max_hold: Vec<Rule>,
    orders: Vec<Override>,
}

impl TryFrom<RecordedRules> for RuleBook {
    type Error = &'static str;

    fn try_from(recorded: RecordedRules) -> Result<Self, Self::Error> {
        let RecordedRules { file, max_hold, orders } = recorded;
        let is_mixed = |of_name: &Override| {
            let below = of_name.lasting().map(|lasting| lasting.rule().name.as_str());
            below.is_some_and(|name| name != of_name.name())
        };
        let mut names = HashSet::new();
        if orders.iter().any(is_mixed) || !orders.iter().all(|o| names.insert(o.name())) {
            return Err("orders of different names are mixed up");
        }
        let mut named = file.iter().map(|rule| rule.name.as_str()).chain(names);
        if named.any(str::is_empty) || max_hold.iter().any(|rule| !rule.name.is_empty()) {
            return Err("only rules of --max-hold have no name");
        }
        Ok(RuleBook { file, max_hold, orders })
    }
}

impl RuleBook {
    /// The rules before any operator's order.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn new(file: Vec<Rule>, options: &Options) -> Result<Self, RulesError> {
        let book = RuleBook { file, max_hold: options.max_hold.clone(), orders: Vec::new() };
        book.check()?;
        Ok(book)
    }

    /// Whether all of them can be in force.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn check(&self) -> Result<(), RulesError> {
        if self.orders.len() > RULES_MAX {
            return Err(RulesError::TooManyNames);
        }
        match self.in_force().len() {
            0..=RULES_MAX => Ok(()),
            n => Err(RulesError::TooMany(n)),
        }
    }

    /// In the order in which they apply.
    fn in_force(&self) -> Vec<Rule> {
        let new = self.orders.iter().filter(|orders| self.in_file(orders.name()).is_none());
        let new = new.filter_map(Override::in_force);
        let of_file = self.file.iter().filter_map(|rule| {
            self.orders_about(&rule.name).map_or(Some(rule), Override::in_force)
        });
        new.chain(of_file).chain(&self.max_hold).cloned().collect()
    }

    /// Sets them in the engine, and those of the file as groups; calls `go_on` as
    /// [`engine::Engine::set_rules`] does.
    pub(crate) fn apply(&self, engine: &mut Engine, now: Time, go_on: impl FnMut()) {
        let groups: Vec<String> = self.file.iter().map(|rule| rule.name.clone()).collect();
        engine.set_rules(self.in_force(), &groups, now, go_on);
    }

    fn in_file(&self, name: &str) -> Option<&Rule> {
        self.file.iter().find(|rule| rule.name == name)
    }

    fn orders_about(&self, name: &str) -> Option<&Override> {
        self.orders.iter().find(|orders| orders.name() == name)
    }

    /// Executes an order; the answer to it.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub(crate) fn execute(&mut self, order: RuleOrder, now: Time) -> Result<String, RulesError> {
        let old = self.orders.clone();
        let done = match order {
            RuleOrder::Set { rule, for_s } => self.set(rule, for_s, now),
            RuleOrder::Off(name) => self.turn_off(&name, now),
            RuleOrder::Reset(name) => self.reset(&name),
        };
        let checked = done.and_then(|answer| self.check().map(|()| answer));
        if checked.is_err() {
            self.orders = old;
        }
        checked
    }

    fn set(&mut self, rule: Rule, for_s: Option<u64>, now: Time) -> Result<String, RulesError> {
        if rule.settings.words().next().is_none() && self.in_file(&rule.name).is_none() {
            return Err(RulesError::NoSettings(rule.name));
        }
        self.check_pattern(&rule)?;
        let (answer, orders) = match for_s {
            Some(seconds) => {
                let lasting = self.orders_about(&rule.name).and_then(Override::lasting).cloned();
                let answer = format!("{rule}, for {}", time_text(Duration::from_secs(seconds)));
                let until = now.plus_seconds(seconds);
                (answer, Override::Timed(Timed { rule, since: now, until }, lasting))
            }
            None => {
                let answer = rule.to_string();
                (answer, Override::Lasting(Lasting { change: Change::Set(rule), since: now }))
            }
        };
        self.put(orders);
        Ok(answer)
    }

    /// Refuses to take a limit away from the keys that an order limits now: whoever gives an order
    /// about other keys hardly means these.
    fn check_pattern(&self, rule: &Rule) -> Result<(), RulesError> {
        let in_force = self.orders_about(&rule.name).and_then(Override::in_force);
        match in_force.filter(|in_force| in_force.pattern != rule.pattern) {
            None => Ok(()),
            Some(other) => Err(RulesError::OtherPattern(other.clone(), self.free_name(&rule.name))),
        }
    }

    /// A name like this one that nothing has.
    fn free_name(&self, name: &str) -> String {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let mut number = 2;
        loop {
            let digits = number.to_string();
            let room = NAME_BYTES_MAX - digits.len();
            let free = format!("{}{digits}", &stem[..stem.len().min(room)]);
            if self.in_file(&free).is_none() && self.orders_about(&free).is_none() {
                return free;
            }
            number += 1;
        }
    }

    fn turn_off(&mut self, name: &str, now: Time) -> Result<String, RulesError> {
        let by_order = self.orders_about(name).map(Override::rule);
        let rule = by_order.or_else(|| self.in_file(name));
        let rule = rule.ok_or_else(|| RulesError::NoRule(name.to_owned()))?;
        let change = Change::Off(rule.clone());
        self.put(Override::Lasting(Lasting { change, since: now }));
        Ok(format!("{name} is off"))
    }

    /// In the place of those about this name, or in front of all others.
    fn put(&mut self, orders: Override) {
        match self.orders.iter_mut().find(|others| others.name() == orders.name()) {
            Some(others) => *others = orders,
            None => self.orders.insert(0, orders),
        }
    }

    fn reset(&mut self, name: &str) -> Result<String, RulesError> {
        let had_orders = !self.end_top(|orders| orders.name() == name).is_empty();
        if !had_orders && self.in_file(name).is_none() {
            return Err(RulesError::NoRule(name.to_owned()));
        }
        Ok(match self.orders_about(name) {
            Some(orders) => match orders.in_force() {
                Some(rule) => format!("{rule}, set by an earlier order"),
                None => format!("{name} is off"),
            },
            None => self.in_file(name).map_or_else(|| format!("{name} is gone"), Rule::to_string),
        })
    }

    /// Ends the order on top of these, and returns the names.
    fn end_top(&mut self, is_meant: impl Fn(&Override) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        for orders in std::mem::take(&mut self.orders) {
            if is_meant(&orders) {
                names.push(orders.name().to_owned());
                self.orders.extend(orders.without_top());
            } else {
                self.orders.push(orders);
            }
        }
        names
    }

    /// What orders have changed, and since when.
    pub(crate) fn orders(&self) -> RuleOrders {
        let lasting = || self.orders.iter().filter_map(Override::lasting).map(|order| order.since);
        let timed = self.orders.iter().filter_map(Override::timed).map(|order| order.since);
        RuleOrders {
            rules: self.orders.len(),
            since: timed.chain(lasting()).min(),
            endless: lasting().count(),
            endless_since: lasting().min(),
        }
    }

    /// When the next order ends.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.orders.iter().filter_map(Override::timed).map(|order| order.until).min()
    }

    /// Ends the orders that have expired, and returns their rules' names.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<String> {
        if self.next_deadline().is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.end_top(|orders| orders.timed().is_some_and(|order| order.until <= now))
    }

    /// Continues in a new image. If the rules of the file have changed, the orders end; returns
    /// them.
    pub(crate) fn resume(&mut self, file: Vec<Rule>, max_hold: Vec<Rule>) -> Vec<String> {
        let mut ended = Vec::new();
        if file != self.file {
            ended.extend(std::mem::take(&mut self.orders).iter().flat_map(Override::lines));
        }
        (self.file, self.max_hold) = (file, max_hold);
        ended
    }

    /// Where the rules come from, for a list of them: those in force, then those of lasting orders
    /// that are not.
    pub(crate) fn sources(&self) -> Vec<RuleSource> {
        let of_rule = |rule: Rule| {
            let origin = match self.orders_about(&rule.name) {
                Some(orders) => RuleOrigin::Set { until: orders.timed().map(|order| order.until) },
                None if rule.name.is_empty() => RuleOrigin::Option,
                None => RuleOrigin::File,
            };
            RuleSource { rule, origin }
        };
        let others = self.orders.iter().filter_map(Override::source_below);
        self.in_force().into_iter().map(of_rule).chain(others).collect()
    }
}

#[cfg(test)]
mod tests;
