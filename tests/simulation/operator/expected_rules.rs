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
    Set { name: String, rule: String, for_s: Option<u64> },
    Off(String),
    Reset(String),
}

/// What orders have changed about a name.
struct Change {
    name: String,
    /// What the order without an end says: a rule, or that there is none.
    lasting: Option<Option<String>>,
    /// The rule of the order that ends by itself, and when that is.
    timed: Option<(String, u64)>,
}

impl Change {
    /// What it puts in the place of the file's rule.
    fn in_force(&self) -> Option<&String> {
        let timed = self.timed.as_ref().map(|(rule, _)| rule);
        timed.or(self.lasting.as_ref().and_then(Option::as_ref))
    }
}

/// The rules by where they come from.
#[derive(Default)]
pub(super) struct ExpectedRules {
    /// Those of the file that the image has read, or its trial.
    file: Vec<String>,
    options: Vec<String>,
    /// The newest first.
    changes: Vec<Change>,
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
        ["SET", name, "FOR", time, ..] => {
            let rule = std::iter::once(name).chain(words[4..].iter().copied());
            let rule = rule.collect::<Vec<_>>().join(" ");
            let for_s = Some(time.strip_suffix('s')?.parse().ok()?);
            Some(RuleLine::Set { name: name.to_owned(), rule, for_s })
        }
        ["SET", name, _, ..] => {
            Some(RuleLine::Set { name: name.to_owned(), rule: words[1..].join(" "), for_s: None })
        }
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
            self.changes.clear();
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

    fn is_in_file(&self, name: &str) -> bool {
        self.file.iter().any(|rule| name_of(rule) == name)
    }

    fn is_known(&self, name: &str) -> bool {
        self.is_in_file(name) || self.changes.iter().any(|change| change.name == name)
    }

    /// Invariant: `RULE SET` replaces the rule of a name, or puts it in front of all others, and
    /// `RULE OFF` disables it; `FOR` lies over what has no end. `RULE RESET` takes the upper one
    /// away. Without settings, only a rule of the file can be replaced; a rule that an order has
    /// set keeps its pattern.
    pub(super) fn apply(&mut self, line: RuleLine) {
        let now_ns = kernel(|k| k.now_ns);
        match line {
            RuleLine::Reset(name) => {
                for change in self.changes.iter_mut().filter(|change| change.name == name) {
                    if change.timed.take().is_none() {
                        change.lasting = None;
                    }
                }
            }
            RuleLine::Off(name) if !self.is_known(&name) => {}
            RuleLine::Off(name) => {
                let change = self.change_of(&name);
                (change.lasting, change.timed) = (Some(None), None);
            }
            RuleLine::Set { name, rule, .. } if !has_settings(&rule) && !self.is_in_file(&name) => {
            }
            RuleLine::Set { name, rule, for_s } => {
                let change = self.change_of(&name);
                let has_other_pattern = |old: &String| pattern_of(old) != pattern_of(&rule);
                if !change.in_force().is_some_and(has_other_pattern) {
                    match for_s {
                        Some(seconds) => {
                            change.timed = Some((rule, now_ns + seconds * 1_000_000_000))
                        }
                        None => (change.lasting, change.timed) = (Some(Some(rule)), None),
                    }
                }
            }
        }
        self.forget_empty();
    }

    fn change_of(&mut self, name: &str) -> &mut Change {
        let at = self.changes.iter().position(|change| change.name == name).unwrap_or_else(|| {
            self.changes.insert(0, Change { name: name.to_owned(), lasting: None, timed: None });
            0
        });
        &mut self.changes[at]
    }

    fn forget_empty(&mut self) {
        self.changes.retain(|change| change.lasting.is_some() || change.timed.is_some());
    }

    /// In the order in which they apply.
    pub(super) fn in_force(&self) -> Vec<String> {
        let new = self.changes.iter().filter(|change| !self.is_in_file(&change.name));
        let new = new.filter_map(Change::in_force);
        let replaced = self.file.iter().filter_map(|rule| {
            match self.changes.iter().find(|change| change.name == name_of(rule)) {
                None => Some(rule),
                Some(change) => change.in_force(),
            }
        });
        new.chain(replaced).chain(&self.options).cloned().collect()
    }

    /// Invariant: A rule that was set `FOR` some time ends in the first turn after that.
    pub(super) fn expire(&mut self) {
        let now_ns = kernel(|k| k.now_ns);
        for change in &mut self.changes {
            change.timed.take_if(|(_, until_ns)| *until_ns <= now_ns);
        }
        self.forget_empty();
    }

    /// When the next change ends.
    pub(super) fn next_end_ns(&self) -> Option<u64> {
        self.changes.iter().filter_map(|change| change.timed.as_ref()).map(|timed| timed.1).min()
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
