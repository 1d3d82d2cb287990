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

/// What an order has changed.
struct Change {
    name: String,
    rule: Option<String>,
    is_off: bool,
    until_ns: Option<u64>,
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

    /// Invariant: `RULE SET` replaces the rule of a name, or puts it in front of all others; `RULE
    /// OFF` disables it; `RULE RESET` returns to that of the file. Without settings, only a rule of
    /// the file can be replaced.
    pub(super) fn apply(&mut self, line: RuleLine) {
        let now_ns = kernel(|k| k.now_ns);
        let change = match line {
            RuleLine::Reset(name) => {
                return self.changes.retain(|change| change.name != name);
            }
            RuleLine::Off(name) if !self.is_known(&name) => return,
            RuleLine::Off(name) => {
                let known = self.changes.iter().find(|change| change.name == name);
                let rule = known.and_then(|change| change.rule.clone());
                Change { name, rule, is_off: true, until_ns: None }
            }
            RuleLine::Set { name, rule, .. } if !has_settings(&rule) && !self.is_in_file(&name) => {
                return;
            }
            RuleLine::Set { name, rule, for_s } => {
                let until_ns = for_s.map(|seconds| now_ns + seconds * 1_000_000_000);
                Change { name, rule: Some(rule), is_off: false, until_ns }
            }
        };
        match self.changes.iter_mut().find(|other| other.name == change.name) {
            Some(other) => *other = change,
            None => self.changes.insert(0, change),
        }
    }

    /// In the order in which they apply.
    pub(super) fn in_force(&self) -> Vec<String> {
        let new = self.changes.iter();
        let new = new.filter(|change| !change.is_off && !self.is_in_file(&change.name));
        let new = new.filter_map(|change| change.rule.clone());
        let replaced = self.file.iter().filter_map(|rule| {
            match self.changes.iter().find(|change| change.name == name_of(rule)) {
                None => Some(rule.clone()),
                Some(change) if change.is_off => None,
                Some(change) => change.rule.clone(),
            }
        });
        new.chain(replaced).chain(self.options.iter().cloned()).collect()
    }

    /// Invariant: A rule that was set `FOR` some time ends in the first turn after that.
    pub(super) fn expire(&mut self) {
        let now_ns = kernel(|k| k.now_ns);
        self.changes.retain(|change| change.until_ns.is_none_or(|until_ns| until_ns > now_ns));
    }

    /// When the next change ends.
    pub(super) fn next_end_ns(&self) -> Option<u64> {
        self.changes.iter().filter_map(|change| change.until_ns).min()
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

fn name_of(rule: &str) -> &str {
    rule.split(' ').next().unwrap_or_default()
}
