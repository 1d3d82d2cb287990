//! How `poolcounter run` reports whom it waits for.

use crate::command::{ask, key_of_first, run, servers, start, stderr_line};
use crate::running::{complaint, end, lasting};
use crate::support::{Server, wait_for_exit};

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
        "poolcounter: {key}: 127.0.0.1:1 is passed over: Connection refused (os error 111)\n\
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
