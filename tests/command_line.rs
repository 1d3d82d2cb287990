//! What can be said on the command line, and what comes of saying it wrong.

#![cfg(feature = "daemon")]

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::path::Path;

use common::{Client, Finished, Server, backlog, daemon_command, eventually, finish};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use rustix::process::Signal;

fn run(arguments: &[&str]) -> Finished {
    finish(&mut daemon_command(arguments))
}

fn assert_serves(address: SocketAddr) {
    let answer = Client::connect(address).ask("STATS UPTIME");
    assert!(answer.starts_with("uptime: "), "{address}: {answer}");
}

#[test]
fn the_last_address_wins_and_only_that_one_is_judged() {
    let arguments = ["-l", "no address", "-l", "192.0.2.7", "-l", "127.0.0.3", "-p", "0"];
    let server = Server::spawn(&mut daemon_command(&arguments));
    assert_eq!(server.addresses().len(), 1);
    assert_eq!(server.address().ip().to_string(), "127.0.0.3");
    assert_serves(server.address());

    let refused = run(&["-l", "127.0.0.3", "-l", "no address", "-p", "0"]);
    assert_eq!(refused.code, Some(1));
}

#[test]
fn a_bad_address_is_named_in_the_reference_s_words() {
    for bad in ["localhost", "", "127.0.0.256", "127.0.0.1:7531", "[::1]", "::g", "1"] {
        let refused = run(&["-l", bad, "-p", "0"]);
        assert_eq!(refused.code, Some(1), "{bad}");
        assert_eq!(refused.stderr, format!("Address `{bad}` is not valid to listen on.\n"));
        assert_eq!(refused.stdout, "");
    }
    let refused = run(&["-l", "127.0.0.1,nowhere", "-p", "0"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("nowhere` is not valid to listen on."), "{}", refused.stderr);
}

#[test]
fn the_address_may_stand_right_behind_the_option() {
    let server = Server::spawn(&mut daemon_command(&["-l127.0.0.4", "-p0"]));
    assert_eq!(server.address().ip().to_string(), "127.0.0.4");
    assert_serves(server.address());
}

#[test]
fn a_port_that_is_taken_is_an_error_that_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let refused = run(&["-l", "127.0.0.1", "-p", &port]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("Address already in use"), "{}", refused.stderr);
    assert!(refused.stderr.contains(&port), "says where: {}", refused.stderr);
}

#[test]
fn an_address_of_another_host_is_an_error_that_says_why() {
    // 192.0.2.0/24 is for documentation (RFC 5737): no machine has it.
    let refused = run(&["-l", "192.0.2.1", "-p", "0"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("Cannot assign requested address"), "{}", refused.stderr);
}

#[test]
fn several_addresses_are_served() {
    let list = "127.0.0.5,::1,127.0.0.6";
    let server = Server::spawn(&mut daemon_command(&["-l", list, "-p", "0"]));
    let ips: Vec<_> = server.addresses().iter().map(|a| a.ip().to_string()).collect();
    assert_eq!(ips, ["127.0.0.5", "::1", "127.0.0.6"]);
    // They are one server: what is locked by one address is locked by all.
    let mut first = Client::connect(server.addresses()[0]);
    first.exchange("ACQ4ME k 1 9 0", "LOCKED");
    for &address in &server.addresses()[1..] {
        Client::connect(address).exchange("ACQ4ME k 1 9 0", "TIMEOUT");
    }
}

#[test]
fn the_unspecified_ipv6_address_serves_ipv4_too() {
    let server = Server::spawn(&mut daemon_command(&["-l", "::", "-p", "0"]));
    let port = server.address().port();
    assert_serves(SocketAddr::from(([127, 0, 0, 1], port)));
    assert_serves(format!("[::1]:{port}").parse().expect("an address"));
}

#[test]
fn localhost_is_served_when_no_address_is_said() {
    let server = Server::spawn(&mut daemon_command(&["-p", "0"]));
    let ips: Vec<_> = server.addresses().iter().map(|a| a.ip().to_string()).collect();
    assert_eq!(ips.first().map(String::as_str), Some("127.0.0.1"));
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    assert_eq!(ips.contains(&"::1".to_owned()), has_ipv6, "{ips:?}");
    for &address in server.addresses() {
        assert_serves(address);
    }
}

#[test]
fn standard_output_stays_silent() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("standard-output");
    let mut command = daemon_command(&["-l", "127.0.0.1", "-p", "0"]);
    command.stdout(File::create(&path).expect("a file")).env("RUST_LOG", "trace");
    let mut server = Server::spawn(&mut command);
    server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
    server.connect().exchange("HELLO", "ERROR BAD_COMMAND");
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
    assert_eq!(fs::read_to_string(&path).expect("the file"), "");
}

#[test]
fn version_and_help_go_to_standard_output() {
    let version = run(&["--version"]);
    let expected = format!("poolcounterd {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((version.code, version.stdout, version.stderr), (Some(0), expected, String::new()));

    let help = run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for word in ["-l", "-p", "--backlog", "--max-connections", "--check", "7531", "RUST_LOG"] {
        assert!(help.stdout.contains(word), "{word} in {}", help.stdout);
    }
}

#[test]
fn an_unknown_option_is_refused_by_name() {
    for arguments in [&["--frobnicate"][..], &["-Z"], &["-p", "seven"], &["-p", "65536"]] {
        let refused = run(arguments);
        let named = arguments.last().expect("an argument");
        assert!(refused.code.is_some_and(|code| code != 0), "{arguments:?}");
        assert!(refused.stderr.contains(named), "{arguments:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
}

/// So does the reference, and some unit's ARGS may have one.
#[test]
fn words_that_are_no_options_are_ignored() {
    let server = Server::start_with(&["word", "-"]);
    server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
}

#[test]
fn the_backlog_can_be_chosen() {
    let server = Server::start_with(&["--backlog", "7"]);
    assert_eq!(backlog(server.address()), 7);
}

#[test]
fn more_than_max_connections_are_closed_and_counted_apart() {
    let server = Server::start_with(&["--max-connections", "2"]);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.exchange("ACQ4ME k 1 9 0", "LOCKED");
    second.exchange("ACQ4ME k 1 9 0", "TIMEOUT");
    for _ in 0..3 {
        server.connect().expect_end();
    }
    assert_eq!(first.counter("rejected_connections"), 3);
    assert_eq!(first.counter("connect_errors"), 0);
    assert_eq!(first.counter("failed_sends"), 0);
    // As soon as one leaves, the next is served.
    let full = server.descriptors();
    drop(second);
    assert!(eventually(|| server.descriptors() < full));
    server.connect().exchange("ACQ4ME k 1 9 0", "TIMEOUT");
    assert_eq!(first.counter("rejected_connections"), 3);
}

#[test]
fn check_asks_a_daemon_whether_it_serves() {
    let server = Server::start();
    let well = run(&["--check", &server.address().to_string()]);
    assert_eq!(well.code, Some(0), "{}", well.stderr);
    // Without an address: localhost, and the port of -p.
    let port = server.address().port().to_string();
    let well = run(&["-p", &port, "--check"]);
    assert_eq!(well.code, Some(0), "{}", well.stderr);
    let errors = server.counter("connect_errors") + server.counter("failed_sends");
    assert_eq!(errors, 0, "a check is no error");
}

#[test]
fn check_asks_the_reference_too() {
    let Some(reference) = Server::reference() else { return };
    let well = run(&["--check", &reference.address().to_string()]);
    assert_eq!(well.code, Some(0), "{}", well.stderr);
}

#[test]
fn check_fails_where_nobody_listens() {
    // Bound and never listening: nobody else can get the port meanwhile.
    let silent = socket(AddressFamily::INET, SocketType::STREAM, None).expect("socket");
    bind(&silent, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let address = getsockname(&silent).expect("an address");
    let address = SocketAddr::try_from(address).expect("an IP address");
    let ill = run(&["--check", &address.to_string()]);
    assert_eq!(ill.code, Some(1));
    assert!(ill.stderr.contains("refused"), "says why: {}", ill.stderr);
}

#[test]
fn check_fails_where_somebody_else_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let ill = run(&["--check", &address]);
    assert_eq!(ill.code, Some(1), "{}", ill.stderr);
    other.join().expect("the other");
}

#[test]
fn check_fails_on_an_address_that_is_none() {
    for bad in ["nowhere.invalid:7531", "127.0.0.1:port", ":"] {
        let ill = run(&["--check", bad]);
        assert_eq!(ill.code, Some(1), "{bad}");
        assert!(!ill.stderr.is_empty(), "{bad}");
    }
}
