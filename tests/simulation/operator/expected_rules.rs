//! Which rules must be in force: those of the file, with what operators have changed, and
//! those of `--max-hold`.

use crate::Options;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::kernel;

/// What the file of rules may contain, and whether that is valid.
pub(crate) const RULES_TEXTS: [(&str, bool); 7] = [
    ("articles k1\nbots k2 deny\n", true),
    ("# the same\n\narticles k1\nbots\tk2  deny # at night\n", true),
    ("# more\narticles  k1 workers=1 maxqueue=3 # one\nshort k* timeout=1s\n", true),
    ("all k* total=2 stuck-after=never\nheld *1 max-hold=2s\n", true),
    ("", true),
    ("articles k1\narticles k2\n", false),
    ("articles k1 workers=0\n", false),
];

/// An order about a rule, as operators write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleLine {
    Set { rule: String, for_s: Option<u64> },
    Off(String),
    Reset(String),
}

/// An order that sets a rule or turns it off, and was executed.
struct Order {
    name: String,
    /// What it puts in the place of the file's rule: nothing, if it turns that off.
    rule: Option<String>,
    is_timed: bool,
    /// Or `RULE RESET` ends it.
    ends_ns: u64,
}

/// The rules by where they come from.
#[derive(Default)]
pub(super) struct ExpectedRules {
    /// Those of the file that the image has read, or its trial.
    file: Vec<String>,
    options: Vec<String>,
    /// All orders about names that have changed since the file did, the newest last.
    orders: Vec<Order>,
    /// When the last turn began.
    now_ns: u64,
    /// What the trial of the next image has read.
    pub(super) next_file: Option<&'static str>,
    /// How often the file had been read before the exec of this image.
    reads: usize,
}

/// A missing file is not valid.
pub(super) fn is_valid(text: Option<&str>) -> bool {
    RULES_TEXTS.iter().any(|&(known, valid)| valid && text == Some(known))
}

/// Reads what follows `RULE `, if that is an order.
pub(super) fn parse(text: &str) -> Option<RuleLine> {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["SET", name, "FOR", time, ref rest @ ..] => {
            let rule = [&[name], rest].concat().join(" ");
            Some(RuleLine::Set { rule, for_s: Some(time.strip_suffix('s')?.parse().ok()?) })
        }
        ["SET", _, _, ..] => Some(RuleLine::Set { rule: words[1..].join(" "), for_s: None }),
        ["OFF", name] => Some(RuleLine::Off(name.to_owned())),
        ["RESET", name] => Some(RuleLine::Reset(name.to_owned())),
        _ => None,
    }
}

impl ExpectedRules {
    /// An image has started with these options.
    ///
    /// Invariant: Operators' changes to rules stay until a hot restart brings different rules in
    /// the file; a missing option is an empty file, comments and spaces do not count. The file is
    /// the one that the trial has read.
    pub(super) fn note_start(&mut self, options: &Options, is_restart: bool) {
        self.reads = kernel(|k| k.rules_reads);
        let text = if is_restart { self.next_file } else { kernel(|k| k.rules_text) };
        let file = text.filter(|_| options.rules.is_some()).map_or_else(Vec::new, rules_in);
        if file != self.file {
            self.orders.clear();
        }
        self.file = file;
        self.options = options.max_hold.iter().map(ToString::to_string).collect();
    }

    /// Invariant: A new image does not read the file of rules: somebody may be editing it.
    pub(super) fn check_resumed(&self) -> Result<(), Violation> {
        if kernel(|k| k.rules_reads) == self.reads {
            Ok(())
        } else {
            Err("the new image has read the file of rules".to_owned())
        }
    }

    /// A turn begins.
    pub(super) fn note_time(&mut self) {
        self.now_ns = kernel(|k| k.now_ns);
    }

    fn is_in_file(&self, name: &str) -> bool {
        self.file.iter().any(|rule| name_of(rule) == name)
    }

    /// Which order about this name holds.
    ///
    /// Invariant: That is the last one; once it has ended, the last one without `FOR`. A rule that
    /// was set `FOR` some time ends in the first turn after that.
    fn holding(&self, name: &str) -> Option<usize> {
        let last = |is_meant: fn(&Order) -> bool| {
            self.orders.iter().rposition(|order| order.name == name && is_meant(order))
        };
        let lasts = [last(|_| true), last(|order| !order.is_timed)];
        lasts.into_iter().flatten().find(|&at| self.orders[at].ends_ns > self.now_ns)
    }

    /// Invariant: `RULE SET` replaces the rule of a name, and `RULE OFF` disables it, if there is
    /// one. `RULE RESET` ends the order that holds. Without settings, only a rule of the file can be
    /// replaced; a rule that an order has set keeps its pattern.
    pub(super) fn apply(&mut self, line: RuleLine) {
        let (name, rule, for_s) = match line {
            RuleLine::Set { rule, for_s } => (name_of(&rule).to_owned(), Some(rule), for_s),
            RuleLine::Off(name) => (name, None, None),
            RuleLine::Reset(name) => {
                if let Some(at) = self.holding(&name) {
                    self.orders[at].ends_ns = self.now_ns;
                }
                return;
            }
        };
        let old = self.holding(&name).map(|at| &self.orders[at]);
        let is_refused = match &rule {
            Some(rule) if !has_settings(rule) && !self.is_in_file(&name) => true,
            Some(rule) => old
                .and_then(|old| old.rule.as_deref())
                .is_some_and(|old| pattern_of(old) != pattern_of(rule)),
            None => old.is_none() && !self.is_in_file(&name),
        };
        if is_refused {
            return;
        }
        if old.is_none() {
            self.orders.retain(|order| order.name != name);
        }
        let ends_ns = for_s.map_or(u64::MAX, |seconds| self.now_ns + seconds * 1_000_000_000);
        self.orders.push(Order { name, rule, is_timed: for_s.is_some(), ends_ns });
    }

    /// In the order in which they apply.
    ///
    /// Invariant: Rules that are not in the file stand in front of it, the name that was changed
    /// first last.
    pub(super) fn in_force(&self) -> Vec<String> {
        let by_order = |name: &str| self.holding(name).map(|at| self.orders[at].rule.as_ref());
        let is_first = |(at, order): &(usize, &Order)| {
            self.orders[..*at].iter().all(|other| other.name != order.name)
        };
        let names = self.orders.iter().enumerate().filter(is_first).map(|(_, order)| &order.name);
        let new = names.rev().filter(|name| !self.is_in_file(name));
        let new = new.filter_map(|name| by_order(name).flatten());
        let of_file =
            self.file.iter().filter_map(|rule| by_order(name_of(rule)).unwrap_or(Some(rule)));
        new.chain(of_file).chain(&self.options).cloned().collect()
    }

    /// When the next rule ends by itself.
    pub(super) fn next_end_ns(&self) -> Option<u64> {
        let holding = self.orders.iter().filter_map(|order| self.holding(&order.name));
        let orders = holding.map(|at| &self.orders[at]).filter(|order| order.is_timed);
        orders.map(|order| order.ends_ns).min()
    }
}

/// Without comments, one space between words.
fn rules_in(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let rules = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    rules.filter(|rule| !rule.is_empty()).collect()
}

/// More than a name and a pattern.
fn has_settings(rule: &str) -> bool {
    rule.split(' ').count() > 2
}

fn pattern_of(rule: &str) -> Option<&str> {
    rule.split(' ').nth(1)
}

fn name_of(rule: &str) -> &str {
    rule.split(' ').next().unwrap_or_default()
}
