//! `support-bundle`: what is in the file, also if the daemon hangs or is gone.

use crate::command::ask;
use crate::support::restart::Place;
use crate::support::{Finished, Server};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const KEY: &str = "enwiki:pcache:idhash:2-0!canonical:revid:7";

struct Scene {
    place: Place,
    server: Server,
}

impl Scene {
    fn start() -> Scene {
        let place = Place::with_daemon();
        let path = place.path("c").display().to_string();
        let max_hold = "--max-hold=secret*=60";
        let server = place.start(&["--control", &path, "--slow", "1", max_hold]);
        Scene { place, server }
    }

    fn text(&self, name: &str) -> String {
        self.place.path(name).display().to_string()
    }

    /// Runs it against the port `servers` and the control socket `socket`.
    fn bundle(&self, servers: &str, socket: &str, more: &[&str]) -> Finished {
        let socket = self.text(socket);
        let unit = ["--unit", "no-such-unit"];
        let all = [&["support-bundle", "--control-socket", &socket], &unit[..], more].concat();
        ask(servers, &all)
    }
}

/// The text under a heading.
#[track_caller]
fn section<'a>(bundle: &'a str, title: &str) -> &'a str {
    let (_, rest) = bundle.split_once(&format!("\n== {title}\n")).expect(title);
    rest.split("\n\n== ").next().unwrap_or_default()
}

#[test]
fn the_file_has_what_the_daemon_knows_and_is_for_its_owner() {
    let scene = Scene::start();
    let mut client = scene.server.connect();
    client.exchange(&format!("ACQ4ME {KEY} 1 1 1"), "LOCKED");
    let file = scene.text("bundle.txt");
    let done = scene.bundle("", "c", &[&file]);
    assert_eq!((done.code, done.stdout), (Some(0), format!("{file}\n")), "{}", done.stderr);
    let mode = fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let bundle = fs::read_to_string(&file).expect("text");
    assert!(section(&bundle, "STATS FULL").contains("processing_workers: 1\n"));
    assert!(section(&bundle, "STATS KEYS 200").contains(KEY));
    assert!(section(&bundle, "STATS CLIENTS 200").contains("127.0.0.1"));
    assert!(section(&bundle, "RULES").starts_with("rules: "));
    assert!(section(&bundle, "STATS JSON HISTORY").contains("\"what\":\"start\""));
    assert!(section(&bundle, "/proc/PID/cmdline").contains("--slow 1"));
    assert!(section(&bundle, "/proc/PID/limits").contains("Max open files"));
    // What can't be had is named.
    assert!(!section(&bundle, "systemctl cat no-such-unit").is_empty());
    assert!(bundle.ends_with("\n== end\n"), "{bundle}");
    let again = scene.bundle("", "c", &[&file]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("File exists"), "{}", again.stderr);
}

#[test]
fn with_private_no_key_and_no_address_is_in_it() {
    let scene = Scene::start();
    let mut client = scene.server.connect();
    client.exchange(&format!("ACQ4ME {KEY} 1 1 1"), "LOCKED");
    let done = scene.bundle("", "c", &["--private", "-"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let bundle = done.stdout;
    for secret in ["enwiki", "127.0.0.1", "secret"] {
        assert!(!bundle.contains(secret), "{secret}: {bundle}");
    }
    assert!(section(&bundle, "/proc/PID/cmdline").contains("--max-hold"), "{bundle}");
    assert!(section(&bundle, "STATS JSON").contains("\"key\":\"hidden\""));
    assert_eq!(section(&bundle, "STATS KEYS 200").trim(), "(left out: --private)");
    assert!(section(&bundle, "STATS FULL").contains("processing_workers: 1\n"));
}

#[test]
fn a_daemon_that_hangs_is_asked_once() {
    let scene = Scene::start();
    scene.server.signal(Signal::STOP);
    let done = scene.bundle("", "c", &["-"]);
    scene.server.signal(Signal::CONT);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let bundle = done.stdout;
    assert!(section(&bundle, "STATS FULL").contains("no answer within 5 seconds"));
    assert_eq!(bundle.matches("the daemon did not answer before").count(), 10, "{bundle}");
    // What the kernel knows is most important then.
    assert!(section(&bundle, "/proc/PID/status").contains("State:\tT (stopped)"));
}

#[test]
fn without_the_control_socket_the_port_is_asked() {
    let scene = Scene::start();
    let port = scene.server.address().to_string();
    let bundle = scene.bundle(&port, "nowhere", &["-"]).stdout;
    assert!(section(&bundle, "STATS FULL").contains("uptime: "));
    assert!(section(&bundle, "RULES").contains("nowhere: No such file"));
}

#[test]
fn a_file_that_can_not_be_written_whole_is_removed() {
    let scene = Scene::start();
    let file = scene.text("cut.txt");
    let socket = scene.text("c");
    // Blocks of 512 bytes; the signal would end the command.
    let line = format!(
        "trap '' XFSZ; ulimit -f 4; exec \"$0\" support-bundle --unit no-such-unit --control-socket {socket} {file}"
    );
    let done = crate::command::shell("", &line);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("cut.txt: File too large"), "{}", done.stderr);
    assert!(!std::path::Path::new(&file).exists());
}
