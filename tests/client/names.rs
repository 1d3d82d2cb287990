//! Names of servers that mean several addresses, or that no name server knows.

use crate::command::{binary, key_of_first, stderr_line};
use crate::support::restart::Place;
use crate::support::stopwatch::Stopwatch;
use crate::support::{Finished, Server, eventually, finish, launched, skip, wait_for_exit};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The command, on a host whose hosts file and resolv.conf are these. `None`, with a message, if
/// that is not possible here.
fn on_a_host(place: &Place, hosts: &str, resolver: &str, arguments: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        skip("mount namespaces need root");
        return None;
    }
    std::fs::write(place.path("hosts"), hosts).expect("written");
    std::fs::write(place.path("resolv.conf"), resolver).expect("written");
    let line = "mount --bind \"$PLACE/hosts\" /etc/hosts && \
                mount --bind \"$PLACE/resolv.conf\" /etc/resolv.conf && exec \"$@\"";
    let launcher = ["unshare", "--mount", "sh", "-c", line, "sh"];
    let mut probe = launched(&launcher, "true", &[]);
    if finish(probe.env("PLACE", place.directory())).code != Some(0) {
        skip("this container gives no mount namespaces");
        return None;
    }
    let mut command = launched(&launcher, binary(), arguments);
    command.env("PLACE", place.directory());
    Some(command)
}

#[test]
fn a_name_of_several_addresses_is_refused_without_a_fallback() {
    let server = Server::start();
    let port = server.address().port();
    let place = Place::new();
    let hosts = "127.0.0.8 many\n127.0.0.1 many\n127.0.0.1 one\n127.0.0.1 both\n::1 both\n";
    let run = |options: &[&str], name: &str| -> Option<Finished> {
        let list = format!("{name}:{port}");
        let words = [&["-s", &list, "run"], options, &["k", "--", "echo", "ran"]].concat();
        on_a_host(&place, hosts, "", &words).map(|mut command| finish(&mut command))
    };
    let Some(output) = run(&["--no-server", "run"], "many") else { return };
    assert_eq!((output.code, output.stdout.as_str()), (Some(64), ""), "{}", output.stderr);
    let begin = format!("poolcounter: k: many:{port} has several addresses, ");
    assert!(output.stderr.starts_with(&begin), "{}", output.stderr);
    // The resolver sorts them.
    for address in ["127.0.0.8", "127.0.0.1"] {
        assert!(output.stderr.contains(address), "{}", output.stderr);
    }
    assert_eq!(server.counter("total_acquired"), 0);
    // Each address is tried.
    for (options, name) in [(&["--fallback"][..], "many"), (&[], "one"), (&[], "both")] {
        let output = run(options, name).expect("as before");
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), "ran\n"), "{}", output.stderr);
    }
}

/// A resolver that fails, as while a network starts, is tried again.
#[test]
fn a_name_that_is_found_later_is_waited_for() {
    let server = Server::start();
    let (place, list) = (Place::new(), format!("later:{}", server.address().port()));
    let words = ["-s", &list, "run", "k", "--", "echo", "ran"];
    let Some(mut command) = on_a_host(&place, "", "", &words) else { return };
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unshare");
    let said = stderr_line(&mut run);
    assert!(said.starts_with(&format!("poolcounter: k: {list}: failed to lookup")), "{said}");
    assert!(said.ends_with("; tried again for 30 s"), "{said}");
    std::fs::write(place.path("hosts"), "127.0.0.1 later\n").expect("written");
    assert_eq!(crate::running::first_line(&mut run), "ran");
    assert_eq!(wait_for_exit(&mut run).code(), Some(0));
}

/// A host's own name may mean another address than people think.
#[test]
fn the_address_that_was_tried_is_named() {
    let place = Place::new();
    let words = ["-s", "own:1", "run", "--connect-timeout", "0.1", "k", "--", "true"];
    let hosts = "127.0.1.1 own\n";
    let Some(mut command) = on_a_host(&place, hosts, "", &words) else { return };
    let output = finish(&mut command);
    let why = "own:1: 127.0.1.1:1: Connection refused (os error 111)";
    assert_eq!(output.code, Some(75), "{}", output.stderr);
    assert_eq!(output.stderr.matches(why).count(), 2, "{}", output.stderr);
}

/// The resolver would wait for longer than a test does. Its thread takes no signals.
#[test]
fn a_silent_name_server_does_not_delay_the_next_server() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root may listen on port 53");
    }
    // An address of this process's; the daemons of tests have others.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, high.max(1), low, 9);
    let Ok(_silent) = UdpSocket::bind((ip, 53)) else {
        return skip("port 53 can't be had");
    };
    let resolver = format!("nameserver {ip}\noptions timeout:30 attempts:5\n");
    let server = Server::start();
    let names = ["pc1.example".to_owned(), server.address().to_string()];
    let list = names.join(",");
    let (place, key) = (Place::new(), key_of_first(&names));
    let script = "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done";
    let words = [
        "-s",
        &list,
        "run",
        "--fallback",
        "--connect-timeout",
        "2",
        &key,
        "--",
        "sh",
        "-c",
        script,
    ];
    let Some(mut command) = on_a_host(&place, "", &resolver, &words) else { return };
    let trying = Stopwatch::start();
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unshare");
    assert_eq!(crate::running::first_line(&mut run), "up");
    trying.at_least(Duration::from_secs(2));
    kill_process(Pid::from_child(&run), Signal::TERM).expect("a signal");
    assert_eq!(wait_for_exit(&mut run).code(), Some(5));
    let mut stderr = String::new();
    run.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
    let why = format!("{key}: pc1.example is passed over: the name was not resolved in time");
    assert!(stderr.contains(&why), "{stderr}");
}

/// The other addresses may be those of other daemons, which have run for longer than the wait.
#[test]
fn a_lost_wait_returns_to_the_address_that_it_had() {
    let place = Place::with_daemon();
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ips = [10, 11].map(|last| Ipv4Addr::new(127, high.max(1), low, last).to_string());
    let first = place.start(&["-l", &ips[0], "-p", "0"]);
    let port = first.address().port().to_string();
    let second = place.start(&["-l", &ips[1], "-p", &port]);
    let mut servers = [Some(first), Some(second)];
    let mut holders: Vec<_> = servers.iter().flatten().map(Server::connect).collect();
    holders.iter_mut().for_each(|holder| holder.exchange("ACQ4ME k 1 9 0", "LOCKED"));
    let hosts = format!("{} two\n{} two\n", ips[0], ips[1]);
    let line = format!("-s two:{port} run --fallback --connect-timeout 10 -t 60 k -- echo ran");
    let words: Vec<&str> = line.split(' ').collect();
    let Some(mut command) = on_a_host(&place, &hosts, "", &words) else { return };
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unshare");
    let mut asked = 0;
    let is_waiting = |servers: &[Option<Server>; 2], n: usize| {
        servers[n].as_ref().expect("runs").counter("waiting_workers") == 1
    };
    assert!(eventually(|| {
        asked = (0..2).find(|&n| is_waiting(&servers, n)).unwrap_or(2);
        asked < 2
    }));
    let since_loss = Stopwatch::start();
    drop(servers[asked].take());
    // It gets half of the time to come back; then the other address is tried too.
    assert!(eventually(|| is_waiting(&servers, 1 - asked)));
    since_loss.at_least(Duration::from_secs(5));
    holders[1 - asked].exchange("RELEASE", "RELEASED");
    assert_eq!(crate::running::first_line(&mut run), "ran");
    assert_eq!(wait_for_exit(&mut run).code(), Some(0));
}
