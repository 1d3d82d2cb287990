//! HTTP for monitoring: `--http`.

use crate::support::http::WithHttp;
use crate::support::operated::{Operated, Operator};
use crate::support::status::NO_ADDRESS;
use crate::support::{PATIENCE, daemon_command, eventually, finish};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

impl WithHttp {
    /// The answer to a GET.
    #[track_caller]
    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"))
    }

    #[track_caller]
    fn ask(&self, request: &str) -> Answer {
        let mut stream = connect(self.http);
        stream.write_all(request.as_bytes()).expect("send");
        Answer::read(stream)
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    #[track_caller]
    fn read(mut stream: TcpStream) -> Answer {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer and the end");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Answer { status: status.expect("a status"), head: head.to_owned(), body: body.to_owned() }
    }

    fn has(&self, header: &str) -> bool {
        self.head.lines().any(|line| line.eq_ignore_ascii_case(header))
    }

    /// The value of a sample.
    #[track_caller]
    fn sample(&self, name: &str) -> f64 {
        let mut lines = self.body.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
    }
}

#[test]
fn metrics_count_what_clients_do() {
    let daemon = WithHttp::start(&[]);
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 9 0", "LOCKED");
    client.exchange("ACQ4ME k 1 1 0", "QUEUE_FULL");
    client.exchange("RELEASE", "RELEASED");
    client.exchange("NONSENSE", "ERROR BAD_COMMAND");
    let metrics = daemon.get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.has("content-type: text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(metrics.sample("poolcounter_acquired_total"), 1.0);
    let replies = |asked: &str, answer: &str| {
        let name = format!("poolcounter_replies_total{{command=\"{asked}\",answer=\"{answer}\"}}");
        metrics.sample(&name)
    };
    assert_eq!(replies("ACQ4ME", "QUEUE_FULL"), 1.0);
    assert_eq!(replies("other", "ERROR BAD_COMMAND"), 1.0);
    let held = "poolcounter_hold_seconds_count{kind=\"me\",outcome=\"released\"}";
    assert_eq!(metrics.sample(held), 1.0);
    assert_eq!(metrics.sample("poolcounter_connections"), 1.0);
    assert!(metrics.sample("process_resident_memory_bytes") > 1e6);
    assert!(metrics.sample("process_start_time_seconds") > 1.7e9);
    assert!(metrics.sample("poolcounter_turn_seconds_count") > 1.0);
    let old = daemon.get("/prometheus");
    assert_eq!(old.sample("poolcounter_full_queues"), 1.0);
    assert_eq!(old.sample("poolcounter_up"), 1.0);
    drop(client);
    let fate = "poolcounter_ended_connections_total{fate=\"closed\"}";
    assert!(eventually(|| daemon.get("/metrics").sample(fate) == 1.0));
}

#[test]
fn every_response_has_a_type_and_an_end() {
    let daemon = WithHttp::start(&[]);
    for (path, status, start) in [
        ("/", 200, "<!doctype html>"),
        ("/stats.json", 200, "{\"version\":"),
        ("/history.json", 200, "{\"time\":"),
        ("/key?caf%C3%A9%5c", 200, "key: caf\\xc3\\xa9\\x5c\ngroup: other\nholders: 0\n"),
        ("/key?", 400, "not a request"),
        ("/-/healthy", 200, "healthy"),
        ("/metrics/", 404, "no such page"),
    ] {
        let answer = daemon.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.body.starts_with(start), "{path}: {}", answer.body);
        assert!(answer.has(&format!("content-length: {}", answer.body.len())), "{path}");
        assert!(answer.has("connection: close") && answer.has("x-content-type-options: nosniff"));
        // No page of another site may read or embed it.
        assert!(answer.has("cross-origin-resource-policy: same-origin"), "{path}");
        assert!(!answer.head.contains("Access-Control-"), "{path}");
    }
    let post = daemon.ask("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(post.status, 405);
    assert!(post.has("allow: GET, HEAD, OPTIONS"));
}

/// Over a hot restart too. With `--private` it shows what happened, but not to whom.
#[test]
fn history_marks_what_operators_did() {
    let operated = Operated::start_with(&["--http", "127.0.0.1:0", "--private"]);
    let path = operated.path();
    let daemon = WithHttp::of(operated.server);
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME enwiki:pcache:idhash:2-0!canonical:revid:7 1 1 1", "LOCKED");
    // Otherwise the drain would be over.
    let mut other = daemon.server.connect();
    other.settle();
    for order in [
        "LOG warn",
        "RULE SET slow enwiki:* max-hold=2m",
        "RULE OFF nobody",
        "FREE --dry-run KEY enwiki:pcache:idhash:2-0!canonical:revid:7",
        "FREE KEY enwiki:pcache:idhash:2-0!canonical:revid:7",
        "DRAIN",
        "DRAIN",
        "UNDRAIN",
        "RESTART",
    ] {
        Operator::connect(&path).ask(order);
    }
    let marks = |answer: &str| -> Vec<(String, String)> {
        let history: serde_json::Value = serde_json::from_str(answer).expect("JSON");
        let marks = history["marks"].as_array().expect("marks").iter();
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
        marks.map(|mark| (text(&mark["what"]), text(&mark["detail"]))).collect()
    };
    let hidden = marks(&daemon.get("/history.json").body);
    let what: Vec<&str> = hidden.iter().map(|(what, _)| what.as_str()).collect();
    let expected = ["start", "log", "rule", "free", "drain", "undrain", "hot restart"];
    assert_eq!(what, expected);
    assert!(hidden.iter().all(|(_, detail)| detail == "hidden"), "{hidden:?}");
    let shown = marks(&Operator::connect(&path).ask("STATS JSON HISTORY"));
    let detail = |what: &str| {
        let mark = shown.iter().find(|mark| mark.0 == what);
        mark.map(|(_, detail)| detail.as_str()).expect("the mark")
    };
    assert_eq!(detail("rule"), "slow enwiki:* max-hold=2m");
    assert_eq!(
        detail("free"),
        "closed 1 connection: holds: 1, waits: 0: KEY enwiki:pcache:idhash:2-0!canonical:revid:7"
    );
}

/// haproxy checks servers so: `option httpchk`, alone and with a method and a path.
#[test]
fn options_are_answered_as_head() {
    let daemon = WithHttp::start(&[]);
    for (target, status) in
        [("/", 200), ("*", 200), ("/-/ready", 200), ("/stats.json", 200), ("/nowhere", 404)]
    {
        for version in ["HTTP/1.0\r\n\r\n", "HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let answer = daemon.ask(&format!("OPTIONS {target} {version}"));
            assert_eq!((answer.status, answer.body.as_str()), (status, ""), "{target}");
            assert!(answer.has("content-length: 0") && answer.has("connection: close"), "{target}");
        }
    }
}

/// The port of `--http 127.0.0.1:0` survives reloads; other addresses are opened and
/// closed, as those for clients are.
#[test]
fn a_reload_changes_its_addresses() {
    let daemon = Operated::start();
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 9 0", "LOCKED");
    let reload = |more: &[&str]| {
        let ended = daemon.reload(&[&["-l", "127.0.0.1", "-p", &daemon.port()], more].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    };
    reload(&["--http", "127.0.0.1:0", "--http", "127.0.0.2:0"]);
    let line = daemon.server.log.wait_for("HTTP on ");
    let (_, addresses) = line.rsplit_once("HTTP on ").expect("addresses");
    let addresses: Vec<SocketAddr> =
        addresses.split(", ").map(|address| address.parse().expect("an address")).collect();
    let is_served = |address: SocketAddr| {
        TcpStream::connect(address).is_ok_and(|mut stream| {
            let _ = stream.write_all(b"GET /-/ready HTTP/1.1\r\n\r\n");
            Answer::read(stream).status == 200
        })
    };
    assert_eq!(addresses.len(), 2);
    assert!(addresses.iter().all(|&address| is_served(address)));
    reload(&["--http", "127.0.0.1:0"]);
    assert!(is_served(addresses[0]));
    assert!(eventually(|| TcpStream::connect(addresses[1]).is_err()));
    reload(&[]);
    assert!(eventually(|| TcpStream::connect(addresses[0]).is_err()));
    client.exchange("RELEASE", "RELEASED");
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let daemon = WithHttp::start(&[]);
    let http = daemon.http.to_string();
    let mut second = daemon_command(&["-l", "127.0.0.1", "-p", "0", "--http", &http]);
    let ended = finish(&mut second);
    assert_eq!(ended.code, Some(NO_ADDRESS));
    assert!(
        ended.stderr.contains(&format!("Couldn't bind to {http} for HTTP")),
        "{}",
        ended.stderr
    );
    let overlapping = ["-l", "0.0.0.0", "-p", "7531", "--http", "127.0.0.1:7531"];
    let ended = finish(&mut daemon_command(&overlapping));
    assert!(ended.stderr.contains("clients have that address"), "{}", ended.stderr);
}

#[test]
fn hot_keys_are_exported_only_on_request() {
    let daemon = WithHttp::start(&["--http-keys", "2"]);
    let mut client = daemon.server.connect();
    for key in ["a", "b\"\\", "b\"\\", "c", "c", "c"] {
        client.exchange(&format!("ACQ4ME {key} 1 9 0"), "LOCKED");
        client.exchange("RELEASE", "RELEASED");
    }
    let metrics = daemon.get("/metrics");
    assert_eq!(metrics.sample("poolcounter_hot_key_requests{key=\"c\"}"), 3.0);
    assert_eq!(metrics.sample("poolcounter_hot_key_requests{key=\"b\\\"\\\\x5c\"}"), 2.0);
    assert_eq!(metrics.body.matches("poolcounter_hot_key_requests{").count(), 2);
    assert!(!WithHttp::start(&[]).get("/metrics").body.contains("hot_key"));
}
