//! `drain`, `undrain`, `restart` and `control`, on the control socket.

use crate::command::poolcounter;
use crate::support::restart::{Place, WENT_ON};
use crate::support::{Finished, finish};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

fn order(path: &str, arguments: &[&str]) -> Finished {
    finish(&mut poolcounter("", &[arguments, &["--control-socket", path]].concat()))
}

#[test]
fn orders_reach_the_daemon() {
    let place = Place::with_daemon();
    let path = place.path("c").display().to_string();
    let mut server = place.start(&["--control", &path]);
    let mut client = server.connect();
    assert_eq!(client.ask("ACQ4ME k 1 1 0"), "LOCKED");
    for (arguments, answer) in [
        (&["drain"][..], "OK draining, "),
        (&["undrain"], "OK listening on "),
        (&["control", "LOG"], "OK "),
        (&["control", "LOG", "debug"], "OK "),
        (&["restart"], "OK restarted, poolcounterd "),
    ] {
        let said = order(&path, arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}{}", said.stdout, said.stderr);
        assert!(said.stdout.starts_with(answer), "{arguments:?}: {}", said.stdout);
    }
    server.log.wait_for(WENT_ON);
    let help = order(&path, &["control", "HELP"]).stdout;
    assert!(help.lines().any(|line| line.starts_with("UNDRAIN ")), "{help}");
    assert!(!help.contains("\n\n"), "{help}");
    let wrong = order(&path, &["control", "NONSENSE", "--json"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stdout.starts_with("{\"answer\":\"ERROR "), "{}", wrong.stdout);
    assert_eq!(client.ask("RELEASE"), "RELEASED");
    server.signal(Signal::TERM);
    server.wait_for_exit();
    assert_eq!(order(&path, &["drain"]).code, Some(75), "nobody is there");
}

#[test]
fn an_order_is_not_for_servers() {
    let place = Place::with_daemon();
    let path = place.path("c").display().to_string();
    let mut server = place.start(&["--control", &path]);
    for order in [&["drain"][..], &["undrain"], &["restart"], &["control", "LOG"]] {
        let before = [&["-s", "127.0.0.1:1"][..], order].concat();
        let behind = [order, &["--server", "127.0.0.1:1"][..]].concat();
        for arguments in [before, behind] {
            let said = self::order(&path, &arguments);
            assert_eq!((said.code, said.stdout.as_str()), (Some(64), ""), "{arguments:?}");
            assert!(said.stderr.contains("--control-socket"), "{}", said.stderr);
        }
        let help = finish(&mut poolcounter("", &[order[0], "--help"])).stdout;
        assert!(help.contains("--control-socket") && !help.contains("--server"), "{help}");
    }
    assert_eq!(finish(&mut poolcounter("", &["--help"])).stdout.matches("--server").count(), 1);
    server.signal(Signal::TERM);
    server.wait_for_exit();
}

#[test]
fn an_order_needs_no_list_of_servers() {
    let place = Place::with_daemon();
    let path = place.path("c").display().to_string();
    let mut server = place.start(&["--control", &path]);
    for list in ["wiki1:port", ":::"] {
        let said = finish(&mut poolcounter(list, &["undrain", "--control-socket", &path]));
        assert_eq!(said.code, Some(0), "{list}: {}", said.stderr);
    }
    server.signal(Signal::TERM);
    server.wait_for_exit();
}

/// As a hot restart does that came first.
#[test]
fn an_order_whose_connection_is_closed_is_given_again() {
    let place = Place::with_daemon();
    let path = place.path("c");
    let listener = UnixListener::bind(&path).expect("a socket");
    let daemon = std::thread::spawn(move || {
        drop(listener.accept().expect("a client"));
        let (stream, _) = listener.accept().expect("it again");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("an order");
        (&stream).write_all(b"OK heard\n").expect("written");
        line
    });
    let said = order(&path.display().to_string(), &["control", "LOG", "info"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "OK heard\n"), "{}", said.stderr);
    assert_eq!(daemon.join().expect("no panic"), "LOG info\n");
}
