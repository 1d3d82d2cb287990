//! The trial: forks a child that executes the new binary and asks it; its time limit, answer
//! and verdict.
//!
//! A forked child writes its copy of the daemon's state into a file in memory. It then
//! executes the new binary as the second phase does: with the same environment, and with
//! the same descriptor numbers open, to detect a wrapper that would lose any of it. The
//! numbers refer to the snapshot itself: while the child held the sockets, closing one
//! would not be final. A second file, for the answer, is standard output. So the loop
//! pauses only for the fork, regardless of the size of the state, and there is no pipe on
//! which either side could block. The new binary runs [`super::dry_run`].

use crate::listening::addresses::Wanted;
use crate::platform::failed_call::named;
use crate::platform::os::fd::{AsRawFd, OwnedFd, RawFd};
use crate::platform::os::fs::{OFlags, open, write as write_file};
use crate::platform::os::io::pwrite;
use crate::platform::os::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal, setpgid, waitpid,
};
use crate::platform::os::stdio;
use crate::platform::sys::OwnTable;
use crate::platform::{clock, descriptors, sys};
use crate::restart::launcher::{BinaryIdentity, Launcher, Out, TrialFiles};
use crate::restart::restart_error::RestartError;
use crate::restart::snapshot::Summary;
use engine::Time;
use engine::rules::rule::Rule;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How long the new binary may take for a trial snapshot. A gigabyte takes some two
/// seconds, on a busy machine several times that.
const TRIAL_S_MAX: u64 = 15;

/// How soon to look again whether a killed child has ended.
const REAP_RETRY_NS: u64 = 100_000_000;

/// The child's exit status if it could not execute the new binary.
const EXIT_NOT_ASKED: i32 = 125;

/// The new binary's answer if it can take over: a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TrialAnswer {
    /// Its version.
    pub(crate) poolcounterd: String,
    /// Its process id, if the snapshot was handed over to it: the daemon's own process
    /// has to become the new image.
    pub(crate) process: Option<i32>,
    /// How many descriptors it may have open.
    pub(crate) descriptors_max: usize,
    #[serde(flatten)]
    pub(crate) summary: Summary,
    /// The listeners of the new options. The old image opens the missing ones.
    pub(crate) wanted: Vec<Wanted>,
    /// Its options include `--control`, with a path or to have no socket.
    #[serde(default)]
    pub(crate) is_control_given: bool,
    /// The rules that it has read. The new image gets them from the snapshot: the file may be
    /// edited in between.
    #[serde(default)]
    pub(crate) rules_file: Vec<Rule>,
    /// The rules of its `--max-hold`.
    #[serde(default)]
    pub(crate) max_hold: Vec<Rule>,
}

/// A new binary that can take over.
pub(crate) struct Approval {
    /// The command line of the new image.
    pub(crate) arguments: Vec<OsString>,
    /// The file that was executed.
    pub(crate) binary: BinaryIdentity,
    pub(crate) answer: TrialAnswer,
}

/// A trial under way.
pub(crate) struct Trial {
    pid: Pid,
    /// Readable when the child has ended.
    pub(crate) pidfd: OwnedFd,
    summary: Summary,
    binary: BinaryIdentity,
    arguments: Vec<OsString>,
    /// When the trial times out.
    pub(crate) deadline: Time,
    /// It has timed out.
    is_late: bool,
}

impl Trial {
    /// Starts a trial. The child calls `write`, and `kept`, which returns the numbers of
    /// the descriptors that the new image will have.
    pub(crate) fn start(
        launcher: &mut Launcher,
        arguments: Vec<OsString>,
        summary: Summary,
        write: impl FnOnce(&mut Out<'_>) -> io::Result<()>,
        kept: impl FnOnce() -> Vec<RawFd>,
    ) -> io::Result<Self> {
        // `getpid` and `getppid` expect that they can't fail.
        sys::check_process_ids()?;
        let binary = launcher.binary()?;
        launcher.files.renew()?;
        let (launcher, files) = (&*launcher, &launcher.files);
        let parent = getpid();
        let ask = |table: io::Result<OwnTable>| {
            let ask = |table| {
                prepare(parent, files)?;
                run_new_binary(&table, launcher, &arguments, write, kept)
            };
            reported(files, table.and_then(ask))
        };
        let (pid, pidfd) = fork(files, ask)?;
        let deadline = clock::now().plus_seconds(TRIAL_S_MAX);
        Ok(Trial { pid, pidfd, summary, binary, arguments, deadline, is_late: false })
    }

    /// The result, once the child `has_ended` or timed out: an error says why the new
    /// binary can't take over. `None` while it can't be reaped: the kernel first frees the
    /// memory of a child that was late, a tenth of a second for a gigabyte, and the loop
    /// does not wait for that.
    pub(crate) fn verdict(
        &mut self,
        has_ended: bool,
        launcher: &Launcher,
    ) -> Option<Result<Approval, RestartError>> {
        self.is_late |= !has_ended;
        // Also ends processes that the new binary has left behind.
        kill_all(self.pid);
        let verdict = match waitpid(Some(self.pid), WaitOptions::NOHANG) {
            Ok(None) => {
                self.deadline = clock::now().plus_ns(REAP_RETRY_NS);
                return None;
            }
            Ok(Some((_, status))) if !self.is_late => {
                self.judge(launcher, ExitStatus::from_raw(status.as_raw()))
            }
            Ok(Some(_)) => Err(RestartError::Late(TRIAL_S_MAX)),
            Err(e) => Err(RestartError::System(named("wait4")(e))),
        };
        launcher.files.clear();
        Some(verdict)
    }

    fn judge(&mut self, launcher: &Launcher, status: ExitStatus) -> Result<Approval, RestartError> {
        let said = launcher.files.answer().map_err(RestartError::System)?;
        if status.code() == Some(EXIT_NOT_ASKED) {
            return Err(RestartError::NotAsked(launcher.program.clone(), said, None));
        }
        // Wrappers may have said something before.
        let last = said.lines().next_back().unwrap_or_default();
        let answer: Option<TrialAnswer> = serde_json::from_str(last).ok();
        let process = Some(self.pid.as_raw_nonzero().get());
        let agrees =
            |answer: &TrialAnswer| answer.process == process && answer.summary == self.summary;
        let ours = descriptors::limit();
        match answer.filter(|answer| status.success() && agrees(answer)) {
            Some(answer) if answer.descriptors_max < ours => {
                Err(RestartError::FewDescriptors(answer.descriptors_max, ours))
            }
            Some(answer) => {
                let arguments = std::mem::take(&mut self.arguments);
                Ok(Approval { arguments, binary: self.binary, answer })
            }
            None => Err(RestartError::NotApproved(status, quoted(&said))),
        }
    }

    /// Ends the trial without a result.
    pub(crate) fn abandon(self, launcher: &Launcher) {
        end(self.pid);
        launcher.files.clear();
    }
}

/// Shortens the answer for a log line.
fn quoted(said: &str) -> String {
    const CHARS_MAX: usize = 400;
    match said.chars().take(CHARS_MAX).collect::<String>() {
        nothing if nothing.is_empty() => "nothing".to_owned(),
        start => format!("{start:?}"),
    }
}

/// Kills the child and all that it started, and reaps it.
fn end(child: Pid) {
    kill_all(child);
    // Fails only if it is reaped already.
    let _ = waitpid(Some(child), WaitOptions::empty());
}

/// Kills the child and all that it started. To be called before the child is reaped:
/// until then, no other process gets its number.
fn kill_all(child: Pid) {
    // Fails only if all have ended.
    let _ = kill_process_group(child, Signal::KILL);
}

/// Makes the calls of a trial, except those that execute the new binary, to find out at the
/// daemon's start whether this kernel has them, and a container's profile allows them.
///
/// # Errors
/// The first call that fails, by name.
pub(crate) fn rehearse(launcher: &mut Launcher) -> io::Result<()> {
    launcher.files.renew()?;
    let files = &launcher.files;
    let parent = getpid();
    let prepare = |table: io::Result<OwnTable>| {
        let prepared = table.and_then(|_| prepare(parent, files));
        reported(files, prepared.and_then(|()| hand_over_and_take(files)))
    };
    let (pid, _pidfd) = fork(files, prepare)?;
    let ended = waitpid(Some(pid), WaitOptions::empty()).map_err(named("wait4"));
    let said = files.answer();
    files.clear();
    match ended?.map(|(_, status)| ExitStatus::from_raw(status.as_raw())) {
        Some(status) if !status.success() => Err(io::Error::other(match said?.as_str() {
            "" => format!("a child has ended with {status}"),
            said => said.to_owned(),
        })),
        _ => said.map(drop),
    }
}

/// What both images do with the snapshot.
fn hand_over_and_take(files: &TrialFiles) -> io::Result<()> {
    files.write_snapshot(|out| out.write_all(b"\n"))?;
    files.keep_on_exec()?;
    sys::MappedFile::new(&files.snapshot)?;
    // Closes the child's copy: it only exits now.
    sys::inherited_descriptor(files.snapshot.as_raw_fd()).map(drop)
}

/// Forks the child of a trial, for `work`, into a process group of its own.
fn fork(
    files: &TrialFiles,
    work: impl FnOnce(io::Result<OwnTable>) -> i32,
) -> io::Result<(Pid, OwnedFd)> {
    let pid = sys::fork_apart(files.numbers(), work).inspect_err(|_| files.clear())?;
    // The child does the same; the order does not matter.
    let _ = setpgid(Some(pid), Some(pid));
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(named("pidfd_open"));
    let pidfd = pidfd.inspect_err(|_| {
        end(pid);
        files.clear();
    })?;
    Ok((pid, pidfd))
}

/// The child's first part: detaches it from what the daemon has.
fn prepare(parent: Pid, files: &TrialFiles) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(named("prctl(PR_SET_PDEATHSIG)"))?;
    if getppid() != Some(parent) {
        return Err(io::Error::other("the daemon has ended"));
    }
    setpgid(None, None).map_err(named("setpgid"))?;
    // If memory runs out, the kernel should kill this process, not the daemon
    // (proc_pid_oom_score_adj(5)). A sandbox may forbid this write.
    let _ = write_file("/proc/self/oom_score_adj", "1000");
    let null = open("/dev/null", OFlags::RDWR, 0.into()).map_err(named("open(/dev/null)"))?;
    stdio::dup2_stdin(null).map_err(named("dup2"))?;
    stdio::dup2_stdout(&files.answer).map_err(named("dup2"))?;
    // The dynamic loader says there what it misses, and a binary which option it does not know.
    stdio::dup2_stderr(&files.answer).map_err(named("dup2"))
}

/// The rest: writes the snapshot and executes the new binary. Returns only if that fails.
fn run_new_binary(
    table: &OwnTable,
    launcher: &Launcher,
    arguments: &[OsString],
    write: impl FnOnce(&mut Out<'_>) -> io::Result<()>,
    kept: impl FnOnce() -> Vec<RawFd>,
) -> io::Result<()> {
    launcher.files.write_snapshot(write)?;
    for number in kept() {
        table.put_descriptor(&launcher.files.snapshot, number)?;
    }
    Err(launcher.execute_trial(arguments))
}

/// The child's exit status, after it has written why it can't go on.
fn reported(files: &TrialFiles, result: io::Result<()>) -> i32 {
    let Err(e) = result else { return 0 };
    // If this write fails too, the exit status is enough.
    let _ = pwrite(&files.answer, e.to_string().as_bytes(), 0);
    EXIT_NOT_ASKED
}
