//! Which rules are in force: those of the file, read here, and of `--max-hold`, with what
//! `RULE` changed, and until when; checks keys for `--check-rules`.

use crate::options::Options;
use crate::platform::failed_call::errno;
use crate::platform::os::fs::read_regular_file;
use crate::platform::os::io::Errno;
use engine::Time;
use engine::rules::rule::{FILE_BYTES_MAX, NAME_BYTES_MAX, Rule, parse_file};
use engine::rules::{RULES_MAX, Rules};
use protocol::{key_from_text, time_text};
use reports::RuleOrders;
use reports::rules::{RuleOrigin, RuleSource, explain};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
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
    /// Ends the order on top about the rule of this name.
    Reset(String),
    /// Disables the rule of this name.
    Off(String),
}

/// What operators' orders say about the rule of a name: at most one order that lasts, and at most
/// one for a time, which lies over it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Orders {
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

impl Orders {
    /// The rule that the order on top sets or turns off.
    fn rule(&self) -> &Rule {
        match self {
            Orders::Timed(timed, _) => &timed.rule,
            Orders::Lasting(lasting) => lasting.rule(),
        }
    }

    fn name(&self) -> &str {
        &self.rule().name
    }

    fn in_force(&self) -> Option<&Rule> {
        let is_off = matches!(self, Orders::Lasting(Lasting { change: Change::Off(_), .. }));
        Some(self.rule()).filter(|_| !is_off)
    }

    fn timed(&self) -> Option<&Timed> {
        match self {
            Orders::Timed(timed, _) => Some(timed),
            Orders::Lasting(_) => None,
        }
    }

    fn lasting(&self) -> Option<&Lasting> {
        match self {
            Orders::Lasting(lasting) => Some(lasting),
            Orders::Timed(_, lasting) => lasting.as_ref(),
        }
    }

    fn without_top(self) -> Option<Orders> {
        match self {
            Orders::Timed(_, lasting) => lasting.map(Orders::Lasting),
            Orders::Lasting(_) => None,
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
    orders: Vec<Orders>,
}

/// The rules in a snapshot, which may come from anywhere.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedRules {
    file: Vec<Rule>,
    max_hold: Vec<Rule>,
    orders: Vec<Orders>,
}

impl TryFrom<RecordedRules> for RuleBook {
    type Error = &'static str;

    fn try_from(recorded: RecordedRules) -> Result<Self, Self::Error> {
        let RecordedRules { file, max_hold, orders } = recorded;
        let is_mixed = |of_name: &Orders| {
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
    pub(crate) fn new(file: Vec<Rule>, options: &Options) -> Result<Self, String> {
        let book = RuleBook { file, max_hold: options.max_hold.clone(), orders: Vec::new() };
        book.check()?;
        Ok(book)
    }

    /// Whether all of them can be in force.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.orders.len() > RULES_MAX {
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
        let new = self.orders.iter().filter(|orders| self.in_file(orders.name()).is_none());
        let new = new.filter_map(Orders::in_force);
        let of_file = self
            .file
            .iter()
            .filter_map(|rule| self.orders_about(&rule.name).map_or(Some(rule), Orders::in_force));
        new.chain(of_file).chain(&self.max_hold).cloned().collect()
    }

    /// The names of the rules that are groups.
    pub(crate) fn groups(&self) -> Vec<String> {
        self.file.iter().map(|rule| rule.name.clone()).collect()
    }

    fn in_file(&self, name: &str) -> Option<&Rule> {
        self.file.iter().find(|rule| rule.name == name)
    }

    fn orders_about(&self, name: &str) -> Option<&Orders> {
        self.orders.iter().find(|orders| orders.name() == name)
    }

    /// Executes an order; the answer to it.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub(crate) fn execute(&mut self, order: RuleOrder, now: Time) -> Result<String, String> {
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

    fn set(&mut self, rule: Rule, for_s: Option<u64>, now: Time) -> Result<String, String> {
        if rule.settings.is_empty() && self.in_file(&rule.name).is_none() {
            return Err(format!(
                "{} has no settings and would have no effect: only the file makes groups",
                rule.name
            ));
        }
        self.check_pattern(&rule)?;
        let (answer, orders) = match for_s {
            Some(seconds) => {
                let lasting = self.orders_about(&rule.name).and_then(Orders::lasting).cloned();
                let answer = format!("{rule}, for {}", time_text(Duration::from_secs(seconds)));
                let until = now.plus_seconds(seconds);
                (answer, Orders::Timed(Timed { rule, since: now, until }, lasting))
            }
            None => {
                let answer = rule.to_string();
                (answer, Orders::Lasting(Lasting { change: Change::Set(rule), since: now }))
            }
        };
        self.put(orders);
        Ok(answer)
    }

    /// Refuses to take a limit away from the keys that an order limits now: whoever gives an order
    /// about other keys hardly means these.
    fn check_pattern(&self, rule: &Rule) -> Result<(), String> {
        let in_force = self.orders_about(&rule.name).and_then(Orders::in_force);
        match in_force.filter(|in_force| in_force.pattern != rule.pattern) {
            None => Ok(()),
            Some(in_force) => Err(format!(
                "{in_force} is in force by an order, and has another pattern: \
                 choose another name, such as {}",
                self.free_name(&rule.name)
            )),
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

    fn turn_off(&mut self, name: &str, now: Time) -> Result<String, String> {
        let by_order = self.orders_about(name).map(Orders::rule);
        let rule = by_order.or_else(|| self.in_file(name)).ok_or_else(|| unknown(name))?;
        let change = Change::Off(rule.clone());
        self.put(Orders::Lasting(Lasting { change, since: now }));
        Ok(format!("{name} is off"))
    }

    /// In the place of those about this name, or in front of all others.
    fn put(&mut self, orders: Orders) {
        match self.orders.iter_mut().find(|others| others.name() == orders.name()) {
            Some(others) => *others = orders,
            None => self.orders.insert(0, orders),
        }
    }

    fn reset(&mut self, name: &str) -> Result<String, String> {
        let had_orders = !self.end_top(|orders| orders.name() == name).is_empty();
        if !had_orders && self.in_file(name).is_none() {
            return Err(unknown(name));
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
    fn end_top(&mut self, is_meant: impl Fn(&Orders) -> bool) -> Vec<String> {
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
        let lasting = || self.orders.iter().filter_map(Orders::lasting).map(|order| order.since);
        let timed = self.orders.iter().filter_map(Orders::timed).map(|order| order.since);
        RuleOrders {
            rules: self.orders.len(),
            since: timed.chain(lasting()).min(),
            endless: lasting().count(),
            endless_since: lasting().min(),
        }
    }

    /// When the next order ends.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.orders.iter().filter_map(Orders::timed).map(|order| order.until).min()
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
            ended.extend(std::mem::take(&mut self.orders).iter().flat_map(Orders::lines));
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
        let others = self.orders.iter().filter_map(Orders::source_below);
        self.in_force().into_iter().map(of_rule).chain(others).collect()
    }
}

fn unknown(name: &str) -> String {
    format!("no rule has the name {name}")
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
            (set("c c* total=1"), vec!["d d* deny", "c c* total=1", "a a*", "b b* total=2"]),
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

    fn set_for_a_minute(text: &str) -> RuleOrder {
        RuleOrder::Set { rule: Rule::parse(text).unwrap(), for_s: Some(60) }
    }

    #[test]
    fn an_order_for_a_time_ends_in_its_first_turn() {
        let mut book = book("a a*\n");
        book.execute(set_for_a_minute("a a* deny"), NOW).unwrap();
        assert_eq!(book.next_deadline(), Some(NOW.plus_seconds(60)));
        assert_eq!(book.expire(NOW.plus_seconds(59)), [""; 0]);
        assert_eq!(in_force(&book), ["a a* deny"]);
        assert_eq!(book.expire(NOW.plus_seconds(60)), ["a"]);
        assert_eq!((in_force(&book), book.next_deadline()), (vec!["a a*".to_owned()], None));
    }

    /// What an operator hears, and what is in force then.
    #[test]
    fn a_lasting_order_comes_back_when_the_one_over_it_ends() {
        let off = || RuleOrder::Off("a".to_owned());
        let reset = || RuleOrder::Reset("a".to_owned());
        for (file, lasting, over, back, at_last) in [
            (
                "",
                set("a a* total=9"),
                "a a* total=9",
                "a a* total=9, set by an earlier order",
                "a is gone",
            ),
            (
                "a b* deny",
                set("a a* total=9"),
                "a a* total=9",
                "a a* total=9, set by an earlier order",
                "a b* deny",
            ),
            ("a b* deny", off(), "", "a is off", "a b* deny"),
        ] {
            let mut book = book(file);
            let mut execute = |order| book.execute(order, NOW);
            execute(lasting.clone()).unwrap();
            execute(set_for_a_minute("a a* total=1")).unwrap();
            let again = execute(set_for_a_minute("a a* total=2")).unwrap();
            assert_eq!(again, "a a* total=2, for 1m");
            assert_eq!(execute(reset()).as_deref(), Ok(back));
            execute(set_for_a_minute("a a* total=3")).unwrap();
            assert_eq!(book.orders().endless, 1);
            assert_eq!(in_force(&book), ["a a* total=3"]);
            assert_eq!(book.expire(NOW.plus_seconds(60)), ["a"]);
            assert_eq!(in_force(&book).join("\n"), over);
            assert_eq!(book.execute(reset(), NOW).as_deref(), Ok(at_last));
            assert_eq!(book.orders(), RuleOrders::default());
            assert_eq!(in_force(&book).join("\n"), file);
        }
    }

    #[test]
    fn another_pattern_gets_another_name() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        for (name, suggested) in [
            ("flood", "flood4"),
            ("flood3", "flood4"),
            ("api-9", "api-2"),
            (&*longest, &*format!("{}2", &longest[1..])),
        ] {
            let mut book = book("flood2 z*\nx y* deny\n");
            book.execute(set("flood3 x* deny"), NOW).unwrap();
            for order in [set, set_for_a_minute] {
                if name != "flood3" {
                    book.execute(order(&format!("{name} x* deny")), NOW).unwrap();
                }
                let before = book.clone();
                for other in [set, set_for_a_minute] {
                    let why = book.execute(other(&format!("{name} y* deny")), NOW).unwrap_err();
                    let expected = format!(
                        "{name} x* deny is in force by an order, and has another pattern: \
                         choose another name, such as {suggested}"
                    );
                    assert_eq!(why, expected);
                    assert_eq!(book, before);
                }
            }
            // What is off limits nothing, and a rule of the file comes back.
            book.execute(RuleOrder::Off(name.to_owned()), NOW).unwrap();
            book.execute(set(&format!("{name} y* deny")), NOW).unwrap();
            book.execute(set("x z* deny"), NOW).unwrap();
        }
    }

    /// Every order, one after another, as far as four orders reach.
    #[test]
    fn no_order_takes_another_pattern_or_a_lasting_order_away() {
        let orders = [
            set("a p* total=1"),
            set("a q* total=2"),
            set_for_a_minute("a p* total=3"),
            set_for_a_minute("a q* deny"),
            RuleOrder::Off("a".to_owned()),
            RuleOrder::Reset("a".to_owned()),
        ];
        let lasting = |book: &RuleBook| book.orders_about("a").and_then(Orders::lasting).cloned();
        let pattern = |book: &RuleBook| {
            let rule = book.orders_about("a").and_then(Orders::in_force);
            rule.map(|rule| rule.pattern.clone())
        };
        let mut books = vec![RuleBook::default(), book("a p* deny"), book("a r*\nb p*")];
        for _ in 0..4 {
            let mut next = Vec::new();
            for (before, order) in books.iter().flat_map(|b| orders.iter().map(move |o| (b, o))) {
                let mut after = before.clone();
                let is_done = after.execute(order.clone(), NOW).is_ok();
                match order {
                    _ if !is_done => assert_eq!(&after, before, "{order:?}"),
                    RuleOrder::Set { rule, for_s } => {
                        assert!(after.in_force().contains(rule));
                        assert!(pattern(before).is_none_or(|p| p == rule.pattern), "{before:?}");
                        if for_s.is_some() {
                            assert_eq!(lasting(&after), lasting(before));
                        }
                    }
                    RuleOrder::Off(name) => {
                        assert!(after.in_force().iter().all(|rule| rule.name != *name));
                    }
                    RuleOrder::Reset(_) => {}
                }
                let mut later = after.clone();
                later.expire(NOW.plus_seconds(60));
                assert_eq!((lasting(&later), later.next_deadline()), (lasting(&after), None));
                assert_eq!(later.orders().endless, usize::from(lasting(&after).is_some()));
                let text = serde_json::to_string(&after).unwrap();
                assert_eq!(serde_json::from_str::<RuleBook>(&text).unwrap(), after);
                next.push(after);
            }
            books = next;
        }
    }

    #[test]
    fn a_snapshot_that_no_orders_make_is_refused() {
        let order = |rule: &str| format!(r#"{{"rule":"{rule}","since_ns":1,"until_ns":2}}"#);
        let lasting = |rule: &str| format!(r#"{{"change":{{"set":"{rule}"}},"since_ns":1}}"#);
        let book =
            |orders: &str| serde_json::from_str::<RuleBook>(&format!(r#"{{"orders":[{orders}]}}"#));
        let (timed, below) = (order("a p* deny"), lasting("a p* total=1"));
        let good = format!(r#"{{"timed":[{timed},{below}]}},{{"lasting":{}}}"#, lasting("b *"));
        assert_eq!(book(&good).unwrap().orders().endless, 2);
        for bad in [
            format!(r#"{{"timed":[{timed},{}]}}"#, lasting("b p*")),
            format!(r#"{{"timed":[{timed},null]}},{{"lasting":{below}}}"#),
            format!(r#"{{"lasting":{}}}"#, lasting("- p* max-hold=1s")),
            format!(r#"{{"timed":[null,{below}]}}"#),
            r#"{"lasting":{"change":{},"since_ns":1}}"#.to_owned(),
            r#"{"lasting":{"change":"off","since_ns":1}}"#.to_owned(),
            r#"{}"#.to_owned(),
        ] {
            assert!(book(&bad).is_err(), "{bad}");
        }
        for bad in [r#"{"max_hold":["a * max-hold=1s"]}"#, r#"{"file":["- * max-hold=1s"]}"#] {
            assert!(serde_json::from_str::<RuleBook>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn orders_are_counted_from_when_each_was_given() {
        let mut book = book("a a*\nb b* deny\n");
        assert_eq!(book.orders(), RuleOrders::default());
        let at = |n| Time::from_ns(n);
        for (order, n, expected) in [
            (set_for_a_minute("a a* deny"), 1, (1, Some(1), 0, None)),
            (set("c c* deny"), 2, (2, Some(1), 1, Some(2))),
            (RuleOrder::Off("b".into()), 3, (3, Some(1), 2, Some(2))),
            // A new order about the same rule counts from when it was given.
            (RuleOrder::Off("c".into()), 4, (3, Some(1), 2, Some(3))),
            (RuleOrder::Off("a".into()), 5, (3, Some(3), 3, Some(3))),
            (RuleOrder::Reset("b".into()), 6, (2, Some(4), 2, Some(4))),
            // One that lies below another counts too.
            (set_for_a_minute("a a* deny"), 7, (2, Some(4), 2, Some(4))),
        ] {
            book.execute(order.clone(), at(n)).unwrap();
            let RuleOrders { rules, since, endless, endless_since } = book.orders();
            let [since, endless_since] = [since, endless_since].map(|time| time.map(Time::as_ns));
            assert_eq!((rules, since, endless, endless_since), expected, "{order:?}");
        }
        // A hot restart hands over when.
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<RuleBook>(&text).unwrap().orders(), book.orders());
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
