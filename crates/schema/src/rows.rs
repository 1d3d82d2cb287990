//! The rows of reports, and which of their members tables show. The daemon makes them; it writes
//! them as JSON, or a table of them; the command reads them.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A row of a list.
pub trait Row: Serialize {
    /// The members that a table shows, in this order. The last one may be of any length.
    const COLUMNS: &'static [&'static str];

    /// The key that it is about, as the daemon writes it.
    fn key(&self) -> Option<&str> {
        None
    }

    /// The values of these members; null for one that the row does not have.
    fn values(&self) -> Vec<Value> {
        // Can't fail: plain data with text keys and finite numbers.
        let mut members = serde_json::to_value(self).unwrap_or_default();
        Self::COLUMNS.iter().map(|name| members[*name].take()).collect()
    }
}

/// A value in a column, as the daemon writes it: a time in seconds, to milliseconds; the number of
/// a connection as in the log; a dash for none.
pub fn cell_text(column: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        // As in a rule.
        Value::Array(words) if column == "settings" => joined(words, " "),
        Value::Array(words) if words.is_empty() => "-".to_owned(),
        Value::Array(words) => joined(words, ","),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            if column.ends_with("_s") {
                seconds_text(number)
            } else {
                milliseconds(number).to_string()
            }
        }
        Value::Number(number) if column == "client" => "#".to_owned() + &number.to_string(),
        other => other.to_string(),
    }
}

fn joined(words: &[Value], between: &str) -> String {
    words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(between)
}

fn seconds_text(s: f64) -> String {
    alloc::format!("{:.3}", milliseconds(s))
}

/// To three decimals. The rest is cut off, not rounded.
pub fn milliseconds(s: f64) -> f64 {
    // Nanoseconds as a float may be a little less.
    ((s * 1e9 + 0.5) as u64 / 1_000_000) as f64 / 1e3
}

/// A key that exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct KeyRow {
    /// Its text.
    pub key: String,
    /// Its group.
    pub group: String,
    /// Locks that are held.
    pub holders: usize,
    /// Clients that wait after `ACQ4ME`.
    pub for_me: usize,
    /// Clients that wait after `ACQ4ANY`.
    pub for_anyone: usize,
    /// For how long the oldest lock has been held.
    pub oldest_hold_s: f64,
    /// For how long a client has waited.
    pub oldest_wait_s: Option<f64>,
    /// The rules that limit the key, in the order in which they apply.
    pub limited_by: Vec<String>,
    /// The rule by which each request for the key is refused.
    pub denied_by: Option<String>,
}

impl Row for KeyRow {
    const COLUMNS: &'static [&'static str] = &[
        "holders",
        "for_me",
        "for_anyone",
        "oldest_hold_s",
        "oldest_wait_s",
        "limited_by",
        "denied_by",
        "key",
    ];

    fn key(&self) -> Option<&str> {
        Some(&self.key)
    }
}

/// The oldest hold of a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HoldRow {
    /// Its text.
    pub key: String,
    /// The key's group.
    pub group: String,
    /// For how long it has been held.
    pub held_s: f64,
    /// `me` or `anyone`.
    pub kind: String,
    /// How many wait for the key.
    pub waiters: usize,
    /// The number of the holder's connection in the log.
    pub client: Option<u32>,
    /// Of the holder.
    pub address: String,
    /// The rules that limit the key, in the order in which they apply.
    pub limited_by: Vec<String>,
    /// The rule by which each request for the key is refused.
    pub denied_by: Option<String>,
}

impl Row for HoldRow {
    const COLUMNS: &'static [&'static str] =
        &["held_s", "kind", "waiters", "client", "address", "limited_by", "denied_by", "key"];

    fn key(&self) -> Option<&str> {
        Some(&self.key)
    }
}

/// A client that holds a key or waits for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LockRow {
    /// `holder` or `waiter`.
    pub what: String,
    /// `me` or `anyone`.
    pub kind: String,
    /// When it got the lock, or began to wait.
    pub since: String,
    /// How long ago that was.
    pub for_s: f64,
    /// Until the wait times out or the hold ends by a `max-hold`; null if it has no end.
    pub left_s: Option<f64>,
    /// The number of its connection in the log.
    pub client: Option<u32>,
    /// Its address.
    pub address: String,
}

impl Row for LockRow {
    const COLUMNS: &'static [&'static str] =
        &["what", "kind", "since", "for_s", "left_s", "client", "address"];
}

/// A lock, or a wait for one, that `FREE` ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct FreedRow {
    /// The lock.
    #[serde(flatten)]
    pub lock: LockRow,
    /// Its key.
    pub key: String,
}

impl Row for FreedRow {
    const COLUMNS: &'static [&'static str] =
        &["what", "kind", "since", "for_s", "left_s", "client", "address", "key"];

    fn key(&self) -> Option<&str> {
        Some(&self.key)
    }
}

/// What a rule sets for a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LimitRow {
    /// The rule.
    pub rule: String,
    /// Such as `workers=2`.
    pub settings: Vec<String>,
    /// Locks of its `total` that are held, over all keys; null if it sets none for this key.
    pub holders: Option<u64>,
}

impl fmt::Display for LimitRow {
    /// As `limited by rule thumbs: total=400 (17 held)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.settings == ["deny"] { "denied" } else { "limited" };
        write!(f, "{how} by rule {}: {}", self.rule, self.settings.join(" "))?;
        self.holders.map_or(Ok(()), |holders| write!(f, " ({holders} held)"))
    }
}

/// The connections from an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientRow {
    /// An IP address, or `others`.
    pub address: String,
    /// How many there are.
    pub connections: u64,
    /// Locks that they hold.
    pub holds: u64,
    /// Locks that they wait for.
    pub waits: u64,
}

impl Row for ClientRow {
    const COLUMNS: &'static [&'static str] = &["connections", "holds", "waits", "address"];
}

/// A key, or a client, that was asked for much.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TopRow {
    /// A key or an address.
    pub name: String,
    /// Requests, or seconds waited and held.
    pub count: f64,
    /// By how much the count may be too high.
    pub error: f64,
    /// Requests for a lock since the row got its place.
    pub requests: u64,
    /// Locks that clients got.
    pub acquired: u64,
    /// Waits that another one's work ended.
    pub done: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Waits that timed out.
    pub timed_out: u64,
    /// How long clients waited.
    pub waited_s: f64,
    /// How long locks were held.
    pub held_s: f64,
}

impl Row for TopRow {
    const COLUMNS: &'static [&'static str] = &[
        "count",
        "error",
        "requests",
        "acquired",
        "done",
        "refused",
        "timed_out",
        "waited_s",
        "held_s",
        "name",
    ];

    fn key(&self) -> Option<&str> {
        Some(&self.name)
    }
}

/// A hold or a wait over `--slow`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SlowRow {
    /// When it ended.
    pub time: String,
    /// `hold` or `wait`.
    pub what: String,
    /// `me` or `anyone`.
    pub kind: String,
    /// `locked`, `done`, `timeout`, `cancelled`, `released`, `disconnected` or `expired`.
    pub outcome: String,
    /// How long it took.
    pub took_s: f64,
    /// The number of its connection in the log.
    pub client: Option<u32>,
    /// Of the client.
    pub address: String,
    /// Its text.
    pub key: String,
    /// The rule that shortened a wait that timed out, or ended a hold by its `max-hold`;
    /// otherwise the first rule that limits the key.
    pub rule: Option<String>,
    /// The rule by which each request for the key is refused.
    pub denied_by: Option<String>,
}

impl Row for SlowRow {
    const COLUMNS: &'static [&'static str] = &[
        "time",
        "what",
        "kind",
        "outcome",
        "took_s",
        "client",
        "address",
        "rule",
        "denied_by",
        "key",
    ];

    fn key(&self) -> Option<&str> {
        Some(&self.key)
    }
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RuleRow {
    /// Its name, or `--max-hold`.
    pub rule: String,
    /// The keys that it matches.
    pub pattern: String,
    /// Such as `workers=2`.
    pub settings: Vec<String>,
    /// `file`, `option`, `set` by an order, `off`, or `below` an order for a time, after which it
    /// applies again.
    pub from: String,
    /// How many keys it matches; like the next three null for a rule that is not in force.
    pub keys: Option<u64>,
    /// Locks of these keys that are held.
    pub holders: Option<u64>,
    /// Clients that wait for these keys.
    pub waiters: Option<u64>,
    /// How many answers it has changed.
    pub changed: Option<u64>,
    /// Until it ends; null if it does not.
    pub left_s: Option<f64>,
}

impl Row for RuleRow {
    const COLUMNS: &'static [&'static str] =
        &["keys", "holders", "waiters", "changed", "from", "left_s", "rule", "pattern", "settings"];
}

/// A group that the file of rules names. The counts begin when the daemon gets its first rule, and
/// lack what came while it had none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GroupRow {
    /// Its name.
    pub group: String,
    /// Requests for a lock that were decided.
    pub requests: u64,
    /// Locks that clients got, at once or after a wait.
    pub acquired: u64,
    /// Requests refused because the queue was full or the rule's `total` was reached.
    pub queue_full: u64,
    /// Requests and waits that were answered with `TIMEOUT`.
    pub timeouts: u64,
    /// Requests refused by `deny`.
    pub denied: u64,
    /// Keys that exist.
    pub keys: u64,
    /// Locks of these keys that are held.
    pub holders: u64,
    /// Clients that wait for these keys.
    pub waiters: u64,
    /// For how long the oldest lock has been held.
    pub oldest_hold_s: Option<f64>,
    /// How many keys have been held for longer than the `stuck-after` of their rules, or than
    /// 300 s.
    pub stuck_keys: u64,
}

impl Row for GroupRow {
    const COLUMNS: &'static [&'static str] = &[
        "requests",
        "acquired",
        "queue_full",
        "denied",
        "timeouts",
        "holders",
        "waiters",
        "oldest_hold_s",
        "stuck_keys",
        "group",
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_are_words() {
        for (column, value, text) in [
            ("took_s", json!(0.0), "0.000"),
            ("took_s", json!(0.232), "0.232"),
            ("took_s", json!(62.500_999_999), "62.500"),
            ("took_s", json!(0.000_999), "0.000"),
            ("took_s", json!(1e6), "1000000.000"),
            ("took_s", json!(null), "-"),
            ("count", json!(17.0), "17"),
            ("count", json!(0.5), "0.5"),
            ("count", json!(0.123_456), "0.123"),
            ("holders", json!(3), "3"),
            ("client", json!(7), "#7"),
            ("key", json!("a\\xff"), "a\\xff"),
            ("address", json!(""), "-"),
            ("limited_by", json!([]), "-"),
            ("limited_by", json!(["a", "b"]), "a,b"),
            ("settings", json!([]), ""),
            ("settings", json!(["workers=1", "deny"]), "workers=1 deny"),
        ] {
            assert_eq!(cell_text(column, &value), text, "{column} {value}");
        }
    }

    /// Members of a later version are passed over, and any may be missing.
    #[test]
    fn rows_of_other_versions_are_read() {
        let row: KeyRow = serde_json::from_value(json!({ "key": "a", "new": [1] })).expect("a row");
        assert_eq!(row, KeyRow { key: "a".to_owned(), ..KeyRow::default() });
        assert!(serde_json::from_value::<KeyRow>(json!(7)).is_err());
    }

    /// Each column is a member, so that none is empty in all tables.
    #[test]
    fn columns_are_members() {
        fn check<R: Row + Default>() {
            let members = serde_json::to_value(R::default()).expect("an object");
            for column in R::COLUMNS {
                assert!(members.get(column).is_some(), "{column}");
            }
        }
        check::<KeyRow>();
        check::<HoldRow>();
        check::<LockRow>();
        check::<FreedRow>();
        check::<ClientRow>();
        check::<TopRow>();
        check::<SlowRow>();
        check::<RuleRow>();
        check::<GroupRow>();
    }
}
