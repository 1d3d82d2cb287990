//! The alert rules: they fire when they should, use existing metrics, and the runbook
//! explains each.

use crate::prometheus::Prometheus;
use crate::support::http::{WithHttp, get};
use crate::support::{Client, DAEMON, Server, eventually, file, launched};
use crate::{RULES, promtools};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

#[test]
fn each_fires_when_it_should_and_not_before() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/monitoring/alerts.yml");
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/monitoring/alerts.test.yml");
    let check = |promtool: PathBuf| {
        for arguments in [["check", "rules", rules], ["test", "rules", tests]] {
            let output = Command::new(&promtool).args(arguments).output().expect("promtool");
            let printed = [output.stdout, output.stderr].concat();
            let printed = String::from_utf8_lossy(&printed);
            assert!(output.status.success(), "{}: {printed}", promtool.display());
        }
    };
    // Each promtool runs for seconds.
    thread::scope(|scope| promtools().for_each(|promtool| drop(scope.spawn(|| check(promtool)))));
}

/// The names of the alerts, in the file's spelling.
fn names() -> BTreeSet<String> {
    let rules = file("monitoring/alerts.yml");
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

#[test]
fn each_is_tested_and_explained() {
    let (tests, runbook) = (file("monitoring/alerts.test.yml"), file("docs/operate/runbook.md"));
    let (rules, manual) = (file("monitoring/alerts.yml"), file("docs/guide/monitor.md"));
    let base = "https://runbook.example/";
    assert!(
        manual.contains(&format!("runbook_url:/s|{base}|")),
        "docs/guide/monitor.md lacks how to replace {base}"
    );
    let headings = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    let alerts = headings.filter(|heading| heading.starts_with("PoolCounter"));
    let explained: BTreeSet<String> = alerts.map(str::to_owned).collect();
    assert_eq!(explained, names());
    for name in names() {
        let fires = format!("alertname: {name}\n        exp_alerts:\n          - exp_labels");
        assert!(tests.contains(&fires), "{name} is not tested");
        let link = format!("runbook_url: {base}runbook.md#{}\n", name.to_lowercase());
        assert!(rules.contains(&link), "{name} has no link");
        let (_, text) = runbook.split_once(&format!("## {name}\n")).expect("a heading");
        let text = text.split("\n## ").next().expect("a text");
        for part in ["**Means**", "**Look at**", "**Do**"] {
            assert!(text.contains(part), "{name}: {part} is missing");
        }
    }
}

/// Words of a query that look like metrics of the daemon.
pub(crate) fn metrics_in(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics =
        words.filter(|word| word.starts_with("poolcounter_") || word.starts_with("process_"));
    metrics.map(str::to_owned).collect()
}

#[test]
fn they_use_existing_metrics() {
    let daemon = WithHttp::start(&["--rules", RULES]);
    daemon.server.connect().exchange("ACQ4ME article:1 1 9 0", "LOCKED");
    let (_, metrics) = get(daemon.http, "/metrics");
    let rules = file("monitoring/alerts.yml");
    let names = metrics_in(&rules);
    assert!(names.len() > 6, "{names:?}");
    for name in names {
        let has_sample = metrics
            .lines()
            .any(|line| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        assert!(has_sample, "no {name} in /metrics");
    }
}

/// The number in the rule must be the number of descriptors that the daemon reserves.
#[test]
fn the_descriptor_alert_sees_when_no_more_clients_are_accepted() {
    let launcher = ["prlimit", "--nofile=64:64"];
    let arguments = ["-l", "127.0.0.1", "-p", "0", "--http", "127.0.0.1:0"];
    let daemon = WithHttp::of(Server::spawn(&mut launched(&launcher, DAEMON, &arguments)));
    let _crowd: Vec<Client> = (0..60).map(|_| daemon.server.connect()).collect();
    daemon.server.log.wait_for("out of descriptors");
    let (_, metrics) = get(daemon.http, "/metrics");
    let sample = |name: &str| -> f64 {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        value.trim().parse().expect("a number")
    };
    let rules = file("monitoring/alerts.yml");
    let (_, rest) = rules.split_once(r#"process_max_fds{job="poolcounter"} - "#).expect("the rule");
    let reserved: f64 = rest.split(',').next().and_then(|n| n.parse().ok()).expect("a number");
    let used = sample("process_open_fds ") / (sample("process_max_fds ") - reserved);
    // The connection that scrapes the metrics uses a reserved descriptor.
    assert!((0.95..1.1).contains(&used), "{used}");
}

/// With the real daemon: nothing fires while all is well. A lock that is held for longer than
/// its rule allows becomes pending, and so does a drain; a cold start after a scrape that saw
/// no locks does not fire, one during a drain with locks does.
#[test]
fn a_real_prometheus_evaluates_them() {
    let mut daemon = WithHttp::start(&["--rules", RULES]);
    let Some(prometheus) = Prometheus::start("alerts", daemon.http) else {
        return;
    };
    let rules = || prometheus.api("/api/v1/rules")["groups"][0]["rules"].clone();
    let rule = |name: &str| {
        let rules = rules();
        let mut all = rules.as_array().expect("rules").iter();
        all.find(|rule| rule["name"] == name).expect(name).clone()
    };
    let state = |name: &str| rule(name)["state"].as_str().unwrap_or("unknown").to_owned();
    let holds = |query: &str| eventually(|| !prometheus.query(query).is_empty());
    assert!(holds("poolcounter_uptime_seconds > 5"));
    let is_evaluated = |rule: &Value| rule["health"] == "ok";
    assert!(eventually(|| rules().as_array().is_some_and(|all| all.iter().all(is_evaluated))));
    assert_eq!(rules().as_array().map(Vec::len), Some(names().len()));
    for name in names() {
        // Before the first scrape the target counts as down.
        assert!(eventually(|| state(&name) == "inactive"), "{name} is {}", state(&name));
    }
    let mut clients = ["article:1", "file:1"].map(|key| {
        let mut client: Client = daemon.server.connect();
        client.exchange(&format!("ACQ4ME {key} 1 9 0"), "LOCKED");
        client
    });
    assert!(eventually(|| state("PoolCounterStuckHolder") == "pending"));
    let stuck = rule("PoolCounterStuckHolder")["alerts"].clone();
    assert_eq!(stuck.as_array().map(Vec::len), Some(1), "{stuck}");
    assert_eq!(stuck[0]["labels"]["group"], "files", "{stuck}");
    for client in &mut clients {
        client.exchange("RELEASE", "RELEASED");
    }
    assert!(eventually(|| state("PoolCounterStuckHolder") == "inactive"));
    daemon.server.signal(Signal::USR2);
    assert!(eventually(|| state("PoolCounterDraining") == "pending"));
    assert!(holds("poolcounter_safe_to_end == 1"));
    daemon = replace_daemon(daemon);
    assert!(holds("changes(poolcounter_safe_to_end[1h]) == 2"));
    assert!(holds("poolcounter_uptime_seconds > 3"));
    assert_eq!(state("PoolCounterLostLocks"), "inactive");

    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME article:1 1 9 0", "LOCKED");
    daemon.server.signal(Signal::USR2);
    assert!(holds("poolcounter_draining == 1"));
    let _next = replace_daemon(daemon);
    assert!(eventually(|| state("PoolCounterLostLocks") == "firing"));
}

/// Kills a daemon and starts another on the same HTTP address.
fn replace_daemon(mut daemon: WithHttp) -> WithHttp {
    let http = daemon.http.to_string();
    daemon.server.signal(Signal::KILL);
    daemon.server.wait_for_exit();
    WithHttp::of(Server::start_with(&["--http", &http]))
}
