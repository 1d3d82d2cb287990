//! Debian's Prometheus, scraping one daemon and another exporter, as in production.

use crate::support::http::get;
use crate::support::{Log, eventually};
use crate::tool;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A running Prometheus; killed when dropped, and its folder removed.
pub(crate) struct Prometheus {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Prometheus {
    /// Scrapes `target` each second as the job `poolcounter`, and another exporter as the job
    /// `another`, with the alert rules of monitoring/. `None`, with a message, if the machine has no Prometheus.
    pub(crate) fn start(name: &str, target: SocketAddr) -> Option<Prometheus> {
        let program = tool("bookworm", "prometheus")?;
        let pid = std::process::id();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{pid}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/monitoring/alerts.yml");
        let another = another_exporter();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: ['{rules}']\n\
             scrape_configs:\n  - job_name: poolcounter\n    \
             static_configs: [{{ targets: ['{target}'] }}]\n  - job_name: another\n    \
             static_configs: [{{ targets: ['{another}'] }}]\n"
        );
        std::fs::write(folder.join("prometheus.yml"), config).expect("a configuration");
        let mut child = Command::new(program)
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start prometheus");
        let log = Log::read_from(child.stderr.take().expect("stderr"));
        let line = log.wait_for("Listening on");
        let address = line.split("address=").nth(1).and_then(|rest| rest.split(' ').next());
        let address = address.and_then(|address| address.parse().ok()).expect("an address");
        log.wait_for("Server is ready to receive web requests");
        Some(Prometheus { child, address, folder })
    }

    /// What the API answers.
    #[track_caller]
    pub(crate) fn api(&self, path: &str) -> Value {
        let (head, body) = get(self.address, path);
        assert!(head.contains(" 200 "), "{path}: {head}\n{body}");
        serde_json::from_str::<Value>(&body).expect("JSON")["data"].clone()
    }

    /// The samples that answer a query, with their labels.
    #[track_caller]
    pub(crate) fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let data = self.api(&format!("/api/v1/query?query={}", percent_encoded(query)));
        let sample = |sample: &Value| {
            let value = sample["value"][1].as_str().and_then(|value| value.parse().ok());
            (sample["metric"].clone(), value.expect("a number"))
        };
        data["result"].as_array().expect("a vector").iter().map(sample).collect()
    }

    /// Waits until `rate` over the last seconds has data, of both jobs.
    #[track_caller]
    pub(crate) fn wait_for_rates(&self) {
        for query in [
            "rate(poolcounter_acquired_total[5s]) > 0",
            "rate(process_cpu_seconds_total{job='another'}[5s])",
        ] {
            assert!(eventually(|| !self.query(query).is_empty()), "no rate: {query}");
        }
    }
}

/// The address of an unrelated exporter, which runs until the tests end.
fn another_exporter() -> SocketAddr {
    const ANSWER: &str = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n\
        process_cpu_seconds_total 1\nprocess_resident_memory_bytes 1\nprocess_open_fds 1\n\
        process_max_fds 2\nprocess_start_time_seconds 1\n";
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The scraper has sent its request at once.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(ANSWER.as_bytes());
        }
    });
    address
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
