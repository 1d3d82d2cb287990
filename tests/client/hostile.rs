//! Servers that misbehave, keys with terminal escapes, and unusual environments.

use crate::command::{FOR_EVER, ask, binary, poolcounter, run, shell, stderr_line};
use crate::running::first_line;
use crate::support::operated::Operated;
use crate::support::stopwatch::pause;
use crate::support::{Finished, Server, eventually, finish, launched, skip, wait_for_exit};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// A server that calls `talk` for each connection after reading a line, until the test
/// ends.
fn server(talk: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let talk = talk.clone();
            thread::spawn(move || {
                let mut question = String::new();
                let mut questions = BufReader::new(stream.try_clone().expect("a descriptor"));
                if questions.read_line(&mut question).is_ok() {
                    talk(stream);
                }
            });
        }
    });
    address
}

/// A server that answers every line with these bytes and leaves the connection open.
fn answering(bytes: impl Into<Vec<u8>>) -> String {
    let bytes = bytes.into();
    server(move |mut stream| {
        let questions = BufReader::new(stream.try_clone().expect("a descriptor"));
        let _ = stream.write_all(&bytes);
        for _ in questions.lines().map_while(Result::ok) {
            let _ = stream.write_all(&bytes);
        }
    })
}

/// A server that sends a byte every tenth of a second, and never a complete line.
fn dripping() -> String {
    server(|mut stream| {
        while stream.write_all(b"L").is_ok() {
            pause(Duration::from_millis(100));
        }
    })
}

#[track_caller]
fn is_harmless(output: &Finished) {
    let text = format!("{}{}", output.stdout, output.stderr);
    assert!(!text.contains(['\x1b', '\u{9b}', '\u{202e}']), "{text:?}");
    assert!(text.len() < 10_000, "{} bytes", text.len());
}

#[test]
fn an_invalid_answer_runs_nothing() {
    for junk in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        b"LOCKED\nLOCKED\n".to_vec(),
        b"locked\n".to_vec(),
        b"\x1b[31m\xc2\x9b\n".to_vec(),
        b"\n".to_vec(),
        b"\0\xff\xfe\n".to_vec(),
        b"ERROR BAD_SYNTAX\n".to_vec(),
        // Nobody did this work: the request is ACQ4ME.
        b"DONE\n".to_vec(),
        vec![b'x'; 4 << 20],
    ] {
        let output = ask(&answering(junk.clone()), &["run", "k", "--", "echo", "ran"]);
        let begin = junk[..junk.len().min(30)].escape_ascii();
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(76), ""),
            "{begin}: {}",
            output.stderr
        );
        is_harmless(&output);
    }
    let output = ask(&server(drop), &["run", "k", "--", "echo", "ran"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(75), ""), "{}", output.stderr);
}

#[test]
fn an_endless_answer_is_not_waited_for() {
    binary();
    let orders: [&[&str]; 4] =
        [&["run", "-t", "0", "k", "--", "echo", "ran"], &["stats"], &["keys"], &["check"]];
    let asked = orders.map(|order| {
        [dripping(), answering("")].map(|server| thread::spawn(move || ask(&server, order)))
    });
    for (order, finished) in orders.iter().zip(asked) {
        for output in finished.map(|thread| thread.join().expect("it ends")) {
            let is_check = order[0] == "check";
            assert_eq!(output.code, Some(if is_check { 2 } else { 75 }), "{order:?}");
            assert!(!output.stdout.contains("ran"), "{order:?}");
            let text = output.stdout + &output.stderr;
            assert!(text.contains("no answer"), "{order:?}: {text}");
        }
    }
}

#[test]
fn a_lock_that_is_lost_as_soon_as_the_command_runs_is_reported() {
    for (on_lost, said, code) in [
        ("warn", "the lock; the command continues", 4),
        ("kill", "the lock; stopping the command", 74),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let words = ["--on-lost", on_lost, "k", "--", "sh", "-c", "echo runs; read line; exit 4"];
        let mut run = poolcounter(&address, &[&["run"], &words[..]].concat());
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = run.spawn().expect("start it");
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.write_all(b"LOCKED\n").expect("room");
        assert_eq!(first_line(&mut run), "runs");
        drop(stream);
        let line = stderr_line(&mut run);
        assert!(line.contains(said), "{line}");
        drop(run.stdin.take());
        assert_eq!(wait_for_exit(&mut run).code(), Some(code));
    }
}

#[test]
fn server_text_does_not_control_the_terminal() {
    let name = "\x1b[2J\u{9b}31m\u{202e}k\nkeys: 7 of 7";
    let row = serde_json::json!({
        "key": name, "address": name, "kind": name, "what": "holder", "limited_by": [name],
        "oldest_hold_s": 1e300, "holders": u64::MAX,
    });
    let rows = serde_json::json!([row]);
    let table = serde_json::json!({
        "keys_total": 1, "keys": rows, "clients": rows, "slow": rows, "locks": rows, "key": name,
        "limits": [{ "rule": name, "settings": [name] }], "uptime_s": -1.0, "groups": [{ "group": name }],
        "addresses": 1, "slow_total": 1, "holders": 1, "counters": {},
    });
    let hostile = answering(format!("{table}\n\n"));
    for order in [&["keys"][..], &["stats"], &["key", "k"], &["clients"], &["slow"], &["top"]] {
        let output = ask(&hostile, order);
        is_harmless(&output);
        assert!(!output.stdout.contains("\nkeys: 7"), "{}", output.stdout);
    }
    let output = ask(&hostile, &["keys", "--json"]);
    is_harmless(&output);
    let json: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(json["keys"][0]["key"], name);
    let odd = serde_json::json!({ "keys_total": 1, "keys": [{ "key": name, "holders": -1e300 }] });
    let output = ask(&answering(format!("{odd}\n\n")), &["keys"]);
    is_harmless(&output);
    assert_eq!((output.code, output.stdout.as_str()), (Some(76), ""), "{}", output.stderr);
    is_harmless(&ask(&answering("ERROR \x1b[2J\n"), &["stats"]));
    let junk = ask(&answering("\x1b[2J | waiting=0\n\n"), &["check"]);
    assert_eq!(junk.code, Some(2), "{}", junk.stdout);
    is_harmless(&junk);
    let wide = serde_json::json!({
        "uptime_s": 1, "counters": {}, "keys_total": 1, "keys": [{ "key": "x".repeat(1 << 20) }],
    });
    let output = ask(&answering(format!("{wide}\n\n")), &["top"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}

#[test]
fn odd_keys_are_locked_or_refused() {
    let server = Server::start();
    let nested = binary().to_str().expect("text");
    for key in ["a b", "\t", "Zürich\u{202e}\x1b[31m", "\\x41"] {
        let again = ["--", nested, "run", "-t", "0", "-E", "9", key, "--", "true"];
        let output = run(&server, &[&[key][..], &again].concat());
        assert_eq!(output.code, Some(9), "{key:?}: {}", output.stderr);
        is_harmless(&output);
    }
    for (key, why) in
        [("a\nRELEASE", "the key has a line end"), (&"x".repeat(60_000), "the key is too long")]
    {
        let output = run(&server, &[key, "--", "true"]);
        assert_eq!(output.code, Some(64), "{key:?}");
        assert!(
            output.stderr.contains(&format!("{why}; \"true\" was not run")),
            "{}",
            output.stderr
        );
        is_harmless(&output);
    }
    for key in ["DOM\\user", "a\\", "a b"] {
        let output = run(&server, &[key, "--", nested, "key", key]);
        assert!(
            output.stdout.contains("holders: 1"),
            "{key:?}: {}{}",
            output.stdout,
            output.stderr
        );
    }
    let address = server.address().to_string();
    let output = shell(&address, r#"k=$(printf 'k\377'); "$0" run "$k" -- "$0" key "$k""#);
    assert!(output.stdout.contains(r"k\xff"), "{}{}", output.stdout, output.stderr);
    // Not UTF-8.
    let line = r#""$0" run k$(printf '\377') -- "$0" run -t 0 k$(printf '\376') -- echo ran"#;
    assert_eq!(shell(&address, line).stdout, "ran\n");
    assert!(eventually(|| server.counter("processing_workers") == 0));
}

#[test]
fn a_key_that_begins_with_a_hyphen_follows_two_hyphens() {
    let server = Server::start();
    let nested = binary().to_str().expect("text");
    for key in ["-x", "--any", "-"] {
        let output = run(&server, &["--", key, "--", nested, "key", "--", key]);
        assert_eq!(output.code, Some(0), "{key}: {}", output.stderr);
        assert!(
            output.stdout.starts_with(&format!("key: {key}\nholders: 1\n")),
            "{}",
            output.stdout
        );
    }
    let output = run(&server, &["--", "-x", "--", "printf", "%s,", "a", "--", "-b"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "a,--,-b,"), "{}", output.stderr);
    for words in [&["--", "true"][..], &["--", "k", "--"], &["--", "k", "true"]] {
        let output = run(&server, words);
        assert_eq!(output.code, Some(64), "{words:?}");
        assert!(output.stderr.contains("no KEY"), "{words:?}: {}", output.stderr);
    }
    // An empty key must not be replaced by the command's first word.
    assert_eq!(run(&server, &["", "--", "env", "--", "true"]).code, Some(64));
}

#[test]
fn a_command_without_the_hyphens_before_it_gets_a_hint() {
    let server = Server::start();
    for words in [&["k", "true"][..], &["-t", "5", "k", "ls", "-l"]] {
        let output = run(&server, words);
        assert_eq!(output.code, Some(64), "{words:?}");
        assert!(output.stderr.contains("put -- before the command"), "{}", output.stderr);
    }
    let output = run(&server, &["--anny", "k", "true"]);
    assert!(output.stderr.contains("'--any'"), "{}", output.stderr);
}

#[test]
fn limits_may_be_huge_and_not_negative() {
    for server in crate::command::servers() {
        for limits in [["-n", "4294967295"], ["-q", "4294967295"], ["-t", FOR_EVER]] {
            let output = run(&server, &[&limits[..], &["k", "--", "true"]].concat());
            assert_eq!(output.code, Some(0), "{limits:?}: {}", output.stderr);
        }
        for limits in
            [["-n", "-1"], ["-n", "0"], ["-t", "-1"], ["-t", "nan"], ["-t", ""], ["-E", "256"]]
        {
            let output = run(&server, &[&limits[..], &["k", "--", "true"]].concat());
            assert_eq!(output.code, Some(64), "{limits:?}: {}", output.stderr);
        }
    }
}

#[test]
fn options_that_mean_nothing_together_are_refused() {
    let server = Server::start();
    for (options, why) in [
        (&["-k", "5"][..], "only with --on-lost kill"),
        (&["-k", "10", "--on-lost", "warn"], "only with --on-lost kill"),
        (&["--any", "-t", "0"], "which --timeout 0 does not"),
        (&["-n", "5", "-q", "2"], "--queue 2 counts those that hold the key too"),
        (&["--quiet", "--verbose"], "cannot be used with"),
    ] {
        let output = run(&server, &[options, &["k", "--", "true"]].concat());
        assert_eq!(output.code, Some(64), "{options:?}");
        assert!(output.stderr.contains(why), "{options:?}: {}", output.stderr);
    }
    for options in [&["-k", "5", "--on-lost", "kill"][..], &["-n", "5", "-q", "5"]] {
        let output = run(&server, &[options, &["k", "--", "true"]].concat());
        assert_eq!(output.code, Some(0), "{options:?}: {}", output.stderr);
    }
}

/// Every option that takes a time, and which of the odd ones it refuses: zero, and what is too long.
const TIMES: [(&str, &[&str]); 8] = [
    ("run -t TIME k -- true", &[]),
    ("run -k TIME --on-lost kill k -- true", &[]),
    ("drain --wait TIME --control-socket /nowhere", &[]),
    ("run --connect-timeout TIME k -- true", &["0", FOR_EVER]),
    ("top --interval TIME", &["0", FOR_EVER]),
    // Nobody answers there, so it does not count for so long.
    ("-s 127.0.0.1:1 check --full-queues 1,9 --for TIME", &["0", FOR_EVER]),
    ("drain --wait --timeout TIME --control-socket /nowhere", &["0", FOR_EVER]),
    ("rule set a --for TIME k* deny --control-socket /nowhere", &["0", FOR_EVER]),
];

#[test]
fn times_have_one_form_everywhere() {
    let server = Server::start();
    let address = server.address().to_string();
    let accepted = ["90", "0.5", "0.0000001", "250ms", "10m", "10min", "1h30m", "1d25h", "7d"];
    let no_times = "1e300 1e-300 inf nan -1 -1m 5x 5e9s 1h1h 30m1h 1h30 .5 5M".split(' ');
    let no_times: Vec<&str> = no_times.chain(["", " ", " 5", "5 ", "1h 30m"]).collect();
    for (line, also_refused) in TIMES {
        let odd = ["0", FOR_EVER].into_iter().map(|time| (time, also_refused.contains(&time)));
        let times = odd.chain(accepted.map(|time| (time, false)));
        for (time, is_refused) in times.chain(no_times.iter().map(|&time| (time, true))) {
            let words = line.split(' ').map(|word| if word == "TIME" { time } else { word });
            let output = ask(&address, &words.collect::<Vec<_>>());
            let shown = format!("{line}: {time:?}: {:?} {}", output.code, output.stderr);
            // A plugin has another status for wrong usage.
            let refusals = [3, 64].map(Some);
            assert!(refusals.contains(&output.code) == is_refused, "{shown}");
            assert!(is_refused || [0, 2, 75].map(Some).contains(&output.code), "{shown}");
        }
    }
}

#[test]
fn an_invalid_list_of_servers_is_not_localhost() {
    for list in ["", ",", " "] {
        let output = ask("127.0.0.1:1", &["-s", list, "run", "k", "--", "true"]);
        assert_eq!(output.code, Some(64), "{list:?}: {}", output.stderr);
    }
    let line = r#"export POOLCOUNTER_SERVERS=$(printf '/\377'); exec "$0" run k -- true"#;
    let output = shell("", line);
    assert_eq!(output.code, Some(64), "{}", output.stderr);
    let server = Server::start();
    let odd = format!(" ,{} ,, ", server.address());
    assert_eq!(ask(&odd, &["run", "k", "--", "true"]).code, Some(0));
    // Only `check` exits with a plugin's status, wherever the word is.
    assert_eq!(ask("", &["check", "--for", "0"]).code, Some(3));
    assert_eq!(ask("", &["check", "--for", "5"]).code, Some(3), "without --full-queues");
    assert_eq!(ask("a:b", &["check"]).code, Some(3));
    assert_eq!(ask("", &["run", "-n", "0", "check", "--", "true"]).code, Some(64));
}

/// Even that of a socket that would answer, beside a server that does.
#[test]
fn a_path_is_no_server() {
    let daemon = Operated::start();
    let (control, server) = (daemon.path(), daemon.server.address().to_string());
    let long = format!("/{}", "x".repeat(300));
    let paths = [control.as_str(), "./c", "c/", "~/c", "unix:c/d", "[/c]", "10.0.0.0/8", &long];
    let with_scheme = format!("unix://{control}");
    for path in paths.into_iter().chain([with_scheme.as_str()]) {
        let first = format!("{path},{server}");
        let last = format!("{server}, {path}");
        for (option, servers) in [
            (&["-s", path][..], ""),
            (&["-s", &server, "--server", path], ""),
            (&["-s", &first], ""),
            (&["-s", &last], ""),
            (&[], path),
            (&[], &first),
            (&[], &last),
        ] {
            let words = [option, &["run", "k", "--", "echo", "ran"]].concat();
            let output = ask(servers, &words);
            let said = (output.code, output.stdout.as_str());
            assert_eq!(said, (Some(64), ""), "{words:?} {servers:?}: {}", output.stderr);
            let expected = format!("a server is host, host:port or [v6]:port, not \"{path}\"");
            assert!(output.stderr.contains(&expected), "no {expected}: {}", output.stderr);
        }
    }
    for (words, code) in [
        (&["stats"][..], 64),
        (&["keys"], 64),
        (&["key", "k"], 64),
        (&["which", "k"], 64),
        (&["clients"], 64),
        (&["slow"], 64),
        (&["top"], 64),
        (&["check"], 3),
    ] {
        let output = ask(&control, words);
        assert_eq!(output.code, Some(code), "{words:?}: {}", output.stderr);
        let said = output.stdout + &output.stderr;
        assert!(said.contains("a server is host"), "{words:?}: {said}");
    }
}

#[test]
fn closed_streams_and_pipes_are_handled() {
    let server = Server::start();
    for (line, expected) in [
        (r#""$0" run k -- cat <&-; echo $?"#, "0\n"),
        (r#""$0" run k -- sh -c 'exit 5' >&- 2>&-; echo $?"#, "5\n"),
        (r#""$0" -s 127.0.0.1:1 run -t 0 k -- true <&- >&- 2>&-; echo $?"#, "75\n"),
        (r#"("$0" run k -- yes; echo $? >&2) 2>&1 >/dev/full | tail -n 1"#, "1\n"),
        // As docs/guide/scripts.md says: HUP (1) stays ignored, PIPE (0x1000) does not. Other
        // signals may be ignored already, as in a background job.
        (
            r#"trap '' HUP PIPE; "$0" run k -- awk '/SigIgn/ { print substr($2, 13) }' /proc/self/status |
                { read -r ignored; echo $((0x$ignored & 0x1001)); }"#,
            "1\n",
        ),
        // Without a reader `yes` ends, and so does the job. (head(1) may close its input before it
        // writes.)
        (
            r#"exec 3>&1; { "$0" run k -- yes; echo $? >&3; } | { read -r first; echo "$first"; }"#,
            "y\n141\n",
        ),
    ] {
        assert_eq!(shell(&server.address().to_string(), line).stdout, expected, "{line}");
    }
    assert!(eventually(|| server.counter("processing_workers") == 0));
}

#[test]
fn a_run_inside_a_run_has_locks_of_its_own() {
    let server = Server::start();
    let binary = binary().to_str().expect("text");
    let output = run(&server, &["outer", "--", binary, "run", "inner", "--", binary, "stats"]);
    assert!(
        output.stdout.contains("processing_workers: 2\n"),
        "{}{}",
        output.stdout,
        output.stderr
    );
    assert!(eventually(|| server.counter("processing_workers") == 0));
}

/// A port that the kernel chooses for the command's own side, where nobody listens.
#[test]
fn a_connection_to_itself_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return skip("network namespaces need root");
    }
    let line = "ip link set lo up && \
                echo 40000 40000 > /proc/sys/net/ipv4/ip_local_port_range && exec \"$@\"";
    let namespace = ["unshare", "--net", "sh", "-c", line, "sh"];
    for (words, code) in
        [(&["stats"][..], 75), (&["check"], 2), (&["run", "-t", "0", "k", "--", "echo", "ran"], 75)]
    {
        let mut command = launched(&namespace, binary(), words);
        let done = finish(command.env("POOLCOUNTER_SERVERS", "127.0.0.1:40000"));
        if done.stderr.contains("unshare:") {
            return skip("this container gives no network namespaces");
        }
        let said = done.stdout + &done.stderr;
        assert_eq!(done.code, Some(code), "{said}");
        // A second attempt finds the only port taken.
        let is_down = ["Connection refused", "Cannot assign requested address"];
        assert!(is_down.iter().any(|why| said.contains(why)), "{said}");
    }
}
