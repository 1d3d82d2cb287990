//! Which rules are in force: those of the file, read here, and of `--max-hold`, with what
//! `RULE` changed, and until when; checks keys for `--check-rules`.

use crate::options::Options;
use crate::platform::failed_call::errno;
use crate::platform::os::fs::read_regular_file;
use crate::platform::os::io::Errno;
use engine::Time;
use engine::rules::rule::{FILE_BYTES_MAX, Rule, parse_file};
use engine::rules::{RULES_MAX, Rules};
use protocol::{key_from_text, time_text};
use reports::RuleOrders;
use reports::rules::{RuleSource, explain};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::time::Duration;

/// Reads the file of `--rules`. Without the option there are no rules, as with an empty file.
///
/// # Errors
/// Why the file can't be used, with its name.
pub(crate) fn read_rules(options: &Options) -> Result<Vec<Rule>, RulesError> {
    let Some(path) = &options.rules else {
        return Ok(Vec::new());
    };
    let is_refused = |e: &io::Error| {
        let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        errno(e).is_some_and(|errno| scarce.contains(&errno))
    };
    read_file(path).map_err(|e| {
        let why = format!("{path}: {e}");
        if is_refused(&e) { RulesError::System(why) } else { RulesError::Invalid(why) }
    })
}

fn read_file(path: &str) -> io::Result<Vec<Rule>> {
    let bytes = read_regular_file(path, FILE_BYTES_MAX)?;
    parse_file(&bytes).map_err(io::Error::other)
}

/// Why there are no rules to begin with.
#[derive(Debug)]
pub(crate) enum RulesError {
    /// The file is not valid, is none, or there are too many rules: another one is needed.
    Invalid(String),
    /// The system refuses what reading the file needs, such as a descriptor.
    System(String),
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RulesError::Invalid(why) | RulesError::System(why) => f.write_str(why),
        }
    }
}

/// Checks the file of rules at `path`, and returns what applies to each of these keys, written
/// as in lists.
///
/// # Errors
/// Why the file can't be used, or what is not a key.
pub fn check_rules(path: &str, keys: &[String]) -> Result<String, String> {
    let rules = read_file(path).map_err(|why| format!("{path}: {why}"))?;
    let names: Vec<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    let count = rules.len();
    let rules = Rules::new(rules, &names);
    let mut answer = format!("{path}: {count} rules\n");
    for text in keys {
        let key = key_from_text(text.as_bytes());
        let key = key.ok_or_else(|| format!("{text}: a byte of a key is a character or \\xNN"))?;
        answer += &explain(&rules, &key);
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
    /// Returns to the rule of this name in the file, or to none.
    Reset(String),
    /// Disables the rule of this name.
    Off(String),
}

/// What `RULE` has changed about the rule of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RuleChange {
    name: String,
    /// Replaces the rule of the file.
    #[serde(default)]
    rule: Option<Rule>,
    #[serde(default)]
    is_off: bool,
    /// When the order was given, if the daemon of then recorded it.
    #[serde(default, rename = "since_ns")]
    since: Option<Time>,
    /// When the change ends.
    #[serde(default, rename = "until_ns")]
    until: Option<Time>,
}

/// The rules by where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleBook {
    /// In the order of the file.
    file: Vec<Rule>,
    max_hold: Vec<Rule>,
    /// The newest first.
    changes: Vec<RuleChange>,
}

impl RuleBook {
    /// The rules before any operator's order.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn new(file: Vec<Rule>, options: &Options) -> Result<Self, String> {
        let book = RuleBook { file, max_hold: options.max_hold.clone(), changes: Vec::new() };
        book.check()?;
        Ok(book)
    }

    /// Whether all of them can be in force.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.changes.len() > RULES_MAX {
            return Err(format!(
                "{RULES_MAX} names are set or off already; RULE RESET forgets one"
            ));
        }
        match self.in_force().len() {
            0..=RULES_MAX => Ok(()),
            n => Err(format!("{n} rules with those of --max-hold, more than {RULES_MAX}")),
        }
    }

    /// In the order in which they apply.
    pub(crate) fn in_force(&self) -> Vec<Rule> {
        let new = self.changes.iter().filter(|change| self.in_file(&change.name).is_none());
        let new = new.filter(|change| !change.is_off).filter_map(|change| change.rule.clone());
        let of_file = self.file.iter().filter_map(|rule| match self.change(&rule.name) {
            None => Some(rule.clone()),
            Some(change) if change.is_off => None,
            Some(change) => change.rule.clone(),
        });
        new.chain(of_file).chain(self.max_hold.iter().cloned()).collect()
    }

    /// The names of the rules that are groups.
    pub(crate) fn groups(&self) -> Vec<String> {
        self.file.iter().map(|rule| rule.name.clone()).collect()
    }

    fn in_file(&self, name: &str) -> Option<&Rule> {
        self.file.iter().find(|rule| rule.name == name)
    }

    fn change(&self, name: &str) -> Option<&RuleChange> {
        self.changes.iter().find(|change| change.name == name)
    }

    /// Executes an order; the answer to it.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub(crate) fn execute(&mut self, order: RuleOrder, now: Time) -> Result<String, String> {
        let old = self.changes.clone();
        let done = match order {
            RuleOrder::Set { rule, for_s } => self.set(rule, for_s, now),
            RuleOrder::Off(name) => self.turn_off(&name, now),
            RuleOrder::Reset(name) => self.reset(&name),
        };
        let checked = done.and_then(|answer| self.check().map(|()| answer));
        if checked.is_err() {
            self.changes = old;
        }
        checked
    }

    fn set(&mut self, rule: Rule, for_s: Option<u64>, now: Time) -> Result<String, String> {
        if rule.settings.is_empty() && self.in_file(&rule.name).is_none() {
            return Err(format!(
                "{} has no settings and would have no effect: only the file makes groups",
                rule.name
            ));
        }
        let until = for_s.map(|seconds| now.plus_seconds(seconds));
        let answer = match for_s {
            Some(seconds) => format!("{rule}, for {}", time_text(Duration::from_secs(seconds))),
            None => rule.to_string(),
        };
        let name = rule.name.clone();
        self.put(RuleChange { name, rule: Some(rule), is_off: false, since: Some(now), until });
        Ok(answer)
    }

    fn turn_off(&mut self, name: &str, now: Time) -> Result<String, String> {
        self.check_known(name)?;
        let rule = self.change(name).and_then(|change| change.rule.clone());
        let name = name.to_owned();
        let answer = format!("{name} is off");
        self.put(RuleChange { name, rule, is_off: true, since: Some(now), until: None });
        Ok(answer)
    }

    /// In the place of the change of this name, or in front of all others.
    fn put(&mut self, change: RuleChange) {
        match self.changes.iter_mut().find(|other| other.name == change.name) {
            Some(other) => *other = change,
            None => self.changes.insert(0, change),
        }
    }

    fn reset(&mut self, name: &str) -> Result<String, String> {
        self.check_known(name)?;
        self.changes.retain(|change| change.name != name);
        Ok(self.in_file(name).map_or_else(|| format!("{name} is gone"), Rule::to_string))
    }

    fn check_known(&self, name: &str) -> Result<(), String> {
        let is_known = self.change(name).is_some() || self.in_file(name).is_some();
        if is_known { Ok(()) } else { Err(format!("no rule has the name {name}")) }
    }

    /// What orders have changed, and since when.
    pub(crate) fn orders(&self) -> RuleOrders {
        let endless = || self.changes.iter().filter(|change| change.until.is_none());
        RuleOrders {
            rules: self.changes.len(),
            since: self.changes.iter().filter_map(|change| change.since).min(),
            endless: endless().count(),
            endless_since: endless().filter_map(|change| change.since).min(),
        }
    }

    /// When the next change ends.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.changes.iter().filter_map(|change| change.until).min()
    }

    /// Ends the changes that have expired, and returns their rules' names.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<String> {
        if self.next_deadline().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let is_over = |change: &RuleChange| change.until.is_some_and(|until| until <= now);
        let (over, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.changes).into_iter().partition(is_over);
        self.changes = kept;
        over.into_iter().map(|change| change.name).collect()
    }

    /// Continues in a new image. If the rules of the file have changed, the changes by orders
    /// end; returns them.
    pub(crate) fn resume(&mut self, file: Vec<Rule>, max_hold: Vec<Rule>) -> Vec<String> {
        let mut ended = Vec::new();
        if file != self.file {
            ended.extend(std::mem::take(&mut self.changes).iter().map(RuleChange::as_order));
        }
        (self.file, self.max_hold) = (file, max_hold);
        ended
    }

    /// Where the rules come from, for a list of them: those in force, then those that are off.
    pub(crate) fn sources(&self) -> Vec<RuleSource> {
        let of_rule = |rule: Rule| {
            let change = self.change(&rule.name);
            let is_set = change.is_some();
            let until = change.and_then(|change| change.until);
            RuleSource { rule, is_set, is_off: false, until }
        };
        let off = self.changes.iter().filter(|change| change.is_off).filter_map(|change| {
            let rule = change.rule.as_ref().or_else(|| self.in_file(&change.name))?.clone();
            Some(RuleSource { rule, is_set: true, is_off: true, until: None })
        });
        self.in_force().into_iter().map(of_rule).chain(off).collect()
    }
}

impl RuleChange {
    fn as_order(&self) -> String {
        match &self.rule {
            Some(rule) if !self.is_off => format!("RULE SET {rule}"),
            _ => format!("RULE OFF {}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_ns(1_000);

    fn book(file: &str) -> RuleBook {
        RuleBook { file: parse_file(file.as_bytes()).unwrap(), ..RuleBook::default() }
    }

    fn set(text: &str) -> RuleOrder {
        RuleOrder::Set { rule: Rule::parse(text).unwrap(), for_s: None }
    }

    fn in_force(book: &RuleBook) -> Vec<String> {
        book.in_force().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_order_replaces_in_place_or_goes_in_front() {
        let mut book = book("a a*\nb b* deny\n");
        for (order, expected) in [
            (set("b b* total=2"), vec!["a a*", "b b* total=2"]),
            (set("c c* deny"), vec!["c c* deny", "a a*", "b b* total=2"]),
            (set("d d* deny"), vec!["d d* deny", "c c* deny", "a a*", "b b* total=2"]),
            (set("c x* deny"), vec!["d d* deny", "c x* deny", "a a*", "b b* total=2"]),
            (RuleOrder::Off("c".into()), vec!["d d* deny", "a a*", "b b* total=2"]),
            (RuleOrder::Off("a".into()), vec!["d d* deny", "b b* total=2"]),
            (RuleOrder::Reset("a".into()), vec!["d d* deny", "a a*", "b b* total=2"]),
            (set("b b*"), vec!["d d* deny", "a a*", "b b*"]),
            (RuleOrder::Reset("b".into()), vec!["d d* deny", "a a*", "b b* deny"]),
            (RuleOrder::Reset("d".into()), vec!["a a*", "b b* deny"]),
        ] {
            book.execute(order.clone(), NOW).unwrap();
            assert_eq!(in_force(&book), expected, "{order:?}");
        }
        assert!(book.execute(RuleOrder::Off("x".into()), NOW).is_err());
        assert_eq!(book.groups(), ["a", "b"]);
    }

    #[test]
    fn an_order_without_settings_needs_the_file_to_have_its_name() {
        let mut book = book("a a* deny\n");
        book.execute(set("b b* deny"), NOW).unwrap();
        // The name of another order does not help.
        for nothing in ["b b*", "c *"] {
            let refused = book.execute(set(nothing), NOW).unwrap_err();
            assert!(refused.contains("has no settings"), "{refused}");
        }
        assert_eq!(in_force(&book), ["b b* deny", "a a* deny"]);
        book.execute(set("a x*"), NOW).unwrap();
        assert_eq!(in_force(&book), ["b b* deny", "a x*"]);
    }

    #[test]
    fn orders_end_only_if_the_rules_of_the_file_change() {
        for (file, stay) in [
            ("a a*\nb b* deny\n", true),
            ("# both\n\n  a\ta*   # one\nb b*  deny", true),
            ("b b* deny\na a*\n", false),
            ("a a*\nb b* deny total=1\n", false),
            ("a a*\n", false),
            ("", false),
        ] {
            let mut book = book("a a*\nb b* deny\n");
            book.execute(RuleOrder::Off("b".into()), NOW).unwrap();
            let ended = book.resume(parse_file(file.as_bytes()).unwrap(), Vec::new());
            assert_eq!(ended.is_empty(), stay, "{file}");
        }
    }

    #[test]
    fn a_change_for_a_while_returns_to_the_file() {
        let mut book = book("a a*\n");
        let rule = Rule::parse("a a* deny").unwrap();
        book.execute(RuleOrder::Set { rule, for_s: Some(60) }, NOW).unwrap();
        assert_eq!(in_force(&book), ["a a* deny"]);
        assert_eq!(book.next_deadline(), Some(NOW.plus_seconds(60)));
        assert_eq!(book.expire(NOW.plus_seconds(59)), [""; 0]);
        assert_eq!(book.expire(NOW.plus_seconds(60)), ["a"]);
        assert_eq!((in_force(&book), book.next_deadline()), (vec!["a a*".to_owned()], None));
    }

    #[test]
    fn orders_are_counted_from_when_each_was_given() {
        let mut book = book("a a*\nb b* deny\n");
        assert_eq!(book.orders(), RuleOrders::default());
        let at = |n| Time::from_ns(n);
        let rule = Rule::parse("a a* deny").unwrap();
        let for_a_while = RuleOrder::Set { rule, for_s: Some(60) };
        for (order, n, expected) in [
            (for_a_while, 1, (1, Some(1), 0, None)),
            (set("c c* deny"), 2, (2, Some(1), 1, Some(2))),
            (RuleOrder::Off("b".into()), 3, (3, Some(1), 2, Some(2))),
            // A new order about the same rule counts from when it was given.
            (RuleOrder::Off("c".into()), 4, (3, Some(1), 2, Some(3))),
            (RuleOrder::Off("a".into()), 5, (3, Some(3), 3, Some(3))),
            (RuleOrder::Reset("b".into()), 6, (2, Some(4), 2, Some(4))),
        ] {
            book.execute(order.clone(), at(n)).unwrap();
            let RuleOrders { rules, since, endless, endless_since } = book.orders();
            let [since, endless_since] = [since, endless_since].map(|time| time.map(Time::as_ns));
            assert_eq!((rules, since, endless, endless_since), expected, "{order:?}");
        }
        // A hot restart hands over when.
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<RuleBook>(&text).unwrap().orders(), book.orders());
        let older = text.replace("since_ns", "of_yesterday");
        let older = serde_json::from_str::<RuleBook>(&older).unwrap().orders();
        assert_eq!(older, RuleOrders { rules: 2, endless: 2, ..RuleOrders::default() });
    }

    #[test]
    fn an_order_that_makes_too_many_rules_changes_nothing() {
        let full: String = (0..RULES_MAX).map(|n| format!("r{n} *\n")).collect();
        let mut book = book(&full);
        assert!(book.execute(set("new * deny"), NOW).unwrap_err().contains("more than 64"));
        assert_eq!(in_force(&book).len(), RULES_MAX);
        // Rules that are off also count: names must not pile up.
        let mut other = RuleBook::default();
        for n in 0..RULES_MAX {
            other.execute(set(&format!("x{n} * deny")), NOW).unwrap();
            other.execute(RuleOrder::Off(format!("x{n}")), NOW).unwrap();
        }
        assert!(other.execute(set("new * deny"), NOW).unwrap_err().contains("set or off"));
        other.execute(RuleOrder::Reset("x7".into()), NOW).unwrap();
        other.execute(set("new * deny"), NOW).unwrap();
        book.execute(RuleOrder::Off("r0".into()), NOW).unwrap();
        book.execute(set("new * deny"), NOW).unwrap();
        assert!(book.execute(RuleOrder::Reset("r0".into()), NOW).is_err());
        assert_eq!(in_force(&book).len(), RULES_MAX);
    }
}
