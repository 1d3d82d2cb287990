//! Lists of several servers are merged into one that names the servers.

use crate::command::{ask, lists, scripted};
use crate::support::{Client, Server, eventually};
use rustix::process::Signal;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A client that holds the key, and clients that wait for it.
fn queue(server: &Server, key: &str, waiters: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..=waiters).map(|_| server.connect()).collect();
    assert_eq!(clients[0].ask(&format!("ACQ4ME {key} 1 9 0")), "LOCKED");
    for waiter in &mut clients[1..] {
        waiter.send(&format!("ACQ4ME {key} 1 9 600"));
        waiter.settle();
    }
    clients
}

/// A draining server with one client, and that client.
fn draining() -> (Server, Client) {
    let server = Server::start_apart(&[]);
    let mut client = server.connect();
    client.settle();
    server.signal(Signal::QUIT);
    server.log.wait_for("draining: no new clients");
    (server, client)
}

/// The servers and the keys that the rows of a table name, its first and last columns.
fn rows(text: &str) -> Vec<(&str, &str)> {
    let table = text.lines().skip_while(|line| !line.ends_with(" key")).skip(1);
    table
        .filter_map(|line| Some((line.split_whitespace().next()?, line.rsplit(' ').next()?)))
        .collect()
}

#[test]
fn keys_of_several_servers_are_sorted_as_those_of_one() {
    let (a, b) = (Server::start(), Server::start());
    let _clients =
        [queue(&a, "two", 2), queue(&b, "three", 3), queue(&b, "none", 0), queue(&a, "one", 1)];
    let [first, second] = [&a, &b].map(|server| server.address().to_string());
    let both = format!("{first},{second}");
    let output = ask(&both, &["keys"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    assert!(output.stdout.starts_with("keys: 4 of 4\n"), "{}", output.stdout);
    let sorted = [(&second, "three"), (&first, "two"), (&first, "one"), (&second, "none")];
    let sorted = sorted.map(|(server, key)| (server.as_str(), key));
    assert_eq!(rows(&output.stdout), sorted);
    let output = ask(&both, &["keys", "3"]);
    assert!(output.stdout.starts_with("keys: 3 of 4\n"), "{}", output.stdout);
    assert_eq!(rows(&output.stdout), sorted[..3]);
    // A server named twice is listed once, without a column for the server.
    let alone = ask(&first, &["keys"]).stdout;
    assert!(!alone.contains(&first), "{alone}");
    assert!(!ask(&format!("{first},{first}"), &["keys"]).stdout.contains("server"));
    let json = ask(&both, &["keys", "--json"]).stdout;
    let servers = json
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["server"].take());
    assert_eq!(servers.collect::<Vec<_>>(), [first.as_str(), &second]);
    let clients = ask(&both, &["clients"]).stdout;
    let held_and_waited_for = |server: &str| {
        let row = clients.lines().find(|line| line.contains(server)).unwrap_or_default();
        row.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(held_and_waited_for(&first), "2 3 127.0.0.1");
    assert_eq!(held_and_waited_for(&second), "2 3 127.0.0.1");
}

#[test]
fn servers_that_do_not_answer_are_named_and_the_others_listed() {
    let (server, (drains, _client)) = (Server::start(), draining());
    let _clients = queue(&server, "k", 0);
    let [server, drains] = [&server, &drains].map(|server| server.address().to_string());
    let output = ask(&format!("127.0.0.1:1,{server},{drains}"), &["keys"]);
    assert_eq!(output.code, Some(75));
    assert_eq!(rows(&output.stdout), [(server.as_str(), "k")]);
    let named: Vec<&str> = output.stderr.lines().collect();
    for (line, name) in named.iter().zip(["127.0.0.1:1", &drains]) {
        assert!(line.starts_with(&format!("poolcounter: {name}: Connection refused")), "{line}");
    }
    assert_eq!(named.len(), 2, "{named:?}");
    let output = ask("127.0.0.1:1,127.0.0.1:2", &["keys"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(75), ""));
    let cut = scripted(|_| {
        "{\"keys_total\":5002,\"keys\":[{\"key\":\"a\"},{\"key\":\"b\"}]}\n\n".to_owned()
    });
    let output = ask(&format!("{server},{cut}"), &["keys", "1000"]);
    assert_eq!(output.code, Some(0));
    assert!(output.stderr.contains(&format!("{cut}: 2 of 5002: no list")), "{}", output.stderr);
}

/// Ours, one of version 1, and the C daemon if it was fetched.
#[test]
fn a_server_of_another_version_hides_no_rows() {
    let server = Server::start();
    let _clients = queue(&server, "k", 1);
    let address = server.address().to_string();
    let old = scripted(|question| match question {
        "STATS FULL" => "uptime: 1 days, 2h 3m 4s\ntotal processing time: 6.000000s\n\
            processed_count: 3\nhashtable_entries: 5\n\n"
            .to_owned(),
        _ => "ERROR WRONG_STAT\n".to_owned(),
    });
    let reference = Server::reference();
    let others: Vec<String> =
        reference.iter().map(|server| server.address().to_string()).chain([old.clone()]).collect();
    let all = format!("{address},{}", others.join(","));
    for words in [&["keys"][..], &["keys", "*"]] {
        let output = ask(&all, words);
        assert_eq!(output.code, Some(76), "{words:?}");
        let row = output.stdout.lines().find(|row| row.ends_with(" k")).expect("a row");
        assert!(row.contains(&address), "{row}");
        for other in &others {
            let why = format!("{other}: this server can't tell: it knows STATS FULL only");
            assert!(output.stderr.contains(&why), "{}", output.stderr);
        }
    }
    let stats = ask(&all, &["stats", "--json"]);
    assert_eq!((stats.code, stats.stdout.lines().count()), (Some(0), 1 + others.len()));
    let last: Value =
        serde_json::from_str(stats.stdout.lines().last().expect("one")).expect("JSON");
    assert_eq!(
        (&last["uptime_s"], &last["times_s"]["processing"]),
        (&93_784.0.into(), &6.0.into())
    );
    let top = ask(&all, &["top"]);
    assert_eq!((top.code, rows(&top.stdout)), (Some(0), vec![(address.as_str(), "k")]));
    assert!(top.stdout.contains("has no lists, up 1 days, 2h 3m 4s"), "{}", top.stdout);
    let alone = ask(&old, &["top"]).stdout;
    assert!(
        alone.contains("keys 5 ") && alone.contains("average hold 2.000s (since the start)"),
        "{alone}"
    );
    assert!(alone.contains("This server has no lists"), "{alone}");
}

/// Neither server answers before the other one is asked.
#[test]
fn all_servers_are_asked_in_parallel() {
    for words in [&["keys"][..], &["keys", "--json"], &["top"], &["check"]] {
        let asked = Arc::new(AtomicUsize::new(0));
        let servers = [(); 2].map(|()| {
            let asked = Arc::clone(&asked);
            scripted(move |question| {
                asked.fetch_add(1, Ordering::Relaxed);
                eventually(|| asked.load(Ordering::Relaxed) > 1);
                lists(question)
            })
        });
        let output = ask(&servers.join(","), words);
        assert_eq!(output.code, Some(0), "{words:?}: {}", output.stdout);
    }
}

#[test]
fn one_screen_of_top_has_all_servers() {
    let (a, b, (drains, _client)) = (Server::start(), Server::start(), draining());
    let _clients = [queue(&a, "one", 1), queue(&b, "two", 2)];
    let [a, b, drains] = [&a, &b, &drains].map(|server| server.address().to_string());
    let output = ask(&format!("{a},{b}"), &["top"]);
    assert_eq!(output.code, Some(0));
    assert_eq!(rows(&output.stdout), [(b.as_str(), "two"), (&a, "one")]);
    let figures = |server: &str| {
        let line = output.stdout.lines().find(|line| line.contains(server)).unwrap_or_default();
        line.split_whitespace().skip(1).take(3).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((figures(&a), figures(&b)), ("1 1 1".to_owned(), "1 1 2".to_owned()));
    let output = ask(&format!("{a},{drains}"), &["top"]);
    assert_eq!(output.code, Some(75));
    assert_eq!(rows(&output.stdout), [(a.as_str(), "one")]);
    let state = format!("{drains} down or draining: Connection refused");
    assert!(output.stdout.contains(&state), "{}", output.stdout);
}
