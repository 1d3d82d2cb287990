//! A daemon whose host vanishes: two network namespaces with a cable between them, cut at
//! the daemon's end.

use crate::command::binary;
use crate::support::{DAEMON, skip};
use std::process::Command;

/// Prints the output of `poolcounter run`, its status, how many seconds it took, and how
/// many locks the daemon still holds. `$1` is the daemon, `$2` the command.
const SCRIPT: &str = r#"
set -u
trap 'kill $(jobs -p) 2> /dev/null' EXIT
here=$(readlink /proc/self/ns/net)
unshare --net sleep 300 & host=$!
until there=$(readlink /proc/$host/ns/net) && [ "$there" != "$here" ]; do sleep 0.01; done
ip link set lo up
ip link add cable type veth peer name cable netns $host
ip addr add 192.0.2.1/24 dev cable && ip link set cable up
nsenter -t $host -n sh -c 'ip addr add 192.0.2.2/24 dev cable && ip link set cable up'
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

#[test]
fn a_vanished_daemon_is_noticed_before_it_hands_the_lock_on() {
    if !rustix::process::geteuid().is_root() {
        return skip("network namespaces need root");
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "timeout", "120", "bash", "-c", SCRIPT, "script", DAEMON]);
    let output = command.arg(binary()).output().expect("unshare, of util-linux");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !printed.starts_with("up\n") {
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(!why.contains("poolcounter"), "{why}{printed}");
        return skip("this kernel, or container, gives no network namespaces");
    }
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
