//! The intended differences from Debian's daemon, each with a test that shows its wrong
//! behaviour and our right one.
//!
//! | the reference | test |
//! |---|---|
//! | runs each TCP segment separately | [`a_command_may_come_in_pieces`] |
//! | drops a second command in one segment | [`commands_may_come_together`] |
//! | forgets the timeout of a waiter that sends a command | [`a_waiter_that_sends_a_command_times_out`] |
//! | `RELEASE` while waiting sends `DONE` to others, leaks `waiting_workers` | [`cancelling_a_wait_affects_no_other_client`] |
//! | a lock handed on counts its wait as processing time and as gained time | [`times_begin_at_locked`] |
//! | numbers wrap at 32 bits | [`numbers_do_not_wrap`] |
//! | `ERROR WRONG_STAT` has no line end | [`wrong_stat_is_a_line`] |
//! | drops 1024 bytes of a long line, runs its tail as a command | [`the_tail_of_a_long_line_is_no_command`] |
//! | runs commands in the body of an HTTP request | [`the_body_of_an_http_request_is_no_command`] |
//! | a NUL ends the line | [`a_nul_is_a_byte_of_its_line`] |
//! | listen backlog of 20 | [`the_backlog_is_deep`] |
//! | spins when out of descriptors, each turn a `connect_errors` | [`out_of_descriptors_is_one_error`] |
//! | cannot restart while a connection lingers | [`restarts_while_a_connection_lingers`] |
//! | drops replies that do not fit into the socket buffer | [`no_reply_is_dropped`] |
//!
//! Not tested here, because that would take months, a power cut or access to the
//! internals of the reference: times in 32-bit floats, keepalive, the hash without a
//! seed.

use rustix::net::sockopt;
use std::process::Command;
use std::time::Duration;

use crate::support::stopwatch::Stopwatch;
use crate::support::{
    Client, DAEMON, Server, backlog, backlog_granted, daemon_command, finish, launched,
    reference_command,
};

/// Plays the same with both; returns the results of the reference and of our daemon.
/// `None`, with a message, without a reference.
fn both<T>(play: impl Fn(&Server) -> T) -> Option<(T, T)> {
    let reference = Server::reference()?;
    Some((play(&reference), play(&Server::start())))
}

/// Everything that the client has received, once all input is handled.
fn received(server: &Server, client: &mut Client) -> String {
    client.wait_a_moment();
    server.settle();
    let (bytes, _) = client.take_all();
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_command_may_come_in_pieces() {
    let answers = both(|server| {
        let mut client = server.connect();
        client.exchange("ACQ4ME k 1 1 0", "LOCKED");
        client.send_bytes(b"REL");
        server.settle();
        client.send_bytes(b"EASE\n");
        received(server, &mut client)
    });
    let Some((reference, ours)) = answers else { return };
    assert_eq!(reference, "ERROR BAD_COMMAND\n");
    assert_eq!(ours, "RELEASED\n");
}

#[test]
fn commands_may_come_together() {
    let answers = both(|server| {
        let mut client = server.connect();
        client.send_bytes(b"ACQ4ME k 1 1 0\nRELEASE\nRELEASE\n");
        received(server, &mut client)
    });
    let Some((reference, ours)) = answers else { return };
    assert_eq!(reference, "LOCKED\n");
    assert_eq!(ours, "LOCKED\nRELEASED\nNOT_LOCKED\n");
}

#[test]
fn a_waiter_that_sends_a_command_times_out() {
    let answers = both(|server| {
        let (mut holder, mut talker, mut quiet) =
            (server.connect(), server.connect(), server.connect());
        holder.exchange("ACQ4ME k 1 9 0", "LOCKED");
        talker.send("ACQ4ME k 1 9 1");
        server.settle();
        let first = talker.ask("HELLO");
        // This wait began later with the same timeout: when it ends, the other has ended
        // too.
        quiet.exchange("ACQ4ME k 1 9 1", "TIMEOUT");
        [first + "\n", received(server, &mut talker)].concat()
    });
    let Some((reference, ours)) = answers else { return };
    // A test that was not scheduled for a second has sent its command too late: that
    // proves nothing.
    let too_late = "TIMEOUT\nERROR BAD_COMMAND\n";
    assert!(reference == "ERROR BAD_COMMAND\n" || reference == too_late, "{reference:?}");
    assert!(ours == "ERROR BAD_COMMAND\nTIMEOUT\n" || ours == too_late, "{ours:?}");
}

#[test]
fn cancelling_a_wait_affects_no_other_client() {
    let answers = both(|server| {
        let (mut holder, mut waiter, mut canceller) =
            (server.connect(), server.connect(), server.connect());
        holder.exchange("ACQ4ANY k 1 9 60", "LOCKED");
        waiter.send("ACQ4ANY k 1 9 60");
        canceller.send("ACQ4ME k 1 9 60");
        server.settle();
        canceller.exchange("RELEASE", "RELEASED");
        let to_waiter = received(server, &mut waiter);
        drop((holder, waiter, canceller));
        let mut control = server.connect();
        control.wait_for_counter("hashtable_entries", |n| n == 0);
        (to_waiter, control.counter("waiting_workers"))
    });
    let Some((reference, ours)) = answers else { return };
    assert_eq!(reference, ("DONE\n".to_owned(), 1));
    assert_eq!(ours, (String::new(), 0));
}

/// What a lock that a client waited for adds to the processing and gained times, and a stopwatch
/// that was started before the lock was handed on: it may add no more than has passed since.
fn handed_on(server: &Server) -> ([f64; 2], Stopwatch) {
    let (mut first, mut second, mut clock) = (server.connect(), server.connect(), server.connect());
    first.exchange("ACQ4ME k 1 9 0", "LOCKED");
    second.send("ACQ4ME k 1 9 60");
    server.settle();
    // A second passes while the second client waits.
    clock.exchange("ACQ4ME k 1 9 1", "TIMEOUT");
    let since_handed_on = Stopwatch::start();
    first.send("RELEASE");
    second.expect("LOCKED");
    first.expect("RELEASED");
    let mut good = server.connect();
    good.send("ACQ4ANY k 1 9 60");
    server.settle();
    let before = clock.seconds("total processing time");
    second.exchange("RELEASE", "RELEASED");
    good.expect("DONE");
    let processing = clock.seconds("total processing time") - before;
    ([processing, clock.seconds("gained time")], since_handed_on)
}

#[test]
fn times_begin_at_locked() {
    let Some(((reference, _), (ours, since_handed_on))) = both(handed_on) else { return };
    assert!(reference.iter().all(|&s| s >= 0.99), "the reference: {reference:?}");
    for seconds in ours {
        since_handed_on.at_least(Duration::from_secs_f64(seconds));
    }
}

#[test]
fn numbers_do_not_wrap() {
    let answers = both(|server| {
        let (mut a, mut b) = (server.connect(), server.connect());
        let zero = a.ask("ACQ4ME zero 4294967296 9 0");
        a.exchange("ACQ4ME one 4294967297 9 0", "LOCKED");
        [zero, b.ask("ACQ4ME one 4294967297 9 0")]
    });
    let Some((reference, ours)) = answers else { return };
    assert_eq!(reference, ["ERROR BAD_SYNTAX", "TIMEOUT"]);
    assert_eq!(ours, ["LOCKED", "LOCKED"]);
}

#[test]
fn wrong_stat_is_a_line() {
    let answers = both(|server| {
        let mut client = server.connect();
        client.send("STATS nope");
        received(server, &mut client)
    });
    let Some((reference, ours)) = answers else { return };
    assert_eq!(reference, "ERROR WRONG_STAT");
    assert_eq!(ours, "ERROR WRONG_STAT\n");
}

#[test]
fn the_tail_of_a_long_line_is_no_command() {
    let answers = both(|server| {
        let mut client = server.connect();
        client.exchange("ACQ4ME k 1 1 0", "LOCKED");
        client.send(&format!("{}RELEASE", "x".repeat(8192)));
        client.line()
    });
    let Some((reference, ours)) = answers else { return };
    assert_eq!(reference, "RELEASED");
    assert_eq!(ours, "ERROR LINE_TOO_LONG a line has at most 4096 bytes");
}

#[test]
fn the_body_of_an_http_request_is_no_command() {
    let answers = both(|server| {
        let mut client = server.connect();
        // The reference takes a segment for a line.
        for line in ["POST / HTTP/1.1\r\n", "Host: a\r\n", "ACQ4ME k 1 1 0\n"] {
            client.send_bytes(line.as_bytes());
            if received(server, &mut client).is_empty() {
                break;
            }
        }
        server.counter("processing_workers")
    });
    let Some((reference, ours)) = answers else { return };
    assert_eq!((reference, ours), (1, 0));
}

#[test]
fn a_nul_is_a_byte_of_its_line() {
    let answers = both(|server| {
        let (mut a, mut b) = (server.connect(), server.connect());
        a.send_bytes(b"ACQ4ME a\0b 1 1 0\n");
        b.send_bytes(b"ACQ4ME a\0c 1 1 0\n");
        [received(server, &mut a), received(server, &mut b)]
    });
    let Some((reference, ours)) = answers else { return };
    assert_eq!(reference, ["ERROR BAD_SYNTAX\n"; 2]);
    assert_eq!(ours, ["LOCKED\n"; 2]);
}

#[test]
fn the_backlog_is_deep() {
    let backlogs = both(|server| backlog(server.address()));
    let Some((reference, ours)) = backlogs else { return };
    assert_eq!(reference, 20);
    assert_eq!(ours, backlog_granted(4096));
}

#[test]
fn out_of_descriptors_is_one_error() {
    let launcher = ["prlimit", "--nofile=64:64"];
    let Some(reference) = Server::reference_under(&launcher) else { return };
    let mut command = launched(&launcher, DAEMON, &["-l", "127.0.0.1", "-p", "0"]);
    let ours = Server::spawn(&mut command);
    for (server, least, most) in [(&reference, 1000, u64::MAX), (&ours, 1, 1)] {
        let mut control = server.connect();
        // More connections than it can serve. The reference's backlog of 20 holds the
        // rest.
        let crowd: Vec<Client> = (0..72).map(|_| server.connect()).collect();
        control.wait_for_counter("connect_errors", |n| n >= least);
        let errors = control.counter("connect_errors");
        assert!(errors <= most, "{errors} connect_errors");
        drop(crowd);
    }
}

#[test]
fn restarts_while_a_connection_lingers() {
    let Some(reference) = Server::reference() else { return };
    let ip = reference.address().ip().to_string();
    let mut lingering = reference.connect();
    lingering.exchange("ACQ4ME k 1 1 0", "LOCKED");
    drop(reference);
    let again = finish(&mut reference_command(&[], &ip));
    assert_eq!(again.code, Some(1));
    assert_eq!(again.stderr, "Couldn't bind: Address already in use\n");

    let ours = Server::start();
    let port = ours.address().port().to_string();
    let mut lingering = ours.connect();
    lingering.exchange("ACQ4ME k 1 1 0", "LOCKED");
    drop(ours);
    let again = Server::spawn(&mut daemon_command(&["-l", "127.0.0.1", "-p", &port]));
    again.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
}

#[test]
fn no_reply_is_dropped() {
    let Some(reference) = Server::reference() else { return };
    let theirs = leave_unread(&reference);
    assert!(theirs.missing > 0 && theirs.failed_sends > 0, "{theirs:?}");
    let ours = leave_unread(&Server::start());
    assert_eq!((ours.missing, ours.failed_sends), (0, 0));
}

#[derive(Debug)]
struct Unread {
    /// Answers that never arrived.
    missing: usize,
    failed_sends: u64,
}

/// Asks without reading until the kernel lacks 10 KiB of the answers: the daemon has kept
/// or dropped them. Then reads. Our daemon keeps 64 KiB for a client, so the answers to
/// one step are much smaller, whatever the kernel accepts.
fn leave_unread(server: &Server) -> Unread {
    const QUESTIONS: usize = 64;
    let mut control = server.connect();
    let mut slow = Client::connect_with_small_buffer(server.address());
    let (mut asked, mut answered_bytes, mut kernel_had) = (0, 0, 0);
    while answered_bytes < kernel_had + 10 * 1024 {
        for _ in 0..QUESTIONS {
            slow.send("STATS FULL");
            control.ask("STATS UPTIME");
        }
        asked += QUESTIONS;
        let answer = control.stats_full().join("\n") + "\n\n";
        answered_bytes += QUESTIONS * answer.len();
        assert!(QUESTIONS * answer.len() < 45_000, "too much for one step");
        kernel_had = bytes_in_kernel(server, &slow);
    }
    let failed_sends = control.counter("failed_sends");
    slow.shut_writing();
    // The client reads now, and faster than one small window at a time.
    sockopt::set_socket_recv_buffer_size(slow.stream(), 1 << 20).expect("SO_RCVBUF");
    let answered = slow.read_to_end().matches("\n\n").count();
    Unread { missing: asked - answered, failed_sends }
}

/// Bytes for the client in the kernel's buffers, on either side.
fn bytes_in_kernel(server: &Server, client: &Client) -> usize {
    let theirs = server.address().to_string();
    let own = client.stream().local_addr().expect("an address").to_string();
    // Columns: bytes received and not read, bytes sent and not acknowledged.
    queue(&theirs, &own, 1) + queue(&own, &theirs, 0)
}

fn queue(from: &str, to: &str, column: usize) -> usize {
    let mut ss = Command::new("ss");
    let output = ss.args(["-tnH", "state", "established", "src", from, "dst", to]).output();
    let output = output.expect("run ss, of iproute2");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let field = text.split_whitespace().nth(column).and_then(|f| f.parse().ok());
    field.unwrap_or_else(|| panic!("ss prints {text:?} for {from} to {to}"))
}
