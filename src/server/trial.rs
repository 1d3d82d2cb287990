//! The first phase of a hot restart: asks the new binary whether it could take over.
//!
//! A forked child writes its copy of the daemon's state into a file in memory. It then
//! executes the new binary with that file as standard input and a second one, for the
//! answer, as standard output. So the loop pauses only for the fork, regardless of the
//! size of the state, and there is no pipe on which either side could block.

use super::addresses::{self, Wanted};
use super::clock;
use super::launcher::{FileIdentity, Launcher, Out, TrialFiles, identity_of, write_all};
use super::options::Options;
use super::resume;
use super::snapshot::Gist;
use super::sys;
use super::world::fd::OwnedFd;
use super::world::fs::File;
use super::world::fs::{OFlags, open, write as write_file};
use super::world::io::{fcntl_dupfd_cloexec, pwrite};
use super::world::process::{Command, CommandExt};
use super::world::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open,
    set_parent_process_death_signal, waitpid,
};
use super::world::stdio;
use crate::engine::Time;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

/// How long the new binary may take for a trial snapshot. A gigabyte takes some two
/// seconds, on a busy machine several times that.
const TRIAL_LIMIT_S: u64 = 15;

/// How soon to look again whether a killed child has ended.
const REAP_RETRY_NS: u64 = 100_000_000;

/// The child's exit status if it could not execute the new binary.
const EXIT_NOT_ASKED: i32 = 125;

/// The new binary's answer if it can take over: a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Its version.
    pub(super) poolcounterd: String,
    #[serde(flatten)]
    gist: Gist,
    /// The listeners of the new options. The old image opens the missing ones.
    pub(super) wanted: Vec<Wanted>,
}

/// A new binary that can take over.
pub(super) struct Consent {
    /// The command line of the new image.
    pub(super) arguments: Vec<OsString>,
    /// The file that was executed.
    pub(super) binary: FileIdentity,
    pub(super) answer: Answer,
}

/// A trial under way.
pub(super) struct Trial {
    pid: Pid,
    /// Readable when the child has ended.
    pub(super) pidfd: OwnedFd,
    gist: Gist,
    binary: FileIdentity,
    arguments: Vec<OsString>,
    /// When the trial times out.
    pub(super) deadline: Time,
    /// It has timed out.
    is_late: bool,
}

impl Trial {
    /// Starts a trial. The child calls `write`.
    ///
    /// # Errors
    /// Why the new binary can't be asked.
    pub(super) fn start(
        launcher: &mut Launcher,
        arguments: Vec<OsString>,
        gist: Gist,
        write: impl FnOnce(&mut Out) -> io::Result<()>,
    ) -> io::Result<Self> {
        let binary = identity_of(&launcher.program)?;
        launcher.files.renew()?;
        let (program, files) = (&launcher.program, &launcher.files);
        let parent = getpid();
        let pid =
            sys::fork_apart(files.numbers(), || ask(parent, program, &arguments, files, write))
                .inspect_err(|_| files.clear())?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            end(pid);
            files.clear();
        })?;
        let deadline = clock::now().plus_seconds(TRIAL_LIMIT_S);
        Ok(Trial { pid, pidfd, gist, binary, arguments, deadline, is_late: false })
    }

    /// The result, once the child has ended or timed out: an error says why the new
    /// binary can't take over. `None` while a child that was late is not dead yet: the
    /// kernel first frees its memory, a tenth of a second for a gigabyte, and the loop
    /// does not wait for that.
    pub(super) fn verdict(&mut self, launcher: &Launcher) -> Option<Result<Consent, String>> {
        let mut ended = waitpid(Some(self.pid), WaitOptions::NOHANG);
        if matches!(ended, Ok(None)) && !std::mem::replace(&mut self.is_late, true) {
            // Fails only if it has ended meanwhile.
            let _ = kill_process(self.pid, Signal::KILL);
            ended = waitpid(Some(self.pid), WaitOptions::NOHANG);
        }
        match ended {
            Ok(None) => {
                self.deadline = clock::now().plus_ns(REAP_RETRY_NS);
                None
            }
            Ok(Some((_, status))) if !self.is_late => {
                Some(self.judge(launcher, ExitStatus::from_raw(status.as_raw())))
            }
            Ok(Some(_)) | Err(_) => {
                launcher.files.clear();
                Some(Err(format!("the new binary did not answer within {TRIAL_LIMIT_S} s")))
            }
        }
    }

    fn judge(&mut self, launcher: &Launcher, status: ExitStatus) -> Result<Consent, String> {
        let said = launcher.files.answer();
        launcher.files.clear();
        if status.code() == Some(EXIT_NOT_ASKED) {
            return Err(format!("{} can't be asked: {said}", launcher.program.display()));
        }
        let answer: Option<Answer> = serde_json::from_str(&said).ok();
        match answer.filter(|answer| status.success() && answer.gist == self.gist) {
            Some(answer) => {
                let arguments = std::mem::take(&mut self.arguments);
                Ok(Consent { arguments, binary: self.binary, answer })
            }
            None => {
                let said = quoted(&said);
                Err(format!("the new binary can't take over: {status}, it said {said}"))
            }
        }
    }

    /// Ends the trial without a result.
    pub(super) fn abandon(self, launcher: &Launcher) {
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

/// Kills the child and reaps it.
fn end(child: Pid) {
    // Both fail only if it has ended already.
    let _ = kill_process(child, Signal::KILL);
    let _ = waitpid(Some(child), WaitOptions::empty());
}

/// The child's part: writes the snapshot and executes the new binary. Returns the exit
/// status if that fails.
fn ask(
    parent: Pid,
    program: &Path,
    arguments: &[OsString],
    files: &TrialFiles,
    write: impl FnOnce(&mut Out) -> io::Result<()>,
) -> i32 {
    let execute = || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            return Err(io::Error::other("the daemon has ended"));
        }
        // If memory runs out, the kernel should kill this process, not the daemon
        // (proc_pid_oom_score_adj(5)). A sandbox may forbid this write.
        let _ = write_file("/proc/self/oom_score_adj", "1000");
        let null = open("/dev/null", OFlags::RDWR, 0.into())?;
        stdio::dup2_stderr(null)?;
        write_all(&mut File::from(files.snapshot.try_clone()?), write)?;
        stdio::dup2_stdin(&files.snapshot)?;
        stdio::dup2_stdout(&files.answer)?;
        sys::unblock_signals();
        let mut command = Command::new(program);
        Err(command.arg("--read-snapshot").args(arguments).env_clear().exec())
    };
    let result: io::Result<()> = execute();
    if let Err(e) = result {
        // If this write fails too, the exit status is enough.
        let _ = pwrite(&files.answer, e.to_string().as_bytes(), 0);
    }
    EXIT_NOT_ASKED
}

/// The new binary's part: reads a trial snapshot from standard input and returns the
/// answer to print, namely that it could take over with `options`.
///
/// # Errors
/// Why it can't, to be printed too.
pub fn read_trial_snapshot(options: &Options) -> Result<String, String> {
    if !options.are_for_serving() {
        return Err("a daemon can only continue with options for serving".to_owned());
    }
    // Stands in for each descriptor that the new image will have.
    let stand_in = |_| Ok(fcntl_dupfd_cloexec(stdio::stdout(), 3)?);
    let mapped = sys::MappedFile::new(stdio::stdin()).ok();
    let mut read = Vec::new();
    if mapped.is_none() {
        // An operator may pipe in a snapshot.
        io::stdin().lock().read_to_end(&mut read).map_err(|e| e.to_string())?;
    }
    let bytes = mapped.as_deref().unwrap_or(&read);
    let restored = resume::restore(bytes, options, stand_in).map_err(|e| e.to_string())?;
    let wanted = addresses::wanted(options).map_err(|e| e.to_string())?;
    if !restored.lost.is_empty() {
        return Err(format!("{} connections would be lost", restored.lost.len()));
    }
    let poolcounterd = env!("CARGO_PKG_VERSION").to_owned();
    let answer = Answer { poolcounterd, gist: restored.gist(), wanted };
    serde_json::to_string(&answer).map_err(|e| e.to_string())
}
