//! What the daemon writes to standard error, for the journal and for others.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::support::status::NO_ADDRESS;
use crate::support::{Server, daemon_command, finish};
use rustix::process::Signal;

/// A daemon whose stderr is a Unix socket, as under systemd. `stream` makes
/// `JOURNAL_STREAM` from the socket's device and inode.
fn with_journal(stream: impl Fn(u64, u64) -> String) -> Server {
    let (theirs, ours) = UnixStream::pair().expect("a pair");
    let stat = rustix::fs::fstat(&theirs).expect("fstat");
    let mut command = daemon_command(&["-l", "127.0.0.1", "-p", "0"]);
    command.stderr(OwnedFd::from(theirs)).env("RUST_LOG", "debug");
    command.env("JOURNAL_STREAM", stream(stat.st_dev, stat.st_ino));
    Server::spawn_logging(&mut command, ours)
}

#[test]
fn lines_for_the_journal_have_a_priority_and_no_time() {
    let server = with_journal(|device, inode| format!("{device}:{inode}"));
    server.connect().exchange("ACQ4ME some:key 1 1 0", "LOCKED");
    let command = server.log.wait_for("some:key");
    assert!(command.starts_with("<7>"), "{command}");
    let start = server.log.wait_for("listening on ");
    assert!(start.starts_with("<6>"), "{start}");
    for line in server.log.lines() {
        assert!(!has_time(&line), "{line}");
    }
}

#[test]
fn a_journal_stream_of_another_socket_is_ignored() {
    let server = with_journal(|device, inode| format!("{device}:{}", inode + 1));
    let start = server.log.wait_for("listening on ");
    assert!(!start.starts_with('<') && has_time(&start), "{start}");
}

/// Such as 2026-01-31T12:34:56.
fn has_time(line: &str) -> bool {
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    line.as_bytes().windows(11).any(|w| {
        digits(&w[..4]) && w[4] == b'-' && digits(&w[5..7]) && w[7] == b'-' && w[10] == b'T'
    })
}

#[test]
fn one_line_lists_the_addresses() {
    let mut server = Server::start();
    for n in 0..20 {
        let mut client = server.connect();
        client.exchange(&format!("ACQ4ME k{n} 1 1 0"), "LOCKED");
        client.exchange("NONSENSE", "ERROR BAD_COMMAND");
    }
    server.settle();
    let lines = server.log.lines();
    assert_eq!(lines.len(), 1, "clients are logged: {lines:#?}");
    assert!(lines[0].contains(&server.address().to_string()), "{lines:?}");
    server.signal(Signal::TERM);
    server.wait_for_exit();
}

#[test]
fn rust_log_shows_each_command_and_its_answer() {
    let mut command = daemon_command(&["-l", "127.0.0.1", "-p", "0"]);
    let server = Server::spawn(command.env("RUST_LOG", "debug"));
    let mut client = server.connect();
    client.exchange("ACQ4ME article:17 1 1 0", "LOCKED");
    client.exchange("RELEASE", "RELEASED");
    client.exchange("NONSENSE", "ERROR BAD_COMMAND");
    client.exchange("STATS total_acquired", "total_acquired: 1");
    client.ask("STATS KEY other");
    server.log.wait_for("article:17");
    server.log.wait_for("LOCKED");
    server.log.wait_for("RELEASED");
    server.log.wait_for("BAD_COMMAND");
    server.log.wait_for("< total_acquired: 1");
    // Of a longer answer, only the first line and the length.
    server.log.wait_for("< key: other (and ");
}

/// An inherited environment must not prevent a start.
#[test]
fn an_invalid_rust_log_is_a_warning() {
    for wrong in ["loud", "poolcounterd=loud"] {
        let mut command = daemon_command(&["-l", "127.0.0.1", "-p", "0"]);
        let server = Server::spawn(command.env("RUST_LOG", wrong));
        let warning = server.log.wait_for("RUST_LOG");
        assert!(warning.contains("WARN") && warning.contains("error, warn, info"), "{warning}");
    }
}

#[test]
fn an_empty_rust_log_is_ignored() {
    let mut command = daemon_command(&["-l", "127.0.0.1", "-p", "0"]);
    let server = Server::spawn(command.env("RUST_LOG", ""));
    assert_eq!(server.log.count("RUST_LOG"), 0);
}

#[test]
fn rust_log_silences_too() {
    let mut command = daemon_command(&["-l", "192.0.2.1", "-p", "0"]);
    let quiet = finish(command.env("RUST_LOG", "off"));
    assert_eq!(quiet.code, Some(NO_ADDRESS));
}
