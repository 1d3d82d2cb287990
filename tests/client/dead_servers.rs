//! Daemons whose host vanishes: two network namespaces with a cable between them, cut at
//! the daemons' end.

use crate::command::binary;
use crate::support::{DAEMON, reference_binary, skip};
use std::path::Path;
use std::process::Command;

/// Connects this namespace, 192.0.2.1, with that of the process `$host`, 192.0.2.2.
const CABLE: &str = r#"
set -u
trap 'kill $(jobs -p) 2> /dev/null' EXIT
here=$(readlink /proc/self/ns/net)
unshare --net sleep 300 & host=$!
until there=$(readlink /proc/$host/ns/net) && [ "$there" != "$here" ]; do sleep 0.01; done
ip link set lo up
ip link add cable type veth peer name cable netns $host
ip addr add 192.0.2.1/24 dev cable && ip link set cable up
nsenter -t $host -n sh -c 'ip addr add 192.0.2.2/24 dev cable && ip link set cable up'
"#;

/// Prints the output of `poolcounter run`, its status, how many seconds it took, and how
/// many locks the daemon still holds. `$1` is the daemon, `$2` the command.
const VANISHED: &str = r#"
coproc "$1" -l 192.0.2.1,127.0.0.1 2>&1
until read -r line <&${COPROC[0]} && [[ $line == *'listening on'* ]]; do :; done
exec 3< <(nsenter -t $host -n "$2" -s 192.0.2.1 run -t 5 --on-lost kill k -- \
    sh -c 'echo up; exec sleep 200' 2>&1; echo status $?)
read -r up <&3 && echo "$up"
ip link set cable down
begin=$SECONDS
cat <&3
echo "seconds $((SECONDS - begin))"
exec 4<>/dev/tcp/127.0.0.1/7531
echo 'STATS processing_workers' >&4
head -n 1 <&4
"#;

/// What the script prints, after the cable was connected: at first `up`. `None`, with a message,
/// without network namespaces.
fn printed(script: &str, daemon: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        skip("network namespaces need root");
        return None;
    }
    let script = [CABLE, script].concat();
    let mut command = Command::new("unshare");
    command.args(["--net", "timeout", "120", "bash", "-c", &script, "script"]).arg(daemon);
    let output = command.arg(binary()).output().expect("unshare, of util-linux");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !printed.starts_with("up\n") {
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(!why.contains("poolcounter"), "{why}{printed}");
        skip("this kernel, or container, gives no network namespaces");
        return None;
    }
    Some(printed)
}

#[test]
fn a_vanished_daemon_is_noticed_before_it_hands_the_lock_on() {
    let Some(printed) = printed(VANISHED, Path::new(DAEMON)) else { return };
    assert!(
        printed.contains("k: the connection to 192.0.2.1 is lost, and with it the lock"),
        "{printed}"
    );
    assert!(printed.contains("status 74"), "{printed}");
    // Not before 10 s of silence. The daemon's counter, below, shows that it is not too late.
    let seconds = printed.lines().find_map(|line| line.strip_prefix("seconds ")).expect("a time");
    let seconds: u64 = seconds.parse().expect("a number");
    assert!(seconds >= 10, "{printed}");
    assert!(
        printed.ends_with("processing_workers: 1\n"),
        "the daemon handed it on first: {printed}"
    );
}

/// Two daemons, one of which is the key's own and has given the lock. A second job asks from the
/// other host: while the cable is cut for a moment, and while it is cut for longer.
const CUT: &str = r#"
ip addr add 192.0.2.11/24 dev cable
for ip in 192.0.2.1 192.0.2.11; do
    "$1" -l $ip > /dev/null 2>&1 &
    until (exec 5<>/dev/tcp/$ip/7531) 2> /dev/null; do sleep 0.05; done
done
export POOLCOUNTER_SERVERS=192.0.2.1,192.0.2.11
key=k
until [ "$("$2" which $key | head -n 1)" = 192.0.2.1 ]; do key+=k; done
exec 3< <("$2" run --on-lost kill $key -- sh -c 'echo up; exec sleep 200' 2>&1)
read -r up <&3 && echo "$up"
second() { nsenter -t $host -n "$@" run -t 0 -E 0 --quiet $key -- echo ran 2>&1; echo status $?; }
ip link set cable down
(sleep 0.3; ip link set cable up) &
second "$2"
ip link set cable down
second "$2"
"#;

/// A silent 0 says that somebody else does the work.
#[test]
fn no_second_job_runs_while_the_network_is_cut() {
    for daemon in [Path::new(DAEMON), &reference_binary()] {
        if !daemon.exists() {
            skip("no reference: run tests/support/fetch-reference.sh first");
            continue;
        }
        let Some(printed) = printed(CUT, daemon) else { return };
        let (first, second) = printed.split_once("status 0\n").expect(&printed);
        assert_eq!(first, "up\n", "{printed}");
        assert!(second.contains("192.0.2.1: ") && second.ends_with("status 75\n"), "{printed}");
        assert!(!second.contains("ran\n"), "{printed}");
    }
}
