//! Operators' rules: the file of `--rules`, and `RULE` orders.

use crate::support::crowd::{connect_crowd, crowd_size};
use crate::support::notified::Notified;
use crate::support::operated::{Operated, Operator};
use crate::support::restart::{Place, restart};
use crate::support::status::WRONG_OPTIONS;
use crate::support::{Server, daemon_command, eventually, finish};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const FILE_BYTES_MAX: usize = 64 << 10;

/// A directory with the daemon's binary and a file of rules.
fn place_with(rules: &str) -> (Place, String) {
    let place = Place::with_daemon();
    fs::write(place.path("rules"), rules).expect("write");
    let path = place.path("rules").display().to_string();
    (place, path)
}

/// Asserts that neither a start nor a check accepts it.
#[track_caller]
fn assert_refused(path: &str, named: &str) {
    let start = ["-l", "127.0.0.1", "-p", "0", "--rules", path];
    for arguments in [&start[..], &["--check-rules", path]] {
        let refused = finish(&mut daemon_command(arguments));
        let printed = refused.stderr.chars().take(500).collect::<String>();
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{named}: {printed}");
        assert_eq!(refused.stdout, "", "{named}");
        for part in [path, named] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
    }
}

#[test]
fn a_start_refuses_a_bad_file_and_names_the_line() {
    let (_place, path) = place_with("a *\n# a remark\n\na b*\n");
    assert_refused(&path, "line 4");
    fs::write(&path, "#".repeat(FILE_BYTES_MAX + 1)).expect("write");
    assert_refused(&path, "more than 65536");
}

#[test]
fn a_start_refuses_what_is_not_a_regular_file() {
    let place = Place::new();
    let path = |name: &str| place.path(name).display().to_string();
    let made = Command::new("mkfifo").arg(path("fifo")).status();
    assert!(made.expect("mkfifo").success());
    std::os::unix::fs::symlink(path("fifo"), path("link")).expect("a link");
    for name in ["", "missing", "fifo", "link", "missing/rules"] {
        // A FIFO without a writer would block for ever.
        assert_refused(&path(name), &path(name));
    }
    // Not even root can read it from its beginning.
    assert_refused("/proc/self/mem", "error");
}

/// As many, and in a file as large, as there may be. JSON doubles each backslash in the answer of
/// the new binary.
#[test]
fn the_longest_rules_survive_a_hot_restart() {
    let (most, time) = ("4294967295", "49709d23h59m59s");
    let settings = format!(
        "workers={most} maxqueue={most} timeout={time} total={most} max-hold={time} \
         stuck-after={time} deny"
    );
    let rule = |n| format!("a{n:031} {} {settings}", "\\xff".repeat(64));
    let rules: Vec<String> = (0..64).map(rule).collect();
    let file = rules.join("\n") + "\n";
    let remark = "#".repeat(FILE_BYTES_MAX - file.len());
    let daemon = Operated::start_with_rules(&(file + &remark), &[]);
    restart(&daemon.server);
    let lines = daemon.operator().list(b"RULES");
    let listed = |line: &String| line.split_whitespace().skip(6).collect::<Vec<_>>().join(" ");
    assert_eq!(lines[3..].iter().map(listed).collect::<Vec<_>>(), rules);
}

#[test]
fn check_rules_prints_what_applies_to_each_key() {
    let (_place, path) = place_with(
        "# name     pattern                 settings\n\
         articles   *cache:*\n\
         search     CirrusSearch-Search:*   workers=180 maxqueue=200 # a remark\n\
         \n\
         coffee     caf\\xc3\\xa9*\n\
         bots       enwiki:ApiParse:a:*     deny\n\
         enwiki     enwiki:*                workers=7 total=400 stuck-after=never",
    );
    let valid = finish(&mut daemon_command(&["--check-rules", &path]));
    assert_eq!((valid.code, valid.stderr.as_str()), (Some(0), ""));
    assert!(valid.stdout.contains("5 rules"), "{}", valid.stdout);
    let keys = [
        (
            "enwiki:rcache:1234567:canonical",
            "group articles",
            "workers=7 (enwiki) total=400 (enwiki)",
        ),
        ("CirrusSearch-Search:_elasticsearch", "group search", "workers=180 (search) maxqueue=200"),
        ("enwiki:ApiParse:a:198.51.100.7", "group bots", "deny (bots)"),
        ("caf\\xc3\\xa9", "group coffee", ""),
        ("my_wiki:ApiParse:a:198.51.100.7", "group other", ""),
    ];
    let mut arguments = vec!["--check-rules", &path];
    arguments.extend(keys.map(|(key, ..)| key));
    let explained = finish(&mut daemon_command(&arguments));
    assert_eq!((explained.code, explained.stderr.as_str()), (Some(0), ""));
    for (key, group, settings) in keys {
        let mut lines = explained.stdout.lines();
        let line = lines.find(|line| line.starts_with(&format!("{key}: ")));
        let line = line.unwrap_or_else(|| panic!("no {key} in {}", explained.stdout));
        assert!(line.contains(group) && line.contains(settings), "{line}");
    }
    let search = explained.stdout.lines().find(|line| line.starts_with("CirrusSearch-Search:"));
    assert!(!search.expect("a line").contains("enwiki"), "{}", explained.stdout);
    let no_key = finish(&mut daemon_command(&["--check-rules", &path, "k\\x"]));
    assert_ne!(no_key.code, Some(0));
    assert!(no_key.stderr.contains("k\\x"), "{}", no_key.stderr);
}

/// The new binary on trial has not seen an order given meanwhile.
#[test]
fn an_order_during_a_trial_loses_no_lock() {
    let rules: String = (0..63).map(|n| format!("r{n} key{n}\n")).collect();
    let daemon = Operated::start_with_rules(&rules, &[]);
    let mut holder = daemon.server.connect();
    holder.exchange("ACQ4ME k 1 9 0", "LOCKED");
    daemon.place.install_script(
        "case $1 in --read-snapshot) echo begun > $HERE/begun
         while [ ! -e $HERE/go ]; do sleep 0.01; done;; esac
         exec $REAL \"$@\"",
    );
    let path = daemon.place.path("rules").display().to_string();
    let options = ["-l", "127.0.0.1", "-p", "0", "--rules", &path, "--max-hold", "*=600"];
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| daemon.reload(&options));
        daemon.place.wait_for_file("begun");
        // Together with the new option this is one rule too many.
        assert_eq!(daemon.ask("RULE SET bots bot:* deny"), "OK rule bots bot:* deny");
        daemon.place.touch("go");
        let done = reload.join().expect("it ends");
        assert!(matches!(done.code, Some(0 | 1)), "{}", done.stderr);
    });
    holder.exchange("RELEASE", "RELEASED");
    holder.exchange("ACQ4ME bot:1 1 9 0", "QUEUE_FULL");
}

#[test]
fn several_limits_in_one_max_hold_option_are_warned_of() {
    let daemon = Operated::start_with(&["--max-hold", "*=1,b=2", "--max-hold", "c=3"]);
    daemon.server.log.wait_for("--max-hold: *=1,b is one pattern");
    restart(&daemon.server);
    assert!(eventually(|| daemon.server.log.count("is one pattern") == 2));
}

/// The daemon itself tells the watchdog each 10 ms here, and needs 3.4 ns for each byte of a key
/// (docs/development/evidence.md).
#[test]
fn the_watchdog_hears_of_the_daemon_during_a_long_change_of_rules() {
    let clients = crowd_size(2_000);
    let place = Place::with_daemon();
    let notified = Notified::at_path("long-change");
    let path = place.path("control.sock").display().to_string();
    let mut command = place.command(&["-l", "127.0.0.1", "-p", "0", "--control", &path]);
    command.env("NOTIFY_SOCKET", &notified.name).env("WATCHDOG_USEC", "40000");
    let server = Server::spawn(&mut command);
    let mut crowd = connect_crowd(server.address(), clients);
    for (n, client) in crowd.iter_mut().enumerate() {
        for depth in 0..4 {
            let key = format!("{n}:{depth}{}", ":".repeat(4_000));
            client.exchange(&format!("ACQ4ME {key} 1 9 60"), "LOCKED");
        }
    }
    // The queue must have room.
    while notified.has_more() {
        notified.receive();
    }
    let has_answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let answer = Operator::connect(&path).ask("RULE SET slow *:pcache:* max-hold=10m");
            assert!(answer.starts_with("OK"), "{answer}");
            has_answered.store(true, Ordering::Relaxed);
        });
        // Other messages also have a status.
        while notified.receive() != "WATCHDOG=1\n" {
            let is_over = has_answered.load(Ordering::Relaxed) && !notified.has_more();
            assert!(!is_over, "the change took a turn without a message");
        }
    });
}
