//! Servers that misbehave, keys that no terminal should obey, and odd surroundings.

use crate::command::{ask, binary, poolcounter, run, shell, told};
use crate::support::restart::Place;
use crate::support::{Finished, Server, eventually, wait_for_exit};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A server that treats each connection so, after it has read a line. Until the test
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

/// One that says this to whatever is asked, and leaves the connection open.
fn saying(bytes: impl Into<Vec<u8>>) -> String {
    let bytes = bytes.into();
    server(move |mut stream| {
        let questions = BufReader::new(stream.try_clone().expect("a descriptor"));
        let _ = stream.write_all(&bytes);
        for _ in questions.lines().map_while(Result::ok) {
            let _ = stream.write_all(&bytes);
        }
    })
}

/// One that says a byte every tenth of a second, and never a whole line.
fn dripping() -> String {
    server(|mut stream| {
        while stream.write_all(b"L").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    })
}

#[track_caller]
fn is_harmless(said: &Finished) {
    let text = format!("{}{}", said.stdout, said.stderr);
    assert!(!text.contains(['\x1b', '\u{9b}', '\u{202e}']), "{text:?}");
    assert!(text.len() < 10_000, "{} bytes", text.len());
}

#[test]
fn what_is_no_answer_runs_nothing() {
    for junk in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        b"LOCKED\nLOCKED\n".to_vec(),
        b"locked\n".to_vec(),
        b"\x1b[31m\xc2\x9b\n".to_vec(),
        b"\n".to_vec(),
        b"\0\xff\xfe\n".to_vec(),
        b"ERROR BAD_SYNTAX\n".to_vec(),
        vec![b'x'; 4 << 20],
    ] {
        let said = ask(&saying(junk.clone()), &["run", "k", "--", "echo", "ran"]);
        let begin = junk[..junk.len().min(30)].escape_ascii();
        assert_eq!((said.code, said.stdout.as_str()), (Some(76), ""), "{begin}: {}", said.stderr);
        is_harmless(&said);
    }
    let said = ask(&server(drop), &["run", "k", "--", "echo", "ran"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(75), ""), "{}", said.stderr);
}

/// One that closes the connection of a request after a while, and answers the next one
/// with what `later` says.
fn leaving(later: &'static str) -> String {
    let has_left = Arc::new(AtomicBool::new(false));
    server(move |mut stream| match has_left.swap(true, Ordering::SeqCst) {
        // Longer than the second by which an uptime is rounded down.
        false => thread::sleep(Duration::from_millis(1200)),
        true => {
            let _ = stream.write_all(later.as_bytes());
            thread::sleep(Duration::from_secs(30));
        }
    })
}

/// A socket unit accepts connections when the daemon has ended.
#[test]
fn a_server_that_closes_has_ended_unless_it_is_older() {
    binary();
    let later = [
        ("", true),
        ("uptime: 0 days, 0h 0m 0s\n\n", true),
        ("uptime: 0 days, 0h 3m 10s\n\n", false),
    ];
    let asked = later.map(|(later, is_run)| {
        let run = ["run", "--no-server", "run", "k", "--", "echo", "ran"];
        (later, is_run, thread::spawn(move || ask(&leaving(later), &run)))
    });
    for (later, is_run, asked) in asked {
        let said = asked.join().expect("it ends");
        let expected = if is_run { (Some(0), "ran\n") } else { (Some(75), "") };
        assert_eq!((said.code, said.stdout.as_str()), expected, "{later:?}: {}", said.stderr);
        assert_eq!(said.stderr.contains("may not admit us"), !is_run, "{}", said.stderr);
    }
}

#[test]
fn a_server_that_does_not_come_to_an_end_is_not_waited_for() {
    binary();
    let orders: [&[&str]; 4] =
        [&["run", "-t", "0", "k", "--", "echo", "ran"], &["stats"], &["keys"], &["check"]];
    let asked = orders.map(|order| {
        [dripping(), saying("")].map(|server| thread::spawn(move || ask(&server, order)))
    });
    for (order, finished) in orders.iter().zip(asked) {
        for said in finished.map(|thread| thread.join().expect("it ends")) {
            let is_check = order[0] == "check";
            assert_eq!(said.code, Some(if is_check { 2 } else { 75 }), "{order:?}");
            assert!(!said.stdout.contains("ran"), "{order:?}");
            let text = said.stdout + &said.stderr;
            assert!(text.contains("no answer"), "{order:?}: {text}");
        }
    }
}

#[test]
fn a_lock_lost_immediately_is_reported() {
    let fleeting = server(|mut stream| {
        let _ = stream.write_all(b"LOCKED\n");
    });
    let mut run = poolcounter(&fleeting, &["run", "k", "--", "sh", "-c", "read line; exit 4"]);
    let mut run = run.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start it");
    let said = told(&mut run);
    assert!(said.contains("the lock; the command goes on"), "{said}");
    drop(run.stdin.take());
    assert_eq!(wait_for_exit(&mut run).code(), Some(4));
    let said = ask(&fleeting, &["run", "--on-lost", "kill", "k", "--", "sleep", "60"]);
    assert_eq!(said.code, Some(74), "{}", said.stderr);
}

#[test]
fn server_text_does_not_control_the_terminal() {
    let table = "keys: 1 of 1\nholders oldest_hold key\n1 0.5s \x1b[2J\u{9b}31m\u{202e}k\n\n";
    let hostile = saying(table);
    for order in [&["keys"][..], &["stats"], &["key", "k"], &["clients"], &["slow"], &["top"]] {
        is_harmless(&ask(&hostile, order));
    }
    let said = ask(&hostile, &["keys", "--json"]);
    is_harmless(&said);
    let json: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(json["rows"][0]["key"], "\x1b[2J\u{9b}31m\u{202e}k");
    is_harmless(&ask(&saying("ERROR \x1b[2J\n"), &["stats"]));
    let junk = ask(&saying("\x1b[2J | waiting=0\n\n"), &["check"]);
    assert_eq!(junk.code, Some(2), "{}", junk.stdout);
    is_harmless(&junk);
    let wide = format!("a b c\n1 {} 3\n\n", "x".repeat(1 << 20));
    let said = ask(&saying(wide), &["top"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

#[test]
fn odd_keys_are_locked_or_refused() {
    let server = Server::start();
    let nested = binary().to_str().expect("text");
    for key in ["a b", "\t", "Zürich\u{202e}\x1b[31m", "\\x41"] {
        let again = ["--", nested, "run", "-t", "0", "-E", "9", key, "--", "true"];
        let said = run(&server, &[&[key][..], &again].concat());
        assert_eq!(said.code, Some(9), "{key:?}: {}", said.stderr);
        is_harmless(&said);
    }
    for (key, why) in [
        ("", "the key is empty"),
        ("a\nRELEASE", "the key has a line end"),
        (&"x".repeat(5000), "the key is too long"),
    ] {
        let said = run(&server, &[key, "--", "true"]);
        assert_eq!(said.code, Some(64), "{key:?}");
        assert!(said.stderr.contains(&format!("{why}; \"true\" was not run")), "{}", said.stderr);
        is_harmless(&said);
    }
    for key in ["DOM\\user", "a\\", "a b"] {
        let said = run(&server, &[key, "--", nested, "key", key]);
        assert!(said.stdout.contains("holders: 1"), "{key:?}: {}{}", said.stdout, said.stderr);
    }
    let address = server.address().to_string();
    let said = shell(&address, r#"k=$(printf 'k\377'); "$0" run "$k" -- "$0" key "$k""#);
    assert!(said.stdout.contains(r"k\xff"), "{}{}", said.stdout, said.stderr);
    // Not UTF-8.
    let line = r#""$0" run k$(printf '\377') -- "$0" run -t 0 k$(printf '\376') -- echo ran"#;
    assert_eq!(shell(&address, line).stdout, "ran\n");
    assert!(eventually(|| server.counter("processing_workers") == 0));
}

#[test]
fn a_key_that_begins_with_a_hyphen_stands_behind_two() {
    let server = Server::start();
    let nested = binary().to_str().expect("text");
    for key in ["-x", "--any", "-"] {
        let said = run(&server, &["--", key, "--", nested, "key", "--", key]);
        assert_eq!(said.code, Some(0), "{key}: {}", said.stderr);
        assert!(said.stdout.starts_with(&format!("key: {key}\nholders: 1\n")), "{}", said.stdout);
    }
    let said = run(&server, &["--", "-x", "--", "printf", "%s,", "a", "--", "-b"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "a,--,-b,"), "{}", said.stderr);
    for words in [&["--", "true"][..], &["--", "k", "--"], &["--", "k", "true"]] {
        let said = run(&server, words);
        assert_eq!(said.code, Some(64), "{words:?}");
        assert!(said.stderr.contains("no KEY"), "{words:?}: {}", said.stderr);
    }
    // An empty one is no reason to take the command's first word.
    assert_eq!(run(&server, &["", "--", "env", "--", "true"]).code, Some(64));
}

#[test]
fn a_command_without_the_hyphens_before_it_gets_a_hint() {
    let server = Server::start();
    for words in [&["k", "true"][..], &["-t", "5", "k", "ls", "-l"]] {
        let said = run(&server, words);
        assert_eq!(said.code, Some(64), "{words:?}");
        assert!(said.stderr.contains("put -- before the command"), "{}", said.stderr);
    }
    let said = run(&server, &["--anny", "k", "true"]);
    assert!(said.stderr.contains("'--any'"), "{}", said.stderr);
}

#[test]
fn limits_may_be_huge_and_not_negative() {
    for server in crate::command::servers() {
        for limits in [["-n", "4294967295"], ["-q", "4294967295"], ["-t", "1e30"], ["-t", "inf"]] {
            let said = run(&server, &[&limits[..], &["k", "--", "true"]].concat());
            assert_eq!(said.code, Some(0), "{limits:?}: {}", said.stderr);
        }
        for limits in
            [["-n", "-1"], ["-n", "0"], ["-t", "-1"], ["-t", "nan"], ["-t", ""], ["-E", "256"]]
        {
            let said = run(&server, &[&limits[..], &["k", "--", "true"]].concat());
            assert_eq!(said.code, Some(64), "{limits:?}: {}", said.stderr);
        }
    }
}

#[test]
fn a_list_of_servers_that_means_nothing_is_not_localhost() {
    for list in ["", ",", " "] {
        let said = ask("127.0.0.1:1", &["-s", list, "run", "k", "--", "true"]);
        assert_eq!(said.code, Some(64), "{list:?}: {}", said.stderr);
    }
    let line = r#"export POOLCOUNTER_SERVERS=$(printf '/\377'); exec "$0" run k -- true"#;
    let said = shell("", line);
    assert_eq!(said.code, Some(64), "{}", said.stderr);
    let server = Server::start();
    let odd = format!(" ,{} ,, ", server.address());
    assert_eq!(ask(&odd, &["run", "k", "--", "true"]).code, Some(0));
    // A status of a plugin is for `check` alone, wherever the word stands.
    assert_eq!(ask("", &["check", "--for", "0"]).code, Some(3));
    assert_eq!(ask("", &["check", "--for", "5"]).code, Some(3), "without --full-queues");
    assert_eq!(ask("a:b", &["check"]).code, Some(3));
    assert_eq!(ask("", &["run", "-n", "0", "check", "--", "true"]).code, Some(64));
}

#[test]
fn a_socket_may_have_an_odd_path() {
    let place = Place::with_daemon();
    let path = place.path("an odd 's\u{f6}cket'").display().to_string();
    let _server = place.start(&["--listen-unix", &path]);
    let said = ask("", &["-s", &path, "run", "k", "--", "echo", "ran"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "ran\n"), "{}", said.stderr);
    let long = format!("/{}", "x".repeat(300));
    assert_eq!(ask("", &["-s", &long, "run", "k", "--", "true"]).code, Some(75));
}

#[test]
fn closed_streams_and_pipes_are_no_trouble() {
    let server = Server::start();
    for (line, said) in [
        (r#""$0" run k -- cat <&-; echo $?"#, "0\n"),
        (r#""$0" run k -- sh -c 'exit 5' >&- 2>&-; echo $?"#, "5\n"),
        (r#""$0" -s 127.0.0.1:1 run k -- true <&- >&- 2>&-; echo $?"#, "75\n"),
        (r#"("$0" run k -- yes; echo $? >&2) 2>&1 >/dev/full | tail -n 1"#, "1\n"),
        // As docs/client.md says: HUP (1) stays ignored, PIPE (0x1000) does not. Others may
        // be ignored already, as in a background job.
        (
            r#"trap '' HUP PIPE; "$0" run k -- awk '/SigIgn/ { print substr($2, 13) }' /proc/self/status |
                { read -r ignored; echo $((0x$ignored & 0x1001)); }"#,
            "1\n",
        ),
        // `yes` ends without a reader, and so does the job.
        (r#"exec 3>&1; { "$0" run k -- yes; echo $? >&3; } | head -n 1"#, "y\n141\n"),
    ] {
        assert_eq!(shell(&server.address().to_string(), line).stdout, said, "{line}");
    }
    assert!(eventually(|| server.counter("processing_workers") == 0));
}

#[test]
fn a_run_inside_a_run_has_locks_of_its_own() {
    let server = Server::start();
    let binary = binary().to_str().expect("text");
    let said = run(&server, &["outer", "--", binary, "run", "inner", "--", binary, "stats"]);
    assert!(said.stdout.contains("processing_workers: 2\n"), "{}{}", said.stdout, said.stderr);
    assert!(eventually(|| server.counter("processing_workers") == 0));
}
