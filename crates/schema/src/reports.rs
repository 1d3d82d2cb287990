//! The reports in JSON: `STATS JSON` and `/stats.json`, lists, and the answers to `RULES --json` and
//! `FREE --json`. What the command does not show, it does not read. The schemas in `docs/reference` derive from these types, comments included.

use super::rows::{
    ClientRow, FreedRow, GroupRow, HoldRow, KeyRow, LimitRow, LockRow, RuleRow, SlowRow, TopRow,
};
use super::words::{Kind, Outcome};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Times are in seconds; moments are in ISO 8601 on the wall clock (UTC).
///
/// A `kind` is `me` (`ACQ4ME`) or `anyone` (`ACQ4ANY`). In a `key`, other bytes than printable
/// ASCII, and the backslash, are `\xNN`; it is cut at 128 bytes, which `\...` at its end shows. An
/// `address` is an IP address, with a port if it is of one connection; `others`, for those
/// that are not counted apart; or `unknown`, if the client had left before anybody asked. Under
/// `--private` both are `hidden`. A rule is shown by its name, and one of `--max-hold` as
/// `--max-hold`.
///
/// Later versions may add members; they do not change or remove any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "poolcounterd: STATS JSON and /stats.json"))]
pub struct Report {
    /// Of the daemon.
    #[serde(default)]
    pub version: String,
    /// When the report was made.
    #[serde(default)]
    pub time: String,
    /// When the daemon was started. Hot restarts keep it, and so does a wall clock that is set.
    #[serde(default)]
    pub started: String,
    /// Since the daemon was started, hot restarts included.
    pub uptime_s: f64,
    /// New clients are refused.
    #[serde(default)]
    pub draining: bool,
    /// Clients that are connected.
    #[serde(default)]
    pub connections: usize,
    /// The whole-number statistics, under the names of `STATS`.
    pub counters: BTreeMap<String, u64>,
    /// The times of `STATS FULL`: sums, and the average of processing.
    #[serde(default)]
    pub times_s: BTreeMap<String, f64>,
    /// How long clients waited, without those that got an answer at once.
    #[serde(skip_deserializing)]
    pub waits: Vec<Measurement>,
    /// How long locks were held, without those that are held now.
    #[serde(skip_deserializing)]
    pub holds: Vec<Measurement>,
    /// Answers by command.
    #[serde(skip_deserializing)]
    pub replies: Vec<ReplyCount>,
    /// Hot restarts.
    #[serde(skip_deserializing)]
    pub hot_restarts: HotRestarts,
    /// Turns of the loop.
    #[serde(skip_deserializing)]
    pub turns: Turns,
    /// The process.
    #[serde(skip_deserializing)]
    pub process: ProcessFigures,
    /// For how long the oldest lock has been held.
    pub oldest_hold_s: Option<f64>,
    /// For how long a client has waited.
    pub oldest_wait_s: Option<f64>,
    /// How many keys have waiters.
    #[serde(default)]
    pub keys_waited_for: u64,
    /// The rules.
    #[serde(default)]
    pub rules: RuleFigures,
    /// The groups that the file of rules names, in its order, after `other`; none while there are no
    /// rules, since nothing is counted for groups then.
    #[serde(default)]
    pub groups: Vec<GroupRow>,
    /// The keys with the most waiters, at most 20.
    #[serde(default)]
    pub keys: Vec<KeyRow>,
    /// The oldest hold of each key, those of the keys held for longest first, at most 20.
    #[serde(default)]
    pub oldest_holds: Vec<HoldRow>,
    /// From how many addresses clients are connected; of more than 10,000, one may count twice.
    #[serde(default)]
    pub addresses: usize,
    /// The addresses with the most connections, at most 20; then `others`, if there are more
    /// than 10,000.
    #[serde(default)]
    pub clients: Vec<ClientRow>,
    /// What was asked for most.
    #[serde(skip_deserializing)]
    pub top: TopLists,
    /// What `--slow` says; null without it.
    pub slow_over_s: Option<f64>,
    /// How many holds and waits `STATS SLOW` has.
    #[serde(default)]
    pub slow_kept: usize,
    /// The last holds and waits over `--slow`, the newest first, at most 20.
    #[serde(default)]
    pub slow: Vec<SlowRow>,
}

/// Waits, or holds, of one kind that ended in one way.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measurement {
    /// `me` or `anyone`.
    pub kind: Kind,
    /// `locked`, `done`, `timeout`, `cancelled`, `released`, `disconnected` or `expired`.
    pub outcome: Outcome,
    /// How many took how long.
    #[serde(flatten)]
    pub values: Buckets,
}

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Buckets {
    /// How many values there are.
    pub count: u64,
    /// Of all values.
    pub sum: f64,
    /// The largest value of each bucket; the last bucket has none.
    pub bounds: Vec<f64>,
    /// One more than bounds; not cumulative.
    pub buckets: Vec<u64>,
}

/// How often a command got an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReplyCount {
    /// `ACQ4ME`, `ACQ4ANY`, `RELEASE`, `STATS` or `other`.
    pub command: String,
    /// The line, or `text` for statistics.
    pub answer: String,
    /// How often.
    pub count: u64,
}

/// The hot restarts so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HotRestarts {
    /// How many there were.
    pub done: u64,
    /// How many were refused.
    pub refused: u64,
    /// All of them together.
    pub pause_s: f64,
    /// The last one.
    pub last_pause_s: f64,
}

/// The turns of the loop so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Turns {
    /// How long they took.
    pub seconds: Buckets,
    /// How many events each had.
    pub events: Buckets,
}

/// The process, as the kernel knows it; 0 if it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessFigures {
    /// User and system time.
    pub cpu_s: f64,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Address space.
    pub virtual_bytes: u64,
    /// Descriptors in use.
    pub open_descriptors: u64,
    /// How many it may have.
    pub descriptors_max: u64,
}

/// What orders have changed about the rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RuleFigures {
    /// How many rules are in force.
    pub in_force: usize,
    /// How many rules operators' orders have set or turned off.
    pub by_orders: usize,
    /// When the oldest of these orders was given.
    pub orders_since: Option<String>,
    /// How many of these orders have no end: `RULE SET` without `FOR`, and `RULE OFF`.
    pub endless: usize,
    /// When the oldest of those was given.
    pub endless_since: Option<String>,
}

/// What was asked for most.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopLists {
    /// Keys.
    pub keys: TopOf,
    /// Addresses of clients.
    pub clients: TopOf,
}

/// By time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopOf {
    /// Of a minute.
    pub minute: Top,
    /// Of an hour.
    pub hour: Top,
}

/// The current minute once it is 10 s old, and the previous one until then; likewise the current
/// hour once it is ten minutes old. Before the first is full, the time so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Top {
    /// When it began.
    #[serde(default)]
    pub from: String,
    /// When it ended.
    #[serde(default)]
    pub to: String,
    /// How much time that is: what rates are divided by. A daemon that has just started may
    /// have 0.
    #[serde(default)]
    pub covered_s: f64,
    /// At times, only one request in this many was followed; 1 if every request was.
    #[serde(default)]
    pub sampled_one_in: u64,
    /// At most 10; 20 in `STATS JSON TOP`.
    pub by_requests: Vec<TopRow>,
    /// At most 10; 20 in `STATS JSON TOP`.
    #[serde(default)]
    pub by_time: Vec<TopRow>,
}

/// Times are in seconds, and moments in ISO 8601 on the wall clock (UTC), as in `STATS JSON`. A
/// list has at most 200 rows and 60 KiB, and says of how many they are the first ones.
///
/// In a `key`, other bytes than printable ASCII, and the backslash, are `\xNN`. It is cut at 128
/// bytes, which `\...` at its end shows; except in the answers to `KEY`, `KEYS` with a pattern and
/// `FREE`, which have it whole. Under `--private` keys and addresses are `hidden`, except for operators.
///
/// Later versions may add members; they do not change or remove any.
#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// How long the daemon looked for the rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Seen {
    /// In how many turns of the loop; each key or connection is shown as it was in its turn.
    pub turns: u32,
    /// From the first turn to the answer.
    pub took_s: f64,
}

/// The keys that exist now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeysReport {
    /// How many keys there are.
    pub keys_total: u64,
    /// With a pattern: how many keys match. Under `--private`, clients may ask for `*` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matching: Option<u64>,
    /// With a pattern: how many of these are not listed, because they are more than were asked
    /// for, or than an answer has room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<u64>,
    /// When they were looked at.
    #[serde(flatten)]
    pub seen: Seen,
    /// Those with the most waiters first, then those held for longest. With a pattern, those held
    /// for longest first, then those with the most waiters.
    pub keys: Vec<KeyRow>,
}

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyReport {
    /// As it was asked for, also under `--private`.
    pub key: String,
    /// Its group.
    #[serde(default)]
    pub group: String,
    /// Locks that are held.
    pub holders: usize,
    /// Clients that wait after `ACQ4ME`.
    #[serde(default)]
    pub for_me: usize,
    /// Clients that wait after `ACQ4ANY`.
    #[serde(default)]
    pub for_anyone: usize,
    /// How long a lock may be held.
    pub max_hold_s: Option<u32>,
    /// What the rules set that limit the key, in the order in which they apply.
    #[serde(default)]
    pub limits: Vec<LimitRow>,
    /// The rule by which each request for the key is refused.
    pub denied_by: Option<String>,
    /// The holders, the waiters after `ACQ4ME`, and those after `ACQ4ANY`: the first ones of each
    /// if they are many.
    pub locks: Vec<LockRow>,
}

/// The addresses of clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClientsReport {
    /// From how many addresses clients are connected; of more than 10,000, one may count twice.
    pub addresses: usize,
    /// How many clients are connected.
    #[serde(default)]
    pub connections: u64,
    /// When they were looked at.
    #[serde(flatten)]
    pub seen: Seen,
    /// Those with the most connections first; then `others`, if there are more than 10,000.
    pub clients: Vec<ClientRow>,
}

/// What was asked for most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopReport {
    /// `keys` or `clients`.
    #[serde(default)]
    pub top: String,
    /// `minute` or `hour`.
    #[serde(default)]
    pub span: String,
    /// How many were counted by requests.
    #[serde(default)]
    pub requests_total: usize,
    /// How many were counted by time.
    #[serde(default)]
    pub time_total: usize,
    /// The first of them.
    #[serde(flatten)]
    pub lists: Top,
}

/// The last holds and waits over `--slow`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SlowReport {
    /// How many holds and waits the daemon has kept.
    pub slow_total: usize,
    /// What `--slow` says; null without it.
    pub over_s: Option<f64>,
    /// The newest first.
    pub slow: Vec<SlowRow>,
}

/// The rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RulesReport {
    /// How many rules there are, those that are off included.
    pub rules_total: usize,
    /// How many there may be.
    #[serde(default)]
    pub rules_max: usize,
    /// When their keys were looked at.
    #[serde(flatten)]
    pub seen: Seen,
    /// Those in force, in the order in which they apply; then those that are off.
    pub rules: Vec<RuleRow>,
}

/// What `FREE` closes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FreedReport {
    /// How many connections were closed.
    pub freed: usize,
    /// Nothing was closed: they would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Locks that these connections held.
    #[serde(default)]
    pub holds: usize,
    /// Locks that they waited for.
    #[serde(default)]
    pub waits: usize,
    /// What these connections held and waited for.
    pub locks: Vec<FreedRow>,
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use alloc::format;
    use schemars::generate::SchemaSettings;

    #[test]
    fn the_schemas_are_those_of_the_types() {
        let generator = || SchemaSettings::default().for_serialize().into_generator();
        for (schema, name) in [
            (generator().into_root_schema_for::<Report>(), "stats.schema.json"),
            (generator().into_root_schema_for::<ListReport>(), "lists.schema.json"),
        ] {
            let schema = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
            let path = format!("{}/../../docs/reference/{name}", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&path, &schema).expect("write the schema");
            }
            let committed = std::fs::read_to_string(&path).expect("the schema in docs");
            assert!(
                committed == schema,
                "{name}: UPDATE=1 cargo test -p poolcounter-schema the_schema"
            );
        }
    }
}
