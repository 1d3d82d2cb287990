//! User memory is bounded, whatever clients do, and is freed when they leave. The
//! bounds are those of docs/reference/sizing.md.

use crate::support::crowd::{connect_crowd, crowd_size, expect_empty, private_bytes, start_apart};
use crate::support::restart::{CONTINUED, children};
use crate::support::{Client, PATIENCE, Server, daemon_command, next_address};
use rustix::net::sockopt;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How much half a line may use: docs/reference/protocol.md.
const LINE_BYTES_MAX: usize = 4096;
/// How much a client may leave unread, 64 KiB, and room for the next answer.
const UNREAD_BYTES_MAX: usize = 68 * 1024;
/// A lock: its key, which fits in a line, and the engine's data about it.
const LOCK_BYTES_MAX: usize = LINE_BYTES_MAX + 256;
/// A connection with nothing of the above, including the allocator's overhead.
const CONNECTION_BYTES_MAX: usize = 1024;

fn assert_bounded(server: &Server, before: usize, clients: usize, bytes_each: usize) {
    let used = private_bytes(server).saturating_sub(before);
    println!(
        "{clients} clients take {used} bytes, {} each; the bound is {bytes_each}",
        used / clients
    );
    assert!(used <= clients * bytes_each, "{} bytes each", used / clients);
}

#[test]
fn sixteen_thousand_with_the_longest_line_half_sent() {
    let half = vec![b'x'; LINE_BYTES_MAX - 1];
    // At once, and in pieces from all clients in turn: the worst case for the
    // allocator.
    for (clients, piece) in [(16_000, half.len()), (4_000, 512)] {
        let count = crowd_size(clients);
        let server = start_apart(3, &[]);
        let before = private_bytes(&server);
        let mut crowd = connect_crowd(server.address(), count);
        for piece in half.chunks(piece) {
            crowd.iter_mut().for_each(|client| client.send_bytes(piece));
        }
        server.settle();
        assert_bounded(&server, before, count, LINE_BYTES_MAX + CONNECTION_BYTES_MAX);
        // Half a line was not too long: the rest completes it.
        let mut first = crowd.swap_remove(0);
        first.exchange("", "ERROR BAD_COMMAND");
    }
}

#[test]
fn thousands_with_four_locks_of_the_longest_keys() {
    let count = crowd_size(4_000);
    let server = start_apart(7, &[]);
    let before = private_bytes(&server);
    let mut crowd = connect_crowd(server.address(), count);
    let rest = " 1 9 60\n";
    for (n, client) in crowd.iter_mut().enumerate() {
        for depth in 0..4 {
            let mut line = format!("ACQ4ME {depth}:{n}:");
            let padding = LINE_BYTES_MAX - line.len() - rest.len();
            line += &"k".repeat(padding);
            client.send_bytes((line + rest).as_bytes());
        }
        client.send_bytes(&[b'x'; LINE_BYTES_MAX - 1]);
    }
    for client in &mut crowd {
        (0..4).for_each(|_| client.expect("LOCKED"));
    }
    server.settle();
    let each = LINE_BYTES_MAX + 4 * LOCK_BYTES_MAX + CONNECTION_BYTES_MAX;
    assert_bounded(&server, before, count, each);
}

/// A daemon whose connections inherit a fixed buffer for output: the kernel's may grow to 4 MiB.
pub(crate) fn start_with_small_buffers() -> Server {
    let listener = TcpListener::bind((next_address(), 0)).expect("a port");
    sockopt::set_socket_send_buffer_size(&listener, 16 << 10).expect("SO_SNDBUF");
    Server::spawn(daemon_command(&[]).stdin(OwnedFd::from(listener)))
}

/// A client that asks for `STATS FULL` this many times, reads nothing, and begins the
/// longest line.
pub(crate) fn ask_and_look_away(address: SocketAddr, times: usize) -> Client {
    let mut client = Client::connect_with_small_buffer(address);
    client.send_bytes("STATS FULL\n".repeat(times).as_bytes());
    // Fails if the client was disconnected already.
    let _ = client.stream().write_all(&[b'x'; LINE_BYTES_MAX - 1]);
    client
}

/// Waits until everything sent by [`ask_and_look_away`] is handled: a turn handles
/// ten of its questions, and each answer here takes at least one turn.
pub(crate) fn expect_all_handled(control: &mut Client) {
    (0..40).for_each(|_| control.settle());
}

/// How many requests a client may leave unread without being disconnected.
pub(crate) fn questions_until_cut_off(server: &Server) -> usize {
    const STEP: usize = 4;
    let mut control = server.connect();
    for times in (STEP..100_000).step_by(STEP) {
        let _probe = ask_and_look_away(server.address(), times);
        expect_all_handled(&mut control);
        if control.counter("failed_sends") > 0 {
            return times - STEP;
        }
    }
    panic!("what a client leaves unread is unbounded");
}

#[test]
fn thousands_that_do_not_read_their_stats() {
    // 16,000 clients take a gigabyte, and the kernel three more for its buffers: only
    // with FULL_CROWD=1.
    let full = std::env::var_os("FULL_CROWD").is_some();
    let count = crowd_size(if full { 16_000 } else { 1_000 });
    let server = start_with_small_buffers();
    let times = questions_until_cut_off(&server);
    let before = private_bytes(&server);
    let ask = |times| ask_and_look_away(server.address(), times);
    let crowd: Vec<Client> = (0..count).map(|_| ask(times)).collect();
    // This connection is accepted after all the others: when it gets its answer, they
    // have got their first ones.
    ask(1).line();
    expect_all_handled(&mut server.connect());
    let used = private_bytes(&server) - before;
    assert!(used > count * UNREAD_BYTES_MAX / 2, "{used} bytes: unread answers are missing");
    let each = LINE_BYTES_MAX + UNREAD_BYTES_MAX + CONNECTION_BYTES_MAX;
    assert_bounded(&server, before, count, each);
    assert_eq!(crowd.len(), count);
    assert_eq!(server.counter("failed_sends"), 1, "only of the last probe");
}

/// The memory of a daemon that has already served a few clients, so that one-time
/// allocations are done.
fn private_bytes_in_use(server: &Server) -> usize {
    let mut few = connect_crowd(server.address(), 100);
    few.iter_mut().for_each(|client| client.exchange("ACQ4ME k 999 999 0", "LOCKED"));
    drop(few);
    expect_empty(server);
    private_bytes(server)
}

/// Bound for what the daemon records about clients and keys (docs/reference/sizing.md).
const OBSERVED_BYTES_MAX: usize = 5 << 20;

/// The memory that the allocator keeps varies by a fifth of this. This bound hides a leak
/// of up to half a byte per key for two million keys, or 26 bytes per client for 40,000
/// clients.
const ALLOCATOR_BYTES_MAX: usize = 1 << 20;

/// Waits until the daemon's memory is back to `before`.
#[track_caller]
fn expect_memory_back(server: &Server, before: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = private_bytes(server);
        if now <= before + ALLOCATOR_BYTES_MAX {
            println!(
                "{before} bytes before, {now} after all left, {ALLOCATOR_BYTES_MAX} more at most"
            );
            return;
        }
        assert!(Instant::now() < deadline, "{now} bytes, {before} before");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn memory_comes_back_when_a_crowd_has_left() {
    let count = crowd_size(16_000);
    let server = start_apart(5, &[]);
    let before = private_bytes_in_use(&server);
    // Records of the first crowd's keys (STATS TOP) stay; a second crowd adds nothing.
    come_and_go(&server, count);
    expect_memory_back(&server, before + OBSERVED_BYTES_MAX);
    let before = private_bytes(&server);
    come_and_go(&server, count);
    expect_memory_back(&server, before);
}

/// A crowd with four locks each and half a line.
fn come_and_go(server: &Server, count: usize) {
    let mut crowd = connect_crowd(server.address(), count);
    for (n, client) in crowd.iter_mut().enumerate() {
        for depth in 0..4 {
            client.send(&format!("ACQ4ME {depth}:{n}:{} 1 9 60", "k".repeat(200)));
        }
        client.send_bytes(&[b'x'; 1000]);
    }
    for client in &mut crowd {
        (0..4).for_each(|_| client.expect("LOCKED"));
    }
    println!("{} bytes with {count} clients", private_bytes(server));
    drop(crowd);
    expect_empty(server);
}

/// Returning memory stops the loop, in proportion to its amount.
#[test]
fn returning_memory_delays_clients_briefly() {
    let count = crowd_size(16_000);
    let server = start_apart(7, &[]);
    let mut crowd = connect_crowd(server.address(), count);
    for (n, client) in crowd.iter_mut().enumerate() {
        client.exchange(&format!("ACQ4ME {n}:{} 1 9 60", "k".repeat(4_060)), "LOCKED");
    }
    let full = private_bytes(&server);
    // Every tenth client stays: the memory between them is returned piece by piece.
    let mut n = 0;
    crowd.retain(|_| {
        n += 1;
        n % 10 == 0
    });
    let mut other = server.connect();
    other.wait_for_counter("processing_workers", |n| n as usize == crowd.len());
    let (deadline, mut longest) = (Instant::now() + PATIENCE, Duration::ZERO);
    while private_bytes(&server) > full / 2 {
        for _ in 0..50 {
            let begin = Instant::now();
            other.settle();
            longest = longest.max(begin.elapsed());
        }
        assert!(Instant::now() < deadline, "no memory was given back");
    }
    const ANSWER_MAX: Duration = Duration::from_millis(250);
    println!(
        "{count} keys of 4 kB, nine in ten gone: the longest answer took {longest:?}, \
         {ANSWER_MAX:?} is the bound"
    );
    assert!(longest < ANSWER_MAX, "{longest:?}");
}

/// How many keys each client of [`fifty_come_and_go`] locks and releases.
const KEYS: usize = 50;

fn fifty_come_and_go(server: &Server, round: usize) {
    let mut fifty: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    for (n, client) in fifty.iter_mut().enumerate() {
        let line = |k| format!("ACQ4ME {round}:{n}:{k} 1 9 0\nRELEASE\n");
        client.send_bytes((0..KEYS).map(line).collect::<String>().as_bytes());
    }
    for mut client in fifty {
        for _ in 0..KEYS {
            client.expect("LOCKED");
            client.expect("RELEASED");
        }
        client.reset();
    }
}

#[test]
fn clients_and_keys_that_come_and_go_leave_nothing() {
    let server = start_apart(6, &[]);
    fifty_come_and_go(&server, 0);
    expect_empty(&server);
    let before = private_bytes(&server);
    // 40,000 clients, never more than 50 at a time, and two million keys.
    for round in 1..=800 {
        fifty_come_and_go(&server, round);
    }
    expect_empty(&server);
    assert_eq!(server.counter("total_acquired"), 801 * 50 * KEYS as u64);
    expect_memory_back(&server, before);
}

/// The private bytes of a process; adds the sizes of its snapshots in memory files to
/// `files`, by inode. `None` once the process has ended.
fn anonymous_and_files(pid: u32, files: &mut BTreeMap<u64, u64>) -> Option<usize> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        let path = entry.ok()?.path();
        let is_file = |target: PathBuf| target.to_string_lossy().starts_with("/memfd:");
        if fs::read_link(&path).is_ok_and(is_file) {
            let meta = fs::metadata(&path).ok()?;
            files.insert(meta.ino(), meta.blocks() * 512);
        }
    }
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"))?;
    let kib: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(1024 * kib)
}

/// The memory of the daemon, of the new binary on trial, and of the snapshots.
fn bytes_in_all(server: &Server) -> usize {
    let mut files = BTreeMap::new();
    let processes = children(server.pid()).into_iter().chain([server.pid()]);
    let anonymous: usize = processes.filter_map(|pid| anonymous_and_files(pid, &mut files)).sum();
    anonymous + files.values().sum::<u64>() as usize
}

#[test]
fn a_hot_restart_takes_three_times_the_memory_at_most() {
    let count = crowd_size(4_000);
    let server = start_apart(8, &[]);
    let mut crowd = connect_crowd(server.address(), count);
    for (n, client) in crowd.iter_mut().enumerate() {
        for depth in 0..4 {
            // Bytes that a text format has to escape.
            let line = format!("ACQ4ME {depth}:{n}:{} 1 9 60", "\u{1}".repeat(4_000));
            client.send(&line);
        }
    }
    for client in &mut crowd {
        (0..4).for_each(|_| client.expect("LOCKED"));
    }
    server.settle();
    let before = bytes_in_all(&server);
    server.signal(Signal::USR1);
    let mut peak = 0;
    while server.log.count(CONTINUED) == 0 {
        peak = peak.max(bytes_in_all(&server));
    }
    server.settle();
    let after = bytes_in_all(&server);
    // The daemon, the snapshot and the new binary each hold all keys. The second process
    // also needs some memory of its own.
    let bound = before * 3 + 4_000_000;
    println!(
        "{before} bytes before a hot restart, {peak} at its peak (at most {bound}), \
         {after} after it (at most 1.1 times)"
    );
    assert!(peak > before * 3 / 2, "{peak} bytes: the restart was not observed");
    assert!(peak <= bound, "{peak} bytes");
    assert!(after * 10 <= before * 11, "{after} bytes");
}
