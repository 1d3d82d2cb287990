//! Wrappers at the daemon's path, which start the daemon. A wrapper that would lose what
//! is handed over is refused, whatever it does.

use crate::support::random::{Random, number_from_environment};
use crate::support::restart::{Environment, Place, refused_restart, wait_until};
use crate::support::{Client, Server};
use std::fs;

/// A daemon with a holder, whose binary can be replaced.
struct Wrapped {
    place: Place,
    server: Server,
    holder: Client,
}

impl Wrapped {
    fn start() -> Wrapped {
        let place = Place::with_daemon();
        let server = place.start(&[]);
        let mut holder = server.connect();
        holder.exchange("ACQ4ME k 1 9 600", "LOCKED");
        Wrapped { place, server, holder }
    }

    /// Replaces the binary by a script and asks for a restart. Returns whether the
    /// restart took place; either way, no lock may be lost.
    #[track_caller]
    fn try_restart(&mut self, script: &str) -> bool {
        self.place.install_script(script);
        let before = self.restarts();
        self.server.signal(rustix::process::Signal::USR1);
        let after = wait_until(&format!("a restart into {script:?} ends"), || {
            Some(self.restarts()).filter(|after| *after != before)
        });
        self.server.connect().exchange("ACQ4ME k 1 1 0", "QUEUE_FULL");
        after[0] > before[0]
    }

    /// How many restarts took place, and how many were refused. Not from the log, which
    /// the script may have closed.
    fn restarts(&self) -> [u64; 2] {
        let report = self.server.connect().ask("STATS JSON");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        ["done", "refused"].map(|name| report["hot_restarts"][name].as_u64().expect("a number"))
    }

    #[track_caller]
    fn expect_lock_kept(mut self) {
        self.holder.exchange("RELEASE", "RELEASED");
        self.server.connect().exchange("ACQ4ME k 1 1 0", "LOCKED");
    }
}

/// Closes or replaces every descriptor but the standard ones.
const CLOSES_ALL: &str = "for n in $(ls /proc/$$/fd); do\n\
                          case $n in 0|1|2|255) ;; *) eval \"exec $n>&-\";; esac; done";

#[test]
fn a_wrapper_that_would_lose_the_locks_is_refused() {
    let mut daemon = Wrapped::start();
    let descriptors = Environment::of(daemon.server.pid()).descriptors;
    let mut sockets = descriptors.iter().filter(|(_, (what, _))| what.starts_with("socket:"));
    let (a_socket, _) = sockets.next_back().expect("the holder's");
    for script in [
        "$REAL \"$@\"",
        "timeout 600 $REAL \"$@\"",
        "$REAL \"$@\" | cat",
        "exec env -i $REAL \"$@\"",
        "unset POOLCOUNTERD_HANDOFF; exec $REAL \"$@\"",
        &format!("{CLOSES_ALL}; exec $REAL \"$@\""),
        &format!("exec {a_socket}>&-; exec $REAL \"$@\""),
        "exec ${POOLCOUNTERD_HANDOFF#*:}>&-; exec $REAL \"$@\"",
        "eval \"exec ${POOLCOUNTERD_HANDOFF#*:}</dev/null\"; exec $REAL \"$@\"",
        "ulimit -s 128; exec $REAL \"$@\"",
        "ulimit -n 9; exec $REAL \"$@\"",
        "ulimit -n 16; exec $REAL \"$@\"",
        "exec $REAL -p 1 --check",
        "exec $REAL",
    ] {
        assert!(!daemon.try_restart(script), "{script}");
    }
    daemon.expect_lock_kept();
}

#[test]
fn a_wrapper_that_passes_everything_on_works() {
    let mut daemon = Wrapped::start();
    for script in [
        "exec $REAL \"$@\"",
        "cd /; umask 077; MORE=1 exec -a other $REAL \"$@\"",
        "exec nice $REAL \"$@\"",
        "printf starting; printf 1 >&2; exec $REAL \"$@\"",
        "echo starting >&2; trap '' HUP; exec env MORE=1 $REAL \"$@\" < /dev/null",
    ] {
        assert!(daemon.try_restart(script), "{script}");
    }
    daemon.expect_lock_kept();
}

/// The new image needs no more memory than the trial has verified: at each limit the
/// restart either takes place or is refused.
#[test]
fn no_memory_limit_passes_the_trial_and_fails_the_restart() {
    for (option, ample_kb) in [("v", 1 << 18), ("s", 1 << 13), ("d", 1 << 18)] {
        let mut daemon = Wrapped::start();
        let (mut low, mut high) = (0_u32, ample_kb);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if daemon.try_restart(&format!("ulimit -S{option} {middle}; exec $REAL \"$@\"")) {
                high = middle;
            } else {
                low = middle;
            }
        }
        assert!(low > 0 && high < ample_kb, "ulimit -S{option} changes nothing");
        daemon.expect_lock_kept();
    }
}

/// `WRAPPER_SEED=7 WRAPPER_SCRIPTS=100 cargo test --test restart wrappers`
#[test]
fn no_wrapper_loses_a_lock() {
    let first = number_from_environment("WRAPPER_SEED").unwrap_or(1);
    let scripts = number_from_environment("WRAPPER_SCRIPTS").unwrap_or(12);
    let mut daemon = Wrapped::start();
    let mut done = 0;
    for seed in first..first + scripts {
        let script = script(&mut Random(seed));
        println!("WRAPPER_SEED={seed}: {script}");
        done += usize::from(daemon.try_restart(&script));
    }
    println!("{done} of {scripts} restarts took place");
    daemon.expect_lock_kept();
}

fn script(random: &mut Random) -> String {
    let mut lines = Vec::new();
    for _ in 0..random.next() % 3 {
        lines.push(preparation(random));
    }
    let way = random.one_of(&[
        "exec $REAL \"$@\"",
        "exec $REAL \"$@\"",
        "exec $REAL \"$@\"",
        "exec $REAL --log warn \"$@\"",
        "exec $REAL \"$@\" > /dev/null",
        "exec env $REAL \"$@\"",
        "exec env -u PATH $REAL \"$@\"",
        "$REAL \"$@\"",
        "$REAL \"$@\"; exec $REAL \"$@\"",
        "$REAL \"$@\" & wait",
        "( exec $REAL \"$@\" )",
    ]);
    lines.push(way.to_owned());
    lines.join("\n")
}

fn preparation(random: &mut Random) -> String {
    let descriptor = random.next() % 16;
    let kb = 1 << (random.next() % 12 + 6);
    match random.next() % 8 {
        0 => format!("exec {descriptor}>&-"),
        1 => format!("exec {descriptor}</dev/null"),
        2 => format!("ulimit -{}n {}", random.one_of(&["S", "H", "SH"]), random.next() % 40),
        3 => format!("ulimit -S{} {kb}", random.one_of(&["v", "s", "d", "f", "l"])),
        4 => format!("cd /; umask 777; export POOLCOUNTERD_HANDOFF=$$:{descriptor}"),
        5 => "exec 8<$0 9>&1".to_owned(),
        6 => "trap '' TERM USR1 USR2 PIPE; sleep 600 &".to_owned(),
        _ => "true".to_owned(),
    }
}

/// execvp(3) runs an executable file without `#!` as a shell script.
#[test]
fn a_damaged_binary_is_not_run_by_a_shell() {
    let mut daemon = Wrapped::start();
    daemon.place.install_script("exec $REAL \"$@\"");
    let ran = daemon.place.path("ran");
    let draft = daemon.place.path("draft");
    fs::write(&draft, format!("touch {}\n", ran.display())).expect("write");
    fs::set_permissions(&draft, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("chmod");
    daemon.place.install(&draft);
    let refusal = refused_restart(&daemon.server);
    assert!(refusal.contains("can't be asked: execve: Exec format error"), "{refusal:?}");
    assert!(!ran.exists(), "a shell has run it");
    daemon.holder.exchange("RELEASE", "RELEASED");
}
