//! `poolcounter rules` and `poolcounter rule`.

use crate::command::ask;
use crate::support::restart::Place;
use crate::support::{Finished, Server};

struct Daemon {
    place: Place,
    server: Server,
}

impl Daemon {
    fn start() -> Daemon {
        let place = Place::with_daemon();
        let [control, rules] = ["c", "rules"].map(|name| place.path(name).display().to_string());
        std::fs::write(&rules, "pages *:page:* workers=2\nbots bot:* deny\n").expect("written");
        let server = place.start(&["--control", &control, "--rules", &rules]);
        Daemon { place, server }
    }

    fn ask(&self, words: &[&str]) -> Finished {
        let control = self.place.path("c").display().to_string();
        ask("", &[words, &["--control-socket", &control]].concat())
    }

    fn answer(&self, key: &str) -> String {
        self.server.connect().ask(&format!("ACQ4ME {key} 9 9 0"))
    }
}

/// The last columns of the list: where each rule comes from, what is left of its time, and
/// the rule.
fn listed(daemon: &Daemon) -> Vec<String> {
    let list = daemon.ask(&["rules"]);
    assert_eq!(list.code, Some(0), "{}", list.stderr);
    let rows = list.stdout.lines().skip(3);
    let words = rows.map(|row| row.split_whitespace().skip(4).collect::<Vec<_>>());
    words.map(|row| [&row[..1], &row[2..]].concat().join(" ")).collect()
}

#[test]
fn rules_are_listed_set_disabled_and_reset() {
    let daemon = Daemon::start();
    assert_eq!(listed(&daemon), ["file pages *:page:* workers=2", "file bots bot:* deny"]);
    assert_eq!(daemon.answer("bot:1"), "QUEUE_FULL");
    let off = daemon.ask(&["rule", "off", "bots"]);
    assert_eq!((off.code, off.stdout.trim_end()), (Some(0), "OK rule bots is off"));
    assert_eq!(daemon.answer("bot:1"), "LOCKED");
    let set = daemon.ask(&["rule", "set", "flood", "--for", "30m", "x:*", "total=1", "deny"]);
    assert_eq!(set.stdout.trim_end(), "OK rule flood x:* total=1 deny, for 1800 s");
    assert_eq!(daemon.answer("x:1"), "QUEUE_FULL");
    let expected =
        ["set flood x:* total=1 deny", "file pages *:page:* workers=2", "off bots bot:* deny"];
    assert_eq!(listed(&daemon), expected);
    assert_eq!(daemon.ask(&["rule", "reset", "bots"]).stdout.trim_end(), "OK rule bots bot:* deny");
    assert_eq!(daemon.ask(&["rule", "reset", "flood"]).stdout.trim_end(), "OK rule flood is gone");
    assert_eq!(listed(&daemon), ["file pages *:page:* workers=2", "file bots bot:* deny"]);
}

#[test]
fn what_is_no_rule_changes_nothing() {
    let daemon = Daemon::start();
    for (words, status, said) in [
        (&["rule", "set", "a", "two words"][..], 64, "is not one word"),
        (&["rule", "set", "a", "line\nfeed"], 64, "is not one word"),
        (&["rule", "set", "a", "x:*", "deny\rRULE"], 64, "is not one word"),
        (&["rule", "set", "a", "x:*", "workers=0"], 1, "workers=0"),
        (&["rule", "set", "a", "--for", "5", "x:*"], 1, "5: not a time"),
        (&["rule", "off", "nobody"], 1, "no rule has the name nobody"),
    ] {
        let refused = daemon.ask(words);
        assert_eq!(refused.code, Some(status), "{words:?}: {}", refused.stderr);
        let text = refused.stdout + &refused.stderr;
        assert!(text.contains(said), "{words:?}: {text}");
    }
    assert_eq!(listed(&daemon).len(), 2);
}
