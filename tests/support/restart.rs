//! For tests of the hot restart: a daemon whose binary can be replaced, what the
//! daemon logs about a restart, and what `/proc` shows of its process.

use crate::support::stopwatch::ask_until_answered;
use crate::support::{Client, DAEMON, Server, launched, skip};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

/// Text of the line that the new image logs.
pub(crate) const CONTINUED: &str = "continued after a pause of ";

/// Text of the line that the old image logs when it stays.
pub(crate) const REFUSED: &str = "hot restart refused, continuing to serve: ";

/// A directory of one test, removed with it.
pub(crate) struct Place {
    directory: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("poolcounterd-{}-{count}", std::process::id());
        // Not below target/: the path of a Unix socket has at most 107 bytes.
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).expect("a directory for the test");
        Place { directory }
    }

    /// A directory with our daemon's binary in it.
    pub(crate) fn with_daemon() -> Place {
        let place = Place::new();
        place.install(Path::new(DAEMON));
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the daemon's binary is.
    pub(crate) fn binary(&self) -> PathBuf {
        self.path("poolcounterd")
    }

    /// Replaces the binary by a copy of `source`, as a package manager does: writes the
    /// copy next to it, then renames it.
    ///
    /// Another process writes it, so that no child of this one can have the file open
    /// for writing while it is executed (ETXTBSY).
    pub(crate) fn install(&self, source: &Path) {
        let new = self.path("poolcounterd.new");
        let status = Command::new("cp").arg(source).arg(&new).status();
        assert!(status.expect("cp").success());
        fs::rename(&new, self.binary()).expect("rename");
    }

    /// Replaces the binary by a shell script. `$REAL` in it is our daemon, `$HERE`
    /// this directory. (Bash does not change blocked signals; dash does.)
    pub(crate) fn install_script(&self, body: &str) {
        let here = self.directory.display();
        let text = format!("#!/bin/bash\nREAL={DAEMON}\nHERE={here}\n{body}\n");
        let draft = self.path("script");
        fs::write(&draft, text).expect("write a script");
        fs::set_permissions(&draft, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("make it executable");
        self.install(&draft);
    }

    /// Installs a daemon that writes its process into the file `asked`, and answers the trial of
    /// a hot restart once there is a file `go`.
    pub(crate) fn install_delayed(&self) {
        self.install_script(
            "echo $$ > $HERE/asked; while [ ! -e $HERE/go ]; do sleep 0.01; done; exec $REAL \"$@\"",
        );
    }

    /// Begins a hot restart with [`Place::install_delayed`] and stops the server when the trial
    /// has ended: what is sent now, it receives in the turn that ends with the restart.
    pub(crate) fn stop_after_trial(&self, server: &Server) {
        server.signal(Signal::USR1);
        let child = self.wait_for_file("asked");
        server.signal(Signal::STOP);
        self.touch("go");
        let stat = format!("/proc/{}/stat", child.trim());
        wait_until("the new binary has answered", || {
            std::fs::read_to_string(&stat).ok()?.contains(") Z ").then_some(())
        });
    }

    /// Starts the binary here on a free port of 127.0.0.1.
    pub(crate) fn start(&self, arguments: &[&str]) -> Server {
        let all = [&["-l", "127.0.0.1", "-p", "0"], arguments].concat();
        Server::spawn(&mut self.command(&all))
    }

    /// The binary here, by its absolute path.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        launched(&[], self.binary(), arguments)
    }

    /// Creates an empty file, for a script that waits for it.
    pub(crate) fn touch(&self, name: &str) {
        fs::write(self.path(name), "").expect("touch");
    }

    /// Waits until a script has written this file; returns its text.
    pub(crate) fn wait_for_file(&self, name: &str) -> String {
        let path = self.path(name);
        wait_until(&format!("{name} is written"), || {
            fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A binary that is slow to start: the test decides how long the gap between the exec
/// and the daemon's start lasts.
pub(crate) struct Gap {
    pub(crate) place: Place,
}

impl Gap {
    pub(crate) fn new() -> Self {
        Gap { place: Place::with_daemon() }
    }

    /// Restarts into it; returns when no image serves.
    pub(crate) fn open(&self, server: &Server) {
        self.install();
        server.signal(Signal::USR1);
        self.place.wait_for_file("gap");
    }

    /// The next restart begins the gap, and writes the file `gap`.
    pub(crate) fn install(&self) {
        self.place.install_script(
            "case $1 in --read-snapshot) exec $REAL \"$@\";; esac\n\
             echo gap > $HERE/gap\n\
             while [ ! -e $HERE/go ]; do sleep 0.01; done\n\
             exec $REAL \"$@\"",
        );
    }

    /// Lets the new image start and waits until it serves.
    pub(crate) fn close(&self, server: &Server) {
        self.place.touch("go");
        server.log.wait_for(CONTINUED);
    }
}

/// Waits until a process has connected to the Unix socket at `path`, whose owner is stopped.
pub(crate) fn wait_for_unaccepted(path: &str) {
    wait_until("it has connected", || {
        // The sockets of other programs stand there too, and their names may be any bytes.
        let list = std::fs::read("/proc/net/unix").expect("/proc");
        let list = String::from_utf8_lossy(&list);
        // The listener, and a connection that is not accepted yet.
        (list.matches(path).count() == 2).then_some(())
    });
}

/// Polls until there is an answer, for states without an event to wait for.
#[track_caller]
pub(crate) fn wait_until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    let Some(answer) = ask_until_answered(ask) else { panic!("timed out waiting until {what}") };
    answer
}

/// Hot restarts the daemon by signal; returns the new image's log line.
#[track_caller]
pub(crate) fn restart(server: &Server) -> String {
    let before = server.log.count(CONTINUED);
    server.signal(Signal::USR1);
    server.log.wait_for_count(CONTINUED, before + 1)
}

/// Asks for a hot restart by signal that is refused; returns the reason.
#[track_caller]
pub(crate) fn refused_restart(server: &Server) -> String {
    let before = server.log.count(REFUSED);
    server.signal(Signal::USR1);
    let line = server.log.wait_for_count(REFUSED, before + 1);
    line.split_once(REFUSED).expect("the reason").1.to_owned()
}

/// The externally visible state of a process, which must not change when a hot restart is
/// refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// By number: the target of the descriptor, and whether an exec closes it.
    pub(crate) descriptors: BTreeMap<i32, (String, bool)>,
    /// Signal masks, as `/proc/PID/status` shows them.
    pub(crate) signals: Vec<String>,
    pub(crate) children: Vec<u32>,
    pub(crate) executable: PathBuf,
}

impl Environment {
    pub(crate) fn of(pid: u32) -> Environment {
        Environment {
            descriptors: descriptors(pid),
            signals: status_lines(pid, &["SigBlk:", "SigIgn:", "SigCgt:"]),
            children: children(pid),
            executable: executable(pid),
        }
    }

    /// The targets of the descriptors, without their numbers.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> =
            self.descriptors.values().map(|(target, _)| target.clone()).collect();
        kinds.sort();
        kinds
    }
}

fn descriptors(pid: u32) -> BTreeMap<i32, (String, bool)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("fd");
    let numbers = entries.map(|e| e.expect("fd").file_name().to_str().unwrap().parse().unwrap());
    numbers.filter_map(|number: i32| Some((number, descriptor(pid, number)?))).collect()
}

/// `None` if it has been closed meanwhile.
fn descriptor(pid: u32, number: i32) -> Option<(String, bool)> {
    const O_CLOEXEC: u32 = 0o2_000_000;
    let target = fs::read_link(format!("/proc/{pid}/fd/{number}")).ok()?;
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
    let flags = u32::from_str_radix(flags.trim(), 8).expect("octal flags");
    Some((target.to_string_lossy().into_owned(), flags & O_CLOEXEC != 0))
}

pub(crate) fn status_lines(pid: u32, names: &[&str]) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let wanted = status.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    wanted.map(str::to_owned).collect()
}

/// The number in a line of `/proc/PID/status`, such as `VmRSS:`.
pub(crate) fn status_number(pid: u32, name: &str) -> u64 {
    let line = status_lines(pid, &[name]).remove(0);
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// Children, including zombies.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    list.split_whitespace().map(|child| child.parse().expect("a pid")).collect()
}

/// The executable that runs now.
pub(crate) fn executable(pid: u32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).expect("exe")
}

/// Whether the process ignores a signal.
pub(crate) fn ignores(pid: u32, signal: Signal) -> bool {
    let line = status_lines(pid, &["SigIgn:"]).remove(0);
    let mask = line.split_whitespace().nth(1).expect("a mask");
    let mask = u64::from_str_radix(mask, 16).expect("a mask");
    mask & 1 << (signal.as_raw() - 1) != 0
}

/// Whether strace works here; if not, reports a skipped test.
pub(crate) fn can_inject() -> bool {
    let probe = ["-qq", "-o", "/dev/null", "-e", "inject=getpid:error=EPERM:when=1..2", "true"];
    let works = Command::new("strace").args(probe).output().is_ok_and(|o| o.status.success());
    if !works {
        skip("no strace that may inject faults");
    }
    works
}

/// A client that connects, asks and closes, over and over, and expects an answer each
/// time.
pub(crate) struct ConnectingLoop {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl ConnectingLoop {
    pub(crate) fn start(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let should_stop = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut connects = 0;
            while !should_stop.load(Ordering::Relaxed) {
                let mut client = Client::connect(address);
                let answer = client.ask("STATS UPTIME");
                assert!(answer.starts_with("uptime: "), "{answer:?}");
                connects += 1;
            }
            connects
        });
        ConnectingLoop { stop, thread }
    }

    /// How often it connected. Panics if an attempt failed.
    pub(crate) fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no connect was refused, and each was answered")
    }
}
