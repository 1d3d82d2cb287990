//! The old image's side of a hot restart, in two phases: collects what is handed over, with all
//! descriptors.
//!
//! There are two phases. First, while the loop keeps serving, a forked child writes its
//! copy of the state as a trial snapshot and executes the new binary, which answers whether
//! it could take over ([`Trial`]). Only if it can, the second phase writes the final
//! snapshot, clears close-on-exec and executes it ([`Launcher::hand_over`]). If anything
//! fails, the old image continues unchanged. `serving::resume` shows what the new image
//! does, and why no step can fail.

use crate::listening::listener::Listener;
use crate::listening::opening::abandon;
use crate::logging::{logger, rate_limit};
use crate::platform::os::env;
use crate::platform::os::fd::{AsFd, AsRawFd, BorrowedFd};
use crate::platform::{clock, sys};
use crate::restart::launcher::{Launcher, Out};
use crate::restart::parts::Parts;
use crate::restart::restart_error::RestartError;
use crate::restart::snapshot::{self, ServerState, Summary};
use crate::restart::trial::{Approval, Trial, TrialAnswer, rehearse};
use crate::sockets::ids::ControlClient;
use crate::sockets::slots::{Source, watch};
use engine::Time;
use log::{info, warn};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;

/// Runs hot restarts, one at a time.
pub(crate) struct Restart {
    launcher: Launcher,
    under_way: Option<RunningRestart>,
    /// The call that the kernel did not offer when the daemon started, if any.
    lacking: Option<String>,
}

/// A hot restart in its first phase.
struct RunningRestart {
    trial: Trial,
    /// The operator waiting for the result.
    requester: Option<ControlClient>,
    /// The new binary has given its answer.
    is_tried: bool,
    /// Another one follows: a signal has asked for it since, perhaps because of a new file.
    is_repeated: bool,
}

/// A hot restart that does not happen.
pub(crate) struct RefusedRestart {
    pub(crate) why: RestartError,
    /// The operator to answer.
    pub(crate) requester: Option<ControlClient>,
    /// Another one follows.
    pub(crate) is_repeated: bool,
}

impl Restart {
    pub(crate) fn new(launcher: Launcher) -> Self {
        Restart { launcher, under_way: None, lacking: None }
    }

    /// Warns if the kernel lacks, or a container's profile denies, what a hot restart asks for.
    pub(crate) fn rehearse(&mut self) {
        if is_under_valgrind() {
            return;
        }
        if let Err(e) = rehearse(&mut self.launcher) {
            warn!("a hot restart would be refused: {e}");
            self.lacking = Some(e.to_string());
        }
    }

    /// Warns if the limit of descriptors leaves no room for a hot restart. To be called when all is
    /// open that the daemon needs without connections.
    pub(crate) fn check_descriptors(&self) {
        if self.lacking.is_some() || is_under_valgrind() {
            return;
        }
        if let Err(e) = Launcher::check_descriptors() {
            warn!("a hot restart would be refused: too few descriptors are free: {e}");
        }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Notes that another restart follows the one that is under way.
    pub(crate) fn repeat(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.is_repeated = true;
        }
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

    /// Whether the second phase may begin.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let due = |it: &RunningRestart| it.is_tried || it.trial.deadline <= now;
        self.under_way.as_ref().is_some_and(due)
    }

    /// The first phase: asks the new binary, with new `arguments` or the same. Must not
    /// be called during another restart.
    pub(crate) fn begin(
        &mut self,
        arguments: Option<Vec<OsString>>,
        requester: Option<ControlClient>,
        parts: &Parts,
    ) -> Result<(), RestartError> {
        let unchanged = unchanged_options(arguments.is_none());
        let arguments = arguments.unwrap_or_else(|| env::args_os().skip(1).collect());
        let begin = clock::now();
        let trial = self.start_trial(arguments, parts).map_err(|e| {
            let program = self.launcher.program.clone();
            RestartError::NotAsked(program, e.to_string(), self.lacking.clone())
        })?;
        let program = self.launcher.program.display();
        let pause_us = clock::now().ns_since(begin) / 1_000;
        info!(
            "asking {program} whether it can take over, after a pause of {pause_us} µs{unchanged}"
        );
        let (is_tried, is_repeated) = (false, false);
        self.under_way = Some(RunningRestart { trial, requester, is_tried, is_repeated });
        Ok(())
    }

    fn start_trial(&mut self, arguments: Vec<OsString>, parts: &Parts) -> io::Result<Trial> {
        let state = self.state_of(parts, &[]);
        let summary = Summary {
            taken: state.taken,
            connections: parts.clients.len(),
            locks: parts.engine.lock_count(),
        };
        let write = |out: &mut Out<'_>| write(out, &state, parts);
        let kept = || {
            let connections = parts.clients.iter().map(|(_, c)| c.stream.socket().as_fd());
            let all = descriptors(parts, &[]).into_iter().chain(connections);
            all.map(|fd| fd.as_raw_fd()).collect()
        };
        let trial = Trial::start(&mut self.launcher, arguments, summary, write, kept)?;
        match watch(parts.poll.registry(), &trial.pidfd, Source::Trial) {
            Ok(()) => Ok(trial),
            Err(e) => {
                trial.abandon(&self.launcher);
                Err(e)
            }
        }
    }

    /// The second phase, once the trial has ended. Returns only if the new binary can't
    /// take over. `None` if that is decided later.
    pub(crate) fn finish(&mut self, parts: &Parts) -> Option<RefusedRestart> {
        let under_way = self.under_way.as_mut()?;
        let verdict = under_way.trial.verdict(under_way.is_tried, &self.launcher)?;
        let RunningRestart { requester, is_repeated, .. } = self.under_way.take()?;
        let has_left =
            requester.is_some_and(|client| !parts.operator.control.awaits_answer(client));
        let Err(why) = match verdict {
            Ok(_) if has_left => Err(RestartError::HasLeft),
            Ok(approval) => self.execute(approval, parts, requester, is_repeated),
            Err(why) => Err(why),
        };
        Some(RefusedRestart { why, requester, is_repeated })
    }

    /// Opens the new image's missing listeners and hands over to it. Returns only on
    /// failure.
    fn execute(
        &mut self,
        approval: Approval,
        parts: &Parts,
        requester: Option<ControlClient>,
        is_repeated: bool,
    ) -> Result<Infallible, RestartError> {
        let Approval { arguments, binary, answer } = approval;
        let TrialAnswer { wanted, is_control_given, rules_file, max_hold, .. } = answer;
        // Since the trial, orders may have added rules.
        let mut rules = parts.operator.settings.rules.clone();
        rules.resume(rules_file.clone(), max_hold);
        rules.check().map_err(RestartError::Rules)?;
        let lost = parts.listeners.control_socket_lost(&wanted);
        if let Some(path) = lost.filter(|_| !is_control_given) {
            return Err(RestartError::ControlSocketLost(path.to_owned()));
        }
        let opened = parts.listeners.open_missing(&wanted).map_err(RestartError::Listen)?;
        rate_limit::report_suppressed();
        let descriptors = descriptors(parts, &opened);
        let state = self.state_of(parts, &opened);
        let state = ServerState { requester, restarts_again: is_repeated, rules_file, ..state };
        let write = |out: &mut Out<'_>| write(out, &state, parts);
        let failed = self.launcher.hand_over(&arguments, binary, &descriptors, write);
        self.launcher.files.clear();
        abandon(opened);
        failed
    }

    /// Everything that a trial needs, except connections and pools; with listeners `opened` for the
    /// new image.
    fn state_of(&self, parts: &Parts, opened: &[Listener]) -> ServerState {
        let Parts { poll, listeners, clients, engine, operator, history } = parts;
        ServerState {
            taken: clock::now(),
            last_serial: clients.last_serial(),
            listening: listeners.state(opened),
            epoll_fd: poll.as_raw_fd(),
            operators: operator.control.states(),
            requester: None,
            restarts_again: false,
            launcher: self.launcher.state(),
            settings: operator.settings.clone(),
            rules_file: Vec::new(),
            history: history.clone(),
            logging: logger::state(),
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

/// Whether valgrind runs this program: it preloads this library. Valgrind does not know
/// clone(CLONE_FILES) and ends a program that calls it, so a rehearsal would end the daemon.
fn is_under_valgrind() -> bool {
    env::var("LD_PRELOAD").is_ok_and(|libraries| libraries.contains("/vgpreload_core"))
}

/// What answers and the log say about the options of a hot restart.
pub(crate) fn unchanged_options(are_unchanged: bool) -> &'static str {
    if are_unchanged { "; options unchanged" } else { "" }
}

/// Writes the daemon's whole state record by record, without copying it first.
fn write(out: &mut Out<'_>, state: &ServerState, parts: &Parts) -> io::Result<()> {
    snapshot::write(out, state, parts.clients.states(), parts.engine.pool_states())
}

/// All descriptors that the state names, except the launcher's. Those of connections are
/// never closed on exec.
fn descriptors<'a>(parts: &'a Parts, opened: &'a [Listener]) -> Vec<BorrowedFd<'a>> {
    let Parts { poll, listeners, operator, .. } = parts;
    let listeners = listeners.all.iter().chain(opened).map(|l| l.socket.as_fd());
    listeners.chain(operator.control.descriptors()).chain([sys::epoll_of(poll)]).collect()
}
