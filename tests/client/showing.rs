//! What `stats`, the lists and `check` print.

use crate::command::{ask, binary, lists, lists_with_rules, poolcounter, scripted, servers, shell};
use crate::support::operated::Operated;
use crate::support::stopwatch::{Stopwatch, pause};
use crate::support::{Client, Finished, Server, finish};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn json(finished: &Finished) -> Value {
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).expect("JSON")
}

#[test]
fn statistics_are_printed_unchanged() {
    for server in servers() {
        let address = server.address().to_string();
        let text = ask(&address, &["stats"]).stdout;
        assert!(text.starts_with("uptime: 0 days, 0h 0m "), "{text}");
        assert!(text.ends_with("processed_count: 0\n"), "{text}");
        let json = json(&ask(&address, &["stats", "--json"]));
        assert_eq!(json["counters"]["processing_workers"], 0);
        assert_eq!(json["times_s"]["gained"], 0.0);
        assert_eq!(json["server"], address);
    }
}

#[test]
fn several_servers_are_labelled_and_a_dead_server_is_a_failure() {
    let server = Server::start();
    let two = format!("{} 127.0.0.1:1", server.address());
    let output = ask(&two, &["stats"]);
    assert_eq!(output.code, Some(75));
    assert!(
        output.stdout.starts_with(&format!("{}\nuptime", server.address())),
        "{}",
        output.stdout
    );
    assert!(output.stderr.contains("127.0.0.1:1: Connection refused"), "{}", output.stderr);
}

#[test]
fn a_server_without_lists_is_reported_immediately() {
    let Some(reference) = Server::reference() else { return };
    // Its answer has no line end: a reader that waits for a line gets none.
    let output = ask(&reference.address().to_string(), &["keys"]);
    assert_eq!(output.code, Some(76));
    assert!(output.stderr.contains("it knows STATS FULL only"), "{}", output.stderr);
}

#[test]
fn lists_are_tables_or_the_servers_json() {
    let server = scripted(lists);
    assert_eq!(
        ask(&server, &["keys", "3"]).stdout,
        "keys: 3 of 3\n\
         holders for_me oldest_hold oldest_wait key\n\
         \x20     1      5      0.232s      0.100s article:busy\n\
         \x20     1      2     12.500s      3.000s article:stuck\n\
         \x20     1      0      0.001s           - 7\n"
    );
    let mut answer = json(&ask(&server, &["keys", "--json"]));
    assert_eq!((&answer["keys_total"], &answer["server"]), (&3.into(), &server.as_str().into()));
    let rows = answer["keys"].take();
    assert_eq!(rows[1]["key"], "article:stuck");
    assert_eq!(rows[1]["oldest_hold_s"], 12.5);
    assert_eq!(rows[2]["oldest_wait_s"], Value::Null);
    assert_eq!(rows[2]["key"], "7", "a key is text");
    assert_eq!(json(&ask(&server, &["clients", "--json"]))["connections"], 9);
}

/// Lists that are empty, of our daemon and of one with other members.
#[test]
fn an_empty_list_has_no_columns() {
    let server = Server::start_with(&["--slow", "5"]);
    let address = server.address().to_string();
    for (list, text) in [
        ("keys", "keys: 0 of 0\n"),
        ("slow", "slow: 0 of 0\nover: 5.000s\n"),
        (
            "clients",
            "addresses: 1 of 1\nconnections: 1\nconnections address\n          1 127.0.0.1\n",
        ),
    ] {
        let output = ask(&address, &[list]);
        assert_eq!(output.stdout, text);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    }
    let newer =
        scripted(|_| "{\"keys_total\":0,\"keys\":[],\"more\":{\"key\":[7]}}\n\n".to_owned());
    assert_eq!(ask(&newer, &["keys"]).stdout, "keys: 0 of 0\n");
    let odd = scripted(|_| "keys: 0\n\n".to_owned());
    let output = ask(&odd, &["keys"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(76), ""));
    assert!(output.stderr.contains("invalid STATS JSON KEYS 20"), "{}", output.stderr);
}

#[test]
fn a_list_shorter_than_requested_shows_the_limit() {
    let server = scripted(|question| match question {
        "STATS JSON KEYS 1000" => {
            "{\"keys_total\":5002,\"keys\":[{\"key\":\"a\"},{\"key\":\"b\"}]}\n\n".to_owned()
        }
        question => lists(question),
    });
    for options in [&["keys", "1000"][..], &["keys", "1000", "--json"]] {
        let output = ask(&server, options);
        assert_eq!(output.code, Some(0));
        assert!(
            output.stderr.contains("2 of 5002: no list of this server has more"),
            "{}",
            output.stderr
        );
    }
    assert_eq!(json(&ask(&server, &["keys", "1000", "--json"]))["keys_total"], 5002);
    // No warning for a list with all rows, nor for one with as many as requested.
    for options in [&["keys", "2"][..], &["clients", "7"]] {
        assert_eq!(ask(&server, options).stderr, "");
    }
}

/// Keys of many families: each is found in a list, and taken by every command that takes a key,
/// as it was listed and raw.
#[test]
fn keys_are_shown_in_utf8_and_taken_in_both_forms() {
    let server = Server::start();
    let address = server.address().to_string();
    let long = format!("page:{}:end", "x".repeat(300));
    let mut client = server.connect();
    for (key, in_utf8, in_ascii) in [
        ("café", "café", r"caf\xc3\xa9"),
        ("a%20b", "a%20b", "a%20b"),
        ("300", "300", "300"),
        ("-", "-", "-"),
        (r"back\slash", r"back\x5cslash", r"back\x5cslash"),
        ("a\u{202e}b", r"a\xe2\x80\xaeb", r"a\xe2\x80\xaeb"),
        ("日本語", "日本語", r"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e"),
        (&long, &long, &long),
    ] {
        assert_eq!(client.ask(&format!("ACQ4ME {key} 1 1 0")), "LOCKED");
        for (locale, shown) in [("C.UTF-8", in_utf8), ("C", in_ascii)] {
            let listed = in_locale(&address, locale, &["keys", "*"]);
            assert_eq!(listed.lines().last().expect("a row").split(' ').next_back(), Some(shown));
            // The longest pattern has 256 characters.
            let pattern = if shown.len() > 256 { "page:*:end" } else { shown };
            let found = in_locale(&address, locale, &["keys", "--", pattern]);
            assert!(found.starts_with("keys: 1 of 1\n"), "{shown}: {found}");
            for form in [key, in_utf8, in_ascii] {
                let key = in_locale(&address, locale, &["key", "--", form]);
                assert!(key.starts_with(&format!("key: {shown}\nholders: 1\n")), "{key}");
            }
        }
        let json = json(&ask(&address, &["keys", "*", "--json"]));
        assert_eq!(json["keys"][0]["key"], in_utf8);
        client.exchange("RELEASE", "RELEASED");
    }
    let mut input = b"ACQ4ME \xff\xfe 1 1 0\n".to_vec();
    client.send_bytes(&std::mem::take(&mut input));
    client.expect("LOCKED");
    assert!(in_locale(&address, "C.UTF-8", &["keys"]).ends_with(" \\xff\\xfe\n"));
}

/// What the command prints in this locale.
fn in_locale(server: &str, locale: &str, arguments: &[&str]) -> String {
    let mut command = poolcounter(server, arguments);
    let output = finish(command.env("LC_ALL", locale));
    assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.stderr);
    output.stdout
}

#[test]
fn keys_that_match_are_counted_and_those_held_for_longest_listed() {
    let server = Server::start();
    let address = server.address().to_string();
    let mut clients: Vec<Client> = (0..125).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        for key in 0..4 {
            assert_eq!(client.ask(&format!("ACQ4ME page{key}:{n} 9 9 0")), "LOCKED");
        }
    }
    let mut waiter = server.connect();
    waiter.send("ACQ4ME page2:77 1 9 60");
    waiter.settle();
    let all = ask(&address, &["keys", "200", "page3:*"]);
    assert!(all.stdout.starts_with("keys: 125 of 125\n"), "{}", all.stdout);
    assert_eq!((all.stdout.lines().count(), all.stderr.as_str()), (2 + 125, ""));
    let some = ask(&address, &["keys", "3", "page2:*"]);
    assert!(some.stdout.starts_with("keys: 3 of 125\n"), "{}", some.stdout);
    for (row, key) in some.stdout.lines().skip(2).zip(["page2:0", "page2:1", "page2:2"]) {
        assert!(row.ends_with(&format!(" {key}")), "{key}: {row}");
    }
    let note = format!("poolcounter: {address}: 122 of 125 keys that match are left out\n");
    assert_eq!((some.code, some.stderr), (Some(0), note));
    let json = json(&ask(&address, &["keys", "--json", "*:12*", "7"]));
    assert_eq!((&json["keys_total"], &json["matching"]), (&500.into(), &(4 * 6).into()));
    assert_eq!((json["keys"].as_array().map(Vec::len), &json["left_out"]), (Some(7), &17.into()));
    let two = format!("{address},{}", Server::start().address());
    let both = ask(&two, &["keys", "page1:*"]);
    assert_eq!(both.code, Some(75), "the second has ended");
    let row = both.stdout.lines().find(|row| row.ends_with(" page1:0")).unwrap_or_default();
    assert!(row.starts_with(&address), "{}", both.stdout);
    for wrong in [&["keys", "0"][..], &["keys", "a", "b"], &["keys", "9", "8", "7"]] {
        assert_eq!(ask(&address, wrong).code, Some(64), "{wrong:?}");
    }
    // A server that knows no lists.
    let old = scripted(|_| "ERROR WRONG_STAT".to_owned());
    for words in [&["keys"][..], &["keys", "a*"], &["key", "k"], &["slow"]] {
        let output = ask(&old, words);
        assert_eq!(output.code, Some(76), "{words:?}");
        assert!(output.stderr.contains("it knows STATS FULL only"), "{}", output.stderr);
    }
}

/// A part of a key for a pattern, and a pattern for a key.
#[test]
fn a_key_and_a_pattern_are_told_apart() {
    let (server, other) = (Server::start(), Server::start());
    let both = format!("{},{}", server.address(), other.address());
    let mut holder = server.connect();
    holder.exchange("ACQ4ME job:nightly 1 1 1", "LOCKED");
    let hint = "poolcounter: 0 of 1 key matches; a pattern is a whole key: '*nightly*'\n";
    for json in [&[][..], &["--json"]] {
        let output = ask(&both, &[&["keys", "nightly"], json].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), hint));
        for found in ["*nightly*", "job:nightly", "day*"] {
            assert_eq!(ask(&both, &[&["keys", found], json].concat()).stderr, "", "{found}");
        }
        let output = ask(&both, &[&["key", "job:*"], json].concat());
        let names_keys = "'job:*' is a pattern: poolcounter keys 'job:*' lists the keys that match";
        assert_eq!((output.code, output.stderr), (Some(0), format!("poolcounter: {names_keys}\n")));
    }
    holder.exchange("ACQ4ME job:* 1 1 0", "LOCKED");
    let output = ask(&both, &["key", "job:*"]);
    assert_eq!(output.stderr, "");
    assert!(output.stdout.contains("\nholders: 1\n"), "{}", output.stdout);
}

#[test]
fn a_key_is_shown_by_the_servers_that_have_it() {
    let (server, other) = (Server::start(), Server::start());
    let [with, without] = [&server, &other].map(|server| server.address().to_string());
    let mut holder = server.connect();
    holder.exchange("ACQ4ME k 1 1 1", "LOCKED");
    let both = format!("{without},{with}");
    let first_lines = format!("{with}\nkey: k\nholders: 1\n");
    let shown = ask(&both, &["key", "k"]).stdout;
    assert!(shown.starts_with(&first_lines), "{shown}");
    assert!(!shown.contains(&without), "{shown}");
    assert_eq!(ask(&both, &["key", "k", "--json"]).stdout.lines().count(), 2);
    let nowhere = ask(&both, &["key", "l"]).stdout;
    assert_eq!(nowhere.matches("key: l\nholders: 0\n").count(), 2, "{nowhere}");
    // One that does not answer may have it too.
    let output = ask(&format!("127.0.0.1:1,{with}"), &["key", "k"]);
    assert_eq!(output.code, Some(75));
    assert!(output.stdout.starts_with(&first_lines), "{}", output.stdout);
}

#[test]
fn an_invalid_answer_is_reported_with_its_cause() {
    let http = Server::start_with(&["--http", "127.0.0.1:0"]);
    let page = http.log.wait_for("HTTP on ");
    let (_, page) = page.rsplit_once("HTTP on ").expect("an address");
    let full = Server::start_with(&["--max-connections-per-ip", "1"]);
    let _client = full.connect();
    let not_admitted = "--allow, --max-connections or --max-connections-per-ip";
    for (server, code, why) in [
        (page, 76, "that is an HTTP server"),
        (&full.address().to_string(), 75, not_admitted),
        ("127.0.0.1:1", 75, "Connection refused"),
    ] {
        for arguments in [&["stats"][..], &["keys"], &["check"]] {
            let output = ask(server, arguments);
            let code = if arguments == ["check"] { 2 } else { code };
            assert_eq!(output.code, Some(code), "{server} {arguments:?}");
            let printed = output.stdout + &output.stderr;
            assert!(printed.contains(why), "{server} {arguments:?}: {printed}");
        }
    }
}

/// None at all would look like good news.
#[test]
fn keys_that_match_are_refused_where_they_are_hidden() {
    let daemon = Operated::start_with(&["--private"]);
    let mut client = daemon.server.connect();
    client.exchange("ACQ4ME job:report 1 1 0", "LOCKED");
    let address = daemon.server.address().to_string();
    for words in [&["keys", "job:*"][..], &["keys", "--json", "nosuch"], &["key", "job:r\\..."]] {
        let output = ask(&address, words);
        assert_eq!((output.code, output.stdout.as_str()), (Some(76), ""), "{words:?}");
        let way = "as root on the daemon's host: poolcounter control STATS JSON KEYS 200 PATTERN";
        assert!(output.stderr.contains(way), "{words:?}: {}", output.stderr);
    }
    for words in [&["keys"][..], &["keys", "*"]] {
        let output = ask(&address, words);
        assert!(output.stdout.starts_with("keys: 1 of 1\n"), "{}", output.stdout);
        assert!(output.stdout.ends_with(" hidden\n"), "{}", output.stdout);
    }
    let words = ["control", "STATS", "JSON", "KEYS", "200", "job:*"];
    let shown = daemon.poolcounter(&words).stdout;
    assert!(shown.contains("\"key\":\"job:report\""), "{shown}");
}

/// Otherwise such an answer would look like that of an idle server.
#[test]
fn valid_json_that_is_no_answer_is_refused() {
    for answer in [
        "7",
        "null",
        "[1,2,3]",
        "\"x\"",
        "{}",
        r#"{"keys":[1,2]}"#,
        r#"{"keys":{"a":1},"keys_total":1}"#,
        r#"{"keys_total":-1,"keys":[],"slow_total":0,"slow":[7],"addresses":"x","clients":[]}"#,
        r#"{"uptime_s":"x","counters":{},"keys_total":1,"keys":[{"key":7}],"holders":1,"locks":[1]}"#,
        r#"{"uptime_s":1,"counters":[]}"#,
    ] {
        let server = scripted(move |_| format!("{answer}\n\n"));
        for words in [
            &["keys"][..],
            &["keys", "--json"],
            &["keys", "k*"],
            &["key", "k"],
            &["clients"],
            &["slow"],
            &["stats", "--json"],
            &["top"],
        ] {
            let output = ask(&server, words);
            assert_eq!(output.code, Some(76), "{answer} {words:?}: {}", output.stdout);
        }
        let check = ask(&server, &["check"]);
        assert_eq!(check.code, Some(2), "{answer}: {}", check.stdout);
    }
}

/// As lists show it: an operator copies it from there.
#[test]
fn a_key_that_a_list_has_cut_is_found() {
    let server = Server::start();
    let address = server.address().to_string();
    let long = "x".repeat(140);
    let mut holders: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for (holder, key) in holders.iter_mut().zip(["one:", "two:1", "two:2"]) {
        let key = if key == "one:" { format!("one:{long}") } else { format!("two:{long}{key}") };
        holder.exchange(&format!("ACQ4ME {key} 1 1 1"), "LOCKED");
    }
    let cut = |start: &str| format!("{start}{}\\...", &long[..124]);
    let one = ask(&address, &["key", &cut("one:")]);
    assert_eq!(one.code, Some(0), "{}", one.stderr);
    assert!(one.stdout.starts_with(&format!("key: one:{long}\nholders: 1\n")), "{}", one.stdout);
    let two = ask(&address, &["key", &cut("two:")]).stdout;
    assert!(two.starts_with("keys that begin so: 2\ntwo:x"), "{two}");
    let both = json(&ask(&address, &["key", "--json", &cut("two:")]));
    assert_eq!(both["keys_that_begin"].as_array().map(Vec::len), Some(2), "{both}");
    for start in ["*", "\"", "'*"] {
        let key = format!("{start}{}", "*".repeat(150));
        holders[0].exchange("RELEASE", "RELEASED");
        holders[0].exchange(&format!("ACQ4ME {key} 1 1 1"), "LOCKED");
        let stars = ask(&address, &["key", &format!("{}\\...", &key[..128])]).stdout;
        assert!(stars.starts_with(&format!("key: {key}\nholders: 1\n")), "{stars}");
    }
    for bytes in [&b"\xff"[..], b"a\xc3", b"\xef\xbf\xbd"] {
        let key = [bytes, long.as_bytes()].concat();
        holders[0].exchange("RELEASE", "RELEASED");
        holders[0].send_bytes(&[b"ACQ4ME ", &key[..], b" 1 1 1\n"].concat());
        assert_eq!(holders[0].line(), "LOCKED");
        let cut = OsString::from_vec([&key[..120], b"\\..."].concat());
        let found = finish(poolcounter(&address, &["key"]).arg(cut)).stdout;
        assert!(found.contains("\nholders: 1\n"), "{bytes:?}: {found}");
    }
    let gone = ask(&address, &["key", &cut("six:")]).stdout;
    assert!(gone.contains("holders: 0\n"), "{gone}");
    let which = ask(&address, &["which", &cut("one:")]);
    assert!(which.stderr.contains("a list has cut this key"), "{}", which.stderr);
}

/// So many stars leave no room in a pattern, and an answer has no room for all keys that match.
#[test]
fn a_cut_key_that_may_be_left_out_is_not_said_to_be_free() {
    let none = r#"{"keys_total":300,"matching":300,"left_out":100,"keys":[]}"#;
    let server = scripted(move |_| format!("{none}\n\n"));
    let key = format!("{}\\...", "*".repeat(128));
    let output = ask(&server, &["key", &key]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(76), ""), "{}", output.stderr);
    assert!(
        output.stderr.contains("can't tell: 100 more keys begin nearly so"),
        "{}",
        output.stderr
    );
}

/// As text in the locale's encoding, and in JSON always.
#[test]
fn keys_are_readable_wherever_they_are_shown() {
    let daemon = Operated::start_with_rules("few caf\\xc3\\xa9* workers=9\n", &["--slow", "0"]);
    let (control, server) = (daemon.path(), &daemon.server);
    let address = server.address().to_string();
    let key = |n: u32| format!("café{}{n}", "x".repeat(140));
    let mut holders = [1, 2, 3].map(|n| (server.connect(), key(n)));
    for (holder, key) in &mut holders {
        holder.exchange(&format!("ACQ4ME {key} 9 9 1"), "LOCKED");
    }
    holders[2].0.exchange("RELEASE", "RELEASED");
    let cut = format!("caf\\xc3\\xa9{}\\...", "x".repeat(117));
    let (whole, control) = (key(1), ["--control-socket", control.as_str()]);
    for words in [
        &["keys"][..],
        &["keys", "caf*"],
        &["key", &whole],
        &["key", &cut],
        &["slow"],
        &["top"],
        &["rules", control[0], control[1]],
        &["free", "--dry-run", "--key", &whole, control[0], control[1]],
        &["rule", "set", "one", "é*", "deny", control[0], control[1]],
    ] {
        for (locale, as_json) in [("C.UTF-8", false), ("C", false), ("C", true)] {
            if as_json && words[0] == "top" {
                continue;
            }
            let mut command = poolcounter(&address, words);
            command.args(as_json.then_some("--json")).env("LC_ALL", locale);
            let output = finish(&mut command);
            assert_eq!(output.code, Some(0), "{words:?}: {}", output.stderr);
            let is_readable = as_json || locale == "C.UTF-8";
            let text = output.stdout;
            assert_eq!(text.contains('é'), is_readable, "{words:?} {locale}: {text}");
            assert_eq!(text.contains("\\xc3"), !is_readable, "{words:?} {locale}: {text}");
        }
    }
}

/// Escaped, it would be longer than a line may be.
#[test]
fn a_long_key_in_utf8_can_be_asked_for() {
    let server = Server::start();
    let address = server.address().to_string();
    let key = format!("big:{}", "é".repeat(1500));
    let mut holder = server.connect();
    holder.exchange(&format!("ACQ4ME {key} 1 1 1"), "LOCKED");
    let output = ask(&address, &["key", &key]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("\nholders: 1\n"), "{}", output.stdout);
}

/// An empty list would look like good news.
#[test]
fn slow_says_that_nothing_is_recorded() {
    let (off, on) = (Server::start(), Server::start_with(&["--slow", "5"]));
    let [off, on] = [&off, &on].map(|server| server.address().to_string());
    let note = format!("poolcounter: {off}: records nothing: it runs without --slow\n");
    for (list, arguments, said) in [
        (&off, &["slow"][..], note.as_str()),
        (&off, &["slow", "--json"], &note),
        (&format!("{on},{off}"), &["slow"], &note),
        (&on, &["slow"], ""),
    ] {
        let output = ask(list, arguments);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), said), "{list} {arguments:?}");
    }
}

#[test]
fn check_exits_and_prints_as_a_plugin() {
    let server = scripted(lists);
    let line = |level: &str, limits: &str| {
        format!(
            "POOLCOUNTER {level} - {server}: up 0 days, 0h 3m 10s, waiting 7, oldest hold 12.5s, \
                 locks 3 | waiting=7;{limits};0 oldest_hold=12.5s;;;0 full_queues=4c;;;0 locks=3;;;0\n"
        )
    };
    for (limits, code, level) in [
        ("7,8", 0, "OK"),
        ("6,7", 1, "WARNING"),
        ("1,@5:7", 2, "CRITICAL"),
        ("9:,8:", 2, "CRITICAL"),
    ] {
        let output = ask(&server, &["check", "--waiting", limits]);
        assert_eq!(
            (output.code, output.stdout),
            (Some(code), line(level, &limits.replace(',', ";")))
        );
    }
    assert_eq!(ask(&server, &["check", "--oldest-hold", "5,10"]).code, Some(2));
    for wrong in [
        &["check", "--waiting", "9"][..],
        &["check", "--bogus"],
        &["-s", "keys", "check", "--bogus"],
        &["--server=a", "-s", "run", "check", "x"],
        &["-s", ":::", "check"],
        &["-s", "", "check"],
        &["check", "-s"],
    ] {
        let output = ask(&server, wrong);
        assert_eq!((output.code, output.stderr.as_str()), (Some(3), ""), "{wrong:?}");
    }
    for other in [&["-s", "check", "keys", "--bogus"][..], &["--bogus", "check"], &["chec"]] {
        let output = ask(&server, other);
        assert_eq!((output.code, output.stdout.as_str()), (Some(64), ""), "{other:?}");
    }
    let down = ask("127.0.0.1:1", &["check"]);
    assert_eq!(down.code, Some(2));
    assert!(down.stdout.starts_with("POOLCOUNTER CRITICAL - 127.0.0.1:1: "), "{}", down.stdout);
}

/// Whatever the figures are: such a rule outlasts the incident it was meant for.
#[test]
fn check_warns_of_rules_that_orders_have_set_without_an_end() {
    let server = scripted(lists_with_rules);
    let why = "rules set by orders without --for: 1, since 2026-11-21T18:04:00.000Z; up 0 days, ";
    for (limits, code, level) in [("8,9", 1, "WARNING"), ("1,6", 2, "CRITICAL")] {
        let output = ask(&server, &["check", "--waiting", limits]);
        assert_eq!(output.code, Some(code));
        let start = format!("POOLCOUNTER {level} - {server}: {why}");
        assert!(output.stdout.starts_with(&start), "{}", output.stdout);
    }
}

/// Icinga takes the first line as the state, and one figure per label.
#[test]
fn check_of_several_servers_is_one_output() {
    let (well, busy) = (scripted(lists), Server::start());
    let mut holder = busy.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 1 0"), "LOCKED");
    let busy = busy.address().to_string();
    let list = format!("{well},{busy},{well},127.0.0.1:1");
    let output = ask(&list, &["check", "--oldest-hold", "12,13"]);
    assert_eq!(output.code, Some(2), "{}", output.stdout);
    let lines: Vec<&str> = output.stdout.lines().collect();
    for (line, (level, server)) in lines.iter().zip([
        ("CRITICAL", "127.0.0.1:1"),
        ("WARNING", well.as_str()),
        ("OK", busy.as_str()),
    ]) {
        assert!(line.starts_with(&format!("POOLCOUNTER {level} - {server}: ")), "{line}");
    }
    assert_eq!(lines.len(), 3);
    assert_eq!(output.stdout.matches('|').count(), 1);
    let (_, figures) = lines[0].split_once(" | ").expect("figures");
    let mut labels: Vec<&str> = figures.split('\'').skip(1).step_by(2).collect();
    assert!(labels.contains(&format!("{busy} waiting").as_str()), "{figures}");
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), 8, "{figures}");
}

#[test]
fn failed_output_is_reported() {
    let server = scripted(lists);
    for (order, code) in [("check", 3), ("stats", 1), ("keys", 1), ("--help", 1), ("run --help", 1)]
    {
        let output = shell(&server, &format!("exec \"$0\" {order} > /dev/full"));
        assert_eq!(output.code, Some(code), "{order}");
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(output.stderr.contains("No space left on device"), "{}", output.stderr);
    }
}

/// A plugin that takes longer is killed by the monitoring. tests/load/command.rs measures
/// how long it takes.
#[test]
fn check_does_not_wait_for_answers_that_take_longer_than_five_seconds() {
    let slow = || {
        scripted(|question| {
            pause(Duration::from_secs(6));
            lists(question)
        })
    };
    let list = format!("{},{}", slow(), slow());
    let output = ask(&list, &["check"]);
    assert_eq!(output.code, Some(2), "{}", output.stdout);
    assert_eq!(output.stdout.matches("no answer").count(), 2, "{}", output.stdout);
}

#[test]
fn check_of_an_old_server_reports_unknown_figures() {
    let Some(reference) = Server::reference() else { return };
    let address = reference.address().to_string();
    assert_eq!(ask(&address, &["check", "--waiting", "1,2", "--oldest-hold", "1,2"]).code, Some(0));
    let mut holder = reference.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 1 0"), "LOCKED");
    let output = ask(&address, &["check", "--oldest-hold", "1,2"]);
    assert_eq!(output.code, Some(3), "{}", output.stdout);
    assert!(output.stdout.contains("oldest hold unknown"), "{}", output.stdout);
    assert!(output.stdout.contains(" oldest_hold=U;1;2;0 "), "{}", output.stdout);
}

/// The rate is per second of the server's uptime: the host that asks may be busy, and sleep for
/// longer than it was told.
#[test]
fn full_queues_are_counted_for_the_time_that_has_passed() {
    let server = Server::start();
    let address = server.address().to_string();
    assert_eq!(ask(&address, &["check", "--full-queues", "1,9"]).code, Some(0));
    // As our daemon, and as one of version 1, which tells whole seconds.
    let growing = |is_old: bool, figures: [(f64, u32); 2]| {
        let asked = AtomicUsize::new(0);
        scripted(move |question| {
            let figures = || figures[asked.fetch_add(1, Ordering::Relaxed)];
            match question {
                "STATS JSON" if !is_old => {
                    let (uptime_s, total) = figures();
                    format!(
                        "{{\"uptime_s\":{uptime_s},\"counters\":{{\"full_queues\":{total}}}}}\n\n"
                    )
                }
                "STATS FULL" => {
                    let (uptime_s, total) = figures();
                    format!("uptime: 0 days, 0h 0m {uptime_s}s\nfull_queues: {total}\n\n")
                }
                _ => "ERROR WRONG_STAT".to_owned(),
            }
        })
    };
    let checking = Stopwatch::start();
    for (is_old, figures, seconds, rate) in [
        (false, [(10.0, 100), (14.3, 186)], "0.1", 20),
        (false, [(10.5, 100), (11.5, 110)], "1", 10),
        (true, [(10.0, 100), (10.0, 110)], "1", 10),
        // Started again.
        (false, [(10.0, 100), (0.5, 4)], "0.1", 0),
    ] {
        let server = growing(is_old, figures);
        let output = ask(&server, &["check", "--full-queues", "15,9999", "--for", seconds]);
        let expected = format!("full_queues_rate={rate};");
        assert!(output.stdout.contains(&expected), "{figures:?}: {}", output.stdout);
        assert_eq!(output.code, Some(i32::from(rate > 15)), "{}", output.stdout);
    }
    checking.at_least(Duration::from_secs(2));
}

#[test]
fn output_without_a_terminal_has_no_escapes() {
    let server = scripted(lists);
    for arguments in [&["top"][..], &["stats"], &["--help"], &["run", "--help"]] {
        let output = ask(&server, arguments);
        assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.stderr);
        assert!(!output.stdout.contains('\x1b'), "{arguments:?}: {}", output.stdout);
    }
    let top = ask(&server, &["top"]).stdout;
    assert!(top.contains("article:stuck"), "{top}");
}

#[test]
fn an_endless_wait_has_no_seconds_left() {
    let server = Server::start();
    let address = server.address().to_string();
    for (timeout, is_endless) in [("600", false), ("2147483647", true), ("99999999999", true)] {
        let [mut holder, mut waiter] = [server.connect(), server.connect()];
        assert_eq!(holder.ask(&format!("ACQ4ME for{timeout} 1 1 0")), "LOCKED");
        waiter.send(&format!("ACQ4ME for{timeout} 1 9 {timeout}"));
        waiter.settle();
        let key = format!("for{timeout}");
        let text = ask(&address, &["key", &key]).stdout;
        assert_eq!(text.contains(" left "), !is_endless, "{text}");
        let row = json(&ask(&address, &["key", &key, "--json"]))["locks"][1].take();
        assert_eq!(row["left_s"].is_null(), is_endless, "{row}");
    }
}

#[test]
fn our_daemon_shows_holders() {
    let server = Server::start();
    let address = server.address().to_string();
    let mut holder = server.connect();
    assert_eq!(holder.ask("ACQ4ME a%20b 1 1 0"), "LOCKED");
    assert_eq!(json(&ask(&address, &["keys", "--json"]))["keys"][0]["key"], "a%20b");
    let row = json(&ask(&address, &["key", "a b", "--json"]))["locks"][0].take();
    assert_eq!((&row["what"], &row["kind"]), (&Value::from("holder"), &Value::from("me")));
    assert_eq!(json(&ask(&address, &["key", "300", "--json"]))["key"], "300", "a key is text");
    for (key, code) in [(r"a\x20b", 0), (r"a\b", 0), ("", 64), ("a\nb", 64)] {
        let output = ask(&address, &["key", key]);
        assert_eq!(output.code, Some(code), "{key:?}: {}", output.stderr);
    }
    assert_eq!(json(&ask(&address, &["key", "nosuch", "--json"]))["locks"], Value::Array(vec![]));
    assert_eq!(json(&ask(&address, &["key", "--json", "--", "-x"]))["key"], "-x");
    assert_eq!(json(&ask(&address, &["clients", "--json"]))["clients"][0]["holds"], 1);
    let odd = crate::command::run(
        &server,
        &["k\r", "--", binary().to_str().expect("text"), "key", "--json", "--", "k\r"],
    );
    assert_eq!(json(&odd)["locks"][0]["what"], "holder", "{}", odd.stdout);
    assert_eq!(json(&ask(&address, &["stats", "--json"]))["counters"]["processing_workers"], 1);
    assert_eq!(ask(&address, &["check", "--oldest-hold", "0,9999"]).code, Some(1));
}

/// The order is by `md5sum` of the server's name and the key; no server runs.
#[test]
fn which_prints_the_servers_in_the_order_of_clients() {
    let servers = "10.1.2.3,10.1.2.4,10.1.2.5";
    for (arguments, expected) in [
        (&["which", "article:1"][..], "10.1.2.4\n10.1.2.3\n10.1.2.5\n"),
        (&["which", r"article\x3a1"], "10.1.2.4\n10.1.2.3\n10.1.2.5\n"),
        (&["which", "--hash-slots", "10", "Thumb:Cat.jpg"], "10.1.2.4\n10.1.2.5\n10.1.2.3\n"),
        (&["which", "Thumb:0"], "10.1.2.4\n10.1.2.5\n10.1.2.3\n"),
    ] {
        let found = ask("", &[&["-s", servers], arguments].concat());
        assert_eq!((found.code, found.stdout.as_str()), (Some(0), expected), "{arguments:?}");
    }
    assert_eq!(ask("", &["which", "--hash-slots", "10", "plain"]).code, Some(64));
    // As a list shows a key that may have had a space: only if that makes a difference.
    let which = |key: &str| ask("", &["-s", servers, "which", key]).stdout;
    let keys = (0..12).map(|n| format!("a%20b{n}"));
    let lines: Vec<(String, String)> = keys.map(|key| (which(&key), key)).collect();
    assert!(lines.iter().any(|(found, _)| found.lines().count() == 3), "{lines:?}");
    let (both, key) = lines.iter().find(|(found, _)| found.lines().count() > 3).expect("a key");
    let spaced = which(&key.replace("%20", " "));
    let spaced = spaced.trim_end().replace('\n', "\n  ");
    assert!(
        both.starts_with(&format!("{}:\n  {spaced}\n{key}:\n  ", key.replace("%20", " "))),
        "{both}"
    );
    assert_eq!(both.lines().count(), 8, "{both}");
}
