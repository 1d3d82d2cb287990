//! Plays a script: the world around the daemon, step by step, and its own turns.

use super::environment::change_environment;
use crate::Server;
use crate::clients::connection::{Connection, ConnectionStage};
use crate::listening::listener::Listener;
use crate::restart::parts::Parts;
use crate::serving::event_loop::EVENTS_PER_TURN;
use crate::simulation::clients::connections::{ConnectionEvents, Connections};
use crate::simulation::clients::oracle::{ClientConversation, Oracle};
use crate::simulation::clients::shares::{TurnStart, WaitForShare};
use crate::simulation::invariants;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::KernelEvent;
use crate::simulation::kernel::draws::Choices;
use crate::simulation::kernel::listening::{ConnectResult, RetryingPeer};
use crate::simulation::kernel::processes::{Asleep, Executed};
use crate::simulation::kernel::sockets::{LocalAddress, PeerEnding, Segment};
use crate::simulation::kernel::{CallKind, boot, kernel};
use crate::simulation::log::LogHistory;
use crate::simulation::operator::control_socket::OperatorSessions;
use crate::simulation::operator::orders::Orders;
use crate::simulation::os::mio::Events;
use crate::simulation::reports::http::{HTTP, HttpClients};
use crate::simulation::scripts::steps::{CONTROL, Say, Script, Step, too_long_request};
use engine::KeyWork;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Clients' places come first, then operators'.
pub(crate) const OPERATORS: usize = 100;
const CROWD: usize = 1000;
/// Behind them in the crowd are clients that keep trying to connect.
const INSISTENT: usize = 500;

/// The daemon and its environment.
pub(crate) struct Play {
    pub(crate) server: Option<Server>,
    pub(crate) oracle: Oracle,
    /// The peer in each place.
    places: BTreeMap<usize, u32>,
    last_peer: u32,
    /// `None` while the loop is busy.
    pub(crate) asleep: Option<Asleep>,
    /// Consecutive turns in which nothing was done.
    pub(crate) idle_turns: usize,
    /// Clients with input, by peer.
    pub(crate) waits_for_share: BTreeMap<u32, WaitForShare>,
    pub(crate) last_turn_ns: u64,
    /// The highest number of places for connections so far.
    pub(crate) places_max: usize,
    /// Since when memory could be returned to the system.
    pub(crate) spare_since_ns: Option<u64>,
    /// When memory was returned to it.
    pub(crate) returned_ns: Option<u64>,
    pub(crate) turns: usize,
    /// What the last turn has done for keys.
    pub(crate) key_work: KeyWork,
    pub(crate) restarts: usize,
    pub(crate) orders: Orders,
    pub(crate) connections: Connections,
    pub(crate) operators: OperatorSessions,
    pub(crate) http_clients: HttpClients,
    /// The command line of the image that runs.
    pub(crate) arguments: Vec<OsString>,
    pub(crate) logs: bool,
    log: LogHistory,
}

impl Script {
    /// Plays the script and what comes to rest after it.
    ///
    /// # Errors
    /// The first violated invariant, and the step.
    pub(crate) fn play(&self) -> Result<Play, Violation> {
        let mut play = Play::start(self).map_err(|why| format!("at the start: {why}"))?;
        for (n, step) in self.steps.iter().enumerate() {
            if play.server.is_none() {
                break;
            }
            play.perform(step).map_err(|why| format!("step {n}, {step:?}: {why}"))?;
        }
        play.reach_quiescence(self.has_seeds()).map_err(|why| format!("at rest: {why}"))?;
        Ok(play)
    }
}

impl Play {
    fn start(script: &Script) -> Result<Self, Violation> {
        boot(1);
        let log = if script.logs { "debug" } else { "off" };
        let words = ["poolcounterd", "--log", log].into_iter().chain(script.arguments.split(' '));
        let arguments: Vec<OsString> = words.map(OsString::from).collect();
        kernel(|k| {
            k.arguments = arguments;
            k.start_as(script.start);
        });
        let mut play = Play {
            server: None,
            oracle: Oracle::new(),
            places: BTreeMap::new(),
            last_peer: 0,
            asleep: None,
            idle_turns: 0,
            waits_for_share: BTreeMap::new(),
            last_turn_ns: 0,
            places_max: 0,
            spare_since_ns: None,
            returned_ns: None,
            turns: 0,
            key_work: KeyWork::default(),
            restarts: 0,
            orders: Orders::default(),
            connections: Connections::default(),
            operators: OperatorSessions::default(),
            http_clients: HttpClients::default(),
            arguments: Vec::new(),
            logs: script.logs,
            log: LogHistory::default(),
        };
        play.start_image()?;
        Ok(play)
    }

    fn perform(&mut self, step: &Step) -> Result<(), Violation> {
        match *step {
            Step::Connect { place, to, room } => self.connect(place.into(), to, room),
            Step::Say { place, what, cut } => self.send_input(place.into(), what, cut),
            Step::Arrive { place } => {
                self.with_peer(place, |peer| {
                    kernel(|k| {
                        k.arrive(peer);
                    })
                });
            }
            Step::ArriveAll => self.deliver_all(),
            Step::Read { place, max } => self.read(place.into(), max)?,
            Step::End { place } => self.send(place.into(), Segment::End, false),
            Step::Close { place } => self.send(place.into(), Segment::End, true),
            Step::Reset { place } => self.send(place.into(), Segment::Reset, true),
            Step::Urgent { place } => self.send(place.into(), Segment::Urgent, false),
            Step::Vanish { place } => self.with_peer(place, |peer| kernel(|k| k.vanish(peer))),
            Step::Advance { ms } => kernel(|k| k.advance(ms * 1_000_000)),
            Step::AdvanceToDeadline => self.advance_to_deadline(),
            Step::Turn { choices, arrives, fails } => self.run_turn(choices, arrives, fails)?,
            Step::Signal(number) => {
                self.operators.may_miss_answers |= [libc::SIGUSR1, libc::SIGHUP].contains(&number);
                kernel(|k| k.signal(number));
            }
            Step::Ask { place, line } => {
                self.send_request(place, line, Segment::Data(format!("{line}\n").into_bytes()));
            }
            Step::AskPassing { place, line } => {
                self.send_request(place, line, Segment::Passed(format!("{line}\n").into_bytes()));
            }
            Step::AskTooLong { place } => {
                self.send_request(place, "", Segment::Data(too_long_request()));
                let place = OPERATORS + place as usize;
                self.places
                    .get(&place)
                    .iter()
                    .for_each(|peer| self.operators.note_oversized(**peer));
            }
            Step::OperatorEnds { place } => {
                let place = OPERATORS + place as usize;
                self.places.get(&place).iter().for_each(|peer| self.operators.note_ended(**peer));
                self.send(place, Segment::End, false);
            }
            Step::OperatorLeaves { place } => {
                let place = OPERATORS + place as usize;
                self.places.get(&place).iter().for_each(|peer| self.operators.note_left(**peer));
                self.send(place, Segment::End, true);
            }
            Step::TrialEnds => kernel(|k| k.end_children()),
            Step::ManagerReads(reads) => kernel(|k| k.notify.set_reading(reads)),
            Step::LogReads(reads) => kernel(|k| k.log.set_reading(reads)),
            Step::Crowd { clients } => {
                (0..clients).for_each(|n| self.connect(CROWD + n, "10.0.0.1:7531", (99, 99)));
            }
            Step::Insist { clients, to } => {
                let places = CROWD + INSISTENT..CROWD + INSISTENT + clients;
                places.for_each(|place| self.connect_or_retry(place, to, (99, 99), true));
            }
            Step::CrowdAsks => {
                let places: Vec<usize> = self.places.range(CROWD..).map(|(&n, _)| n).collect();
                for place in places {
                    let line = format!("ACQ4ME c{place} 1 1 1\n");
                    self.send(place, Segment::Data(line.into_bytes()), false);
                }
            }
            Step::CrowdHolds => {
                let places: Vec<usize> = self.places.range(CROWD..).map(|(&n, _)| n).collect();
                for place in places {
                    let own =
                        ["a", "b", "c"].map(|which| format!("ACQ4ME c{place}{which} 1 1 1\n"));
                    let word = if place % 3 == 0 { "ACQ4ANY" } else { "ACQ4ME" };
                    let shared = format!("{word} s{} 2 99 20\n", place % 7);
                    self.send(place, Segment::Data((own.concat() + &shared).into_bytes()), false);
                }
            }
            Step::CrowdLeaves => {
                kernel(|k| k.retrying.clear());
                self.places.range(CROWD..).for_each(|(_, &p)| kernel(|k| k.leave(p, Segment::End)));
                self.places.retain(|&place, _| place < CROWD);
            }
            _ => change_environment(step),
        }
        Ok(())
    }

    fn with_peer(&mut self, place: u8, act: impl FnOnce(u32)) {
        if let Some(&peer) = self.places.get(&place.into()) {
            act(peer);
        }
    }

    fn connect(&mut self, place: usize, to: &'static str, room: (usize, usize)) {
        self.connect_or_retry(place, to, room, false);
    }

    /// Connects, now or as soon as there is room.
    fn connect_or_retry(
        &mut self,
        place: usize,
        to: &'static str,
        room: (usize, usize),
        retries: bool,
    ) {
        if let Some(peer) = self.places.remove(&place) {
            self.operators.note_replaced(peer);
            kernel(|k| k.leave(peer, Segment::End));
        }
        let local = match to.parse::<SocketAddr>() {
            Ok(address) => LocalAddress::Tcp(address),
            Err(_) => LocalAddress::Path(to.to_owned()),
        };
        self.last_peer += 1;
        let peer = self.last_peer;
        // Some hosts are outside of the network that --allow names.
        let host = 1 + (place % 3) as u8;
        let net = if place % 4 == 3 { 8 } else { 9 };
        let port = 1000 + peer as u16;
        let from = match local {
            LocalAddress::Tcp(SocketAddr::V6(_)) => {
                SocketAddr::from(([0xfd00, net.into(), 0, 0, 0, 0, 0, host.into()], port))
            }
            _ => SocketAddr::from(([10, net, 0, host], port)),
        };
        let has_come = kernel(|k| {
            if retries {
                k.retrying.push_back(RetryingPeer { peer, to: local, from, room });
                true
            } else {
                k.connect(peer, &local, from, room) == ConnectResult::Yes
            }
        });
        if has_come {
            self.places.insert(place, peer);
            if to == HTTP {
                self.http_clients.connect(peer, from.ip());
            } else if !(OPERATORS..CROWD).contains(&place) {
                self.oracle.conversations.insert(peer, ClientConversation::new(self.keepalive_s()));
            }
        }
    }

    /// Those that come from a passed socket have the options with which they are accepted, if they
    /// had not been set before; unknown where a hot restart has just changed them.
    fn note_options_of_passed(&mut self, accepted: &[u32], was_executed: bool) {
        let Some(server) = &self.server else { return };
        let listeners = &server.parts.listeners;
        let is_passed = listeners.all.iter().any(Listener::is_inherited);
        let was_passed = !listeners.state(&[]).lost.is_empty();
        if !is_passed && !was_passed {
            return;
        }
        let keepalive_s = if was_executed || was_passed { 0 } else { self.keepalive_s() };
        for peer in accepted {
            // The kernel of the simulation begins to probe when a host vanishes.
            let has_vanished = kernel(|k| k.peers.get(peer).is_some_and(|it| it.is_given_up));
            if let Some(conversation) = self.oracle.conversations.get_mut(peer) {
                conversation.keepalive_s = if has_vanished { 0 } else { keepalive_s };
            }
        }
    }

    /// The `--keepalive` of new connections; 0 if unknown, because it could not be set.
    fn keepalive_s(&self) -> u32 {
        match &self.server {
            Some(server) if !kernel(|k| k.ever_failed.contains(&CallKind::SetOption)) => {
                server.options.keepalive_s
            }
            _ => 0,
        }
    }

    fn send_input(&mut self, place: usize, what: Say, cut: u8) {
        let bytes = what.bytes();
        let at = if cut == 0 { bytes.len() } else { 1 + cut as usize % bytes.len() };
        for piece in [&bytes[..at.min(bytes.len())], &bytes[at.min(bytes.len())..]] {
            if !piece.is_empty() {
                self.send(place, Segment::Data(piece.to_vec()), false);
            }
        }
    }

    fn send(&mut self, place: usize, segment: Segment, leaves: bool) {
        if let Some(&peer) = self.places.get(&place) {
            if leaves {
                self.places.remove(&place);
                kernel(|k| k.leave(peer, segment));
            } else {
                kernel(|k| k.post(peer, segment));
            }
        }
    }

    /// Sends an operator's request; the operator connects first if necessary.
    fn send_request(&mut self, place: u8, line: &str, request: Segment) {
        let place = OPERATORS + place as usize;
        if !self.places.get(&place).is_some_and(|&peer| self.operators.can_ask(peer)) {
            self.connect(place, CONTROL, (100_000, room_of_operator(self.last_peer + 1)));
        }
        self.send(place, request, false);
        if let Some(&peer) = self.places.get(&place) {
            self.operators.note_asked(peer, line);
        }
    }

    pub(crate) fn deliver_all(&mut self) {
        let peers: Vec<u32> = kernel(|k| k.connected().collect());
        for peer in peers {
            while kernel(|k| k.arrive(peer)) {}
        }
    }

    fn read(&mut self, place: usize, max: usize) -> Result<(), Violation> {
        let Some(&peer) = self.places.get(&place) else {
            return Ok(());
        };
        self.read_peer(peer, max).map(drop)
    }

    /// Returns whether there was something to read.
    pub(crate) fn read_peer(&mut self, peer: u32, max: usize) -> Result<bool, Violation> {
        let bytes = kernel(|k| k.read_as_peer(peer, max)).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(false);
        }
        // The control socket answers something else.
        let is_client = self.oracle.peers.values().any(|&one| one == peer);
        let moments = &self.oracle.moments;
        self.operators.read(peer, &bytes, moments)?;
        self.http_clients.read(peer, &bytes, moments)?;
        let conversation = self.oracle.conversations.get_mut(&peer);
        if let Some(conversation) = conversation.filter(|_| is_client) {
            conversation.read(&bytes, moments).map_err(|why| format!("client {peer}: {why}"))?;
        }
        Ok(true)
    }

    pub(crate) fn advance_to_deadline(&mut self) {
        if let Some(Asleep { until_ns: Some(until_ns) }) = self.asleep {
            kernel(|k| k.advance(until_ns.saturating_sub(k.now_ns)));
        }
    }

    /// One turn of the daemon's loop.
    pub(crate) fn run_turn(
        &mut self,
        choices: Choices,
        arrives: bool,
        fails: bool,
    ) -> Result<(), Violation> {
        kernel(|k| k.begin_turn(choices, arrives, fails));
        let before = TurnStart::of(self);
        self.connections.note_left(before.left());
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let work_before = server.parts.engine.key_work();
        let turned = catch_unwind(AssertUnwindSafe(|| server.turn(&mut events)));
        let work = server.parts.engine.key_work();
        self.key_work = KeyWork {
            visited: work.visited - work_before.visited,
            matched_bytes: work.matched_bytes - work_before.matched_bytes,
        };
        self.server = Some(server);
        let has_executed = turned.as_ref().is_err_and(|left| left.is::<Executed>());
        if !has_executed {
            kernel(|k| k.end_turn());
        }
        self.operators.may_miss_answers |= kernel(|k| k.has_failed(CallKind::Send));
        let end = match turned {
            Ok(ended) => ended,
            Err(left) => match left.downcast::<Asleep>() {
                Ok(asleep) => return invariants::check_sleep(self, *asleep),
                Err(left) if left.is::<Executed>() => return self.exec(),
                Err(panic) => return Err(format!("it panics: {}", panic_text(&*panic))),
            },
        };
        self.turns += 1;
        self.asleep = None;
        let seen = self.follow_calls()?;
        let server = self.server.as_ref().expect("it runs");
        let is_operator = |peer| !self.connections.was_client(peer);
        self.orders.has_requester_left = self.operators.has_requester_left();
        self.orders.check_turn(&seen, is_operator, server)?;
        let freed = self.oracle.freed_counts();
        self.oracle.check_freed(std::mem::take(&mut self.orders.freed))?;
        let figures = &mut self.oracle.moments.figures;
        figures.note_refused(self.orders.restarts_refused);
        figures.note_draining(server.parts.listeners.is_draining());
        self.operators.check_failed(&seen, is_operator)?;
        self.operators.note_clients(&seen, server.parts.clients.len(), &freed);
        self.http_clients.check_new_clients(&seen, &server.options)?;
        invariants::check_turn(self, &before)?;
        match end {
            Some(end) => self.end(end),
            None => {
                let server = self.server.as_ref().expect("it runs");
                self.log.check_drain_interval(server.parts.clients.len())?;
                self.orders.check_still_running(server)
            }
        }
    }

    /// Compares the calls of the engine with the clients' lines, and its answers with the model.
    pub(super) fn follow_calls(&mut self) -> Result<Vec<KernelEvent>, Violation> {
        let server = self.server.as_mut().expect("it runs");
        let mut new_clients = Vec::new();
        let mut present = Vec::new();
        for (client, connection) in server.parts.clients.iter() {
            present.push(client.serial);
            let Oracle { peers, moments, .. } = &mut self.oracle;
            peers.entry(client).or_insert_with(|| {
                let peer = kernel(|k| k.peer_behind(connection.stream.socket()));
                new_clients.push(peer);
                moments.addresses.note(client, peer, kernel(|k| k.address_and_port_of(peer)));
                peer
            });
        }
        self.oracle.moments.note_connected(present);
        self.oracle.begin_turn(
            self.http_clients.any_awaits_report() || self.operators.any_awaits_report(),
        );
        let Oracle { conversations, moments, model, .. } = &mut self.oracle;
        for (peer, bytes) in kernel(|k| std::mem::take(&mut k.calls.bytes)) {
            if let Some(conversation) = conversations.get_mut(&peer) {
                conversation.receive(&bytes, moments);
            }
            self.operators.receive(peer, &bytes, moments);
            self.http_clients.receive(peer, &bytes, moments);
        }
        moments.note_locks(model);
        let asked = std::mem::take(&mut server.parts.engine.asked);
        let options = server.options.clone();
        self.log.begin_turn(&self.oracle);
        self.oracle.replay_calls(
            &asked,
            self.http_clients.any_awaits_report() || self.operators.any_awaits_report(),
        )?;
        for (client, connection) in server.parts.clients.iter() {
            self.oracle.check_all_handled(client, connection.lines.unhandled())?;
        }
        if self.logs {
            let Parts { listeners, clients, engine, .. } = &server.parts;
            let restarts = &engine.measures.restarts;
            let draining = listeners.is_draining().then(|| clients.len());
            let lost = engine.counters.lost_connections;
            self.log.note_lost(lost, clients.has_work(), &self.oracle);
            self.log.check_turn(&self.oracle, restarts.done + restarts.refused, draining)?;
        }
        let seen = kernel(|k| std::mem::take(&mut k.calls.seen));
        let gone = self.oracle.disconnected(&asked);
        self.connections.freed_new_clients = self.oracle.freed_new_clients();
        let freed = self.oracle.freed_peers();
        let is_finishing = |it: &Connection| it.stage == ConnectionStage::Finishing;
        let finishing =
            server.parts.clients.iter().filter(|(_, connection)| is_finishing(connection));
        let finishing: Vec<u32> = finishing
            .map(|(_, connection)| kernel(|k| k.peer_behind(connection.stream.socket())))
            .collect();
        let events_of_connections = ConnectionEvents {
            seen: &seen,
            new_clients: &new_clients,
            gone: &gone,
            freed: &freed,
            finishing: &finishing,
        };
        self.connections.check_events(&events_of_connections, &options)?;
        self.note_options_of_passed(&new_clients, seen.contains(&KernelEvent::Executed));
        Ok(seen)
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        drop(self.server.take());
    }
}

/// How much an operator's end takes unread: of some less than an answer.
fn room_of_operator(peer: u32) -> usize {
    match peer % 4 {
        3 => 300,
        2 => 2_000,
        _ => 100_000,
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("?")
}

/// Whether a peer's connection ended so that it may have lost something.
pub(crate) fn was_reset(peer: u32) -> bool {
    kernel(|k| {
        k.peers.get(&peer).is_none_or(|peer| {
            let is_unsent = peer.was_not_sent && peer.ending.is_some();
            peer.ending == Some(PeerEnding::Reset) || peer.is_given_up || is_unsent
        })
    })
}
