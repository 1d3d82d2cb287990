//! The command's binary, and servers for it to ask.

use super::{DAEMON, Finished, Server, eventually, finish, launched, queued};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A time that is longer than any clock goes on.
pub(crate) const FOR_EVER: &str = "99999999999999999999";

/// The binary next to the daemon's. Cargo builds it only for tests of its own package, so
/// this builds such a test, as `make test` does, which leaves nothing to compile.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let folder = Path::new(DAEMON).parent().expect("a folder");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--quiet", "--locked", "--no-run", "--test", "documents"]);
        cargo.args(["--workspace", "--target-dir"]);
        cargo.arg(folder.parent().expect("the target directory"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(status.expect("run cargo").success(), "poolcounter is not built");
        folder.join("poolcounter")
    })
}

/// The command with these arguments, asking `servers`.
pub(crate) fn poolcounter(servers: &str, arguments: &[&str]) -> Command {
    let mut command = launched(&[], binary(), arguments);
    command.env("POOLCOUNTER_SERVERS", servers).env_remove("NO_COLOR");
    command
}

/// The result of the command, asking `servers`.
pub(crate) fn ask(servers: &str, arguments: &[&str]) -> Finished {
    finish(&mut poolcounter(servers, arguments))
}

/// The result of a line of shell, with the command as `$0`, which asks `servers`.
pub(crate) fn shell(servers: &str, line: &str) -> Finished {
    let mut command = launched(&["sh", "-c", line], binary(), &[]);
    finish(command.env("POOLCOUNTER_SERVERS", servers).env_remove("NO_COLOR"))
}

/// Reads the next line of standard error, and nothing after it.
pub(crate) fn stderr_line(child: &mut Child) -> String {
    let bytes = BufReader::with_capacity(1, child.stderr.as_mut().expect("a pipe")).bytes();
    let bytes = bytes.map_while(Result::ok);
    String::from_utf8(bytes.take_while(|&byte| byte != b'\n').collect()).expect("text")
}

/// A key that the first of two servers guards.
pub(crate) fn key_of(servers: [&Server; 2]) -> String {
    key_of_first(&servers.map(|server| server.address().to_string()))
}

/// A key that the first of these servers guards.
pub(crate) fn key_of_first(names: &[String]) -> String {
    let list = names.join(",");
    let mut keys = (0..).map(|number| format!("key {number}"));
    keys.find(|key| first_server(&list, key) == names[0]).expect("one of them")
}

/// Which of these servers guards the key.
pub(crate) fn first_server(list: &str, key: &str) -> String {
    ask(list, &["which", key]).stdout.lines().next().expect("a server").to_owned()
}

/// A listener whose backlog stays full as long as both are kept.
pub(crate) fn full() -> (TcpListener, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    rustix::net::listen(&listener, 0).expect("a backlog");
    let address = listener.local_addr().expect("an address");
    // The kernel queues one more than the backlog, and then drops connections.
    let first = TcpStream::connect(address).expect("the only one that fits");
    assert!(eventually(|| queued(address) == 1));
    (listener, first)
}

/// `poolcounter run` with these arguments.
pub(crate) fn run(server: &Server, arguments: &[&str]) -> Finished {
    let all = [&["run"], arguments].concat();
    finish(&mut poolcounter(&server.address().to_string(), &all))
}

/// Starts `poolcounter run` in the background, with pipes.
pub(crate) fn start(server: &Server, arguments: &[&str]) -> Child {
    let all = [&["run"], arguments].concat();
    let mut command = poolcounter(&server.address().to_string(), &all);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("start it")
}

/// Waits until a `poolcounter run` writes to standard error, or tries to: it starts a
/// thread for that.
#[track_caller]
pub(crate) fn until_it_reports(run: &Child) {
    let threads = format!("/proc/{}/task", run.id());
    let count = || std::fs::read_dir(&threads).map_or(0, Iterator::count);
    assert!(eventually(|| count() > 1), "it reports nothing");
}

/// Our daemon, and Debian's if it was fetched.
pub(crate) fn servers() -> Vec<Server> {
    [Some(Server::start()), Server::reference()].into_iter().flatten().collect()
}

/// A server that answers each question by `answer`, until the test ends.
pub(crate) fn scripted(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> String {
    scripted_by_connection(move |question, _| answer(question))
}

/// As [`scripted`], but `answer` gets the connection too.
pub(crate) fn scripted_by_connection(
    answer: impl Fn(&str, &TcpStream) -> String + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = std::sync::Arc::clone(&answer);
            std::thread::spawn(move || {
                let questions = BufReader::new(stream.try_clone().expect("a descriptor"));
                for question in questions.lines().map_while(Result::ok) {
                    let answer = answer(&question, &stream);
                    let _ = stream.write_all(answer.as_bytes());
                }
            });
        }
    });
    address
}

/// As [`lists`], of a server with rules, which orders have set.
pub(crate) fn lists_with_rules(question: &str) -> String {
    match question {
        "STATS JSON" => {
            let mut report = everything();
            let with_rules = serde_json::json!({
                "rules": {
                    "in_force": 2, "by_orders": 2, "orders_since": "2026-11-21T18:03:07.250Z",
                    "endless": 1, "endless_since": "2026-11-21T18:04:00.000Z",
                },
                "groups": [
                    {
                        "group": "other", "requests": 9, "acquired": 4, "queue_full": 2, "denied": 3,
                        "timeouts": 0, "holders": 1, "waiters": 1, "oldest_hold_s": 1.0, "stuck_keys": 0,
                    },
                ],
                "keys": [
                    {
                        "key": "bot:1", "group": "other", "holders": 1, "for_me": 1, "for_anyone": 0,
                        "oldest_hold_s": 1.0, "limited_by": ["search", "bots"], "denied_by": "bots",
                    },
                ],
                "oldest_holds": [
                    {
                        "key": "bot:1", "held_s": 1.0, "kind": "me", "waiters": 1, "client": 7,
                        "address": "10.0.0.9:4711", "limited_by": ["bots"], "denied_by": "bots",
                    },
                ],
            });
            let members = with_rules.as_object().expect("an object").clone();
            report.as_object_mut().expect("an object").extend(members);
            format!("{report}\n\n")
        }
        _ => lists(question),
    }
}

/// Answers like a daemon with three keys, of which one looks like a number.
pub(crate) fn lists(question: &str) -> String {
    let json = match question {
        "STATS FULL" => {
            return "uptime: 0 days, 0h 3m 10s\naverage processing time: 0.5s\n\
                total_acquired: 667967\ntotal_releases: 630783\nhashtable_entries: 2\n\
                processing_workers: 3\nwaiting_workers: 7\nfull_queues: 4\nconnect_errors: 0\n\n"
                .to_owned();
        }
        "STATS JSON" => everything(),
        _ if question.starts_with("STATS JSON KEYS ") => listed_keys(),
        _ if question.starts_with("STATS JSON CLIENTS ") => serde_json::json!({
            "addresses": 1, "connections": 9, "turns": 1, "took_s": 0.0,
            "clients": [{ "address": "10.0.0.9", "connections": 9, "holds": 3, "waits": 7 }],
        }),
        _ => return "ERROR WRONG_STAT\n".to_owned(),
    };
    format!("{json}\n\n")
}

fn listed_keys() -> serde_json::Value {
    let key = |key: &str, for_me: u32, oldest_hold_s: f64, oldest_wait_s: Option<f64>| {
        serde_json::json!({
            "key": key, "group": "other", "holders": 1, "for_me": for_me, "for_anyone": 0,
            "oldest_hold_s": oldest_hold_s, "oldest_wait_s": oldest_wait_s, "limited_by": [],
            "denied_by": null,
        })
    };
    serde_json::json!({
        "keys_total": 3, "turns": 1, "took_s": 0.0,
        "keys": [
            key("article:busy", 5, 0.232, Some(0.1)),
            key("article:stuck", 2, 12.5, Some(3.0)),
            key("7", 0, 0.001, None),
        ],
    })
}

fn everything() -> serde_json::Value {
    serde_json::json!({
        "uptime_s": 190.5, "oldest_hold_s": 12.5,
        "oldest_holds": [{
            "key": "article:stuck", "held_s": 12.5, "kind": "me", "waiters": 2, "client": 7,
            "address": "10.0.0.9:4711", "limited_by": [], "denied_by": null,
        }],
        "counters": {
            "waiting_workers": 7, "full_queues": 4, "processing_workers": 3, "hashtable_entries": 2,
        },
        "times_s": { "processing": 1.5 },
    })
}
