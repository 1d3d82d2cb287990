//! `/metrics`: both Debians' promtool find no fault, and docs/reference/metrics.md is current.

use crate::support::Client;
use crate::support::http::{WithHttp, get};
use crate::{RULES, promtools};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether `promtool check metrics` succeeds, and what it prints.
fn check(promtool: &Path, metrics: &str) -> (bool, String) {
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("promtool");
    child.stdin.take().expect("stdin").write_all(metrics.as_bytes()).expect("send");
    let output = child.wait_with_output().expect("promtool");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn promtool_finds_nothing_wrong() {
    let daemon = WithHttp::start(&["--http-keys", "9", "--rules", RULES]);
    let mut client: Client = daemon.server.connect();
    client.exchange("ACQ4ANY odd\\\u{e4}\"{}=\u{1} 1 9 0", "LOCKED");
    client.exchange("RELEASE", "RELEASED");
    let (_, metrics) = get(daemon.http, "/metrics");
    assert!(metrics.contains("poolcounter_hot_key_requests{key=\"odd"), "{metrics}");
    assert!(metrics.contains("poolcounter_group_wait_seconds_bucket{group=\"files"), "{metrics}");
    let (_, exporter) = get(daemon.http, "/prometheus");
    for promtool in promtools() {
        assert_eq!(check(&promtool, &metrics), (true, String::new()), "{}", promtool.display());
        // promtool does find faults in /prometheus: missing types and discouraged names.
        let (is_fine, printed) = check(&promtool, &exporter);
        assert!(!is_fine && printed.contains("poolcounter_total_acquired"), "{printed}");
        assert!(!printed.contains("error while linting"), "{printed}");
    }
}

/// docs/reference/metrics.md has a row for each family: name, type and labels as the daemon has
/// them, and by hand when to look at it. `# HELP` has the meaning. `UPDATE=1 cargo test --test monitoring
/// families` writes all but the last column.
#[test]
fn the_page_of_families_is_current() {
    let daemon = WithHttp::start(&["--http-keys", "9", "--rules", RULES]);
    let mut client: Client = daemon.server.connect();
    for (line, answer) in [
        ("ACQ4ANY article:1 1 9 0", "LOCKED"),
        ("ACQ4ME article:2 1 9 0", "LOCKED"),
        ("RELEASE", "RELEASED"),
        ("STATS full_queues", "full_queues: 0"),
        ("HELLO", "ERROR BAD_COMMAND"),
    ] {
        client.exchange(line, answer);
    }
    let (_, metrics) = get(daemon.http, "/metrics");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/metrics.md");
    let page = std::fs::read_to_string(&path).expect("docs/reference/metrics.md");
    let (text, table) = page.split_once(HEAD).expect("the table's head");
    let reasons: BTreeMap<&str, &str> = table.lines().filter_map(reason_in).collect();
    let rows: String = families(&metrics).map(|family| family.row(&reasons)).collect();
    let current = format!("{text}{HEAD}{rows}");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &current).expect("docs/reference/metrics.md");
    }
    let page = std::fs::read_to_string(&path).expect("docs/reference/metrics.md");
    assert_eq!(page, current, "UPDATE=1 cargo test --test monitoring families");
    let unexplained: Vec<&str> =
        reasons.iter().filter(|it| it.1.is_empty()).map(|it| *it.0).collect();
    assert_eq!(unexplained, [""; 0], "say in docs/reference/metrics.md when to look at these");
}

const HEAD: &str = "| family | type, labels | look at it for |\n|---|---|---|\n";

/// Family and last column of a row of the table.
fn reason_in(row: &str) -> Option<(&str, &str)> {
    let name = row.strip_prefix("| `")?.split('`').next()?;
    let reason = row.strip_suffix(" |")?.rsplit("| ").next()?;
    Some((name, reason.trim()))
}

struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    samples: Vec<&'a str>,
}

fn families(metrics: &str) -> impl Iterator<Item = Family<'_>> {
    metrics.split("# HELP ").skip(1).map(|text| {
        let mut lines = text.lines();
        let (name, _help) = lines.next().and_then(|line| line.split_once(' ')).expect("a help");
        let kind = lines.next().and_then(|line| line.rsplit(' ').next()).expect("a type");
        Family { name, kind, samples: lines.collect() }
    })
}

impl Family<'_> {
    fn row(&self, reasons: &BTreeMap<&str, &str>) -> String {
        let Family { name, kind, .. } = self;
        let labels: String = self.labels().map(|label| format!(", {label}")).collect();
        let reason = reasons.get(name).unwrap_or(&"");
        format!("| `{name}` | {kind}{labels} | {reason} |\n")
    }

    /// The labels, with their values if these are the same in all daemons.
    fn labels(&self) -> impl Iterator<Item = String> {
        let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for sample in &self.samples {
            let labels = sample.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
            let labels = labels.map_or("", |(labels, _)| labels);
            for (label, value) in labels.split(',').filter_map(|label| label.split_once('=')) {
                values.entry(label).or_default().insert(value.trim_matches('"'));
            }
        }
        values.into_iter().filter(|(label, _)| *label != "le").map(|(label, values)| match label {
            "answer" | "group" | "key" | "version" => format!("`{label}`"),
            _ => {
                let values: Vec<&str> = values.into_iter().collect();
                format!("`{label}` ({})", values.join(", "))
            }
        })
    }
}
