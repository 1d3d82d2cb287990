//! Where `poolcounter` finds its servers: options, the environment, a file, this host.

use crate::command::binary;
use crate::support::restart::Place;
use crate::support::{Finished, Server, finish, launched, skip};
use std::fs;
use std::process::Command;

/// The command where /etc has nothing but this folder as /etc/poolcounter.
fn on_a_host(etc: &str, servers: Option<&str>, words: &[&str]) -> Command {
    let line = "mount -t tmpfs none /etc && mkdir /etc/poolcounter && \
                mount --bind \"$FOLDER\" /etc/poolcounter && exec \"$@\"";
    let namespace = ["unshare", "--mount", "sh", "-c", line, "sh"];
    let mut command = launched(&namespace, binary(), words);
    command.env("FOLDER", etc).env_remove("POOLCOUNTER_SERVERS");
    command.envs(servers.map(|servers| ("POOLCOUNTER_SERVERS", servers)));
    command
}

/// What `which` prints, or why not. `None` if there are no mount namespaces.
fn listed(etc: &str, servers: Option<&str>, options: &[&str]) -> Option<Finished> {
    if !rustix::process::geteuid().is_root() {
        skip("mount namespaces need root");
        return None;
    }
    let done = finish(&mut on_a_host(etc, servers, &[options, &["which", "k"]].concat()));
    if done.stderr.contains("unshare:") || done.stderr.contains("mount:") {
        skip("this container gives no mount namespaces");
        return None;
    }
    Some(done)
}

#[test]
fn the_option_comes_first_then_the_variable_the_file_and_this_host() {
    let place = Place::new();
    let etc = place.directory().display().to_string();
    let sorted = |done: Finished| {
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let mut lines: Vec<String> = done.stdout.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let Some(none) = listed(&etc, None, &[]) else { return };
    assert_eq!(sorted(none), ["127.0.0.1"]);
    let file = "# the farm\n10.1.2.3\t10.1.2.4 # old: 10.1.2.9\n\n  10.1.2.5:7532\n";
    fs::write(place.path("servers"), file).expect("write");
    for (variable, options, expected) in [
        (None, &[][..], &["10.1.2.3", "10.1.2.4", "10.1.2.5:7532"][..]),
        (Some(""), &[], &["10.1.2.3", "10.1.2.4", "10.1.2.5:7532"]),
        (Some("10.2.2.2"), &[], &["10.2.2.2"]),
        (Some("10.2.2.2"), &["-s", "10.3.3.3"], &["10.3.3.3"]),
    ] {
        let done = listed(&etc, variable, options).expect("as before");
        assert_eq!(sorted(done), expected, "{variable:?} {options:?}");
    }
    // A plugin checks this host.
    let check = finish(&mut on_a_host(&etc, None, &["check"]));
    assert!(check.stdout.contains(" 127.0.0.1: "), "{}", check.stdout);
}

/// They never lead to 127.0.0.1.
#[test]
fn what_is_no_list_is_an_error_that_names_its_source() {
    let place = Place::new();
    let etc = place.directory().display().to_string();
    let Some(_) = listed(&etc, None, &[]) else { return };
    let path = place.path("servers");
    let expect_error = |what: &str| {
        let done = listed(&etc, None, &[]).expect("as before");
        assert_eq!((done.code, done.stdout.as_str()), (Some(64), ""), "{what}");
        assert!(done.stderr.contains("/etc/poolcounter/servers"), "{what}: {}", done.stderr);
    };
    for text in [&b""[..], b"\n # nothing\n", b"10.1.2.3 a:b", b"10.1.2.3 /run/sock", b"\xff"] {
        fs::write(&path, text).expect("write");
        expect_error(&text.escape_ascii().to_string());
    }
    fs::write(&path, "10.1.2.3 ".repeat(200_000)).expect("write");
    expect_error("a file without an end");
    fs::remove_file(&path).expect("remove it");
    fs::create_dir(&path).expect("a folder");
    expect_error("a folder");
    fs::remove_dir(&path).expect("remove it");
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    expect_error("a pipe that nobody writes to");
    fs::remove_file(&path).expect("remove it");
    std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
    expect_error("a device");
    let done = listed(&etc, Some("10.1.2.3 # 10.1.2.4"), &[]).expect("as before");
    assert_eq!((done.code, done.stdout.as_str()), (Some(64), ""));
    assert!(done.stderr.contains("POOLCOUNTER_SERVERS: "), "{}", done.stderr);
}

#[test]
fn a_run_without_a_list_says_whom_it_asks() {
    let place = Place::new();
    let etc = place.directory().display().to_string();
    let Some(_) = listed(&etc, None, &[]) else { return };
    let said = "(no list of servers: 127.0.0.1 is asked)\n";
    let words = ["run", "--connect-timeout", "0.1", "k", "--", "true"];
    let Finished { code, stderr, .. } = finish(&mut on_a_host(&etc, None, &words));
    assert!(stderr.ends_with(said) || code == Some(0), "{stderr}");
    let server = Server::start();
    let mut listed = on_a_host(&etc, Some(&server.address().to_string()), &words);
    assert_eq!(finish(&mut listed).stderr, "");
}
