//! What the page at `/` and a scrape cost the daemon.

use crate::support::Client;
use crate::support::http::{WithHttp, get};
use std::time::Duration;

/// With one of each per second: less than 0.4 % of a core, ten times the figure in
/// docs/development/evidence.md.
#[test]
fn a_page_load_and_a_scrape_cost_little() {
    const ROUNDS: u32 = 300;
    const BOUND: Duration = Duration::from_millis(4);
    let daemon = WithHttp::start(&[]);
    let mut clients: Vec<Client> = (0..50).map(|_| daemon.server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(&format!("ACQ4ME enwiki:pcache:idhash:{}-0!canonical:revid:7 1 9 60", n / 2));
    }
    daemon.server.settle();
    let before = daemon.server.cpu_time();
    for _ in 0..ROUNDS {
        for path in ["/", "/stats.json", "/metrics"] {
            get(daemon.http, path);
        }
    }
    let each = (daemon.server.cpu_time() - before) / ROUNDS;
    println!(
        "a load of / and /stats.json and a scrape of /metrics: {each:?} of CPU, at most {BOUND:?}"
    );
    assert!(each < BOUND, "{each:?}");
}
