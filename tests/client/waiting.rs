//! Whom `poolcounter run` waits for, and what it says of that.

use crate::command::{run, servers, start, told};
use crate::running::{complaint, end, lasting};
use crate::support::{Server, wait_for_exit};

#[test]
fn a_wait_names_the_holder() {
    // Ours, and the C daemon, which can't tell.
    for (server, can_tell) in servers().into_iter().zip([true, false]) {
        let (holder, _) = lasting(&server, &["k"]);
        let mut waiter = start(&server, &["-v", "k", "--", "true"]);
        let said = told(&mut waiter);
        let expected = "poolcounter: k: waiting";
        match can_tell {
            true => {
                let held = said.strip_prefix(&format!("{expected}; held by 127.0.0.1 for "));
                assert!(held.is_some_and(|held| held.ends_with(" s")), "{said}");
            }
            false => assert_eq!(said, expected),
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
    let said = run(&server, &["-t", "0", "k", "--", "true"]).stderr;
    assert!(said.contains("timed out; held by 127.0.0.1 for "), "{said}");
    assert!(said.contains(" s and by another; \"true\" was not run"), "{said}");
    end(holder);
    end(other);
}

#[test]
fn a_private_server_is_not_asked_for_holders() {
    let server = Server::start_with(&["--private"]);
    let (holder, _) = lasting(&server, &["k"]);
    let said = run(&server, &["-t", "0", "k", "--", "true"]).stderr;
    assert!(said.contains("timed out; held for "), "{said}");
    end(holder);
}

#[test]
fn a_free_lock_prints_nothing() {
    let server = Server::start();
    let said = run(&server, &["-v", "k", "--", "echo", "ran"]);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("ran\n", ""));
}
