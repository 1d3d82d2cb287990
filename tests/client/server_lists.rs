//! Where `poolcounter` finds its servers: options, the environment, a file, this host.

use crate::command::binary;
use crate::support::{Finished, Server, finish, launched, skip};
use std::process::Command;

/// The command where /etc has nothing but an empty folder poolcounter, changed by these lines of
/// shell there.
fn on_a_host(setup: &str, servers: Option<&str>, words: &[&str]) -> Command {
    let line = "mount -t tmpfs none /etc && mkdir /etc/poolcounter && cd /etc/poolcounter && \
                eval \"$SETUP\" && cd / && exec \"$@\"";
    let namespace = ["unshare", "--mount", "sh", "-c", line, "sh"];
    let mut command = launched(&namespace, binary(), words);
    command.env("SETUP", setup).env_remove("POOLCOUNTER_SERVERS");
    command.envs(servers.map(|servers| ("POOLCOUNTER_SERVERS", servers)));
    command
}

/// What `which` prints, or why not. `None` if there are no mount namespaces.
fn listed(setup: &str, servers: Option<&str>, options: &[&str]) -> Option<Finished> {
    if !rustix::process::geteuid().is_root() {
        skip("mount namespaces need root");
        return None;
    }
    let done = finish(&mut on_a_host(setup, servers, &[options, &["which", "k"]].concat()));
    if done.stderr.contains("unshare:") || done.stderr.contains("mount:") {
        skip("this container gives no mount namespaces");
        return None;
    }
    Some(done)
}

fn sorted(done: Finished) -> Vec<String> {
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let mut lines: Vec<String> = done.stdout.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn the_option_comes_first_then_the_variable_the_file_and_this_host() {
    let file =
        r"printf '# the farm\n10.1.2.3\t10.1.2.4 # old: 10.1.2.9\r\n\n  pc5:7532\r\n' >servers";
    let of_file = ["10.1.2.3", "10.1.2.4", "pc5:7532"];
    for (setup, variable, options, expected) in [
        (":", None, &[][..], &["127.0.0.1"][..]),
        ("rmdir /etc/poolcounter", None, &[], &["127.0.0.1"]),
        (file, None, &[], &of_file),
        (file, Some(""), &[], &of_file),
        (file, Some("10.2.2.2"), &[], &["10.2.2.2"]),
        (file, Some("10.2.2.2"), &["-s", "10.3.3.3"], &["10.3.3.3"]),
        ("echo pc1 >/etc/farm; ln -s ../farm servers", None, &[], &["pc1"]),
        ("echo pc1 >servers; cd ..; mv poolcounter p; ln -s p poolcounter", None, &[], &["pc1"]),
    ] {
        let Some(done) = listed(setup, variable, options) else { return };
        assert_eq!(sorted(done), expected, "{setup} {variable:?} {options:?}");
    }
    // A plugin checks this host.
    let check = finish(&mut on_a_host(file, None, &["check"]));
    assert!(check.stdout.contains(" 127.0.0.1: "), "{}", check.stdout);
}

/// They never lead to 127.0.0.1.
#[test]
fn what_is_no_list_is_an_error_that_names_its_source() {
    for setup in [
        ": >servers",
        r"printf '\n # nothing\n' >servers",
        "echo 10.1.2.3 a:b >servers",
        "echo 10.1.2.3 /run/sock >servers",
        "echo 'SERVERS=\"10.1.2.3\"' >servers",
        r"printf '\357\273\27710.1.2.3\n' >servers",
        r"printf '\357\273\277# the farm\n10.1.2.3\n' >servers",
        r"printf '\377\3761\0000\000' >servers",
        "yes 10.1.2.3 | head -c 2000000 >servers",
        "mkdir servers",
        "mkfifo servers",
        "ln -s /dev/zero servers",
        "ln -s servers servers",
        "ln -s nowhere servers",
        "ln -s nowhere link; ln -s link servers",
        "rmdir ../poolcounter; ln -s nowhere ../poolcounter",
        "rmdir ../poolcounter; ln -s poolcounter ../poolcounter",
        "rmdir ../poolcounter; echo 10.1.2.3 >../poolcounter",
        // Root may read it.
        "chmod 0 .; set -- setpriv --bounding-set=-dac_override,-dac_read_search \"$@\"",
    ] {
        let Some(done) = listed(setup, None, &[]) else { return };
        assert_eq!((done.code, done.stdout.as_str()), (Some(64), ""), "{setup}: {}", done.stderr);
        let named = "poolcounter: /etc/poolcounter/servers";
        assert!(done.stderr.starts_with(named), "{setup}: {}", done.stderr);
    }
    let done = listed(":", Some("10.1.2.3 # 10.1.2.4"), &[]).expect("as before");
    assert_eq!((done.code, done.stdout.as_str()), (Some(64), ""));
    assert!(done.stderr.contains("POOLCOUNTER_SERVERS: "), "{}", done.stderr);
}

#[test]
fn a_run_without_a_list_says_whom_it_asks() {
    let Some(_) = listed(":", None, &[]) else { return };
    let said = "(no list of servers: 127.0.0.1 is asked)\n";
    let words = ["run", "--connect-timeout", "0.1", "k", "--", "true"];
    let Finished { code, stderr, .. } = finish(&mut on_a_host(":", None, &words));
    assert!(stderr.ends_with(said) || code == Some(0), "{stderr}");
    let server = Server::start();
    let mut listed = on_a_host(":", Some(&server.address().to_string()), &words);
    assert_eq!(finish(&mut listed).stderr, "");
}
