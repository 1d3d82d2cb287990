//! What reports show of single clients: how long each has held or waited, how long it
//! still may, and where it comes from.

use crate::simulation::kernel::kernel;
use crate::simulation::model::{Lock, State};
use engine::ClientId;
use protocol::Mode;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// All clients that were ever served, by serial number: the peer, and its address.
#[derive(Debug, Default)]
pub(crate) struct ClientAddresses(BTreeMap<u32, (u32, SocketAddr)>);

impl ClientAddresses {
    pub(crate) fn note(&mut self, client: ClientId, peer: u32, address: Option<SocketAddr>) {
        self.0.extend(address.map(|address| (client.serial, (peer, address))));
    }

    /// The host of a client, as lists show it.
    pub(crate) fn host(&self, serial: u32) -> String {
        match self.0.get(&serial) {
            Some((_, address)) => address.ip().to_string(),
            None => "unknown".to_owned(),
        }
    }

    /// Whether `shown` may be a client's address.
    ///
    /// Invariant: The address that is shown is the client's own. It may be unknown once the client
    /// has gone.
    pub(crate) fn is_address_of(&self, serial: u32, shown: &str, is_private: bool) -> bool {
        let Some((peer, address)) = self.0.get(&serial) else { return false };
        let has_gone = || kernel(|k| k.has_closed(*peer) || !k.is_open(*peer));
        match shown {
            "hidden" => is_private,
            "unknown" | "-" => has_gone(),
            _ => shown == address.to_string(),
        }
    }

    /// Whether these rows of `STATS KEY` are the locks of `key`.
    ///
    /// Invariant: `STATS KEY` shows for each lock its client, for how long it has been held or
    /// waited for, and how much time is left.
    pub(crate) fn match_key_rows(
        &self,
        rows: &[Vec<&str>],
        key: &[u8],
        (locks, now_ns): (&[Lock], u64),
        is_private: bool,
    ) -> bool {
        let of_key = locks.iter().filter(|lock| lock.key == key);
        let mut due: Vec<[String; 5]> = of_key.map(|lock| row_of(lock, now_ns)).collect();
        // Without the wall-clock time, which jumps.
        let columns = |row: &Vec<&str>| {
            [0, 1, 3, 4, 5].map(|n| row.get(n).copied().unwrap_or_default().to_owned())
        };
        let mut shown: Vec<[String; 5]> = rows.iter().map(columns).collect();
        due.sort();
        shown.sort();
        let has_address = |row: &Vec<&str>| {
            let serial = row.get(5).and_then(|client| client.strip_prefix('#')?.parse().ok());
            let address = row.get(6).copied().unwrap_or_default();
            serial.is_some_and(|serial| self.is_address_of(serial, address, is_private))
        };
        due == shown && rows.iter().all(has_address)
    }

    /// Whether these rows of `STATS CLIENTS` are what each host has: at least the connections
    /// before that turn, and at most those in it. The host of a client that has gone may be
    /// unknown.
    pub(crate) fn match_host_rows(
        &self,
        rows: &[Vec<&str>],
        present: &[Vec<u32>; 2],
        locks: &[Lock],
    ) -> bool {
        let count =
            |n: usize, host| present[n].iter().filter(|one| self.host(**one) == host).count();
        let mut due: BTreeMap<String, [usize; 2]> = BTreeMap::new();
        for lock in locks {
            let n = usize::from(lock.state != State::Held);
            due.entry(self.host(lock.client.serial)).or_default()[n] += 1;
        }
        let number = |row: &[&str], n: usize| {
            row.get(n).and_then(|word| word.parse().ok()).unwrap_or(usize::MAX)
        };
        let named = |row: &&Vec<&str>| !["unknown", "hidden"].contains(&row[row.len() - 1]);
        let is_whole = rows.iter().all(|row| named(&row));
        rows.iter().filter(named).all(|row| {
            let host = row[row.len() - 1];
            let (least, most) = (count(0, host), count(1, host));
            let [holds, waits] = due.get(host).copied().unwrap_or_default();
            let (one, held, waited) = (number(row, 0), number(row, 1), number(row, 2));
            let is_all = one >= least && held == holds && waited == waits;
            one <= most && held <= holds && waited <= waits && (is_all || !is_whole)
        })
    }
}

fn row_of(lock: &Lock, now_ns: u64) -> [String; 5] {
    let what = if lock.state == State::Held { "holder" } else { "waiter" };
    let mode = if lock.mode == Mode::ForMe { "me" } else { "anyone" };
    let age = format_seconds(now_ns.saturating_sub(lock.since.as_ns()).into());
    let left = lock.deadline_ns.map(|at_ns| format_seconds(at_ns.saturating_sub(now_ns.into())));
    let client = format!("#{}", lock.client.serial);
    [what.to_owned(), mode.to_owned(), age, left.unwrap_or_else(|| "-".to_owned()), client]
}

/// Nanoseconds, as lists show them.
pub(crate) fn format_seconds(ns: u128) -> String {
    let ms = ns / 1_000_000;
    format!("{}.{:03}", ms / 1000, ms % 1000)
}
