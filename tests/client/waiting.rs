//! How `poolcounter run` reports whom it waits for.

use crate::command::{ask, binary, key_of_first, run, servers, start, stderr_line};
use crate::running::{complaint, end, lasting};
use crate::support::restart::Place;
use crate::support::{Server, wait_for_exit};
use crate::terminal_jobs::Terminal;

#[test]
fn a_wait_names_the_holder() {
    // Our daemon, and the C daemon, which doesn't report holders.
    for (server, names_holders) in servers().into_iter().zip([true, false]) {
        let (holder, _) = lasting(&server, &["k"]);
        let mut waiter = start(&server, &["-v", "k", "--", "true"]);
        let line = stderr_line(&mut waiter);
        let expected = "poolcounter: k: waiting";
        if names_holders {
            let held = line.strip_prefix(&format!("{expected}; held by 127.0.0.1 for "));
            assert!(held.is_some_and(|held| held.ends_with('s')), "{line}");
        } else {
            assert_eq!(line, expected);
        }
        end(holder);
        assert_eq!(wait_for_exit(&mut waiter).code(), Some(0));
        assert_eq!(complaint(&mut waiter), "");
    }
}

#[test]
fn a_timeout_names_the_holder() {
    let server = Server::start();
    let (holder, _) = lasting(&server, &["-n", "2", "k"]);
    let (other, _) = lasting(&server, &["-n", "2", "k"]);
    for (time, begin) in [("1", "timed out; held"), ("0", "locked")] {
        let stderr = run(&server, &["-t", time, "k", "--", "true"]).stderr;
        let begin = format!("poolcounter: k: {begin} by 127.0.0.1 for ");
        assert!(stderr.starts_with(&begin), "{stderr}");
        assert!(stderr.ends_with("s and by another; \"true\" was not run\n"), "{stderr}");
    }
    end(holder);
    end(other);
}

#[test]
fn a_private_server_is_not_asked_for_holders() {
    let server = Server::start_with(&["--private"]);
    let (holder, _) = lasting(&server, &["k"]);
    let stderr = run(&server, &["-t", "1", "k", "--", "true"]).stderr;
    assert!(stderr.contains("timed out; held for "), "{stderr}");
    end(holder);
}

#[test]
fn a_free_lock_prints_nothing() {
    let server = Server::start();
    let output = run(&server, &["-v", "k", "--", "echo", "ran"]);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("ran\n", ""));
}

/// As in a crontab, where each line is a mail.
#[test]
fn a_job_that_is_skipped_quietly_prints_nothing() {
    for server in servers() {
        let (holder, _) = lasting(&server, &["k"]);
        for limits in [["-t", "0"], ["-t", "1"], ["-q", "1"]] {
            let command = ["--quiet", "-E", "0", "k", "--", "echo", "ran"];
            let output = run(&server, &[&limits[..], &command].concat());
            assert_eq!(output.code, Some(0), "{limits:?}");
            assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""), "{limits:?}");
        }
        end(holder);
    }
    // It hides no failure.
    let output = ask("127.0.0.1:1", &["run", "-t", "0", "--quiet", "k", "--", "true"]);
    assert_eq!(output.code, Some(75));
    assert!(output.stderr.contains("Connection refused"), "{}", output.stderr);
    let both = ask("127.0.0.1:1", &["run", "--quiet", "-v", "k", "--", "true"]);
    assert_eq!(both.code, Some(64), "{}", both.stderr);
}

#[test]
fn a_server_that_is_passed_over_is_named() {
    let server = Server::start();
    let names = ["127.0.0.1:1".to_owned(), server.address().to_string()];
    let key = key_of_first(&names);
    let lines = format!(
        "poolcounter: {key}: 127.0.0.1:1: Connection refused (os error 111); tried again for 0.1 s\n\
         poolcounter: {key}: 127.0.0.1:1 is passed over: Connection refused (os error 111)\n\
         poolcounter: {key}: {} gave the lock\n",
        names[1]
    );
    for options in [&[][..], &["-v"], &["--quiet"]] {
        let fallback = ["run", "--fallback", "--connect-timeout", "0.1"];
        let command = [&fallback[..], options, &[&key, "--", "true"]].concat();
        let output = ask(&names.join(","), &command);
        assert_eq!((output.code, output.stderr), (Some(0), lines.clone()), "{options:?}");
    }
}

/// A rule's refusal is neither "the queue is full" nor "somebody else does it".
#[test]
fn a_refusal_by_a_rule_is_named() {
    let place = Place::with_daemon();
    let rules = place.path("rules");
    let text = "no denied* deny\none total* total=1\nfive roomy total=5\nfew few* maxqueue=1\nst short* timeout=1s\n";
    std::fs::write(&rules, text).expect("write");
    let server = place.start(&["--rules", &rules.display().to_string()]);
    let mut holder = server.connect();
    for key in ["total", "few", "short", "roomy"] {
        assert_eq!(holder.ask(&format!("ACQ4ME {key} 9 9 0")), "LOCKED");
    }
    for (options, key, code, said) in [
        (&["-E", "0", "--quiet"][..], "denied", 75, "denied by rule no"),
        (&[], "denied", 75, "denied by rule no"),
        (&[], "total2", 1, "limited by rule one: total=1"),
        // Of the total, one is used.
        (&["-q", "1"], "roomy", 1, "the queue is full"),
        (&["-q", "1"], "total", 1, "the queue is full"),
        (&["-n", "9"], "few", 1, "limited by rule few: maxqueue=1"),
        (&["-t", "60"], "short", 1, "timed out; the wait was shortened to 1s by rule st; held by"),
    ] {
        let output = run(&server, &[options, &[key, "--", "true"]].concat());
        assert_eq!(output.code, Some(code), "{key}: {}", output.stderr);
        let begin = format!("poolcounter: {key}: {said}");
        assert!(output.stderr.starts_with(&begin), "{}", output.stderr);
    }
}

/// What is a habit of those who know flock(1) gets the option's name here.
#[test]
fn habits_of_flock_get_a_hint() {
    for (words, hint) in [
        (&["run", "-w", "5", "k", "--", "true"][..], "-t 5"),
        (&["run", "-w5", "k", "--", "true"], "-t 5"),
        (&["run", "--wait", "5", "k", "--", "true"], "-t 5"),
        (&["run", "-n", "k", "--", "true"], "-t 0"),
        (&["run", "--nonblock", "k", "--", "true"], "-t 0"),
        (&["run", "k", "true"], "put -- before the command"),
        (&["run", "--no-fallback", "k", "--", "true"], "no other server is asked without"),
    ] {
        let output = ask("127.0.0.1:1", words);
        assert_eq!(output.code, Some(64), "{words:?}");
        assert!(output.stderr.contains(hint), "{words:?}: {}", output.stderr);
    }
}

/// Monitoring shows what a plugin prints to standard output.
#[test]
fn a_plugins_errors_of_usage_are_its_output() {
    for (servers, words) in [
        ("127.0.0.1:1", &["check", "--waiting", "50,10"][..]),
        ("127.0.0.1:1", &["check", "--no-such-option"]),
        ("a:b", &["check"]),
        ("127.0.0.1:1", &["-s", "", "check"]),
    ] {
        let output = ask(servers, words);
        assert_eq!((output.code, output.stderr.as_str()), (Some(3), ""), "{words:?}");
        assert!(!output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn on_a_terminal_a_wait_is_shown() {
    let server = Server::start();
    let (holder, _) = lasting(&server, &["k"]);
    let binary = binary().display();
    let line = format!("{binary} -s {} run k -- echo ran; sleep 1000", server.address());
    let Some(terminal) = Terminal::start(120, 10, &line) else { return };
    terminal.shows(|screen| screen.contains("k: waiting; held by 127.0.0.1 for "));
    end(holder);
    terminal.shows(|screen| screen.contains("ran"));
}
