//! What `STATS SLOW` shows: the last holds and waits that took longer than `--slow`.

use super::addresses::{ClientAddresses, format_seconds};
use crate::simulation::model::End;
use protocol::Mode;

/// How many are remembered.
const REMEMBERED: usize = 128;

/// All of them, the newest last.
#[derive(Debug, Default)]
pub(crate) struct SlowList {
    over_ns: Option<u64>,
    rows: Vec<[String; 6]>,
}

impl SlowList {
    /// An image starts, with this limit.
    pub(crate) fn set_limit(&mut self, over_ns: Option<u64>) {
        self.over_ns = over_ns;
    }

    pub(crate) fn note(&mut self, ends: &[End]) {
        let Some(over_ns) = self.over_ns else { return };
        let slow = ends.iter().filter(|end| end.took_ns > over_ns.into());
        self.rows.extend(slow.map(row_of));
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether `text` shows at most `max` of the last ones when there were `len`.
    pub(crate) fn matches(
        &self,
        text: &str,
        (len, max): (usize, usize),
        is_private: bool,
        addresses: &ClientAddresses,
    ) -> bool {
        let remembered = len.min(REMEMBERED);
        let rows = remembered.min(max);
        let last = self.rows[..len].iter().rev().take(rows);
        let shown: Vec<Vec<&str>> =
            text.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        text.starts_with(&format!("slow: {rows} of {remembered}\n"))
            && shown.len() == rows
            && last.zip(&shown).all(|(row, shown)| {
                let key = shown.last().copied().unwrap_or_default();
                let is_key = is_private && key == "hidden" || key == row[5];
                let address = shown.get(6).copied().unwrap_or_default();
                let serial = row[4].trim_start_matches('#').parse().expect("a number");
                let is_its = addresses.is_address_of(serial, address, is_private);
                is_key && is_its && shown.iter().skip(1).take(5).eq(row.iter().take(5))
            })
    }
}

/// As the list has it, without the time and the address.
fn row_of(end: &End) -> [String; 6] {
    let is_hold = ["released", "disconnected", "expired"].contains(&end.how);
    let what = if is_hold { "hold" } else { "wait" };
    let mode = if end.mode == Mode::ForMe { "me" } else { "anyone" };
    let took = format_seconds(end.took_ns);
    let client = format!("#{}", end.client.serial);
    let key = String::from_utf8_lossy(&end.key).into_owned();
    [what.to_owned(), mode.to_owned(), end.how.to_owned(), took, client, key]
}
