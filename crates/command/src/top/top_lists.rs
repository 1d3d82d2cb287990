//! The lists of `top`: the key and title of each, its question, its order; its rows, also of
//! groups and oldest holds from JSON.

use crate::parsed_report::ParsedReport;
use crate::reported_rules::limiting_rules;
use crate::table::{CLIENTS_ORDER, KEYS_ORDER, ListOrder, SLOW_ORDER, Table};
use serde_json::Value;

/// The lists of `top`, with the key that chooses each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopList {
    Groups,
    Keys,
    Hot,
    Holders,
    Clients,
    Slow,
}

impl TopList {
    pub(super) const ALL: [TopList; 6] = [
        TopList::Groups,
        TopList::Keys,
        TopList::Hot,
        TopList::Holders,
        TopList::Clients,
        TopList::Slow,
    ];

    pub(super) fn key(self) -> char {
        match self {
            TopList::Groups => 'g',
            TopList::Keys => 'k',
            TopList::Hot => 'h',
            TopList::Holders => 'o',
            TopList::Clients => 'c',
            TopList::Slow => 's',
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            TopList::Groups => "groups",
            TopList::Keys => "keys now",
            TopList::Hot => "hot keys",
            TopList::Holders => "oldest holders",
            TopList::Clients => "clients",
            TopList::Slow => "slow",
        }
    }

    /// What to ask, after `STATS `, if the list is not in JSON. No list has more than 200 rows.
    pub(super) fn question(self) -> Option<&'static str> {
        match self {
            TopList::Keys => Some("KEYS 200"),
            TopList::Hot => Some("TOP minute keys"),
            // `KEYS` has the keys with the most waiters, but not their holders.
            TopList::Holders | TopList::Groups => None,
            TopList::Clients => Some("CLIENTS 200"),
            TopList::Slow => Some("SLOW 200"),
        }
    }

    /// How a server sorts it. Groups stay as they are, each with its keys behind it.
    pub(super) fn order(self) -> ListOrder {
        match self {
            TopList::Groups => &[],
            TopList::Keys => KEYS_ORDER,
            TopList::Hot => &[&["count"]],
            TopList::Holders => &[&["held"]],
            TopList::Clients => CLIENTS_ORDER,
            TopList::Slow => SLOW_ORDER,
        }
    }

    /// The list, if it is in `STATS JSON`.
    pub(super) fn in_json(self, report: &Value) -> Option<ParsedReport> {
        match self {
            TopList::Groups => Some(groups(report)),
            TopList::Holders => Some(oldest_holds(report)),
            TopList::Keys | TopList::Hot | TopList::Clients | TopList::Slow => None,
        }
    }
}

/// The groups of `STATS JSON`, each with its keys behind it, in a table like other lists.
fn groups(report: &Value) -> ParsedReport {
    let columns = [
        "requests",
        "acquired",
        "refused",
        "denied",
        "timed_out",
        "holders",
        "waiters",
        "oldest_hold",
        "stuck",
        "rule",
        "name",
    ];
    let list = |name: &str| report[name].as_array().into_iter().flatten();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let age = |value: &Value| value.as_f64().map_or("-".to_owned(), |s| format!("{s:.3}s"));
    let mut rows = Vec::new();
    for group in list("groups") {
        let count = |name: &str| number(&group[name]).to_string();
        let name = group["group"].as_str().unwrap_or_default();
        rows.push(vec![
            count("requests"),
            count("acquired"),
            count("queue_full"),
            count("denied"),
            count("timeouts"),
            count("holders"),
            count("waiters"),
            age(&group["oldest_hold_s"]),
            count("stuck_keys"),
            "-".to_owned(),
            name.to_owned(),
        ]);
        for key in list("keys").filter(|key| key["group"] == name) {
            let none = || "-".to_owned();
            let waiters = number(&key["for_me"]) + number(&key["for_anyone"]);
            let held = age(&key["oldest_hold_s"]);
            let text = format!("{name}  {}", key["key"].as_str().unwrap_or_default());
            let counts = [number(&key["holders"]).to_string(), waiters.to_string()];
            let mut row: Vec<String> = std::iter::repeat_with(none).take(5).collect();
            row.extend(counts.into_iter().chain([held, none(), limiting_rules(key), text]));
            rows.push(row);
        }
    }
    let values = vec![("groups".to_owned(), list("groups").count().to_string())];
    let table = Table { columns: columns.map(str::to_owned).to_vec(), rows };
    ParsedReport { values, tables: vec![table] }
}

/// The oldest holds of `STATS JSON`, in a table like other lists.
fn oldest_holds(report: &Value) -> ParsedReport {
    let columns = ["held", "mode", "waiters", "client", "address", "rule", "key"];
    let row = |hold: &Value| {
        let text = |name: &str| match &hold[name] {
            Value::String(text) => text.clone(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        let held = hold["held_s"].as_f64().map_or("-".to_owned(), |s| format!("{s:.3}s"));
        let client = format!("#{}", text("client"));
        let rule = limiting_rules(hold);
        vec![held, text("kind"), text("waiters"), client, text("address"), rule, text("key")]
    };
    let rows: Vec<_> = report["oldest_holds"].as_array().into_iter().flatten().map(row).collect();
    let keys = &report["counters"]["hashtable_entries"];
    let values = vec![("keys".to_owned(), format!("{} of {keys}", rows.len()))];
    let table = Table { columns: columns.map(str::to_owned).to_vec(), rows };
    ParsedReport { values, tables: vec![table] }
}
