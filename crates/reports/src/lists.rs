//! Lists as text (`STATS KEYS`, `KEY`, `CLIENTS`, `TOP`, `SLOW`, `RULES`, `--check-rules`):
//! columns, words in cells, how many rows at most. Some lines with a name and a value, then a line
//! with the names of columns, then the rows. Spaces separate columns; the one of unbounded
//! length is the last.

use super::report_view::{ROWS_MAX, ReportView, ShortDuration, brief_or_dash, mode_word};
use super::scan::Scan;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::time::Duration;
use engine::observe::heavy_hitters::Ranked;
use engine::rules::matcher::Matches;
use engine::rules::rule::Rule;
use engine::rules::{RULES_MAX, Rules};
use engine::view::{LockView, Phase, PoolView};
use engine::{ClientId, Time};
use protocol::{Mode, Span, Subject, UNLIMITED, key_text, time_text};

/// How many holders, and how many waiters of each kind, `STATS KEY` lists: as many IPv6
/// addresses as [`QUEUE_BYTES_MAX`] has room for.
pub(super) const QUEUE_ROWS_MAX: usize = 120;

/// How long the list of holders, and that of waiters of each kind, is. With the longest key, the
/// answer must not exceed what a client may leave unread, whatever names the clients have.
const QUEUE_BYTES_MAX: usize = 15 << 10;

/// How long the list of what `FREE` frees is: the answer, with its other lines, has at most 64 KiB.
const FREED_BYTES_MAX: usize = 63 << 10;

/// How many rows each of the two lists of `STATS TOP` has.
pub(super) const TOP_ROWS: usize = 20;

/// The columns of a lock.
const LOCK_COLUMNS: &str =
    "what   mode   since                    for         left        client  address";

/// A wait of this length means for ever.
const UNLIMITED_NS: u64 = UNLIMITED as u64 * 1_000_000_000;

/// Whether a lock's deadline is one that never comes.
pub(super) fn is_endless(lock: LockView, deadline: Time) -> bool {
    deadline.ns_since(lock.since()) >= UNLIMITED_NS
}

pub(super) fn rows_shown(asked: u32) -> usize {
    (asked as usize).min(ROWS_MAX)
}

/// `STATS KEYS`.
pub(super) fn keys(view: &ReportView, scan: &Scan, rows: u32) -> String {
    let mut text = String::new();
    let all = scan.keys();
    let rows = &all[..all.len().min(rows_shown(rows))];
    line!(text, "keys: {} of {}", rows.len(), scan.keys_seen);
    line!(text, "seen: {}", seen(view, scan));
    let rule_words: Vec<String> =
        rows.iter().map(|row| row.limiting_rules.behind().to_string()).collect();
    let width = rule_words.iter().map(String::len).max().unwrap_or(0).max("rule".len());
    line!(text, "holders for_me for_anyone oldest_hold oldest_wait {:width$} key", "rule");
    for (row, rule) in rows.iter().zip(&rule_words) {
        let hold = ShortDuration(view.age_ns(row.oldest_hold()));
        let wait = brief_or_dash(row.oldest_wait.map(|since| view.age_ns(since)));
        let (holders, for_me, for_anyone) = (row.holders, row.for_me, row.for_anyone);
        let counts = format!("{holders:7} {for_me:6} {for_anyone:10}");
        line!(text, "{counts} {hold:>11} {wait:>11} {rule:width$} {}", view.key(&row.key));
    }
    text
}

/// How many turns a scan took.
pub(super) fn seen(view: &ReportView, scan: &Scan) -> String {
    let took = ShortDuration(view.age_ns(scan.began));
    match scan.turns {
        0 | 1 => "in 1 turn of the loop".to_owned(),
        turns => format!("in {turns} turns of the loop, over {took}"),
    }
}

/// `STATS KEY`.
pub(super) fn key(view: &ReportView, key: &[u8]) -> String {
    let mut text = String::new();
    line!(text, "key: {}", key_text(key));
    let rules = view.engine.rules();
    let matches = rules.matching(key);
    let max_hold_s = rules.max_hold_s(matches);
    let max_hold = brief_or_dash(max_hold_s.map(|s| u64::from(s) * 1_000_000_000));
    let pool = view.engine.pool(key);
    let [holders, for_me, for_anyone] =
        pool.map_or([0; 3], |pool| Phase::QUEUED.map(|phase| pool.count(phase)));
    line!(text, "holders: {holders}\nfor_me: {for_me}\nfor_anyone: {for_anyone}");
    line!(text, "max_hold: {max_hold}");
    for RuleLimit { rule, settings, denies } in limits_of(rules, matches) {
        let how = if denies { "denied" } else { "limited" };
        line!(text, "{how} by rule {}: {}", rule.shown_name(), settings.join(" "));
    }
    line!(text, "{LOCK_COLUMNS}");
    if let Some(pool) = pool {
        list_locks(&mut text, view, pool);
    }
    text
}

/// What a rule sets for a key.
pub(super) struct RuleLimit<'a> {
    pub(super) rule: &'a Rule,
    pub(super) settings: Vec<String>,
    /// It refuses every request: that is its only setting then.
    pub(super) denies: bool,
}

/// For each rule that limits keys that have these matches one, and one for a rule that denies
/// them: at most six, because there are six limits.
pub(super) fn limits_of(rules: &Rules, matches: Matches) -> Vec<RuleLimit<'_>> {
    let mut settings = rules.settings_of(matches);
    // Limits nothing.
    settings.retain(|(setting, _)| !setting.starts_with("stuck-after="));
    let mut limits = Vec::new();
    for n in rules.limiting(matches).iter() {
        let rule = &rules.in_force()[n].rule;
        let of_rule = settings.iter().filter(|(_, other)| core::ptr::eq(*other, rule));
        let (denied, limited): (Vec<String>, Vec<String>) =
            of_rule.map(|(setting, _)| setting.clone()).partition(|setting| *setting == "deny");
        for (denies, settings) in [(false, limited), (true, denied)] {
            if !settings.is_empty() {
                limits.push(RuleLimit { rule, settings, denies });
            }
        }
    }
    limits
}

fn list_locks(text: &mut String, view: &ReportView, pool: PoolView) {
    for phase in Phase::QUEUED {
        let what = if phase.waits() { "waiter" } else { "holder" };
        let end = text.len() + QUEUE_BYTES_MAX;
        let mut listed = 0;
        for lock in pool.locks(phase).take(QUEUE_ROWS_MAX) {
            let row = format!("{what} {}", described(view, lock));
            if text.len() + row.len() >= end {
                break;
            }
            line!(text, "{row}");
            listed += 1;
        }
        let hidden = pool.count(phase).saturating_sub(listed);
        if hidden > 0 {
            line!(text, "{what} and {hidden} more");
        }
    }
}

/// The locks of `clients`, held and waited for: the totals in words, and a table of at most
/// [`ROWS_MAX`] rows. The answer to `FREE`.
pub fn locks_of(view: &ReportView, clients: &[ClientId]) -> (String, String) {
    let locks = clients.iter().flat_map(|client| view.engine.locks_of(*client));
    let (mut holds, mut waits) = (0, 0);
    let mut text = String::new();
    line!(text, "{LOCK_COLUMNS} key");
    let (mut listed, mut rows_max) = (0, ROWS_MAX);
    for lock in locks {
        let what = if lock.is_held() { "holder" } else { "waiter" };
        *(if lock.is_held() { &mut holds } else { &mut waits }) += 1;
        if listed == rows_max {
            continue;
        }
        let row = format!("{what} {} {}", described(view, lock), view.key(lock.key()));
        if text.len() + row.len() < FREED_BYTES_MAX {
            line!(text, "{row}");
            listed += 1;
        } else {
            rows_max = listed;
        }
    }
    let hidden = holds + waits - listed;
    if hidden > 0 {
        line!(text, "and {hidden} more");
    }
    (format!("holds: {holds}, waits: {waits}"), text)
}

fn described(view: &ReportView, lock: LockView) -> String {
    let mode = mode_word(lock.mode());
    let (since, age) = (view.wall(lock.since()), ShortDuration(view.age_ns(lock.since())));
    let left = match lock.deadline() {
        Some(deadline) if is_endless(lock, deadline) => "unlimited".to_owned(),
        deadline => brief_or_dash(deadline.map(|deadline| deadline.ns_since(view.now))),
    };
    let client = format!("#{}", lock.client().serial);
    format!("{mode:6} {since} {age:11} {left:11} {client:7} {}", view.peer(lock.client()))
}

/// `STATS CLIENTS`.
pub(super) fn clients(view: &ReportView, scan: &Scan, rows: u32) -> String {
    let mut text = String::new();
    let all = scan.addresses();
    let rows = &all.rows[..all.rows.len().min(rows_shown(rows))];
    line!(text, "addresses: {} of {}", rows.len(), all.addresses);
    line!(text, "connections: {}", all.connections);
    line!(text, "seen: {}", seen(view, scan));
    line!(text, "connections holds waits address");
    for (address, row) in rows {
        let address = view.address(address);
        line!(text, "{:11} {:5} {:5} {address}", row.connections, row.holds, row.waits);
    }
    if let Some(row) = all.others {
        line!(text, "{:11} {:5} {:5} others", row.connections, row.holds, row.waits);
    }
    text
}

/// `STATS TOP`.
pub(super) fn top(view: &ReportView, span: Span, subject: Subject) -> String {
    let top = view.engine.observer.top(span, subject, view.now);
    let mut text = String::new();
    line!(text, "top: {} of the last {}", subject.word(), span.word());
    line!(text, "from: {}", view.wall(top.began));
    line!(text, "to: {}", view.wall(top.ended));
    line!(text, "covers: {}", ShortDuration(top.covered_ns()));
    line!(text, "sampled: 1 request in {}", top.sampled_one_in);
    list_top(&mut text, view, &top.by_requests, (subject, "requests"), |ranked| {
        format!("{:9} {:7}", ranked.count, ranked.error)
    });
    list_top(&mut text, view, &top.by_time, (subject, "time"), |ranked| {
        format!("{:>9} {:>7}", ShortDuration(ranked.count), ShortDuration(ranked.error))
    });
    text
}

fn list_top(
    text: &mut String,
    view: &ReportView,
    ranking: &[Ranked],
    (subject, by): (Subject, &str),
    count: impl Fn(&Ranked) -> String,
) {
    let shown = ranking.len().min(TOP_ROWS);
    line!(text, "by_{by}: {shown} of {}", ranking.len());
    let name = if subject == Subject::Keys { "key" } else { "address" };
    // `requests` is also a column: the requests since the entry got its place.
    let first = if by == "requests" { "count" } else { by };
    line!(
        text,
        "{first:>9}   error requests acquired     done  refused timed_out      waited        held {name}"
    );
    for ranked in ranking.iter().take(TOP_ROWS) {
        let columns = &ranked.columns;
        line!(
            text,
            "{} {:8} {:8} {:8} {:8} {:9} {:>11} {:>11} {}",
            count(ranked),
            columns.requests,
            columns.acquired,
            columns.done,
            columns.refused,
            columns.timed_out,
            ShortDuration(columns.waited_ns),
            ShortDuration(columns.held_ns),
            view.name(subject, &ranked.name),
        );
    }
}

/// `STATS SLOW`.
pub(super) fn slow(view: &ReportView, rows: u32) -> String {
    let mut text = String::new();
    let all = view.engine.observer.slow_log();
    let rows = all.len().min(rows_shown(rows));
    line!(text, "slow: {rows} of {}", all.len());
    line!(text, "over: {}", brief_or_dash(view.engine.observer.slow_ns()));
    line!(
        text,
        "when                     what mode   ended        took        client  address rule key"
    );
    for entry in all.take(rows) {
        let slow = &entry.slow;
        let what = if slow.outcome.is_of_hold() { "hold" } else { "wait" };
        let mode = if slow.for_anyone { Mode::ForAnyone } else { Mode::ForMe };
        line!(
            text,
            "{} {what} {:6} {:12} {:11} {:7} {} {} {}",
            view.wall(slow.at),
            mode_word(mode),
            slow.outcome.word(),
            ShortDuration(slow.took_ns),
            format!("#{}", slow.client.serial),
            view.address(&entry.peer),
            slow.rules,
            view.key(&slow.key),
        );
    }
    text
}

/// A rule, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSource {
    /// The rule.
    pub rule: Rule,
    /// An operator has set it, or turned it off.
    pub is_set: bool,
    /// It is not in force.
    pub is_off: bool,
    /// When it ends.
    pub until: Option<Time>,
}

impl RuleSource {
    pub(super) fn word(&self) -> &'static str {
        match self {
            RuleSource { is_off: true, .. } => "off",
            RuleSource { is_set: true, .. } => "set",
            RuleSource { rule, .. } if rule.name.is_empty() => "option",
            _ => "file",
        }
    }
}

/// What applies to `key`, as a line: its group, and each setting with the rule that it comes
/// from.
pub fn explain(rules: &Rules, key: &[u8]) -> String {
    let matches = rules.matching(key);
    let group = &rules.groups()[rules.group_of(matches)].name;
    let settings = rules
        .settings_of(matches)
        .into_iter()
        .map(|(setting, rule)| format!(" {setting} ({})", rule.shown_name()));
    format!("{}: group {group}{}\n", key_text(key), settings.collect::<String>())
}

/// The rules in force in the order in which they apply, then those that are off. A blank
/// line ends the list.
pub fn rules(view: &ReportView, scan: &Scan, sources: &[RuleSource]) -> String {
    let mut text = String::new();
    let in_force = view.engine.rules().in_force();
    let listed = sources.iter().filter(|source| !source.is_off).count();
    line!(text, "rules: {listed} of {RULES_MAX}");
    line!(text, "seen: {}", seen(view, scan));
    line!(text, "   keys holders waiters    changed from          left rule");
    for source in sources {
        // An order during the scan may have changed it, or ended it.
        let now = in_force.iter().find(|now| now.rule.identity() == source.rule.identity());
        let [keys, holders, waiters, changed] = match now.filter(|_| !source.is_off) {
            Some(now) => {
                let seen = scan.of_rule(&source.rule);
                [seen.keys, seen.holders, seen.waiters, now.changed].map(|count| count.to_string())
            }
            None => ["-"; 4].map(str::to_owned),
        };
        let left = source.until.map(|until| until.ns_since(view.now).div_ceil(1_000_000_000));
        let left = left.map_or_else(|| "-".to_owned(), |s| time_text(Duration::from_secs(s)));
        let (word, rule) = (source.word(), &source.rule);
        line!(text, "{keys:>7} {holders:>7} {waiters:>7} {changed:>10} {word:6} {left:>11} {rule}");
    }
    text.push('\n');
    text
}
