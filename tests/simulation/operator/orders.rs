//! Orders to the daemon (to stop, drain, limit holds or restart), and what must follow.

use super::control_socket::REQUESTS_BYTES_MAX;
use super::expected_rules::{self, ExpectedRules, RuleLine};
use crate::listening::addresses::Purpose;
use crate::listening::listener::{Listener, ListenerStage, Origin};
use crate::logging::logger;
use crate::operator::control_socket::FreeTarget;
use crate::restart::parts::Parts;
use crate::simulation::invariants::Violation;
use crate::simulation::invariants::listening::serves_clients;
use crate::simulation::kernel::files::normalized;
use crate::simulation::kernel::processes::PROGRAM;
use crate::simulation::kernel::{KernelEvent, kernel};
use crate::{Ended, Options, Server, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// How long a trial may take.
const TRIAL_NS: u64 = 15_000_000_000;

/// How long the death of a child may go unnoticed.
const DEATH_SEEN_NS: u64 = 100_000_000;

/// All orders up to the last turn, and what follows from them.
#[derive(Default)]
pub(crate) struct Orders {
    stops: bool,
    pub(crate) drains: bool,
    /// Whether the drain has ended can't be predicted in this turn.
    may_drain: bool,
    /// How many of the sockets that were passed to the daemon it has open.
    inherited: usize,
    /// A drain has closed one of them: the daemon can't open it again, nor can the next
    /// image.
    has_closed_passed: bool,
    /// The port that `-p 0` got, which clients use.
    free_port: Option<u16>,
    rules: ExpectedRules,
    /// What to log, once an operator has set it.
    filter: Option<String>,
    filter_by_option: Option<String>,
    /// What is to be freed in this turn.
    pub(crate) freed: Vec<FreeTarget>,
    trial: Option<ExpectedTrial>,
    /// Whether a signal has asked for another restart meanwhile.
    repetition: Repetition,
    /// An operator that had asked for a restart has left, or lost its place.
    pub(crate) has_requester_left: bool,
    /// How many hot restarts the daemon has counted as refused.
    pub(crate) restarts_refused: u64,
    /// Unfinished lines of operators.
    lines: BTreeMap<u32, Vec<u8>>,
    /// Operators that have sent too much: none of it has an effect.
    oversized: BTreeSet<u32>,
}

/// A hot restart that was asked for.
struct ExpectedTrial {
    pid: Option<i32>,
    /// The new options of each request, or `None` to keep the old ones. Any of several requests in
    /// a turn may have come first.
    requests: Vec<Option<Vec<String>>>,
    begun_ns: u64,
    /// The daemon has seen that it has ended.
    is_reported: bool,
    /// The binary's.
    inode: Option<u64>,
    /// Something disturbed it: it may be refused.
    is_disturbed: bool,
    /// What the trial has read in the file of rules, if anything.
    rules_read: Option<&'static str>,
}

/// Whether another restart follows the one that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Repetition {
    #[default]
    No,
    /// The requests came in one turn: the second one begins if the first is refused at once.
    Maybe,
    Yes,
}

/// An order, by a signal or an operator.
enum OperatorOrder {
    Stop,
    Toggle,
    Drain,
    Undrain,
    Rule(RuleLine),
    Log(String),
    Free(FreeTarget),
    Restart(Option<Vec<String>>),
    RestartBySignal,
}

impl Orders {
    /// A new image has started with these options, at first or by a hot restart.
    ///
    /// Invariant: The log filter that an operator has set stays until a restart brings another
    /// `--log`.
    pub(crate) fn note_start(&mut self, options: &Options, is_restart: bool) {
        self.rules.note_start(options, is_restart);
        if options.log != self.filter_by_option {
            self.filter = None;
            self.filter_by_option.clone_from(&options.log);
        }
    }

    /// Follows the orders of a turn in which the daemon did not restart.
    ///
    /// Invariant: An order has its effect in the turn in which it is received.
    ///
    /// # Errors
    /// The daemon did something else.
    pub(crate) fn check_turn(
        &mut self,
        seen: &[KernelEvent],
        operators: impl Fn(u32) -> bool,
        server: &Server,
    ) -> Result<(), Violation> {
        let mut restarts = Vec::new();
        self.rules.note_time();
        let begins = seen.iter().any(|one| matches!(one, KernelEvent::Forked(_)));
        let mut may_be_refused_at_once = false;
        if self.trial.is_none() {
            match std::mem::take(&mut self.repetition) {
                Repetition::Yes => restarts.push(None),
                Repetition::Maybe if begins => restarts.push(None),
                Repetition::Maybe => may_be_refused_at_once = is_disturbed(),
                Repetition::No => {}
            }
        }
        for order in self.parse_orders(seen, operators) {
            match order {
                OperatorOrder::Restart(_) | OperatorOrder::RestartBySignal if self.stops => {}
                OperatorOrder::RestartBySignal if self.trial.is_some() => {
                    self.repetition = Repetition::Yes;
                }
                OperatorOrder::RestartBySignal => {
                    if !restarts.is_empty() {
                        self.repetition = Repetition::Maybe;
                    }
                    restarts.push(None);
                }
                OperatorOrder::Restart(arguments) => restarts.push(arguments),
                order => self.apply(order),
            }
        }
        if self.stops {
            return Ok(());
        }
        let refused = self.check_trial(seen, restarts, server)?;
        let refused = *refused.start()..=refused.end() + u64::from(may_be_refused_at_once);
        self.check_refused(refused, server)?;
        self.check_effects(server)
    }

    /// Follows the orders up to an exec(2) with these arguments.
    ///
    /// Invariant: A hot restart happens only if it was asked for, with the arguments that were
    /// asked for, and accepts nothing that a cold start refuses, nor a list with words that are no
    /// options.
    ///
    /// # Errors
    /// If nobody has asked for that.
    pub(crate) fn check_exec(
        &mut self,
        seen: &[KernelEvent],
        operators: impl Fn(u32) -> bool,
        before: &[OsString],
        now: &[OsString],
    ) -> Result<(), Violation> {
        self.rules.note_time();
        for order in self.parse_orders(seen, operators) {
            self.apply(order);
        }
        let trial = self.trial.take().ok_or("it restarts, but was not asked to")?;
        if self.stops {
            return Err("it was ordered to stop, but restarts".to_owned());
        }
        let is_asked = |request: &&Option<Vec<String>>| match request {
            None => before == now,
            Some(arguments) => {
                now[1..].iter().eq(arguments.iter().map(|a| a.as_ref() as &std::ffi::OsStr))
            }
        };
        if !trial.requests.iter().any(|request| is_asked(&request)) {
            return Err(format!("it restarts as {now:?}, which nobody asked for"));
        }
        if !can_be_served(now, trial.rules_read) {
            return Err(format!("it restarts as {now:?}, which can't be started"));
        }
        self.rules.next_file = trial.rules_read;
        Ok(())
    }

    /// What an order changes.
    ///
    /// Invariant: SIGUSR2 starts a drain or ends it; SIGQUIT never ends one. UNDRAIN always fails
    /// once a passed socket is closed, also after a hot restart.
    fn apply(&mut self, order: OperatorOrder) {
        match order {
            _ if self.stops => {}
            OperatorOrder::Stop => self.stops = true,
            OperatorOrder::Drain => (self.drains, self.may_drain) = (true, false),
            OperatorOrder::Toggle if !self.drains => (self.drains, self.may_drain) = (true, false),
            OperatorOrder::Undrain | OperatorOrder::Toggle if self.has_closed_passed => {}
            OperatorOrder::Undrain | OperatorOrder::Toggle if self.drains => {
                // A passed socket may be closed in this turn, before or after that.
                self.may_drain |= is_disturbed() || kernel(|k| k.was_passed);
                self.drains = false;
            }
            OperatorOrder::Undrain | OperatorOrder::Toggle => {}
            OperatorOrder::Rule(line) => self.rules.apply(line),
            OperatorOrder::Log(filter) => self.filter = Some(filter),
            OperatorOrder::Free(target) => self.freed.push(target),
            OperatorOrder::Restart(_) => {}
            OperatorOrder::RestartBySignal => self.repetition = Repetition::Yes,
        }
    }

    /// Invariant: A hot restart begins when it is asked for, and not otherwise; if a signal asks
    /// for it during another one, after that. Its trial ends in the turn in which the end of the
    /// child can be seen; if there is no new image by then, the hot restart was refused.
    ///
    /// Returns how many were refused.
    fn check_trial(
        &mut self,
        seen: &[KernelEvent],
        restarts: Vec<Option<Vec<String>>>,
        server: &Server,
    ) -> Result<RangeInclusive<u64>, Violation> {
        let asked = restarts.len() as u64;
        let disturbed = is_disturbed();
        let inode = kernel(|k| k.path(PROGRAM).ok().map(|there| there.inode));
        let child = kernel(|k| k.children.first().map(|child| child.pid));
        if let Some(trial) = &mut self.trial {
            trial.is_disturbed |= disturbed || trial.inode != inode;
            if child == trial.pid {
                trial.is_reported |=
                    child.is_some_and(|pid| seen.contains(&KernelEvent::TrialReported(pid)));
                return trial.check_pending(server).map(|()| 0..=0);
            }
            if !self.has_requester_left {
                trial.check_refused(server)?;
            }
            self.trial = None;
            // Requests in the meantime were answered that a restart is under way.
            let repetition = std::mem::take(&mut self.repetition);
            return match child {
                None if repetition == Repetition::No => Ok(1..=1),
                // The next one was refused at once.
                None => Ok(1..=2),
                Some(_) if repetition == Repetition::No => {
                    Err("it tries a restart that nobody asked for".to_owned())
                }
                Some(_) => {
                    self.trial = Some(ExpectedTrial::begun(child, vec![None], disturbed));
                    Ok(1..=1)
                }
            };
        }
        let begins = seen.iter().any(|one| matches!(one, KernelEvent::Forked(_)));
        if restarts.is_empty() {
            return if begins {
                Err("it tries a restart that nobody asked for".to_owned())
            } else {
                Ok(0..=0)
            };
        }
        let trial = ExpectedTrial::begun(child, restarts, disturbed);
        if child.is_none() {
            self.repetition = Repetition::No;
            return trial.check_refused(server).map(|()| 1..=asked);
        }
        self.trial = Some(trial);
        Ok(0..=asked - 1)
    }

    /// Invariant: Each hot restart that is refused is counted.
    fn check_refused(
        &mut self,
        should: RangeInclusive<u64>,
        server: &Server,
    ) -> Result<(), Violation> {
        let before = self.restarts_refused;
        self.restarts_refused = server.parts.engine.measures.restarts.refused;
        if should.contains(&self.restarts_refused.wrapping_sub(before)) {
            return Ok(());
        }
        Err(format!(
            "{} hot restarts count as refused, {before} before this turn, but {should:?} were",
            self.restarts_refused
        ))
    }

    /// At the end of a turn.
    ///
    /// Invariant: DRAIN, UNDRAIN, SIGQUIT, SIGUSR2, RULE and LOG have had their effect. An UNDRAIN
    /// that fails leaves the drain as it was.
    fn check_effects(&mut self, server: &Server) -> Result<(), Violation> {
        let listeners = &server.parts.listeners;
        let is_draining = listeners.is_draining();
        if std::mem::take(&mut self.may_drain) {
            self.drains = is_draining;
            if !is_draining && !serves_clients() {
                return Err("it can't undrain, but no longer drains".to_owned());
            }
        }
        self.note_inherited(&listeners.all);
        self.check_port(&listeners.all)?;
        if is_draining != self.drains {
            return Err(format!("it drains: {is_draining}, but should: {}", self.drains));
        }
        let rules = server.parts.engine.rules().in_force().iter();
        let rules: Vec<String> = rules.map(|rule| rule.rule.to_string()).collect();
        if rules != self.rules.in_force() {
            return Err(format!("the rules are {rules:?}, not {:?}", self.rules.in_force()));
        }
        let filter = logger::filter();
        match &self.filter {
            Some(set) if *set != filter => Err(format!("it logs {filter}, not {set}")),
            _ => Ok(()),
        }
    }

    fn note_inherited(&mut self, listeners: &[Listener]) {
        let inherited = listeners.iter().filter(|listener| listener.is_inherited()).count();
        self.has_closed_passed |= inherited < self.inherited;
        self.inherited = inherited;
    }

    /// Invariant: The port that `-p 0` got stays, over drains and hot restarts.
    fn check_port(&mut self, listeners: &[Listener]) -> Result<(), Violation> {
        let has_free_port = |listener: &&Listener| match listener.origin {
            Origin::Tcp { wanted, .. } => {
                wanted.address.port() == 0 && wanted.purpose == Purpose::Clients
            }
            Origin::Inherited(_) | Origin::Control { .. } => false,
        };
        let addresses = listeners.iter().filter(has_free_port).filter_map(Listener::tcp_address);
        for port in addresses.map(|address| address.port()) {
            let first = *self.free_port.get_or_insert(port);
            if port != first {
                return Err(format!("clients use port {first}, but it listens on {port}"));
            }
        }
        Ok(())
    }

    /// After a hot restart.
    pub(crate) fn check_resumed(&mut self, server: &Server) -> Result<(), Violation> {
        self.rules.check_resumed()?;
        self.check_effects(server)
    }

    /// Invariant: The daemon ends only on SIGTERM or SIGINT, or in a drain when the last client has
    /// left; clients that wait to be accepted count.
    pub(crate) fn check_end(&self, end: Ended, connections: usize) -> Result<(), Violation> {
        match end {
            Ended::Stopped if self.stops => Ok(()),
            Ended::Drained if self.drains && connections == 0 && !self.stops => Ok(()),
            _ => Err(format!("it ends, {end:?}, with {connections} connections")),
        }
    }

    /// Invariant: The daemon ends in the turn in which it receives SIGTERM or SIGINT, or in which
    /// the last client of a drain leaves, clients that wait to be accepted included; then, once the
    /// operators have their answers.
    pub(crate) fn check_still_running(&self, server: &Server) -> Result<(), Violation> {
        if self.stops {
            return Err("it was ordered to stop, but still runs".to_owned());
        }
        let Parts { listeners, clients, operator, .. } = &server.parts;
        let is_closing = listeners.all.iter().any(|listener| listener.stage != ListenerStage::Open)
            || operator.control.has_unsent();
        let left = clients.len() + clients.newcomers();
        if listeners.is_draining() && left == 0 && !is_closing {
            return Err("the last client of a drain has left, but it still runs".to_owned());
        }
        Ok(())
    }

    /// Invariant: The loop sleeps no longer than a trial may take or a rule is in force, and not at
    /// all once the child of a trial has ended.
    pub(crate) fn check_sleep(
        &self,
        until_ns: Option<u64>,
        newcomers: usize,
    ) -> Result<(), Violation> {
        let end_ns = self.rules.next_end_ns();
        if end_ns.is_some_and(|end_ns| until_ns.is_none_or(|until_ns| until_ns > end_ns)) {
            return Err("it sleeps past the end of a rule".to_owned());
        }
        let Some(trial) = &self.trial else { return Ok(()) };
        if until_ns.is_none_or(|until_ns| until_ns > trial.deadline_ns()) {
            return Err("it sleeps past the deadline of a trial".to_owned());
        }
        if newcomers == 0 && kernel(|k| k.children.iter().any(|child| child.has_ended)) {
            return Err("it sleeps, but a trial has ended".to_owned());
        }
        Ok(())
    }

    fn note_oversized(&mut self, seen: &[KernelEvent]) {
        let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
        for one in seen {
            if let KernelEvent::Input(peer, bytes) = one {
                let begun = self.lines.get(peer).map_or(0, Vec::len);
                *sizes.entry(*peer).or_insert(begun) += bytes.len();
            }
        }
        let too_large = sizes.into_iter().filter(|(_, size)| *size > REQUESTS_BYTES_MAX);
        self.oversized.extend(too_large.map(|(peer, _)| peer));
    }

    /// The orders among what was seen, in their order.
    ///
    /// Invariant: An order is not executed if its operator has closed the connection before it is
    /// read.
    fn parse_orders(
        &mut self,
        seen: &[KernelEvent],
        operators: impl Fn(u32) -> bool,
    ) -> Vec<OperatorOrder> {
        self.note_oversized(seen);
        let mut orders = Vec::new();
        for (n, one) in seen.iter().enumerate() {
            match one {
                KernelEvent::Signal(number) => orders.extend(order_of_signal(*number)),
                KernelEvent::Input(peer, bytes)
                    if operators(*peer) && !self.oversized.contains(peer) =>
                {
                    let lines = self.lines.entry(*peer).or_default();
                    lines.extend_from_slice(bytes);
                    if !bytes.contains(&b'\n') {
                        // Like most of a request that is too long.
                        continue;
                    }
                    if seen.get(n + 1) == Some(&KernelEvent::WasLate(*peer)) {
                        lines.clear();
                    }
                    while let Some(end) = lines.iter().position(|&b| b == b'\n') {
                        let line: Vec<u8> = lines.drain(..=end).collect();
                        let line = String::from_utf8_lossy(&line);
                        orders.extend(order_of_line(line.trim_end()));
                    }
                }
                _ => {}
            }
        }
        orders
    }
}

impl ExpectedTrial {
    fn begun(pid: Option<i32>, requests: Vec<Option<Vec<String>>>, is_disturbed: bool) -> Self {
        let inode = kernel(|k| k.path(PROGRAM).ok().map(|there| there.inode));
        ExpectedTrial {
            pid,
            requests,
            begun_ns: kernel(|k| k.now_ns),
            is_reported: false,
            inode,
            is_disturbed: is_disturbed || inode.is_none(),
            rules_read: kernel(|k| k.rules_read),
        }
    }

    /// When the trial must be over.
    ///
    /// Invariant: After 15 seconds its child is killed; the loop does not wait until the child is
    /// dead, but notices it within 100 ms.
    fn deadline_ns(&self) -> u64 {
        let seen_ns = kernel(|k| k.last_death_ns()).map(|dead_ns| dead_ns + DEATH_SEEN_NS);
        seen_ns.unwrap_or(self.begun_ns + TRIAL_NS)
    }

    /// Invariant: A hot restart happens in the turn in which its trial has ended, or in the first
    /// one after 15 seconds; if newcomers are held, once they are decided. Clients and operators that wait for reports get them from the next
    /// image.
    fn check_pending(&self, server: &Server) -> Result<(), Violation> {
        if server.parts.clients.newcomers() > 0 {
            return Ok(());
        }
        if self.is_reported {
            return Err("a trial has ended, but there was no hot restart".to_owned());
        }
        if kernel(|k| k.now_ns) < self.deadline_ns() {
            return Ok(());
        }
        Err(format!("a hot restart that began at {} ns is still under way", self.begun_ns))
    }

    /// Invariant: A hot restart is refused only if its options can't be served, or give what is open
    /// another purpose or group, or something disturbed it: a failed call, scarce descriptors, another daemon, a changed binary (but not a
    /// working directory that was replaced), or a trial that took 15 seconds.
    fn check_refused(&self, server: &Server) -> Result<(), Violation> {
        let is_late = kernel(|k| k.now_ns) >= self.begun_ns + TRIAL_NS;
        let ours = kernel(|k| k.arguments.clone());
        let may_be_refused = |request: &Option<Vec<String>>| match request {
            Some(new) => {
                let words =
                    std::iter::once("poolcounterd".into()).chain(new.iter().map(Into::into));
                let words: Vec<OsString> = words.collect();
                !can_be_served(&words, self.rules_read) || changes_purpose(&server.options, &words)
            }
            None => !can_be_served(&ours, self.rules_read),
        };
        if self.is_disturbed || is_late || self.requests.iter().any(may_be_refused) {
            return Ok(());
        }
        let program = server.options.listen.as_deref();
        Err(format!("a hot restart of {program:?} to {:?} is refused", self.requests))
    }
}

fn order_of_signal(number: i32) -> Option<OperatorOrder> {
    match number {
        libc::SIGTERM | libc::SIGINT => Some(OperatorOrder::Stop),
        libc::SIGUSR1 | libc::SIGHUP => Some(OperatorOrder::RestartBySignal),
        libc::SIGUSR2 => Some(OperatorOrder::Toggle),
        libc::SIGQUIT => Some(OperatorOrder::Drain),
        _ => None,
    }
}

fn order_of_line(line: &str) -> Option<OperatorOrder> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let host = |host: &str| FreeTarget::Host(host.to_owned());
    match (word, rest) {
        ("DRAIN", "") => Some(OperatorOrder::Drain),
        ("UNDRAIN", "") => Some(OperatorOrder::Undrain),
        ("RESTART", "") => Some(OperatorOrder::Restart(None)),
        ("RESTART", list) => Some(OperatorOrder::Restart(Some(serde_json::from_str(list).ok()?))),
        ("LOG", "info" | "poolcounterd=debug") => Some(OperatorOrder::Log(rest.to_owned())),
        ("FREE", "KEY k1 99") => Some(OperatorOrder::Free(FreeTarget::Key(b"k1".to_vec()))),
        ("FREE", "HOST 10.9.0.1 999") => Some(OperatorOrder::Free(host("10.9.0.1"))),
        ("FREE", "#3") => Some(OperatorOrder::Free(FreeTarget::Connection(3))),
        ("FREE", "--json #2") => Some(OperatorOrder::Free(FreeTarget::Connection(2))),
        ("RULE", "SET other k1 deny" | "SET bots k2 deny deny") => None,
        ("RULE", line) => expected_rules::parse(line).map(OperatorOrder::Rule),
        _ => None,
    }
}

/// Whether a daemon can be started with this command line and these rules.
fn can_be_served(words: &[OsString], rules: Option<&str>) -> bool {
    let Ok(Task::Serve(options)) = Task::from_words(words) else { return false };
    if options.rules.is_some() && !expected_rules::is_valid(rules) {
        return false;
    }
    let groups = [None, Some("7"), Some("operators")];
    let is_for_clients = |http: &SocketAddr| {
        let has_it = |ip: &str| ["0.0.0.0", "::", &http.ip().to_string()].contains(&ip);
        let mut clients = options.listen.iter().flat_map(|list| list.split(','));
        http.port() == options.port && clients.any(has_it)
    };
    let is_mixed = options.http.iter().any(is_for_clients);
    groups.contains(&options.control_group.as_deref()) && !is_mixed
}

/// Whether these words ask for an address that is open for another purpose, or for another group of
/// the control socket.
fn changes_purpose(ours: &Options, words: &[OsString]) -> bool {
    let Ok(Task::Serve(new)) = Task::from_words(words) else { return false };
    let paths = [ours, &new].map(|options| options.control.as_deref().map(normalized));
    let is_http = |one: &Options, port| one.http.iter().any(|http| http.port() == port);
    paths[0].is_some() && paths[0] == paths[1] && ours.control_group != new.control_group
        || is_http(ours, new.port)
        || is_http(&new, ours.port)
}

/// Something is scarce, failed, or belongs to another daemon.
fn is_disturbed() -> bool {
    kernel(|k| {
        let is_scarce = k.descriptors_max < 20_000;
        is_scarce || !k.calls.failures.is_empty() || k.has_foreigners()
    })
}
