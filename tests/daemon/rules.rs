//! Operators' rules: the file of `--rules`, and `RULE` orders.

use crate::support::crowd::{connect_crowd, crowd_size};
use crate::support::notified::Notified;
use crate::support::operated::{Operated, Operator};
use crate::support::restart::{CONTINUED, Place, refused_restart, restart};
use crate::support::status::WRONG_OPTIONS;
use crate::support::{Client, Finished, Server, daemon_command, eventually, finish};
use rustix::process::Signal;
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

fn daemon_with(rules: &str) -> Operated {
    Operated::start_with_rules(rules, &[])
}

impl Operated {
    /// At once, as editors do: a daemon that reads the file now sees the old one or the new one.
    fn edit(&self, rules: &str) {
        let new = self.place.path("rules.new");
        fs::write(&new, rules).expect("write");
        fs::rename(new, self.place.path("rules")).expect("rename");
    }

    /// `poolcounterd --reload` with its own options.
    fn reload_rules(&self) -> Finished {
        let path = self.place.path("rules").display().to_string();
        self.reload(&["-l", "127.0.0.1", "-p", "0", "--rules", &path])
    }

    /// Gives an order, which must succeed; returns the rest of the answer.
    #[track_caller]
    fn order(&self, order: &str) -> String {
        let answer = self.ask(order);
        let rest = answer.strip_prefix("OK rule ");
        rest.unwrap_or_else(|| panic!("{order}: {answer}")).to_owned()
    }

    /// The rules as `RULES` lists them, without the other columns.
    fn rules(&self) -> Vec<String> {
        let lines = self.operator().list(b"RULES");
        lines[3..].iter().map(|line| columns(line)[6..].join(" ")).collect()
    }

    /// One column of `RULES` for the rule of this name.
    #[track_caller]
    fn column(&self, title: &str, rule: &str) -> String {
        let lines = self.operator().list(b"RULES");
        let at = columns(&lines[2]).iter().position(|t| *t == title).expect(title);
        let row = lines.iter().map(|line| columns(line)).find(|row| row.get(6) == Some(&rule));
        row.unwrap_or_else(|| panic!("no {rule} in {lines:#?}"))[at].to_owned()
    }

    /// The answer to a new client that asks for this lock without waiting.
    #[track_caller]
    fn asked(&self, key: &str) -> String {
        let mut client = self.server.connect();
        let answer = client.ask(&format!("ACQ4ME {key} 1 9 0"));
        if answer == "LOCKED" {
            client.exchange("RELEASE", "RELEASED");
        }
        answer
    }

    /// Waits until a new client gets this answer.
    #[track_caller]
    fn eventually_answers(&self, key: &str, expected: &str) {
        assert!(eventually(|| self.asked(key) == expected), "never {expected}");
    }
}

fn columns(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn many_rules(count: usize) -> String {
    (1..=count).map(|n| format!("r{n} key{n}\n")).collect()
}

/// Files that are invalid, and what the message names.
fn bad_files() -> Vec<(Vec<u8>, &'static str)> {
    let mut files: Vec<(Vec<u8>, &'static str)> = [
        ("a *\n# a remark\n\na b*\n", "line 4"),
        ("other *\n", "line 1"),
        ("a *\nb *\nOther *\n", "line 3"),
        ("a123456789012345678901234567890123 *\n", "line 1"),
        ("9a *\n", "line 1"),
        ("a *\nb\n", "line 2"),
        ("a * worker=1\n", "worker=1"),
        ("a *\nb * stuck-after=always", "line 2"),
        ("a * workers=1 maxqueue=2 workers=1\n", "line 1"),
        ("a * deny deny\n", "line 1"),
        ("a * deny=1\n", "line 1"),
        ("a * workers\n", "line 1"),
        ("a * workers=\n", "line 1"),
        ("a * workers=0\n", "line 1"),
        ("a * maxqueue=0\n", "line 1"),
        ("a * total=0\n", "line 1"),
        ("a * max-hold=0\n", "line 1"),
        ("a * stuck-after=0\n", "line 1"),
        ("a * workers=-1\n", "line 1"),
        ("a * workers=1.5\n", "line 1"),
        ("a *\nb * total=99999999999999999999999\n", "line 2"),
        ("a *\nb * max-hold=4294967296\n", "line 2"),
        ("a *\nb \\x4\n", "line 2"),
        ("a *\r\nb *\r\n", "line 1"),
        ("a *\n# \0\n", "line 2"),
        ("a *\nb \"b*\" deny\n", "line 2"),
        ("a *\nb 'a b*' deny\n", "line 2"),
        ("a *\nb a\\x20b deny\n", "%20"),
        ("a *\nb a\\x0ab deny\n", "line feed"),
        ("a *\nb deny\n", "line 2: rule b has no pattern"),
        ("a *\ndeny b*\n", "line 2: the name is missing"),
    ]
    .map(|(text, named)| (text.as_bytes().to_vec(), named))
    .to_vec();
    files.push((many_rules(65).into_bytes(), "line 65"));
    files.push((b"a *\nb \xff*\n".to_vec(), "line 2"));
    files.push((vec![b'#'; FILE_BYTES_MAX + 1], "65536"));
    files
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
    let place = Place::new();
    let path = place.path("rules").display().to_string();
    for (bytes, named) in bad_files() {
        fs::write(&path, bytes).expect("write");
        assert_refused(&path, named);
    }
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

#[test]
fn a_file_may_reach_the_limits_of_size_and_rules() {
    let rules = many_rules(64);
    let rest = "#".repeat(FILE_BYTES_MAX - rules.len());
    let daemon = daemon_with(&(rules + &rest));
    assert_eq!(daemon.rules().len(), 64);
    assert_eq!(daemon.rules()[63], "r64 key64");
    // It passes through a hot restart, and leaves no room for another rule.
    restart(&daemon.server);
    let refused = daemon.ask("RULE SET one-more k deny");
    assert!(refused.starts_with("ERROR ") && refused.contains("64"), "{refused}");
    assert_eq!(daemon.rules().len(), 64);
    assert_eq!(daemon.asked("k"), "LOCKED");
    // A rule that is off does not count.
    daemon.order("RULE OFF r1");
    daemon.order("RULE SET one-more k deny");
    assert_eq!(daemon.asked("k"), "QUEUE_FULL");
}

/// JSON doubles each backslash in the answer of the new binary.
#[test]
fn the_longest_rules_survive_a_hot_restart() {
    let (most, time) = ("4294967295", "49709d23h59m59s");
    let settings = format!(
        "workers={most} maxqueue={most} timeout={time} total={most} max-hold={time} \
         stuck-after={time} deny"
    );
    let rule = |n| format!("a{n:031} {} {settings}", "\\xff".repeat(64));
    let rules: Vec<String> = (0..64).map(rule).collect();
    let daemon = daemon_with(&rules.join("\n"));
    restart(&daemon.server);
    assert_eq!(daemon.rules(), rules);
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

#[test]
fn a_reload_refuses_a_bad_file_and_nothing_is_lost() {
    let daemon = daemon_with("small k* maxqueue=1\n");
    daemon.order("RULE SET bots bot:* deny");
    let mut holder = daemon.server.connect();
    holder.exchange("ACQ4ME k 9 9 0", "LOCKED");
    let expect_no_change = || {
        assert_eq!(daemon.rules(), ["bots bot:* deny", "small k* maxqueue=1"]);
        assert_eq!(daemon.asked("k"), "QUEUE_FULL");
        assert_eq!(daemon.asked("bot:1"), "QUEUE_FULL");
    };
    for (text, named) in
        [("small k*\nsmall k*\n", "line 2"), (&*many_rules(65), "line 65"), ("a * x\n", "line 1")]
    {
        daemon.edit(text);
        let refused = daemon.reload_rules();
        assert_eq!(refused.code, Some(1), "{named}");
        assert!(refused.stderr.contains(named), "{named}: {}", refused.stderr);
        let refused = refused_restart(&daemon.server);
        assert!(refused.contains(named), "{named}: {refused}");
        expect_no_change();
    }
    fs::remove_file(daemon.place.path("rules")).expect("remove");
    refused_restart(&daemon.server);
    let made = Command::new("mkfifo").arg(daemon.place.path("rules")).status();
    assert!(made.expect("mkfifo").success());
    refused_restart(&daemon.server);
    expect_no_change();
    assert_eq!(daemon.server.log.count(CONTINUED), 0);
    holder.exchange("RELEASE", "RELEASED");
}

/// A restart by signal reads it too.
#[test]
fn every_hot_restart_reads_the_file_again() {
    let daemon = daemon_with("bots bot:1 deny\n");
    let mut holder = daemon.server.connect();
    holder.exchange("ACQ4ME bot:2 1 9 0", "LOCKED");
    daemon.edit("bots bot:2 deny\n");
    restart(&daemon.server);
    assert_eq!(daemon.asked("bot:1"), "LOCKED");
    assert_eq!(daemon.asked("bot:2"), "QUEUE_FULL");
    daemon.edit("");
    assert_eq!(daemon.reload_rules().code, Some(0));
    assert_eq!(daemon.rules(), [""; 0]);
    // The lock from before is still held.
    assert_eq!(daemon.asked("bot:2"), "TIMEOUT");
    holder.exchange("RELEASE", "RELEASED");
}

#[test]
fn orders_survive_hot_restarts_until_the_file_changes() {
    let daemon = daemon_with("bots bot:* deny\nfew few:* workers=1\n");
    daemon.order("RULE SET api api:* deny");
    daemon.order("RULE SET night FOR 2h night:* deny");
    daemon.order("RULE SET few few:* workers=2 deny");
    daemon.order("RULE OFF bots");
    let is_executed = || {
        ["api:1", "night:1", "few:1", "bot:1"].map(|key| daemon.asked(key))
            == ["QUEUE_FULL", "QUEUE_FULL", "QUEUE_FULL", "LOCKED"]
    };
    assert!(is_executed());
    let version = env!("CARGO_PKG_VERSION");
    for _ in 0..2 {
        restart(&daemon.server);
        assert!(is_executed());
        let done = daemon.reload_rules();
        assert_eq!(done.stdout, format!("OK restarted, poolcounterd {version}\n"));
        assert!(is_executed());
    }
    // A comment is no rule.
    daemon.edit("# a remark\nbots bot:*   deny\nfew few:* workers=1 # one\n");
    assert!(!daemon.reload_rules().stdout.contains("no longer set"));
    assert!(is_executed());
    // Its deadline is unchanged.
    let left_s: f64 = daemon.column("left_s", "night").parse().expect("a number");
    assert!((7_000.0..=7_200.0).contains(&left_s), "{left_s}");

    daemon.edit("few few:* workers=1\nbots bot:* deny\n");
    let done = daemon.reload_rules();
    let (_, ended) = done.stdout.split_once("no longer set: ").expect(&done.stdout);
    for order in [
        "RULE SET api api:* deny",
        "RULE SET night",
        "RULE SET few few:* workers=2 deny",
        "RULE OFF bots",
    ] {
        assert!(ended.contains(order), "{order}: {ended}");
    }
    assert_eq!(daemon.rules(), ["few few:* workers=1", "bots bot:* deny"]);
    let answers = ["api:1", "night:1", "few:1", "bot:1"].map(|key| daemon.asked(key));
    assert_eq!(answers, ["LOCKED", "LOCKED", "LOCKED", "QUEUE_FULL"]);

    // Without `--rules` the file's rules are gone, which is a change.
    daemon.order("RULE SET api api:* deny");
    let done = daemon.reload(&["-l", "127.0.0.1", "-p", "0"]);
    assert!(done.stdout.ends_with("; no longer set: RULE SET api api:* deny\n"), "{}", done.stdout);
    assert_eq!(daemon.rules(), [""; 0]);
}

/// Holders from before the restart count, and their remaining time keeps running.
#[test]
fn limits_apply_across_a_hot_restart() {
    let daemon = daemon_with("pair t:* total=2\nslow slow:* max-hold=2s\n");
    let connect = || daemon.server.connect();
    let [mut first, mut second, mut waiter, mut slow] =
        [connect(), connect(), connect(), connect()];
    slow.exchange("ACQ4ME slow:1 1 9 0", "LOCKED");
    first.exchange("ACQ4ME t:1 1 9 0", "LOCKED");
    second.exchange("ACQ4ME t:2 1 9 0", "LOCKED");
    waiter.send("ACQ4ME t:1 1 9 60");
    daemon.server.connect().wait_for_counter("waiting_workers", |n| n == 1);
    restart(&daemon.server);
    assert_eq!(daemon.asked("t:3"), "QUEUE_FULL");
    first.exchange("RELEASE", "RELEASED");
    waiter.expect("LOCKED");
    // A changed file with the same limit under another name.
    daemon.edit("couple t:* total=2\nslow slow:* max-hold=2s\n");
    restart(&daemon.server);
    assert_eq!(daemon.asked("t:3"), "QUEUE_FULL");
    second.exchange("RELEASE", "RELEASED");
    assert_eq!(daemon.asked("t:3"), "LOCKED");
    slow.expect_end();
}

/// The new binary on trial has not seen an order given meanwhile.
#[test]
fn an_order_during_a_trial_loses_no_lock() {
    let daemon = daemon_with(&many_rules(63));
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
        daemon.order("RULE SET bots bot:* deny");
        daemon.place.touch("go");
        let done = reload.join().expect("it ends");
        assert!(matches!(done.code, Some(0 | 1)), "{}", done.stderr);
    });
    holder.exchange("RELEASE", "RELEASED");
    assert_eq!(daemon.asked("bot:1"), "QUEUE_FULL");
}

#[test]
fn a_cold_start_forgets_orders() {
    let (place, path) = place_with("bots bot:* deny\n");
    let mut daemon = Operated::start_in(place, &["--rules", &path]);
    daemon.order("RULE OFF bots");
    daemon.server.signal(Signal::TERM);
    daemon.server.wait_for_exit();
    let server = daemon.place.start(&["--rules", &path]);
    server.connect().exchange("ACQ4ME bot:1 1 9 0", "QUEUE_FULL");
}

#[test]
fn orders_change_answers_to_clients_and_are_logged_with_their_sender() {
    let daemon = daemon_with("bots bot:* deny\npage page:*\n");
    let (uid, pid) = (rustix::process::getuid().as_raw(), std::process::id());
    for (order, rules, [bot, page]) in [
        ("RULE OFF bots", "page page:*; bots bot:* deny", ["LOCKED", "LOCKED"]),
        ("RULE RESET bots", "bots bot:* deny; page page:*", ["QUEUE_FULL", "LOCKED"]),
        // It replaces the rule in place.
        ("RULE SET page page:1 deny", "bots bot:* deny; page page:1 deny", ["QUEUE_FULL"; 2]),
        // A new rule goes in front.
        (
            "RULE SET api page:* timeout=9s",
            "api page:* timeout=9s; bots bot:* deny; page page:1 deny",
            ["QUEUE_FULL"; 2],
        ),
        (
            "RULE RESET page",
            "api page:* timeout=9s; bots bot:* deny; page page:*",
            ["QUEUE_FULL", "LOCKED"],
        ),
        ("RULE RESET api", "bots bot:* deny; page page:*", ["QUEUE_FULL", "LOCKED"]),
        ("RULE SET bots bot:*", "bots bot:*; page page:*", ["LOCKED", "LOCKED"]),
    ] {
        daemon.order(order);
        daemon.server.log.wait_for(&format!("uid {uid}, pid {pid} asks: {order}"));
        assert_eq!(daemon.rules().join("; "), rules, "{order}");
        assert_eq!([daemon.asked("bot:1"), daemon.asked("page:1")], [bot, page], "{order}");
    }
    for bad in [
        "RULE SET other * deny",
        "RULE SET Bots * deny",
        "RULE SET bots bot:* deny deny",
        "RULE SET bots FOR 0m bot:* deny",
        "RULE SET bots",
        "RULE OFF unknown",
        "RULE RESET unknown",
        "RULE",
    ] {
        let answer = daemon.ask(bad);
        assert!(answer.starts_with("ERROR "), "{bad}: {answer}");
    }
    assert_eq!(daemon.rules(), ["bots bot:*", "page page:*"]);
}

/// The answer says what is missing.
#[test]
fn an_order_that_can_have_no_effect_is_refused() {
    let daemon = daemon_with("bots bot:* deny\npage page:*\n");
    daemon.order("RULE SET bots bot:*");
    for (bad, why) in [
        ("flood x:*", "flood has no settings"),
        ("flood FOR 5m x:*", "flood has no settings"),
        ("flood total=3", "no pattern: total=3"),
        ("flood total=3 workers=1", "no pattern: total=3"),
        // The file has this rule, but with this pattern it would match no page.
        ("page deny", "no pattern: deny"),
        ("page FOR 5m max-hold=x", "no pattern: max-hold=x"),
        ("deny x:*", "the name is missing"),
        ("deny x:* total=1", "the name is missing"),
        ("total=3 x:*", "the name is missing"),
        ("flood a\\x20b deny", "%20"),
        ("flood \"x:*\" deny", "\\x22"),
    ] {
        let answer = daemon.ask(&format!("RULE SET {bad}"));
        assert!(answer.starts_with("ERROR ") && answer.contains(why), "{bad}: {answer}");
    }
    assert_eq!(daemon.rules(), ["bots bot:*", "page page:*"]);
}

/// A script that sends requests all day must not hide an operator's orders.
#[test]
fn an_order_after_a_crowd_of_requests_is_logged() {
    let daemon = daemon_with("");
    let mut operator = daemon.operator();
    for _ in 0..200 {
        operator.list(b"RULES");
    }
    for n in 0..3 {
        let order = format!("RULE SET bots{n} bot:{n} deny");
        assert!(operator.ask(&order).starts_with("OK "));
    }
    // The next request follows them in the log.
    daemon.ask("UNDRAIN");
    daemon.server.log.wait_for("asks: UNDRAIN");
    assert_eq!(daemon.server.log.count("asks: RULE SET bots"), 3);
}

#[test]
fn clients_give_no_orders() {
    let daemon = daemon_with("bots bot:* deny\n");
    let mut client = daemon.server.connect();
    for order in ["RULES", "RULE SET bots bot:*", "RULE OFF bots", "RULE RESET bots"] {
        client.exchange(order, "ERROR BAD_COMMAND");
    }
    assert_eq!(daemon.rules(), ["bots bot:* deny"]);
}

#[test]
fn the_list_counts_holders_and_waiters_and_what_a_rule_changed() {
    let daemon = daemon_with("few few:* workers=1 maxqueue=2\nidle idle:*\n");
    let connect = || daemon.server.connect();
    let [mut holder, mut waiter, mut refused] = [connect(), connect(), connect()];
    holder.exchange("ACQ4ME few:k 9 9 60", "LOCKED");
    // Each of these would be a holder without the rule.
    waiter.send("ACQ4ME few:k 9 9 60");
    daemon.server.connect().wait_for_counter("waiting_workers", |n| n == 1);
    refused.exchange("ACQ4ME few:k 9 9 60", "QUEUE_FULL");
    for (title, of_few) in
        [("keys", "1"), ("holders", "1"), ("waiters", "1"), ("changed", "2"), ("from", "file")]
    {
        assert_eq!(daemon.column(title, "few"), of_few, "{title}");
        let of_idle = if title == "from" { "file" } else { "0" };
        assert_eq!(daemon.column(title, "idle"), of_idle, "{title}");
    }
    // A rule in front has its own counters, and counters survive a restart.
    daemon.order("RULE SET bots few:* deny");
    assert_eq!(daemon.asked("few:other"), "QUEUE_FULL");
    restart(&daemon.server);
    assert_eq!(["bots", "few"].map(|rule| daemon.column("changed", rule)), ["1", "2"]);
    assert_eq!(daemon.column("from", "bots"), "set");
    assert_eq!(["bots", "few"].map(|rule| daemon.column("waiters", rule)), ["1", "1"]);
}

#[test]
fn a_rule_with_a_time_limit_ends_by_itself() {
    let daemon = daemon_with("bots bot:* deny\n");
    daemon.order("RULE SET api api:* deny");
    assert_eq!(daemon.asked("api:1"), "QUEUE_FULL");
    // After a second what lies below applies again: a lasting order, or the file.
    daemon.order("RULE SET api FOR 1s api:* workers=3");
    daemon.order("RULE SET bots FOR 1s bot:*");
    assert_eq!(daemon.asked("api:1"), "LOCKED");
    daemon.eventually_answers("api:1", "QUEUE_FULL");
    daemon.eventually_answers("bot:1", "QUEUE_FULL");
    assert_eq!(daemon.rules(), ["api api:* deny", "bots bot:* deny"]);
    // Across a hot restart too.
    daemon.order("RULE SET api FOR 1s api:* workers=3");
    restart(&daemon.server);
    daemon.eventually_answers("api:1", "QUEUE_FULL");
}

/// The whole connection is closed, so all its locks pass to their next waiters.
#[test]
fn max_hold_closes_the_connection_of_a_lock_that_is_already_held() {
    let daemon = daemon_with("");
    let connect = || daemon.server.connect();
    let [mut holder, mut waiter, mut nested, mut other] =
        [connect(), connect(), connect(), connect()];
    holder.exchange("ACQ4ME nested 1 9 0", "LOCKED");
    holder.exchange("ACQ4ME slow:k 1 9 0", "LOCKED");
    other.exchange("ACQ4ME other 1 9 0", "LOCKED");
    waiter.send("ACQ4ME slow:k 1 9 60");
    nested.send("ACQ4ANY nested 1 9 60");
    daemon.server.connect().wait_for_counter("waiting_workers", |n| n == 2);
    daemon.order("RULE SET slow slow:* max-hold=1s");
    holder.expect_end();
    waiter.expect("LOCKED");
    nested.expect("LOCKED");
    // The time starts again for a new holder.
    waiter.expect_end();
    nested.exchange("RELEASE", "RELEASED");
    other.exchange("RELEASE", "RELEASED");
    assert_eq!(daemon.column("changed", "slow"), "2");
    daemon.server.log.wait_for("slow:k");
}

#[test]
fn the_max_hold_option_comes_after_all_rules() {
    let (place, path) = place_with("long long:* max-hold=10m\n");
    let daemon = Operated::start_in(place, &["--rules", &path, "--max-hold", "*=1"]);
    let (mut long, mut short) = (daemon.server.connect(), daemon.server.connect());
    long.exchange("ACQ4ME long:k 1 9 0", "LOCKED");
    short.exchange("ACQ4ME k 1 9 0", "LOCKED");
    short.expect_end();
    long.exchange("RELEASE", "RELEASED");
    assert_eq!(daemon.rules(), ["long long:* max-hold=10m", "--max-hold * max-hold=1s"]);
}

#[test]
fn a_max_hold_option_that_can_have_no_effect_is_refused() {
    for (value, why) in [
        ("=5", "empty pattern"),
        ("a b=5", "%20"),
        ("a\\x20b=5", "%20"),
        ("'*cache:*=600'", "\\x27"),
        ("\"*\"=600", "\\x22"),
    ] {
        let start = ["-l", "127.0.0.1", "-p", "0", "--max-hold", value];
        let refused = finish(&mut daemon_command(&start));
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{value}");
        assert!(refused.stderr.contains(why), "{value}: {}", refused.stderr);
    }
}

#[test]
fn several_limits_in_one_max_hold_option_are_warned_of() {
    let (place, path) = place_with("");
    let daemon = Operated::start_in(
        place,
        &["--rules", &path, "--max-hold", "*=1,b=2", "--max-hold", "c=3"],
    );
    daemon.server.log.wait_for("--max-hold: *=1,b is one pattern");
    restart(&daemon.server);
    assert!(eventually(|| daemon.server.log.count("is one pattern") == 2));
}

/// Holders above a new limit stay, but their locks aren't handed on.
#[test]
fn a_lowered_limit_is_reached_as_holders_leave() {
    for setting in ["workers=1", "total=1"] {
        let daemon = daemon_with("");
        let mut holders: Vec<Client> = (0..3).map(|_| daemon.server.connect()).collect();
        for holder in &mut holders {
            holder.exchange("ACQ4ME k 3 9 0", "LOCKED");
        }
        let mut waiter = daemon.server.connect();
        waiter.send("ACQ4ME k 3 9 60");
        daemon.server.connect().wait_for_counter("waiting_workers", |n| n == 1);
        daemon.order(&format!("RULE SET few k {setting}"));
        for holder in &mut holders[..2] {
            holder.exchange("RELEASE", "RELEASED");
            daemon.server.settle();
            waiter.expect_nothing();
        }
        // Now the key has no holder.
        holders[2].exchange("RELEASE", "RELEASED");
        waiter.expect("LOCKED");
    }
}

/// Of three slots two are free: they go to those that accept no other client's work, in order,
/// and not to a newcomer.
#[test]
fn waiters_get_the_room_that_a_change_of_rules_makes() {
    type Change = fn(&Operated);
    let changes: &[(&str, &str, Change)] = &[
        ("RULE SET few k workers=1", "reset", |daemon| drop(daemon.order("RULE RESET few"))),
        ("RULE SET few k workers=1 total=1", "off", |daemon| drop(daemon.order("RULE OFF few"))),
        ("RULE SET few FOR 1s k workers=1", "end", |_| {}),
        ("RULE SET few k workers=1", "more", |daemon| {
            daemon.order("RULE SET few k workers=3");
        }),
        ("RULE SET few k workers=1 total=1", "a higher total", |daemon| {
            daemon.order("RULE SET few k total=3");
        }),
        ("RULE SET few k workers=1", "reload", |daemon| {
            daemon.edit("few k\n");
            let reloaded = daemon.reload_rules();
            assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
        }),
    ];
    for (lowered, what, change) in changes {
        let daemon = daemon_with("");
        let mut holder = daemon.server.connect();
        holder.exchange("ACQ4ME k 3 9 0", "LOCKED");
        daemon.order(lowered);
        let mut waiters: Vec<Client> = (0..3).map(|_| daemon.server.connect()).collect();
        for (n, mode) in ["ACQ4ANY", "ACQ4ME", "ACQ4ME"].into_iter().enumerate() {
            waiters[n].send(&format!("{mode} k 3 9 60"));
            let waiting = n as u64 + 1;
            daemon.server.connect().wait_for_counter("waiting_workers", |n| n == waiting);
        }
        change(&daemon);
        waiters[1].expect("LOCKED");
        waiters[2].expect("LOCKED");
        daemon.server.settle();
        waiters[0].expect_nothing();
        assert_eq!(daemon.asked("k"), "TIMEOUT", "{what}");
        holder.exchange("RELEASE", "RELEASED");
        waiters[0].expect("DONE");
    }
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
