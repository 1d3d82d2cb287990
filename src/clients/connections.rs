//! All clients' connections, and the lists of those with which something is to be done. Handles
//! sockets, not the protocol.
//!
//! A connection has a stage, a state of its input and one of its output. One in no list waits for
//! an event or for the engine. A list may name a connection that has moved on; it is skipped then.
//!
//! | stage | list | what moves it on |
//! |---|---|---|
//! | `Open` | | its input ends, or is HTTP: `Finishing`; it is lost, freed or reads too little: `Closing` |
//! | `Finishing` | | its answers are sent, or it is lost or freed: `Closing` |
//! | `Closing` | `closing` | the end of the turn frees its slot |
//!
//! | input | flag | list | what moves it on |
//! |---|---|---|---|
//! | drained | | | an event: unread, in `fresh` |
//! | unread | `is_unread` | `queues.fresh` | its share of this turn or a later one: taken |
//! | unread | `is_unread` | `queues.rest` | its share of a later turn: taken |
//! | taken | `is_unread` | | in the same turn: drained, or in a queue if more may follow |
//!
//! While a line is held for a report, nothing is received: a client that is taken counts as
//! drained after a look for its end; if it has hung up, its output is `Failed`. The report puts it
//! in `fresh`, and so does what had come behind the line, unless that is a share: then, as after
//! any other share, it is in `rest`. A client that is `Finishing` is not received from either.
//!
//! | output | list | what moves it on |
//! |---|---|---|
//! | `Idle` | | an answer, or an event that there is room for unsent output: `Owed` |
//! | `Owed` | `owed` | a flush: `Idle`; the peer has left while `Open`: `Failed`, in `fresh` |
//! | `Failed` | | nothing: the end of its input makes it `Closing` |
//!
//! Two flags go with any state: `end`, from an event that the peer has closed until the
//! socket is drained and no report is to be made for it, and `watches_writable`, from the first
//! flush that blocks.

use crate::clients::admission::{Admission, Newcomer, Newcomers, Refusal, Verdict};
use crate::clients::connection::{
    Connection, ConnectionStage, ConnectionState, EndOfInput, OutputState,
};
use crate::clients::input::Input;
use crate::clients::input_queues::{InputQueues, SHARE_BYTES};
use crate::clients::known_ends::KnownEnds;
use crate::clients::losses::Losses;
use crate::logging::rate_limit::limited;
use crate::options::Options;
use crate::platform::failed_call::{is_plain, named};
use crate::platform::os::fd::AsRawFd;
use crate::platform::os::io::Errno;
use crate::platform::os::mio::event::Event;
use crate::platform::os::mio::unix::SourceFd;
use crate::platform::os::mio::{Interest, Registry};
use crate::platform::os::net::sockopt::{set_socket_linger, socket_linger};
use crate::sockets::slots::{Slots, Source};
use crate::sockets::socket::Socket;
use crate::sockets::stream::Flushed;
use engine::counts::statistics::Counters;
use engine::{ClientId, SpareCapacity, Time};
use log::debug;
use reports::Peers;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;

/// Includes priority events: urgent data makes a read short although more can be
/// read (tcp(7)).
const READABLE: Interest = Interest::READABLE.add(Interest::PRIORITY);

/// All clients, by slot.
pub(crate) struct Clients {
    slots: Slots<ClientId, Connection>,
    admission: Admission,
    /// New clients at a limit.
    newcomers: Newcomers,
    /// Clients whose end is known, but not handled. That of one whose line is held is handled with
    /// the report.
    ends: KnownEnds,
    /// Clients to receive from.
    queues: InputQueues,
    /// Clients to flush in this turn.
    owed: VecDeque<ClientId>,
    /// Connections to close at the end of the turn.
    closing: Vec<ClientId>,
    /// Connections that broke.
    losses: Losses,
}

/// Whether a client remains after a flush or a scheduled close.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    /// Its connection is lost: the engine must release all that it holds.
    Gone,
}

impl Clients {
    /// Starts without clients; `options` say which may connect.
    pub(crate) fn new(options: &Options) -> Self {
        Clients {
            slots: Slots::new(READABLE),
            admission: Admission::new(options),
            newcomers: Newcomers::default(),
            ends: KnownEnds::default(),
            queues: InputQueues::default(),
            owed: VecDeque::new(),
            closing: Vec::new(),
            losses: Losses::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many new clients are held at a limit.
    pub(crate) fn newcomers(&self) -> usize {
        self.newcomers.len()
    }

    /// The connections and their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Connection)> {
        self.slots.iter()
    }

    /// Serves a new connection, holds it, or closes it.
    pub(crate) fn add(&mut self, socket: Socket, registry: &Registry, counters: &mut Counters) {
        match self.admission.judge(&socket, self.slots.len()) {
            Verdict::Admitted => self.serve(socket, registry, counters),
            Verdict::AtLimit(why) => self.newcomers.hold(socket, why),
            Verdict::Refused(why) => refuse(why, counters),
            Verdict::HasLeft => {}
        }
    }

    /// Refuses newcomers that are held at a limit and for which there are no `descriptors`.
    pub(crate) fn refuse_surplus(&mut self, descriptors: usize, counters: &mut Counters) {
        while let Some(Newcomer { socket, .. }) = self.newcomers.give_up_one(descriptors) {
            // By the limit that is reached now.
            let verdict = self.admission.judge(&socket, self.slots.len());
            if let Verdict::AtLimit(why) | Verdict::Refused(why) = verdict {
                refuse(why, counters);
            }
        }
    }

    /// Undoes what `--free-port` has set, if it has: `was_set` on a listener, or on the oldest
    /// connection, since listeners may have been opened later.
    pub(crate) fn end_linger(&self, was_set: bool) {
        let oldest = self.slots.iter().min_by_key(|(client, _)| client.serial);
        let lingers = |connection: &Connection| {
            socket_linger(connection.stream.socket()).is_ok_and(|linger| linger.is_some())
        };
        if !was_set && !oldest.is_some_and(|(_, connection)| lingers(connection)) {
            return;
        }
        for (_, connection) in self.slots.iter() {
            // At worst, the client loses answers that it has not read.
            let _ = set_socket_linger(connection.stream.socket(), None);
        }
    }

    /// Decides about those newcomers for which there is a place by now, or surely none. Returns
    /// whether any was closed.
    pub(crate) fn decide_newcomers(
        &mut self,
        registry: &Registry,
        counters: &mut Counters,
        now: Time,
    ) -> bool {
        let (held, before) = (self.newcomers.len(), self.slots.len());
        for _ in 0..held {
            let Some(newcomer) = self.newcomers.pop() else { break };
            match self.admission.judge(&newcomer.socket, self.slots.len()) {
                Verdict::AtLimit(why) if !newcomer.has_waited(&self.ends, now) => {
                    self.newcomers.hold_on(newcomer, why);
                }
                Verdict::Admitted => {
                    self.newcomers.record_served(newcomer.ip);
                    self.serve(newcomer.socket, registry, counters);
                }
                Verdict::Refused(why) | Verdict::AtLimit(why) => refuse(why, counters),
                Verdict::HasLeft => {}
            }
        }
        self.newcomers.len() + (self.slots.len() - before) < held
    }

    fn serve(&mut self, socket: Socket, registry: &Registry, counters: &mut Counters) {
        match self.slots.insert(socket, registry, Connection::new) {
            Ok((client, connection)) => {
                debug!("#{} connected: {}", client.serial, connection.peer());
                self.admission.count_opened(connection);
                counters.accepted_connections += 1;
            }
            Err(e) => {
                counters.connect_errors += 1;
                limited!(
                    error,
                    "closing a connection that could not be registered with epoll: {e}"
                );
            }
        }
    }

    /// The connection of `client`, unless it is closing or the slot has a new owner.
    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Connection> {
        self.slots.get_mut(client).filter(|connection| connection.stage != ConnectionStage::Closing)
    }

    /// The connection of `client`, until its input ends.
    pub(crate) fn open_mut(&mut self, client: ClientId) -> Option<&mut Connection> {
        self.get_mut(client).filter(|connection| connection.stage == ConnectionStage::Open)
    }

    /// The connection of `client`, if it can still be sent answers.
    fn answerable_mut(&mut self, client: ClientId) -> Option<&mut Connection> {
        self.get_mut(client).filter(|connection| !connection.has_failed_output())
    }
}

/// Counts and logs a new client that is refused.
fn refuse(why: Refusal, counters: &mut Counters) {
    match why {
        Refusal::Denied(ip) => {
            counters.denied_connections += 1;
            limited!(warn, "{ip} is not in --allow: closed its connection");
        }
        Refusal::Full => {
            counters.rejected_connections += 1;
            limited!(warn, "--max-connections is reached: closed a new connection");
        }
        Refusal::FullForHost(ip) => {
            counters.rejected_connections_per_ip += 1;
            limited!(
                warn,
                "--max-connections-per-ip is reached: closed a new connection from {ip}"
            );
        }
    }
}

/// Input.
impl Clients {
    /// Notes an event that epoll reported for `slot`.
    pub(crate) fn record_event(&mut self, slot: usize, event: &Event) {
        let Some((client, connection)) = self.slots.at_mut(slot) else {
            return;
        };
        let is_end = event.is_read_closed() || event.is_error() || event.is_priority();
        if is_end && connection.stage == ConnectionStage::Open {
            self.ends.note(&mut connection.end);
        }
        let has_output = !connection.stream.unsent().is_empty();
        // An unread client is in a queue already.
        let is_ready = event.is_readable() || connection.end.is_known();
        if is_ready && !std::mem::replace(&mut connection.is_unread, true) {
            self.queues.push_fresh(client);
        }
        if event.is_writable() && has_output {
            self.record_owed(client);
        }
    }

    /// Whether the next turn should start at once.
    pub(crate) fn has_work(&self) -> bool {
        self.queues.has_work() || self.newcomers.len() > 0
    }

    /// Begins the shares of a turn, after its events.
    pub(crate) fn begin_shares(&mut self) {
        self.queues.begin_shares();
    }

    /// Notes that this turn begins with all events that there are.
    pub(crate) fn record_all_events(&mut self) {
        self.newcomers.record_all_events();
    }

    /// Receives a share from each client whose turn it is, until `input` is full.
    /// Returns false when nothing is left to receive in this turn.
    pub(crate) fn receive(&mut self, input: &mut Input) -> bool {
        while !input.is_full() {
            let Some((client, queue)) = self.queues.next() else { return false };
            match self.get_mut(client) {
                Some(connection) if connection.lines.is_line_held() => {
                    self.look_behind_held_line(client, input);
                }
                Some(connection) if !connection.lines.unhandled().is_empty() => {
                    input.record_unhandled(client, queue);
                }
                Some(connection) if connection.stage == ConnectionStage::Open => {
                    input.receive(client, &connection.stream);
                }
                _ => self.queues.settle(None),
            }
        }
        true
    }

    /// Nothing is received from `client` until its held line is answered, unless it has left.
    fn look_behind_held_line(&mut self, client: ClientId, input: &mut Input) {
        let Some(connection) = self.get_mut(client) else { return };
        // Once the line is answered, it reads without an event.
        connection.is_unread = false;
        let is_open = connection.stage == ConnectionStage::Open;
        match connection.end_behind_held_line() {
            EndOfInput::Ended if is_open => return input.record_end(client),
            EndOfInput::Ended | EndOfInput::NotSeen => {}
            EndOfInput::HungUp if is_open => self.record_output_failure(client),
            EndOfInput::HungUp => drop(self.schedule_close(client)),
        }
        self.queues.settle(Some(0));
    }

    /// Whether `client` waits for a report.
    pub(crate) fn awaits_report(&self, client: ClientId) -> bool {
        let connection = self.slots.get(client);
        connection.is_some_and(|it| it.lines.is_line_held() && it.stage != ConnectionStage::Closing)
    }

    /// Notes what handling the input of a client has cost.
    pub(crate) fn settle(&mut self, work: usize) {
        self.queues.settle(Some(work));
    }

    /// Marks `client` unread if more may follow the `received` bytes. A read shorter
    /// than a share has drained the socket, and the next byte makes a new event
    /// (epoll(7)); but data and the end of input may have shared one event.
    pub(crate) fn record_received(&mut self, client: ClientId, received: usize) {
        let Some(connection) = self.get_mut(client) else {
            return;
        };
        connection.is_unread = false;
        if received == SHARE_BYTES || connection.end.is_known() {
            self.record_unread(client);
        }
    }

    /// Takes what `client` has left from an earlier turn; more may follow in the socket.
    pub(crate) fn take_unhandled(&mut self, client: ClientId) -> Option<Vec<u8>> {
        let connection = self.get_mut(client)?;
        connection.is_unread = false;
        Some(connection.lines.take_unhandled())
    }

    /// Notes that nothing can be received from `client`.
    pub(crate) fn record_receive_failure(&mut self, client: ClientId, e: Errno) {
        if self.get_mut(client).is_some() {
            self.record_loss(client, "recvfrom", e);
        }
    }

    /// Notes that the kernel refuses to receive from `client`, or to send to it. That connections
    /// break is usual; other refusals may concern all of them.
    fn record_loss(&mut self, client: ClientId, call: &str, e: Errno) {
        let serial = client.serial;
        if is_plain(e) {
            debug!("#{serial} lost: {call}: {e}");
            self.losses.add(client, e);
        } else {
            limited!(error, "#{serial} can't be served any more and is closed: {call}: {e}");
        }
    }

    /// Notes that the socket of `client` is drained.
    pub(crate) fn record_drained(&mut self, client: ClientId) {
        if let Some(connection) = self.open_mut(client) {
            connection.is_unread = false;
            self.record_end_handled(client);
        }
    }

    /// Notes that nothing is left to be read to the end of `client`, and no report to be made.
    pub(crate) fn record_end_handled(&mut self, client: ClientId) {
        if let Some(connection) = self.slots.get_mut(client) {
            self.ends.forget(&mut connection.end);
        }
    }

    /// Notes that `client`, which has used up a share, may have more to read or handle: it gets its
    /// next share in a later turn.
    pub(crate) fn record_unread(&mut self, client: ClientId) {
        if self.mark_unread(client) {
            self.queues.push_rest(client);
        }
    }

    /// Notes that `client`, which was not received from, is again: at once, as after an event.
    pub(crate) fn record_readable(&mut self, client: ClientId) {
        if self.mark_unread(client) {
            self.queues.push_fresh(client);
        }
    }

    /// Marks `client` unread. Returns false for one that was: it is in a queue already.
    fn mark_unread(&mut self, client: ClientId) -> bool {
        let connection = self.open_mut(client);
        connection.is_some_and(|it| !std::mem::replace(&mut it.is_unread, true))
    }
}

/// Output.
impl Clients {
    /// Whether `client` is owed so much that sending it at once pays, and the kernel may
    /// take it.
    pub(crate) fn has_much_to_send(&self, client: ClientId) -> bool {
        self.slots.get(client).is_some_and(|connection| {
            connection.stream.unsent().len() > SHARE_BYTES
                && !connection.watches_writable
                && connection.stage == ConnectionStage::Open
        })
    }

    /// Appends to the output that `client` gets at the end of the turn. Returns false
    /// if that exceeds its bound and must be flushed at once.
    #[must_use]
    pub(crate) fn owe(&mut self, client: ClientId, bytes: Cow<'static, [u8]>) -> bool {
        let Some(connection) = self.answerable_mut(client) else {
            return true;
        };
        connection.stream.push(bytes);
        let fits = !connection.stream.exceeds_bound();
        self.record_owed(client);
        fits
    }

    fn record_owed(&mut self, client: ClientId) {
        if let Some(connection) = self.get_mut(client) {
            if connection.output == OutputState::Idle {
                connection.output = OutputState::Owed;
                self.owed.push_back(client);
            }
        }
    }

    /// The next client to flush in this turn. The list may grow meanwhile: when a
    /// client is lost, its locks may pass to waiters, which are then owed an answer.
    pub(crate) fn next_owed(&mut self) -> Option<ClientId> {
        self.owed.pop_front()
    }

    /// Sends what `client` is owed. Counts failed sends.
    pub(crate) fn flush(
        &mut self,
        client: ClientId,
        registry: &Registry,
        counters: &mut Counters,
    ) -> Fate {
        let Some(connection) = self.answerable_mut(client) else {
            return Fate::Stays;
        };
        connection.output = OutputState::Idle;
        let finishing = connection.stage == ConnectionStage::Finishing;
        let ended = match connection.stream.flush() {
            Flushed::All if finishing && !connection.owes_answers() => {
                return self.schedule_close(client);
            }
            Flushed::All => return Fate::Stays,
            Flushed::Blocked if connection.stream.exceeds_bound() => {
                let peer = connection.peer();
                limited!(warn, "{peer} does not read its answers and is disconnected");
                &mut counters.unread_connections
            }
            Flushed::Blocked => match self.watch_writable(client, registry) {
                Ok(()) => return Fate::Stays,
                Err(e) => {
                    let serial = client.serial;
                    limited!(
                        error,
                        "#{serial} can no longer be registered with epoll and is closed: {e}"
                    );
                    &mut counters.lost_connections
                }
            },
            Flushed::Failed(e) => {
                self.record_loss(client, "sendto", e);
                if matches!(e, Errno::PIPE | Errno::CONNRESET) && !finishing {
                    counters.failed_sends += 1;
                    // The next reads return what it sent before, then its end.
                    self.record_output_failure(client);
                    return Fate::Stays;
                }
                &mut counters.lost_connections
            }
        };
        // The end of its input has counted already.
        *ended += u64::from(!finishing);
        counters.failed_sends += 1;
        // It may still be connected, waiting for an answer that is lost.
        self.schedule_close(client)
    }

    /// Nothing is sent to `client` any more, not even the report that it may wait for; the rest
    /// of its input is handled.
    fn record_output_failure(&mut self, client: ClientId) {
        if let Some(connection) = self.open_mut(client) {
            connection.output = OutputState::Failed;
            connection.stream.discard_output();
            connection.lines.finish_line();
            self.record_readable(client);
        }
    }

    /// Writable interest is never withdrawn: it fires only after output has
    /// blocked.
    fn watch_writable(&mut self, client: ClientId, registry: &Registry) -> io::Result<()> {
        let Some(connection) = self.get_mut(client) else {
            return Ok(());
        };
        if std::mem::replace(&mut connection.watches_writable, true) {
            return Ok(());
        }
        let fd = connection.stream.socket().as_raw_fd();
        let token = Source::Client(client.slot as usize).into();
        let interests = READABLE.add(Interest::WRITABLE);
        registry.reregister(&mut SourceFd(&fd), token, interests).map_err(named("epoll_ctl"))
    }
}

/// Stages.
impl Clients {
    /// Closes the connection of `client`, whose input has ended, once its output is
    /// sent.
    pub(crate) fn close_after_output(&mut self, client: ClientId) {
        let Some(connection) = self.slots.get_mut(client) else { return };
        if connection.stage != ConnectionStage::Open {
            return;
        }
        connection.stage = ConnectionStage::Finishing;
        if connection.lines.is_line_held() {
            return self.ends.note(&mut connection.end);
        }
        self.record_end_handled(client);
        if self.get_mut(client).is_some_and(|it| !it.owes_answers()) {
            let _ = self.schedule_close(client);
        }
    }

    /// Closes the connection of `client` at the end of the turn.
    pub(crate) fn schedule_close(&mut self, client: ClientId) -> Fate {
        self.record_end_handled(client);
        let Some(connection) = self.get_mut(client) else {
            return Fate::Stays;
        };
        connection.stage = ConnectionStage::Closing;
        self.closing.push(client);
        Fate::Gone
    }

    /// Closes the connection of `client`, which the engine has disconnected, at the end of
    /// the turn: its locks go to others.
    pub(crate) fn free(&mut self, client: ClientId, counters: &mut Counters) {
        if self.schedule_close(client) == Fate::Gone {
            counters.freed_connections += 1;
        }
    }

    /// Closes the connections scheduled for it; returns false if there are none. Runs
    /// last in a turn, so that no event or list of this turn can refer to a newer
    /// client in the same slot.
    pub(crate) fn close_scheduled(&mut self) -> bool {
        if !self.losses.is_empty() {
            let ip_of = |client| self.slots.get(client).and_then(Connection::lost_ip);
            self.losses.end_turn(self.queues.has_work(), ip_of);
        }
        let any = !self.closing.is_empty();
        for client in self.closing.drain(..) {
            if let Some(connection) = self.slots.remove(client) {
                self.admission.count_closed(&connection);
            }
        }
        any
    }
}

/// Memory and hot restarts.
impl Clients {
    /// What [`Clients::shrink`] would free.
    pub(crate) fn spare(&self) -> SpareCapacity {
        self.slots.spare()
    }

    /// Frees memory after many clients have left.
    pub(crate) fn shrink(&mut self) {
        self.slots.shrink();
        self.admission.shrink();
        self.queues.shrink();
        self.owed.shrink_to_fit();
        self.closing.shrink_to_fit();
    }

    /// The serial number of the newest client.
    pub(crate) fn last_serial(&self) -> u32 {
        self.slots.last_serial()
    }

    /// What a hot restart carries over.
    pub(crate) fn states(&self) -> impl Iterator<Item = ConnectionState> {
        self.slots.iter().map(|(client, connection)| connection.state(client))
    }

    /// Continues with the old image's connections, each with its slot.
    pub(crate) fn resume(
        mut connections: Vec<(ClientId, Connection)>,
        last_serial: u32,
        options: &Options,
    ) -> Self {
        let mut clients = Clients::new(options);
        for (client, connection) in &mut connections {
            if connection.is_unread {
                clients.queues.push_rest(*client);
                // The event for its end may have come before the restart.
                if connection.stage == ConnectionStage::Open
                    || !connection.lines.unhandled().is_empty()
                {
                    clients.ends.note(&mut connection.end);
                }
            }
            clients.admission.count_opened(connection);
        }
        clients.slots.resume(connections, last_serial);
        clients
    }
}

/// What reports see.
impl Clients {
    /// How many slots there are, with and without a connection.
    pub(crate) fn slots(&self) -> usize {
        self.slots.capacity()
    }

    /// Calls `look` with each connection in `slots` and its address without the port.
    pub(crate) fn for_each_address(
        &self,
        slots: Range<usize>,
        mut look: impl FnMut(ClientId, &str),
    ) {
        let mut address = String::new();
        for slot in slots {
            if let Some((client, connection)) = self.slots.at(slot) {
                connection.write_address(&mut address);
                look(client, &address);
            }
        }
    }

    /// Replaces `address` by that of `client`, without the port. Returns false if it
    /// has gone.
    pub(crate) fn write_address(&self, client: ClientId, address: &mut String) -> bool {
        let connection = self.slots.get(client);
        connection.map(|connection| connection.write_address(address)).is_some()
    }
}

impl Peers for Clients {
    fn peer(&self, client: ClientId) -> Option<String> {
        self.slots.get(client).map(Connection::peer)
    }
}
