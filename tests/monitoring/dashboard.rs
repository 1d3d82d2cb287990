//! The dashboard: its structure, and that each query finds data in a Prometheus that
//! scraped a daemon under load.

use crate::prometheus::Prometheus;
use crate::support::http::WithHttp;
use crate::support::{Client, eventually, file};
use crate::{RULES, promtools};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

fn dashboard() -> Value {
    serde_json::from_str(&file("monitoring/dashboard.json")).expect("JSON")
}

fn array<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no {name}"))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// The unit that overrides the panel's for a target.
fn own_unit<'a>(panel: &'a Value, target: &Value) -> Option<&'a str> {
    let overrides = panel["fieldConfig"]["overrides"].as_array()?.iter();
    let mut own = overrides.filter(|one| one["matcher"]["options"] == target["legendFormat"]);
    let mut properties = own.next()?["properties"].as_array()?.iter();
    properties.find(|property| property["id"] == "unit")?["value"].as_str()
}

/// The squares of the grid, 24 wide, that a panel covers.
fn squares(panel: &Value) -> Vec<(u64, u64)> {
    let place = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
    let (x, y, w, h) = (place("x"), place("y"), place("w"), place("h"));
    assert!(w > 0 && h > 0 && x + w <= 24, "{}", panel["title"]);
    (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))).collect()
}

#[test]
fn its_panels_are_complete_and_do_not_overlap() {
    let dashboard = dashboard();
    assert!(array(&dashboard, "panels").len() > 20);
    assert!(dashboard["id"].is_null(), "an id belongs to one Grafana");
    let (mut ids, mut titles, mut covered) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in array(&dashboard, "panels") {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_u64()), "{title}: its id is not unique");
        assert!(titles.insert(title.to_owned()), "{title}: duplicate title");
        for square in squares(panel) {
            assert!(covered.insert(square), "{title} covers another panel");
        }
        if text(panel, "type") == "row" {
            continue;
        }
        assert!(text(panel, "description").ends_with('.'), "{title}");
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
        assert!(unit.or(panel["options"]["yAxis"]["unit"].as_str()).is_some(), "{title}: no unit");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = array(panel, "targets");
        let references: BTreeSet<&str> = targets.iter().map(|t| text(t, "refId")).collect();
        assert!(!targets.is_empty() && references.len() == targets.len(), "{title}");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            assert!(!text(target, "legendFormat").is_empty(), "{title}: no legend");
            let shown = text(target, "expr").split(" and on").next().unwrap_or_default();
            if crate::alerts::metrics_in(shown).iter().any(|name| name.ends_with("_seconds")) {
                let unit = own_unit(panel, target).or(unit);
                assert!(matches!(unit, Some("s" | "dtdurations")), "{title}: seconds in {unit:?}");
            }
        }
    }
}

#[test]
fn its_variables_are_those_of_its_queries() {
    let dashboard = dashboard();
    let variables = array(&dashboard["templating"], "list").iter();
    let variables: BTreeSet<&str> = variables.map(|variable| text(variable, "name")).collect();
    assert_eq!(variables, BTreeSet::from(["datasource", "instance", "job"]));
    for query in queries(&dashboard) {
        let metrics = crate::alerts::metrics_in(&query).len() + query.matches("up{").count();
        assert!(metrics > 0, "{query}");
        let selected = query.matches(r#"{job=~"$job", instance=~"$instance""#).count();
        assert!(selected >= metrics, "{query}: not filtered by job and instance");
        let others = query.replace("$job", "").replace("$instance", "");
        assert!(!others.replace("$__rate_interval", "").contains('$'), "{query}");
    }
}

/// The queries of panels and annotations.
fn queries(dashboard: &Value) -> Vec<String> {
    let targets = array(dashboard, "panels").iter();
    let targets = targets.filter_map(|panel| panel["targets"].as_array()).flatten();
    let annotations = array(&dashboard["annotations"], "list").iter();
    targets.chain(annotations).map(|target| text(target, "expr").to_owned()).collect()
}

/// As Grafana fills in the variables when everything is selected.
fn filled_in(query: &str) -> String {
    let query = query.replace("$job", ".+").replace("$instance", ".+");
    query.replace("$__rate_interval", "5s")
}

/// Clients that cause everything that the dashboard shows, until it is dropped.
struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn on(address: SocketAddr) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = |n: usize| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    round(address, n);
                }
            })
        };
        Load { threads: (0..3).map(thread).collect(), is_over }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Waits until one client waits for anyone's work on a key.
fn wait_for_one_waiter(asker: &mut Client, key: &str) {
    let waits = || {
        asker.send(&format!("STATS KEY {key}"));
        let mut waits = false;
        loop {
            match asker.line() {
                line if line.is_empty() => return waits,
                line => waits |= line == "for_anyone: 1",
            }
        }
    };
    assert!(eventually(waits), "no client waits for {key}");
}

/// A lock handed on, a result shared, a full queue, a request that a rule denies, a wait that
/// times out after a second, holds that end by disconnect, and mistakes.
fn round(address: SocketAddr, n: usize) {
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
    let [one, two, three] = &mut clients[..] else { unreachable!() };
    one.exchange(&format!("ACQ4ME article:{n} 1 2 60"), "LOCKED");
    two.send(&format!("ACQ4ANY article:{n} 1 2 60"));
    wait_for_one_waiter(three, &format!("article:{n}"));
    three.exchange(&format!("ACQ4ME article:{n} 1 2 60"), "QUEUE_FULL");
    one.exchange("RELEASE", "RELEASED");
    two.expect("DONE");
    one.exchange(&format!("ACQ4ME bot:{n} 1 2 5"), "QUEUE_FULL");
    one.exchange(&format!("ACQ4ME file:{n} 1 2 5"), "LOCKED");
    two.send(&format!("ACQ4ME file:{n} 1 2 1"));
    two.expect("TIMEOUT");
    two.exchange("RELEASE", "NOT_LOCKED");
    for lock in 0..4 {
        three.exchange(&format!("ACQ4ME user:{n}:{lock} 1 2 5"), "LOCKED");
    }
    three.exchange(&format!("ACQ4ME user:{n}:4 1 2 5"), "LOCK_HELD");
}

#[test]
fn each_query_finds_data_after_a_load() {
    let daemon = WithHttp::start(&["--http-keys", "10", "--rules", RULES]);
    let Some(prometheus) = Prometheus::start("dashboard", daemon.http) else {
        return;
    };
    let _load = Load::on(daemon.server.address());
    prometheus.wait_for_rates();
    let dashboard = dashboard();
    for panel in array(&dashboard, "panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = filled_in(text(target, "expr"));
            // A quantile of no samples is NaN.
            let is_number = |(_, value): &(Value, f64)| !value.is_nan();
            let has_data = || prometheus.query(&query).iter().any(is_number);
            assert!(eventually(has_data), "{}: {query} returns no data", panel["title"]);
            let ours = daemon.http.to_string();
            for (labels, _) in prometheus.query(&query) {
                let instance = labels["instance"].as_str().unwrap_or(&ours);
                assert_eq!(instance, ours, "{}: {query} returns other instances", panel["title"]);
            }
        }
    }
    for annotation in array(&dashboard["annotations"], "list") {
        // The daemon has not restarted.
        assert_eq!(prometheus.query(&filled_in(text(annotation, "expr"))).len(), 0);
    }
}

/// Annotations mark lost locks, however long the daemon was down, and hot restarts: after
/// three scrapes, `crashed` and `drained` are down for 150 s.
#[test]
fn its_annotations_tell_restarts_apart() {
    let dashboard = dashboard();
    let expression = |n: usize| filled_in(text(&dashboard["annotations"]["list"][n], "expr"));
    let [lost, hot] = [expression(0), expression(1)].map(|query| query.replace('\'', "\""));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("annotations-{}.yml", std::process::id()));
    let test = format!(
        r#"
tests:
  - interval: 30s
    input_series:
      - {{ series: 'process_start_time_seconds{{job="j", instance="crashed"}}', values: '1000x2 stale _x3 1210x60' }}
      - {{ series: 'poolcounter_unsafe_start_time_seconds{{job="j", instance="crashed"}}', values: '1000x2 stale _x3 1210x60' }}
      - {{ series: 'poolcounter_safe_to_end{{job="j", instance="crashed"}}', values: '0x2 stale _x3 0x60' }}
      - {{ series: 'poolcounter_hot_restarts_total{{job="j", instance="crashed", result="done"}}', values: '3x2 stale _x3 0x60' }}
      - {{ series: 'process_start_time_seconds{{job="j", instance="drained"}}', values: '1000x2 stale _x3 1210x60' }}
      - {{ series: 'poolcounter_unsafe_start_time_seconds{{job="j", instance="drained"}}', values: '1000 0 0 stale _x3 1210x60' }}
      - {{ series: 'poolcounter_safe_to_end{{job="j", instance="drained"}}', values: '0 1 1 stale _x3 0x60' }}
      - {{ series: 'process_start_time_seconds{{job="j", instance="hot"}}', values: '1000x60' }}
      - {{ series: 'poolcounter_unsafe_start_time_seconds{{job="j", instance="hot"}}', values: '1000x60' }}
      - {{ series: 'poolcounter_safe_to_end{{job="j", instance="hot"}}', values: '0x60' }}
      - {{ series: 'poolcounter_hot_restarts_total{{job="j", instance="hot", result="done"}}', values: '0x6 1x60' }}
    promql_expr_test:
      - {{ expr: '{lost}', eval_time: 3m, exp_samples: [] }}
      - {{ expr: '{lost}', eval_time: 4m, exp_samples: [{{ labels: '{{job="j", instance="crashed"}}', value: 1210000 }}] }}
      - {{ expr: '{lost}', eval_time: 17m, exp_samples: [{{ labels: '{{job="j", instance="crashed"}}', value: 1210000 }}] }}
      - {{ expr: '{lost}', eval_time: 20m, exp_samples: [] }}
      - {{ expr: 'count by (instance) ({hot})', eval_time: 3m, exp_samples: [] }}
      - {{ expr: 'count by (instance) ({hot})', eval_time: 4m, exp_samples: [{{ labels: '{{instance="hot"}}', value: 1 }}] }}
      - {{ expr: 'count by (instance) ({hot})', eval_time: 20m, exp_samples: [] }}
"#
    );
    std::fs::write(&path, test).expect("write");
    for promtool in promtools() {
        let output = Command::new(&promtool).args(["test", "rules"]).arg(&path).output();
        let output = output.expect("promtool");
        let printed =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{}: {printed}", promtool.display());
    }
    std::fs::remove_file(&path).expect("remove");
}

/// The panels show the effects of a load: answers, outcomes of waits and holds, groups.
#[test]
fn client_actions_are_counted_separately() {
    let daemon = WithHttp::start(&["--rules", RULES]);
    let Some(prometheus) = Prometheus::start("outcomes", daemon.http) else {
        return;
    };
    let _load = Load::on(daemon.server.address());
    prometheus.wait_for_rates();
    let panels = dashboard();
    let query_of = |title: &str| {
        let mut panels = array(&panels, "panels").iter();
        let panel = panels.find(|panel| panel["title"] == title).expect(title);
        filled_in(text(&panel["targets"][0], "expr"))
    };
    for (title, label, expected) in [
        (
            "Requests for locks, by answer",
            "answer",
            &["LOCKED", "DONE", "QUEUE_FULL", "TIMEOUT", "LOCK_HELD"][..],
        ),
        ("Waits, by how they end", "outcome", &["done", "timeout"]),
        ("Holds, by how they end", "outcome", &["released", "disconnected"]),
        ("Requests, by group", "group", &["articles", "files", "bots", "other"]),
        ("Refused, by group", "group", &["articles", "bots"]),
        ("Waits (p95), by group", "group", &["articles", "files"]),
        ("Holds (p95), by group", "group", &["articles", "files", "other"]),
    ] {
        let query = format!("{} > 0", query_of(title));
        let shown = || {
            let samples = prometheus.query(&query);
            let labels = samples.iter().map(|(labels, _)| text(labels, label).to_owned());
            labels.collect::<BTreeSet<String>>()
        };
        let has_all = || expected.iter().all(|name| shown().contains(*name));
        assert!(eventually(has_all), "{title}: {:?}", shown());
    }
}
