//! The lists of `STATS JSON`, read back into the text of the same list: one judge for both.

use super::addresses::format_seconds;
use super::moments::KeyRow;
use crate::simulation::invariants::Violation;
use protocol::List;
use serde_json::Value;

/// The list as text, as far as it is judged.
///
/// Invariant: A list in JSON shows what the same list shows as text.
pub(super) fn text_of(list: &List, json: &str) -> Result<String, Violation> {
    let json: Value = serde_json::from_str(json).map_err(|e| format!("{json:?}: {e}"))?;
    let rows = |name: &str| json[name].as_array().cloned().unwrap_or_default();
    let mut lines = match list {
        List::Keys(_) => keys(&json, &rows("keys")),
        List::Key(_) => key(&json, &rows("locks")),
        List::Clients(_) => clients(&json, &rows("clients")),
        List::Slow(_) => slow(&json, &rows("slow")),
        List::Top(..) => top(&json),
    };
    lines.push(String::new());
    Ok(lines.join("\n"))
}

/// A value as a word.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

fn time(value: &Value) -> String {
    value.as_f64().map_or("-".to_owned(), |s| format_seconds((s * 1e9).round() as u128))
}

fn words(row: &Value, names: &[&str]) -> String {
    names.iter().map(|name| word(&row[name])).collect::<Vec<_>>().join(" ")
}

fn keys(json: &Value, rows: &[Value]) -> Vec<String> {
    let head = [format!("keys: {} of {}", rows.len(), json["keys_total"]), String::new()];
    let rows = rows.iter().map(|row| words(row, &["holders", "for_me", "for_anyone", "key"]));
    head.into_iter().chain([String::new()]).chain(rows).collect()
}

fn key(json: &Value, locks: &[Value]) -> Vec<String> {
    let counts = ["holders", "for_me", "for_anyone"];
    let counts = counts.map(|name| format!("{name}: {}", json[name]));
    let row = |lock: &Value| {
        let (for_s, left_s) = (time(&lock["for_s"]), time(&lock["left_s"]));
        let first = words(lock, &["what", "kind", "since"]);
        format!("{first} {for_s} {left_s} #{}", words(lock, &["client", "address"]))
    };
    counts.into_iter().chain(["what ".to_owned()]).chain(locks.iter().map(row)).collect()
}

fn clients(json: &Value, rows: &[Value]) -> Vec<String> {
    let seen = if json["turns"] == 1 { "seen: in 1 turn of the loop" } else { "seen: in turns" };
    let head = [
        format!("addresses: {} of {}", rows.len(), json["addresses"]),
        format!("connections: {}", json["connections"]),
        seen.to_owned(),
        String::new(),
    ];
    let rows = rows.iter().map(|row| words(row, &["connections", "holds", "waits", "address"]));
    head.into_iter().chain(rows).collect()
}

fn slow(json: &Value, rows: &[Value]) -> Vec<String> {
    let head = format!("slow: {} of {}", rows.len(), json["slow_total"]);
    let row = |row: &Value| {
        let first = words(row, &["time", "what", "kind", "outcome"]);
        let took = time(&row["took_s"]);
        format!("{first} {took} #{} - {}", words(row, &["client", "address"]), word(&row["key"]))
    };
    [head, String::new(), String::new()].into_iter().chain(rows.iter().map(row)).collect()
}

fn top(json: &Value) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.push(format!("sampled: 1 request in {}", json["sampled_one_in"]));
    for (name, by_time) in [("by_requests", false), ("by_time", true)] {
        let shown = |value: &Value| match value.as_f64() {
            Some(count) if !by_time => count.to_string(),
            _ => time(value),
        };
        let row = |row: &Value| {
            format!("{} {} {}", shown(&row["count"]), shown(&row["error"]), word(&row["name"]))
        };
        lines.extend([format!("{name}: "), String::new()]);
        lines.extend(json[name].as_array().into_iter().flatten().map(row));
    }
    lines
}

/// `RULES --json` as `RULES`, without what is not judged.
pub(super) fn rules_of(json: &str) -> Result<String, Violation> {
    let json: Value = serde_json::from_str(json).map_err(|e| format!("{json:?}: {e}"))?;
    let row = |row: &Value| {
        let counts = words(row, &["keys", "holders", "waiters", "changed", "from", "left_s"]);
        format!("{counts} {}", words(row, &["rule", "pattern"]))
    };
    let rows = json["rules"].as_array().into_iter().flatten().map(row);
    Ok([""; 3].map(str::to_owned).into_iter().chain(rows).collect::<Vec<_>>().join("\n"))
}

/// The answer about the keys that match a pattern.
pub(super) struct Found {
    pub(super) matching: usize,
    pub(super) left_out: usize,
    pub(super) rows: Vec<KeyRow>,
    pub(super) are_oldest_first: bool,
}

pub(super) fn matching_keys(json: &str) -> Result<Found, Violation> {
    let json: Value = serde_json::from_str(json).map_err(|e| format!("{json:?}: {e}"))?;
    let count = |of: &Value, name| of[name].as_u64().map_or(usize::MAX, |count| count as usize);
    let row = |row: &Value| {
        let counts = ["holders", "for_me", "for_anyone"].map(|name| count(row, name));
        (word(&row["key"]).into_bytes(), counts)
    };
    let rows = json["keys"].as_array().ok_or("no keys")?;
    let held_s = rows.iter().map(|row| row["oldest_hold_s"].as_f64().unwrap_or(f64::NAN));
    Ok(Found {
        matching: count(&json, "matching"),
        left_out: count(&json, "left_out"),
        rows: rows.iter().map(row).collect(),
        are_oldest_first: held_s.is_sorted_by(|a, b| a >= b),
    })
}
