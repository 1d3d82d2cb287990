//! The rows of reports, and which of their members tables show. The daemon makes them; it writes
//! them as JSON, or a table of them; the command reads them.

use crate::table::{Cell, Column};
use crate::words::{Kind, LockState, Outcome, RuleOrigin, SlowThing};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A column, and the cell that a row has in it.
pub type CellOf<R> = (Column, fn(&R) -> Cell<'_>);

/// A row of a list.
pub trait Row: Sized + 'static {
    /// The columns of a table, in this order. The last one may be of any length.
    const COLUMNS: &'static [CellOf<Self>];

    /// The key that it is about, as the daemon writes it.
    fn key(&self) -> Option<&str> {
        None
    }
}

/// Declares the columns of a row, each with a cell and its member; and which one is the key.
macro_rules! columns {
    ($row:ident $(about $key:ident)?: $($column:ident: $cell:ident($($member:tt)+),)+) => {
        impl Row for $row {
            const COLUMNS: &'static [CellOf<Self>] =
                &[$((Column::$column, |row| Cell::$cell(row.$($member)+)),)+];

            $(fn key(&self) -> Option<&str> {
                Some(&self.$key)
            })?
        }
    };
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

columns! { KeyRow about key:
    Holders: Count(holders as u64), ForMe: Count(for_me as u64),
    ForAnyone: Count(for_anyone as u64), OldestHold: Seconds(oldest_hold_s),
    OldestWait: option(oldest_wait_s.map(Cell::Seconds)), LimitedBy: text(limited_by.join(",")),
    DeniedBy: option(denied_by.as_deref().map(Cell::text)), Key: text(key.as_str()),
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
    pub kind: Kind,
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

columns! { HoldRow about key:
    Held: Seconds(held_s), Kind: text(kind.word()), Waiters: Count(waiters as u64),
    Client: option(client.map(Cell::Client)), Address: text(address.as_str()),
    LimitedBy: text(limited_by.join(",")), DeniedBy: option(denied_by.as_deref().map(Cell::text)),
    Key: text(key.as_str()),
}

/// A client that holds a key or waits for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LockRow {
    /// `holder` or `waiter`.
    pub what: LockState,
    /// `me` or `anyone`.
    pub kind: Kind,
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

columns! { LockRow:
    What: text(what.word()), Kind: text(kind.word()), Since: text(since.as_str()),
    For: Seconds(for_s), Left: option(left_s.map(Cell::Seconds)),
    Client: option(client.map(Cell::Client)), Address: text(address.as_str()),
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

columns! { FreedRow about key:
    What: text(lock.what.word()), Kind: text(lock.kind.word()),
    Since: text(lock.since.as_str()), For: Seconds(lock.for_s),
    Left: option(lock.left_s.map(Cell::Seconds)), Client: option(lock.client.map(Cell::Client)),
    Address: text(lock.address.as_str()), Key: text(key.as_str()),
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

columns! { ClientRow:
    Connections: Count(connections), Holds: Count(holds), Waits: Count(waits),
    Address: text(address.as_str()),
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

columns! { TopRow about name:
    Count: Number(count), Error: Number(error), Requests: Count(requests),
    Acquired: Count(acquired), Done: Count(done), Refused: Count(refused),
    TimedOut: Count(timed_out), Waited: Seconds(waited_s), Held: Seconds(held_s),
    Name: text(name.as_str()),
}

/// A hold or a wait over `--slow`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SlowRow {
    /// When it ended.
    pub time: String,
    /// `hold` or `wait`.
    pub what: SlowThing,
    /// `me` or `anyone`.
    pub kind: Kind,
    /// `locked`, `done`, `timeout`, `cancelled`, `released`, `disconnected` or `expired`.
    pub outcome: Outcome,
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

columns! { SlowRow about key:
    Time: text(time.as_str()), What: text(what.word()), Kind: text(kind.word()),
    Outcome: text(outcome.word()), Took: Seconds(took_s),
    Client: option(client.map(Cell::Client)), Address: text(address.as_str()),
    Rule: option(rule.as_deref().map(Cell::text)),
    DeniedBy: option(denied_by.as_deref().map(Cell::text)), Key: text(key.as_str()),
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
    pub from: RuleOrigin,
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

columns! { RuleRow:
    Keys: option(keys.map(Cell::Count)), Holders: option(holders.map(Cell::Count)),
    Waiters: option(waiters.map(Cell::Count)), Changed: option(changed.map(Cell::Count)),
    From: text(from.word()), Left: option(left_s.map(Cell::Term)), Rule: text(rule.as_str()),
    Pattern: text(pattern.as_str()), Settings: Text(settings.join(" ").into()),
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

columns! { GroupRow:
    Requests: Count(requests), Acquired: Count(acquired), QueueFull: Count(queue_full),
    Denied: Count(denied), Timeouts: Count(timeouts), Holders: Count(holders),
    Waiters: Count(waiters), OldestHold: option(oldest_hold_s.map(Cell::Seconds)),
    StuckKeys: Count(stuck_keys), Group: text(group.as_str()),
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::format;
    use serde_json::json;

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
        fn check<R: Row + Default + Serialize>() {
            let members = serde_json::to_value(R::default()).expect("an object");
            for (column, _) in R::COLUMNS {
                assert!(members.get(column.name()).is_some(), "{column:?}");
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

    /// In the tables of the list's section.
    #[test]
    fn columns_are_described() {
        fn check<R: Row>(page: &str, section: &str) {
            let (_, text) = page.split_once(&format!("\n## {section}\n")).expect(section);
            let text = text.split("\n## ").next().unwrap_or_default();
            let first_cells =
                text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
            let first_cells: String = first_cells.collect();
            for (column, _) in R::COLUMNS {
                let name = format!("`{}`", column.name());
                assert!(first_cells.contains(&name), "describe {name} below {section}");
            }
        }
        let reports = include_str!("../../../docs/reference/reports.md");
        check::<KeyRow>(reports, "STATS KEYS");
        check::<LockRow>(reports, "STATS KEY");
        check::<ClientRow>(reports, "STATS CLIENTS");
        check::<TopRow>(reports, "STATS TOP");
        check::<SlowRow>(reports, "STATS SLOW");
    }
}
