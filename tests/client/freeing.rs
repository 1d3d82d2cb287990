//! `poolcounter free`: closes connections, and their locks pass to the next waiters.

use crate::command::ask;
use crate::support::operated::Operated;
use crate::support::{Client, Finished};

impl Operated {
    fn free(&self, arguments: &[&str]) -> Finished {
        self.poolcounter(&[&["free"], arguments].concat())
    }

    /// `STATS KEY`.
    fn keys(&self, key: &str) -> String {
        let server = self.server.address().to_string();
        ask(&server, &["key", key]).stdout
    }

    /// A client that holds these keys, which allow many holders.
    fn holder(&self, keys: &[&str]) -> Client {
        let mut client = self.server.connect();
        for key in keys {
            assert_eq!(client.ask(&format!("ACQ4ME {key} 99 99 60")), "LOCKED");
        }
        client
    }

    /// A client that waits for the one lock of `key`.
    fn waiter(&self, key: &str, waiting: u64) -> Client {
        let mut client = self.server.connect();
        client.send(&format!("ACQ4ME {key} 1 99 6000"));
        self.server.connect().wait_for_counter("waiting_workers", |count| count == waiting);
        client
    }
}

#[test]
fn a_key_is_freed_with_the_other_locks_of_its_holder() {
    let daemon = Operated::start();
    let mut holder = daemon.holder(&["stuck", r"other\key"]);
    let mut waiter = daemon.waiter("stuck", 1);
    let trial = daemon.free(&["--key", "stuck", "--dry-run"]);
    assert_eq!(trial.code, Some(0), "{}", trial.stdout);
    let first = "OK would close 1 connection: holds: 2, waits: 0";
    assert_eq!(trial.stdout.lines().next(), Some(first), "{}", trial.stdout);
    holder.settle();
    let freed = daemon.free(&["--key", "stuck"]);
    let rows: Vec<Vec<&str>> =
        freed.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0].join(" "), "OK closed 1 connection: holds: 2, waits: 0");
    assert_eq!(rows[1].join(" "), "locks: 2 of 2");
    assert_eq!(rows[2].join(" "), "what kind since for client address key");
    let keys: Vec<&str> = rows[3..].iter().filter_map(|row| row.last().copied()).collect();
    assert_eq!(keys, ["stuck", r"other\x5ckey"], "{}", freed.stdout);
    holder.expect_end();
    waiter.expect("LOCKED");
    waiter.exchange("STATS freed_connections", "freed_connections: 1");
    daemon.server.log.wait_for("FREE closed 1 connection: holds: 2, waits: 0");
}

#[test]
fn what_is_freed_is_told_in_json() {
    let daemon = Operated::start();
    let mut holder = daemon.holder(&["café", "other"]);
    let mut waiter = daemon.waiter("other", 1);
    let json = |arguments: &[&str], code: i32| -> serde_json::Value {
        let freed = daemon.free(&[arguments, &["--json"]].concat());
        assert_eq!(freed.code, Some(code), "{}{}", freed.stdout, freed.stderr);
        serde_json::from_str(&freed.stdout).expect("JSON")
    };
    for (key, is_dry_run) in [(r"caf\xc3\xa9", true), ("café", false)] {
        let dry_run = if is_dry_run { "--dry-run" } else { "--max=20" };
        let freed = json(&["--key", key, dry_run], 0);
        assert_eq!((&freed["ok"], &freed["freed"]), (&true.into(), &1.into()));
        assert_eq!(freed["dry_run"], is_dry_run);
        assert_eq!((&freed["holds"], &freed["waits"]), (&2.into(), &0.into()));
        let lock = &freed["locks"][0];
        assert_eq!((&lock["key"], &lock["what"]), (&"café".into(), &"holder".into()));
        assert!(lock["for_s"].as_f64().is_some() && lock["client"].as_u64().is_some(), "{lock}");
    }
    holder.expect_end();
    waiter.expect("LOCKED");
    daemon.server.log.wait_for("FREE closed 1 connection: holds: 2, waits: 0");
    let refused = json(&["--key", "café"], 1);
    assert_eq!(refused["ok"], false);
    assert_eq!(refused["answer"], "ERROR no client holds this key");
}

#[test]
fn many_connections_are_closed_only_if_the_bound_allows_it() {
    let daemon = Operated::start();
    let mut holders: Vec<Client> = (0..21).map(|_| daemon.holder(&["k"])).collect();
    let refused = daemon.free(&["--key", "k"]);
    let why = "ERROR 21 connections, more than 20: nothing is closed; a MAX of 21 would do\n";
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), why));
    holders[0].settle();
    let freed = daemon.free(&["--key", "k", "--max", "21"]);
    assert_eq!(freed.code, Some(0), "{}", freed.stdout);
    holders.iter_mut().for_each(Client::expect_end);
}

#[test]
fn a_connection_is_freed_by_its_number() {
    let daemon = Operated::start();
    let mut other = daemon.holder(&["k"]);
    let mut holder = daemon.holder(&["k"]);
    let list = daemon.keys("k");
    let row = list.lines().rev().find(|line| line.starts_with("holder")).expect("a holder");
    let number = row.split_whitespace().find_map(|word| word.strip_prefix('#')).expect("a number");
    let freed = daemon.free(&["--client", number]);
    assert_eq!(freed.code, Some(0), "{}", freed.stdout);
    holder.expect_end();
    other.exchange("RELEASE", "RELEASED");
    for (arguments, why) in [
        (&["--client", number][..], "ERROR no such connection\n"),
        (&["--key", "nobody"], "ERROR no client holds this key\n"),
        (&["--host", "10.9.8.7"], "ERROR no connection from this host\n"),
    ] {
        let refused = daemon.free(arguments);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), why));
    }
}

#[test]
fn a_client_that_holds_a_key_twice_is_one_connection() {
    let daemon = Operated::start();
    let mut holder = daemon.holder(&["k", "k", "k", "s"]);
    let trial = daemon.free(&["--key", "k", "--dry-run", "--max", "0"]);
    assert!(
        trial.stdout.starts_with("OK would close 1 connection: holds: 4, "),
        "{}",
        trial.stdout
    );
    assert_eq!(daemon.free(&["--key", "k", "--max", "1"]).code, Some(0));
    holder.expect_end();
}
