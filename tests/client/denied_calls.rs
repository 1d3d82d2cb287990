//! A kernel without one of the system calls that the command makes, or a container's profile that
//! denies it: the command does what it is for, or says which call it lacks. `DENIED_CALLS=all`
//! tries every call.

use crate::command::binary;
use crate::support::denied_calls::{Chosen, calls_in, can_deny, recorded};
use crate::support::restart::Place;
use crate::support::{Finished, Server, finish};
use std::process::Command;

#[test]
fn each_call_of_run() {
    let of_interest = ["prctl(PR_SET_PDEATHSIG)", "signalfd4", "wait4"];
    each_call(&["run", "KEY", "--", "echo", "it ran"], "it ran", &of_interest);
}

#[test]
fn each_call_of_top() {
    each_call(&["top"], "locks 0", &["connect", "setsockopt(TCP_NODELAY)"]);
}

#[test]
fn each_call_of_check() {
    each_call(&["check"], "OK", &["connect", "clone3"]);
}

/// What threads need: those of the C library never end without `exit`, and the standard library
/// ends a process whose locks don't work.
const OF_THREADS: [&str; 2] = ["exit", "futex"];

/// Denies each call of a subcommand, which prints this text. In `make test`, those `of_interest`.
fn each_call(words: &'static [&'static str], wanted: &'static str, of_interest: &[&str]) {
    if !can_deny() {
        return;
    }
    let server = Server::start();
    let name: &'static str = server.address().to_string().leak();
    let ask = move |mut command: Command| {
        finish(command.env("POOLCOUNTER_SERVERS", name).env_remove("NO_COLOR"))
    };
    let place = Place::new();
    let done = ask(recorded(binary(), words, &place.path("trace")));
    assert!(done.stdout.contains(wanted), "{}{}", done.stdout, done.stderr);
    let mut calls = calls_in(&place.path("trace"));
    calls.retain(|call| !OF_THREADS.contains(&call.shown().as_str()));
    Chosen::from_environment(of_interest).deny(calls, move |call, error| {
        let start = |words: &[&str]| ask(call.denied_to(error, binary(), words));
        // A case that is slow keeps no other waiting.
        let key = format!("{} {error}", call.shown());
        let own = words.iter().map(|&word| if word == "KEY" { &key } else { word });
        let done = start(&own.collect::<Vec<_>>());
        let Finished { code, stdout, stderr } = &done;
        if *code == Some(0) && stdout.contains(wanted) {
            return format!("works; {}", stderr.trim());
        }
        if start(&["--version"]).code != Some(0) {
            return "not even --version works".to_owned();
        }
        let said = format!("{stdout}{stderr}");
        assert!(call.is_named_in(&said), "status {code:?}, not named: {said}");
        assert_ne!(*code, Some(0), "{said}");
        format!("status {code:?}: {}", said.trim())
    });
}
