//! What reports show: it must be the model's state at some moment between the question and its
//! answer.

use super::addresses::ClientAddresses;
use super::expected_figures::ExpectedFigures;
use super::json_lists;
use super::slow_list::SlowList;
use super::top_lists::RequestHistory;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::kernel;
use crate::simulation::model::{End, Lock, Model, is_match};
use crate::simulation::os::PLACES_PER_TURN;
use crate::simulation::os::recording_engine::EngineCall;
use engine::ClientId;
use engine::counts::statistics::Counters;
use protocol::{Command, List, MatchingKeys, Query, Reply};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// How many moments are remembered: a question that is older is not judged.
const MOMENTS_MAX: usize = 10_000;

/// What the daemon counts outside of the engine: the model does not have it.
const NOT_OF_THE_MODEL: [&str; 10] = [
    "connect_errors",
    "failed_sends",
    "rejected_connections",
    "rejected_connections_per_ip",
    "denied_connections",
    "freed_connections",
    "accepted_connections",
    "closed_connections",
    "lost_connections",
    "unread_connections",
];

/// Names in `/metrics`, and those of `STATS`.
const MODERN_NAMES: [(&str, &str); 9] = [
    ("poolcounter_keys", "hashtable_entries"),
    ("poolcounter_holders", "processing_workers"),
    ("poolcounter_waiters", "waiting_workers"),
    ("poolcounter_acquired_total", "total_acquired"),
    ("poolcounter_releases_total", "total_releases"),
    ("poolcounter_processed_total", "processed_count"),
    ("poolcounter_full_queues_total", "full_queues"),
    ("poolcounter_lock_mismatch_total", "lock_mismatch"),
    ("poolcounter_release_mismatch_total", "release_mismatch"),
];

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportKind {
    Query(Query),
    /// `/metrics`.
    Metrics,
    /// `/prometheus`.
    Exporter,
    /// `RULES`.
    Rules,
    /// `RULES --json`.
    JsonRules,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) report: ReportKind,
    /// The first moment that the answer may show.
    pub(crate) since: usize,
    /// `None` for an operator, to whom nothing is hidden.
    pub(crate) privacy: Option<Privacy>,
    pub(crate) had_events: bool,
    /// How many hot restarts were refused before.
    pub(crate) refused: u64,
    /// Whether it drained, and how often that had changed.
    pub(super) draining: (bool, usize),
}

/// Whether `--private` is on, and since which image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Privacy {
    is_on: bool,
    image: usize,
}

/// Holders and waiters, for me and for anyone.
pub(super) type QueueLengths = [usize; 3];

/// A key with its holders and waiters.
pub(super) type KeyRow = (Vec<u8>, QueueLengths);

/// The model's state.
#[derive(Debug)]
pub(super) struct Moment {
    counters: Counters,
    pub(super) keys: BTreeMap<Vec<u8>, QueueLengths>,
    /// How many holds and waits were slow until then.
    slow: usize,
    /// How many requests were decided, and holds and waits had ended.
    requests: usize,
    /// Only while a report may show single locks.
    locks: Option<Vec<Lock>>,
    /// The clients that were connected before that turn, and those in it.
    present: Rc<[Vec<u32>; 2]>,
    pub(super) now_ns: u64,
}

/// The model's states, for as long as a report is awaited.
#[derive(Debug, Default)]
pub(crate) struct Moments {
    all: VecDeque<Moment>,
    first: usize,
    privacy: Privacy,
    pub(crate) slow: SlowList,
    pub(crate) requests: RequestHistory,
    pub(crate) addresses: ClientAddresses,
    pub(crate) figures: ExpectedFigures,
    /// The clients that were connected before this turn, and those in it.
    present: Rc<[Vec<u32>; 2]>,
    after: Vec<u32>,
    /// A report that shows single locks is awaited.
    wants_locks: bool,
    /// There were so many keys that a report looks at their places in several turns: from then
    /// on, because the places remain.
    has_many_keys: bool,
}

impl Moments {
    /// What was asked for in this turn may be shown as it is now, before the engine is called.
    pub(crate) fn note_locks(&mut self, model: &Model) {
        if let Some(now) = self.all.back_mut().filter(|_| self.wants_locks) {
            now.locks.get_or_insert_with(|| model.locks.clone());
        }
    }

    /// These clients are connected after a turn: during it, those of the turn before were, too.
    pub(crate) fn note_connected(&mut self, now: Vec<u32>) {
        let before = std::mem::replace(&mut self.after, now);
        if self.present[0] == before && self.present[1] == self.after {
            return;
        }
        let meanwhile: BTreeSet<u32> = before.iter().chain(&self.after).copied().collect();
        self.present = Rc::new([before, meanwhile.into_iter().collect()]);
    }

    /// The engine got this call, and gave these answers; these holds and waits have ended.
    pub(crate) fn follow(
        &mut self,
        asked: &EngineCall,
        answers: &[(ClientId, Reply)],
        ends: &[End],
    ) {
        self.slow.note(ends);
        self.requests.follow(asked, answers, ends, &self.addresses);
    }

    pub(crate) fn note(&mut self, model: &Model) {
        let now_ns = kernel(|k| k.now_ns);
        let (counters, keys) = (model.counters(), model.queues());
        let (slow, requests) = (self.slow.len(), self.requests.len());
        let locks = self.wants_locks.then(|| model.locks.clone());
        // The number of places doubles.
        self.has_many_keys |= keys.len() > PLACES_PER_TURN / 2;
        let present = Rc::clone(&self.present);
        self.all.push_back(Moment { counters, keys, slow, requests, locks, present, now_ns });
        if self.all.len() > MOMENTS_MAX {
            self.all.pop_front();
            self.first += 1;
        }
    }

    /// No report is awaited.
    pub(crate) fn clear(&mut self) {
        self.first += self.all.len();
        self.all.clear();
        self.wants_locks = false;
    }

    /// An image starts, with or without `--private`.
    pub(crate) fn set_private(&mut self, is_private: bool, image: usize) {
        if self.privacy.is_on != is_private {
            self.privacy = Privacy { is_on: is_private, image };
        }
    }

    /// A question of an operator.
    pub(crate) fn question_of_operator(&mut self, report: ReportKind) -> Question {
        Question { privacy: None, ..self.question(report) }
    }

    /// A question that is asked now, before the engine is called again.
    pub(crate) fn question(&mut self, report: ReportKind) -> Question {
        self.wants_locks |= matches!(
            report,
            ReportKind::Query(
                Query::List(List::Key(_) | List::Clients(_))
                    | Query::JsonList(List::Key(_) | List::Clients(_))
            )
        );
        Question {
            report,
            since: (self.first + self.all.len()).saturating_sub(1),
            privacy: Some(self.privacy),
            had_events: self.figures.had_events(),
            refused: self.figures.refused(),
            draining: self.figures.draining(),
        }
    }

    pub(super) fn check_any_moment(
        &self,
        question: &Question,
        what: &str,
        is_it: impl Fn(&Moment) -> bool,
    ) -> Result<(), Violation> {
        let Some(skipped) = question.since.checked_sub(self.first) else { return Ok(()) };
        if self.all.iter().skip(skipped).any(is_it) {
            Ok(())
        } else {
            Err(format!("{what} is shown, but was never true: {:?}", self.all.back()))
        }
    }

    /// Whether these are rows of keys, as many as there are or as `rows_max`.
    pub(super) fn check_key_rows(
        &self,
        question: &Question,
        shown: &[KeyRow],
        rows_max: usize,
        is_private: bool,
    ) -> Result<(), Violation> {
        let what = format!("{shown:?}");
        if self.has_many_keys {
            return shown.iter().try_for_each(|row| {
                self.check_any_moment(question, &what, |moment| has_key(moment, row, is_private))
            });
        }
        self.check_any_moment(question, &what, |moment| {
            shown.len() == moment.keys.len().min(rows_max)
                && shown.iter().all(|row| has_key(moment, row, is_private))
        })
    }

    /// Whether `text` may answer `question`.
    ///
    /// Invariant: A report shows the model's state at one moment between the question and its end:
    /// counters, the holders and waiters of each key, the last slow holds and waits, and how often
    /// each key was asked for and how long it was held and waited for; the same for each host. If
    /// there are many keys, it shows each as it was at one of the moments.
    ///
    /// Invariant: With `--private` a report names no key and no address, except to operators.
    pub(crate) fn judge(&self, question: &Question, text: &str) -> Result<(), Violation> {
        if self.is_private_to(question) && shows_names(text) {
            return Err(format!("{text:?} shows a key or an address"));
        }
        let is_private = self.may_be_private_to(question);
        match &question.report {
            ReportKind::Query(Query::Json) => self.judge_json(question, text, is_private),
            ReportKind::Query(Query::List(list)) => {
                self.judge_list(question, text, list, is_private)
            }
            ReportKind::Query(Query::JsonList(list)) => {
                self.judge_list(question, &json_lists::text_of(list, text)?, list, is_private)
            }
            ReportKind::Query(Query::MatchingKeys(query)) => {
                self.judge_matching_keys(question, text, query, is_private)
            }
            ReportKind::Query(Query::Full) => {
                self.judge_counters(question, &values(text, ": ", ""))
            }
            ReportKind::Exporter => {
                self.judge_counters(question, &values(text, " ", "poolcounter_"))
            }
            ReportKind::Metrics => {
                self.figures.judge_metrics(text, question)?;
                let all = values(text, " ", "");
                let known = MODERN_NAMES.iter().map(|&(modern, name)| (name, all.get(modern)));
                let known = known.filter_map(|(name, value)| Some((name, *value?))).collect();
                self.judge_counters(question, &known)
            }
            ReportKind::JsonRules => {
                json_lists::rules_of(text).and_then(|text| self.judge_rules(question, &text))
            }
            ReportKind::Rules => self.judge_rules(question, text),
            ReportKind::Query(Query::Uptime | Query::History | Query::Counter(_)) => Ok(()),
        }
    }

    fn judge_list(
        &self,
        question: &Question,
        text: &str,
        list: &List,
        is_private: bool,
    ) -> Result<(), Violation> {
        match list {
            List::Keys(rows) => self.judge_keys(question, text, *rows as usize, is_private),
            List::Key(key) => self.judge_key(question, text, key, is_private),
            List::Clients(_) => self.judge_clients(question, text),
            List::Top(span, subject) => {
                let what = (*span, *subject);
                self.judge_requests(question, text, |moments| {
                    self.requests.match_text(text, what, is_private, moments)
                })
            }
            List::Slow(rows) => self.check_any_moment(question, text, |moment| {
                let rows = (moment.slow, *rows as usize);
                self.slow.matches(text, rows, is_private, &self.addresses)
            }),
        }
    }

    /// Invariant: `STATS JSON KEYS` with a pattern counts the keys that match, and lists as many as it
    /// is asked for, those that are held for longest first. With `--private`, clients are refused any
    /// other pattern than `*`.
    fn judge_matching_keys(
        &self,
        question: &Question,
        text: &str,
        query: &MatchingKeys,
        is_private: bool,
    ) -> Result<(), Violation> {
        let found = json_lists::matching_keys(text)?;
        let shown = &found.rows;
        if found.matching != shown.len() + found.left_out || !found.are_oldest_first {
            return Err(format!("{text:?} is not in order"));
        }
        if self.is_private_to(question) && query.pattern != b"*" {
            return Err(format!("{text:?} tells which keys match"));
        }
        if self.has_many_keys {
            return self.check_key_rows(question, shown, usize::MAX, is_private);
        }
        self.check_any_moment(question, text, |moment| {
            let keys = moment.keys.keys();
            let matching = keys.filter(|key| is_match(&query.pattern, key)).count();
            found.matching == matching
                && shown.len() == matching.min(query.rows as usize)
                && shown.iter().all(|row| has_key(moment, row, is_private))
        })
    }

    /// Whether `--private` is on for who asks, from the question to the answer.
    fn is_private_to(&self, question: &Question) -> bool {
        self.privacy.is_on && question.privacy == Some(self.privacy)
    }

    /// Whether it is on at either of them, or was meanwhile.
    fn may_be_private_to(&self, question: &Question) -> bool {
        question.privacy.is_some_and(|at_first| at_first.is_on || at_first != self.privacy)
    }

    /// Whether keys that match a pattern may be hidden from who asks.
    pub(crate) fn judge_hidden_matches(&self, question: &Question) -> Result<(), Violation> {
        match &question.report {
            ReportKind::Query(Query::MatchingKeys(query))
                if self.may_be_private_to(question) && query.pattern != b"*" =>
            {
                Ok(())
            }
            report => Err(format!("{report:?} is refused")),
        }
    }

    pub(super) fn judge_counters(
        &self,
        question: &Question,
        shown: &BTreeMap<&str, u64>,
    ) -> Result<(), Violation> {
        let known: Vec<_> = Counters::ALL
            .iter()
            .filter(|counter| !NOT_OF_THE_MODEL.contains(&counter.name))
            .filter_map(|counter| Some((counter, *shown.get(counter.name)?)))
            .collect();
        if known.len() < 9 {
            return Err(format!("only {} counters are shown", known.len()));
        }
        self.check_any_moment(question, &format!("{shown:?}"), |moment| {
            known.iter().all(|(counter, value)| (counter.get)(&moment.counters) == *value)
        })
    }

    fn judge_keys(
        &self,
        question: &Question,
        text: &str,
        rows: usize,
        is_private: bool,
    ) -> Result<(), Violation> {
        let shown = rows_of(text, "holders for_me").map(|row| {
            let name = row.last().copied().unwrap_or_default().as_bytes().to_vec();
            (name, [0, 1, 2].map(|n| row.get(n).map_or(usize::MAX, |text| number(text))))
        });
        let shown: Vec<KeyRow> = shown.collect();
        let head = text.lines().next().unwrap_or_default();
        self.check_any_moment(question, text, |moment| {
            let all = moment.keys.len();
            self.has_many_keys || head == format!("keys: {} of {all}", all.min(rows))
        })?;
        self.check_key_rows(question, &shown, rows, is_private)
    }

    /// Invariant: The lists of `STATS TOP` and JSON show what was asked for most, by the model, at
    /// one of the moments.
    pub(super) fn judge_requests(
        &self,
        question: &Question,
        text: &str,
        are_shown: impl FnOnce(&mut dyn Iterator<Item = (u64, usize)>) -> bool,
    ) -> Result<(), Violation> {
        let Some(skipped) = question.since.checked_sub(self.first) else { return Ok(()) };
        let mut moments = self.all.iter().skip(skipped).map(|one| (one.now_ns, one.requests));
        if are_shown(&mut moments) {
            Ok(())
        } else {
            Err(format!("{text} is shown, but was never true"))
        }
    }

    fn judge_key(
        &self,
        question: &Question,
        text: &str,
        key: &[u8],
        is_private: bool,
    ) -> Result<(), Violation> {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            number(line.unwrap_or("-"))
        };
        let shown = [value("holders: "), value("for_me: "), value("for_anyone: ")];
        let rows: Vec<Vec<&str>> = rows_of(text, "what kind").collect();
        if rows.len() != shown.iter().sum::<usize>() {
            return Err(format!("{} rows for {shown:?}", rows.len()));
        }
        self.check_any_moment(question, text, |moment| {
            let are_shown = |locks: &Vec<Lock>| {
                self.addresses.match_key_rows(&rows, key, (locks, moment.now_ns), is_private)
            };
            moment.keys.get(key).copied().unwrap_or_default() == shown
                && moment.locks.as_ref().is_none_or(are_shown)
        })
    }

    /// Invariant: `RULES` shows for each rule in force how many keys it matches, their holders and
    /// waiters; if there are many keys, a key at most as often as there were moments at which it
    /// existed: while a scan goes on, it may end and come back at another place.
    fn judge_rules(&self, question: &Question, text: &str) -> Result<(), Violation> {
        let rows: Vec<Vec<&str>> =
            rows_of(text, "keys holders").filter(|row| row[0] != "-").collect();
        if self.has_many_keys {
            return self.judge_rules_of_many_keys(question, &rows);
        }
        self.check_any_moment(question, text, |moment| {
            rows.iter().all(|row| {
                let matching =
                    moment.keys.iter().filter(|(key, _)| is_match(row[7].as_bytes(), key));
                let sums = matching.fold([0; 3], |sums, (_, [holders, for_me, for_anyone])| {
                    [sums[0] + 1, sums[1] + holders, sums[2] + for_me + for_anyone]
                });
                sums == [0, 1, 2].map(|column| number(row[column]))
            })
        })
    }

    fn judge_rules_of_many_keys(
        &self,
        question: &Question,
        rows: &[Vec<&str>],
    ) -> Result<(), Violation> {
        let Some(skipped) = question.since.checked_sub(self.first) else { return Ok(()) };
        let moments = self.all.iter().skip(skipped);
        let ever: Vec<&[u8]> =
            moments.flat_map(|moment| moment.keys.keys().map(Vec::as_slice)).collect();
        for row in rows {
            let matching = ever.iter().filter(|key| is_match(row[7].as_bytes(), key)).count();
            if number(row[0]) > matching {
                return Err(format!("{row:?}, but the rule never matched more than {matching}"));
            }
        }
        Ok(())
    }

    /// The clients that were connected all the time since the question, and at any time.
    fn present_since(&self, question: &Question) -> Option<[BTreeSet<u32>; 2]> {
        let skipped = question.since.checked_sub(self.first)?;
        let mut least: BTreeSet<u32> = self.after.iter().copied().collect();
        let mut most = least.clone();
        let mut presents: Vec<_> =
            self.all.iter().skip(skipped).map(|moment| &moment.present).collect();
        presents.dedup_by(|one, other| Rc::ptr_eq(one, other));
        for present in presents {
            let [before, meanwhile] = &**present;
            least.retain(|one| before.contains(one));
            most.extend(meanwhile);
        }
        Some([least, most])
    }

    /// Invariant: `STATS CLIENTS` shows how many connections, holds and waits each host has, if it
    /// was made in one turn. If it was made in several, each connection shows as it was in its
    /// turn: the report counts the clients that were connected all the time, and none that never
    /// was.
    fn judge_clients(&self, question: &Question, text: &str) -> Result<(), Violation> {
        let sum =
            |column: usize| rows_of(text, HOSTS).map(|row| number(row[column])).sum::<usize>();
        let (connections, holds, waits) = (sum(0), sum(1), sum(2));
        if !text.contains(&format!("\nconnections: {connections}\n")) {
            return Err(format!("{text:?} does not add up"));
        }
        if text.contains("\nturns: ") {
            let Some([least, most]) = self.present_since(question) else { return Ok(()) };
            return if (least.len()..=most.len()).contains(&connections) {
                Ok(())
            } else {
                Err(format!("{text:?}, with connections of {least:?} up to {most:?}"))
            };
        }
        let rows: Vec<Vec<&str>> = rows_of(text, HOSTS).collect();
        self.check_any_moment(question, text, |moment| {
            let counters = &moment.counters;
            let are_shown =
                |locks: &Vec<Lock>| self.addresses.match_host_rows(&rows, &moment.present, locks);
            (counters.processing_workers, counters.waiting_workers) == (holds as u64, waits as u64)
                && moment.locks.as_ref().is_none_or(are_shown)
        })
    }
}

/// Whether there is such a key; its name may be hidden if `is_private`.
pub(super) fn has_key(moment: &Moment, (name, queues): &KeyRow, is_private: bool) -> bool {
    moment.keys.get(name) == Some(queues)
        || is_private && moment.keys.values().any(|there| there == queues)
}

fn number(text: &str) -> usize {
    text.trim().parse().unwrap_or(usize::MAX)
}

/// Lines with a name and a whole number.
fn values<'a>(text: &'a str, between: &str, prefix: &str) -> BTreeMap<&'a str, u64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix)?.split_once(between));
    lines.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
}

/// The first columns of `STATS CLIENTS`.
const HOSTS: &str = "connections holds";

/// The rows of a list, in words: behind the line that begins with these names of columns.
fn rows_of<'a>(text: &'a str, columns: &str) -> impl Iterator<Item = Vec<&'a str>> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.skip_while(move |words| !words.join(" ").starts_with(columns)).skip(1)
}

/// Whether a report has a key or an address in it. `STATS KEY` repeats what was asked.
fn shows_names(text: &str) -> bool {
    let is_key = |line: &str| {
        let last = line.rsplit([' ', '"']).next().unwrap_or_default();
        !line.starts_with("key: ") && ["k1", "k2", "k3"].contains(&last)
    };
    let asked = ["k1", "k2", "k3"].map(|key| format!("{{\"key\":\"{key}\","));
    let start = asked.iter().find(|start| text.starts_with(*start)).map_or(0, String::len);
    let text = &text[start..];
    let quoted = ["\"k1\"", "\"k2\"", "\"k3\"", "10.8.0.", "10.9.0.", "unix:"];
    text.lines().any(is_key) || quoted.iter().any(|name| text.contains(name))
}

/// What a line asks for, if that is a report of several lines.
pub(crate) fn parse_report(line: &[u8]) -> Option<ReportKind> {
    match line {
        b"RULES" => return Some(ReportKind::Rules),
        b"RULES --json" => return Some(ReportKind::JsonRules),
        _ => {}
    }
    match Command::parse(line) {
        Command::Stats(Query::Uptime | Query::Counter(_)) => None,
        Command::Stats(query) => Some(ReportKind::Query(query)),
        _ => None,
    }
}

/// What a report begins with. Each of those in JSON has a first member of its own.
pub(crate) fn report_prefix(report: &ReportKind) -> &'static str {
    let ReportKind::Query(query) = report else {
        return match report {
            ReportKind::Rules => "rules: ",
            ReportKind::JsonRules => "{\"rules_total\":",
            _ => "# ",
        };
    };
    match query {
        Query::Json => "{\"version\":",
        Query::History => "{\"time\":",
        Query::List(List::Keys(_)) => "keys: ",
        Query::List(List::Key(_)) => "key: ",
        Query::List(List::Clients(_)) => "addresses: ",
        Query::List(List::Top(..)) => "top: ",
        Query::List(List::Slow(_)) => "slow: ",
        Query::JsonList(List::Keys(_)) | Query::MatchingKeys(_) => "{\"keys_total\":",
        Query::JsonList(List::Key(_)) => "{\"key\":",
        Query::JsonList(List::Clients(_)) => "{\"addresses\":",
        Query::JsonList(List::Top(..)) => "{\"top\":",
        Query::JsonList(List::Slow(_)) => "{\"slow_total\":",
        Query::Full | Query::Uptime | Query::Counter(_) => "uptime: ",
    }
}
