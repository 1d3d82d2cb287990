//! The command line, and the messages about its mistakes.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::support::operated::Operated;
use crate::support::restart::{Place, restart};
use crate::support::status::{NO_ADDRESS, WRONG_OPTIONS};
use crate::support::{Client, Finished, Server, daemon_command, finish};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use rustix::process::Signal;

fn run(arguments: &[&str]) -> Finished {
    finish(&mut daemon_command(arguments))
}

fn assert_serves(address: SocketAddr) {
    let answer = Client::connect(address).ask("STATS UPTIME");
    assert!(answer.starts_with("uptime: "), "{address}: {answer}");
}

#[test]
fn the_last_address_wins_and_only_it_is_checked() {
    let arguments = ["-l", "no address", "-l", "192.0.2.7", "-l", "127.0.0.3", "-p", "0"];
    let server = Server::spawn(&mut daemon_command(&arguments));
    assert_eq!(server.addresses().len(), 1);
    assert_eq!(server.address().ip().to_string(), "127.0.0.3");
    assert_serves(server.address());

    let refused = run(&["-l", "127.0.0.3", "-l", "no address", "-p", "0"]);
    assert_eq!(refused.code, Some(WRONG_OPTIONS));
}

#[test]
fn a_bad_address_gets_the_reference_s_message_and_a_suggestion() {
    for (bad, right) in [
        ("127.0.0.1:7532", "-l 127.0.0.1 -p 7532"),
        ("[::1]", "-l ::1"),
        ("[::1]:7532", "-l ::1 -p 7532"),
        ("::1,127.0.0.1:7532", "-l 127.0.0.1 -p 7532"),
        ("localhost", "such as 10.1.2.3 or ::"),
        ("", "such as 10.1.2.3 or ::"),
    ] {
        let refused = run(&["-p", "0", "-l", bad]);
        assert_eq!((refused.code, &*refused.stdout), (Some(WRONG_OPTIONS), ""), "{bad}");
        let mut lines = refused.stderr.lines();
        let named = format!("Address `{bad}` is not valid to listen on.");
        assert_eq!(lines.next(), Some(&*named));
        let advice = lines.next().unwrap_or_default();
        assert!(advice.contains(right), "{bad}: {}", refused.stderr);
    }
}

#[test]
fn a_bad_value_gets_a_suggestion() {
    for (arguments, right) in [
        (["-p", "abc"], "from 0 to 65535"),
        (["-p", "65536"], "from 0 to 65535"),
        (["--allow", "10.0.0.0/33"], "such as 10.0.0.0/8"),
        (["--http", "localhost:9531"], "such as 10.1.2.3:9531"),
        (["--max-hold", "'*cache:*=600'"], "\\x27"),
        (["--max-connections", "0"], "at least 1"),
        (["--max-connections-per-ip", "0"], "at least 1"),
        (["--max-connections", "many"], "at least 1"),
        (["--log", "loud"], "error, warn, info, debug, trace or off"),
        (["--log", "poolcounterd=loud"], "error, warn, info, debug, trace or off"),
        (["--log", "info,mediawiki=debug"], "error, warn, info, debug, trace or off"),
    ] {
        let refused = run(&["-p", "0", arguments[0], arguments[1]]);
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{arguments:?}");
        assert_eq!(refused.stdout, "");
        for part in [arguments[0], arguments[1], right] {
            assert!(refused.stderr.contains(part), "{arguments:?}: {}", refused.stderr);
        }
    }
}

/// Each option that takes a time, and which of the odd ones it accepts.
#[test]
fn times_have_one_form() {
    let long = "99999999999999999999";
    let no_times = "1e300 1e-300 inf nan -1 -1m 5x 1h1h 30m1h 1h30 .5 5M".split(' ');
    let no_times: Vec<&str> = no_times.chain(["", " ", " 5", "5 ", "1h 30m", long]).collect();
    let options: [(&str, &str, &[&str]); 3] = [
        ("--slow", "", &["0", "0.0000001", "0.5", "250ms", "1d25h"]),
        ("--keepalive", "", &["0"]),
        ("--max-hold", "k=", &["1d25h"]),
    ];
    let odd = ["0", "0.0000001", "0.5", "250ms", "1d25h"];
    let place = Place::new();
    let file = place.path("rules").display().to_string();
    fs::write(&file, "").expect("write");
    for (option, pattern, also_accepted) in options {
        let times = odd.into_iter().map(|time| (time, also_accepted.contains(&time)));
        let times = times.chain(["90", "10m", "10min", "1h30m", "1.5m"].map(|time| (time, true)));
        for (time, is_accepted) in times.chain(no_times.iter().map(|&time| (time, false))) {
            // Reads the other options first.
            let value = format!("{option}={pattern}{time}");
            let output = run(&[&value, "--check-rules", &file]);
            let code = if is_accepted { 0 } else { WRONG_OPTIONS };
            assert_eq!(output.code, Some(code), "{value}: {}", output.stderr);
        }
    }
}

#[test]
fn a_misspelt_option_gets_a_suggestion() {
    for (misspelt, meant) in [("--liste", "--listen"), ("--max-conections", "--max-connections")] {
        let refused = run(&["-p", "0", misspelt, "1"]);
        assert_eq!(refused.code, Some(WRONG_OPTIONS));
        let suggestion = refused.stderr.contains("similar") && refused.stderr.contains(meant);
        assert!(suggestion, "{}", refused.stderr);
    }
}

/// If the path is not a socket, the message says what it is.
#[test]
fn an_impossible_socket_path_is_explained() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-socket");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("file"), "precious").expect("a file");
    for (link, target) in [("dangling", "nowhere"), ("circle", "circle")] {
        let _ = fs::remove_file(folder.join(link));
        std::os::unix::fs::symlink(target, folder.join(link)).expect("a link");
    }
    for (name, why, status) in [
        ("", "is a directory", WRONG_OPTIONS),
        ("file", "is not a socket", WRONG_OPTIONS),
        ("file/below", "Not a directory", WRONG_OPTIONS),
        ("dangling", "is not a socket", WRONG_OPTIONS),
        ("circle/below", "symbolic links", WRONG_OPTIONS),
        // Something may make it.
        ("missing/file", "directory does not exist", NO_ADDRESS),
    ] {
        let path = folder.join(name);
        let path = path.to_str().expect("a path");
        let refused = run(&["-l", "127.0.0.1", "-p", "0", "--control", path]);
        assert_eq!(refused.code, Some(status), "{path}");
        let judged = run(&["--check-options", "--control", path]);
        assert_eq!(judged.code, Some(if status == NO_ADDRESS { 0 } else { status }), "{path}");
        for part in [path, why] {
            assert!(refused.stderr.contains(part), "{}", refused.stderr);
        }
    }
    assert_eq!(fs::read_to_string(folder.join("file")).expect("it is there"), "precious");
}

#[test]
fn the_address_may_directly_follow_the_option() {
    let server = Server::spawn(&mut daemon_command(&["-l127.0.0.4", "-p0"]));
    assert_eq!(server.address().ip().to_string(), "127.0.0.4");
    assert_serves(server.address());
}

#[test]
fn a_port_in_use_is_explained() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let refused = run(&["-l", "127.0.0.1", "-p", &port]);
    assert_eq!(refused.code, Some(NO_ADDRESS));
    assert!(refused.stderr.contains("Address already in use"), "{}", refused.stderr);
    let shows_by_whom = format!("ss -ltnp 'sport = :{port}'");
    assert!(refused.stderr.contains(&shows_by_whom), "{}", refused.stderr);
}

#[test]
fn an_address_of_another_host_is_explained() {
    // 192.0.2.0/24 is for documentation (RFC 5737): no machine has it.
    let refused = run(&["-l", "192.0.2.1", "-p", "0"]);
    assert_eq!(refused.code, Some(NO_ADDRESS));
    assert!(refused.stderr.contains("Cannot assign requested address"), "{}", refused.stderr);
}

#[test]
fn the_unspecified_ipv6_address_serves_ipv4_too() {
    let server = Server::spawn(&mut daemon_command(&["-l", "::", "-p", "0"]));
    let port = server.address().port();
    assert_serves(SocketAddr::from(([127, 0, 0, 1], port)));
    assert_serves(format!("[::1]:{port}").parse().expect("an address"));
}

#[test]
fn without_an_address_localhost_is_served() {
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
    for option in ["--frobnicate", "-Z"] {
        let refused = run(&[option]);
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{option}");
        assert!(refused.stderr.contains(option), "{option}: {}", refused.stderr);
        // Behind `--` it would be refused too.
        assert!(!refused.stderr.contains("as a value"), "{option}: {}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
}

/// systemd retries after other errors, such as an address that is missing at boot.
#[test]
fn what_no_retry_mends_is_a_wrong_option() {
    let long = format!("/tmp/{}", "x".repeat(120));
    for arguments in [
        &["-l", "192.0.2.1", "--http", "192.0.2.1:7531"][..],
        &["-l", "0.0.0.0", "--http", "127.0.0.1:7531"],
        &["-l", "127.0.0.1", "--http", "[::]:7531"],
        &["-l", "127.0.0.1", "-p", "0", "--control", &long],
        // A missing address beside it does not make a retry useful.
        &["-l", "192.0.2.1", "-p", "0", "--control", &long],
        // A link-local address without its interface.
        &["-l", "fe80::1", "-p", "0"],
        &["-l", "ff02::1", "-p", "0"],
        &["-l", "127.0.0.1", "-p", "0", "--http", "[fe80::1]:0"],
        &["-l", "127.0.0.1", "-p", "0", "--rules", "/nonexistent/rules"],
        &["-l", "127.0.0.1", "-p", "0", "--rules", "/"],
        &["--check-rules", "/nonexistent/rules"],
        &["--reload", "--no-such-option"],
    ] {
        let refused = run(arguments);
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{arguments:?}: {}", refused.stderr);
        let judged = run(&[&["--check-options"], arguments].concat());
        assert_eq!(judged.code, Some(WRONG_OPTIONS), "{arguments:?}: {}", judged.stdout);
    }
}

/// What is taken or missing now may be had at a start.
#[test]
fn check_options_finds_only_what_no_retry_mends_and_opens_nothing() {
    let daemon = Operated::start();
    let (path, port) = (daemon.path(), daemon.port());
    let [rules, missing] =
        ["rules", "missing/c"].map(|name| daemon.place.path(name).display().to_string());
    fs::write(&rules, "a a*\n").expect("write");
    for arguments in [
        &["-l", "127.0.0.1", "-p", &port, "--control", &path, "--rules", &rules][..],
        &["-l", "192.0.2.1", "--http", "192.0.2.1:9531", "--slow", "5"],
        &["--control", &missing, "--control-group", "no-such-group"],
    ] {
        let judged = run(&[&["--check-options"], arguments].concat());
        assert_eq!(judged.code, Some(0), "{arguments:?}: {}", judged.stderr);
        assert_eq!(judged.stderr, "", "{arguments:?}");
    }
    // The file that they name is judged, as are they.
    fs::write(&rules, "a a* nonsense\n").expect("write");
    let refused = run(&["--check-options", "--rules", &rules]);
    assert_eq!(refused.code, Some(WRONG_OPTIONS), "{}", refused.stdout);
    assert!(refused.stderr.contains(&rules), "{}", refused.stderr);
    daemon.server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
}

/// An option was meant. systemd expands no variable in a file of variables, and keeps quotes there.
#[test]
fn a_word_that_is_not_an_option_is_refused_by_name() {
    let served = ["-l", "127.0.0.1", "-p", "0"];
    for word in ["word", "-", "a—b", "$ARGS", "{{ARGS}}", "\"--private\"", " ", "10.1.2.3"] {
        let first = [&[word], &served[..]].concat();
        let last = [&served[..], &[word]].concat();
        let behind = [&served[..], &["--", word]].concat();
        let after_an_empty_one = [&["", word], &served[..]].concat();
        let check = [&["--check-options"], &served[..], &[word]].concat();
        for arguments in [first, last, behind, after_an_empty_one, check] {
            let refused = run(&arguments);
            assert_eq!(refused.code, Some(WRONG_OPTIONS), "{arguments:?}: {}", refused.stdout);
            let named = format!("error: {word:?} is not an option\n");
            assert_eq!(refused.stderr, named, "{arguments:?}");
        }
    }
    for option in ["--private", "--allow=::1"] {
        let refused = run(&[&served[..], &["--", option]].concat());
        assert_eq!(refused.stderr, format!("error: {option:?} is not an option\n"));
    }
}

/// Such as a variable of a container that is not set.
#[test]
fn an_empty_word_is_passed_over() {
    let server = Server::start_with(&["", "--private", "", ""]);
    server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
    restart(&server);
    server.connect().exchange("ACQ4ME k2 1 1 0", "LOCKED");
    // The value of an option is no such word.
    assert_eq!(run(&["--rules", "", "--check-options"]).code, Some(WRONG_OPTIONS));
}

/// Copied from a wiki or a chat: without the option, everybody would be admitted.
#[test]
fn a_word_that_begins_with_a_typographic_dash_is_refused() {
    let served = ["-l", "127.0.0.1", "-p", "0"];
    let dashes = "\u{2010}\u{2011}\u{2012}\u{2013}\u{2014}\u{2015}\u{2212}\u{fe58}\u{fe63}\u{ff0d}";
    let words = dashes.chars().map(|dash| (format!("{dash}allow"), "type --allow"));
    let others = [
        ("——allow=::1", "type --allow=::1"),
        ("–-allow", "type --allow"),
        ("–p", "type -p"),
        ("−p7531", "type -p7531"),
        ("—", "type -"),
    ];
    let others = others.map(|(word, right)| (word.to_owned(), right));
    for (word, right) in words.chain(others) {
        let first = [&[&*word, "10.0.0.0/8"], &served[..]].concat();
        let last = [&served[..], &[&word]].concat();
        let behind = [&served[..], &["--", &word]].concat();
        let value = [&served[..], &["--control", &word, "10.0.0.0/8"]].concat();
        let reload = [&["--reload"], &served[..], &[&word]].concat();
        for arguments in [first, last, behind, value, reload] {
            let refused = run(&arguments);
            assert_eq!(refused.code, Some(WRONG_OPTIONS), "{arguments:?}");
            let line = refused.stderr.lines().next().unwrap_or_default();
            assert!(line.contains(&word) && line.contains(right), "{arguments:?}: {line}");
        }
    }
    // Values of options.
    for arguments in [["-–allow", "::1"], ["--allow", "—10.0.0.0/8"], ["-l", "—"]] {
        let refused = run(&arguments);
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{arguments:?}: {}", refused.stderr);
    }
}

#[test]
fn check_asks_a_daemon_whether_it_serves() {
    let server = Server::start();
    let passed = run(&["--check", &server.address().to_string()]);
    assert_eq!(passed.code, Some(0), "{}", passed.stderr);
    // Without an address: localhost, and the port of -p.
    let port = server.address().port().to_string();
    let passed = run(&["-p", &port, "--check"]);
    assert_eq!(passed.code, Some(0), "{}", passed.stderr);
    let errors = server.counter("connect_errors") + server.counter("failed_sends");
    assert_eq!(errors, 0, "a check counts as an error");
}

/// As keepalived does in docs/guide/several-daemons.
#[test]
fn check_asks_a_control_socket() {
    let daemon = Operated::start();
    let path = daemon.path();
    let passed = run(&["--check", &path]);
    assert_eq!(passed.code, Some(0), "{}", passed.stderr);
    assert!(passed.stdout.starts_with("uptime: "), "{}", passed.stdout);
    drop(daemon);
    let failed = run(&["--check", &path]);
    assert_eq!(failed.code, Some(1), "{}", failed.stdout);
    assert!(failed.stderr.contains(&format!("Check failed: {path}: ")), "{}", failed.stderr);
}

#[test]
fn check_asks_the_reference_too() {
    let Some(reference) = Server::reference() else { return };
    let passed = run(&["--check", &reference.address().to_string()]);
    assert_eq!(passed.code, Some(0), "{}", passed.stderr);
}

#[test]
fn check_fails_without_a_listener() {
    // Bound but not listening: no other process can get the port meanwhile.
    let silent = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .expect("socket");
    bind(&silent, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let address = getsockname(&silent).expect("an address");
    let address = SocketAddr::try_from(address).expect("an IP address");
    let failed = run(&["--check", &address.to_string()]);
    assert_eq!(failed.code, Some(1));
    let why = format!("Check failed: {address}: Connection refused");
    assert!(failed.stderr.contains(&why), "no reason: {}", failed.stderr);
    // As docs/operate/procedures.md shows it: an address without a port gets that of -p.
    let port = address.port().to_string();
    let failed = run(&["-p", &port, "--check", "127.0.0.1"]);
    assert!(failed.stderr.contains(&why), "no reason: {}", failed.stderr);
}

#[test]
fn check_fails_if_another_server_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let failed = run(&["--check", &address]);
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    other.join().expect("the other server");
}

#[test]
fn check_reports_that_it_is_not_admitted() {
    let server = Server::start_with(&["--allow", "127.9.9.9"]);
    let failed = run(&["--check", &server.address().to_string()]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains("--allow"), "{}", failed.stderr);
    // Not the refused connection to ::1, which it tries next.
    let failed = run(&["--check", "-p", &server.address().port().to_string()]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains("--allow"), "{}", failed.stderr);
}

/// Checks a server that never completes a line and calls `send_more` every half second.
fn check_of_a_slow_server(send_more: fn(&mut TcpStream) -> bool) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
        // Until the check disconnects.
        let has_gone = |stream: &mut TcpStream| match stream.read(&mut [0; 64]) {
            Ok(len) => len == 0,
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        while !has_gone(&mut stream) {
            send_more(&mut stream);
        }
    });
    let failed = run(&["--check", &address]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains("timed out"), "{}", failed.stderr);
    server.join().expect("the server");
}

#[test]
fn check_ends_if_the_server_is_silent() {
    check_of_a_slow_server(|_| false);
}

#[test]
fn check_ends_if_the_server_sends_single_bytes() {
    check_of_a_slow_server(|stream| stream.write_all(b"u").is_ok());
}

#[test]
fn check_fails_on_an_invalid_address() {
    for bad in ["nowhere.invalid:7531", "127.0.0.1:port", ":"] {
        let failed = run(&["--check", bad]);
        assert_eq!(failed.code, Some(1), "{bad}");
        assert!(!failed.stderr.is_empty(), "{bad}");
    }
}
