//! `STATS KEYS`, `KEY`, `CLIENTS`, `TOP`, `SLOW` and `JSON` over a real socket: what only
//! the daemon can show of them. tests/engine/reports.rs has the texts.

use crate::support::restart::{Place, WENT_ON};
use crate::support::{Client, PATIENCE, Server, eventually};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

/// The answer to `STATS words`, without the blank line.
fn asked(client: &mut Client, words: &str) -> Vec<String> {
    client.send(&format!("STATS {words}"));
    lines(client)
}

fn lines(client: &mut Client) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match client.line() {
            line if line.is_empty() => return lines,
            line => lines.push(line),
        }
    }
}

fn port_of(client: &Client) -> String {
    client.stream().local_addr().expect("an address").to_string()
}

#[test]
fn a_stuck_holder_is_seen_with_its_address() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.exchange("ACQ4ME stuck\\page\u{e4} 1 9 30", "LOCKED");
    waiter.send("ACQ4ANY stuck\\page\u{e4} 1 9 30");
    let mut operator = server.connect();
    operator.wait_for_counter("waiting_workers", |n| n == 1);
    let keys = asked(&mut operator, "KEYS");
    let text = keys[3].split(' ').next_back().expect("a key");
    assert_eq!(text, "stuck\\x5cpage\\xc3\\xa4");
    let key = asked(&mut operator, &format!("KEY {text}"));
    assert_eq!(&key[..4], [&*format!("key: {text}"), "holders: 1", "for_me: 0", "for_anyone: 1"]);
    let (holder_line, waiter_line) = (&key[6], &key[7]);
    assert!(holder_line.starts_with("holder me ") && holder_line.ends_with(&port_of(&holder)));
    assert!(waiter_line.starts_with("waiter anyone ") && waiter_line.ends_with(&port_of(&waiter)));
    let clients = asked(&mut operator, "CLIENTS");
    let row: Vec<&str> = clients[4].split_whitespace().collect();
    assert_eq!(row, ["3", "1", "1", "127.0.0.1"]);
}

/// A client may bind its end to any path before it connects.
#[test]
fn a_path_as_an_address_forges_no_columns_and_no_lines() {
    let place = Place::with_daemon();
    let (path, odd) = (place.path("clients.sock"), place.path("odd \n1 #9 10.9.9.9\x1b[2J"));
    let server = place.start(&["--slow", "0", "--listen-unix", &path.display().to_string()]);
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .expect("a socket");
    bind(&socket, &SocketAddrUnix::new(&odd).expect("a path")).expect("bind");
    connect(&socket, &SocketAddrUnix::new(&path).expect("a path")).expect("connect");
    let mut client = BufReader::new(UnixStream::from(socket));
    client.get_mut().write_all(b"ACQ4ME k 1 9 0\n").expect("send");
    client.read_line(&mut String::new()).expect("LOCKED");
    let mut operator = server.connect();
    let shown = format!("unix:{}", odd.display())
        .replace(' ', "\\x20")
        .replace('\n', "\\x0a")
        .replace('\x1b', "\\x1b");
    let holder = asked(&mut operator, "KEY k").pop().expect("a holder");
    assert_eq!(holder.split_whitespace().nth(6), Some(&*shown), "{holder}");
    client.get_mut().write_all(b"RELEASE\n").expect("send");
    client.read_line(&mut String::new()).expect("RELEASED");
    assert!(asked(&mut operator, "SLOW").pop().expect("a hold").contains(&shown));
    let logs = || server.log.lines().iter().any(|line| line.contains(&format!("by {shown} took")));
    assert!(eventually(logs), "{:?}", server.log.lines());
}

/// The lines that are left of the longest input, and what comes meanwhile.
#[test]
fn a_crowd_that_asks_gets_all_answers() {
    let server = Server::start();
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send_bytes(&b"STATS KEYS\nSTATS SLOW\nSTATS CLIENTS\n".repeat(30));
        client.shut_writing();
    }
    for client in &mut clients {
        let text = client.read_to_end();
        assert_eq!(text.matches("\n\n").count(), 90, "{text}");
    }
}

/// A report may take a millisecond: who asks for more than that waits for other turns, and
/// the turns serve others.
#[test]
fn many_reports_are_made_in_many_turns() {
    const CROWD: u64 = 60;
    let server = Server::start();
    let mut operator = server.connect();
    let mut turns = || {
        let report = asked(&mut operator, "JSON").remove(0);
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        report["turns"]["seconds"]["count"].as_u64().expect("a count")
    };
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| server.connect()).collect();
    crowd.iter_mut().for_each(Client::settle);
    for (words, turns_min) in
        [("TOP hour", CROWD / 2), ("TOP clients", CROWD / 10), ("JSON", CROWD)]
    {
        let before = turns();
        // All is there when it goes on.
        server.signal(Signal::STOP);
        for client in &mut crowd {
            client.send(&format!("STATS {words}"));
        }
        server.signal(Signal::CONT);
        for client in &mut crowd {
            assert!(!lines(client).is_empty());
        }
        let took = turns() - before;
        assert!(took >= turns_min, "{words}: {took} turns");
    }
}

#[test]
fn a_client_that_leaves_before_its_answer_leaves_nothing_behind() {
    let server = Server::start();
    for _ in 0..20 {
        let mut client = server.connect();
        client.send_bytes(b"ACQ4ME k 99 99 0\nSTATS KEYS\nSTATS JSON\n");
        client.reset();
    }
    let mut control = server.connect();
    control.wait_for_counter("processing_workers", |n| n == 0);
    assert_eq!(asked(&mut control, "KEYS")[0], "keys: 0 of 0");
}

/// Who takes no answer any more is not answered: its locks would be kept meanwhile.
#[test]
fn no_reports_are_made_for_a_client_that_has_gone() {
    // Some hundred answers fill the kernel's buffers, if the client is slow to leave.
    const ASKED: usize = 20_000;
    let server = Server::start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.exchange("ACQ4ME k 1 9 60", "LOCKED");
    waiter.send("ACQ4ME k 1 9 60");
    let mut control = server.connect();
    control.wait_for_counter("waiting_workers", |n| n == 1);
    // If this takes long, the daemon ends the connection before all is sent.
    let _ = holder.stream().write_all(&b"STATS JSON\n".repeat(ASKED));
    holder.reset();
    waiter.expect("LOCKED");
    assert!(control.counter("failed_sends") <= 1);
    let report = asked(&mut control, "JSON").remove(0);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let made = report["turns"]["seconds"]["count"].as_u64().expect("a count");
    assert!(made < ASKED as u64 / 4, "{made} turns");
}

#[test]
fn what_was_hammered_is_shown_with_who_did_it() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..50 {
        client.exchange("ACQ4ME hot 1 9 0", "LOCKED");
        client.exchange("ACQ4ME hot 1 1 0", "QUEUE_FULL");
        client.exchange("RELEASE", "RELEASED");
    }
    for (words, name) in [("TOP", "hot"), ("TOP hour keys", "hot"), ("TOP clients", "127.0.0.1")] {
        let top = asked(&mut client, words);
        let row = top.iter().find(|row| row.ends_with(&format!(" {name}")));
        let row: Vec<&str> = row.expect("a row").split_whitespace().collect();
        // Requests, error, requests since, acquired, done, refused.
        assert_eq!(row[..6], ["100", "0", "100", "50", "0", "50"], "{top:#?}");
    }
}

#[test]
fn slow_holds_are_remembered_and_logged() {
    let server = Server::start_with(&["--slow", "0.05"]);
    let mut holder = server.connect();
    holder.exchange("ACQ4ME slow 1 9 0", "LOCKED");
    let age = |server: &Server| {
        let keys = asked(&mut server.connect(), "KEYS");
        keys[3].split_whitespace().nth(3).map(str::to_owned)
    };
    assert!(eventually(|| age(&server).is_some_and(|age| age.as_str() >= "0.060s")));
    holder.exchange("RELEASE", "RELEASED");
    // In one packet: that is quick on any machine.
    holder.send_bytes(b"ACQ4ME quick 1 9 0\nRELEASE\n");
    holder.expect("LOCKED");
    holder.expect("RELEASED");
    let slow = asked(&mut holder, "SLOW");
    assert_eq!(&slow[..2], ["slow: 1 of 1", "over: 0.050s"]);
    let end = format!(" {} slow", port_of(&holder));
    assert!(slow[3].contains(" hold me     released ") && slow[3].ends_with(&end), "{slow:?}");
    server.log.wait_for("slow: hold on slow by 127.0.0.1:");
}

/// The kernel forgets the address of a connection that is reset, as that of a host that
/// lost power is; who it was is what an operator asks.
#[test]
fn a_slow_holder_that_is_reset_is_named() {
    let server = Server::start_with(&["--slow", "0"]);
    let mut holder = server.connect();
    let address = port_of(&holder);
    holder.exchange("ACQ4ME k 1 9 0", "LOCKED");
    holder.reset();
    server.log.wait_for(&format!("slow: hold on k by {address} took "));
    let slow = asked(&mut server.connect(), "SLOW");
    assert!(slow[3].ends_with(&format!(" {address} k")), "{slow:?}");
}

#[test]
fn everything_survives_a_hot_restart() {
    let place = Place::with_daemon();
    let server = place.start(&["--slow", "0"]);
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.exchange("ACQ4ANY a 1 9 0", "LOCKED");
    waiter.send("ACQ4ME a 1 9 30");
    let mut other = server.connect();
    other.wait_for_counter("waiting_workers", |n| n == 1);
    other.exchange("ACQ4ME b 1 9 0", "LOCKED");
    other.exchange("RELEASE", "RELEASED");
    let before = asked(&mut other, "JSON").remove(0);
    server.signal(Signal::USR1);
    server.log.wait_for(WENT_ON);
    // Asked of the new image, by the same connection.
    let after = asked(&mut other, "JSON").remove(0);
    let part = |text: &str, from: &str, to: &str| {
        let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from} in {text}"));
        rest.split_once(to).expect("its end").0.to_owned()
    };
    for (from, to) in [("\"waits\":", "\"replies\""), ("\"by_requests\":", "\"by_time\"")] {
        assert_eq!(part(&before, from, to), part(&after, from, to));
    }
    let slow = |text: &str| {
        let row = part(text, "\"slow\":", "]");
        let (time, rest) = row.split_once("Z\"").expect("a time");
        let (_, time) = time.rsplit_once('T').expect("a time of the day");
        let parts = time.split(':').map(|part| part.parse::<f64>().expect("a number"));
        (parts.fold(0.0, |sum, part| 60.0 * sum + part), rest.to_owned())
    };
    let ((earlier, row_before), (later, row_after)) = (slow(&before), slow(&after));
    assert_eq!(row_before, row_after);
    // The new image reads the wall clock again, which takes as long as it takes. The day
    // may have ended meanwhile.
    let moved = (later - earlier).abs();
    assert!(moved.min(86_400.0 - moved) < PATIENCE.as_secs_f64(), "{moved}");
    assert!(after.contains("\"hot_restarts\":{\"done\":1,\"refused\":0,"), "{after}");
    // What the old image began, the new one counts.
    holder.exchange("RELEASE", "RELEASED");
    waiter.expect("LOCKED");
    let json = asked(&mut other, "JSON").remove(0);
    let released = "{\"kind\":\"anyone\",\"outcome\":\"released\",\"count\":1,";
    let waited = "{\"kind\":\"me\",\"outcome\":\"locked\",\"count\":1,";
    assert!(json.contains(released) && json.contains(waited), "{json}");
    let top = asked(&mut other, "TOP");
    let row = top.iter().find(|row| row.ends_with(" a")).expect("a row");
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row[..4], ["2", "0", "2", "2"]);
}

/// The control socket at `path` answers each request in its turn.
fn operator_asks(path: &str, request: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("connect");
    writeln!(stream, "{request}").expect("send");
    stream.shutdown(std::net::Shutdown::Write).expect("shutdown");
    let mut text = String::new();
    BufReader::new(stream).read_to_string(&mut text).expect("an answer");
    text
}

#[test]
fn with_private_only_operators_see_keys_and_addresses() {
    let place = Place::with_daemon();
    let path = place.path("control.sock").display().to_string();
    let server = place.start(&["--private", "--slow", "0", "--control", &path]);
    let mut client = server.connect();
    client.exchange("ACQ4ME secret 1 9 0", "LOCKED");
    for words in ["KEYS", "CLIENTS", "TOP", "TOP clients", "SLOW", "JSON"] {
        let text = asked(&mut client, words).join("\n");
        assert!(!text.contains("secret") && !text.contains("127.0.0.1"), "{words}: {text}");
    }
    assert!(operator_asks(&path, "STATS KEYS").ends_with(" secret\n\n"));
    assert!(operator_asks(&path, "STATS KEY secret").contains(&port_of(&client)));
    assert!(operator_asks(&path, "STATS CLIENTS").ends_with(" 127.0.0.1\n\n"));
    assert!(operator_asks(&path, "STATS").starts_with("uptime: "));
    assert!(operator_asks(&path, "STATS UPTIME").starts_with("uptime: "));
    assert_eq!(operator_asks(&path, "STATS nonsense"), "ERROR no such statistic\n");
    let mut stream = BufReader::new(UnixStream::connect(&path).expect("connect"));
    stream.get_mut().write_all(b"STATS JSON\n").expect("send");
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    assert!(line.contains("\"key\":\"secret\""), "{line}");
}
