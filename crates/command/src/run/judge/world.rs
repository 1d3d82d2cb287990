//! The world of some `run`s: hosts that sleep, links that are cut, servers with the engine itself,
//! connections with TCP's timers, commands and what they leave behind. Deterministic: what happens
//! is chosen outside.

use super::grants::{Cause, Grant};
use super::process::{Process, Run};
use crate::run::act::FailureKind;
use connect::ServerName;
use engine::rules::rule::Rule;
use engine::state::{BadState, PoolState};
use engine::view::Phase;
use engine::{ClientId, Engine, HashSeed, Time};
use protocol::{Acquire, Mode, Reply};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// The key of all runs.
pub(super) const KEY: &[u8] = b"k";

/// What `watch_the_host` sets: a client's kernel probes a silent server, and gives it up.
const PROBED_AFTER: Duration = Duration::from_secs(10);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(25);

/// A daemon's kernel gives a silent client up: 1.5 times the default of `--keepalive`.
const CLIENT_GIVEN_UP_AFTER: Duration = Duration::from_secs(90);

/// The rules that may be in force, by number.
pub(super) const RULES: [&str; 8] = [
    "r * workers=9",
    "r * workers=1",
    "r * timeout=1",
    "r * maxqueue=1",
    "r * total=1",
    "r * total=2",
    "r * max-hold=3",
    "r * deny",
];

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: Duration,
    pub(super) servers: Vec<Server>,
    /// What a resolver says.
    pub(super) names: Vec<Name>,
    pub(super) connections: Vec<Connection>,
    /// One for each run.
    pub(super) hosts: Vec<Host>,
    pub(super) runs: Vec<Run>,
    pub(super) grants: Vec<Grant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Host {
    pub(super) asleep_since: Option<Duration>,
    /// In all, before that.
    slept: Duration,
    pub(super) resolver: Resolver,
    pub(super) resolver_changed_at: Option<Duration>,
    pub(super) links: Vec<Link>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Resolver {
    Works,
    Fails,
    Hangs,
}

/// Whether packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) to_server: bool,
    pub(super) from_server: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Daemon {
    /// Its host has crashed.
    HostIsDown,
    None,
    Runs,
    Hangs,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) name: ServerName,
    pub(super) addresses: Vec<SocketAddr>,
    /// When it was others before.
    pub(super) moved_at: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) daemon: Daemon,
    /// Each process that began without the locks of the one before.
    pub(super) incarnation: u32,
    pub(super) started: Duration,
    pub(super) engine: Engine,
    /// Accepts no connections.
    pub(super) drains: bool,
    /// Closes each connection at once.
    pub(super) admits_nobody: bool,
    pub(super) rule: Option<usize>,
    last_client: u32,
}

/// A connection for locks.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) run: usize,
    pub(super) server: usize,
    pub(super) incarnation: u32,
    client: ClientId,
    /// On the way to the daemon's host.
    sent: VecDeque<Sent>,
    /// There, and not read.
    unread: VecDeque<Sent>,
    /// On the way to the run's host.
    coming: VecDeque<Got>,
    /// There, and not read.
    pub(super) inbox: VecDeque<Got>,
    /// A process at the client's side has it open.
    is_open: bool,
    /// The daemon's kernel knows it.
    is_known: bool,
    /// Since when the client's kernel has no answer to what it sends.
    silent_since: Option<Duration>,
    /// When the client's kernel heard of the end.
    pub(super) ended_at: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Acquire { mode: Mode, workers: u32, max_queue: u32, wait_s: Option<u64> },
    Uptime,
    Release,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Got {
    Reply(Reply),
    /// When the daemon's process began.
    Uptime(Duration),
    End(FailureKind),
}

impl Host {
    pub(super) fn new(servers: usize) -> Host {
        let links = vec![Link { to_server: true, from_server: true }; servers];
        Host {
            asleep_since: None,
            slept: Duration::ZERO,
            resolver: Resolver::Works,
            resolver_changed_at: None,
            links,
        }
    }

    /// Its clock that stands still in sleep.
    pub(super) fn awake(&self, now: Duration) -> Duration {
        self.asleep_since.unwrap_or(now) - self.slept
    }

    pub(super) fn has_slept(&self) -> bool {
        self.asleep_since.is_some() || !self.slept.is_zero()
    }

    pub(super) fn wake(&mut self, now: Duration) {
        if let Some(since) = self.asleep_since.take() {
            self.slept += now - since;
        }
    }

    fn sends_to(&self, server: usize) -> bool {
        self.asleep_since.is_none() && self.links[server].to_server
    }

    fn hears(&self, server: usize) -> bool {
        self.asleep_since.is_none() && self.links[server].from_server
    }
}

impl Name {
    pub(super) fn new(name: &str, addresses: &[SocketAddr]) -> Name {
        let name = name.parse().expect("a name");
        Name { name, addresses: addresses.to_vec(), moved_at: None }
    }
}

impl Server {
    pub(super) fn new(addresses: &[&str], now: Duration) -> Server {
        Server {
            addresses: addresses.iter().map(|one| one.parse().expect("an address")).collect(),
            daemon: Daemon::Runs,
            incarnation: 0,
            started: now,
            engine: Engine::new(HashSeed::new([1, 2]), time(now)),
            drains: false,
            admits_nobody: false,
            rule: None,
            last_client: 0,
        }
    }

    fn is_up(&self) -> bool {
        self.daemon != Daemon::HostIsDown
    }

    /// Whether its kernel takes a connection.
    pub(super) fn accepts(&self) -> bool {
        matches!(self.daemon, Daemon::Runs | Daemon::Hangs) && !self.drains
    }
}

pub(super) fn time(now: Duration) -> Time {
    Time::from_ns(now.as_nanos() as u64)
}

impl World {
    pub(super) fn addresses_of(&self, name: &ServerName) -> &[SocketAddr] {
        let of = self.names.iter().find(|of| of.name == *name);
        &of.expect("a name").addresses
    }

    pub(super) fn server_named(&self, name: &ServerName) -> usize {
        self.server_of(self.addresses_of(name)[0])
    }

    pub(super) fn server_of(&self, address: SocketAddr) -> usize {
        let has = |server: &Server| server.addresses.contains(&address);
        self.servers.iter().position(has).expect("a server")
    }

    /// Whether packets between a run's host and a server's go both ways.
    pub(super) fn reaches(&self, run: usize, server: usize) -> bool {
        let host = &self.hosts[run];
        host.sends_to(server) && host.hears(server) && self.servers[server].is_up()
    }

    pub(super) fn connect(&mut self, run: usize, server: usize) -> usize {
        let of = &mut self.servers[server];
        of.last_client += 1;
        let client = ClientId { slot: of.last_client, serial: of.last_client };
        let incarnation = of.incarnation;
        let is_known = !of.admits_nobody;
        let coming =
            if is_known { VecDeque::new() } else { [Got::End(FailureKind::Closed)].into() };
        self.connections.push(Connection {
            run,
            server,
            incarnation,
            client,
            sent: VecDeque::new(),
            unread: VecDeque::new(),
            coming,
            inbox: VecDeque::new(),
            is_open: true,
            is_known,
            silent_since: None,
            ended_at: None,
        });
        self.connections.len() - 1
    }

    pub(super) fn send(&mut self, connection: usize, line: Sent) {
        self.connections[connection].sent.push_back(line);
        self.settle(Cause::Released);
    }

    /// The client's side is shut: a copy in another process does not keep it.
    pub(super) fn shut(&mut self, connection: usize) {
        let of = &mut self.connections[connection];
        if of.is_open {
            of.is_open = false;
            of.sent.push_back(Sent::End);
            self.settle(Cause::GivenUp);
        }
    }

    /// Whether what was sent is acknowledged, and nothing but silence has come.
    pub(super) fn is_acknowledged(&self, connection: usize) -> bool {
        let of = &self.connections[connection];
        of.sent.is_empty() && of.silent_since.is_none()
    }

    /// Lets all arrive that can, and daemons read it. What ends a grant now does so for this cause.
    pub(super) fn settle(&mut self, cause: Cause) {
        loop {
            let moved = (0..self.connections.len()).any(|number| self.carry(number));
            let read = (0..self.connections.len()).any(|number| self.read(number));
            if !moved && !read {
                break;
            }
        }
        self.end_grants(cause);
    }

    /// Moves packets of a connection.
    fn carry(&mut self, number: usize) -> bool {
        let of = &mut self.connections[number];
        let (host, server) = (&self.hosts[of.run], &self.servers[of.server]);
        let mut has_moved = false;
        if host.sends_to(of.server) && server.is_up() && !of.sent.is_empty() {
            has_moved = true;
            if of.is_known {
                of.unread.append(&mut of.sent);
            } else {
                // A reset.
                of.sent.clear();
                of.coming.push_back(Got::End(FailureKind::Closed));
            }
        }
        if host.hears(of.server) && !of.coming.is_empty() {
            has_moved = true;
            for got in of.coming.drain(..) {
                if of.ended_at.is_none() {
                    of.inbox.push_back(got);
                    if matches!(got, Got::End(_)) {
                        of.ended_at = Some(self.now);
                    }
                }
            }
        }
        let is_two_way = host.sends_to(of.server) && host.hears(of.server) && server.is_up();
        let is_live_here = of.is_open && of.ended_at.is_none();
        // The daemon's kernel hears nothing from a connection that the client's has given up.
        let is_heard = is_two_way && of.is_known && of.ended_at.is_none();
        let is_silent = !is_heard && (of.is_known || is_live_here);
        if !is_silent {
            of.silent_since = None;
        } else if of.silent_since.is_none() {
            of.silent_since = Some(self.now);
        }
        has_moved
    }

    /// Lets a daemon read a line.
    fn read(&mut self, number: usize) -> bool {
        let of = &mut self.connections[number];
        let server = of.server;
        if self.servers[server].daemon != Daemon::Runs || !of.is_known {
            return false;
        }
        let Some(line) = of.unread.pop_front() else { return false };
        let (client, now) = (of.client, time(self.now));
        match line {
            Sent::Acquire { mode, workers, max_queue, wait_s } => {
                let timeout_s = wait_s.unwrap_or(protocol::UNLIMITED.into());
                let request = Acquire { mode, key: KEY, workers, max_queue, timeout_s };
                let has_rule =
                    self.servers[server].rule.is_some_and(|n| RULES[n].contains("maxqueue"));
                let run = of.run;
                let engine = &mut self.servers[server].engine;
                let in_queue = engine.pool(KEY).map_or(0, |pool| {
                    [Phase::Holding, Phase::WaitingForMe, Phase::WaitingForAnyone]
                        .map(|phase| pool.count(phase))
                        .iter()
                        .sum()
                });
                self.runs[run].seen.is_queue_full = in_queue >= max_queue as usize && !has_rule;
                engine.acquire(client, &request, now);
                self.answer(server, Some((number, workers)), Cause::Released);
            }
            Sent::Uptime => of.coming.push_back(Got::Uptime(self.servers[server].started)),
            Sent::Release => {
                self.servers[server].engine.release(client, now);
                self.answer(server, None, Cause::Released);
            }
            Sent::End => {
                of.is_known = false;
                self.servers[server].engine.disconnect(client, now);
                self.answer(server, None, Cause::GivenUp);
            }
        }
        true
    }

    /// Sends what a daemon has to answer. `asked`: the connection that asks now, and for how many
    /// workers.
    pub(super) fn answer(&mut self, server: usize, asked: Option<(usize, u32)>, cause: Cause) {
        self.end_grants(cause);
        if let Some((number, workers)) = asked {
            let run = self.connections[number].run;
            self.runs[run].workers_asked = workers;
        }
        while let Some((client, reply)) = self.servers[server].engine.take_answer() {
            let incarnation = self.servers[server].incarnation;
            let is_it = |of: &Connection| {
                of.server == server && of.incarnation == incarnation && of.client == client
            };
            let number = self.connections.iter().position(is_it).expect("a client");
            let of = &mut self.connections[number];
            of.coming.push_back(Got::Reply(reply));
            let run = of.run;
            if reply == Reply::Locked {
                let inherits = asked.is_none_or(|(asking, _)| asking != number);
                let slot = self
                    .grants
                    .iter()
                    .rfind(|grant| inherits && self.has_just_ended(grant, server));
                let workers = self.runs[run].workers_asked.max(slot.map_or(0, |slot| slot.workers));
                self.grants.push(Grant { run, connection: number, workers, ended: None });
            }
        }
        self.close_expired(server);
        self.end_grants(cause);
    }

    fn has_just_ended(&self, grant: &Grant, server: usize) -> bool {
        let is_it = self.connections[grant.connection].server == server;
        is_it && grant.ended.is_some_and(|end| end.at == self.now)
    }

    /// As the daemon does with the holder of a lock that was held for too long.
    fn close_expired(&mut self, server: usize) {
        let expired = self.servers[server].engine.take_expired();
        for client in expired.into_iter().map(|lock| lock.client) {
            let is_it = |of: &Connection| of.server == server && of.client == client && of.is_known;
            if let Some(number) = self.connections.iter().position(is_it) {
                self.close_there(number, Cause::MaxHold);
            }
        }
    }

    /// A daemon closes a connection.
    pub(super) fn close_there(&mut self, number: usize, cause: Cause) {
        let of = &mut self.connections[number];
        of.is_known = false;
        of.unread.clear();
        of.coming.push_back(Got::End(FailureKind::Closed));
        let (server, client) = (of.server, of.client);
        self.servers[server].engine.disconnect(client, time(self.now));
        // Only this client's grant ends by this.
        self.end_grants(cause);
        self.answer(server, None, cause);
    }

    /// Whether the daemon that gave a grant still says that it is held.
    pub(super) fn is_held(&self, connection: usize) -> bool {
        let of = &self.connections[connection];
        let server = &self.servers[of.server];
        let is_there = matches!(server.daemon, Daemon::Runs | Daemon::Hangs);
        let mut locks = server.engine.locks_of(of.client);
        is_there && server.incarnation == of.incarnation && locks.any(|lock| lock.is_held())
    }

    /// The daemon's process ends; its kernel tells all clients, unless the host crashes with it.
    pub(super) fn end_daemon(&mut self, server: usize, after: Daemon, cause: Cause) {
        self.servers[server].daemon = after;
        self.servers[server].incarnation += 1;
        for of in self.connections.iter_mut().filter(|of| of.server == server && of.is_known) {
            of.is_known = false;
            of.unread.clear();
            if after == Daemon::None {
                of.coming.push_back(Got::End(FailureKind::Closed));
            } else {
                of.coming.clear();
            }
        }
        self.settle(cause);
    }

    pub(super) fn start_daemon(&mut self, server: usize) {
        let now = time(self.now);
        let of = &mut self.servers[server];
        of.engine = Engine::new(HashSeed::new([1, 2]), now);
        (of.daemon, of.started, of.drains) = (Daemon::Runs, self.now, false);
        self.set_rule(server, self.servers[server].rule);
    }

    pub(super) fn restart_hot(&mut self, server: usize) {
        let engine = &self.servers[server].engine;
        let pools: Vec<Result<PoolState<'_>, BadState>> = engine.pool_states().map(Ok).collect();
        let seed = HashSeed::new([3, 4]);
        let resumed = Engine::resume(engine.state(), pools, seed, time(self.now));
        self.servers[server].engine = resumed.expect("a state");
    }

    pub(super) fn set_rule(&mut self, server: usize, rule: Option<usize>) {
        let now = time(self.now);
        let of = &mut self.servers[server];
        of.rule = rule;
        let rules = rule.map(|number| Rule::parse(RULES[number]).expect("a rule"));
        of.engine.set_rules(rules.into_iter().collect(), &[], now, || {});
        of.engine.expire(now);
        self.answer(server, None, Cause::MaxHold);
        self.settle(Cause::MaxHold);
    }

    /// Frees the key: the connections of its holders are closed.
    pub(super) fn free(&mut self, server: usize) {
        let holders: Vec<ClientId> = match self.servers[server].engine.pool(KEY) {
            Some(pool) => pool.holders().collect(),
            None => return,
        };
        for number in 0..self.connections.len() {
            let of = &self.connections[number];
            if of.server == server && of.is_known && holders.contains(&of.client) {
                self.close_there(number, Cause::Freed);
            }
        }
        self.settle(Cause::Freed);
    }

    /// When something happens without a step.
    pub(super) fn next_timer(&self) -> Option<Duration> {
        let of_connection = |of: &Connection| {
            let since = of.silent_since?;
            // The kernel of a host that sleeps does not probe.
            let host = &self.hosts[of.run];
            let is_awake = host.asleep_since.is_none();
            let hears = host.sends_to(of.server)
                && host.hears(of.server)
                && self.servers[of.server].is_up();
            let mine = if hears { PROBED_AFTER } else { GIVEN_UP_AFTER };
            let reads = of.is_known && self.servers[of.server].daemon == Daemon::Runs;
            let theirs = reads.then_some(since + CLIENT_GIVEN_UP_AFTER);
            let mine = (is_awake && of.ended_at.is_none() && of.is_open).then_some(since + mine);
            theirs.into_iter().chain(mine).min()
        };
        let engines = self.servers.iter().filter(|server| server.daemon == Daemon::Runs);
        let waits = engines.filter_map(|server| server.engine.next_deadline());
        // A tick of the wheel later, so that it has passed.
        let waits = waits.map(|at| Duration::from_nanos(at.as_ns()) + Duration::from_millis(2));
        let acts = (0..self.runs.len()).filter_map(|run| self.due(run));
        self.connections.iter().filter_map(of_connection).chain(waits).chain(acts).min()
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, to: Duration) {
        self.now = self.now.max(to);
        for number in 0..self.connections.len() {
            self.probe(number);
        }
        for server in 0..self.servers.len() {
            if self.servers[server].daemon == Daemon::Runs {
                self.servers[server].engine.expire(time(self.now));
                self.answer(server, None, Cause::MaxHold);
            }
        }
        self.settle(Cause::MaxHold);
    }

    /// What TCP's timers do to a connection whose other end is silent.
    fn probe(&mut self, number: usize) {
        let of = &mut self.connections[number];
        let Some(since) = of.silent_since else { return };
        let host = &self.hosts[of.run];
        let server = &self.servers[of.server];
        let silent = self.now - since;
        let is_two_way = host.sends_to(of.server) && host.hears(of.server) && server.is_up();
        if host.asleep_since.is_none() && of.ended_at.is_none() {
            if silent >= GIVEN_UP_AFTER {
                of.inbox.push_back(Got::End(FailureKind::Down));
                of.ended_at = Some(self.now);
                of.sent.clear();
            } else if silent >= PROBED_AFTER && is_two_way && !of.is_known {
                of.inbox.push_back(Got::End(FailureKind::Closed));
                of.ended_at = Some(self.now);
            }
        }
        // One that hangs reads of it later.
        if of.is_known && server.daemon == Daemon::Runs && silent >= CLIENT_GIVEN_UP_AFTER {
            let (server, client) = (of.server, of.client);
            of.is_known = false;
            of.unread.clear();
            self.servers[server].engine.disconnect(client, time(self.now));
            self.answer(server, None, Cause::Vanished);
        }
    }

    /// Closes connections whose last process has ended.
    pub(super) fn close_unheld(&mut self) {
        for number in 0..self.connections.len() {
            let run = self.connections[number].run;
            if self.connections[number].is_open && !self.has_open(run, number) {
                self.shut(number);
            }
        }
    }

    /// Whether a process has a copy of the connection.
    fn has_open(&self, run: usize, connection: usize) -> bool {
        let of = &self.runs[run];
        match of.process {
            Process::Lives => of.connection == Some(connection),
            Process::Killed => of
                .job
                .as_ref()
                .filter(|_| !of.options.closes_copy)
                .is_some_and(|job| job.has_process() && job.inherits == Some(connection)),
            Process::NotBegun | Process::Ended(_) => false,
        }
    }
}
