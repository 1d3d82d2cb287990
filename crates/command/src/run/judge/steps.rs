//! All that may happen next, and which of it a walk chooses.

use super::grants::Cause;
use super::process::{Options, Pending, Process, Run};
use super::world::{Daemon, Host, Name, RULES, Resolver, Server, World};
use crate::run::act::Act;
use crate::run::ending::JobEnd;
use crate::run::line::{Line, NoLock};
use crate::run::plan::{NoServer, OnLost, Plan, Talk};
use protocol::UNLIMITED;
use std::time::Duration;

/// How long runs may take to end, one after the other, when all is well: what TCP's timers take to
/// notice it, looks at servers, and what a wait without an end takes.
const HEALED_RUN_MAX: Duration = Duration::from_secs(200);

/// The server whose address the first name gets if it moves.
const ELSEWHERE: usize = 2;

/// The same until a server is asked that is there.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The numbers are those of runs and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Begin(usize),
    /// A run hears what has come of its act.
    Run(usize),
    /// Until the next timer, but for so long at most.
    Advance(Duration),
    EndJob(usize, u8),
    EndRest(usize),
    EndDaemon(usize),
    CrashHost(usize),
    StartDaemon(usize),
    Hang(usize),
    HangNoMore(usize),
    RestartHot(usize),
    Drain(usize, bool),
    AdmitNobody(usize, bool),
    Free(usize),
    SetRule(usize, Option<usize>),
    /// Whether packets go to the server, and come from it.
    Link {
        run: usize,
        server: usize,
        to_server: bool,
        from_server: bool,
    },
    Resolve(usize, Resolver),
    /// The first name becomes that of another server.
    Move,
    Stop(usize),
    Continue(usize),
    Terminate(usize),
    Kill(usize),
    Sleep(usize),
    Wake(usize),
}

/// Numbers that follow from a seed (splitmix64).
pub(super) struct Choices {
    state: u64,
    /// Much happens to the first daemon, in little time.
    is_restless: bool,
}

impl Choices {
    pub(super) fn new(seed: u64) -> Choices {
        let mut choices = Choices { state: seed, is_restless: false };
        choices.is_restless = choices.below(4) == 0;
        choices
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Three runs and two servers, with options that may differ.
pub(super) fn start(choices: &mut Choices) -> World {
    let now = Duration::from_secs(1_000);
    let servers = vec![
        Server::new(&["10.0.0.1:7531", "[2001:db8::1]:7531"], now),
        Server::new(&["10.0.0.2:7531"], now),
        Server::new(&["10.0.0.3:7531", "[2001:db8::3]:7531"], now),
    ];
    let address = |server: usize, number: usize| servers[server].addresses[number];
    let of_a = match choices.below(16) {
        // Two daemons of one name.
        0 => vec![address(0, 0), address(ELSEWHERE, 1)],
        1 => vec![address(0, 0), address(ELSEWHERE, 0)],
        _ => servers[0].addresses.clone(),
    };
    let names = vec![Name::new("a", &of_a), Name::new("b", &servers[1].addresses)];
    let differ = choices.below(8) == 0;
    let runs: Vec<Run> = (0..3).map(|_| Run::new(options(choices, differ))).collect();
    let hosts = runs.iter().map(|_| Host::new(servers.len())).collect();
    let (connections, grants) = (Vec::new(), Vec::new());
    World { now, servers, names, connections, hosts, runs, grants }
}

fn options(choices: &mut Choices, may_differ: bool) -> Options {
    let names = ["a", "b"].map(|name| name.parse().expect("a name"));
    let [a, b] = names;
    let has_fallback = choices.below(3) == 0;
    let is_other = may_differ && choices.below(2) == 0;
    let mut servers = if is_other { vec![b, a] } else { vec![a, b] };
    if !has_fallback {
        servers.truncate(1);
    }
    let wait_s = choices.one(&[None, None, Some(0), Some(1), Some(5), Some(60)]);
    let time = |s: f64| Some(Duration::from_secs_f64(s));
    let max_queue = choices.one(&[UNLIMITED, UNLIMITED, UNLIMITED, 1, 2]);
    let workers = choices.one(&[1, 1, 1, 1, 1, 2]).min(max_queue);
    Options {
        plan: Plan {
            servers,
            has_fallback,
            wait_s,
            max_queue,
            is_any: wait_s != Some(0) && choices.below(4) == 0,
            is_own_key: choices.below(8) == 0,
            connect_timeout: choices.one(&[None, None, time(0.1), time(2.0), time(40.0)]),
            no_server: choices.one(&[NoServer::Fail, NoServer::Fail, NoServer::Run]),
            on_lost: choices.one(&[
                OnLost::Warn,
                OnLost::Kill { after: Duration::from_secs(10) },
                OnLost::Kill { after: Duration::from_secs(1) },
            ]),
            talk: choices.one(&[Talk::Verbose, Talk::Verbose, Talk::Usual, Talk::Quiet]),
        },
        workers,
        ignores_sigterm: choices.below(4) == 0,
        is_foreign: choices.below(6) == 0,
        closes_copy: choices.below(2) == 0,
        leaves_rest: choices.below(4) == 0,
    }
}

impl World {
    /// Chooses a step. What is ready happens soon: time passes when nothing is.
    pub(super) fn choose(&self, choices: &mut Choices) -> Option<Step> {
        let ready: Vec<usize> = (0..self.runs.len()).filter(|&run| self.is_ready(run)).collect();
        let is_over = |run: &Run| matches!(run.process, Process::Ended(_) | Process::Killed);
        if self.runs.iter().all(is_over)
            && self.runs.iter().all(|run| run.job.as_ref().is_none_or(|job| !job.has_process()))
        {
            return None;
        }
        let dice = choices.below(100);
        if !ready.is_empty() && dice < 85 {
            return Some(Step::Run(choices.one(&ready)));
        }
        if ready.is_empty() && dice < 60 {
            let most_ms = if choices.is_restless {
                choices.one(&[50, 1_000, 2_500, 5_000])
            } else {
                choices.one(&[50, 1_000, 20_000, 100_000])
            };
            return Some(Step::Advance(Duration::from_millis(most_ms)));
        }
        Some(self.choose_fault(choices))
    }

    fn choose_fault(&self, choices: &mut Choices) -> Step {
        let run = choices.below(self.runs.len() as u64) as usize;
        let server = if choices.below(4) == 0 { 1 } else { 0 };
        let of = &self.runs[run];
        let flag = choices.below(2) == 0;
        if of.process == Process::NotBegun {
            return Step::Begin(run);
        }
        if choices.is_restless && choices.below(4) > 0 {
            return match self.servers[0].daemon {
                Daemon::None | Daemon::HostIsDown => Step::StartDaemon(0),
                Daemon::Runs if flag => Step::Hang(0),
                Daemon::Hangs if choices.below(4) == 0 => Step::HangNoMore(0),
                Daemon::Runs | Daemon::Hangs => Step::EndDaemon(0),
            };
        }
        match choices.below(30) {
            0..=5 => Step::EndJob(run, choices.one(&[0, 0, 1])),
            6 => Step::EndRest(run),
            7 => Step::EndDaemon(server),
            8 => Step::CrashHost(server),
            9..=11 => Step::StartDaemon(server),
            12 => Step::Hang(server),
            13 => Step::HangNoMore(server),
            14 => Step::RestartHot(server),
            15 => Step::Drain(server, flag),
            16 => Step::AdmitNobody(server, flag && choices.below(2) == 0),
            17 => Step::Free(server),
            18 => {
                let rule = choices.below(2 * RULES.len() as u64) as usize;
                Step::SetRule(server, Some(rule).filter(|&rule| rule < RULES.len()))
            }
            19 => Step::Link { run, server, to_server: flag, from_server: choices.below(2) == 0 },
            20..=21 => Step::Link { run, server, to_server: true, from_server: true },
            22 => Step::Resolve(run, choices.one(&[Resolver::Fails, Resolver::Hangs])),
            23 => Step::Resolve(run, Resolver::Works),
            24 => Step::Stop(run),
            25 => Step::Continue(run),
            26 => Step::Terminate(run),
            27 if choices.below(2) == 0 => Step::Kill(run),
            27 if choices.below(3) == 0 => Step::Move,
            28 => Step::Sleep(run),
            _ => Step::Wake(run),
        }
    }

    /// # Errors
    /// What the judge says of it.
    pub(super) fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Begin(run) => self.begin(run),
            Step::Run(run) => self.go_on(run)?,
            Step::Advance(most) => {
                let end = self.now + most;
                let to = self.next_timer().map_or(end, |at| at.max(self.now).min(end));
                self.advance(to);
                self.check_times()?;
            }
            Step::EndJob(run, code) => self.end_job(run, JobEnd::Exited(code)),
            Step::EndRest(run) => self.end_rest(run),
            Step::EndDaemon(server) if self.runs_daemon(server) => {
                self.end_daemon(server, Daemon::None, Cause::DaemonEnded);
            }
            Step::CrashHost(server) => {
                self.end_daemon(server, Daemon::HostIsDown, Cause::HostCrashed);
            }
            Step::StartDaemon(server) if !self.runs_daemon(server) => self.start_daemon(server),
            Step::Hang(server) if self.servers[server].daemon == Daemon::Runs => {
                self.servers[server].daemon = Daemon::Hangs;
            }
            Step::HangNoMore(server) if self.servers[server].daemon == Daemon::Hangs => {
                self.servers[server].daemon = Daemon::Runs;
                self.settle(Cause::Released);
                self.advance(self.now);
            }
            Step::RestartHot(server) if self.servers[server].daemon == Daemon::Runs => {
                self.restart_hot(server);
            }
            Step::Drain(server, drains) => self.servers[server].drains = drains,
            Step::AdmitNobody(server, nobody) => self.servers[server].admits_nobody = nobody,
            Step::Free(server) if self.servers[server].daemon == Daemon::Runs => self.free(server),
            Step::SetRule(server, rule) if self.servers[server].daemon == Daemon::Runs => {
                self.set_rule(server, rule);
            }
            Step::Link { run, server, to_server, from_server } => {
                let link = &mut self.hosts[run].links[server];
                (link.to_server, link.from_server) = (to_server, from_server);
                self.settle(Cause::Released);
            }
            Step::Move => {
                let to = self.servers[ELSEWHERE].addresses[..1].to_vec();
                (self.names[0].addresses, self.names[0].moved_at) = (to, Some(self.now));
            }
            Step::Resolve(run, resolver) => {
                let host = &mut self.hosts[run];
                (host.resolver, host.resolver_changed_at) = (resolver, Some(self.now));
            }
            Step::Stop(run) if self.runs[run].process == Process::Lives => {
                (self.runs[run].is_stopped, self.runs[run].was_disturbed) = (true, true);
            }
            Step::Continue(run) => self.runs[run].is_stopped = false,
            Step::Terminate(run) if self.runs[run].process == Process::Lives => {
                self.send_sigterm(run);
            }
            Step::Kill(run) if self.runs[run].process == Process::Lives => self.kill(run),
            Step::Sleep(run) if self.hosts[run].asleep_since.is_none() => {
                self.hosts[run].asleep_since = Some(self.now);
                self.runs[run].was_disturbed = true;
                self.settle(Cause::Released);
            }
            Step::Wake(run) => {
                self.hosts[run].wake(self.now);
                self.settle(Cause::Released);
            }
            // Not possible now.
            _ => {}
        }
        Ok(())
    }

    /// Progress: once all is well and the jobs of others end, every run ends, and none for want of a
    /// server.
    ///
    /// # Errors
    /// One does not.
    pub(super) fn check_progress(&mut self) -> Result<(), String> {
        let told = self.runs.iter().map(|run| run.lines.len()).collect::<Vec<_>>();
        self.heal()?;
        let (healed, end) = (self.now, self.now + HEALED_RUN_MAX);
        while let Some(waiting) = self.runs.iter().position(|run| run.process == Process::Lives) {
            if let Some(run) = (0..self.runs.len()).find(|&run| self.is_ready(run)) {
                self.go_on(run)?;
            } else if let Some(run) = (0..self.runs.len()).find(|&run| self.has_process(run)) {
                self.end_job(run, JobEnd::Exited(0));
                self.end_rest(run);
            } else if self.now >= end {
                return Err(format!("run {waiting} does not end: {:?}", self.runs[waiting].act));
            } else {
                let next = self.next_timer().unwrap_or(end);
                self.advance(next.clamp(self.now, end));
                let is_idle = (0..self.runs.len()).any(|run| self.is_without_server(run, healed));
                if is_idle {
                    return Err("a server that is there is not asked".to_owned());
                }
            }
        }
        let is_unreachable = |line: &Line| matches!(line, Line::NotRun(NoLock::Unreachable(_)));
        let new_lines = self.runs.iter().zip(told).flat_map(|(run, told)| &run.lines[told..]);
        match new_lines.into_iter().find(|line| is_unreachable(line)) {
            Some(line) => Err(format!("all servers run: {line:?}")),
            None => Ok(()),
        }
    }

    /// Whether a run has no server for longer than a retry, since all is well.
    fn is_without_server(&self, run: usize, healed: Duration) -> bool {
        let of = &self.runs[run];
        let looks = |pending: &&Pending| {
            matches!(pending.act, Act::Pause { .. } | Act::LookUp { .. } | Act::Connect { .. })
        };
        let pending = of.act.as_ref().filter(|_| of.process == Process::Lives).filter(looks);
        pending.is_some_and(|pending| self.now > pending.since.max(healed) + RETRY_MAX)
    }

    fn heal(&mut self) -> Result<(), String> {
        for server in 0..self.servers.len() {
            for step in [Step::HangNoMore(server), Step::StartDaemon(server)] {
                self.take(step)?;
            }
            self.take(Step::Drain(server, false))?;
            self.take(Step::AdmitNobody(server, false))?;
            self.take(Step::SetRule(server, None))?;
        }
        for run in 0..self.runs.len() {
            for step in [Step::Wake(run), Step::Continue(run), Step::Resolve(run, Resolver::Works)]
            {
                self.take(step)?;
            }
            for server in 0..self.servers.len() {
                self.take(Step::Link { run, server, to_server: true, from_server: true })?;
            }
        }
        Ok(())
    }

    fn has_process(&self, run: usize) -> bool {
        self.runs[run].job.as_ref().is_some_and(|job| job.has_process())
    }

    fn runs_daemon(&self, server: usize) -> bool {
        matches!(self.servers[server].daemon, Daemon::Runs | Daemon::Hangs)
    }
}
