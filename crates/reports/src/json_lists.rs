//! The lists in JSON, for programs: of `STATS JSON KEYS`, `KEY`, `CLIENTS`, `TOP` and `SLOW`,
//! and of orders. Their rows are those of `STATS JSON`; the first member of each list tells
//! it from the others. `docs/reference/lists.schema.json` derives from these types, comments included.

use super::json::{self, ClientJson, Key, SlowJson, Top};
use super::lists::{QUEUE_ROWS_MAX, RuleSource, TOP_ROWS, is_endless, limits_of, rows_shown};
use super::report_view::{HIDDEN, ROWS_BYTES_MAX, ROWS_MAX, ReportView, mode_word, seconds};
use super::scan::{Found, Row, Scan};
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use engine::ClientId;
use engine::rules::RULES_MAX;
use engine::view::{LockView, Phase};
use protocol::{List, MatchingKeys, key_text};
use serde::Serialize;

/// As [`ROWS_BYTES_MAX`], for holders and for waiters of each kind: three lists, behind the longest
/// key.
const QUEUE_BYTES_MAX: usize = 12 << 10;

/// Times are in seconds, and moments in ISO 8601 on the wall clock (UTC), as in `STATS JSON`. A
/// list has at most 200 rows and 60 KiB, and says of how many they are the first ones.
///
/// In a `key`, other bytes than printable ASCII, and the backslash, are `\xNN`. It is cut at 128
/// bytes, which `\...` at its end shows; except in the answers to `KEY`, `KEYS` with a pattern and
/// `FREE`, which have it whole. Under `--private` keys and addresses are `hidden`, except for operators.
///
/// Later versions may add members; they do not change or remove any.
#[derive(Debug, Serialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "poolcounterd: STATS JSON KEYS and other lists"))]
pub enum ListReport {
    /// `STATS JSON KEYS [n]`, `STATS JSON KEYS <n> <pattern>`.
    Keys(KeysReport),
    /// `STATS JSON KEY <key>`.
    Key(KeyReport),
    /// `STATS JSON CLIENTS [n]`.
    Clients(ClientsReport),
    /// `STATS JSON TOP [minute|hour] [keys|clients]`.
    Top(TopReport),
    /// `STATS JSON SLOW [n]`.
    Slow(SlowReport),
    /// `RULES --json`.
    Rules(RulesReport),
    /// `FREE --json`.
    Freed(FreedReport),
}

/// The keys that exist now.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeysReport {
    /// How many keys there are.
    keys_total: u64,
    /// With a pattern: how many keys match. Under `--private`, no key matches anything but `*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    matching: Option<u64>,
    /// With a pattern: how many of these are not listed, because they are more than were asked
    /// for, or than an answer has room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
    #[serde(flatten)]
    seen: Seen,
    /// Those with the most waiters first, then those held for longest. With a pattern, those held
    /// for longest first, then those with the most waiters.
    keys: Vec<Key>,
}

/// How long the daemon looked for the rows.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Seen {
    /// In how many turns of the loop; each key or connection is shown as it was in its turn.
    turns: u32,
    took_s: f64,
}

/// One key.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyReport {
    /// As it was asked for, also under `--private`.
    key: String,
    group: String,
    holders: usize,
    /// Clients that wait after `ACQ4ME`.
    for_me: usize,
    /// Clients that wait after `ACQ4ANY`.
    for_anyone: usize,
    max_hold_s: Option<u32>,
    /// What the rules set that limit the key, in the order in which they apply.
    limits: Vec<LimitJson>,
    /// The rule by which each request for the key is refused.
    denied_by: Option<String>,
    /// The holders, the waiters after `ACQ4ME`, and those after `ACQ4ANY`: the first ones of each
    /// if they are many.
    locks: Vec<LockJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LimitJson {
    rule: String,
    /// Such as `workers=2`.
    settings: Vec<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LockJson {
    /// `holder` or `waiter`.
    what: &'static str,
    kind: &'static str,
    since: String,
    for_s: f64,
    /// Until the wait times out or the hold ends by a `max-hold`; null if it has no end.
    left_s: Option<f64>,
    /// The number of its connection in the log.
    client: u32,
    address: String,
}

/// The addresses of clients.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClientsReport {
    /// From how many addresses clients are connected; of more than 10,000, one may count twice.
    addresses: usize,
    connections: u64,
    #[serde(flatten)]
    seen: Seen,
    /// Those with the most connections first; then `others`, if there are more than 10,000.
    clients: Vec<ClientJson>,
}

/// What was asked for most.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopReport {
    /// `keys` or `clients`.
    top: &'static str,
    /// `minute` or `hour`.
    span: &'static str,
    /// How many were counted by requests.
    requests_total: usize,
    /// How many were counted by time.
    time_total: usize,
    #[serde(flatten)]
    lists: Top,
}

/// The last holds and waits over `--slow`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SlowReport {
    /// How many holds and waits the daemon has kept.
    slow_total: usize,
    /// What `--slow` says; null without it.
    over_s: Option<f64>,
    /// The newest first.
    slow: Vec<SlowJson>,
}

/// The rules.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RulesReport {
    /// How many rules there may be.
    rules_max: usize,
    #[serde(flatten)]
    seen: Seen,
    /// Those in force, in the order in which they apply; then those that are off.
    rules: Vec<RuleJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RuleJson {
    /// Its name, or `--max-hold`.
    rule: String,
    pattern: String,
    /// Such as `workers=2`.
    settings: Vec<String>,
    /// `file`, `option`, `set` by an order, or `off`.
    from: &'static str,
    /// How many keys it matches; like the next three null for a rule that is off.
    keys: Option<u64>,
    holders: Option<u64>,
    waiters: Option<u64>,
    /// How many answers it has changed.
    changed: Option<u64>,
    /// Until it ends; null if it does not.
    left_s: Option<f64>,
}

/// What `FREE` closes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FreedReport {
    /// How many connections were closed.
    freed: usize,
    /// Nothing was closed: they would be.
    dry_run: bool,
    holds: usize,
    waits: usize,
    /// What these connections held and waited for.
    locks: Vec<FreedLock>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FreedLock {
    #[serde(flatten)]
    lock: LockJson,
    key: String,
}

/// A report in JSON, as one line, and the blank line that ends it.
pub fn written(report: &impl Serialize) -> String {
    // Can't fail: plain data with text keys and finite numbers, written to memory.
    serde_json::to_string(report).unwrap_or_default() + "\n\n"
}

/// The first rows, as many as fit.
fn bounded<T: Serialize>(rows: impl Iterator<Item = T>, bytes_max: usize) -> Vec<T> {
    let mut left = bytes_max;
    let fits = |row: &T| {
        // With the comma behind it.
        let len = serde_json::to_string(row).map_or(0, |text| text.len() + 1);
        let rest = left.checked_sub(len);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    rows.take_while(fits).collect()
}

/// A list, as [`super::report`] makes it as text.
pub fn list(list: &List, view: &ReportView, scan: &Scan) -> ListReport {
    match list {
        List::Keys(rows) => ListReport::Keys(keys(view, scan, *rows)),
        List::Key(key) => ListReport::Key(key_report(view, key)),
        List::Clients(rows) => ListReport::Clients(clients(view, scan, *rows)),
        List::Slow(rows) => ListReport::Slow(slow(view, *rows)),
        List::Top(span, subject) => {
            let top = view.engine.observer.top(*span, *subject, view.now);
            ListReport::Top(TopReport {
                top: subject.word(),
                span: span.word(),
                requests_total: top.by_requests.len(),
                time_total: top.by_time.len(),
                lists: json::top(view, *subject, &top, TOP_ROWS),
            })
        }
    }
}

fn seen(view: &ReportView, scan: &Scan) -> Seen {
    Seen { turns: scan.turns, took_s: seconds(view.age_ns(scan.began)) }
}

fn keys(view: &ReportView, scan: &Scan, rows: u32) -> KeysReport {
    KeysReport {
        keys_total: scan.keys_seen,
        matching: None,
        left_out: None,
        seen: seen(view, scan),
        keys: bounded(json::keys(view, scan).take(rows_shown(rows)), ROWS_BYTES_MAX),
    }
}

/// The keys that match the pattern of `scan`, which is that of `query`.
pub fn matching_keys(query: &MatchingKeys, view: &ReportView, scan: &Scan) -> ListReport {
    // Whoever may not see keys can't guess them either.
    let may_see = !view.is_private || query.pattern == b"*";
    let found = if may_see { scan.found() } else { Found::default() };
    let row = |row: &&Row| {
        let text = if view.is_private { HIDDEN.to_owned() } else { key_text(&row.key) };
        json::key(view, row, text)
    };
    let rows = found.rows.iter().take(rows_shown(query.rows)).map(row);
    let keys = bounded(rows, ROWS_BYTES_MAX);
    ListReport::Keys(KeysReport {
        keys_total: scan.keys_seen,
        matching: Some(found.matching),
        left_out: Some(found.matching - keys.len() as u64),
        seen: seen(view, scan),
        keys,
    })
}

fn key_report(view: &ReportView, key: &[u8]) -> KeyReport {
    let rules = view.engine.rules();
    let matches = rules.matching(key);
    let limits = limits_of(rules, matches);
    let denied_by = limits.iter().find(|limit| limit.denies);
    let pool = view.engine.pool(key);
    let [holders, for_me, for_anyone] =
        pool.map_or([0; 3], |pool| Phase::QUEUED.map(|phase| pool.count(phase)));
    let locks = pool.into_iter().flat_map(|pool| {
        let shown = |phase| {
            let locks = pool.locks(phase).take(QUEUE_ROWS_MAX);
            bounded(locks.map(|lock| lock_row(view, lock)), QUEUE_BYTES_MAX)
        };
        Phase::QUEUED.map(shown)
    });
    KeyReport {
        key: key_text(key),
        group: view.group(rules.group_of(matches)),
        holders,
        for_me,
        for_anyone,
        max_hold_s: rules.max_hold_s(matches),
        denied_by: denied_by.map(|limit| limit.rule.shown_name().to_owned()),
        limits: limits
            .into_iter()
            .map(|limit| LimitJson {
                rule: limit.rule.shown_name().to_owned(),
                settings: limit.settings,
            })
            .collect(),
        locks: locks.flatten().collect(),
    }
}

fn lock_row(view: &ReportView, lock: LockView) -> LockJson {
    let deadline = lock.deadline().filter(|&deadline| !is_endless(lock, deadline));
    LockJson {
        what: if lock.is_held() { "holder" } else { "waiter" },
        kind: mode_word(lock.mode()),
        since: view.wall(lock.since()),
        for_s: seconds(view.age_ns(lock.since())),
        left_s: deadline.map(|deadline| seconds(deadline.ns_since(view.now))),
        client: lock.client().serial,
        address: view.peer(lock.client()),
    }
}

fn clients(view: &ReportView, scan: &Scan, rows: u32) -> ClientsReport {
    let rows = json::clients(view, scan, rows_shown(rows));
    ClientsReport {
        addresses: scan.addresses().addresses,
        connections: scan.addresses().connections,
        seen: seen(view, scan),
        clients: bounded(rows.into_iter(), ROWS_BYTES_MAX),
    }
}

fn slow(view: &ReportView, rows: u32) -> SlowReport {
    let all = view.engine.observer.slow_log();
    SlowReport {
        slow_total: all.len(),
        over_s: view.engine.observer.slow_ns().map(seconds),
        slow: bounded(
            all.take(rows_shown(rows)).map(|entry| json::slow(view, entry)),
            ROWS_BYTES_MAX,
        ),
    }
}

/// As [`super::lists::rules`].
pub fn rules(view: &ReportView, scan: &Scan, sources: &[RuleSource]) -> ListReport {
    let in_force = view.engine.rules().in_force();
    let row = |source: &RuleSource| {
        // An order during the scan may have changed it, or ended it.
        let now = in_force.iter().find(|now| now.rule.identity() == source.rule.identity());
        let now = now.filter(|_| !source.is_off);
        let seen = now.map(|_| scan.of_rule(&source.rule));
        let settings = source.rule.settings.to_string();
        RuleJson {
            rule: source.rule.shown_name().to_owned(),
            pattern: source.rule.pattern.to_string(),
            settings: settings.split_whitespace().map(str::to_owned).collect(),
            from: source.word(),
            keys: seen.map(|seen| seen.keys),
            holders: seen.map(|seen| seen.holders),
            waiters: seen.map(|seen| seen.waiters),
            changed: now.map(|now| now.changed),
            left_s: source.until.map(|until| seconds(until.ns_since(view.now))),
        }
    };
    ListReport::Rules(RulesReport {
        rules_max: RULES_MAX,
        seen: seen(view, scan),
        rules: bounded(sources.iter().map(row), ROWS_BYTES_MAX),
    })
}

/// The locks of `clients`, which are closed, or would be: as [`super::lists::locks_of`].
pub fn freed(view: &ReportView, clients: &[ClientId], is_dry_run: bool) -> ListReport {
    let locks: Vec<LockView> =
        clients.iter().flat_map(|client| view.engine.locks_of(*client)).collect();
    let holds = locks.iter().filter(|lock| lock.is_held()).count();
    let row =
        |lock: &LockView| FreedLock { lock: lock_row(view, *lock), key: key_text(lock.key()) };
    ListReport::Freed(FreedReport {
        freed: clients.len(),
        dry_run: is_dry_run,
        holds,
        waits: locks.len() - holds,
        locks: bounded(locks.iter().take(ROWS_MAX).map(row), ROWS_BYTES_MAX),
    })
}
