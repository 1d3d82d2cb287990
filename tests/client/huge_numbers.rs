//! Servers whose numbers are as large as they can be: through every subcommand that reads one.

use crate::command::{ask, scripted};
use crate::support::operated::Operated;
use crate::support::{Client, Finished};
use crate::top::top;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};

/// Members of reports that have no room for more than 32 bits.
const SMALL: [&str; 3] = ["client", "turns", "max_hold_s"];

/// Replaces each number by the largest that has room there, and each time by `time`.
fn enlarge(value: &mut Value, name: &str, time: f64) {
    match value {
        Value::Number(number) if number.is_f64() => *value = time.into(),
        Value::Number(_) if SMALL.contains(&name) => *value = u32::MAX.into(),
        Value::Number(_) => *value = u64::MAX.into(),
        Value::Array(values) => values.iter_mut().for_each(|value| enlarge(value, name, time)),
        Value::Object(members) => {
            members.iter_mut().for_each(|(name, value)| enlarge(value, name, time));
        }
        _ => {}
    }
}

fn enlarged(line: &str, time: f64) -> String {
    let Ok(mut json) = serde_json::from_str(line) else { return line.to_owned() };
    enlarge(&mut json, "", time);
    json.to_string()
}

/// Answers as this daemon, with huge numbers.
fn huge(daemon: SocketAddr, time: f64) -> String {
    scripted(move |question| {
        if question == "STATS FULL" {
            return full();
        }
        let answer = enlarged(&Client::connect(daemon).ask(question), time);
        if answer.starts_with('{') { answer + "\n\n" } else { answer + "\n" }
    })
}

fn full() -> String {
    let n = u64::MAX;
    format!(
        "uptime: {n} days, {n}h {n}m {n}s\ntotal processing time: {n} days {n}h {n}m {n}.5s\n\
         processed_count: {n}\nprocessing_workers: {n}\nwaiting_workers: {n}\nfull_queues: {n}\n\n"
    )
}

/// The same over this control socket, at the path that is returned.
fn huge_control(daemon: &Operated, time: f64) -> String {
    let (path, control) = (daemon.place.path("huge"), daemon.path());
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut order = String::new();
            BufReader::new(&stream).read_line(&mut order).expect("an order");
            let mut daemon = UnixStream::connect(&control).expect("the daemon");
            daemon.write_all(order.as_bytes()).expect("send");
            daemon.shutdown(std::net::Shutdown::Write).expect("shut");
            let mut answer = String::new();
            daemon.read_to_string(&mut answer).expect("an answer");
            let lines = answer.lines().map(|line| enlarged(line, time) + "\n");
            let _ = (&stream).write_all(lines.collect::<String>().as_bytes());
        }
    });
    path.display().to_string()
}

/// A daemon that has rows in all lists.
struct Busy {
    daemon: Operated,
    _clients: Vec<Client>,
}

/// What lists show of two keys, before the mark.
fn cut_key() -> String {
    format!("long:{}", "x".repeat(123))
}

impl Busy {
    fn start() -> Busy {
        let rules = "few k* workers=1 max-hold=9m timeout=9m\n";
        let daemon = Operated::start_with_rules(rules, &["--slow", "0"]);
        let server = &daemon.server;
        let mut clients: Vec<Client> = (0..5).map(|_| server.connect()).collect();
        clients[0].exchange("ACQ4ME k 1 1 0", "LOCKED");
        clients[1].exchange("ACQ4ME done 1 1 0", "LOCKED");
        clients[1].exchange("RELEASE", "RELEASED");
        clients[2].send("ACQ4ME k 1 9 600");
        clients[2].settle();
        for (n, client) in clients.iter_mut().enumerate().skip(3) {
            client.exchange(&format!("ACQ4ANY {}{n} 1 1 0", cut_key()), "LOCKED");
        }
        Busy { daemon, _clients: clients }
    }
}

#[track_caller]
fn ends_well(output: &Finished, code: i32, words: &[&str]) {
    assert_eq!(output.code, Some(code), "{words:?}: {}", output.stderr);
    assert!(!output.stderr.contains("panicked"), "{words:?}: {}", output.stderr);
}

/// Which subcommands read numbers of servers, and their statuses then.
const REPORTS: [(&str, i32); 17] = [
    ("stats", 0),
    ("stats --json", 0),
    ("keys", 0),
    ("keys --json", 0),
    ("keys *", 0),
    ("keys nosuch", 0),
    ("keys --json *", 0),
    ("key k", 0),
    ("key --json k", 0),
    ("key CUT", 0),
    ("key --json CUT", 0),
    ("clients", 0),
    ("slow", 0),
    ("top", 0),
    // A WARNING of rules that orders have set.
    ("check", 1),
    ("check --waiting 1,2 --oldest-hold 1,2 --full-queues 1,2 --for 1ms", 2),
    ("run -v -t 0 k -- true", 1),
];

const ORDERS: [(&str, i32); 8] = [
    ("rules", 0),
    ("rules --json", 0),
    ("free --dry-run --key k", 0),
    ("free --dry-run --key k --json", 0),
    ("rule set few k* workers=1 --json", 0),
    ("control STATS JSON", 0),
    ("undrain", 0),
    ("drain", 0),
];

#[test]
fn numbers_of_a_server_may_be_as_large_as_they_can_be() {
    let help = ask("", &["--help"]).stdout;
    let (_, listed) = help.split_once("Commands:\n").expect("subcommands");
    let (listed, _) = listed.split_once("\n\n").expect("their end");
    let tried = |name: &&str| {
        let mut all = REPORTS.iter().chain(&ORDERS);
        // `which` asks no server.
        ["which", "help"].contains(name)
            || all.any(|(line, _)| line.split(' ').next() == Some(name))
    };
    let names = listed.lines().filter(|line| !line.starts_with("    "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    assert_eq!(names.filter(|name| !tried(name)).collect::<Vec<_>>(), [""; 0]);
    for time in [f64::MAX, f64::MIN] {
        let busy = Busy::start();
        let servers = huge(busy.daemon.server.address(), time);
        let two = format!("{servers},{}", huge(busy.daemon.server.address(), time));
        let cut = cut_key() + "\\...";
        for (line, code) in REPORTS {
            let words = line.split(' ').map(|word| if word == "CUT" { &cut } else { word });
            let words: Vec<&str> = words.collect();
            for servers in [&servers, &two] {
                ends_well(&ask(servers, &words), code, &words);
            }
        }
        let control = huge_control(&busy.daemon, time);
        for (line, code) in ORDERS {
            let mut words: Vec<&str> = line.split(' ').collect();
            words.extend(["--control-socket", &control]);
            ends_well(&ask("", &words), code, &words);
        }
    }
    let old = || scripted(|q| if q == "STATS FULL" { full() } else { "ERROR WRONG_STAT\n".into() });
    for words in [&["stats"][..], &["stats", "--json"], &["top"], &["check", "--waiting", "1,2"]] {
        let code = if words[0] == "check" { 2 } else { 0 };
        ends_well(&ask(&format!("{},{}", old(), old()), words), code, words);
    }
}

/// All its lists, of one server and of two, and a key that was cut.
#[test]
fn top_shows_numbers_as_large_as_they_can_be() {
    let busy = Busy::start();
    let [one, other] = [(); 2].map(|()| huge(busy.daemon.server.address(), f64::MAX));
    let Some(terminal) = top(&format!("{one},{other}"), "[k keys now") else { return };
    for is_alone in [false, true] {
        if is_alone {
            terminal.press(&["n"]);
            terminal.shows(|screen| screen.contains(&one) && !screen.contains(&other));
        }
        // With the number of rows, or a row: only an answer has it.
        for (key, shown) in [
            ("g", " few"),
            ("h", "hot keys: "),
            ("o", "holders: "),
            ("c", "clients: "),
            ("s", "slow: "),
        ] {
            terminal.press(&[key]);
            terminal.shows(|screen| screen.contains(shown));
        }
    }
    terminal.press(&["k", "/", "l", "o", "n", "g", "Enter"]);
    terminal.shows(|screen| screen.contains("keys now") && screen.contains("long:xxx"));
    terminal.press(&["Enter"]);
    terminal.shows(|screen| screen.contains("18446744073709551615 keys begin with long:xxx"));
    terminal.press(&["q"]);
    terminal.shows(|screen| screen.contains("left with 0"));
}
