//! The lists of `STATS JSON`, read back into the text of the same list: one judge for both.

use super::moments::KeyRow;
use crate::simulation::invariants::Violation;
use protocol::List;
use schema::reports::{KeysReport, ListReport};
use serde::de::DeserializeOwned;

/// The list as text.
///
/// Invariant: A list in JSON shows what the same list shows as text.
pub(super) fn text_of(list: &List, json: &str) -> Result<String, Violation> {
    Ok(reports::text(&match list {
        List::Keys(_) => ListReport::Keys(read(json)?),
        List::Key(_) => ListReport::Key(read(json)?),
        List::Clients(_) => ListReport::Clients(read(json)?),
        List::Slow(_) => ListReport::Slow(read(json)?),
        List::Top(..) => ListReport::Top(read(json)?),
    }))
}

/// `RULES --json` as `RULES`.
pub(super) fn rules_of(json: &str) -> Result<String, Violation> {
    Ok(reports::text(&ListReport::Rules(read(json)?)))
}

fn read<R: DeserializeOwned>(json: &str) -> Result<R, Violation> {
    serde_json::from_str(json).map_err(|e| format!("{json:?}: {e}"))
}

/// The answer about the keys that match a pattern.
pub(super) struct Found {
    pub(super) matching: usize,
    pub(super) left_out: usize,
    pub(super) rows: Vec<KeyRow>,
    pub(super) are_oldest_first: bool,
}

pub(super) fn matching_keys(json: &str) -> Result<Found, Violation> {
    let report: KeysReport = read(json)?;
    let rows = &report.keys;
    let counted = |count: Option<u64>| count.map_or(usize::MAX, |count| count as usize);
    let row = |row: &schema::rows::KeyRow| {
        (row.key.clone().into_bytes(), [row.holders, row.for_me, row.for_anyone])
    };
    Ok(Found {
        matching: counted(report.matching),
        left_out: counted(report.left_out),
        rows: rows.iter().map(row).collect(),
        are_oldest_first: rows.is_sorted_by(|a, b| a.oldest_hold_s >= b.oldest_hold_s),
    })
}
