//! Every schedule of a small scope, the shortest first: two runs, one server, two faults. States
//! that differ in their pasts alone are one.

use super::grants::Cause;
use super::process::{Options, Process, Run};
use super::steps::Step;
use super::world::{Daemon, Host, Link, Name, Resolver, Server, World};
use crate::run::plan::{NoServer, OnLost, Plan, Talk};
use protocol::UNLIMITED;
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The most faults on a path.
const FAULTS_MAX: u32 = 2;

/// Rules of which one may be set: `max-hold`.
const RULE: usize = 6;

/// A state, by the path to it.
struct Found {
    from: usize,
    step: Option<Step>,
    faults: u32,
}

/// How much was explored.
pub(super) struct Explored {
    pub(super) states: usize,
    pub(super) depth: usize,
    pub(super) causes: BTreeSet<Cause>,
}

/// Where a search begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub(super) on_lost: OnLost,
    pub(super) wait_s: Option<u64>,
    pub(super) no_server: NoServer,
    /// The command of the first run runs, and the second waits.
    pub(super) is_waiting: bool,
}

fn start(scope: Scope) -> World {
    let now = Duration::from_secs(1_000);
    let options = Options {
        plan: Plan {
            servers: vec!["a".parse().expect("a name")],
            has_fallback: false,
            wait_s: scope.wait_s,
            is_any: false,
            max_queue: UNLIMITED,
            is_own_key: false,
            connect_timeout: Some(Duration::from_secs(2)),
            no_server: scope.no_server,
            on_lost: scope.on_lost,
            talk: Talk::Verbose,
        },
        workers: 1,
        ignores_sigterm: false,
        is_foreign: false,
        closes_copy: false,
        leaves_rest: false,
    };
    let server = Server::new(&["10.0.0.1:7531"], now);
    let mut world = World {
        now,
        names: vec![Name::new("a", &server.addresses)],
        servers: vec![server],
        connections: Vec::new(),
        hosts: vec![Host::new(1), Host::new(1)],
        runs: vec![Run::new(options.clone()), Run::new(options)],
        grants: Vec::new(),
    };
    for run in (0..2).filter(|_| scope.is_waiting) {
        world.begin(run);
        while world.is_ready(run) {
            world.go_on(run).expect("nothing has happened");
        }
    }
    world
}

/// Takes every step in every state, breadth first, until there are so many.
///
/// # Errors
/// What was wrong, and the shortest path that leads there.
pub(super) fn explore(scope: Scope, states_max: usize) -> Result<Explored, String> {
    let mut found = vec![Found { from: 0, step: None, faults: 0 }];
    let mut known = HashSet::new();
    let mut causes = BTreeSet::new();
    let mut depth = 0;
    let mut number = 0;
    while number < found.len() {
        let path = path_to(&found, number);
        depth = path.len();
        let here = reach(scope, &path)?;
        for (step, is_fault) in steps(&here) {
            let faults = found[number].faults + u32::from(is_fault);
            if faults > FAULTS_MAX || found.len() >= states_max {
                continue;
            }
            let mut world = reach(scope, &path)?;
            let judged = world.take(step).and_then(|()| world.check_overlaps());
            let judged = judged.and_then(|causes| world.clone().check_progress().map(|()| causes));
            let states = found.len();
            causes.extend(judged.map_err(|why| {
                format!("after {states} states: {why}\n{path:?}\n{step:?}\n{scope:?}")
            })?);
            if known.insert((shape(&world), faults)) {
                found.push(Found { from: number, step: Some(step), faults });
            }
        }
        number += 1;
    }
    Ok(Explored { states: found.len(), depth, causes })
}

fn path_to(found: &[Found], number: usize) -> Vec<Step> {
    let before = |&number: &usize| Some(found[number].from);
    let numbers = std::iter::successors(Some(number), before).take_while(|&number| number > 0);
    let mut path: Vec<Step> = numbers.filter_map(|number| found[number].step).collect();
    path.reverse();
    path
}

fn reach(scope: Scope, path: &[Step]) -> Result<World, String> {
    let mut world = start(scope);
    path.iter().try_for_each(|&step| world.take(step)).map(|()| world)
}

/// All that the future depends on.
fn shape(world: &World) -> u64 {
    let mut runs = world.runs.clone();
    for run in &mut runs {
        run.lines.clear();
        run.seen.acts = Default::default();
    }
    let servers = world.servers.iter().map(|server| {
        let pools: Vec<_> = server.engine.pool_states().collect();
        (server.daemon, server.drains, server.admits_nobody, server.rule, server.started, pools)
    });
    let servers: Vec<_> = servers.collect();
    let mut hasher = DefaultHasher::new();
    format!(
        "{:?}{servers:?}{runs:?}{:?}{:?}{:?}",
        world.now, world.connections, world.hosts, world.grants
    )
    .hash(&mut hasher);
    hasher.finish()
}

/// All that can happen, and whether it is a fault.
fn steps(world: &World) -> Vec<(Step, bool)> {
    let mut steps = Vec::new();
    let is_ready = (0..2).any(|run| world.is_ready(run));
    if !is_ready && world.next_timer().is_some() {
        steps.push((Step::Advance(Duration::from_secs(100)), false));
    }
    for run in 0..2 {
        steps.extend(steps_of_run(world, run));
    }
    let of = &world.servers[0];
    steps.extend(match of.daemon {
        Daemon::Runs => vec![
            (Step::EndDaemon(0), true),
            (Step::CrashHost(0), true),
            (Step::Hang(0), true),
            (Step::RestartHot(0), true),
            (Step::Free(0), true),
        ],
        Daemon::Hangs => vec![(Step::HangNoMore(0), false), (Step::EndDaemon(0), true)],
        Daemon::None | Daemon::HostIsDown => vec![(Step::StartDaemon(0), false)],
    });
    steps.push((Step::AdmitNobody(0, !of.admits_nobody), !of.admits_nobody));
    if of.rule.is_none() {
        steps.push((Step::SetRule(0, Some(RULE)), true));
    }
    steps
}

fn steps_of_run(world: &World, run: usize) -> Vec<(Step, bool)> {
    let of = &world.runs[run];
    let mut steps = Vec::new();
    if of.job.as_ref().is_some_and(|job| job.runs()) {
        steps.extend([(Step::EndJob(run, 0), false), (Step::EndJob(run, 1), false)]);
    }
    match of.process {
        // The second begins after the first: they are alike.
        Process::NotBegun if run == 0 || world.runs[0].process != Process::NotBegun => {
            return vec![(Step::Begin(run), false)];
        }
        Process::Lives => {}
        _ => return steps,
    }
    if world.is_ready(run) {
        steps.push((Step::Run(run), false));
    }
    let host = &world.hosts[run];
    steps.push(if of.is_stopped { (Step::Continue(run), false) } else { (Step::Stop(run), true) });
    steps.push((Step::Kill(run), true));
    let is_asleep = host.asleep_since.is_some();
    steps.push(if is_asleep { (Step::Wake(run), false) } else { (Step::Sleep(run), true) });
    let link = |to_server, from_server| Step::Link { run, server: 0, to_server, from_server };
    if host.links[0] == (Link { to_server: true, from_server: true }) {
        let cuts = [link(false, false), link(false, true), link(true, false)];
        steps.extend(cuts.map(|cut| (cut, true)));
    } else {
        steps.push((link(true, true), false));
    }
    steps.push(match host.resolver {
        Resolver::Works => (Step::Resolve(run, Resolver::Fails), true),
        Resolver::Fails | Resolver::Hangs => (Step::Resolve(run, Resolver::Works), false),
    });
    steps
}
