//! What both Debians' promtool find wrong with `/metrics`: nothing.

use crate::support::Client;
use crate::support::http::{Daemon, get};
use crate::{RULES, promtools};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether `promtool check metrics` is content, and what it says.
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
    let daemon = Daemon::start(&["--http-keys", "9", "--rules", RULES]);
    let mut client: Client = daemon.server.connect();
    client.exchange("ACQ4ANY odd\\\u{e4}\"{}=\u{1} 1 9 0", "LOCKED");
    client.exchange("RELEASE", "RELEASED");
    let (_, metrics) = get(daemon.http, "/metrics");
    assert!(metrics.contains("poolcounter_hot_key_requests{key=\"odd"), "{metrics}");
    assert!(metrics.contains("poolcounter_group_wait_seconds_bucket{group=\"files"), "{metrics}");
    let (_, exporter) = get(daemon.http, "/prometheus");
    for promtool in promtools() {
        assert_eq!(check(&promtool, &metrics), (true, String::new()), "{}", promtool.display());
        // It would find something: without its type, and with a name that is advised
        // against, as /prometheus has them.
        let (is_fine, said) = check(&promtool, &exporter);
        assert!(!is_fine && said.contains("poolcounter_total_acquired"), "{said}");
        assert!(!said.contains("error while linting"), "{said}");
    }
}
