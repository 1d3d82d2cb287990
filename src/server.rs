//! The loop: sockets, signals and the clock around the engine. Decides nothing
//! about locks.
//!
//! One turn: wait → accept → receive from all who are ready → handle that → run
//! out waits → flush what is owed → close what is dead → signals last, so that
//! whatever an operator asks for happens between turns.

mod acceptor;
mod admission;
mod check;
mod clock;
mod connection;
mod control;
mod input;
mod listener;
mod logging;
mod operator;
mod options;
pub mod reports;
mod restart;
mod resume;
mod service_manager;
pub mod snapshot;
mod sys;
mod tidier;
mod unix_socket;

use crate::engine::{ClientId, Engine, Time};
use crate::protocol::lines::Line;
use crate::protocol::{Command, Reply};
use acceptor::Acceptor;
use admission::Admission;
pub use check::check;
use connection::{Connection, Flushed, Life};
pub use control::{
    DEFAULT_PATH as DEFAULT_CONTROL_PATH, Request as ControlRequest,
    parse as parse_control_request, reload,
};
use input::Input;
pub use listener::ListenError;
use listener::{Listener, Settings};
use log::{debug, error, info, warn};
use logging::RateLimit;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use operator::Operator;
pub use options::{Options, PORT, arguments_after_reload};
pub use restart::read_trial_snapshot;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use service_manager::ServiceManager;
use slab::Slab;
use std::borrow::Cow;
use std::fmt;
use std::hash::RandomState;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use tidier::Tidier;

/// Connections have their slot as token; all others are above any slot
/// ([`crate::engine::image::SLOTS_MAX`]).
const FIRST_LISTENER: usize = 1 << 24;
const FIRST_CONTROL: usize = 1 << 25;
const SIGNALS: Token = Token(1 << 26);
const CONTROL_LISTENER: Token = Token(SIGNALS.0 + 1);
const TRIAL: Token = Token(SIGNALS.0 + 2);

const VERSION: &str = env!("CARGO_PKG_VERSION");

const EVENTS_PER_TURN: usize = 1024;

/// The daemon: one thread, one event loop.
pub struct Server {
    options: Options,
    poll: Poll,
    operator: Operator,
    acceptor: Acceptor,
    admission: Admission,
    connections: Slab<Connection>,
    last_serial: u32,
    engine: Engine,
    service_manager: ServiceManager,
    input: Input,
    /// Clients whose output is to be flushed this turn.
    owed: Vec<ClientId>,
    /// Clients that had their share of this turn and may have more to read.
    unfinished: Vec<ClientId>,
    /// Connections to close at the end of the turn.
    dead: Vec<ClientId>,
    tidier: Tidier,
    cut_off_log: RateLimit,
    poll_log: RateLimit,
    watch_log: RateLimit,
}

/// Why the daemon could not start.
#[derive(Debug)]
pub enum StartError {
    /// There is nothing to listen on.
    Listen(ListenError),
    /// The control socket can't be had.
    Control(String, io::Error),
    /// The kernel refuses something without which there is no serving.
    System(io::Error),
}

impl From<ListenError> for StartError {
    fn from(e: ListenError) -> Self {
        StartError::Listen(e)
    }
}

impl From<io::Error> for StartError {
    fn from(e: io::Error) -> Self {
        StartError::System(e)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(e) => e.fmt(f),
            StartError::Control(path, e) => write!(f, "Can't open the control socket {path}: {e}"),
            StartError::System(e) => write!(f, "Can't start: {e}"),
        }
    }
}

/// Starts logging. Before anything else, once.
pub fn start_logging(options: &Options) {
    logging::start(options.log.as_deref());
}

impl Server {
    /// Opens the sockets and gets ready to serve them.
    ///
    /// # Errors
    /// Why it can't listen, or what the kernel refuses to give.
    pub fn start(options: Options) -> Result<Self, StartError> {
        for word in &options.ignored {
            warn!("ignored: {word:?} on the command line is no option");
        }
        let signals = sys::take_over_signals()?;
        raise_descriptor_limit();
        let operator = Operator::new(signals)?;
        match restart::inherited_snapshot()? {
            Some(snapshot) => Self::resume(options, operator, snapshot),
            None => Self::start_empty(options, operator),
        }
    }

    fn start_empty(options: Options, mut operator: Operator) -> Result<Self, StartError> {
        let listeners =
            listener::open(options.listen.as_deref(), options.port, &Settings::new(&options))?;
        operator.open_control(&options)?;
        let engine = Engine::new(RandomState::new(), clock::now());
        let poll = Poll::new()?;
        let server =
            Self::assemble(options, poll, operator, listeners, Slab::new(), engine, false)?;
        info!("poolcounterd {VERSION} listening on {}", server.acceptor.names());
        server.service_manager.ready();
        Ok(server)
    }

    /// Puts the parts together and watches all of them but the connections, which
    /// `poll` has to watch already.
    fn assemble(
        options: Options,
        poll: Poll,
        operator: Operator,
        listeners: Vec<Listener>,
        connections: Slab<Connection>,
        mut engine: Engine,
        draining: bool,
    ) -> io::Result<Self> {
        for (n, listener) in listeners.iter().enumerate() {
            watch(poll.registry(), &listener.socket, Token(FIRST_LISTENER + n))?;
        }
        operator.watch(poll.registry())?;
        let mut admission = Admission::new(&options);
        for (slot, connection) in &connections {
            admission.note_opened(slot, &connection.socket);
        }
        engine.set_hold_limits(options.max_hold.clone());
        let open = connections.len();
        Ok(Server {
            options,
            admission,
            poll,
            operator,
            acceptor: Acceptor::new(listeners, draining, open),
            connections,
            last_serial: 0,
            engine,
            service_manager: ServiceManager::find(),
            input: Input::new(),
            owed: Vec::new(),
            unfinished: Vec::new(),
            dead: Vec::new(),
            tidier: Tidier::default(),
            cut_off_log: RateLimit::default(),
            poll_log: RateLimit::default(),
            watch_log: RateLimit::default(),
        })
    }

    /// Serves until told to stop.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        while !self.operator.stopping {
            self.turn(&mut events);
        }
        self.service_manager.stopping();
        self.operator.stop();
        self.acceptor.remove_paths();
    }

    fn turn(&mut self, events: &mut Events) {
        self.wait(events);
        self.accept(events);
        for client in std::mem::take(&mut self.unfinished) {
            self.receive(client);
        }
        for event in events.iter() {
            self.handle_event(event);
        }
        let now = self.handle_received();
        self.engine.expire(now);
        self.log_expired();
        self.end_turn();
        self.tidy(now);
        self.service_manager.keep_informed(self.connections.len(), &self.engine, now);
        self.serve_operator(events, now);
    }

    /// Nothing that anybody has to be told is left for when the loop wakes again.
    fn end_turn(&mut self) {
        self.deliver_answers();
        self.flush_owed();
        self.close_dead();
    }

    /// Waits for something to do.
    fn wait(&mut self, events: &mut Events) {
        let timeout = self.time_until_next_work();
        let Err(e) = self.poll.poll(events, timeout) else {
            return;
        };
        // Those of the last turn may still be there.
        events.clear();
        if e.kind() != io::ErrorKind::Interrupted {
            if let Some(suppressed) = self.poll_log.admit() {
                error!("waiting for events failed: {e}{suppressed}");
            }
            // Nothing documented leads here; whatever it is, don't spin.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn time_until_next_work(&self) -> Option<Duration> {
        if !self.unfinished.is_empty() || self.acceptor.has_work() {
            return Some(Duration::ZERO);
        }
        let deadlines = [
            self.engine.next_deadline(),
            self.service_manager.next_deadline(),
            self.acceptor.next_deadline(),
            self.next_operator_deadline(),
            self.tidier.next_deadline(),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_nanos(next.ns_since(clock::now())))
    }

    fn accept(&mut self, events: &Events) {
        for event in events.iter() {
            if (FIRST_LISTENER..FIRST_CONTROL).contains(&event.token().0) {
                self.acceptor.note_ready(event.token().0 - FIRST_LISTENER);
            }
        }
        self.acceptor.start_turn();
        self.accept_batch();
    }

    fn accept_batch(&mut self) {
        while let Some(socket) =
            self.acceptor.next(self.connections.len(), &mut self.engine.counters)
        {
            self.admit(socket);
        }
    }

    /// Serves a newcomer, or closes the connection.
    fn admit(&mut self, socket: OwnedFd) {
        let open = self.connections.len();
        if self.admission.admits(&socket, open, &mut self.engine.counters) {
            self.add_connection(socket);
        }
    }

    fn add_connection(&mut self, socket: OwnedFd) {
        let entry = self.connections.vacant_entry();
        let token = Token(entry.key());
        let fd = socket.as_raw_fd();
        let registry = self.poll.registry();
        if let Err(e) = registry.register(&mut SourceFd(&fd), token, Interest::READABLE) {
            self.engine.counters.connect_errors += 1;
            if let Some(suppressed) = self.watch_log.admit() {
                error!("a connection could not be watched and is closed: {e}{suppressed}");
            }
            return;
        }
        self.admission.note_opened(entry.key(), &socket);
        self.last_serial = self.last_serial.wrapping_add(1);
        debug!("#{} connected: {}", self.last_serial, listener::peer_of(&socket));
        entry.insert(Connection::new(socket, self.last_serial));
    }

    fn handle_event(&mut self, event: &Event) {
        // Tokens of listeners and signals are no slots.
        let Some(connection) = self.connections.get_mut(event.token().0) else {
            return;
        };
        let client = ClientId { slot: event.token().0 as u32, serial: connection.serial };
        connection.peer_closed |= event.is_read_closed() || event.is_error();
        if event.is_writable() && !connection.owes_nothing() && !connection.is_owed {
            connection.is_owed = true;
            self.owed.push(client);
        }
        // Whoever was unfinished has had its share of this turn.
        if (event.is_readable() || connection.peer_closed) && !connection.is_unfinished {
            self.receive(client);
        }
    }

    /// The connection of `client`, unless it is on its way out.
    fn open_connection(&mut self, client: ClientId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(client.slot as usize)?;
        let is_it = connection.serial == client.serial && connection.life == Life::Open;
        is_it.then_some(connection)
    }

    /// `client` may have sent more than was received: its next turn comes at once.
    fn note_unfinished(&mut self, client: ClientId) {
        if let Some(connection) = self.open_connection(client) {
            if !std::mem::replace(&mut connection.is_unfinished, true) {
                self.unfinished.push(client);
            }
        }
    }

    /// Receives one share of what `client` has sent.
    fn receive(&mut self, client: ClientId) {
        if self.input.is_full() {
            self.handle_received();
        }
        if self.open_connection(client).is_some() {
            self.input.receive(client, &self.connections[client.slot as usize]);
        }
    }

    /// Handles what was received, all of it as of the time that is returned. That
    /// is after it was sent: nobody's wait ends early.
    fn handle_received(&mut self) -> Time {
        let now = clock::now();
        // Taken out for the while: handling input needs the rest of the server.
        let mut input = std::mem::take(&mut self.input);
        for (client, received) in input.iter() {
            self.handle_input(client, received, now);
        }
        input.clear();
        self.input = input;
        now
    }

    fn handle_input(&mut self, client: ClientId, received: Result<&[u8], Errno>, now: Time) {
        let Some(connection) = self.open_connection(client) else {
            return;
        };
        connection.is_unfinished = false;
        let peer_closed = connection.peer_closed;
        match received {
            Ok([]) => self.finish(client, now),
            Ok(mut bytes) => {
                // A read that did not fill its share has drained the socket, and
                // the next byte makes a new event (epoll(7)). But data and the
                // end of input may have shared one event.
                if bytes.len() == input::SHARE_BYTES || peer_closed {
                    self.note_unfinished(client);
                }
                while self.handle_next_line(client, &mut bytes, now) {}
            }
            Err(Errno::AGAIN) => {}
            Err(e) => {
                debug!("#{} lost: {e}", client.serial);
                self.disconnect(client);
            }
        }
    }

    /// Handles the next line of `input`. False when there is none.
    fn handle_next_line(&mut self, client: ClientId, input: &mut &[u8], now: Time) -> bool {
        // Not open_connection(): the line stays borrowed while the engine works.
        let Some(connection) = self.connections.get_mut(client.slot as usize) else {
            return false;
        };
        if connection.life != Life::Open {
            return false;
        }
        let reply = match connection.lines.next_line(input) {
            None => return false,
            Some(Line::TooLong) => Some(Reply::LineTooLong),
            Some(Line::Complete(line)) => {
                debug!("#{} > {}", client.serial, line.escape_ascii());
                match Command::parse(line) {
                    Command::Acquire(request) => {
                        self.engine.acquire(client, &request, now);
                        None
                    }
                    Command::Release => {
                        self.engine.release(client, now);
                        None
                    }
                    Command::Stats(what) => match reports::stats(what, &self.engine, now) {
                        Some(text) => {
                            self.owe(client, text.into());
                            None
                        }
                        None => Some(Reply::WrongStat),
                    },
                    Command::Unknown => Some(Reply::BadCommand),
                }
            }
        };
        if let Some(reply) = reply {
            self.reply(client, reply);
        }
        self.deliver_answers();
        true
    }

    /// A lock that was taken away is worth a look: its holder hangs, or the limit
    /// is too low.
    fn log_expired(&mut self) {
        for lock in self.engine.take_expired() {
            let connection = self.connections.get(lock.client.slot as usize);
            let peer = connection.map(|connection| listener::peer_of(&connection.socket));
            warn!(
                "--max-hold: lock on {} taken away from {} after {} s",
                lock.key.escape_ascii(),
                peer.unwrap_or_default(),
                lock.held_ns / 1_000_000_000,
            );
        }
    }

    /// Passes on what the engine has to say.
    fn deliver_answers(&mut self) {
        while let Some((client, reply)) = self.engine.take_answer() {
            self.reply(client, reply);
        }
    }

    fn reply(&mut self, client: ClientId, reply: Reply) {
        debug!("#{} < {}", client.serial, reply.as_bytes().trim_ascii_end().escape_ascii());
        self.owe(client, reply.as_bytes().into());
    }

    /// Appends to what `client` will be sent at the end of the turn.
    fn owe(&mut self, client: ClientId, bytes: Cow<'static, [u8]>) {
        let Some(connection) = self.open_connection(client) else {
            return;
        };
        connection.owe(bytes);
        let owes_too_much = connection.owes_too_much();
        if !std::mem::replace(&mut connection.is_owed, true) {
            self.owed.push(client);
        }
        if owes_too_much {
            self.flush(client);
        }
    }

    fn flush_owed(&mut self) {
        // Whoever is cut off meanwhile may leave locks to others, who are owed
        // an answer then: the list may grow.
        let mut n = 0;
        while let Some(&client) = self.owed.get(n) {
            n += 1;
            self.flush(client);
            self.deliver_answers();
        }
        self.owed.clear();
    }

    /// Sends what `client` is owed.
    fn flush(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get_mut(client.slot as usize) else {
            return;
        };
        if connection.serial != client.serial || connection.life == Life::Dead {
            return;
        }
        let finishing = connection.life == Life::Finishing;
        match connection.flush() {
            Flushed::All if finishing => self.bury(client),
            Flushed::All => {}
            Flushed::Stuck if connection.owes_too_much() => self.cut_off(client),
            Flushed::Stuck => self.watch_writable(client),
            Flushed::Failed(e) => {
                debug!("#{} sending failed: {e}", client.serial);
                self.engine.counters.failed_sends += 1;
                match e {
                    _ if finishing => self.bury(client),
                    // The end shows at the next read, after what it sent before.
                    Errno::PIPE | Errno::CONNRESET => self.note_unfinished(client),
                    // It may still be there, and wait for the answer that is lost.
                    _ => self.disconnect(client),
                }
            }
        }
    }

    /// Once asked for, writable events stay on: edge-triggered, there are none
    /// unless output got stuck again.
    fn watch_writable(&mut self, client: ClientId) {
        let slot = client.slot as usize;
        let connection = &mut self.connections[slot];
        connection.is_owed = false;
        if connection.watches_writable {
            return;
        }
        connection.watches_writable = true;
        let fd = connection.socket.as_raw_fd();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        if let Err(e) = registry.reregister(&mut SourceFd(&fd), Token(slot), interest) {
            if let Some(suppressed) = self.watch_log.admit() {
                let serial = client.serial;
                error!("#{serial} can't be watched any more and is closed: {e}{suppressed}");
            }
            self.engine.counters.failed_sends += 1;
            self.disconnect(client);
        }
    }

    fn cut_off(&mut self, client: ClientId) {
        self.engine.counters.failed_sends += 1;
        if let Some(suppressed) = self.cut_off_log.admit() {
            let peer = listener::peer_of(&self.connections[client.slot as usize].socket);
            warn!("{peer} does not read what it asked for and is cut off{suppressed}");
        }
        self.disconnect(client);
    }

    /// The client's input has ended: it holds nothing more, but is still sent
    /// what it asked for before.
    fn finish(&mut self, client: ClientId, now: Time) {
        debug!("#{} closed", client.serial);
        self.engine.disconnect(client, now);
        self.deliver_answers();
        let connection = &mut self.connections[client.slot as usize];
        connection.life = Life::Finishing;
        if connection.owes_nothing() {
            self.bury(client);
        }
    }

    /// The connection is of no use any more.
    fn disconnect(&mut self, client: ClientId) {
        self.engine.disconnect(client, clock::now());
        self.bury(client);
    }

    fn bury(&mut self, client: ClientId) {
        self.connections[client.slot as usize].life = Life::Dead;
        self.dead.push(client);
    }

    /// After a crowd has left, its memory goes back to the system.
    fn tidy(&mut self, now: Time) {
        if !self.tidier.is_due(self.connections.len() + self.engine.len(), now) {
            return;
        }
        self.engine.shrink();
        self.connections.shrink_to_fit();
        self.admission.shrink();
        self.input.shrink();
        for list in [&mut self.owed, &mut self.unfinished, &mut self.dead] {
            list.shrink_to_fit();
        }
        sys::give_memory_back();
        debug!("memory given back");
    }

    /// Last in a turn, so that no event and no list of this turn can mean a
    /// newer client of the same slot.
    fn close_dead(&mut self) {
        if self.dead.is_empty() {
            return;
        }
        for client in self.dead.drain(..) {
            self.connections.remove(client.slot as usize);
            self.admission.note_closed(client.slot as usize);
        }
        self.acceptor.note_closed();
    }
}

/// Watches a socket of ours, which the image before us may have watched already.
fn watch(registry: &Registry, socket: &OwnedFd, token: Token) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    match registry.register(&mut SourceFd(&fd), token, Interest::READABLE) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            registry.reregister(&mut SourceFd(&fd), token, Interest::READABLE)
        }
        result => result,
    }
}

/// The hard limit is what an administrator allows; the soft one is 1024 for the
/// sake of programs that use select(2).
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        warn!("the limit of descriptors could not be raised: {e}");
    }
}
