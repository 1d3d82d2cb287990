//! `poolcounter rules` and `poolcounter rule`.

use crate::command::ask;
use crate::support::Finished;
use crate::support::operated::Operated;
use crate::support::restart::restart;
use crate::top::top;

fn daemon_with_rules() -> Operated {
    Operated::start_with_rules("pages *cache:* workers=2\nbots bot:* deny\n", &[])
}

impl Operated {
    fn answer(&self, key: &str) -> String {
        self.server.connect().ask(&format!("ACQ4ME {key} 9 9 0"))
    }
}

/// The last columns of the list: where each rule comes from, its remaining time, and the
/// rule.
fn listed(daemon: &Operated) -> Vec<String> {
    let list = daemon.poolcounter(&["rules"]);
    assert_eq!(list.code, Some(0), "{}", list.stderr);
    let mut lines = list.stdout.lines().skip(1);
    let columns: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let from = columns.iter().position(|name| *name == "from").expect("a column");
    let has_left = usize::from(columns.contains(&"left"));
    let words = lines.map(|row| row.split_whitespace().skip(from).collect::<Vec<_>>());
    words.map(|row| [&row[..1], &row[1 + has_left..]].concat().join(" ")).collect()
}

#[test]
fn rules_are_listed_set_disabled_and_reset() {
    let daemon = daemon_with_rules();
    assert_eq!(listed(&daemon), ["file pages *cache:* workers=2", "file bots bot:* deny"]);
    assert_eq!(daemon.answer("bot:1"), "QUEUE_FULL");
    let off = daemon.poolcounter(&["rule", "off", "bots"]);
    assert_eq!((off.code, off.stdout.trim_end()), (Some(0), "OK rule bots is off"));
    assert_eq!(daemon.answer("bot:1"), "LOCKED");
    let set =
        daemon.poolcounter(&["rule", "set", "flood", "--for", "30m", "x:*", "total=1", "deny"]);
    assert_eq!(set.stdout.trim_end(), "OK rule flood x:* total=1 deny, for 30m");
    assert_eq!(daemon.answer("x:1"), "QUEUE_FULL");
    let expected =
        ["set flood x:* total=1 deny", "file pages *cache:* workers=2", "off bots bot:* deny"];
    assert_eq!(listed(&daemon), expected);
    let reset = ask("", &["rule", "--control-socket", &daemon.path(), "reset", "bots"]);
    assert_eq!(reset.stdout.trim_end(), "OK rule bots bot:* deny");
    assert_eq!(
        daemon.poolcounter(&["rule", "reset", "flood"]).stdout.trim_end(),
        "OK rule flood is gone"
    );
    assert_eq!(listed(&daemon), ["file pages *cache:* workers=2", "file bots bot:* deny"]);
}

#[test]
fn rules_in_json_have_their_fields() {
    let daemon = daemon_with_rules();
    let json = |words: &[&str], code: i32| -> serde_json::Value {
        let answer = daemon.poolcounter(&[words, &["--json"]].concat());
        assert_eq!(answer.code, Some(code), "{words:?}: {}{}", answer.stdout, answer.stderr);
        assert_eq!(answer.stdout.lines().count(), 1, "{}", answer.stdout);
        serde_json::from_str(&answer.stdout).expect("JSON")
    };
    let rules = json(&["rules"], 0);
    assert_eq!((&rules["ok"], &rules["rules_max"]), (&true.into(), &64.into()));
    let bots = &rules["rules"][1];
    assert_eq!((&bots["pattern"], &bots["settings"][0]), (&"bot:*".into(), &"deny".into()));
    let set = json(&["rule", "set", "flood", "--for", "30m", "café:*", "total=1", "deny"], 0);
    assert_eq!(set["answer"], r"OK rule flood café:* total=1 deny, for 30m");
    assert_eq!((&set["ok"], &set["rule"]["from"]), (&true.into(), &"set".into()));
    assert_eq!(set["rule"]["pattern"], "café:*");
    assert!(set["rule"]["left_s"].as_f64().is_some_and(|s| s > 1_000.0), "{set}");
    let off = json(&["rule", "off", "bots"], 0);
    assert_eq!((&off["rule"]["from"], off["rule"]["keys"].is_null()), (&"off".into(), true));
    assert!(json(&["rule", "reset", "flood"], 0)["rule"].is_null());
    let refused = json(&["rule", "off", "nobody"], 1);
    assert_eq!(refused["ok"], false);
    assert!(refused["answer"].as_str().is_some_and(|why| why.starts_with("ERROR no rule")));
}

/// Over a hot restart, too.
#[test]
fn check_warns_until_orders_without_an_end_are_taken_back() {
    let daemon = daemon_with_rules();
    let address = daemon.server.address().to_string();
    let check = || ask(&address, &["check"]);
    daemon.poolcounter(&["rule", "set", "flood", "--for", "30m", "x:*", "deny"]);
    assert_eq!(check().code, Some(0), "{}", check().stdout);
    daemon.poolcounter(&["rule", "off", "bots"]);
    let says_since_when = |checked: &Finished| {
        let why = checked.stdout.split_once("rules set by orders without --for: 1, since 2");
        why.is_some_and(|(_, rest)| rest.contains("Z; up "))
    };
    let warned = check();
    assert_eq!(warned.code, Some(1), "{}", warned.stdout);
    assert!(says_since_when(&warned), "{}", warned.stdout);
    restart(&daemon.server);
    let again = check();
    assert!(says_since_when(&again), "{}", again.stdout);
    daemon.poolcounter(&["rule", "reset", "bots"]);
    assert_eq!(check().code, Some(0), "{}", check().stdout);
}

#[test]
fn top_shows_groups_with_their_keys() {
    let daemon = daemon_with_rules();
    let mut holder = daemon.server.connect();
    assert_eq!(holder.ask("ACQ4ME enwiki:rcache:1234567:canonical 1 9 0"), "LOCKED");
    assert_eq!(daemon.answer("bot:1"), "QUEUE_FULL");
    let server = daemon.server.address().to_string();
    let Some(terminal) = top(&server, "enwiki:rcache:1234567:canonical") else { return };
    terminal.resize(160, 24);
    terminal.press(&["g"]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    terminal.shows(|screen| {
        let rows: Vec<Vec<String>> = screen.lines().map(words).collect();
        let pages = rows.iter().position(|row| row.last().is_some_and(|name| name == "pages"));
        let bots = rows.iter().find(|row| row.last().is_some_and(|name| name == "bots"));
        let key = pages.and_then(|n| rows.get(n + 1));
        key.is_some_and(|row| {
            row.ends_with(&["pages".into(), "enwiki:rcache:1234567:canonical".into()])
        }) && bots.is_some_and(|row| row[..4] == ["1", "0", "0", "1"])
    });
}

#[test]
fn an_invalid_rule_changes_nothing() {
    let daemon = daemon_with_rules();
    for (words, status, reason) in [
        (&["rule", "set", "a", "two words"][..], 64, "is sent as %20"),
        (&["rule", "set", "a", "line\nfeed"], 64, "is not one word"),
        (&["rule", "set", "a", "x:*", "deny\rRULE"], 64, "is not one word"),
        (&["rule", "set", "a", "--for", "soon", "x:*"], 64, "not a time such as"),
        (&["rule", "set", "a", "\"x:*\"", "deny"], 1, "write \\x22"),
        (&["rule", "off", "nobody"], 1, "no rule has the name nobody"),
    ] {
        let refused = daemon.poolcounter(words);
        assert_eq!(refused.code, Some(status), "{words:?}: {}", refused.stderr);
        let text = refused.stdout + &refused.stderr;
        assert!(text.contains(reason), "{words:?}: {text}");
    }
    assert_eq!(listed(&daemon).len(), 2);
}
