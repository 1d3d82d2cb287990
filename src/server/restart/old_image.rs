//! Hot restart: the daemon hands everything to a new binary in the same process.
//!
//! There are two phases. First, while the loop keeps serving, a forked child writes its
//! copy of the state as a trial snapshot and executes the new binary, which answers whether
//! it could take over ([`Trial`]). Only if it can, the second phase writes the final
//! snapshot, clears close-on-exec and executes it ([`Launcher::hand_over`]). If anything
//! fails, the old image continues unchanged. [`super::new_image`] shows what the new image
//! does, and why no step can fail.
//!
//! # The trial
//! A forked child writes its copy of the daemon's state into a file in memory. It then
//! executes the new binary as the second phase does: with the same environment, and with
//! the same descriptor numbers open, to detect a wrapper that would lose any of it. The
//! numbers refer to the snapshot itself: while the child held the sockets, closing one
//! would not be final. A second file, for the answer, is standard output. So the loop
//! pauses only for the fork, regardless of the size of the state, and there is no pipe on
//! which either side could block. The new binary runs [`super::new_image::rehearse`].

use crate::engine::Time;
use crate::engine::rules::rule::Rule;
use crate::server::clients::connections::Clients;
use crate::server::kernel::slots::{Source, watch};
use crate::server::kernel::world::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use crate::server::kernel::world::fs::{OFlags, open, write as write_file};
use crate::server::kernel::world::io::pwrite;
use crate::server::kernel::world::mio::Poll;
use crate::server::kernel::world::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal, setpgid, waitpid,
};
use crate::server::kernel::world::{Engine, env, stdio};
use crate::server::kernel::{clock, process_usage, sys};
use crate::server::listening::addresses::Wanted;
use crate::server::listening::listener::Listener;
use crate::server::listening::listeners::Listeners;
use crate::server::operator::control_socket::{ControlClient, ControlSocket};
use crate::server::operator::rule_book::RulesFile;
use crate::server::operator::run_time_settings::RunTimeSettings;
use crate::server::restart::launcher::{BinaryIdentity, Launcher, Out, identity_of};
use crate::server::restart::snapshot::{self, Gist, ServerState};
use crate::server::telling::logging;
use log::info;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Runs hot restarts, one at a time.
pub(crate) struct Restart {
    launcher: Launcher,
    under_way: Option<RunningRestart>,
}

/// What a hot restart hands over.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) poll: &'a Poll,
    pub(crate) listeners: &'a Listeners,
    pub(crate) clients: &'a Clients,
    pub(crate) engine: &'a Engine,
    pub(crate) control: &'a ControlSocket,
    pub(crate) settings: &'a RunTimeSettings,
}

/// A hot restart in its first phase.
struct RunningRestart {
    trial: Trial,
    /// The operator waiting for the result.
    requester: Option<ControlClient>,
    /// The new binary has given its answer.
    is_tried: bool,
}

impl Restart {
    pub(crate) fn new(launcher: Launcher) -> Self {
        Restart { launcher, under_way: None }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// When the current trial times out.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.under_way.as_ref().map(|under_way| under_way.trial.deadline)
    }

    /// Notes that the trial has ended.
    pub(crate) fn record_trial_end(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.is_tried = true;
        }
    }

    /// Whether the second phase may begin. It waits as long as `operators_wait` for
    /// reports, but not longer than for a trial.
    pub(crate) fn is_due(&self, operators_wait: impl FnOnce() -> bool, now: Time) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| {
            under_way.trial.deadline <= now || under_way.is_tried && !operators_wait()
        })
    }

    /// The first phase: asks the new binary, with new `arguments` or the same. Must not
    /// be called during another restart.
    pub(crate) fn begin(
        &mut self,
        arguments: Option<Vec<OsString>>,
        requester: Option<ControlClient>,
        parts: Parts,
    ) -> Result<(), String> {
        let arguments = arguments.unwrap_or_else(|| env::args_os().skip(1).collect());
        let begin = clock::now();
        let program = self.launcher.program.display().to_string();
        let trial = self
            .start_trial(arguments, parts)
            .map_err(|e| format!("{program} can't be asked: {e}"))?;
        let pause_us = clock::now().ns_since(begin) / 1_000;
        info!("asking {program} whether it can take over, after a pause of {pause_us} µs");
        self.under_way = Some(RunningRestart { trial, requester, is_tried: false });
        Ok(())
    }

    fn start_trial(&mut self, arguments: Vec<OsString>, parts: Parts) -> io::Result<Trial> {
        let state = self.state_of(parts, Handover::default());
        let gist = Gist {
            taken: state.taken,
            connections: parts.clients.len(),
            locks: parts.engine.len(),
        };
        let write = |out: &mut Out| write(out, &state, parts);
        let kept = || {
            let connections = parts.clients.iter().map(|(_, c)| c.stream.socket().as_fd());
            let all = descriptors(parts, &Handover::default()).into_iter().chain(connections);
            all.map(|fd| fd.as_raw_fd()).collect()
        };
        let trial = Trial::start(&mut self.launcher, arguments, gist, write, kept)?;
        match watch(parts.poll.registry(), &trial.pidfd, Source::Trial) {
            Ok(()) => Ok(trial),
            Err(e) => {
                trial.abandon(&self.launcher);
                Err(e)
            }
        }
    }

    /// The second phase, once the trial has ended. Returns only if the new binary can't
    /// take over: why, and the operator to answer. `None` if that is decided later.
    pub(crate) fn finish(&mut self, parts: Parts) -> Option<(String, Option<ControlClient>)> {
        let under_way = self.under_way.as_mut()?;
        let verdict = under_way.trial.verdict(under_way.is_tried, &self.launcher)?;
        let RunningRestart { requester, .. } = self.under_way.take()?;
        let why = match verdict {
            Ok(consent) => {
                let requester = requester.and_then(|client| parts.control.descriptor(client));
                let rules_file = Some(&consent.answer.rules_file);
                let handover = Handover { opened: &[], requester, rules_file };
                self.execute(&consent, parts, handover)
            }
            Err(why) => why,
        };
        Some((why, requester))
    }

    /// Opens the new image's missing listeners and hands over to it. Returns only on
    /// failure, with the reason.
    fn execute(&mut self, consent: &Consent, parts: Parts, handover: Handover) -> String {
        // Since the trial, orders may have added rules.
        let TrialAnswer { wanted, rules_file, max_hold, .. } = &consent.answer;
        let mut rules = parts.settings.rules.clone();
        rules.resume(rules_file.clone(), max_hold.clone());
        if let Err(why) = rules.check() {
            return why;
        }
        let opened = match parts.listeners.open_missing(wanted) {
            Ok(opened) => opened,
            Err(e) => return e.to_string(),
        };
        let handover = Handover { opened: &opened, ..handover };
        logging::report_suppressed();
        let descriptors = descriptors(parts, &handover);
        let state = self.state_of(parts, handover);
        let Consent { arguments, binary, .. } = consent;
        let why = self
            .launcher
            .hand_over(arguments, *binary, &descriptors, |out| write(out, &state, parts));
        self.launcher.files.clear();
        parts.listeners.abandon(opened, wanted);
        why
    }

    /// Everything that the new image needs, except connections and pools.
    fn state_of(&self, parts: Parts, handover: Handover) -> ServerState {
        let Parts { poll, listeners, clients, engine, settings, .. } = parts;
        ServerState {
            taken: clock::now(),
            last_serial: clients.last_serial(),
            listening: listeners.state(handover.opened),
            epoll_fd: poll.as_raw_fd(),
            requester_fd: handover.requester.map(|fd| fd.as_raw_fd()),
            launcher: self.launcher.state(),
            settings: settings.clone(),
            rules_file: handover.rules_file.cloned().unwrap_or_default(),
            logging: logging::state(),
            connections: clients.len(),
            pools: engine.counters.hashtable_entries as usize,
            engine: engine.state(),
        }
    }

    /// Abandons a restart before the daemon exits.
    pub(crate) fn abandon(self) {
        if let Some(under_way) = self.under_way {
            under_way.trial.abandon(&self.launcher);
        }
    }
}

/// What is handed over besides the [`Parts`].
#[derive(Clone, Copy, Default)]
struct Handover<'a> {
    /// Listeners opened for the new image.
    opened: &'a [Listener],
    requester: Option<BorrowedFd<'a>>,
    /// The rules that the new binary has read; `None` if it has yet to read them.
    rules_file: Option<&'a RulesFile>,
}

/// Writes the daemon's whole state record by record, without copying it first.
fn write(out: &mut Out, state: &ServerState, parts: Parts) -> io::Result<()> {
    snapshot::write(out, state, parts.clients.states(), parts.engine.pool_states())
}

/// All descriptors that the state names, except the launcher's. Those of connections are
/// never closed on exec.
fn descriptors<'a>(parts: Parts<'a>, handover: &Handover<'a>) -> Vec<BorrowedFd<'a>> {
    let Parts { poll, listeners, .. } = parts;
    let listeners = listeners.all.iter().chain(handover.opened).map(|l| l.socket.as_fd());
    let single = handover.requester.into_iter().chain([sys::epoll_of(poll)]);
    listeners.chain(single).collect()
}

/// How long the new binary may take for a trial snapshot. A gigabyte takes some two
/// seconds, on a busy machine several times that.
const TRIAL_LIMIT_S: u64 = 15;

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
    pub(crate) gist: Gist,
    /// The listeners of the new options. The old image opens the missing ones.
    pub(crate) wanted: Vec<Wanted>,
    /// The rules that it has read. The new image gets them from the snapshot: the file may be
    /// edited in between.
    #[serde(default)]
    pub(crate) rules_file: RulesFile,
    /// The rules of its `--max-hold`.
    #[serde(default)]
    pub(crate) max_hold: Vec<Rule>,
}

/// A new binary that can take over.
pub(crate) struct Consent {
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
    gist: Gist,
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
        gist: Gist,
        write: impl FnOnce(&mut Out) -> io::Result<()>,
        kept: impl FnOnce() -> Vec<RawFd>,
    ) -> io::Result<Self> {
        let binary = identity_of(&launcher.program)?;
        launcher.files.renew()?;
        let (launcher, files) = (&*launcher, &launcher.files);
        let parent = getpid();
        let ask = || run_new_binary(parent, launcher, &arguments, write, kept);
        let pid = sys::fork_apart(files.numbers(), ask).inspect_err(|_| files.clear())?;
        // The child does the same; the order does not matter.
        let _ = setpgid(Some(pid), Some(pid));
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            end(pid);
            files.clear();
        })?;
        let deadline = clock::now().plus_seconds(TRIAL_LIMIT_S);
        Ok(Trial { pid, pidfd, gist, binary, arguments, deadline, is_late: false })
    }

    /// The result, once the child `has_ended` or timed out: an error says why the new
    /// binary can't take over. `None` while it can't be reaped: the kernel first frees the
    /// memory of a child that was late, a tenth of a second for a gigabyte, and the loop
    /// does not wait for that.
    pub(crate) fn verdict(
        &mut self,
        has_ended: bool,
        launcher: &Launcher,
    ) -> Option<Result<Consent, String>> {
        self.is_late |= !has_ended;
        // Also ends processes that the new binary has left behind.
        kill_all(self.pid);
        match waitpid(Some(self.pid), WaitOptions::NOHANG) {
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
        let answer: Option<TrialAnswer> = serde_json::from_str(&said).ok();
        let process = Some(self.pid.as_raw_nonzero().get());
        let agrees = |answer: &TrialAnswer| answer.process == process && answer.gist == self.gist;
        let ours = process_usage::descriptors_max();
        match answer.filter(|answer| status.success() && agrees(answer)) {
            Some(answer) if answer.descriptors_max < ours => Err(format!(
                "the new binary could have only {} descriptors open, the daemon may have {ours}",
                answer.descriptors_max
            )),
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

/// The child's part: writes the snapshot and executes the new binary. Returns the exit
/// status if that fails.
fn run_new_binary(
    parent: Pid,
    launcher: &Launcher,
    arguments: &[OsString],
    write: impl FnOnce(&mut Out) -> io::Result<()>,
    kept: impl FnOnce() -> Vec<RawFd>,
) -> i32 {
    let files = &launcher.files;
    let execute = || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            return Err(io::Error::other("the daemon has ended"));
        }
        setpgid(None, None)?;
        // If memory runs out, the kernel should kill this process, not the daemon
        // (proc_pid_oom_score_adj(5)). A sandbox may forbid this write.
        let _ = write_file("/proc/self/oom_score_adj", "1000");
        let null = open("/dev/null", OFlags::RDWR, 0.into())?;
        stdio::dup2_stdin(&null)?;
        stdio::dup2_stderr(null)?;
        stdio::dup2_stdout(&files.answer)?;
        files.write_snapshot(write)?;
        for number in kept() {
            sys::put_descriptor(&files.snapshot, number)?;
        }
        Err(launcher.execute_trial(arguments))
    };
    let result: io::Result<()> = execute();
    if let Err(e) = result {
        // If this write fails too, the exit status is enough.
        let _ = pwrite(&files.answer, e.to_string().as_bytes(), 0);
    }
    EXIT_NOT_ASKED
}
